"""What a node is started with, and what this machine offers where nothing was asked for.

Runs in the daemon as it starts; reads a few files of /proc and /sys, writes nothing.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable

import msgspec

from weft.engine.state import nesting
from weft.machine import accelerators
from weft.machine.start_error import StartError
from weft.store.server_config import SHARDS

STORE_SHARE = 0.3
"""Of the memory, for objects. The segment is sparse: what is not used costs nothing."""
TASK_MEMORY_SHARE = 0.7
"""Of the memory, as the resource "memory" that tasks can ask for."""
SMALLEST_STORE_BYTES = 64 << 20
BLOCKED_WORKER_BYTES = 24 << 20
"""What a worker that waits takes by itself, with a small task's modules: half the memory is for such."""
FEWEST_BLOCKED, MOST_BLOCKED = 64, 300
"""Bounds of what is derived from that: no recursion that a machine bears is refused, none takes all slots."""
PROCESSES_VARIABLE = "WEFT_MAX_PROCESSES"
"""How many processes the node has room for: drivers, workers, actors. It costs no memory before they are there."""
WAITS_VARIABLE = "WEFT_WAIT_FOR_RESOURCES"
"""Set to 1: on a node alone, too, what it can never hold waits, instead of failing at once."""
PROCESS_BYTES = 8 << 20
"""What an idle actor takes, about: more of them than fit into the memory need no room."""
FEWEST_PROCESSES, MOST_PROCESSES = 1024, 1 << 14


class ClusterConfig(msgspec.Struct, frozen=True):
    """How a node takes part in a cluster."""

    launcher_fd: int
    """An inherited socket: the token comes from it, and what was started goes back (`launch_cluster`)."""
    head: str = ""
    """host:port of the head, or of any node of the cluster, to join it; empty to begin one."""
    host: str = "127.0.0.1"
    port: int = 0
    """Where to listen for other nodes; 0 for any port."""
    is_leashed: bool = False
    """Whether the node ends when the launcher's end of the socket closes."""
    fingerprint: str = ""
    """Of the certificate of the node at which it joins, where it must be that one."""
    name: str = ""
    """The cluster's address, by which it goes all its life, where `head` is another node's."""
    has_successor: bool = True
    """Of the node that begins a cluster: whether another may act as head when it dies. Else all end with it."""
    folder: str = ""
    """Where to remember the cluster's nodes, so that this one finds them when it is started again; empty: nowhere."""
    shards: int = SHARDS
    """Of the node that begins a cluster: of how many the control store is made."""
    state_folder: str = ""
    """Below it the node keeps, while it is the head, what a head must know to be started again; empty: nowhere."""
    store_folder: str = ""
    """The folder for that itself, where one was named."""
    fsync: str = "periodic"
    """When what is kept there is on the disk, see `weft/store/embedded`."""
    known: tuple[str, ...] = ()
    """Of a node that comes back: where else nodes of the cluster may listen."""
    returns_until_s: float = 0.0
    """Of a node that was left behind and comes back: the time at which it gives up; see `cluster/returning`."""


class NodeConfig(msgspec.Struct, frozen=True):
    """A node's start-up arguments, passed to it as JSON."""

    num_cpus: float | None = None
    num_gpus: float | None = None
    resources: dict[str, float] = {}
    object_store_bytes: int | None = None
    labels: dict[str, str] = {}
    cluster: ClusterConfig | None = None
    founder_fd: int = -1
    """The inherited socket of the driver that starts it and that it ends with; -1 for none."""
    storage: str = ""
    """Where the cluster's storage folder is made; empty: below TMPDIR."""


class NodeOffer(msgspec.Struct, frozen=True):
    """What the node has, decided."""

    total: dict[str, float]
    gpu_ids: tuple[int, ...]
    object_store_bytes: int
    prestart: int
    """Workers to have ready from the start."""
    start_limit: int
    """Workers that may be on their way at once."""
    most_blocked: int = 1 << 30
    """Workers that may wait for tasks of their own at once."""
    processes: int = FEWEST_PROCESSES
    """That the node has room for, its own two included."""


