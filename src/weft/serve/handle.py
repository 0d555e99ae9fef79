"""Handles to deployments and the responses that they give. They work in any process and can be passed to any."""

from __future__ import annotations

import asyncio
import concurrent.futures
import time
from collections.abc import AsyncIterator, Generator, Iterator
from dataclasses import dataclass, replace
from typing import Any

import weft
from weft.exceptions import ActorError
from weft.serve.bundles import REFUSED
from weft.serve.context import RequestContext, request_context
from weft.serve.errors import ReplicaDiedError
from weft.serve.requests import AwaitedRequest
from weft.serve.router import Router, Stream, router_of


class DeploymentResponse:
    """The answer to come. `await` it in async code, or wait for it with `result()`.

    Given as an argument to another handle's `remote`, its value is sent on as soon as it is there.

    >>> from weft import serve
    >>> @serve.deployment
    ... def double(x): return 2 * x
    >>> handle = serve.run(double.bind(), name="double")
    >>> handle.remote(handle.remote(3)).result(timeout_s=10)
    12
    >>> serve.delete("double")
    """

    def __init__(self, request: AwaitedRequest, router: Router) -> None:
        self._request = request
        self._router = router

    def result(self, timeout_s: float | None = None) -> Any:
        """The value; raises what the deployment raised, or TimeoutError."""
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        self._router.wait(self._request, timeout_s)
        left_s = None if deadline_s is None else max(0.0, deadline_s - time.monotonic())
        try:
            return self._request.future.result(left_s)
        except concurrent.futures.TimeoutError:
            if self._request.future.done():
                raise
            raise TimeoutError(f"no response within {timeout_s} s") from None

    def __await__(self) -> Generator[Any, None, Any]:
        return asyncio.wrap_future(self._request.future).__await__()

    def cancel(self) -> None:
        """Nobody waits for it any more: it is not started, or its async code is cancelled."""
        ref = self._request.ref
        if self._request.future.cancel() and ref is not None:
            weft.cancel(ref)

    def done(self) -> bool:
        """Whether the result, or the error, is there."""
        return self._request.future.done()

    def __reduce__(self) -> Any:
        raise TypeError(
            "a DeploymentResponse can only be a direct argument of another handle's remote(): "
            "await it, and send the value"
        )


class DeploymentResponseGenerator:
    """The items of a stream, for `for` and `async for`. Closing or dropping it ends the generator in the replica.

    >>> from weft import serve
    >>> @serve.deployment
    ... def count(to): yield from range(to)
    >>> handle = serve.run(count.bind(), name="count")
    >>> list(handle.options(stream=True).remote(3))
    [0, 1, 2]
    >>> serve.delete("count")
    """

    def __init__(self, request: AwaitedRequest) -> None:
        self._request = request
        self._stream: Stream | None = None
        """Once a replica has taken it, in async code."""
        self._items: Any = None
        self._async_items: Any = None

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._items is None:
            self._items = self._take()
        return next(self._items)

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        if self._async_items is None:
            self._async_items = self._take_async()
        return await self._async_items.__anext__()

    def close(self) -> None:
        """Asks for no further items: the replica's generator is closed."""
        if self._items is not None:
            self._items.close()
        self._abandon()

    async def aclose(self) -> None:
        """As `close()`, in an event loop."""
        if self._async_items is not None:
            await self._async_items.aclose()
        self._abandon()

    def __del__(self) -> None:
        future = self._request.future
        if not future.cancel() and future.done() and future.exception() is None:  # not done: this very thread ends it
            future.result().drop()

    def _abandon(self) -> None:
        """Nobody reads on: the attempt that there is ends, or none is begun any more."""
        future = self._request.future
        if not future.cancel() and future.exception() is None:
            future.result().close()

    def _take(self) -> Iterator[Any]:
        while True:
            stream: Stream = self._request.future.result()
            try:
                verdict, load, _ = weft.get(next(stream.refs))
            except ActorError as error:
                stream.router.stream_lost(stream.request, stream.peer, error)
                continue
            if verdict != REFUSED:
                break
            stream.router.stream_refused(stream.request, stream.peer, load)
        try:
            for ref in stream.refs:
                yield weft.get(ref)[2]
        except ActorError as error:
            raise _broken(stream, error) from None
        finally:
            stream.close()

    async def taken(self) -> None:
        """Returns when a replica has taken the request. For one task at a time, and before `async for`."""
        if self._stream is None:
            self._stream = await self._begin_async()

    async def deliver(self, inbox: str, message: Any) -> bool:
        """Give the replica that has taken the request something more for it; False if it reads no more."""
        if self._stream is None:
            return False
        try:
            return bool(await self._stream.peer.actor.deliver.remote(inbox, message))
        except ActorError:
            return False

    async def _begin_async(self) -> Stream:
        while True:
            stream = await self._attempt()
            try:
                verdict, load, _ = await (await stream.refs.__anext__())
            except ActorError as error:
                stream.router.stream_lost(stream.request, stream.peer, error)
                continue
            except BaseException:
                stream.close()
                raise
            if verdict != REFUSED:
                return stream
            stream.router.stream_refused(stream.request, stream.peer, load)

    async def _attempt(self) -> Stream:
        try:
            stream: Stream = await asyncio.wrap_future(self._request.future)
        except asyncio.CancelledError:  # perhaps in the moment in which it came
            self._abandon()
            raise
        return stream

    async def _take_async(self) -> AsyncIterator[Any]:
        await self.taken()
        stream = self._stream
        assert stream is not None
        try:
            async for ref in stream.refs:
                yield (await ref)[2]
        except ActorError as error:
            raise _broken(stream, error) from None
        finally:
            stream.close()


