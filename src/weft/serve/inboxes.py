"""What callers send on to a request that is under way in a replica: pieces of a body, messages of a WebSocket.

Runs on the replica's loop.
"""

from __future__ import annotations

import asyncio
from typing import Any

MOST_UNREAD = 16
LEFT = "left"
"""The last message: whoever sent the others is gone."""


class Inboxes:
    """By the names that callers gave them."""

    def __init__(self) -> None:
        self._open: dict[str, Inbox] = {}

    def open(self, name: str) -> Inbox:
        """Before the request's first wait, so that what its caller sends next finds it."""
        made = self._open[name] = Inbox()
        return made

    def close(self, name: str) -> None:
        found = self._open.pop(name, None)
        if found is not None:
            found.close()

    async def deliver(self, name: str, message: Any) -> bool:
        """Returns when there was room for the message; False if nobody will read it."""
        found = self._open.get(name)
        if found is not None and message == LEFT:
            found.left.set()
            return True
        return found is not None and await found.put(message)


class Inbox:
    """The messages of one request, in order."""

    def __init__(self) -> None:
        self._unread: asyncio.Queue[Any] = asyncio.Queue(MOST_UNREAD)
        self._closed = asyncio.Event()
        self.left = asyncio.Event()

    async def put(self, message: Any) -> bool:
        putting = asyncio.ensure_future(self._unread.put(message))
        closing = asyncio.ensure_future(self._closed.wait())
        try:
            await asyncio.wait((putting, closing), return_when=asyncio.FIRST_COMPLETED)
            return putting.done()
        finally:
            putting.cancel()
            closing.cancel()

    async def get(self) -> Any:
        """The next message, or LEFT."""
        reading = asyncio.ensure_future(self._unread.get())
        leaving = asyncio.ensure_future(self.left.wait())
        try:
            await asyncio.wait((reading, leaving), return_when=asyncio.FIRST_COMPLETED)
            return reading.result() if reading.done() else LEFT
        finally:
            reading.cancel()
            leaving.cancel()

    def close(self) -> None:
        self._closed.set()