def decide(config: NodeConfig, ip: str = "127.0.0.1") -> NodeOffer:
    """The node's resources. ValueError when more GPUs are asked for than are visible."""
    memory = memory_bytes()
    cpus = usable_cpus() if config.num_cpus is None else config.num_cpus
    gpu_ids = choose_gpus(config.num_gpus)
    store = config.object_store_bytes or max(int(memory * STORE_SHARE), SMALLEST_STORE_BYTES)
    total: dict[str, float] = {
        "CPU": cpus,
        "memory": int(memory * TASK_MEMORY_SHARE),
        "object_store_memory": store,
        f"node:{ip}": 1.0,
        **config.resources,
    }
    if config.cluster is None or not config.cluster.head:
        total["node:__internal_head__"] = 1.0
    if gpu_ids:
        total["GPU"] = len(gpu_ids)
        kinds = accelerators.vendor().kinds()
        for kind in {kinds[number] for number in gpu_ids if number < len(kinds)} - {""}:
            total.setdefault(f"accelerator_type:{kind}", 1.0)
    prestart = max(1, min(math.ceil(cpus), max(usable_cpus(), 2)))
    processes = most_processes(memory, os.environ.get(PROCESSES_VARIABLE, ""))
    return NodeOffer(total, gpu_ids, store, prestart, max(8, prestart), _most_blocked(memory), processes)


def _most_blocked(memory: int) -> int:
    """ValueError when the variable is no positive number."""
    given = os.environ.get(nesting.VARIABLE, "")
    if not given:
        return max(FEWEST_BLOCKED, min(MOST_BLOCKED, memory // 2 // BLOCKED_WORKER_BYTES))
    if not given.isdecimal() or int(given) < 1:
        raise ValueError(f"{nesting.VARIABLE} must be a positive number of processes, but is {given!r}")
    return int(given)


def most_processes(memory: int, chosen: str) -> int:
    """How many processes the node has room for. StartError when the user's choice is none."""
    if not chosen:
        return min(max(memory // PROCESS_BYTES, FEWEST_PROCESSES), MOST_PROCESSES)
    if not chosen.isdigit() or not 8 <= int(chosen) <= MOST_PROCESSES:
        raise StartError(f"{PROCESSES_VARIABLE} must be a number from 8 to {MOST_PROCESSES}, but is {chosen!r}")
    return int(chosen)


def usable_cpus() -> int:
    """CPUs that this process may run on, limited by its control group's quota."""
    count = len(os.sched_getaffinity(0))
    quota = _cpu_quota(read_text)
    return max(1, min(count, math.ceil(quota))) if quota else count


def _cpu_quota(read: Callable[[str], str]) -> float:
    """CPUs' worth of time a control group is given; 0 for no limit."""
    limit, _, period = read("/sys/fs/cgroup/cpu.max").partition(" ")
    if not limit:
        limit = read("/sys/fs/cgroup/cpu/cpu.cfs_quota_us")
        period = read("/sys/fs/cgroup/cpu/cpu.cfs_period_us")
    try:
        return max(0.0, int(limit) / int(period))
    except (ValueError, ZeroDivisionError):
        return 0.0


def memory_bytes() -> int:
    """The machine's memory, or the control group's limit when that is less."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        limit = read_text(path)
        if limit.isdigit():
            physical = min(physical, int(limit))
    return physical


def choose_gpus(wanted: float | None) -> tuple[int, ...]:
    """The ids of the devices that the node hands out: what the vendor's variable leaves, all there are without it."""
    vendor = accelerators.vendor()
    visible = vendor.visible(os.environ)
    if wanted is None:
        return tuple(range(len(vendor.kinds()))) if visible is None else visible
    count = int(wanted)
    if visible is None:
        return tuple(range(count))
    if count > len(visible):
        variable = vendor.variable if vendor.variable in os.environ else vendor.before
        raise ValueError(f"num_gpus is {count}, but {variable}={os.environ[variable]!r} leaves {len(visible)}")
    return visible[:count]


def read_text(path: str) -> str:
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return ""
