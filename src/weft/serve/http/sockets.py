"""WebSockets: between uvicorn's protocol in the front and an ASGI app in a replica. On the front's loop."""

from __future__ import annotations

import asyncio
from typing import Any

from weft.serve.handle import DeploymentResponseGenerator
from weft.serve.http.messages import HttpAnswer
from weft.serve.inboxes import LEFT


async def talk(items: DeploymentResponseGenerator, inbox: str, receive: Any, send: Any) -> None:
    """Carry messages both ways until one side has ended. The client's wait in it while the app does not read them."""
    to_app = None
    try:
        await receive()  # that it wants to connect, which the app is told by the request
        await items.taken()
        to_app = asyncio.get_running_loop().create_task(_carry(items, inbox, receive))
        async for message in items:
            await send(message)
    finally:
        if to_app is not None:
            to_app.cancel()
            await asyncio.gather(to_app, return_exceptions=True)
            await items.deliver(inbox, LEFT)
        await items.aclose()


async def _carry(items: DeploymentResponseGenerator, inbox: str, receive: Any) -> None:
    while True:
        message = dict(await receive())
        if not await items.deliver(inbox, message) or message["type"] == "websocket.disconnect":
            return


async def refuse(answer: HttpAnswer, receive: Any, send: Any) -> None:
    """Answer the request for a WebSocket with plain HTTP."""
    await receive()
    headers = list(answer.headers)
    await send({"type": "websocket.http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": answer.body})
