"""Connections that have proved nothing: how many there may be, and which of them gives way to the next.

Pure, but for asking a socket for its address and whether something has come. Runs in the loop's thread.

Invariants:
    STR-1  a stranger takes the place of no one who has proved the token, nor of an address from which fewer came.
    STR-2  of the addresses from which most came, those that have sent nothing give way before those that have begun to
           encrypt: most strangers only knock, and who has many addresses knocks once from each.
    STR-3  all of loopback is one address: any user of the machine has them all.
"""

from __future__ import annotations

import collections
import contextlib
import socket
from typing import Protocol

from weft.net.connection import Connection

LOOPBACK = "127."


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
        """One more, if it is one; where there are `most`, others are closed."""
        if not link.connection.is_strange:
            return
        if len(self._whence) >= self._most:
            self._whence = {one: host for one, host in self._whence.items() if _is_strange(one)}
        if len(self._whence) >= self._most:
            self._send_away()
        host = ""
        with contextlib.suppress(OSError):  # it has left already
            host = link.connection.socket.getpeername()[0]
        self._whence[link] = LOOPBACK if host.startswith(LOOPBACK) else host

    def _send_away(self) -> None:
        """Several of a large crowd: to look at all of them again for each that comes takes longer than it to come."""
        crowds = collections.Counter(self._whence.values())
        most = max(crowds.values())
        those = [one for one, host in self._whence.items() if crowds[host] == most]
        those.sort(key=lambda one: one.connection.is_encrypted or _has_sent(one))
        for one in those[: 1 + len(those) // 16]:
            del self._whence[one]
            one.close(f"refused: {self._most} others came after it")


def _has_sent(link: Arrived) -> bool:
    """Whether something has come that was not read yet: in a flood, many come before it is."""
    try:
        return bool(link.connection.socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    except OSError:
        return False


def _is_strange(link: Arrived) -> bool:
    return not link.is_closed and link.connection.is_strange
