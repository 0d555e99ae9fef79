"""Watches the node's memory while workers run, and stops the one that `state.memory_pressure` picks.

Runs in the daemon's thread. Samples are seldom while there is room and frequent when there is little. The limit is the
machine's memory or its control group's, whichever is nearer (version 2 of control groups, or 1); or, with the variable
WEFT_MEMORY_LIMIT (bytes), what the workers of this node may use together.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from weft.engine.state.events import Process
from weft.engine.state.memory_pressure import (
    ACTOR,
    LOOK_CLOSER,
    RESTARTABLE_ACTOR,
    TASK,
    Candidate,
    MemoryPolicy,
    StoppedForMemory,
    Usage,
)
from weft.engine.state.node import NodeState
from weft.engine.state.workers import Place, Worker, WorkerPool
from weft.net.loop import Loop

if TYPE_CHECKING:
    from weft import _native
    from weft.engine.node.memory_groups import MemoryGroups
    from weft.engine.state.instructions import LimitMemory

Stop = Callable[[Process, StoppedForMemory], None]
VARIABLE = "WEFT_MEMORY_LIMIT"
SELDOM_S, OFTEN_S = 0.25, 0.05
SWEEP_S = 1.0
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_GROUPS = (
    ("memory.max", "memory.current", "memory.stat", ("inactive_file", "active_file")),
    (
        "memory/memory.limit_in_bytes",
        "memory/memory.usage_in_bytes",
        "memory/memory.stat",
        ("total_inactive_file", "total_active_file"),
    ),
)
"""Limit, use, and what of the use the kernel can take back: caches of files."""


class MemoryMonitor:
    """One daemon's."""

    def __init__(self, loop: Loop, state: NodeState, is_local: Callable[[Process], bool], stop: Stop) -> None:
        self._loop = loop
        self._state = state
        self._is_local = is_local
        self._stop = stop
        self._policy = MemoryPolicy()
        self._peaks: dict[Process, int] = {}
        self._own_limit = own_limit(os.environ.get(VARIABLE, ""))
        self.is_watching = False

    def watch(self) -> None:
        """Until no worker is at work."""
        self.is_watching = True
        self._loop.call_later(SELDOM_S, self._sample)

    def _sample(self) -> None:
        workers = [
            worker
            for worker in self._state.workers
            if worker.place in (Place.LEASED, Place.ACTOR, Place.ENDING)
            and worker.pid
            and self._is_local(worker.process)
        ]
        if not workers:
            self.is_watching = False
            self._peaks.clear()
            return
        usage = machine_usage() if not self._own_limit else None
        is_close = usage is None or usage.share >= LOOK_CLOSER
        if is_close:
            candidates = [self._candidate(worker) for worker in workers]
            usage = usage or Usage(sum(one.bytes for one in candidates), self._own_limit)
            if (stop := self._policy.sampled(usage, candidates)) is not None:
                self._stop(stop.process, stop.why)
        self._loop.call_later(OFTEN_S if is_close else SELDOM_S, self._sample)

    def _candidate(self, worker: Worker) -> Candidate:
        held = private_bytes(worker.pid)
        peak = self._peaks[worker.process] = max(held, self._peaks.get(worker.process, 0))
        actor = self._state.actors.of_worker(worker.process)
        restarts = actor is not None and actor.spec.max_restarts != 0
        rank = TASK if actor is None else RESTARTABLE_ACTOR if restarts else ACTOR
        return Candidate(worker.process, worker.pid, held, peak, rank, worker.ticket)


class DeclaredLimits:
    """Holds workers to the memory that their work declares, through `memory_groups`.

    That is looked into at the first such work, since few programs have any and it costs some milliseconds; and once the
    start is over, since it removes what killed nodes have left."""

    def __init__(
        self,
        loop: Loop,
        port: _native.NodePort,
        node_id: str,
        workers: WorkerPool,
        is_local: Callable[[Process], bool],
        stop: Stop,
    ) -> None:
        self._loop = loop
        self._port = port
        self._node_id = node_id
        self._workers = workers
        self._is_local = is_local
        self._stop = stop
        self._groups: MemoryGroups | None = None
        loop.call_later(SWEEP_S, self._begin)

    def limit(self, one: LimitMemory) -> None:
        if self._is_local(one.process):
            self._begin()
            assert self._groups is not None
            pid = self._workers.by_process[one.process].pid
            self._groups.limit(one.process, pid, one.declared_bytes)

    def forked(self, process: Process, pid: int) -> None:
        if self._groups is not None:
            self._groups.forked(process, pid)

    def exited(self, process: Process, pid: int) -> StoppedForMemory | None:
        """Why, when the kernel killed it for its memory."""
        return None if self._groups is None else self._groups.exited(process, pid)

    def close(self) -> None:
        if self._groups is not None:
            self._groups.close()

    def _begin(self) -> None:
        from weft.engine.node.memory_groups import MemoryGroups, limits_granted

        if self._groups is None:
            arena_bytes = self._port.statistics()["arena_bytes"]
            self._groups = MemoryGroups(self._loop, limits_granted(), self._node_id, arena_bytes, self._stop)


def own_limit(text: str) -> int:
    """Of WEFT_MEMORY_LIMIT; 0 for none."""
    if text and not (text.isdigit() and int(text) > 0):
        raise ValueError(f"{VARIABLE} must be a positive number of bytes, but got {text!r}")
    return int(text or 0)


def private_bytes(pid: int) -> int:
    """What the process has in memory and shares with nobody; 0 when it is gone."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            fields = file.read().split()
    except OSError:
        return 0
    return (int(fields[1]) - int(fields[2])) * _PAGE_BYTES


def machine_usage() -> Usage:
    """Of the machine, or of the control group when that is nearer to its limit."""
    with open("/proc/meminfo", "rb") as file:
        lines = dict(line.split(b":", 1) for line in file.read().splitlines())
    total, available = (int(lines[name].split()[0]) << 10 for name in (b"MemTotal", b"MemAvailable"))
    usages = [Usage(total - available, total)]
    if (group := group_usage(total)) is not None:
        usages.append(group)
    return max(usages, key=lambda usage: usage.share)


def group_usage(total_bytes: int, root: str = "/sys/fs/cgroup") -> Usage | None:
    """Of this process's control group; None where it has no limit of its own."""
    for limit_path, used_path, stat_path, caches in _GROUPS:
        try:
            limit = _number(f"{root}/{limit_path}")
            if limit is None or limit >= total_bytes:
                continue
            used = _number(f"{root}/{used_path}") or 0
            with open(f"{root}/{stat_path}") as file:
                cached = sum(int(line.split()[1]) for line in file if line.split()[0] in caches)
        except OSError:
            continue
        return Usage(max(0, used - cached), limit)
    return None


def _number(path: str) -> int | None:
    with open(path) as file:
        text = file.read().strip()
    return None if text == "max" else int(text)
