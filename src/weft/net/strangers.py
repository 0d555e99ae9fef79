"""Connections that have proved nothing: how many there may be, and which of them gives way to the next.

Pure, but for asking a socket for its address. Runs in the loop's thread.

Invariants:
    STR-1  a stranger takes the place of no one who has proved the token, nor of an address from which fewer came.
    STR-2  of one address, those that have not even begun to encrypt give way first: most strangers only knock.
"""

from __future__ import annotations

import collections
import contextlib
from typing import Protocol

from weft.net.connection import Connection


class Arrived(Protocol):
    """A link that was accepted."""

    connection: Connection
    is_closed: bool

    def close(self, reason: str = "") -> None: ...


class Strangers:
    """Those of one port, the oldest first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._whence: dict[Arrived, str] = {}

    def add(self, link: Arrived) -> None:
        """One more, if it is one; where there are `most`, another is closed."""
        if not link.connection.is_strange:
            return
        self._whence = {one: host for one, host in self._whence.items() if _is_strange(one)}
        if len(self._whence) >= self._most:
            self._send_away()
        host = ""
        with contextlib.suppress(OSError):  # it has left already
            host = link.connection.socket.getpeername()[0]
        self._whence[link] = host

    def _send_away(self) -> None:
        crowd = collections.Counter(self._whence.values()).most_common(1)[0][0]
        those = [one for one, host in self._whence.items() if host == crowd]
        one = next((one for one in those if not one.connection.is_encrypted), those[0])
        del self._whence[one]
        one.close(f"refused: {self._most} others came after it")


def _is_strange(link: Arrived) -> bool:
    return not link.is_closed and link.connection.is_strange
