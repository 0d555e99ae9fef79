"""Who is at the other end of a local socket, as the kernel says (SO_PEERCRED), before what came is looked at."""

from __future__ import annotations

import os
import socket
import struct

_CREDENTIALS = struct.Struct("iII")
_TIME = struct.Struct("ll")


def peer_pid(connection: socket.socket) -> int:
    """The peer's process, as it was when it connected; PermissionError when it is another user's."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(raw)
    if uid != os.getuid():
        raise PermissionError(f"process {pid} belongs to user {uid}, not to {os.getuid()}")
    return int(pid)


def connect_to_own(name: str, kind: int, timeout_s: float | None = None) -> socket.socket:
    """To a process of this user that listens under that name; the timeout holds for what follows, too. PermissionError
    where it is another user's, TimeoutError, OSError.

    Where the line of those who wait is full, as any user of the machine can make it, this waits. A socket with a
    timeout would not: Python's never block in the kernel, which then says at once that there is no room."""
    connection = socket.socket(socket.AF_UNIX, kind)
    try:
        if timeout_s is not None:
            whole = int(timeout_s)
            time = _TIME.pack(whole, max(1, int((timeout_s - whole) * 1e6)))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, time)
        try:
            connection.connect("\0" + name.removeprefix("@"))
        except BlockingIOError:
            raise TimeoutError(f"{name} has let nobody in within {timeout_s} s") from None
        peer_pid(connection)
        connection.settimeout(timeout_s)
    except BaseException:
        connection.close()
        raise
    return connection
