"""Which worker is stopped when the node's memory runs out: before the kernel picks one, or the machine stands still.

Pure: no I/O, no clock. `node/memory.py` measures and carries out. Memory is what a process has for itself; the arena is
shared, has its own limit and spills.

The policy: nothing is done below `THRESHOLD` of the limit. At it, the offender is sought among the workers that hold
at least half as much as the largest: one that runs tasks rather than an actor (its task is tried again, an actor loses
its state), an actor that may restart rather than one that may not, and of those the youngest, which has lost least.
Drivers are never stopped. One at a time: the next only when the last is gone and its memory still was not enough.

    MEM-1  a worker is stopped only at a sample above the threshold, and while no other is being stopped.
    MEM-2  the one stopped holds at least half as much as any other.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from weft.engine.state.events import Process

THRESHOLD = 0.95
LOOK_CLOSER = 0.8
"""Below this share of the limit nobody is in danger, and samples are seldom."""
SMALLEST_BYTES = 32 << 20
"""Workers smaller than this are not the cause."""
TASK, RESTARTABLE_ACTOR, ACTOR = range(3)


class Usage(msgspec.Struct, frozen=True):
    """Of the node."""

    used_bytes: int
    limit_bytes: int

    @property
    def share(self) -> float:
        return self.used_bytes / self.limit_bytes if self.limit_bytes else 0.0


class Candidate(msgspec.Struct, frozen=True):
    """A worker that could be stopped."""

    process: Process
    pid: int
    bytes: int
    peak_bytes: int
    rank: int
    """TASK, RESTARTABLE_ACTOR or ACTOR."""
    age: int
    """Less for an older one."""


class StoppedForMemory(msgspec.Struct, frozen=True):
    """Why a worker is stopped, or was killed by the kernel."""

    text: str
    """For a person: "stopped for memory: pid 77 held ..."."""
    peak_bytes: int
    """What it held at most; a retry asks for more."""


class Stop(msgspec.Struct, frozen=True):
    """Stop it, for this reason."""

    process: Process
    why: StoppedForMemory


class MemoryPolicy:
    """One node's."""

    def __init__(self) -> None:
        self._stopping: Process | None = None

    def sampled(self, usage: Usage, candidates: Sequence[Candidate]) -> Stop | None:
        """`candidates` are all living workers."""
        if self._stopping is not None:
            if any(one.process == self._stopping for one in candidates):
                return None
            self._stopping = None
            return None  # what it held is free at the next sample
        if usage.share < THRESHOLD or not candidates:
            return None
        most = max(one.bytes for one in candidates)
        large = [one for one in candidates if one.bytes >= max(most / 2, SMALLEST_BYTES)]
        if not large:
            return None
        chosen = min(large, key=lambda one: (one.rank, -one.age))
        self._stopping = chosen.process
        return Stop(chosen.process, _why(chosen, usage))


def _why(one: Candidate, usage: Usage) -> StoppedForMemory:
    return StoppedForMemory(
        f"stopped for memory: pid {one.pid} held {size_text(one.bytes)} (peak {size_text(one.peak_bytes)}) when "
        f"{size_text(usage.used_bytes)} of the {size_text(usage.limit_bytes)} that its node may use were taken",
        one.peak_bytes,
    )


def more_memory(had: float, peak: int) -> int:
    """What a task asks for when it is tried again, after it was stopped while it asked for `had` bytes.

    >>> more_memory(0, 100 << 20) == 125 << 20, more_memory(1 << 30, 100 << 20) == 2 << 30
    (True, True)
    """
    return max(int(2 * had), peak + peak // 4)


def size_text(count: int) -> str:
    """
    >>> size_text(3 << 29), size_text(5 << 20)
    ('1.5 GiB', '5 MiB')
    """
    return f"{count / (1 << 30):.1f} GiB" if count >= 1 << 30 else f"{count / (1 << 20):.0f} MiB"
