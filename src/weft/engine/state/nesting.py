"""How many workers may wait for tasks of their own, and what happens when no more may and none goes on.

Pure. A task that waits for tasks that it has submitted keeps its process, so a recursion takes a process per level
(docs/design/0020-nested-tasks.md). At the limit nested demands wait: whoever runs may end and let a blocked one go on.
When nobody runs any more, the most deeply nested demand is refused: its tasks fail, and who waits for them is told.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a driver reads `VARIABLE` on its way up, and needs none of these
    from weft.engine.state.demands import Demand, DemandQueue
    from weft.engine.state.events import Process
    from weft.engine.state.leases import LeaseTable
    from weft.engine.state.workers import WorkerPool

VARIABLE = "WEFT_MAX_BLOCKED_WORKERS"
STANDSTILL_TICKS = 2
STANDSTILL_TICKS_WITH_ACTORS = 10
"""A call that runs long may be what all the blocked ones wait for."""
NAMES_TOLD = 6


class Nesting:
    """The limit, and for how long there has been a standstill."""

    def __init__(self, most_blocked: int, demands: DemandQueue, leases: LeaseTable, workers: WorkerPool) -> None:
        self.most_blocked = most_blocked
        self._demands = demands
        self._leases = leases
        self._workers = workers
        self._ticks = 0

    @property
    def is_full(self) -> bool:
        return self._workers.blocked >= self.most_blocked

    def holds_back(self, demand: Demand) -> bool:
        return self.is_full and demand.depth > 0 and isinstance(demand.key, tuple) and not demand.is_actor

    def ticked(self, has_actors: bool) -> Demand | None:
        """The demand to refuse now, if any."""
        if not self.is_full or any(not lease.worker.lent for lease in self._leases.by_id.values()):
            self._ticks = 0
            return None
        self._ticks += 1
        if self._ticks < (STANDSTILL_TICKS_WITH_ACTORS if has_actors else STANDSTILL_TICKS):
            return None
        held_back = [one for one in self._demands.pending() if self.holds_back(one) and self._is_blocked(one.requester)]
        return max(held_back, key=lambda one: (one.depth, one.order), default=None)

    def _is_blocked(self, process: Process) -> bool:
        worker = self._workers.by_process.get(process)
        return worker is not None and worker.lent

    def refusal(self, demand: Demand, name_of: Callable[[Process, int], str]) -> str:
        """`name_of` tells what a process calls by that number."""
        assert isinstance(demand.key, tuple)
        names = [name_of(*demand.key)]
        worker = self._workers.by_process.get(demand.requester)
        while worker is not None and (lease := self._leases.of_worker(worker)) is not None:
            assert isinstance(lease.group, tuple)
            names.append(name_of(*lease.group))
            worker = self._workers.by_process.get(lease.holder)
        levels = len(names)
        if levels > NAMES_TOLD:
            names[NAMES_TOLD // 2 : -NAMES_TOLD // 2] = ["..."]
        chain = " > ".join(reversed(names))
        return (
            f"task {name_of(*demand.key)} was not started: {self._workers.blocked} workers of this node wait in get() "
            "for tasks that they have submitted, which is as many as may, and nothing runs that could end. "
            f"{levels} levels wait for each other: {chain}. Each level keeps a process. Return refs or pass them on as "
            "arguments instead of waiting for them inside a task, do several levels in one task, or allow more "
            f"processes with {VARIABLE}."
        )