def _broken(stream: Stream, error: ActorError) -> ReplicaDiedError:
    return ReplicaDiedError(stream.router.key, stream.peer.name, str(error))


@dataclass(frozen=True)
class DeploymentHandle:
    """Calls a deployment: `handle.remote(x)` its `__call__`, `handle.method.remote(x)` a method.

    It picks a replica by itself; nothing stands between it and the replica but shared memory.

    >>> from weft import serve
    >>> @serve.deployment
    ... class Text:
    ...     def __call__(self, text): return text.upper()
    ...     def count(self, text): return len(text)
    >>> handle = serve.run(Text.bind(), name="text")
    >>> handle.remote("ab").result(), handle.count.remote("ab").result()
    ('AB', 2)
    >>> serve.delete("text")
    """

    _controller: Any
    app_name: str
    deployment_name: str
    _method: str = "__call__"
    _stream: bool = False
    _model: str = ""

    def options(
        self, *, method_name: str | None = None, stream: bool | None = None, multiplexed_model_id: str | None = None
    ) -> DeploymentHandle:
        """The same with other options. With `stream=True`, `remote` gives the items of a generator."""
        return replace(
            self,
            _method=self._method if method_name is None else method_name,
            _stream=self._stream if stream is None else stream,
            _model=self._model if multiplexed_model_id is None else multiplexed_model_id,
        )

    @property
    def _key(self) -> str:
        """The deployment's name in the cluster."""
        return f"{self.app_name}:{self.deployment_name}"

    def __getattr__(self, name: str) -> DeploymentHandle:
        if name.startswith("_"):
            raise AttributeError(name)
        return replace(self, _method=name)

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        """Send a request. Returns a `DeploymentResponse`, or with `stream=True` a `DeploymentResponseGenerator`.

        BackPressureError when too many wait already."""
        context = request_context.get()
        if self._model != context.multiplexed_model_id:
            context = RequestContext(context.request_id, self._model)
        request = AwaitedRequest(context, self._method, args, kwargs, self._stream)
        router = router_of(self._controller, self._key)
        given = [one for one in (*args, *kwargs.values()) if isinstance(one, DeploymentResponse)]
        if given:
            _submit_after(given, request, router)
        else:
            router.submit(request)
        return DeploymentResponseGenerator(request) if self._stream else DeploymentResponse(request, router)


def _submit_after(given: list[DeploymentResponse], request: AwaitedRequest, router: Router) -> None:
    """Submit the request once the responses among its arguments are there, one after another; fail it with the first
    of them that fails."""

    def look(_: object = None) -> None:
        pending = next((one for one in given if not one.done()), None)
        if pending is not None:
            pending._request.future.add_done_callback(look)
            return
        try:
            request.args = tuple(_value(one) for one in request.args)
            request.kwargs = {name: _value(one) for name, one in request.kwargs.items()}
            router.submit(request)
        except Exception as error:
            request.end(None, error)

    look()


def _value(argument: Any) -> Any:
    return argument.result() if isinstance(argument, DeploymentResponse) else argument
