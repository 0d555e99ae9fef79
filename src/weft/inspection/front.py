"""The node's door for browsers and Prometheus: a listening socket whose server is started when somebody knocks.

Runs in the daemon's thread. The daemon only listens. At the first connection it starts the dashboard, a process of its
own that inherits the socket, and looks away until that process has ended: it does so by itself when nobody has looked
for a while, and the kernel ends it with the daemon. So a node that nobody looks at pays one descriptor.

FRO-1  The token is not in any argument or variable of the server's process: it comes through a pipe.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from weft.machine.secrets import DASHBOARD_TOKEN, given
from weft.net.loop import Loop

if TYPE_CHECKING:
    import subprocess

USUAL_PORT = 8265
HOST_VARIABLE, PORT_VARIABLE = "WEFT_DASHBOARD_HOST", "WEFT_DASHBOARD_PORT"
RETRY_S = 1.0
"""A server that ends at once is not started again at once."""


class Front:
    """One node's, made when its address is asked for."""

    def __init__(self, loop: Loop, address: str) -> None:
        """`address`: at which the dashboard attaches to this node."""
        self._loop = loop
        self._node = address
        self._listener = _listen()
        self.token = given(DASHBOARD_TOKEN) or secrets.token_urlsafe(24)
        self._server: subprocess.Popen[bytes] | None = None
        self._pid_fd = -1
        self._watch()

    @property
    def address(self) -> str:
        host, port = self._listener.getsockname()[:2]
        return f"http://{host}:{port}"

    def where(self) -> dict[str, Any]:
        return {"address": self.address, "token": self.token, "url": f"{self.address}/?token={self.token}"}

    def close(self) -> None:
        if self._server is not None:
            self._loop.unwatch(self._pid_fd)
            os.close(self._pid_fd)
            self._server.kill()
            self._server.wait()
            self._server = None
        else:
            self._loop.unwatch(self._listener.fileno())
        self._listener.close()

    def _watch(self) -> None:
        self._loop.watch(self._listener.fileno(), self._knocked)

    def _knocked(self) -> None:
        import subprocess

        from weft.machine.programs import python_command

        self._loop.unwatch(self._listener.fileno())
        fd = self._listener.fileno()
        started = {"fd": fd, "node": self._node, "token": self.token, "daemon": os.getpid()}
        try:
            self._server = subprocess.Popen(
                python_command("weft.dashboard.server"),
                stdin=subprocess.PIPE,
                stdout=2,
                pass_fds=(fd,),
            )
            assert self._server.stdin is not None
            with contextlib.suppress(BrokenPipeError), self._server.stdin as pipe:
                pipe.write(msgspec.json.encode(started))
        except OSError as error:
            print(f"weft: the dashboard cannot be started: {error}", file=sys.stderr, flush=True)
            self._loop.call_later(RETRY_S, self._watch)
            return
        self._pid_fd = os.pidfd_open(self._server.pid)
        self._loop.watch(self._pid_fd, self._server_ended)

    def _server_ended(self) -> None:
        assert self._server is not None
        self._loop.unwatch(self._pid_fd)
        os.close(self._pid_fd)
        status = self._server.wait()
        self._server = None
        if status == 0:
            self._watch()
        else:
            self._loop.call_later(RETRY_S, self._watch)


def _listen() -> socket.socket:
    """On the port that is asked for; else on the usual one when that is free, or any."""
    host = os.environ.get(HOST_VARIABLE) or "127.0.0.1"
    named = os.environ.get(PORT_VARIABLE)
    ports = (int(named),) if named else (USUAL_PORT, 0)
    for port in ports:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
            listener.listen(1024)  # who comes while it is full waits a second before he tries again
            return listener
        except OSError as error:
            listener.close()
            if port == ports[-1]:
                raise OSError(
                    error.errno,
                    f"the dashboard cannot listen on {host}:{port}: {error.strerror}. Set {PORT_VARIABLE} to another "
                    "port, or 0 for any",
                ) from error
    raise AssertionError
