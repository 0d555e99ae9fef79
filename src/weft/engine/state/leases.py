"""Which process holds which worker, and whose lease is asked back when others wait.

Pure: no I/O, no clock. A lease lets its holder push tasks to one worker; the worker's resources are accounted to it.

A lease is asked back (once) when a demand does not fit and giving that lease up would make the shares more even: the
demand holds nothing, or the victim holds at least two more. For a patient one (of another node, where it has leases)
only leases of other nodes' processes are asked back: else drivers that keep their own nodes busy would all swap places.
Victims are the demands that hold most. A worker that
is blocked has lent its CPU already, so its lease is left alone. The holder returns the lease when what it pushed
is done; the tables change only then.

Invariants (`LeaseTable.check`):
    LEA-1  a worker is under at most one lease.
    LEA-2  a demand holds exactly the leases in its group.
    LEA-3  each lease is found by its holder.
"""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterable

from weft.engine.state.demands import Demand, DemandKey, DemandQueue
from weft.engine.state.events import Process
from weft.engine.state.resources import CPU, ResourcePool
from weft.engine.state.workers import Place, Worker

CONSIDERED = 16
"""How many waiting demands are looked at when leases are asked back; the others' turn comes."""


class Lease:
    """One process's right to push tasks to one worker."""

    __slots__ = ("group", "holder", "id", "is_asked_back", "priority", "worker")

    def __init__(self, lease: int, group: DemandKey, holder: Process, worker: Worker, priority: int = 0) -> None:
        self.id = lease
        self.group = group
        self.holder = holder
        self.worker = worker
        self.is_asked_back = False
        self.priority = priority


