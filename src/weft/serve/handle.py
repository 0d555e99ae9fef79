"""Handles to deployments and the responses that they give. They work in any process and can be passed to any."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import math
import time
from collections.abc import AsyncIterator, Generator, Iterator
from dataclasses import dataclass, replace
from typing import Any

import weft
from weft.exceptions import ActorError
from weft.library.keywords import answers_attributes
from weft.serve.bundles import REFUSED
from weft.serve.context import calls_of_request, request_context
from weft.serve.errors import ReplicaDiedError
from weft.serve.requests import AwaitedRequest
from weft.serve.router import Router, Stream, router_of

MANY_CALLS = 32


@answers_attributes(compute="write result()", get="write result()", json="write result()", wait="write result()")
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
        """The value; raises what the deployment raised, or TimeoutError. The call goes on then: `cancel()` ends it."""
        request = self._request
        until_s = request.context.deadline_s
        if timeout_s is not None:
            until_s = min(until_s, time.monotonic() + timeout_s)
        self._router.wait(request, None if until_s == math.inf else until_s - time.monotonic())
        if request.is_done:
            return request.outcome()
        try:
            return request.future.result(None if until_s == math.inf else max(0.0, until_s - time.monotonic()))
        except concurrent.futures.TimeoutError:
            if request.is_done:
                raise
        if until_s == request.context.deadline_s:
            request.expire()
            return request.outcome()
        raise TimeoutError(f"no response within {timeout_s} s")

    def __await__(self) -> Generator[Any, None, Any]:
        """Cancelling what awaits it cancels the call."""
        request = self._request
        expiry = None
        if request.context.deadline_s != math.inf and not request.is_done:
            left_s = request.context.deadline_s - time.monotonic()
            expiry = asyncio.get_running_loop().call_later(left_s, request.expire)
        try:
            return (yield from asyncio.wrap_future(request.future))
        except (asyncio.CancelledError, GeneratorExit):
            request.give_up()
            raise
        finally:
            if expiry is not None:
                expiry.cancel()

    def cancel(self) -> None:
        """Nobody waits for it any more: it is not started, or its async code is cancelled, and so are the calls that
        it has made to other deployments."""
        self._request.give_up()

    def done(self) -> bool:
        """Whether the result, or the error, is there."""
        self._router.watch(self._request)
        return self._request.is_done

    def __del__(self) -> None:
        if self._request.ref is not None and not self._request.streams:  # it may have to be sent again
            with contextlib.suppress(Exception):  # of a session that has ended
                self._router.watch(self._request)

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
        self._request.give_up()

    async def aclose(self) -> None:
        """As `close()`, in an event loop."""
        if self._async_items is not None:
            await self._async_items.aclose()
        self._request.give_up()

    def __del__(self) -> None:
        self._request.drop()

    def _take(self) -> Iterator[Any]:
        while True:
            stream = self._attempt_in_time()
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

    def _attempt_in_time(self) -> Stream:
        request = self._request
        left_s = request.context.deadline_s - time.monotonic()
        try:
            stream: Stream = request.future.result(None if left_s == math.inf else max(0.0, left_s))
        except concurrent.futures.TimeoutError:
            if not request.is_done:
                request.expire()
            stream = request.outcome()
        return stream

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
        stream: Stream = await DeploymentResponse(self._request, self._request.router)
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


@dataclass(frozen=True, repr=False)
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
    _timeout_s: float | None = None
    _session: str = ""

    def options(
        self,
        *,
        method_name: str | None = None,
        stream: bool | None = None,
        multiplexed_model_id: str | None = None,
        timeout_s: float | None = None,
        session_id: str | None = None,
    ) -> DeploymentHandle:
        """The same with other options. With `stream=True`, `remote` gives the items of a generator. All requests with
        one `session_id` go to one replica, for as long as that runs; those that are made for a request have its.

        A request that has no answer after `timeout_s` is cancelled, with all that works for it in other deployments,
        and ends in a DeadlineExceededError. One that is made for another request ends with that at the latest."""
        if timeout_s is not None and not timeout_s >= 0:
            raise ValueError(f"timeout_s must be at least 0, but got {timeout_s}")
        return replace(
            self,
            _method=self._method if method_name is None else method_name,
            _stream=self._stream if stream is None else stream,
            _model=self._model if multiplexed_model_id is None else multiplexed_model_id,
            _timeout_s=self._timeout_s if timeout_s is None else timeout_s,
            _session=self._session if session_id is None else session_id,
        )

    def __repr__(self) -> str:
        return f"DeploymentHandle({self.deployment_name!r} of application {self.app_name!r})"

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
            context = context._replace(multiplexed_model_id=self._model)
        if self._session:
            context = context._replace(session_id=self._session)
        if self._timeout_s is not None:
            context = context._replace(deadline_s=min(context.deadline_s, time.monotonic() + self._timeout_s))
        request = AwaitedRequest(context, self._method, args, kwargs, self._stream)
        router = router_of(self._controller, self._key)
        given = [one for one in (*args, *kwargs.values()) if isinstance(one, DeploymentResponse)]
        if given:
            _submit_after(given, request, router)
        else:
            router.submit(request)
        calls = calls_of_request.get()
        if calls is not None:
            if len(calls) >= MANY_CALLS:
                calls[:] = [one for one in calls if not one.has_ended]
            calls.append(request)
        return DeploymentResponseGenerator(request) if self._stream else DeploymentResponse(request, router)


def _submit_after(given: list[DeploymentResponse], request: AwaitedRequest, router: Router) -> None:
    """Submit the request once the responses among its arguments are there, one after another; fail it with the first
    of them that fails."""

    request.router = router

    def look(_: object = None) -> None:
        pending = next((one for one in given if not one.done()), None)
        if pending is not None:
            pending._request.future.add_done_callback(look)
            return
        try:
            request.args = tuple(_value(one) for one in request.args)
            request.kwargs = {name: _value(one) for name, one in request.kwargs.items()}
            router.submit(request, watched=True)
        except Exception as error:
            request.end(None, error)

    look()


def _value(argument: Any) -> Any:
    return argument._request.outcome() if isinstance(argument, DeploymentResponse) else argument
