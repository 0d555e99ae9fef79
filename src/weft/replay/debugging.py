"""`breakpoint()` in a task or actor: a session of pdb that `weft debug` attaches to, on the same machine.

The worker listens on a socket without a name in the file system, tells the node daemon where, and waits for somebody of
the same user. Runs on the thread that called `breakpoint()`. Leaving the debugger (`quit`, `continue`, or the end of
the connection) lets the task go on; nothing is waited for longer than `WAIT_S`.
"""

from __future__ import annotations

import contextlib
import os
import pdb
import socket
import sys
import time
from types import FrameType

from weft.engine.process.calls import current
from weft.engine.process.session import rpc
from weft.engine.wire.messages import Request

WAIT_S = 3600.0
"""So long the task waits for a debugger; then it goes on."""


def open_session(frame: FrameType, wait_s: float = WAIT_S) -> None:
    """Stop in that frame for whoever attaches."""
    name = f"weft-debug-{os.getuid()}-{os.getpid()}-{os.urandom(4).hex()}"
    task, _, task_name, _ = current.task()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind("\0" + name)
        listener.listen(64)
        place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        row: dict[str, object] = {"address": name, "task_id": task.hex(), "name": task_name, "place": place}
        rpc.send(Request(0, "breakpoint_opened", row))
        print(f"breakpoint at {place}: `weft debug` attaches to it", file=sys.stderr, flush=True)
        try:
            connection = _accept(listener, time.monotonic() + wait_s)
        except TimeoutError:
            print(f"nobody attached to the breakpoint at {place}; the task goes on", file=sys.stderr, flush=True)
            return
        finally:
            rpc.send(Request(0, "breakpoint_closed", {"address": name}))
    RemotePdb(connection).set_trace(frame)


def _accept(listener: socket.socket, deadline_s: float) -> socket.socket:
    """Of the same user; others are turned away, and keep the task no longer. TimeoutError."""
    from weft.net.credentials import peer_pid

    while True:
        if (left_s := deadline_s - time.monotonic()) <= 0:
            raise TimeoutError
        listener.settimeout(left_s)
        connection, _ = listener.accept()
        try:
            peer_pid(connection)
            return connection
        except (PermissionError, OSError):
            connection.close()


class RemotePdb(pdb.Pdb):
    """pdb over a connection. Every way out of it ends the connection and lets the task go on."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(None)
        self._connection = connection
        # Two files: one for both would forget what it has read ahead when it writes.
        self._in = connection.makefile("r", encoding="utf-8", errors="replace", newline="\n")
        self._out = connection.makefile("w", encoding="utf-8", errors="replace", newline="\n")
        super().__init__(stdin=self._in, stdout=self._out, nosigint=True, readrc=False)
        self.use_rawinput = False
        self.prompt = "(weft) "

    def do_continue(self, arg: str) -> bool | None:
        self._leave()
        return super().do_continue(arg)

    do_c = do_cont = do_continue

    def do_quit(self, arg: str) -> bool | None:
        """Leave the debugger; the task goes on."""
        self._leave()
        return super().do_continue(arg)

    do_q = do_exit = do_quit
    do_EOF = do_quit

    def _leave(self) -> None:
        self.clear_all_breaks()
        with contextlib.suppress(OSError, ValueError):
            self._out.write("the task goes on\n")
            self._out.flush()
        for one in (self._out, self._in, self._connection):
            with contextlib.suppress(OSError, ValueError):
                one.close()
        self.stdout = sys.stderr
