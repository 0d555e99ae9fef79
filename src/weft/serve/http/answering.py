"""Answers HTTP requests with the user's code, inside a replica. What the user's code raises becomes a 500 here."""

from __future__ import annotations

import asyncio
import inspect
import traceback
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from weft.serve.context import get_request_id
from weft.serve.errors import DeadlineExceededError
from weft.serve.http import asgi, bodies
from weft.serve.http.messages import (
    APP,
    CALL,
    GO_ON,
    SOCKET,
    STREAM,
    Headers,
    HttpAnswer,
    HttpHead,
    HttpRequest,
    header_of,
)

if TYPE_CHECKING:
    from weft.serve.user_code import UserCode

FETCH_S = 10.0
"""How long a caller may take to ask for the pieces of an answer."""
INGRESS = "_weft_serve_ingress"
"""The attribute of a class with `@serve.ingress`: makes the ASGI app for an instance."""


class HttpCalls:
    """The methods that fronts call, around the user's `__call__` or its ASGI app."""

    def __init__(self, code: UserCode) -> None:
        self._code = code
        target = code.instance
        self._function: Any = target if inspect.isfunction(target) else getattr(target, "__call__", None)  # noqa: B004
        make = getattr(type(target), INGRESS, None)
        self._app: Any = make(target) if make is not None else None
        self._fits = [self._does_fit((), {}), self._does_fit((None,), {})]
        """Whether it can be called with so many arguments and no keyword."""
        self._request_class = asgi.request_class_wanted(self._function)
        self._begun: dict[str, tuple[asgi.AppAnswer, asyncio.TimerHandle]] = {}
        """Answers that come in pieces, by inbox, until their caller asks for these."""
        self.methods: dict[str, Any] = {
            CALL: self.call,
            APP: self.app,
            GO_ON: self.go_on,
            STREAM: self.stream,
            SOCKET: self.socket,
        }

    async def call(self, head: tuple[str, str, bytes, Headers, str], body: bytes) -> tuple[Any, ...]:
        """With the fields of a `Head`; gives those of an `HttpAnswer`."""
        method, path, query, headers, scheme = head
        try:
            if self._request_class is None:
                args, kwargs = self._arguments(query, headers, body)
            else:
                whole = HttpRequest(method, path, "", query, headers, body, "1.1", scheme, None, None)
                args, kwargs = (asgi.made_request(self._request_class, whole),), {}
            found = self._code.async_method("__call__")
            if found is not None:
                value = await found(*args, **kwargs)
            else:
                value = await self._code.call("__call__", args, kwargs)
            return tuple(bodies.encoded(value, header_of(headers, b"accept")))
        except bodies.BadRequest as error:
            return tuple(bodies.refusal(error.status, error.reason))
        except DeadlineExceededError:
            return tuple(bodies.refusal(504, bodies.LATE))
        except Exception:
            return tuple(_failed(method, path))

    async def app(self, fields: tuple[Any, ...]) -> tuple[Any, ...]:
        """The fields of an `HttpAnswer`; its body is None if it comes in pieces."""
        request = HttpRequest(*fields)
        name = request.inbox
        answer = asgi.AppAnswer(self._app, request, self._code.inboxes.open(name))
        try:
            whole = await answer.whole()
        except asyncio.CancelledError:
            answer.leave()
            self._code.inboxes.close(name)
            raise
        except Exception:
            self._code.inboxes.close(name)
            return tuple(_failed(request.method, request.path))
        if whole is not None and answer.running.done():
            self._code.inboxes.close(name)
            return tuple(whole)
        self._code.hold()
        if whole is None:
            timer = asyncio.get_running_loop().call_later(FETCH_S, self._drop, name)
            self._begun[name] = (answer, timer)
            return 0, (), None
        answer.running.add_done_callback(lambda _: self._ended(name))  # what it does after its answer counts too
        return tuple(whole)

    async def go_on(self, name: str) -> AsyncIterator[HttpHead | bytes]:
        """What `app` has begun."""
        answer, timer = self._begun.pop(name)
        timer.cancel()
        try:
            async for piece in answer.pieces():
                yield piece
        finally:
            self._ended(name)

    def _drop(self, name: str) -> None:
        """Nobody came for the pieces."""
        self._begun.pop(name)[0].leave()
        self._ended(name)

    def _ended(self, name: str) -> None:
        self._code.inboxes.close(name)
        self._code.release()

    async def stream(self, fields: tuple[Any, ...]) -> AsyncIterator[HttpHead | bytes]:
        """An `HttpHead`, then pieces of the body."""
        request = HttpRequest(*fields)
        pieces = self._pieces(request) if self._app is None else self._pieces_of_app(request)
        has_begun = False
        try:
            async for piece in pieces:
                has_begun = True
                yield piece
        except Exception as error:
            is_clients = isinstance(error, bodies.BadRequest)
            failed = bodies.refusal(error.status, error.reason) if is_clients else _failed(request.method, request.path)  # type: ignore[attr-defined]
            if has_begun:
                raise
            yield HttpHead(failed.status, failed.headers)
            yield failed.body

    async def _pieces(self, request: HttpRequest) -> AsyncIterator[HttpHead | bytes]:
        if self._request_class is None:
            args, kwargs = self._arguments(request.query, request.headers, request.body)
        else:
            args, kwargs = (asgi.made_request(self._request_class, request),), {}
        has_begun = False
        async for item in self._code.stream("__call__", args, kwargs):
            if not has_begun:
                yield bodies.stream_head(item)
                has_begun = True
            yield bodies.piece(item)
        if not has_begun:
            yield HttpHead(200, ())

    async def _pieces_of_app(self, request: HttpRequest) -> AsyncIterator[HttpHead | bytes]:
        inbox = self._code.inboxes.open(request.inbox)
        try:
            async for piece in asgi.AppAnswer(self._app, request, inbox).pieces():
                yield piece
        finally:
            self._code.inboxes.close(request.inbox)

    async def socket(self, fields: tuple[Any, ...]) -> AsyncIterator[dict[str, Any]]:
        """A WebSocket's messages to the client. The client's come by the inbox."""
        request = HttpRequest(*fields)
        inbox = self._code.inboxes.open(request.inbox)
        try:
            async for message in asgi.answer_websocket(self._app, request, inbox):
                yield message
        except Exception as error:
            if not asgi.tells_that_client_left(error):
                _failed(request.method, request.path)
            yield {"type": "websocket.close", "code": 1011}
        finally:
            self._code.inboxes.close(request.inbox)

    def _arguments(self, query: bytes, headers: Headers, body: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args, kwargs = bodies.arguments(query, headers, body)
        if not kwargs and self._fits[len(args)]:
            return args, kwargs
        if self._function is None:
            raise bodies.BadRequest(404, "the deployment has no __call__ and answers by its handle only")
        try:
            inspect.signature(self._function).bind(*args, **kwargs)
        except TypeError as error:
            hint = "arguments come from the query (?name=value) or from a JSON object in the body"
            raise bodies.BadRequest(
                422, f"the deployment cannot be called with this request: {error}; {hint}"
            ) from None
        return args, kwargs

    def _does_fit(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        if self._function is None:
            return False
        try:
            inspect.signature(self._function).bind(*args, **kwargs)
        except TypeError:
            return False
        return True


def _failed(method: str, path: str) -> HttpAnswer:
    """The trace is for the log; the client is not told what the code looks like inside."""
    print(f"weft.serve: request {get_request_id()} {method} {path} failed\n{traceback.format_exc()}")
    return bodies.refusal(500, "the deployment failed with this request; its log says how")
