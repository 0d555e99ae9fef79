"""A node that its cluster goes on without comes back as a new one: a head in whose place another acts, a node that was
cut off or taken for dead.

Runs in what was the daemon, once everything of it is closed: one thread, no children. What ran on the node is dead to
the others, and has been started again elsewhere; so all of it has ended here, and the process begins from scratch with
the same command, to join under the same name of the cluster. Its pid stays, and so does who waits for it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence

import msgspec

from weft.engine.cluster.launch import ask_nodes
from weft.engine.node import launch
from weft.engine.node.config import NodeConfig
from weft.net.auth import Refused

RETURN_S = 120.0
"""A node that finds nobody for so long has ended for good."""
ASK_S = 1.0


def come_back(config: NodeConfig, token: bytes, cluster: str, known: Sequence[str]) -> None:
    """Returns only when no node of the cluster could be found."""
    assert config.cluster is not None
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    until_s = config.cluster.returns_until_s or time.monotonic() + RETURN_S
    print(f"weft: what ran on the node has ended; it joins the cluster {cluster} again", file=sys.stderr, flush=True)
    while time.monotonic() < until_s:
        time.sleep(ASK_S)  # who has just lost it must have noticed
        for address in known:
            with contextlib.suppress(OSError, Refused):
                if ask_nodes(address, token).cluster == cluster:
                    _begin_again(config, token, cluster, (address, *known), until_s)
    print(f"weft: no node of the cluster {cluster} was found for {RETURN_S:g} s", file=sys.stderr, flush=True)


def _begin_again(config: NodeConfig, token: bytes, cluster: str, known: tuple[str, ...], until_s: float) -> None:
    assert config.cluster is not None
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.send(token)
    theirs.set_inheritable(True)
    changed = msgspec.structs.replace(
        config.cluster,
        launcher_fd=theirs.fileno(),
        head=known[0],
        known=known,
        name=cluster,
        fingerprint="",
        returns_until_s=until_s,
    )
    command = launch.command(msgspec.structs.replace(config, cluster=changed))
    os.execv(command[0], command)  # closes all that is not meant for it
