"""Connections that have not asked yet: they wait here without a thread, for a bounded time and in bounded number.

One thread, one epoll. A connection leaves for a worker thread when the whole head of a request lies in its socket;
until then its bytes stay there (MSG_PEEK). Who takes longer than `HEAD_S` for a head, or leaves the connection unused
for `IDLE_S`, is hung up on. When `MOST` wait, or half as many as the process may have descriptors, the next pushes out
the oldest of the address that has most: strangers push out each other, and one who asks at once is served.
"""

from __future__ import annotations

import collections
import os
import resource
import select
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

HEAD_S = 5.0
IDLE_S = 30.0
MOST = 512
LARGEST_HEAD = 64 << 10
_ACCEPTED_AT_ONCE = 64
_HANG_UP = select.EPOLLHUP | select.EPOLLERR


@dataclass(eq=False)
class Arrival:
    """One connection that waits."""

    connection: socket.socket
    address: tuple[str, int]
    deadline: float
    has_begun: bool = False


def most_waiting() -> int:
    """`MOST`, or half of the descriptors that this process may have: the rest is for who is answered."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if soft < 0 else max(1, min(MOST, soft // 2))


class Arrivals:
    """`ready` is called, in this thread, with each connection that has asked, and its head; None: that is too large."""

    def __init__(self, listener: socket.socket, ready: Callable[[Arrival, bytes | None], None]) -> None:
        self._listener = listener
        self._most = most_waiting()
        listener.setblocking(False)
        self._ready = ready
        self._epoll = select.epoll()
        self._epoll.register(listener.fileno(), select.EPOLLIN)
        self._waiting: dict[int, Arrival] = {}
        """By descriptor, the oldest first."""
        self._back: collections.deque[Arrival] = collections.deque()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._bell, select.EPOLLIN)

    def __len__(self) -> int:
        return len(self._waiting)

    def give_back(self, arrival: Arrival) -> None:
        """By any thread: it may ask again."""
        self._back.append(arrival)
        os.eventfd_write(self._bell, 1)

    def close(self) -> None:
        for arrival in list(self._waiting.values()):
            self._drop(arrival)
        while self._back:
            self._back.popleft().connection.close()
        self._epoll.close()
        os.close(self._bell)

    def run_once(self, wait_s: float) -> None:
        for fd, what in self._epoll.poll(wait_s):
            if fd == self._listener.fileno():
                self._accept()
            elif fd == self._bell:
                os.eventfd_read(self._bell)
                while self._back:
                    self._await(self._back.popleft())
            elif (arrival := self._waiting.get(fd)) is not None:
                if what & _HANG_UP:
                    self._drop(arrival)
                else:
                    self._look(arrival)
        now = time.monotonic()
        for arrival in [one for one in self._waiting.values() if one.deadline < now]:
            self._drop(arrival)

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                connection, address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError:  # it left, or no descriptor is left: one is when the next is hung up on
                if self._waiting:
                    self._push_out()
                return
            self._await(Arrival(connection, address[:2], 0.0))

    def _await(self, arrival: Arrival) -> None:
        if len(self._waiting) >= self._most:
            self._push_out()
        arrival.has_begun = False
        arrival.deadline = time.monotonic() + IDLE_S
        arrival.connection.setblocking(False)
        self._waiting[arrival.connection.fileno()] = arrival
        # Edge-triggered: a byte that was looked at does not wake anybody again.
        self._epoll.register(arrival.connection.fileno(), select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET)

    def _push_out(self) -> None:
        crowd = collections.Counter(one.address[0] for one in self._waiting.values())
        most = crowd.most_common(1)[0][0]
        self._drop(next(one for one in self._waiting.values() if one.address[0] == most))

    def _look(self, arrival: Arrival) -> None:
        try:
            head = arrival.connection.recv(LARGEST_HEAD + 1, socket.MSG_PEEK)
        except BlockingIOError:
            return
        except OSError:
            head = b""
        if not head:
            return self._drop(arrival)
        if not arrival.has_begun:
            arrival.has_begun = True
            arrival.deadline = time.monotonic() + HEAD_S
        size = _size_of(head)
        if not size and len(head) <= LARGEST_HEAD:
            return None
        self._forget(arrival)
        # What follows the head stays in the socket, for the next request.
        self._ready(arrival, arrival.connection.recv(size) if size else None)
        return None

    def _drop(self, arrival: Arrival) -> None:
        self._forget(arrival)
        arrival.connection.close()

    def _forget(self, arrival: Arrival) -> None:
        del self._waiting[arrival.connection.fileno()]
        self._epoll.unregister(arrival.connection.fileno())


def _size_of(head: bytes) -> int:
    """Of the head of a request, with the empty line; 0 while that has not come."""
    for end in (b"\r\n\r\n", b"\n\n"):
        if (at := head.find(end)) >= 0:
            return at + len(end)
    return 0
