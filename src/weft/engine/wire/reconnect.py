"""How a link whose connection broke finds out about the other side: a connection to go on over, or whether it is there.

Runs in the daemon's thread.
"""

from __future__ import annotations

import errno
import functools
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from weft.engine.wire.link_messages import Fault, LinkMessage
from weft.net.loop import Loop

if TYPE_CHECKING:
    from weft.engine.wire.link import Again, Link

RESUME_S = 15.0
"""A link that has no other connection by then is over. How long silence is borne is for who uses the link, and he
closes it before. It is no shorter where the other machine has ended the connection: if its process is dead the machine
says so at the next attempt, and if not it may only be slow to answer."""
ATTEMPT_S = 3.0
"""A connection that is not made by then is tried anew: the kernel would ask again only after twice as long."""
AGAIN_S = 0.1
"""After so long another connection is tried."""
KNOCK_S = 1.0
"""So long a machine may take to say whether somebody listens."""


class NextConnection:
    """Finds another connection for a link that has none; the link is closed when there is none to be had."""

    def __init__(self, loop: Loop, link: Link, again: Again | None) -> None:
        self._loop = loop
        self._link = link
        self._again = again
        """Makes one; None where the other side does."""

    def find(self, reason: str, is_silent: bool, fault: Fault) -> None:
        """`reason`: why the last one ended; `is_silent`: it carried nothing any more, nobody has ended it."""
        self._reason, self._is_silent, self._fault, self._attempts = reason, is_silent, fault, 0
        self._severed_at = self._loop.now()
        self._loop.call_later(0, self._try)

    def _try(self) -> None:
        if not self._link.is_severed:
            return
        if self._loop.now() - self._severed_at > RESUME_S:
            self._link.close(self._reason, self._fault)
        elif self._again is None:
            Knock(self._loop, self._link.address, self.failed)
        else:
            self._attempts += 1
            try:
                # Where the first attempt after a silence succeeds, small packets pass: perhaps large ones do not.
                attempt = self._again(Resuming(self._link, self.failed), self._is_silent and self._attempts == 1)
            except OSError as error:
                self.failed(isinstance(error, ConnectionRefusedError))
            else:
                attempt.resumes = self._link
                self._loop.call_later(ATTEMPT_S, functools.partial(attempt.close, "it did not answer in time"))

    def failed(self, is_refused: bool) -> None:
        """The connection that was to be next is none."""
        if is_refused and self._link.is_severed:
            self._link.close(self._reason, self._fault)
        else:
            self._loop.call_later(AGAIN_S, self._try)


class Resuming:
    """Who is told of a connection that a link shall go on over; see `LinkUser`."""

    def __init__(self, link: Link, failed: Callable[[bool], None]) -> None:
        self._link = link
        self._failed = failed

    def ready(self, link: Link) -> None:
        link.ask_to_resume(self._link)

    def closed(self, link: Link, reason: str) -> None:
        if reason:
            self._failed(link.is_refused)

    def received(self, link: Link, message: LinkMessage) -> None:
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
        try:
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        except OSError:  # no descriptor is left now
            loop.call_later(0, lambda: then(False))
            return
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
