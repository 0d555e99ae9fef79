"""Where workers may have control groups of their own (version 2), and what a worker's group is held to.

Pure: no I/O, no clock. `node/memory_groups.py` reads, writes and carries out.

A group with processes in it cannot have limited groups below it (the kernel's rule), and the node's own group has
processes: the driver, the daemon. So the workers' groups are made below the nearest group above that has none, or that
gives its children the memory controller already. Nothing that limits the node's own group may be escaped by that.

A worker's group is held to the memory that its work declared. The pages of the arena are charged to whoever touches
them first, though they are everybody's. So `memory.high`, at which the kernel slows a process down and tells, follows
what the group has of the arena; whether the rest is too much is decided when the kernel tells. `memory.max`, at which
it kills, leaves room for the whole arena.

    GRP-1  a group is made only where no limit of memory or processors between it and the node's own group is left.
    GRP-2  a worker is stopped only when what it has for itself is more than it declared since it was put to work.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator

import msgspec

from weft.engine.state.memory_pressure import SMALLEST_BYTES, StoppedForMemory, size_text

SLACK_BYTES = 2 << 20
"""The kernel charges processes in batches, so its counts are a little ahead."""
PREFIX = "weft-"
"""How the names of nodes' groups begin."""
NO_MOUNT = "version 2 of control groups is not mounted here"
DELEGATE = "start it in a group of your own: systemd-run --user --scope COMMAND"
_LIMITS = ("memory.max", "memory.high", "memory.swap.max", "cpu.max")

Read = Callable[[str], str]
"""A file's text, stripped; empty when it cannot be read."""


class Grant(msgspec.Struct, frozen=True):
    """Groups with limits may be made here."""

    parent: str
    enables_memory: bool = False
    """Whether the memory controller must first be handed on to the groups below."""
    most_processes: str = "max"
    """What the node's own group allows of processes and threads; the workers' groups together get as much."""


class Refusal(msgspec.Struct, frozen=True):
    why: str
    advice: str = ""


def decide(read: Read, may_write: Callable[[str], bool]) -> Grant | Refusal:
    """For the process whose files of /proc/self `read` reads."""
    membership, mounts = read("/proc/self/cgroup"), read("/proc/self/mountinfo")
    own = own_folder(membership, mounts)
    if own is None:
        return Refusal(NO_MOUNT, "boot with systemd.unified_cgroup_hierarchy=1")
    mount, folder = own
    if "memory" not in read(f"{mount}/cgroup.controllers").split():
        is_in_the_first = any("memory" in line.split(":")[1].split(",") for line in membership.splitlines())
        why = "it is bound to version 1" if is_in_the_first else "the kernel or the container keeps it"
        return Refusal(f"the memory controller is not in {mount}: {why}", "boot with cgroup_no_v1=all")
    nearest: Refusal | None = None
    most_processes = "max"
    for candidate in _upwards(folder, mount):
        found = _may_host(candidate, most_processes, read, may_write)
        if isinstance(found, Grant):
            return found
        nearest = nearest or found
        for name in _LIMITS:
            if read(f"{candidate}/{name}").split()[:1] not in ([], ["max"]):
                return Refusal(f"{nearest.why}, and groups beside it would escape its {name}", DELEGATE)
        if (most := read(f"{candidate}/pids.max")) not in ("", "max"):
            most_processes = most if most_processes == "max" else min(most, most_processes, key=int)
    assert nearest is not None
    return nearest


def own_folder(membership: str, mounts: str) -> tuple[str, str] | None:
    """The mount of version 2 and the folder of a process's group in it, of /proc/PID/cgroup and mountinfo.

    >>> own_folder("0::/user/a", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw")
    ('/sys/fs/cgroup', '/sys/fs/cgroup/user/a')
    """
    path = next((line[3:] for line in membership.splitlines() if line.startswith("0::")), "")
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split()
        if right.split()[:1] != ["cgroup2"]:
            continue
        root, mount = (field.replace("\\040", " ").rstrip("/") for field in fields[3:5])
        if path.startswith(f"{root}/"):
            return mount, f"{mount}{path[len(root) :]}".rstrip("/")
    return None


def _upwards(folder: str, mount: str) -> Iterator[str]:
    while folder != mount:
        yield folder
        folder = posixpath.dirname(folder)
    yield mount


def _may_host(folder: str, most_processes: str, read: Read, may_write: Callable[[str], bool]) -> Grant | Refusal:
    """Whether workers' groups can be made below it."""
    if "memory" not in read(f"{folder}/cgroup.controllers").split():
        return Refusal(f"{folder} has no memory controller", DELEGATE)
    if not (may_write(folder) and may_write(f"{folder}/cgroup.procs")):
        return Refusal(f"this user may not write to {folder}", DELEGATE)
    if "memory" in read(f"{folder}/cgroup.subtree_control").split():
        return Grant(folder, most_processes=most_processes)
    if not may_write(f"{folder}/cgroup.subtree_control"):
        return Refusal(f"this user may not write to {folder}/cgroup.subtree_control", DELEGATE)
    is_root = not read(f"{folder}/cgroup.type")
    if read(f"{folder}/cgroup.procs") and not is_root:
        return Refusal(
            f"{folder} has processes in it, so no limits can be set below it",
            "move them to a group below it before anything else is started",
        )
    return Grant(folder, enables_memory=True, most_processes=most_processes)


class Reading(msgspec.Struct, frozen=True):
    """What the kernel says of a group."""

    current_bytes: int
    peak_bytes: int
    file_bytes: int
    """Caches of files, and shared memory."""
    shared_bytes: int
    """Of the arena, that is."""
    kills: int
    """How often the kernel has killed in it for want of memory."""

    @property
    def private_bytes(self) -> int:
        return max(0, self.current_bytes - self.file_bytes)


def reading(current: str, peak: str, stat: str, events: str) -> Reading:
    """Of the files memory.current, memory.peak (empty on old kernels), memory.stat and memory.events."""
    counts = dict(line.split() for line in f"{stat}\n{events}".splitlines() if line)
    now = int(current or 0)
    return Reading(
        now,
        max(now, int(peak or 0)),
        int(counts.get("file", 0)),
        int(counts.get("shmem", 0)),
        int(counts.get("oom_kill", 0)),
    )


class Limit(msgspec.Struct, frozen=True):
    """What one worker is held to while it does one thing."""

    declared_bytes: int
    kept_bytes: int = 0
    """What it had for itself before: a worker's heap outlives its tasks."""

    @property
    def private_bytes(self) -> int:
        """Small ones are no danger, and every worker needs something to run at all."""
        return max(self.declared_bytes, SMALLEST_BYTES) + self.kept_bytes

    def high_bytes(self, now: Reading) -> int:
        """For memory.high."""
        return self.private_bytes + now.shared_bytes + SLACK_BYTES

    def max_bytes(self, arena_bytes: int) -> int:
        """For memory.max."""
        return self.private_bytes + arena_bytes + SLACK_BYTES

    def is_exceeded(self, now: Reading) -> bool:
        return now.private_bytes > self.private_bytes

    def reason(self, pid: int, now: Reading) -> StoppedForMemory:
        """Of its death, by us or by the kernel."""
        peak = max(0, max(now.private_bytes, now.peak_bytes - now.file_bytes) - self.kept_bytes)
        how = "was killed by the kernel" if now.kills else f"held {size_text(now.private_bytes)}"
        return StoppedForMemory(
            f"stopped for memory: pid {pid} {how} (peak {size_text(peak)}), "
            f"but its work declared a memory of {size_text(self.declared_bytes)}",
            peak,
        )
