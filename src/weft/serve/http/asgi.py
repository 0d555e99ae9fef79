"""Has an ASGI app answer a request, or talk over a WebSocket, inside a replica."""

from __future__ import annotations

import asyncio
import contextlib
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from weft.serve.http.messages import HttpHead, HttpRequest
from weft.serve.inboxes import LEFT, Inbox

Message = dict[str, Any]
_VERSION = {"version": "3.0", "spec_version": "2.4"}
GRACE_S = 10.0
"""How long the app of a WebSocket whose client left may go on."""


async def answer_http(app: Any, request: HttpRequest, inbox: Inbox) -> AsyncIterator[HttpHead | bytes]:
    """What the app sends, one piece at a time; raises what it raises. The inbox has what is left of the body."""
    is_body_read = False

    async def receive() -> Message:
        nonlocal is_body_read
        if not is_body_read and not request.is_body_in_pieces:
            is_body_read = True
            return {"type": "http.request", "body": request.body, "more_body": False}
        message = await inbox.get()
        if message == LEFT:
            return {"type": "http.disconnect"}
        piece, more = message
        is_body_read = not more
        return {"type": "http.request", "body": piece, "more_body": more}

    is_complete = False
    try:
        async for message in _sent_by(app, _http_scope(request), receive, inbox, 0.0):
            if message["type"] == "http.response.start":
                headers = tuple((bytes(name), bytes(value)) for name, value in message.get("headers", ()))
                yield HttpHead(message["status"], headers)
                continue
            is_complete = not message.get("more_body", False)
            if message.get("body"):
                yield bytes(message["body"])
    except Exception:
        if not is_complete:
            raise
        traceback.print_exc()  # Starlette raises what its error page has answered already


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
    """The app's messages. It is cancelled some time after its client left: only `send` would tell it of that, and one
    that waits for something else does not call it."""
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
