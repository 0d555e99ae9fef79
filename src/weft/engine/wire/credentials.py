"""Who is at the other end of a local socket, as the kernel says (SO_PEERCRED), before what came is looked at."""

from __future__ import annotations

import os
import socket
import struct

_CREDENTIALS = struct.Struct("iII")


def peer_pid(connection: socket.socket) -> int:
    """The peer's process, as it was when it connected; PermissionError when it is another user's."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(raw)
    if uid != os.getuid():
        raise PermissionError(f"process {pid} belongs to user {uid}, not to {os.getuid()}")
    return int(pid)
