"""`weft start` and `weft stop`: nodes on this machine."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import signal
import socket
import time
from pathlib import Path
from typing import Any

from weft.cli.options import ONLY, Commands, add_address, add_command
from weft.engine.cluster import launch, peers, tokens
from weft.engine.cluster.client import Client, meant_address, named_address
from weft.engine.cluster.entry import NodeUp
from weft.engine.node.config import ClusterConfig, NodeConfig
from weft.machine import secrets
from weft.net import tls
from weft.net.auth import Refused
from weft.net.credentials import connect_to_own, peer_pid
from weft.net.endpoint import own_ip
from weft.store import head_folder
from weft.store.embedded import FSYNC
from weft.store.server_config import MOST_SHARDS, SHARDS

STOP_TIMEOUT_S = 10.0
LOOK_S = 0.05
DEFAULT_PORT = 6379


def add(commands: Commands) -> None:
    start = add_command(
        commands,
        "start",
        _start,
        "start a node: the head of a new cluster, or one that joins",
        "Starts a node of this machine, which runs until `weft stop`. A head begins a cluster and prints how to join "
        "it; without --host it can be reached from this machine only.",
        "weft start --head\n"
        "weft start --head --host 0.0.0.0 --port 6379\n"
        "weft start --address 10.0.0.1:6379 --token-file token",
    )
    role = start.add_mutually_exclusive_group(required=True)
    role.add_argument("--head", action="store_true", help="begin a cluster")
    role.add_argument("--address", metavar="HOST:PORT", help="join the cluster of the node that listens there")
    start.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s, this machine)")
    start.add_argument("--port", type=int, help=f"to listen on; 0 for any (default: {DEFAULT_PORT} for a head, else 0)")
    start.add_argument("--num-cpus", type=float, metavar="N", help="CPUs to offer (default: those of the machine)")
    start.add_argument("--num-gpus", type=float, metavar="N", help="GPUs to offer (default: those of the machine)")
    start.add_argument("--resources", type=_json_object, default={}, metavar="JSON", help="such as '{\"disk\": 2}'")
    start.add_argument("--labels", type=_json_object, default={}, metavar="JSON", help='such as \'{"zone": "a"}\'')
    start.add_argument("--object-store-memory", type=int, metavar="BYTES", help="for objects (default: 30%% of memory)")
    start.add_argument("--storage", metavar="PATH", help="where put(durable=True) writes; all nodes must see it")
    start.add_argument("--token-file", metavar="PATH", help=f"holds the cluster's token (or set {tokens.VARIABLE})")
    start.add_argument("--fingerprint", default="", metavar="HEX", help="of the head's certificate; `--head` prints it")
    for variable, what in zip(tls.VARIABLES, ("certificate", "key to it", "authority that all must have"), strict=True):
        start.add_argument(
            f"--{variable.removeprefix('WEFT_').lower().replace('_', '-')}",
            metavar="PEM",
            help=f"the {what}, instead of one that the node makes; all three together (or set {variable})",
        )
    start.add_argument("--no-successor", action="store_true", help="of a head: when it dies, the cluster ends")
    start.add_argument(
        "--store",
        default="",
        metavar="PATH",
        help="of a head: the folder from which it starts again with names, keys, jobs, actors (default: one below the "
        "user's state folder, which it prints); or redis://host:port, to keep the control store's rows there",
    )
    start.add_argument("--no-store", action="store_true", help="keep nothing on disk for another start")
    start.add_argument(
        "--fsync",
        choices=FSYNC,
        default="periodic",
        help="of a head: when what it keeps is on the disk: before it is answered, within 0.2 s, or when the system "
        "writes it (default: %(default)s)",
    )
    start.add_argument(
        "--store-file",
        metavar="PATH",
        help=f"holds the redis://… that --store would say, where it has a password (or set {secrets.STORE})",
    )
    start.add_argument(
        "--shards", type=int, metavar="N", help=f"of a head: of how many the control store is made (default: {SHARDS})"
    )
    start.add_argument("--block", action="store_true", help="stay in the foreground; Ctrl-C or SIGTERM ends the node")
    stop = add_command(
        commands,
        "stop",
        _stop,
        "end the nodes on this machine that `weft start` has started",
        "Ends this user's nodes of a cluster on this machine, and all that runs on them. Where nodes of several "
        "clusters run, --address says which, or --all. A head hands over to a node of another machine, and its cluster "
        "goes on there; where no other node can take over, or with --cluster, the cluster ends on all machines.",
        "weft stop\nweft stop --address 127.0.0.1:6379\nweft stop --all\nweft stop --cluster --address 10.0.0.1:6379",
    )
    add_address(stop, ONLY)
    stop.add_argument("--all", action="store_true", help="the nodes of all clusters on this machine")
    stop.add_argument("--cluster", action="store_true", help="end the whole cluster, on all machines")
    stop.add_argument("--force", action="store_true", help="kill them")


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        message = f"must be JSON such as '{{\"disk\": 2}}', but got {text!r}: {error}"
        raise argparse.ArgumentTypeError(message) from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"must be a JSON object such as '{{\"disk\": 2}}', but got {text!r}")
    return value


def _use_certificates(options: argparse.Namespace) -> None:
    """Of one's own, by all processes of the node. ValueError when they cannot be used."""
    for name, given in zip(tls.VARIABLES, (options.tls_cert, options.tls_key, options.tls_ca), strict=True):
        if given:
            os.environ[name] = os.path.abspath(given)
    try:
        if tls.own_files() is not None:
            _ = tls.Certificate().context
    except RuntimeError as error:
        raise ValueError(str(error)) from None


