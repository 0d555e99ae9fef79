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
    await receive()  # that it wants to connect, which the app is told by the request
    first = asyncio.ensure_future(receive())
    taken = asyncio.ensure_future(items.taken())
    try:
        await asyncio.wait((first, taken), return_when=asyncio.FIRST_COMPLETED)
        if not taken.done():
            return  # it left while it waited for a replica
        await taken
        to_app = asyncio.get_running_loop().create_task(_carry(items, inbox, first, receive))
        async for message in items:
            await send(message)
    finally:
        running = [one for one in (to_app, first, taken) if one is not None]
        for one in running:
            one.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        if to_app is not None:
            await items.deliver(inbox, LEFT)
        await items.aclose()


async def _carry(items: DeploymentResponseGenerator, inbox: str, first: asyncio.Future[Any], receive: Any) -> None:
    message = dict(await first)
    while await items.deliver(inbox, message) and message["type"] != "websocket.disconnect":
        message = dict(await receive())


async def refuse(answer: HttpAnswer, receive: Any, send: Any) -> None:
    """Answer the request for a WebSocket with plain HTTP."""
    await receive()
    headers = list(answer.headers)
    await send({"type": "websocket.http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": answer.body})
