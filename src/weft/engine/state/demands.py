"""Who waits for resources on a node, and in which order they are served.

Pure: no I/O, no clock. A demand is one process's wish for leases of one shape, or one actor's for a place.

The order: jobs take turns, grant by grant. Inside a job the higher priority goes first (and before all of them who
has waited for `PATIENCE_TICKS`), then the demand that holds least, then the one served longest ago, then the most
deeply nested, then the oldest. Holding least first keeps a recursion from filling the node with parents that all wait
for children; nested first makes it go depth-first.

A demand that holds nothing yet and does not fit makes the ones behind it wait for the same resources, or a task of
four CPUs would never run beside a stream of tasks of one. It insists only in every other spell of
`PATIENCE_TICKS`, so that nothing is held back for good by something that cannot be placed yet.

Demands that need the same, hold as much and have waited as long are peers. Their order among themselves does not change
while they wait, and when the first of them cannot be served none can: so one look at each set of peers finds the demand
to serve, however many wait. The sets are kept in the order of their firsts, and the look ends where all that is left
needs something that is used up or kept: many shapes that wait for the same CPUs cost as much as one.

Invariants (`DemandQueue.check`):
    DEM-1  a demand is queued, in its job's queue and among its peers alone, if and only if it wants something.
           Peers and sets of peers are in order.
    DEM-2  a demand that neither wants nor holds anything is forgotten.
    DEM-3  no demand's counts are negative.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from typing import TypeAlias

from weft.engine.state.events import Process
from weft.engine.state.resources import Amounts, ResourcePool

DemandKey: TypeAlias = tuple[Process, int] | bytes | str
"""(process, its shape) for leases, the actor's id for an actor, a placement group's id in hexadecimal for the group."""

PATIENCE_TICKS = 10
KINDS_OF_NEED = 64
"""With more sets of names of resources than this, each set of peers is looked at."""


class Demand:
    """One wish, and what has been given to it so far."""

    __slots__ = (
        "age", "away", "bundle", "captures", "depth", "draws_from", "group", "held", "hold", "is_actor", "is_local",
        "is_patient", "job", "key", "last_grant", "near", "need", "order", "parts", "peers", "priority", "requester",
        "runtime_env", "since", "strategy", "wanted",
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
        self.since = 0
        """The tick at which its age was 0."""
        self.peers: Hashable = None
        """What it shares with its peers, while it is queued."""
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
    return (demand.rank_of_priority, demand.held, *_rank_among_peers(demand))


def _rank_among_peers(demand: Demand) -> tuple[int, int, int]:
    return (demand.last_grant, -demand.depth, demand.order)


def _shared(demand: Demand) -> Hashable:
    """All that decides where it stands and whether it can be served, but for its rank among its peers.

    A process is not given itself as a worker, so what it asks for is alone with what it asks for."""
    asker = None if isinstance(demand.key, bytes | str) else demand.requester
    order = (demand.priority, demand.held, demand.since)
    return (*order, demand.need, demand.hold, demand.parts, demand.runtime_env, demand.group, demand.bundle,
            demand.captures, demand.is_actor, asker)  # fmt: skip


def _names(demand: Demand) -> frozenset[str]:
    return frozenset(name for name, amount in demand.need if amount)


def _rank_of_first(peers: list[Demand]) -> tuple[float, int, int, int, int]:
    return _rank(peers[0])


class _JobQueue:
    """What waits of one job."""

    __slots__ = ("_by_shared", "in_order")

    def __init__(self) -> None:
        self._by_shared: dict[Hashable, list[Demand]] = {}
        self.in_order: list[list[Demand]] = []
        """The sets of peers, each in order, in the order of their firsts."""

    def add(self, demand: Demand) -> None:
        demand.peers = _shared(demand)
        peers = self._by_shared.setdefault(demand.peers, [])
        if peers and _rank_among_peers(peers[0]) < _rank_among_peers(demand):
            insort(peers, demand, key=_rank_among_peers)
            return
        if peers:
            self._take_out(peers)
        peers.insert(0, demand)
        insort(self.in_order, peers, key=_rank_of_first)

    def remove(self, demand: Demand) -> None:
        peers = self._by_shared[demand.peers]
        if peers[0] is not demand:
            del peers[bisect_left(peers, _rank_among_peers(demand), key=_rank_among_peers)]
        else:
            self._take_out(peers)
            del peers[0]
            if peers:
                insort(self.in_order, peers, key=_rank_of_first)
            else:
                del self._by_shared[demand.peers]
        demand.peers = None

    def _take_out(self, peers: list[Demand]) -> None:
        del self.in_order[bisect_left(self.in_order, _rank_of_first(peers), key=_rank_of_first)]

    def sort(self) -> None:
        """Their ages have changed."""
        self.in_order.sort(key=_rank_of_first)

    def __iter__(self) -> Iterator[Demand]:
        """All, in order; a set is opened when its first is due."""
        opened: list[tuple[tuple[float, int, int, int, int], int, list[Demand]]] = []
        for peers in self.in_order:
            rank = _rank_of_first(peers)
            while opened and opened[0][0] < rank:
                yield _take_next(opened)
            heapq.heappush(opened, (rank, 0, peers))
        while opened:
            yield _take_next(opened)

    def firsts(self) -> Iterator[Demand]:
        """The first of each set that waits for this node, in order."""
        later: list[tuple[tuple[float, int, int, int, int], Demand]] = []
        for peers in self.in_order:
            first = next((one for one in peers if one.waits_here), None)
            while later and later[0][0] < _rank_of_first(peers):
                yield heapq.heappop(later)[1]
            if first is peers[0]:
                yield first
            elif first is not None:
                heapq.heappush(later, (_rank(first), first))
        while later:
            yield heapq.heappop(later)[1]


def _take_next(opened: list[tuple[tuple[float, int, int, int, int], int, list[Demand]]]) -> Demand:
    _, at, peers = opened[0]
    if at + 1 < len(peers):
        heapq.heapreplace(opened, (_rank(peers[at + 1]), at + 1, peers))
    else:
        heapq.heappop(opened)
    return peers[at]


class DemandQueue:
    """All demands of a node."""

    def __init__(self) -> None:
        self.by_key: dict[DemandKey, Demand] = {}
        self._pending: dict[int, _JobQueue] = {}
        self._needs: dict[frozenset[str], int] = {}
        """The names of the resources that are needed together, and how many demands of the queue need them."""
        self.in_groups = 0
        """So many of those that are queued are to be in a placement group."""
        self._by_requester: dict[Process, dict[DemandKey, Demand]] = {}
        self._served: dict[int, int] = {}
        """When each job was last given something."""
        self._clock = 0
        self._ticks = 0

    def want(self, demand: Demand, wanted: int) -> None:
        """Set how many more it wants now; the newest number counts."""
        demand.wanted = wanted
        if wanted:
            self.by_key[demand.key] = demand
            self._by_requester.setdefault(demand.requester, {})[demand.key] = demand
            if demand.peers is None:
                self._clock += 1
                demand.order = self._clock
                self._begin_to_wait(demand)
                self._queue(demand)
        else:
            self._unqueue(demand)
            self._forget_if_empty(demand)

    def granted(self, demand: Demand) -> None:
        """It got one; it goes behind its equals and its job behind the other jobs."""
        self._unqueue(demand)
        demand.wanted -= 1
        demand.held += 1
        self._begin_to_wait(demand)
        self._clock += 1
        demand.last_grant = self._clock
        if demand.wanted:
            self._queue(demand)
        self._served[demand.job] = self._clock

    def served_elsewhere(self, key: DemandKey) -> None:
        """Another node gave it one."""
        if (demand := self.by_key.get(key)) is not None and demand.wanted:
            self._unqueue(demand)
            self._begin_to_wait(demand)
            self._queue(demand)
            self._clock += 1
            self._served[demand.job] = self._clock
            self.want(demand, demand.wanted - 1)

    def gave_back(self, key: DemandKey) -> None:
        """One of what it holds came back."""
        if (demand := self.by_key.get(key)) is not None:
            self._unqueue(demand)
            demand.held -= 1
            if demand.wanted:
                self._queue(demand)
            self._forget_if_empty(demand)

    def withdraw(self, process: Process) -> None:
        """The process is dead: it wants nothing any more (what it holds comes back by and by)."""
        for demand in list(self._by_requester.get(process, {}).values()):
            self.want(demand, 0)

    def cancel(self, key: DemandKey) -> None:
        if (demand := self.by_key.get(key)) is not None:
            self.want(demand, 0)

    def job_ended(self, job: int) -> None:
        """Nothing can be placed for it any more, not even for processes of other nodes that are still to be ended."""
        for demand in list(self._pending.get(job, ())):
            self.want(demand, 0)
        self._served.pop(job, None)

    def pending(self) -> Iterator[Demand]:
        """All that wait for this node, in the order in which they would be served."""
        for job in self._jobs():
            yield from (demand for demand in self._pending[job] if demand.waits_here)

    def wanting(self) -> Iterator[Demand]:
        """All that want more, here or elsewhere, in no order."""
        for queue in self._pending.values():
            for peers in queue.in_order:
                yield from peers

    def firsts(self) -> Iterator[Demand]:
        """The first of each set of peers that wait for this node, in the same order."""
        for job in self._jobs():
            yield from self._pending[job].firsts()

    def _jobs(self) -> list[int]:
        return sorted(self._pending, key=lambda job: self._served.get(job, 0))

    def next_fitting(
        self,
        pool: ResourcePool,
        unplaceable: Collection[DemandKey] = (),
        is_passed_over: Callable[[Demand], bool] = lambda demand: False,
    ) -> Demand | None:
        """The one to serve now. `unplaceable` fit but lack a worker, and so do their peers; what they need is kept."""
        kept: set[str] = set()
        kept_in: dict[bytes, set[str]] = {}
        if not self._can_any_fit(pool, kept):
            return None
        for demand in self.firsts():
            if is_passed_over(demand):
                continue
            if demand.draws_from is not None:
                if self._fits_in_group(demand, unplaceable, kept_in.setdefault(demand.group, set())):
                    return demand
                continue
            if kept and any(name in kept for name, _ in demand.need):
                continue
            if demand.key in unplaceable:
                short = tuple(name for name, _ in demand.need)
            elif not (short := demand.shortage(pool)):
                return demand
            elif not demand.insists:
                continue
            kept.update(short)
            if not self._can_any_fit(pool, kept):
                return None
        return None

    def _can_any_fit(self, pool: ResourcePool, kept: set[str]) -> bool:
        """Whether something may be queued that needs nothing that is used up or kept."""
        if self.in_groups or len(self._needs) > KINDS_OF_NEED:
            return True
        free = pool.available
        return any(all(free.get(name, 0) > 0 and name not in kept for name in names) for names in self._needs)

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
        self._ticks += 1
        for queue in self._pending.values():
            for peers in queue.in_order:
                for demand in peers:
                    demand.age = self._ticks - demand.since
            queue.sort()

    @property
    def is_waiting(self) -> bool:
        return bool(self._pending)

    def _begin_to_wait(self, demand: Demand) -> None:
        demand.age = 0
        demand.since = self._ticks

    def _queue(self, demand: Demand) -> None:
        self._pending.setdefault(demand.job, _JobQueue()).add(demand)
        self.in_groups += bool(demand.group)
        names = _names(demand)
        self._needs[names] = self._needs.get(names, 0) + 1

    def _unqueue(self, demand: Demand) -> None:
        if demand.peers is None:
            return
        queue = self._pending[demand.job]
        queue.remove(demand)
        if not queue.in_order:
            del self._pending[demand.job]
        self.in_groups -= bool(demand.group)
        names = _names(demand)
        self._needs[names] -= 1
        if not self._needs[names]:
            del self._needs[names]

    def _forget_if_empty(self, demand: Demand) -> None:
        if demand.wanted == 0 and demand.held == 0 and self.by_key.pop(demand.key, None) is not None:
            mine = self._by_requester[demand.requester]
            del mine[demand.key]
            if not mine:
                del self._by_requester[demand.requester]

    def check(self) -> None:
        """Assert the invariants."""
        queued = list(self.wanting())
        assert len({demand.key for demand in queued}) == len(queued), "DEM-1: a demand is queued twice"
        assert all(self.by_key.get(demand.key) is demand for demand in queued), "DEM-1: queued, but unknown"
        for job, queue in self._pending.items():
            assert list(queue) == sorted(queue, key=_rank), f"DEM-1: the order of job {job}"
            for peers in queue.in_order:
                shared = peers[0].peers
                assert all(one.job == job and one.peers == shared == _shared(one) for one in peers), f"DEM-1: {shared}"
                assert all(one.age == self._ticks - one.since for one in peers), f"DEM-1: ages of {shared}"
        assert self._needs == Counter(map(_names, queued)), "DEM-1: the needs of what is queued"
        assert self.in_groups == sum(bool(one.group) for one in queued), "DEM-1: what is queued for groups"
        for demand in self.by_key.values():
            is_queued = demand.peers is not None
            assert is_queued == (demand.wanted > 0), f"DEM-1: {demand.key!r} wants {demand.wanted}, queued: {is_queued}"
            assert demand.wanted or demand.held, f"DEM-2: {demand.key!r} is empty"
            assert demand.wanted >= 0 and demand.held >= 0, f"DEM-3: {demand.key!r}"
        known = {key: demand for mine in self._by_requester.values() for key, demand in mine.items()}
        assert known == self.by_key, "DEM-2: known by its requester alone, or not by it"
