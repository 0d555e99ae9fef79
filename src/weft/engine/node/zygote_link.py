"""The daemon's end of the zygote: asks for workers, kills them, hears of their ends.

Runs in the daemon's thread. Commands wait here when the socket is full (the zygote may be importing something).
"""

from __future__ import annotations

import collections
import os
import socket
from collections.abc import Callable

from weft.engine.node import zygote
from weft.engine.state.events import Process
from weft.net.loop import Loop, Timer

RETRY_S = 0.01


class ZygoteLink:
    """Commands out, reports in."""

    def __init__(
        self,
        loop: Loop,
        connection: socket.socket,
        on_forked: Callable[[Process, int], None],
        on_exited: Callable[[Process, int, int], None],
        on_failed: Callable[[Process, str], None],
        on_lost: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._connection = connection
        self._on_forked = on_forked
        self._on_exited = on_exited
        """Of (process, pid, exit status)."""
        self._on_failed = on_failed
        self._on_lost = on_lost
        self._waiting: collections.deque[tuple[bytes, list[int]]] = collections.deque()
        self._retry: Timer | None = None
        connection.setblocking(False)
        loop.watch(connection.fileno(), self._read)

    def fork(self, process: Process, output_fds: list[int]) -> None:
        """A worker for that slot, writing to these pipes; they are closed here once they are on their way."""
        self._send(zygote.COMMAND.pack(zygote.FORK, *process), output_fds)

    def kill(self, process: Process) -> None:
        self._send(zygote.COMMAND.pack(zygote.KILL, *process), [])

    def renew_lease(self, is_limited: bool) -> None:
        """Of all workers; not limited: until the daemon ends. What waits for the zygote says as much."""
        if not self._waiting:
            self._send(zygote.COMMAND.pack(zygote.LEASE, int(is_limited), 0), [])

    def close(self) -> None:
        """The zygote kills and reaps its workers and exits."""
        self._loop.unwatch(self._connection.fileno())
        self._connection.close()
        for _, fds in self._waiting:
            for fd in fds:
                os.close(fd)
        self._waiting.clear()

    def _send(self, data: bytes, fds: list[int]) -> None:
        self._waiting.append((data, fds))
        if self._retry is None:
            self._flush()

    def _flush(self) -> None:
        self._retry = None
        while self._waiting:
            data, fds = self._waiting[0]
            try:
                socket.send_fds(self._connection, [data], fds)
            except BlockingIOError:
                self._retry = self._loop.call_later(RETRY_S, self._flush)
                return
            except OSError:  # it died; the end of file says so
                pass
            self._waiting.popleft()
            for fd in fds:
                os.close(fd)

    def _read(self) -> None:
        while True:
            try:
                data = self._connection.recv(zygote.REPORT.size)
            except BlockingIOError:
                return
            except ConnectionError:
                data = b""
            if not data:
                self._loop.unwatch(self._connection.fileno())
                self._on_lost()
                return
            kind, slot, generation, pid, status = zygote.REPORT.unpack(data)
            process = (slot, generation)
            if kind == zygote.FORKED:
                self._on_forked(process, pid)
            elif kind == zygote.EXITED:
                self._on_exited(process, pid, status)
            else:
                self._on_failed(process, os.strerror(status))
            if self._connection.fileno() < 0:
                return  # closed by what it led to
