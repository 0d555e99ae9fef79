"""Answers HTTP requests with the user's code, inside a replica. What the user's code raises becomes a 500 here."""

from __future__ import annotations

import asyncio
import inspect
import traceback
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from weft.serve.context import get_request_id
from weft.serve.http import bodies
from weft.serve.http.messages import HttpAnswer, HttpHead, HttpRequest

if TYPE_CHECKING:
    from weft.serve.user_code import UserCode

INGRESS = "_weft_serve_ingress"
"""The attribute of a class with `@serve.ingress`: makes the ASGI app for an instance."""


class HttpCalls:
    """The two methods that fronts call, around the user's `__call__` or its ASGI app."""

    def __init__(self, code: UserCode) -> None:
        self._code = code
        target = code.instance
        self._function: Any = target if inspect.isfunction(target) else getattr(target, "__call__", None)  # noqa: B004
        self._app: Any = None
        self._fits = [self._does_fit((), {}), self._does_fit((None,), {})]
        """Whether it can be called with so many arguments and no keyword."""

    async def call(self, fields: tuple[Any, ...]) -> tuple[Any, ...]:
        """With the fields of an `HttpRequest`; those of an `HttpAnswer`."""
        return tuple(await self._answer(HttpRequest(*fields)))

    async def _answer(self, request: HttpRequest) -> HttpAnswer:
        try:
            args, kwargs = self._arguments(request)
            value = await self._code.call("__call__", args, kwargs)
            return bodies.encoded(value, request.header(b"accept"))
        except bodies.BadRequest as error:
            return bodies.refusal(error.status, error.reason)
        except Exception:
            return _failed(request)

    async def stream(self, fields: tuple[Any, ...]) -> AsyncIterator[HttpHead | bytes]:
        request = HttpRequest(*fields)
        make = getattr(type(self._code.instance), INGRESS, None)
        if make is not None:
            if self._app is None:
                self._app = make(self._code.instance)
            async for message in _run_asgi(self._app, request):
                yield message
            return
        has_begun = False
        try:
            args, kwargs = self._arguments(request)
            async for item in self._code.stream("__call__", args, kwargs):
                if not has_begun:
                    yield bodies.stream_head(item)
                    has_begun = True
                yield bodies.piece(item)
            if not has_begun:
                yield HttpHead(200, ())
        except bodies.BadRequest as error:
            refused = bodies.refusal(error.status, error.reason)
            yield HttpHead(refused.status, refused.headers)
            yield refused.body
        except Exception:
            failed = _failed(request)
            if has_begun:
                raise
            yield HttpHead(failed.status, failed.headers)
            yield failed.body

    def _arguments(self, request: HttpRequest) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args, kwargs = bodies.arguments(request)
        if not kwargs and self._fits[len(args)]:
            return args, kwargs
        if self._function is None:
            raise bodies.BadRequest(404, "the deployment has no __call__ and answers by its handle only")
        try:
            inspect.signature(self._function).bind(*args, **kwargs)
        except TypeError as error:
            raise bodies.BadRequest(422, f"the deployment can not be called with this request: {error}") from None
        return args, kwargs

    def _does_fit(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        if self._function is None:
            return False
        try:
            inspect.signature(self._function).bind(*args, **kwargs)
        except TypeError:
            return False
        return True


def _failed(request: HttpRequest) -> HttpAnswer:
    """The trace is for the log; the client is not told what the code looks like inside."""
    print(f"weft.serve: request {get_request_id()} {request.method} {request.path} failed\n{traceback.format_exc()}")
    return bodies.refusal(500, "the deployment failed with this request; its log says how")


async def _run_asgi(app: Any, request: HttpRequest) -> AsyncIterator[HttpHead | bytes]:
    """Have an ASGI app answer; what it sends comes out here, one piece at a time."""
    sent: asyncio.Queue[HttpHead | bytes | None] = asyncio.Queue(1)
    is_read = False

    async def receive() -> dict[str, Any]:
        nonlocal is_read
        if is_read:
            await asyncio.Event().wait()  # until this request is cancelled
        is_read = True
        return {"type": "http.request", "body": request.body, "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            headers = tuple((bytes(name), bytes(value)) for name, value in message.get("headers", ()))
            await sent.put(HttpHead(message["status"], headers))
        elif message.get("body"):
            await sent.put(bytes(message["body"]))

    async def run() -> None:
        try:
            await app(_scope(request), receive, send)
        finally:
            await sent.put(None)

    running = asyncio.get_running_loop().create_task(run())
    has_begun = False
    try:
        while (message := await sent.get()) is not None:
            has_begun = True
            yield message
        try:
            await running
        except Exception:
            if has_begun:  # the app's own error page, or half an answer: nothing can be added
                _failed(request)
                return
            failed = _failed(request)
            yield HttpHead(failed.status, failed.headers)
            yield failed.body
    finally:
        running.cancel()


def _scope(request: HttpRequest) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": request.http_version,
        "method": request.method,
        "scheme": request.scheme,
        "path": request.path,
        "raw_path": request.path.encode(),
        "root_path": request.root_path,
        "query_string": request.query,
        "headers": list(request.headers),
        "client": request.client,
        "server": request.server,
        "state": {},
    }
