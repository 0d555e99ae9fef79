"""Which local sockets listen under abstract names on this machine, and whose they are: the kernel's own table, which is
read without connecting to any. A name is anybody's to choose, and a line that strangers have filled says nothing."""

from __future__ import annotations

import contextlib
import socket
import struct
import sys
from collections.abc import Iterator

_BY_FAMILY, _ERROR, _DONE = 20, 2, 3
_REQUEST_DUMP = 0x301
_LISTENS = 10
_SHOW_NAME, _SHOW_USER = 1, 64
_NAME, _USER = 0, 7
_HEAD = struct.Struct("=IHHII")
_QUESTION = struct.Struct("=BBHIIIII")
_SOCKET = struct.Struct("=BBBBIII")
_ATTRIBUTE = struct.Struct("=HH")
_ACCEPTS = 1 << 16


def listening(prefix: str) -> dict[str, int | None]:
    """Of the sockets that keep the bounds of messages: the user by the name, with "@" before it; None where the kernel
    does not tell."""
    found: dict[str, int | None] = {}
    try:
        for name, user in _told_by_the_kernel():
            if name.startswith(prefix):
                found[name] = user
    except OSError:  # a sandbox, or a kernel without it
        return dict.fromkeys(_named_in_proc(prefix))
    return found


def _told_by_the_kernel() -> Iterator[tuple[str, int | None]]:
    question = _QUESTION.pack(socket.AF_UNIX, 0, 0, 1 << _LISTENS, 0, _SHOW_NAME | _SHOW_USER, 0, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4) as kernel:
        kernel.settimeout(5)
        kernel.sendto(_HEAD.pack(_HEAD.size + len(question), _BY_FAMILY, _REQUEST_DUMP, 1, 0) + question, (0, 0))
        while True:
            told = memoryview(kernel.recv(1 << 18))
            while len(told) >= _HEAD.size:
                length, kind, *_ = _HEAD.unpack_from(told)
                if kind == _DONE:
                    return
                if kind == _ERROR:
                    raise OSError("the kernel does not tell which local sockets there are")
                yield from _read(told[_HEAD.size : length])
                told = told[-(-length // 4) * 4 :]


def _read(record: memoryview) -> Iterator[tuple[str, int | None]]:
    _, kind, *_ = _SOCKET.unpack_from(record)
    rest, values = record[_SOCKET.size :], {}
    while len(rest) >= _ATTRIBUTE.size:
        length, attribute = _ATTRIBUTE.unpack_from(rest)
        values[attribute] = bytes(rest[_ATTRIBUTE.size : length])
        rest = rest[max(4, -(-length // 4) * 4) :]
    name = values.get(_NAME, b"")
    if kind == socket.SOCK_SEQPACKET and name.startswith(b"\0"):
        user = int.from_bytes(values[_USER], sys.byteorder) if _USER in values else None
        yield "@" + name[1:].decode("utf-8", "replace"), user


def _named_in_proc(prefix: str) -> Iterator[str]:
    # Strangers choose their names: any bytes, also line ends.
    with contextlib.suppress(OSError), open("/proc/net/unix", encoding="utf-8", errors="replace") as table:
        for line in table:
            fields = line.split()
            if len(fields) == 8 and fields[7].startswith(prefix):
                with contextlib.suppress(ValueError):
                    if int(fields[3], 16) & _ACCEPTS:
                        yield fields[7]
