"""The dashboard's process: it inherits a listening socket, serves its pages, and ends when nobody looks any more.

    echo '{"fd": 3, "node": "@weft-...", "token": "...", "daemon": 123}' | python -c "... main()"

Exits with 0 after `IDLE_S` without a request; the daemon listens in its place again. The kernel ends it with the
daemon.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

import msgspec

from weft.dashboard.arrivals import Arrival, Arrivals
from weft.dashboard.collector import Collector
from weft.dashboard.pages import Pages
from weft.dashboard.past import Past
from weft.dashboard.requests import TOO_LARGE, Handler, has_token, make_handler
from weft.engine.cluster.client import Client

IDLE_S = 300.0
LOOK_S = 0.5
"""So soon a connection that is too slow is noticed."""
MOST_THREADS = 32
STRANGERS_THREADS = 2
MOST_STRANGERS = 64
"""Who asks without the token, and waits to be told so; the next are hung up on."""
_THROWN_AWAY = 64
"""Reads at most: who goes on sending is cut off."""
_PR_SET_PDEATHSIG = 1


class Start(msgspec.Struct, frozen=True):
    """What the daemon says to it."""

    fd: int
    node: str
    token: str
    daemon: int


class Server:
    """Over a socket that was made elsewhere; ends when nobody has asked for `IDLE_S`."""

    def __init__(self, listener: socket.socket, handler: type[Handler]) -> None:
        self._handler = handler
        self._arrivals = Arrivals(listener, self._asked)
        self._threads = ThreadPoolExecutor(MOST_THREADS)
        self._for_strangers = ThreadPoolExecutor(STRANGERS_THREADS)
        self._strangers = 0
        """Who wait, or are being answered. Counted by this thread and theirs, under the lock."""
        self._lock = threading.Lock()
        self._asked_s = time.monotonic()

    def serve(self) -> None:
        while time.monotonic() - self._asked_s < IDLE_S:
            self._arrivals.run_once(LOOK_S)

    def _asked(self, arrival: Arrival, head: bytes | None) -> None:
        """Who has the token waits for no stranger, however many of them ask."""
        if head is not None and has_token(head, self._handler._token):
            self._asked_s = time.monotonic()
            self._threads.submit(self._answer, arrival, head)
            return
        with self._lock:
            is_crowded = self._strangers >= MOST_STRANGERS
            self._strangers += not is_crowded
        if is_crowded:
            arrival.connection.close()
        else:
            self._for_strangers.submit(self._answer_stranger, arrival, head)

    def _answer_stranger(self, arrival: Arrival, head: bytes | None) -> None:
        try:
            self._answer(arrival, head)
        finally:
            with self._lock:
                self._strangers -= 1

    def _answer(self, arrival: Arrival, head: bytes | None) -> None:
        try:
            arrival.connection.setblocking(True)
            if head is None:
                arrival.connection.settimeout(1.0)
                arrival.connection.sendall(TOO_LARGE)
                hang_up(arrival.connection)
            elif self._handler(arrival.connection, arrival.address, head).close_connection:
                hang_up(arrival.connection)
            else:
                self._arrivals.give_back(arrival)
        except OSError:  # a browser that went away is no error
            arrival.connection.close()
        except Exception:
            arrival.connection.close()
            traceback.print_exc()


def hang_up(connection: socket.socket) -> None:
    """Not with a reset, which could overtake the answer: what was not read is thrown away first, if it has an end."""
    connection.settimeout(0.0)
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
        for _ in range(_THROWN_AWAY):
            if not connection.recv(1 << 16):
                break
    connection.close()


def main() -> None:
    started = msgspec.json.decode(sys.stdin.buffer.read(), type=Start)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != started.daemon:
        sys.exit(0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    listener = socket.socket(fileno=started.fd)
    client = Client(started.node)
    past = Past(client)
    past.start()
    pages = Pages(client, Collector(client), past)
    Server(listener, make_handler(pages, started.token)).serve()
    os._exit(0)
