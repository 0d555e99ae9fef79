"""Starts the nodes of a cluster on this machine, and finds those that run; for drivers, tests and the command line.

A node gets its token over an inherited socket, never by an argument or a variable that others could read. A leashed
node ends when whoever started it does.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import signal
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from weft.engine.cluster.entry import HEAD, LEASHED, NodeUp
from weft.engine.node import launch
from weft.engine.node.config import ClusterConfig, NodeConfig
from weft.engine.wire import link_codec
from weft.engine.wire import link_messages as lm
from weft.engine.wire.link import HEADER, MESSAGE
from weft.net.auth import READ_ONLY, Handshake
from weft.net.endpoint import BlockingStream

START_TIMEOUT_S = 60.0
ASK_TIMEOUT_S = 10.0
_own_heads: list[RunningNode] = []


def new_token() -> bytes:
    return secrets.token_hex(32).encode()


@dataclass(eq=False)
class RunningNode:
    """A node that this process has started."""

    up: NodeUp
    process: subprocess.Popen[bytes]
    leash: socket.socket
    log_fd: int

    def ask_to_end(self) -> None:
        """`end` waits for it."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)

    def end(self, gracefully: bool = True, timeout_s: float = 10.0) -> None:
        """End it, and wait for it. Not gracefully: as if its machine had failed."""
        if self.process.poll() is None:
            if gracefully:
                self.ask_to_end()
            else:
                self.process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout_s)
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
        self.leash.close()
        if self.log_fd >= 0:
            os.close(self.log_fd)
            self.log_fd = -1

    def release(self) -> None:
        """Let it run on without this process."""
        self.leash.close()

    def log(self) -> str:
        return launch.read_log(self.log_fd) if self.log_fd >= 0 else ""


