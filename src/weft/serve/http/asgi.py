"""Has an ASGI app answer a request, or talk over a WebSocket, inside a replica."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from weft.serve.http.messages import HttpAnswer, HttpHead, HttpRequest
from weft.serve.inboxes import LEFT, Inbox

Message = dict[str, Any]
_REQUEST_NAMES = ("Request", "fastapi.Request", "starlette.requests.Request")
_VERSION = {"version": "3.0", "spec_version": "2.4"}
HOLD_S = 0.005
"""How long a head waits for its body, to travel with it."""
LEAVE_S = 0.05
"""How long an app whose client left has to notice it by itself."""
GRACE_S = 10.0
"""How long the app of a WebSocket whose client left may go on."""


class AppAnswer:
    """An app's answer to one request: whole, if it comes in one piece and soon, else in pieces. Starts the app."""

    def __init__(self, app: Any, request: HttpRequest, inbox: Inbox) -> None:
        """The inbox has what is left of the body, and whether the client left."""
        self._loop = asyncio.get_running_loop()
        self._request = request
        self._inbox = inbox
        self._is_body_read = False
        self._head: HttpHead | None = None
        self._body = b""
        self._is_complete = False
        self._error: Exception | None = None
        self._is_whole: asyncio.Future[bool] = self._loop.create_future()
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue(1)
        self._timer: asyncio.TimerHandle | None = None
        self.running = self._loop.create_task(self._run(app))

    async def whole(self) -> HttpAnswer | None:
        """None if it comes in pieces; raises what the app raises."""
        if not await self._is_whole:
            return None
        head = self._checked()
        return HttpAnswer(head.status, head.headers, self._body)

    async def pieces(self) -> AsyncIterator[HttpHead | bytes]:
        """The head, then pieces of the body; raises what the app raises. The app ends with it."""
        ending = self._loop.create_task(self._end_when_left())
        try:
            await self._is_whole
            yield self._checked()
            if self._body:
                yield self._body
            if not self._is_whole.result():
                while (piece := await self._pieces.get()) is not None:
                    yield piece
                self._checked()
            await asyncio.wait((self.running,))
        finally:
            ending.cancel()
            self.running.cancel()

    def leave(self) -> None:
        """Nobody wants the answer any more: the app is told, and cancelled soon."""
        self._inbox.left.set()
        self._loop.call_later(LEAVE_S, self.running.cancel)

    def _checked(self) -> HttpHead:
        if self._error is not None:
            raise self._error
        if self._head is None:
            raise RuntimeError("the app ended without an answer")
        return self._head

    async def _run(self, app: Any) -> None:
        try:
            await app(_http_scope(self._request), self._receive, self._send)
        except Exception as error:
            if not self._is_complete:
                self._error = error
            elif not tells_that_client_left(error):
                traceback.print_exc()  # Starlette raises what its error page has answered already
        except asyncio.CancelledError:
            if self._pieces.full():
                self._pieces.get_nowait()
            self._pieces.put_nowait(None)
            raise
        finally:
            self._decide(True)
        if not self._is_whole.result():
            await self._pieces.put(None)

    def _decide(self, is_whole: bool) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._is_whole.done():
            self._is_whole.set_result(is_whole)

    async def _receive(self) -> Message:
        if not self._is_body_read and not self._request.is_body_in_pieces:
            self._is_body_read = True
            return {"type": "http.request", "body": self._request.body, "more_body": False}
        message: Any = LEFT if self._is_complete else await self._inbox.get()
        if message == LEFT:
            return {"type": "http.disconnect"}
        piece, more = message
        self._is_body_read = not more
        return {"type": "http.request", "body": piece, "more_body": more}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = tuple((bytes(name), bytes(value)) for name, value in message.get("headers", ()))
            self._head = HttpHead(message["status"], headers)
            self._timer = self._loop.call_later(HOLD_S, self._decide, False)
            return
        if message["type"] != "http.response.body":
            return
        body, is_last = bytes(message.get("body", b"")), not message.get("more_body", False)
        if not self._is_whole.done():
            self._body = body
            self._decide(is_last)
        elif body and not self._is_complete:
            await self._pieces.put(body)
        if is_last:
            self._is_complete = True
            self._inbox.left.set()  # whoever waits for more is told that there is none

    async def _end_when_left(self) -> None:
        """Only sending would tell the app, and one that waits for something else does not send."""
        await self._inbox.left.wait()
        if not self._is_complete:
            await asyncio.sleep(LEAVE_S)
            self.running.cancel()


async def answer_websocket(app: Any, request: HttpRequest, inbox: Inbox) -> AsyncIterator[Message]:
    """The messages that the app sends, as ASGI has them."""
    is_connected = False

    async def receive() -> Message:
        nonlocal is_connected
        if not is_connected:
            is_connected = True
            return {"type": "websocket.connect"}
        message: Message | str = await inbox.get()
        return {"type": "websocket.disconnect", "code": 1006} if isinstance(message, str) else message

    async for message in _sent_by(app, _websocket_scope(request), receive, inbox, GRACE_S):
        yield message


async def _sent_by(
    app: Any, scope: Message, receive: Callable[[], Awaitable[Message]], inbox: Inbox, grace_s: float
) -> AsyncIterator[Message]:
    """The app's messages. It is cancelled some time after its client left."""
    sent: asyncio.Queue[Message | None] = asyncio.Queue(1)

    async def run() -> None:
        try:
            await app(scope, receive, sent.put)
        finally:
            await sent.put(None)

    async def end() -> None:
        await inbox.left.wait()
        await asyncio.sleep(grace_s)
        running.cancel()

    running = asyncio.get_running_loop().create_task(run())
    ending = asyncio.get_running_loop().create_task(end())
    try:
        while (message := await sent.get()) is not None:
            yield message
        with contextlib.suppress(asyncio.CancelledError):
            await running
    finally:
        running.cancel()
        ending.cancel()


def request_class_wanted(function: Any) -> Any:
    """Starlette's class of requests, or one derived from it, if the first parameter is annotated so; else None."""
    try:
        first = next(iter(inspect.signature(function).parameters.values()), None)
    except (TypeError, ValueError):
        return None
    wanted = first.annotation if first is not None else None
    if isinstance(wanted, str):  # unevaluated; what it names may not have travelled with the code
        wanted = getattr(function, "__globals__", {}).get(wanted, wanted)
    if wanted not in _REQUEST_NAMES and not isinstance(wanted, type):
        return None
    try:
        from starlette.requests import Request
    except ImportError:
        return None
    return Request if isinstance(wanted, str) else wanted if issubclass(wanted, Request) else None


def made_request(request_class: Any, request: HttpRequest) -> Any:
    """With a body that has come already."""

    async def receive() -> Message:
        return {"type": "http.request", "body": request.body, "more_body": False}

    return request_class(_http_scope(request), receive)


def tells_that_client_left(error: Exception) -> bool:
    """As Starlette says it, which may not be installed; no fault of the app's."""
    return type(error).__name__ in ("ClientDisconnect", "WebSocketDisconnect")


def _http_scope(request: HttpRequest) -> Message:
    return {"type": "http", "method": request.method, **_common(request)}


def _websocket_scope(request: HttpRequest) -> Message:
    wanted = request.header(b"sec-websocket-protocol")
    scheme = "wss" if request.scheme == "https" else "ws"
    protocols = [one.strip() for one in wanted.split(",") if one.strip()]
    return {**_common(request), "type": "websocket", "scheme": scheme, "subprotocols": protocols}


def _common(request: HttpRequest) -> Message:
    return {
        "asgi": _VERSION,
        "http_version": request.http_version,
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
