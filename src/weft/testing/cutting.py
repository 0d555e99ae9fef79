"""Cutting a TCP connection of a living process from outside, as a firewall or a flapping network would.

`reset` has the kernel drop whatever is on its way and send the other side a reset; `silence` has it drop what comes,
and nobody is told. `cut_between` and `silence_between` borrow descriptors of another process (pidfd_getfd), so they
want the rights of a debugger over it: its parent has them.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import struct
from collections.abc import Callable

_PIDFD_GETFD = 438
_ESTABLISHED = "01"
_AF_UNSPEC = (ctypes.c_char * 16)()
_SO_ATTACH_FILTER = 26
_DROP_ALL = struct.pack("HBBI", 0x06, 0, 0, 0)
"""A filter of one instruction: keep nothing of any packet."""
_libc = ctypes.CDLL(None, use_errno=True)


def reset(connection: int) -> None:
    """Of that descriptor. What was sent and not received, either way, is lost."""
    _checked(_libc.connect(connection, _AF_UNSPEC, len(_AF_UNSPEC)))


def silence(connection: int) -> None:
    """Of that descriptor. Nothing comes any more, not even what acknowledges what is sent."""
    code = ctypes.create_string_buffer(_DROP_ALL, len(_DROP_ALL))
    program = struct.pack("HxxxxxxP", 1, ctypes.addressof(code))
    with socket.socket(fileno=os.dup(connection)) as borrowed:
        borrowed.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)


def cut_between(pid: int, other: int) -> int:
    """Cut all TCP connections between two processes; how many there were. OSError where that is not allowed."""
    return _each_between(pid, other, reset)


def silence_between(pid: int, other: int) -> int:
    """All TCP connections between two processes carry nothing any more; how many there were."""
    return _each_between(pid, other, silence)


def _each_between(pid: int, other: int, harm: Callable[[int], None]) -> int:
    theirs = {here for here, _ in _connections(other).values()}
    count = 0
    pidfd = os.pidfd_open(pid)
    try:
        for descriptor, (_, there) in _connections(pid).items():
            if there in theirs:
                borrowed = _checked(_libc.syscall(_PIDFD_GETFD, pidfd, descriptor, 0))
                with socket.socket(fileno=borrowed) as connection:
                    harm(connection.fileno())
                    count += 1
    finally:
        os.close(pidfd)
    return count


def _connections(pid: int) -> dict[int, tuple[str, str]]:
    """By descriptor: its own address and the other side's, as the kernel writes them."""
    known: dict[str, tuple[str, str]] = {}
    with open(f"/proc/{pid}/net/tcp") as table:
        for line in table.readlines()[1:]:
            fields = line.split()
            if fields[3] == _ESTABLISHED:
                known[f"socket:[{fields[9]}]"] = (fields[1], fields[2])
    found: dict[int, tuple[str, str]] = {}
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):  # it may be closed meanwhile
            target = os.readlink(f"/proc/{pid}/fd/{name}")
            if target in known:
                found[int(name)] = known[target]
    return found


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
