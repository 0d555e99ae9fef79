"""How a link whose connection broke finds out about the other side: a connection to go on over, or whether it is there.

Runs in the daemon's thread.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from weft.engine.node.loop import Loop
from weft.engine.wire.link_messages import AnyMessage

if TYPE_CHECKING:
    from weft.engine.wire.link import Link

KNOCK_S = 1.0
"""So long a machine may take to say whether somebody listens."""


class Resuming:
    """Who is told of a connection that a link shall go on over; see `LinkUser`."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def ready(self, link: Link) -> None:
        link.ask_to_resume(self._link)

    def closed(self, link: Link, reason: str) -> None:
        if reason:
            self._link.not_resumed(reason)

    def received(self, link: Link, message: AnyMessage) -> None:
        link.close("a message came before the link was resumed")

    def records_came(self, link: Link, batch: memoryview) -> None:
        link.close("records came before the link was resumed")

    def chunk_target(self, link: Link, transfer: int, offset: int, size: int) -> memoryview | None:
        return None

    def chunk_came(self, link: Link, transfer: int, offset: int, size: int) -> None: ...
    def resumed(self, link: Link) -> None: ...


class Knock:
    """Finds out whether somebody listens at an address."""

    def __init__(self, loop: Loop, address: str, then: Callable[[bool], None]) -> None:
        """`then` is told whether its machine says that nobody does."""
        self._loop = loop
        self._then = then
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._timer = loop.call_later(KNOCK_S, self._heard)
        host, _, port = address.rpartition(":")
        code = self._socket.connect_ex((host, int(port))) if port else 0
        loop.watch(self._socket.fileno(), self._heard)
        if code == errno.EINPROGRESS:
            loop.want_write(self._socket.fileno(), self._heard)
        else:
            self._end(code == errno.ECONNREFUSED)

    def _heard(self) -> None:
        self._end(self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNREFUSED)

    def _end(self, is_refused: bool) -> None:
        self._timer.cancel()
        self._loop.unwatch(self._socket.fileno())
        self._socket.close()
        self._then(is_refused)