def start(
    config: NodeConfig,
    token: bytes,
    cluster: ClusterConfig,
    log_fd: int | None = None,
    prefix: Sequence[str] = (),
    store: str = "",
) -> RunningNode:
    """Start a node and wait until it is in its cluster. RuntimeError, with what it wrote, when it does not come up.

    `store`: of a head, the redis://… that keeps the control store's rows. Like the token it is no argument of the
    node's command, which others could read: it may hold a password."""
    if token.startswith(READ_ONLY):
        raise RuntimeError("the node could not be started: its token may only read, and a node takes the cluster's own")
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    log = os.memfd_create("weft-daemon-log") if log_fd is None else log_fd
    with theirs:
        ours.send(token + b"\0" + store.encode())
        whole = msgspec.structs.replace(config, cluster=msgspec.structs.replace(cluster, launcher_fd=theirs.fileno()))
        process = subprocess.Popen(
            [*prefix, *launch.command(whole)],
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    ready, _, _ = select.select([ours], [], [], START_TIMEOUT_S)
    answer = b""
    if ready:
        with contextlib.suppress(OSError):
            answer = ours.recv(1 << 16)
    if not answer:
        ours.close()
        if not ready:
            process.kill()
        status = process.wait()
        text = launch.read_log(log)
        if log_fd is None:
            os.close(log)
        raise RuntimeError(f"the node could not be started: it ended with status {status}.\n{text}".rstrip())
    running = RunningNode(msgspec.json.decode(answer, type=NodeUp), process, ours, log)
    if cluster.is_leashed and not cluster.head:
        _own_heads.append(running)
    return running


def own_cluster() -> str | None:
    """The address of the cluster that this process has started last and whose head still runs."""
    _own_heads[:] = [head for head in _own_heads if head.process.poll() is None]
    return _own_heads[-1].up.cluster if _own_heads else None


# ---- finding ---------------------------------------------------------------------------------------


def normal(address: str) -> str:
    """host:port with the host as daemons write it.

    >>> normal("localhost:6379")
    '127.0.0.1:6379'
    """
    host, _, port = address.rpartition(":")
    return f"{'127.0.0.1' if host in ('localhost', '') else host}:{port}"


def is_cluster_address(address: str) -> bool:
    _, colon, port = address.rpartition(":")
    return bool(colon) and port.isdigit() and not address.startswith("@")


def cluster_of(local_address: str) -> str:
    """The head's address of a node's cluster; empty for a node of its own."""
    return local_address.partition("+")[2].rpartition("+")[0]


def local_node(cluster: str) -> str:
    """The local address of this machine's node of that cluster, the head where it is here; ConnectionError."""
    wanted = normal(cluster)
    found = [name for name in launch.find_nodes() if cluster_of(name) == wanted]
    if not found:
        running = ", ".join(sorted({name for name in map(cluster_of, launch.find_nodes()) if name})) or "none"
        raise ConnectionError(
            f"no node of the cluster {cluster} runs on this machine as this user. A driver attaches to a node of its "
            f"own machine: start one with `weft start --address {cluster}`. Clusters with a node here: {running}"
        )
    heads = [name for name in found if _mark(name).startswith(HEAD)]
    return heads[0] if heads else found[-1]


def _mark(local_address: str) -> str:
    return local_address.rpartition("+")[2] if "+" in local_address else ""


def unleashed() -> list[str]:
    """The local addresses of this user's cluster nodes that run on their own."""
    return [name for name in launch.find_nodes() if _mark(name) and not _mark(name).endswith(LEASHED)]


def newest() -> str | None:
    """The local address of the newest running node, its cluster's head where that is here; None when there is none.

    A cluster that this process has started goes before those of `weft start`, and these before what other programs
    have started for themselves."""
    if (own := own_cluster()) is not None:
        return local_node(own)
    found = launch.find_nodes()
    meant = next(iter(unleashed() or found), None)
    return local_node(cluster_of(meant)) if meant and _mark(meant) else meant


def others(address: str) -> list[str]:
    """The clusters and single nodes of this user that have nodes here, but for that one, the newest first."""
    return [name for name in dict.fromkeys(cluster_of(one) or one for one in launch.find_nodes()) if name != address]


def the_only() -> str:
    """The local address of a node of the one cluster that has nodes here. ConnectionError: there is none, or several.

    Clusters that `weft start` has started go before those that end with a program, and these before a program's own
    node."""
    found = launch.find_nodes()
    in_clusters = {name for name in map(cluster_of, found) if name}
    started = {cluster_of(name) for name in unleashed()}
    meant = sorted(started or in_clusters) or found
    if not meant:
        raise ConnectionError(
            "no Weft node of this user runs on this machine: start one with `weft start --head`, or name the "
            "cluster with --address HOST:PORT"
        )
    if len(meant) > 1:
        raise ConnectionError(
            f"{len(meant)} clusters have nodes of this user on this machine: {', '.join(meant)}. Say which is meant, "
            f"such as --address {meant[0]}"
        )
    return local_node(meant[0]) if meant[0] in in_clusters else meant[0]


def check_that_somebody_listens(address: str) -> None:
    """ConnectionError, with what to look at, when nobody does."""
    host, _, port = normal(address).rpartition(":")
    try:
        socket.create_connection((host, int(port)), ASK_TIMEOUT_S).close()
    except OSError as error:
        raise ConnectionError(
            f"nobody listens at {address}: {error.strerror or error}. Does the cluster's head run, and is that its "
            "port? `weft start --head` has printed it, and `weft status` on its machine does"
        ) from error


# ---- asking ----------------------------------------------------------------------------------------


def ask_nodes(address: str, token: bytes) -> lm.Answer:
    """The cluster's table, from any of its nodes. ConnectionError or Refused when it cannot be had."""
    answer = exchange(address, token, lm.Ask("nodes"), ASK_TIMEOUT_S)
    if not isinstance(answer, lm.Answer):
        raise ConnectionError(f"the node at {address} answered with a {type(answer).__name__}")
    return answer


def prove(stream: BlockingStream, token: bytes) -> bytes:
    """That this side has the token, and that the other has it. What came after that. Refused."""
    handshake = Handshake(token, accepts=False, binding=stream.binding())
    stream.send(handshake.take_output())
    data = b""
    while not handshake.is_done:
        data = handshake.feed(stream.receive())
        stream.send(handshake.take_output())
    return data


def exchange(address: str, token: bytes, message: lm.LinkMessage, timeout_s: float | None) -> lm.LinkMessage:
    """One message to a node of a cluster, and its answer. OSError or Refused when there is none."""
    with BlockingStream(normal(address), ASK_TIMEOUT_S) as stream:
        data = prove(stream, token)
        body = link_codec.encode(message)
        stream.settimeout(timeout_s)
        stream.send(HEADER.pack(len(body), MESSAGE) + body)
        received = bytearray(data)
        while len(received) < HEADER.size or len(received) < HEADER.size + HEADER.unpack_from(received)[0]:
            received += stream.receive()
        answer: lm.LinkMessage = link_codec.decode(
            bytes(received[HEADER.size : HEADER.size + HEADER.unpack_from(received)[0]])
        )
        return answer
