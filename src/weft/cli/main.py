"""The commands. Each prints what it did and returns 0, or says on standard error why not and returns 1."""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Sequence

from weft.cli import tokens
from weft.engine.cluster import launch
from weft.engine.node import handshake
from weft.engine.node.config import ClusterConfig, NodeConfig

STOP_TIMEOUT_S = 10.0
DEFAULT_PORT = 6379


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.command(options))
    except (RuntimeError, OSError, LookupError, ValueError) as error:
        print(f"weft: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="weft", description="Nodes and clusters of Weft on this machine.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    start = commands.add_parser("start", help="start a node: the head of a new cluster, or one that joins")
    role = start.add_mutually_exclusive_group(required=True)
    role.add_argument("--head", action="store_true", help="begin a cluster")
    role.add_argument("--address", metavar="HOST:PORT", help="join the cluster whose head listens there")
    start.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s, this machine)")
    start.add_argument("--port", type=int, help=f"to listen on; 0 for any (default: {DEFAULT_PORT} for a head)")
    start.add_argument("--num-cpus", type=float)
    start.add_argument("--num-gpus", type=float)
    start.add_argument("--resources", type=json.loads, default={}, metavar="JSON", help="such as '{\"disk\": 2}'")
    start.add_argument("--labels", type=json.loads, default={}, metavar="JSON")
    start.add_argument("--object-store-memory", type=int, metavar="BYTES")
    start.add_argument("--token-file", metavar="PATH", help=f"holds the cluster's token (or set {tokens.VARIABLE})")
    start.set_defaults(command=_start)
    stop = commands.add_parser("stop", help="end the nodes on this machine that `weft start` has started")
    stop.add_argument("--address", metavar="HOST:PORT", help="only those of this cluster")
    stop.add_argument("--force", action="store_true", help="kill them")
    stop.set_defaults(command=_stop)
    status = commands.add_parser("status", help="the nodes of a cluster, and what is free")
    status.add_argument("--address", metavar="HOST:PORT", default="auto")
    status.set_defaults(command=_status)
    return parser


def _start(options: argparse.Namespace) -> int:
    head = "" if options.head else launch.normal(options.address)
    if options.head and options.token_file is None and not os.environ.get(tokens.VARIABLE):
        token = launch.new_token()
    else:
        token = tokens.find(head or "to be started", options.token_file)
    port = options.port if options.port is not None else DEFAULT_PORT if options.head else 0
    config = NodeConfig(
        options.num_cpus,
        options.num_gpus,
        {name: float(amount) for name, amount in options.resources.items()},
        options.object_store_memory,
        {name: str(value) for name, value in options.labels.items()},
    )
    log = tokens.folder() / f"node-{os.getpid()}.log"
    log_fd = os.open(log, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        cluster = ClusterConfig(launcher_fd=-1, head=head, host=options.host, port=port)
        running = launch.start(config, token, cluster, log_fd)
    finally:
        os.close(log_fd)
    running.release()
    print(f"node {running.up.node_id[:8]} of the cluster {running.up.cluster} is up (pid {running.process.pid})")
    print(f"its log: {log}")
    if options.head:
        print(f"the token: {tokens.keep(running.up.cluster, token)}")
        print(f"to add a node:  weft start --address {running.up.cluster}")
        print(f'to use it:      weft.init(address="{running.up.cluster}")')
        print("to end it:      weft stop")
    return 0


def _stop(options: argparse.Namespace) -> int:
    wanted = None if options.address is None else launch.normal(options.address)
    found = [name for name in launch.unleashed() if wanted in (None, launch.cluster_of(name))]
    ended = sum(_end(name, options.force) for name in found)
    for cluster in {launch.cluster_of(name) for name in found}:
        tokens.forget(cluster)
    print(f"{ended} of {len(found)} nodes ended" if found else "no node was running")
    return 0 if ended == len(found) else 1


def _end(local_address: str, force: bool) -> bool:
    """Whether the daemon at that local address is gone."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        try:
            connection.connect("\0" + local_address.removeprefix("@"))
            pid = handshake.peer_pid(connection)
            pid_fd = os.pidfd_open(pid)
        except OSError:
            return True  # it ended by itself
    try:
        for number in (signal.SIGKILL,) if force else (signal.SIGTERM, signal.SIGKILL):
            signal.pidfd_send_signal(pid_fd, number)
            if select.select([pid_fd], [], [], STOP_TIMEOUT_S)[0]:
                return True
        return False
    except ProcessLookupError:
        return True
    finally:
        os.close(pid_fd)


def _status(options: argparse.Namespace) -> int:
    from weft.engine.process import cluster, session

    session.init(address=options.address, log_to_driver=False)
    try:
        nodes = cluster.nodes()
        total, free = cluster.cluster_resources(), cluster.available_resources()
    finally:
        session.shutdown()
    print(f"{sum(node['Alive'] for node in nodes)} of {len(nodes)} nodes are alive")
    for node in nodes:
        state = "alive" if node["Alive"] else f"dead: {node['DeathReasonMessage']}"
        print(f"  {node['NodeID'][:8]}  {node['NodeManagerAddress']}:{node['NodeManagerPort']}  {state}")
    print("resources in use")
    for name in sorted(total):
        if not name.startswith("node:"):
            print(f"  {total[name] - free.get(name, 0.0):g} of {total[name]:g} {name}")
    return 0
