"""How soon a connection that carries nothing any more is noticed: what the kernel is asked to watch for.

A cable that is cut, a firewall that forgets, packets that are too large for the path: none of them closes a connection.
The kernel ends one on which bytes stay unacknowledged, or probes unanswered, for `DEAD_S`; it costs nothing while all
is well. A process that stands still is acknowledged for by its kernel: who uses the connection watches for that.
"""

from __future__ import annotations

import contextlib
import errno
import socket

DEAD_S = 4
_PROBE_AFTER_S, _PROBE_EACH_S = 2, 1
NARROW_BYTES = 1160
"""Of a packet, where larger ones seem to vanish: what passes every tunnel that is in use (the least is 1,280)."""
ENDED = (errno.ECONNRESET, errno.EPIPE, errno.ECONNREFUSED, errno.ECONNABORTED)
"""Errors by which the other machine says that the connection is over. After all others it may only be out of reach."""


def watch(connection: socket.socket) -> None:
    """Have the kernel end it when it is dead."""
    with contextlib.suppress(OSError):  # not TCP, in tests
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _PROBE_AFTER_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_EACH_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, DEAD_S - _PROBE_AFTER_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_S * 1000)


def narrow(connection: socket.socket) -> None:
    """Before it is made: neither side sends large packets."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, NARROW_BYTES)