def _start(options: argparse.Namespace) -> int:
    _use_certificates(options)
    head = ""
    if not options.head:
        if not launch.is_cluster_address(options.address):
            raise ValueError(f"--address must be HOST:PORT, such as 10.0.0.1:6379, but got {options.address!r}")
        head = launch.normal(options.address)
    store, shards = _checked_store(options), _checked_shards(options)
    folder = "" if not options.store or store else os.path.abspath(options.store)
    port = options.port if options.port is not None else DEFAULT_PORT if options.head else 0
    token = _token(head, options.token_file, folder or _default_folder(options, port))
    name = ""
    if options.head and (lives := _living_cluster(options.host, port, options.token_file)) is not None:
        head, name, token = lives
        print(f"the cluster {name} lives on with another head, as {head} says: this node joins it")
    elif head:
        name = _name_of(head, token)
    config = NodeConfig(
        options.num_cpus,
        options.num_gpus,
        {name: float(amount) for name, amount in options.resources.items()},
        options.object_store_memory,
        {name: str(value) for name, value in options.labels.items()},
        storage=os.path.abspath(options.storage) if options.storage else "",
    )
    log = tokens.folder() / f"node-{os.getpid()}.log"
    log_fd = os.open(log, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        state_folder = str(tokens.folder())
        cluster = ClusterConfig(
            -1,
            head,
            options.host,
            port,
            False,
            options.fingerprint,
            name,
            has_successor=not options.no_successor,
            folder=state_folder if options.head else "",
            shards=shards,
            state_folder="" if options.no_store else state_folder,
            store_folder=folder,
            fsync=options.fsync,
        )
        running = launch.start(config, token, cluster, log_fd, store=store)
    finally:
        os.close(log_fd)
    # First: who reads what is printed may leave before the end.
    kept = tokens.keep(running.up.cluster, token) if options.head and not head else None
    print(f"node {running.up.node_id[:8]} of the cluster {running.up.cluster} is up (pid {running.process.pid})")
    print(f"its log: {log}")
    _print_dashboard(running.up.local_address)
    if running.up.store:
        found = f", started again with {running.up.restored}" if running.up.restored else ""
        print(f"its store: {running.up.store}{found}")
    if kept is not None:
        print(f"the token: {kept}")
        print(f"to add a node:  {_join_command(running.up, token)}")
        print(f'to use it:      weft.init(address="{running.up.cluster}")')
        print("to end it:      weft stop", flush=True)
    if options.block:
        return _block(running, running.up.cluster if options.head and not head else "")
    running.release()
    return 0


def _default_folder(options: argparse.Namespace, port: int) -> str:
    """Of a head, where it is known before it listens; else empty."""
    if options.no_store or not options.head or not port:
        return ""
    return str(head_folder.path_of(tokens.folder(), _own_address(options.host, port)))


def _own_address(host: str, port: int) -> str:
    return launch.normal(f"{own_ip() if host == '0.0.0.0' else host}:{port}")


def _token(head: str, token_file: str | None, folder: str) -> bytes:
    """Of the cluster of that head, or of the one to be started (again, from that folder). LookupError;
    ConnectionError when nobody listens."""
    if not head and token_file is None and not os.environ.get(tokens.VARIABLE):
        return (head_folder.token_in(folder) if folder else b"") or launch.new_token()
    try:
        return tokens.find(head or "to be started", token_file)
    except LookupError:
        launch.check_that_somebody_listens(head)
        raise


def _checked_store(options: argparse.Namespace) -> str:
    """The redis://… that was given. ValueError when no head is started, when all users could read its password, or
    nothing answers there."""
    if (options.store or options.store_file) and not options.head:
        raise ValueError("--store is an option of --head: the other nodes hear of it from the head")
    if (options.store or options.store_file) and options.no_store:
        raise ValueError("--store and --no-store exclude each other")
    url: str = options.store
    if options.store_file:
        url = Path(options.store_file).read_text().strip()
    elif not url and options.head and not options.no_store:
        url = os.environ.get(secrets.STORE, "")
    elif "/" in url and "://" not in url:
        return ""
    if url:
        from weft.store.redis_storage import RedisStorage, masked
        from weft.store.storage import StorageRefused

        if options.store and masked(url) != url:
            raise ValueError(
                f"--store {masked(url)} has a password, which every user of this machine can read in the list of "
                f"processes. Change it, put the address into a file for --store-file, or set {secrets.STORE}"
            )
        try:
            RedisStorage(url, 0, "weft:probe").close()
        except StorageRefused as error:
            raise ValueError(
                f"--store cannot be used: {error}; or it is the path of a folder, with a / in it"
            ) from None
    return url


def _checked_shards(options: argparse.Namespace) -> int:
    """ValueError when no head is started, or there cannot be so many."""
    shards: int | None = options.shards
    if shards is not None and not options.head:
        raise ValueError("--shards is an option of --head: the other nodes hear of it from the head")
    if shards is not None and not 1 <= shards <= MOST_SHARDS:
        raise ValueError(f"--shards must be from 1 to {MOST_SHARDS}, but got {shards}")
    return SHARDS if shards is None else shards


def _print_dashboard(node: str) -> None:
    """Which also makes it listen from now on, for browsers and Prometheus."""
    try:
        print(f"its dashboard: {Client(node).ask('dashboard')['url']}")
    except (OSError, RuntimeError, LookupError) as error:
        print(f"it has no dashboard: {error}")


def _living_cluster(host: str, port: int, token_file: str | None) -> tuple[str, str, bytes] | None:
    """A node, the name and the token of the cluster that a head at this address has begun and that outlived it."""
    address = _own_address(host, port)
    for peer in peers.remembered(tokens.folder(), address):
        if peer != address:
            with contextlib.suppress(OSError, LookupError, Refused):
                token = tokens.find(address, token_file)
                if launch.ask_nodes(peer, token).cluster == address:
                    return peer, address, token
    return None


def _name_of(node: str, token: bytes) -> str:
    """The address by which the cluster of that node goes; the node's own when it cannot be asked."""
    with contextlib.suppress(OSError, Refused):
        return launch.ask_nodes(node, token).cluster
    launch.check_that_somebody_listens(node)
    return ""


def _join_command(up: NodeUp, token: bytes) -> str:
    """On this machine the token is found by itself; on another the command carries it."""
    if not up.fingerprint:
        return f"weft start --address {up.cluster}"
    join = f"weft start --address {up.cluster} --host 0.0.0.0 --fingerprint {up.fingerprint}"
    return f"{tokens.VARIABLE}={token.decode()} {join}"


def _block(running: launch.RunningNode, own_cluster: str) -> int:
    """Wait for the node's end; a signal to this command ends the node first."""
    secrets.take()  # tasks of the node could read them here

    def forward(number: int, _: object) -> None:
        running.process.send_signal(signal.SIGTERM)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, forward)
    status = running.process.wait()
    running.release()
    if own_cluster and _living_peer(own_cluster) is None:
        tokens.forget(own_cluster)
    return status


