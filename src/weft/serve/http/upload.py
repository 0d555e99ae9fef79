"""A body on its way from a client to an app that reads it in pieces. On the front's loop."""

from __future__ import annotations

import asyncio
from typing import Any

MOST_UNREAD_BYTES = 1024 * 1024


class Upload:
    """At most about `MOST_UNREAD_BYTES` are held: then the client is not read on."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._pieces: list[bytes] = []
        self._unread_bytes = 0
        self._is_whole = False
        self._came = asyncio.Event()

    @property
    def is_awaited(self) -> bool:
        """Whether it is the client that is waited for."""
        return not self._is_whole and self._unread_bytes <= MOST_UNREAD_BYTES

    def feed(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._unread_bytes += len(piece)
        if self._unread_bytes > MOST_UNREAD_BYTES:
            self._transport.pause_reading()
        self._came.set()

    def finish(self) -> None:
        self._is_whole = True
        self._came.set()

    async def take(self) -> tuple[bytes, bool]:
        """(all that has come since, whether there is more)"""
        await self._came.wait()
        self._came.clear()
        taken, self._pieces = b"".join(self._pieces), []
        if self._unread_bytes > MOST_UNREAD_BYTES:
            self._transport.resume_reading()
        self._unread_bytes = 0
        return taken, not self._is_whole
