"""Where drivers come in and go out: the founder's inherited socket and the listening one.

Runs in the daemon's thread. A driver is gone when its socket reaches its end or its process does, whichever is seen
first: a forked child of the driver may hold the socket open, so the process is watched too (pidfd).
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable
from typing import Any

import msgspec

from weft.engine.node import handshake
from weft.engine.node.operations import Operations, Outcome
from weft.engine.state.events import Process
from weft.net.credentials import peer_pid
from weft.net.loop import OUT_OF_DESCRIPTORS, Loop

MOST_WAITING = 128
"""In line, and taken from it at once."""
Admit = Callable[[int, bool], handshake.Welcome]
"""Give a driver (pid, is it the founder) a slot; RuntimeError when there is none."""


class Guest:
    """One driver's connection."""

    def __init__(self, connection: socket.socket, pid: int, is_founder: bool) -> None:
        self.connection = connection
        self.pid = pid
        self.is_founder = is_founder
        self.pid_fd = -1
        self.process: Process | None = None
        """Set once it has joined."""


class Doors:
    """All connections of a node."""

    def __init__(
        self,
        loop: Loop,
        address: str,
        fds: tuple[int, int],
        admit: Admit,
        on_left: Callable[[Process, str], None],
        operations: Operations,
    ) -> None:
        self._loop = loop
        self._operations = operations
        self._fds = fds
        """The segment's and the eventfd's descriptors."""
        self._admit = admit
        self._on_left = on_left
        self._guests: dict[int, Guest] = {}
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        self._listener.bind("\0" + address.removeprefix("@"))
        self._listener.listen(MOST_WAITING)
        loop.watch(self._listener.fileno(), self._accept)

    def add(self, connection: socket.socket, is_founder: bool = False) -> None:
        """Let a peer ask, if it is of the same user."""
        try:
            pid = peer_pid(connection)
        except (PermissionError, OSError):
            connection.close()
            return
        connection.setblocking(False)
        guest = Guest(connection, pid, is_founder)
        self._guests[connection.fileno()] = guest
        with contextlib.suppress(OSError):  # some sandboxes forbid it; the socket's end is enough then
            guest.pid_fd = os.pidfd_open(pid)
            self._loop.watch(guest.pid_fd, lambda: self._leave(guest, "its process ended"))
        self._loop.watch(connection.fileno(), lambda: self._read(guest))

    def close(self) -> None:
        for guest in list(self._guests.values()):
            self._drop(guest)
        self._loop.unwatch(self._listener.fileno())
        self._listener.close()

    def _accept(self) -> None:
        """Many in one round: another user who knocks without end shall not keep the line full."""
        try:
            for _ in range(MOST_WAITING):
                self.add(self._listener.accept()[0])
        except OSError as error:  # that was all, or he waits for a descriptor
            if error.errno in OUT_OF_DESCRIPTORS:
                self._loop.rest(self._listener.fileno())

    def _read(self, guest: Guest) -> None:
        """Its request to join; afterwards only its end."""
        try:
            if guest.process is not None:
                if not guest.connection.recv(handshake.LARGEST):
                    self._leave(guest, "it closed its connection")
                return
            first, fds = handshake.read_first(guest.connection)
            if isinstance(first, handshake.Question) and fds:
                self._answer(guest, first.method, fds[0])
                return
            for fd in fds:
                os.close(fd)
            if isinstance(first, handshake.Join):
                self._let_in(guest)
                return
            handshake.refuse(guest.connection, first if isinstance(first, str) else "a question has no parameters")
        except BlockingIOError:
            return
        except (EOFError, OSError):
            pass
        self._leave(guest, "it closed its connection")

    def _let_in(self, guest: Guest) -> None:
        try:
            answer = self._admit(guest.pid, guest.is_founder)
        except RuntimeError as error:
            handshake.refuse(guest.connection, str(error))
            self._leave(guest, "there was no room")
            return
        guest.process = (answer.slot, answer.generation)
        handshake.welcome(guest.connection, answer, *self._fds)

    def _answer(self, guest: Guest, method: str, fd: int) -> None:
        try:
            params = msgspec.msgpack.decode(handshake.read_whole(fd), type=dict[str, Any])
        except msgspec.MsgspecError as error:
            handshake.refuse(guest.connection, f"the parameters of {method!r} cannot be read: {error}")
            self._leave(guest, "it makes no sense")
            return
        self._operations.perform(method, params).then(lambda outcome: self._send_outcome(guest, outcome))

    def _send_outcome(self, guest: Guest, outcome: Outcome) -> None:
        if guest.connection.fileno() < 0:
            return  # it did not wait
        with contextlib.suppress(OSError):
            handshake.send_whole(guest.connection, b"!", msgspec.msgpack.encode(outcome))
        self._drop(guest)

    def _leave(self, guest: Guest, how: str) -> None:
        self._drop(guest)
        if guest.process is not None:
            self._on_left(guest.process, f"the driver left: {how} (pid {guest.pid})")
        elif guest.is_founder:
            self._on_left((0, 0), "the founder left before it had joined")

    def _drop(self, guest: Guest) -> None:
        fd = guest.connection.fileno()
        if fd < 0:
            return
        del self._guests[fd]
        self._loop.unwatch(fd)
        guest.connection.close()
        if guest.pid_fd >= 0:
            self._loop.unwatch(guest.pid_fd)
            os.close(guest.pid_fd)
