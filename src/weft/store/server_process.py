"""Starts servers of the control store on this machine; for node daemons, tests and measurements.

The token and what is to be started go over an inherited socket, never by an argument or a variable that others could
read. The server ends when that socket closes, or when the thread that started it ends.
"""

from __future__ import annotations

import contextlib
import secrets
import select
import socket
import subprocess

import msgspec

from weft.machine.programs import python_command

START_TIMEOUT_S = 60.0
LARGEST = 4096
RESIGN = b"resign"


class ServerUp(msgspec.Struct, frozen=True):
    """What the launcher hears."""

    name: str
    address: str
    pid: int


class RunningServer:
    """A server that this process has started."""

    def __init__(self, config: msgspec.Struct, token: bytes, log: int = subprocess.DEVNULL) -> None:
        """Begins it; `wait_up` says when it listens."""
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._ours.send(token)
            self._ours.send(msgspec.json.encode(config))
            self.process = subprocess.Popen(
                python_command("weft.store.__main__", str(theirs.fileno())),
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.up: ServerUp | None = None

    def fileno(self) -> int:
        """Readable when it is up, or has ended."""
        return self._ours.fileno()

    def wait_up(self) -> ServerUp:
        """RuntimeError when it does not come up."""
        if self.up is None:
            select.select([self._ours], [], [], START_TIMEOUT_S)
            if self.take_up() is None:
                self.end()
                status = self.process.returncode
                raise RuntimeError(f"a server of the control store did not come up: exit status {status}")
        assert self.up is not None
        return self.up

    def take_up(self) -> ServerUp | None:
        """What it says when `fileno` is readable; None when it has ended instead, and `end` is due."""
        try:
            said = self._ours.recv(LARGEST, socket.MSG_DONTWAIT)
        except OSError:  # it says nothing yet, or died before it had read what it was sent
            said = b""
        if said:
            self.up = msgspec.json.decode(said, type=ServerUp)
        return self.up

    def resign(self) -> None:
        """It ends, once the other servers do without it; `fileno` is readable then."""
        with contextlib.suppress(BrokenPipeError):  # it has ended already
            self._ours.send(RESIGN)

    def kill(self) -> None:
        """As if it had crashed."""
        self.process.kill()
        self.process.wait()
        self._ours.close()

    def end(self) -> None:
        self._ours.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def new_name() -> str:
    """That no server or client has had before."""
    return secrets.token_hex(8)