def _stop(options: argparse.Namespace) -> int:
    if options.cluster:
        return _stop_cluster(Client(meant_address(options.address), options.token_file))
    wanted = _to_stop(options)
    found = [name for name in launch.unleashed() if launch.cluster_of(name) in wanted]
    if not found:
        print(f"no node of the cluster {', '.join(wanted)} was running here" if wanted else "no node was running")
        return 0
    heads = {name for name in found if not options.force and _is_head(name)}
    ended = sum(_end(name, options.force) for name in sorted(found, key=heads.__contains__))  # who follows stays
    print(f"{ended} of {len(found)} nodes ended, of the cluster {', '.join(wanted)}")
    for cluster in wanted:
        if (peer := _living_peer(cluster)) is None:
            tokens.forget(cluster)
        else:
            print(f"the cluster {cluster} goes on: {peer} answers. To end it: weft stop --cluster --address {peer}")
    return 0 if ended == len(found) else 1


def _to_stop(options: argparse.Namespace) -> list[str]:
    """The names of the clusters whose nodes are to end; ValueError where it is not clear which."""
    named = options.address or named_address()
    if named and not options.all:
        return [launch.normal(named)]
    running = sorted({launch.cluster_of(name) for name in launch.unleashed()})
    if len(running) > 1 and not options.all:
        raise ValueError(
            f"nodes of {len(running)} clusters run here: {', '.join(running)}. Say which are to end, such as "
            f"--address {running[0]}, or --all"
        )
    return running


