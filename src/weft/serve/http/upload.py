"""A body on its way from a client to an app that reads it in pieces. On the front's loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

MOST_UNREAD_BYTES = 1024 * 1024
MOST_HELD_BYTES = 64 * 1024


class Upload:
    """At most about `MOST_UNREAD_BYTES` are held, `MOST_HELD_BYTES` while no replica has the request: then the client
    is not read on."""

    def __init__(self, transport: Any) -> None:
        self.when_ready: Callable[[], None] | None = None
        """Of a request that waits until there is room, or more of its body: to be called when that is there."""
        self._transport = transport
        self._is_paused = False
        self._pieces: list[bytes] = []
        self._unread_bytes = 0
        self._is_whole = False
        self._came = asyncio.Event()

    @property
    def lacks(self) -> bool:
        """Whether it is the client who has to send on."""
        return not self._is_whole and not self._is_paused

    @property
    def is_awaited(self) -> bool:
        """Whether it is the client who keeps a replica waiting."""
        return self.lacks and self.when_ready is None

    def feed(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._unread_bytes += len(piece)
        if not self._is_paused and self._unread_bytes > (MOST_HELD_BYTES if self.when_ready else MOST_UNREAD_BYTES):
            self._is_paused = True
            self._transport.pause_reading()
            self._tell()
        self._came.set()

    def finish(self) -> None:
        self._is_whole = True
        self._came.set()
        self._tell()

    def _tell(self) -> None:
        if self.when_ready is not None:
            self.when_ready()

    async def take(self) -> tuple[bytes, bool]:
        """(all that has come since, whether there is more)"""
        await self._came.wait()
        self._came.clear()
        taken, self._pieces = b"".join(self._pieces), []
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()
        self._unread_bytes = 0
        return taken, not self._is_whole