class LeaseTable:
    """All leases of a node."""

    def __init__(self) -> None:
        self.by_id: dict[int, Lease] = {}
        self._by_ticket: dict[int, Lease] = {}
        self._groups: dict[DemandKey, dict[int, Lease]] = {}
        self._by_holder: dict[Process, dict[int, Lease]] = {}
        self.last_id = 0
        """In a cluster it begins elsewhere on each node, so that no two leases have one number."""

    def grant(self, demand: Demand, worker: Worker) -> Lease:
        self.last_id += 1
        lease = Lease(self.last_id, demand.key, demand.requester, worker, demand.priority)
        self.by_id[lease.id] = lease
        self._by_ticket[worker.ticket] = lease
        self._groups.setdefault(demand.key, {})[lease.id] = lease
        self._by_holder.setdefault(lease.holder, {})[lease.id] = lease
        return lease

    def pass_on(self, lease: Lease, holder: Process) -> None:
        """Another process holds it from now on."""
        self._take_from_holder(lease)
        lease.holder = holder
        self._by_holder.setdefault(holder, {})[lease.id] = lease

    def _take_from_holder(self, lease: Lease) -> None:
        held = self._by_holder[lease.holder]
        del held[lease.id]
        if not held:
            del self._by_holder[lease.holder]

    def end(self, lease: Lease) -> None:
        del self.by_id[lease.id]
        del self._by_ticket[lease.worker.ticket]
        group = self._groups[lease.group]
        del group[lease.id]
        if not group:
            del self._groups[lease.group]
        self._take_from_holder(lease)

    def of_worker(self, worker: Worker) -> Lease | None:
        return self._by_ticket.get(worker.ticket)

    def held_by(self, process: Process) -> list[Lease]:
        return list(self._by_holder.get(process, {}).values())

    def ask_back(self, waiting: Iterable[Demand], pool: ResourcePool, guests: Container[Process] = ()) -> list[Lease]:
        """The leases to ask back now, marked as asked. `guests` are processes of other nodes."""
        if not self.by_id:
            return []  # without a look at who waits: it may be for other things
        first = [one for one in itertools.islice(waiting, CONSIDERED) if one.may_draw_from(pool)]
        first = [one for one in first if one.need and (one.held or one.insists)]
        if not first:
            return []
        free = dict(pool.available)
        counts: dict[DemandKey, int] = {}
        for lease in self.by_id.values():
            if lease.worker.pool is not pool:
                continue
            if lease.is_asked_back:
                _add(free, lease)
            else:
                counts[lease.group] = counts.get(lease.group, 0) + 1
        chosen: list[Lease] = []
        for demand in first if counts else ():
            chosen += self._ask_back_for(demand, pool, free, counts, guests)
        for lease in chosen:
            lease.is_asked_back = True
        return chosen

    def _ask_back_for(
        self,
        demand: Demand,
        pool: ResourcePool,
        free: dict[str, int],
        counts: dict[DemandKey, int],
        guests: Container[Process],
    ) -> list[Lease]:
        """Simulate grants out of what is free and comes back; take victims while that makes the shares more even."""
        chosen: list[Lease] = []
        tentative: list[Lease] = []
        mine = counts.get(demand.key, 0)
        if demand.is_patient:
            counts = {key: count for key, count in counts.items() if key[0] in guests}
        for _ in range(demand.wanted):
            while short := [name for name, amount in demand.need if free.get(name, 0) < amount]:
                taken = {lease.id for lease in chosen + tentative}
                if (victim := self._victim(demand, pool, mine, short, counts, taken)) is None:
                    for lease in tentative:  # not enough for one grant: in vain
                        counts[lease.group] = counts.get(lease.group, 0) + 1
                        _add(free, lease, -1)
                    return chosen
                tentative.append(victim)
                counts[victim.group] -= 1
                _add(free, victim)
            chosen += tentative
            tentative.clear()
            mine += 1
            for name, amount in demand.hold:
                free[name] -= amount
            if not demand.hold:
                break
        return chosen

    def _victim(
        self,
        demand: Demand,
        pool: ResourcePool,
        mine: int,
        short: list[str],
        counts: dict[DemandKey, int],
        taken: set[int],
    ) -> Lease | None:
        """The newest suitable lease of the group that holds most; the group whose lease is oldest on a tie.

        Any lease of a lower priority will do, and none of a higher one."""
        best: tuple[int, int] | None = None
        chosen = None
        for key, count in counts.items():
            if key == demand.key or count < 1:
                continue
            priority = next(iter(self._groups[key].values())).priority
            least = 1 if mine == 0 or priority < demand.priority else mine + 2
            if count < least or -priority < demand.rank_of_priority:
                continue
            suitable = [
                lease
                for lease in self._groups[key].values()
                if lease.worker.pool is pool
                and not (lease.is_asked_back or lease.worker.lent or lease.id in taken)
                and _holds_any(lease, short)
                and lease.worker.place is not Place.ACTOR
            ]
            if suitable and (best is None or (-count, suitable[0].id) < best):
                best = (-count, suitable[0].id)
                chosen = suitable[-1]
        return chosen

    def check(self, demands: DemandQueue) -> None:
        """Assert the invariants."""
        assert len(self._by_ticket) == len(self.by_id), "LEA-1: a worker is under two leases"
        assert sum(map(len, self._groups.values())) == len(self.by_id), "LEA-2: a lease is in two groups"
        held = {id: lease.holder for id, lease in self.by_id.items()}
        known = {id: holder for holder, leases in self._by_holder.items() for id in leases}
        assert held == known, "LEA-3: a lease is with another holder"
        for key, group in self._groups.items():
            assert demands.by_key[key].held == len(group), f"LEA-2: {key!r} holds {demands.by_key[key].held}"


def _add(free: dict[str, int], lease: Lease, sign: int = 1) -> None:
    """What comes back with the lease."""
    if (holding := lease.worker.holding) is not None:
        for name, amount in holding.amounts:
            if not (lease.worker.lent and name == CPU):
                free[name] += sign * amount


def _holds_any(lease: Lease, names: list[str]) -> bool:
    return lease.worker.holding is not None and any(name in names for name, _ in lease.worker.holding.amounts)