def _stop_cluster(client: Client) -> int:
    ended = client.ask("end_cluster")
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while (left := [name for name in launch.unleashed() if launch.cluster_of(name) == ended["cluster"]]) and (
        time.monotonic() < deadline
    ):
        time.sleep(LOOK_S)
    tokens.forget(ended["cluster"])
    print(f"the cluster {ended['cluster']} ends, with its {ended['nodes']} nodes")
    return 1 if left else 0


def _is_head(local_address: str) -> bool:
    """Whether that node acts as its cluster's head."""
    with contextlib.suppress(OSError, RuntimeError, LookupError):
        head: str = Client(local_address).ask("head", timeout_s=STOP_TIMEOUT_S)["node_id"]
        return local_address.partition("+")[0].endswith(head[:6])
    return False


def _living_peer(cluster: str) -> str | None:
    """A node of the cluster that answers, of those that a head on this machine has remembered."""
    with contextlib.suppress(LookupError):
        token = tokens.find(cluster, None)
        for peer in peers.remembered(tokens.folder(), launch.normal(cluster)):
            with contextlib.suppress(OSError, Refused):
                if launch.ask_nodes(peer, token).cluster == cluster:
                    return peer
    return None


def _end(local_address: str, force: bool) -> bool:
    """Whether the daemon at that local address is gone."""
    try:
        with connect_to_own(local_address, socket.SOCK_SEQPACKET, STOP_TIMEOUT_S) as connection:
            pid_fd = os.pidfd_open(peer_pid(connection))
    except (PermissionError, TimeoutError):
        return False  # another user's, under a name like ours; or it lets nobody in
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
