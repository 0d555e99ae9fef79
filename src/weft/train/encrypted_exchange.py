"""Moves bytes over several connections at once, where some of them are encrypted; otherwise native code does.

Runs in the member's thread. OpenSSL encrypts and decrypts without the GIL, straight from and into the arrays.
"""

from __future__ import annotations

import collections
import select
import socket
import ssl
import time
from collections.abc import Sequence
from typing import Any

__all__ = ["exchange_encrypted"]

Flow = tuple[socket.socket, Sequence[Any], Sequence[Any]]
"""A connection that does not block, what is to be sent, and what is to be filled."""
_PIECE_BYTES = 256 << 10
_WAITS = (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError)


def exchange_encrypted(flows: Sequence[Flow], quiet_s: float) -> tuple[str, int] | None:
    """None when all is done; else "closed" or "silent", and the number of the flow where that was seen.

    Silent: nothing moved anywhere for `quiet_s`, unless that is negative."""
    moves = [_Move(*flow) for flow in flows]
    moved_s = time.monotonic()
    while any(not move.is_done for move in moves):
        has_moved = False
        for number, move in enumerate(moves):
            try:
                has_moved |= move.go_on()
            except OSError:
                return "closed", number
        if has_moved:
            moved_s = time.monotonic()
        elif not _wait(moves, moved_s, quiet_s):
            return "silent", next(number for number, move in enumerate(moves) if not move.is_done)
    return None


class _Move:
    """One flow."""

    def __init__(self, connection: socket.socket, out: Sequence[Any], into: Sequence[Any]) -> None:
        self.connection = connection
        self._out = _views(out)
        self._into = _views(into)
        self.events = 0

    @property
    def is_done(self) -> bool:
        return not self._out and not self._into

    def go_on(self) -> bool:
        """Whether anything moved. OSError where the connection is over."""
        self.events = 0
        sent = self._send() if self._out else False
        return (self._receive() if self._into else False) or sent

    def _send(self) -> bool:
        try:
            count = self.connection.send(self._out[0][:_PIECE_BYTES])
        except _WAITS as error:
            self.events |= select.POLLIN if isinstance(error, ssl.SSLWantReadError) else select.POLLOUT
            return False
        except OSError:
            if not self._into:
                raise
            self._out.clear()  # who has closed may have said why before
            return True
        _advance(self._out, count)
        return True

    def _receive(self) -> bool:
        try:
            count = self.connection.recv_into(self._into[0][:_PIECE_BYTES])
        except _WAITS as error:
            self.events |= select.POLLOUT if isinstance(error, ssl.SSLWantWriteError) else select.POLLIN
            return False
        if count == 0:
            raise ConnectionError("the other end closed the connection")
        _advance(self._into, count)
        return True


def _views(buffers: Sequence[Any]) -> collections.deque[memoryview]:
    views = (memoryview(buffer).cast("B") for buffer in buffers)
    return collections.deque(view for view in views if len(view))


def _advance(views: collections.deque[memoryview], count: int) -> None:
    if count == len(views[0]):
        views.popleft()
    else:
        views[0] = views[0][count:]


def _wait(moves: Sequence[_Move], moved_s: float, quiet_s: float) -> bool:
    """Until something may move; False when nothing did for too long."""
    poll = select.poll()
    for move in moves:
        if not move.is_done:
            poll.register(move.connection.fileno(), move.events)
    left_s = moved_s + quiet_s - time.monotonic()
    if quiet_s < 0:
        return bool(poll.poll())
    return left_s > 0 and bool(poll.poll(left_s * 1000))
