"""The dashboard's process: it inherits a listening socket, serves its pages, and ends when nobody looks any more.

    echo '{"fd": 3, "node": "@weft-...", "token": "...", "daemon": 123}' | python -c "... main()"

Exits with 0 after `IDLE_S` without a request; the daemon listens in its place again. The kernel ends it with the
daemon.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
import threading
import time
from http.server import ThreadingHTTPServer
from typing import Any

import msgspec

from weft.dashboard.collector import Collector
from weft.dashboard.pages import Pages
from weft.dashboard.requests import make_handler
from weft.engine.cluster.client import Client

IDLE_S = 300.0
MOST_THREADS = 32
_PR_SET_PDEATHSIG = 1


class Start(msgspec.Struct, frozen=True):
    """What the daemon says to it."""

    fd: int
    node: str
    token: str
    daemon: int


class Server(ThreadingHTTPServer):
    """Over a socket that was made elsewhere; knows when it was last asked for something."""

    daemon_threads = True

    def __init__(self, listener: socket.socket, handler: Any) -> None:
        super().__init__(listener.getsockname()[:2], handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.asked_s = time.monotonic()
        self._slots = threading.BoundedSemaphore(MOST_THREADS)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.asked_s = time.monotonic()
        self._slots.acquire()
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that went away is no error."""
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            super().handle_error(request, client_address)

    def service_actions(self) -> None:
        if time.monotonic() - self.asked_s > IDLE_S:
            threading.Thread(target=self.shutdown, daemon=True).start()


def main() -> None:
    started = msgspec.json.decode(sys.stdin.buffer.read(), type=Start)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != started.daemon:
        sys.exit(0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    listener = socket.socket(fileno=started.fd)
    listener.setblocking(True)
    client = Client(started.node)
    pages = Pages(client, Collector(client))
    server = Server(listener, make_handler(pages, started.token))
    server.serve_forever()
    os._exit(0)
