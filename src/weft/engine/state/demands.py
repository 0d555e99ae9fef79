"""Who waits for resources on a node, and in which order they are served.

Pure: no I/O, no clock. A demand is one process's wish for leases of one shape, or one actor's for a place.

The order: jobs take turns, grant by grant. Inside a job the higher priority goes first (and before all of them who
has waited for `PATIENCE_TICKS`), then the demand that holds least, then the one served longest ago, then the most
deeply nested, then the oldest. Holding least first keeps a recursion from filling the node with parents that all wait
for children; nested first makes it go depth-first.

A demand that holds nothing yet and does not fit makes the ones behind it wait for the same resources, or a task of
four CPUs would never run beside a stream of tasks of one. It insists only in every other spell of
`PATIENCE_TICKS`, so that nothing is held back for good by something that cannot be placed yet.

Invariants (`DemandQueue.check`):
    DEM-1  a demand is queued, in its job's queue alone, if and only if it wants something.
    DEM-2  a demand that neither wants nor holds anything is forgotten.
    DEM-3  no demand's counts are negative.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TypeAlias

from weft.engine.state.events import Process
from weft.engine.state.resources import Amounts, ResourcePool

DemandKey: TypeAlias = tuple[Process, int] | bytes | str
"""(process, its shape) for leases, the actor's id for an actor, a placement group's id in hexadecimal for the group."""

PATIENCE_TICKS = 10


class Demand:
    """One wish, and what has been given to it so far."""

    __slots__ = (
        "age", "away", "bundle", "captures", "depth", "draws_from", "group", "held", "hold", "is_actor", "is_local",
        "is_patient", "job", "key", "last_grant", "near", "need", "order", "parts", "priority", "requester",
        "runtime_env",
        "strategy", "wanted",
    )  # fmt: skip

    def __init__(
        self, key: DemandKey, job: int, requester: Process, depth: int, need: Amounts, hold: Amounts, runtime_env: str
    ) -> None:
        self.key = key
        self.job = job
        self.requester = requester
        self.depth = depth
        """How many tasks deep the requester is: 0 for a driver."""
        self.need = need
        """What must be free for one grant."""
        self.hold = hold
        """What one grant takes."""
        self.runtime_env = runtime_env
        self.wanted = 0
        self.held = 0
        self.last_grant = 0
        self.order = 0
        self.age = 0
        """Ticks since the last grant."""
        self.is_actor = isinstance(key, bytes)
        """A worker for good, not a lease that is given back."""
        self.strategy: Mapping[str, str | int | bool] = {}
        self.is_local = True
        """Whether this node may serve it: it is large enough, and the one that is meant."""
        self.is_patient = False
        """A process of another node that has leases there: it takes only what is free, and its share among its like."""
        self.away = 0
        """So many of what it wants are left to other nodes, even if there is room here (a spread one)."""
        self.near: dict[int, int] = {}
        """How many of what it wants would rather be on which node, for what is there already."""
        self.priority = 0
        self.group = b""
        """The placement group in whose bundles it is to be."""
        self.bundle = -1
        """Which bundle; -1 for any."""
        self.captures = False
        self.draws_from: Sequence[ResourcePool] | None = None
        """The pools of those bundles, none while the group is not placed; None: the node's own."""
        self.parts: tuple[Amounts, ...] = ()
        """Of a placement group's own demand: its bundles."""

    def pool(self, node: ResourcePool) -> ResourcePool | None:
        """Where one grant fits now."""
        if self.draws_from is not None:
            return next((pool for pool in self.draws_from if not pool.shortage(self.need)), None)
        return None if self.shortage(node) else node

    def may_draw_from(self, pool: ResourcePool) -> bool:
        """`pool` is the node's or a bundle's; the node's is nobody's bundle."""
        if self.draws_from is None:
            return not pool.is_bundle
        return any(pool is one for one in self.draws_from)

    def shortage(self, pool: ResourcePool) -> tuple[str, ...]:
        return pool.shortage_of_all(self.parts) if self.parts else pool.shortage(self.need)

    @property
    def rank_of_priority(self) -> float:
        """Least first. Who has waited too long goes before all priorities, so none starves."""
        return -math.inf if self.age >= PATIENCE_TICKS else -self.priority

    @property
    def waits_here(self) -> bool:
        return self.is_local and self.wanted > self.away

    @property
    def insists(self) -> bool:
        return self.held == 0 and self.age // PATIENCE_TICKS % 2 == 0


def _rank(demand: Demand) -> tuple[float, int, int, int, int]:
    return (demand.rank_of_priority, demand.held, demand.last_grant, -demand.depth, demand.order)


