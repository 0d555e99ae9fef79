"""A server of the control store as a process: `python -m weft.store FD`.

Over the inherited socket FD come the token, then server.ServerConfig as JSON and, back, what was started. The process
ends with whoever started it: the kernel kills it with its parent, and the socket's end ends it, too. RESIGN over the
socket ends it as soon as the other servers do without it.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import socket
import sys

import msgspec

from weft.machine import own_log
from weft.net.loop import Loop
from weft.store.server_process import LARGEST, RESIGN, ServerUp
from weft.store.server_shell import ServerConfig, ServerShell
from weft.store.storage import StorageDamaged, StorageRefused

_PR_SET_PDEATHSIG = 1


def main() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    own_log.never_fail()
    launcher = socket.socket(fileno=int(sys.argv[1]))
    token = launcher.recv(LARGEST)
    if not token:
        sys.exit("weft: the launcher of the control store's server gave no token")
    config = msgspec.json.decode(launcher.recv(LARGEST), type=ServerConfig)
    with contextlib.suppress(OSError), open("/proc/self/comm", "w") as file:
        file.write("weft-control")
    loop = Loop()
    try:
        _serve(loop, ServerShell(loop, config, token), launcher)
    except (StorageDamaged, StorageRefused) as error:  # its node starts another one, which copies the rows
        sys.exit(f"weft: a server of the control store ends: {error}")
    loop.close()


def _serve(loop: Loop, shell: ServerShell, launcher: socket.socket) -> None:
    def hear() -> None:
        try:
            said = launcher.recv(LARGEST)
        except ConnectionResetError:  # it ended before it had read that we are up
            said = b""
        if said == RESIGN:
            shell.resign()
        else:
            loop.stop()

    loop.on_signal(signal.SIGTERM, loop.stop)
    loop.watch(launcher.fileno(), hear)
    with contextlib.suppress(ConnectionError):  # who started it has ended meanwhile, and so does the loop
        launcher.send(msgspec.json.encode(ServerUp(shell.name, shell.address, os.getpid())))
    gc.freeze()
    loop.run()
    shell.close()


if __name__ == "__main__":
    main()
