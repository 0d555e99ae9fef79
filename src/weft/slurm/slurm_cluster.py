"""`srun python script.py`: the tasks of a Slurm step form a cluster by themselves.

Runs in `weft.init()`. Task 0 starts the head and is the driver; the first task of each other machine becomes that
machine's node, and all tasks but the driver's leave the program when the head ends, without going on with it. So the
program runs once, and the cluster lives as long as it does.

The others learn the head's address and the token from a file that only the user can read, in a folder that the machines
share: WEFT_SHARED_DIR, else the user's state folder. Where there is none, set the same WEFT_TOKEN for all tasks: then
the head listens on a port that the step's name gives (or WEFT_PORT), on the step's first host.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
import warnings
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from weft.engine.cluster import launch, tokens
from weft.engine.node.config import ClusterConfig, NodeConfig
from weft.engine.state.instructions import Ending
from weft.net.auth import Refused
from weft.net.endpoint import own_ip
from weft.slurm.slurm_step import Step, read_step

FORMED_VARIABLE = "WEFT_SLURM_CLUSTER"
"""Set once it has been formed: a child of the driver does not do it again."""
SHARED_VARIABLE, PORT_VARIABLE, TIMEOUT_VARIABLE = "WEFT_SHARED_DIR", "WEFT_PORT", "WEFT_SLURM_TIMEOUT_S"
TIMEOUT_S = 300.0
LOOK_S = 0.05
_FIRST_PORT, _PORTS = 20_000, 20_000
_running: list[tuple[launch.RunningNode, Path | None]] = []


class Meeting(msgspec.Struct, frozen=True):
    """What the others must know."""

    address: str
    token: str


def step() -> Step | None:
    """The step to form a cluster of; None when this is none, or it has been formed."""
    return None if os.environ.get(FORMED_VARIABLE) else read_step(os.environ)


def form(found: Step, given: Mapping[str, Any]) -> str:
    """The address of the cluster, in the driver; every other task ends in here."""
    if not found.is_head:
        _be_a_node(found, given)
    token = os.environ.get(tokens.VARIABLE, "")
    port = _agreed_port(found) if token else 0
    host = _own_host(found)
    cluster = ClusterConfig(launcher_fd=-1, host=host, port=port, is_leashed=True, has_successor=False)
    secret = token.encode() or launch.new_token()
    running = launch.start(_config(found, given), secret, cluster)
    path = None
    try:
        if not token:
            path = _path(found)
            _write(path, Meeting(running.up.cluster, secret.decode()))
        _running.append((running, path))
        _await_all(found, running.up.cluster, secret)
    except BaseException:
        end()
        raise
    os.environ[FORMED_VARIABLE] = os.environ["WEFT_ADDRESS"] = running.up.cluster
    return running.up.cluster


def end() -> None:
    """End the cluster that this driver has formed, and with it all other tasks of the step."""
    while _running:
        running, path = _running.pop()
        running.end()
        if path is not None:
            path.unlink(missing_ok=True)
        if os.environ.get("WEFT_ADDRESS") == running.up.cluster:
            del os.environ["WEFT_ADDRESS"]


# ---- the driver ----


def _await_all(found: Step, address: str, token: bytes) -> None:
    """Until every machine of the step has joined; a warning when some have not in time."""
    deadline = time.monotonic() + _timeout_s()
    alive = 0
    while time.monotonic() < deadline:
        alive = sum(member.is_alive for member in launch.ask_nodes(address, token).members)
        if alive >= len(found.hosts):
            return
        time.sleep(LOOK_S)
    warnings.warn(
        f"only {alive} of the step's {len(found.hosts)} machines have joined within {_timeout_s():g} s; the cluster "
        f"goes on with those. Do all tasks of the step call weft.init()?",
        stacklevel=5,
    )


# ---- the others ----


def _be_a_node(found: Step, given: Mapping[str, Any]) -> NoReturn:
    meeting = _meet(found)
    token = meeting.token.encode()
    if found.local_rank:
        _outlast(meeting.address, token)
    cluster = ClusterConfig(launcher_fd=-1, head=meeting.address, host=_own_host(found), is_leashed=True)
    running = launch.start(_config(found, given), token, cluster)
    ending = running.process.wait()
    log = running.log()
    running.end()
    if ending != Ending.WITH_CLUSTER:  # which is how it ends when the program of task 0 is over
        sys.exit(f"weft: the node of task {found.rank} ended before the cluster:\n{log}")
    sys.exit(0)


def _outlast(address: str, token: bytes) -> NoReturn:
    """A task that is no node: its machine has one."""
    with contextlib.suppress(OSError, Refused):
        while True:
            launch.ask_nodes(address, token)
            time.sleep(1.0)
    sys.exit(0)


def _meet(found: Step) -> Meeting:
    """TimeoutError, with what to do, when the head does not come up."""
    deadline = time.monotonic() + _timeout_s()
    token = os.environ.get(tokens.VARIABLE, "")
    path = _path(found)
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, Refused, msgspec.DecodeError):
            if not token:
                return _read(path)
            meeting = Meeting(f"{socket.gethostbyname(found.hosts[0])}:{_agreed_port(found)}", token)
            launch.ask_nodes(meeting.address, token.encode())
            return meeting
        time.sleep(LOOK_S)
    where = f"no {path} has appeared" if not token else f"{found.hosts[0]}:{_agreed_port(found)} does not answer"
    raise TimeoutError(
        f"task {found.rank} of the step has not found the head within {_timeout_s():g} s: {where}. Does task 0 call "
        f"weft.init(), and do the machines share that folder? Else set {SHARED_VARIABLE} to one that they do, or the "
        f"same {tokens.VARIABLE} for all tasks."
    )


# ---- both ----


def _config(found: Step, given: Mapping[str, Any]) -> NodeConfig:
    """Every node is as `init` describes one; where it says nothing of CPUs, as many as the step has there."""
    memory = given.get("object_store_memory")
    cpus = given.get("num_cpus")
    return NodeConfig(
        found.cpus if cpus is None else float(cpus),
        None if given.get("num_gpus") is None else float(given["num_gpus"]),
        {name: float(amount) for name, amount in (given.get("resources") or {}).items()},
        None if memory is None else int(memory),
        {name: str(value) for name, value in (given.get("labels") or {}).items()},
    )


def _own_host(found: Step) -> str:
    """The address that the other machines reach this one at; loopback where there are none."""
    if len(set(found.hosts)) == 1:
        return "127.0.0.1"
    with contextlib.suppress(OSError):
        own = socket.gethostbyname(os.environ.get("SLURMD_NODENAME") or socket.gethostname())
        if not own.startswith("127.") or all(socket.gethostbyname(host).startswith("127.") for host in found.hosts):
            return own
    return own_ip()


def _agreed_port(found: Step) -> int:
    return int(os.environ.get(PORT_VARIABLE) or _FIRST_PORT + zlib.crc32(found.name.encode()) % _PORTS)


def _timeout_s() -> float:
    return float(os.environ.get(TIMEOUT_VARIABLE) or TIMEOUT_S)


def _path(found: Step) -> Path:
    shared = os.environ.get(SHARED_VARIABLE)
    return (Path(shared) if shared else tokens.folder()) / f"{found.name}-{os.getuid()}.json"


def _write(path: Path, meeting: Meeting) -> None:
    """Whole or not at all, and for this user's eyes only."""
    partial = path.with_suffix(f".{os.getpid()}")
    partial.unlink(missing_ok=True)
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(msgspec.json.encode(meeting))
    os.replace(partial, path)


def _read(path: Path) -> Meeting:
    """OSError when it is not there, or is another user's or open to others: then it is not the head's."""
    with open(path, "rb") as file:
        about = os.fstat(file.fileno())
        if about.st_uid != os.getuid() or about.st_mode & 0o077:
            raise PermissionError(f"{path} must belong to this user alone")
        return msgspec.json.decode(file.read(), type=Meeting)