class DemandQueue:
    """All demands of a node."""

    def __init__(self) -> None:
        self.by_key: dict[DemandKey, Demand] = {}
        self._pending: dict[int, dict[DemandKey, Demand]] = {}
        self._served: dict[int, int] = {}
        """When each job was last given something."""
        self._clock = 0

    def want(self, demand: Demand, wanted: int) -> None:
        """Set how many more it wants now; the newest number counts."""
        demand.wanted = wanted
        if wanted:
            self.by_key[demand.key] = demand
            queue = self._pending.setdefault(demand.job, {})
            if demand.key not in queue:
                self._clock += 1
                demand.order = self._clock
                demand.age = 0
                queue[demand.key] = demand
        else:
            self._unqueue(demand)
            self._forget_if_empty(demand)

    def granted(self, demand: Demand) -> None:
        """It got one; it goes behind its equals and its job behind the other jobs."""
        demand.wanted -= 1
        demand.held += 1
        demand.age = 0
        self._clock += 1
        demand.last_grant = self._clock
        if demand.wanted == 0:
            self._unqueue(demand)
        self._served[demand.job] = self._clock

    def served_elsewhere(self, key: DemandKey) -> None:
        """Another node gave it one."""
        if (demand := self.by_key.get(key)) is not None and demand.wanted:
            demand.age = 0
            self._clock += 1
            self._served[demand.job] = self._clock
            self.want(demand, demand.wanted - 1)

    def gave_back(self, key: DemandKey) -> None:
        """One of what it holds came back."""
        if (demand := self.by_key.get(key)) is not None:
            demand.held -= 1
            self._forget_if_empty(demand)

    def withdraw(self, process: Process) -> None:
        """The process is dead: it wants nothing any more (what it holds comes back by and by)."""
        for demand in [demand for demand in self.by_key.values() if demand.requester == process]:
            self.want(demand, 0)

    def cancel(self, key: DemandKey) -> None:
        if (demand := self.by_key.get(key)) is not None:
            self.want(demand, 0)

    def job_ended(self, job: int) -> None:
        """Nothing can be placed for it any more, not even for processes of other nodes that are still to be ended."""
        for demand in list(self._pending.get(job, {}).values()):
            self.want(demand, 0)
        self._served.pop(job, None)

    def pending(self) -> Iterator[Demand]:
        """All that wait for this node, in the order in which they would be served."""
        jobs = sorted(self._pending, key=lambda job: self._served.get(job, 0))
        for queue in [self._pending[job] for job in jobs]:
            for demand in queue.values() if len(queue) == 1 else sorted(queue.values(), key=_rank):
                if demand.waits_here:
                    yield demand

    def next_fitting(self, pool: ResourcePool, unplaceable: Collection[DemandKey] = ()) -> Demand | None:
        """The one to serve now. `unplaceable` fit but lack a worker; what they need is kept for them."""
        kept: set[str] = set()
        kept_in: dict[bytes, set[str]] = {}
        for demand in self.pending():
            if demand.draws_from is not None:
                if self._fits_in_group(demand, unplaceable, kept_in.setdefault(demand.group, set())):
                    return demand
                continue
            if kept and any(name in kept for name, _ in demand.need):
                continue
            if demand.key in unplaceable:
                kept.update(name for name, _ in demand.need)
            elif not (short := demand.shortage(pool)):
                return demand
            elif demand.insists:
                kept.update(short)
        return None

    def _fits_in_group(self, demand: Demand, unplaceable: Collection[DemandKey], kept: set[str]) -> bool:
        """The same within a placement group: what is kept there is kept from that group's demands alone."""
        assert demand.draws_from is not None
        if any(name in kept for name, _ in demand.need):
            return False
        if demand.key in unplaceable:
            kept.update(name for name, _ in demand.need)
            return False
        shortages = [pool.shortage(demand.need) for pool in demand.draws_from]
        if not all(shortages):
            return True
        if demand.insists:
            kept.update(name for short in shortages for name in short)
        return False

    def of_group(self, group: bytes) -> list[Demand]:
        """All that are to be in that placement group."""
        return [demand for demand in self.by_key.values() if demand.group == group]

    def tick(self) -> None:
        for queue in self._pending.values():
            for demand in queue.values():
                demand.age += 1

    @property
    def is_waiting(self) -> bool:
        return bool(self._pending)

    def _unqueue(self, demand: Demand) -> None:
        if (queue := self._pending.get(demand.job)) is not None:
            queue.pop(demand.key, None)
            if not queue:
                del self._pending[demand.job]

    def _forget_if_empty(self, demand: Demand) -> None:
        if demand.wanted == 0 and demand.held == 0:
            self.by_key.pop(demand.key, None)

    def check(self) -> None:
        """Assert the invariants."""
        queued = [demand for queue in self._pending.values() for demand in queue.values()]
        assert len({demand.key for demand in queued}) == len(queued), "DEM-1: a demand is queued twice"
        assert all(self.by_key.get(demand.key) is demand for demand in queued), "DEM-1: queued, but unknown"
        for demand in self.by_key.values():
            is_queued = demand.key in self._pending.get(demand.job, {})
            assert is_queued == (demand.wanted > 0), f"DEM-1: {demand.key!r} wants {demand.wanted}, queued: {is_queued}"
            assert demand.wanted or demand.held, f"DEM-2: {demand.key!r} is empty"
            assert demand.wanted >= 0 and demand.held >= 0, f"DEM-3: {demand.key!r}"
