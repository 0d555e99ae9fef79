"""Leases as processes ask for them: shapes by number, wishes, giving back, blocking.

Pure: no I/O, no clock. Who is served when is `scheduling`'s affair.
"""

from __future__ import annotations

from weft.engine.state import events as ev
from weft.engine.state.cluster import Strategy
from weft.engine.state.demands import Demand
from weft.engine.state.events import Process
from weft.engine.state.instructions import ErrorCode, Fault, Instruction, RefuseNear, RefuseShape, RevokeLease
from weft.engine.state.leases import Lease
from weft.engine.state.placement import Group
from weft.engine.state.resources import Amounts, to_amounts
from weft.engine.state.scheduling import Scheduler
from weft.engine.state.settling import Settling, is_in, never_placed
from weft.engine.state.standing import Standing
from weft.engine.state.workers import Place


class Shape:
    """What one process calls by a number: what a lease of it needs, or why it cannot be."""

    __slots__ = ("amounts", "name", "refusal", "runtime_env", "strategy")

    def __init__(self, amounts: Amounts, runtime_env: str, refusal: str, strategy: Strategy, name: str = "") -> None:
        self.name = name
        self.amounts = amounts
        self.runtime_env = runtime_env
        self.refusal = refusal
        self.strategy = strategy


class Shapes:
    """What processes mean by their numbers."""

    def __init__(self) -> None:
        self._by_process: dict[Process, dict[int, Shape]] = {}

    def of(self, process: Process, number: int) -> Shape | None:
        """What a process calls by that number."""
        return self._by_process.get(process, {}).get(number)

    def give(self, process: Process, number: int, shape: Shape) -> None:
        """The process has defined it, or has taken tasks over that need it, and calls it by that number."""
        self._by_process.setdefault(process, {})[number] = shape

    def forget(self, process: Process) -> None:
        self._by_process.pop(process, None)

    def name_of(self, process: Process, number: int) -> str:
        shape = self.of(process, number)
        return shape.name if shape is not None and shape.name else "a task"

    def in_group(self, group: Group) -> list[tuple[Process, int]]:
        """Those that processes have defined to be in the group."""
        every = [(process, number, one) for process, mine in self._by_process.items() for number, one in mine.items()]
        return [(process, number) for process, number, shape in every if is_in(shape.strategy, group)]


class Leasing:
    """What processes say about their leases."""

    def __init__(self, scheduler: Scheduler, standing: Standing, settling: Settling, shapes: Shapes) -> None:
        self._scheduler = scheduler
        self._standing = standing
        self._settling = settling
        self._shapes = shapes
        self._demands = scheduler.demands
        self._leases = scheduler.leases
        self._workers = scheduler.workers

    def defined(self, event: ev.ShapeDefined, out: list[Instruction]) -> None:
        given = event.definition
        what = f"task {given.name}" if given.name else "the task"
        amounts: Amounts = ()
        try:
            amounts = to_amounts(given.resources)
            if given.is_memory_soft:
                amounts = self._settling.with_memory_there_is(amounts)
            why = self._settling.misfit(amounts)
        except ValueError as error:
            why = str(error)
        refusal = never_placed(what, why) if why else ""
        shape = Shape(amounts, given.runtime_env, refusal, given.strategy, given.name)
        self._shapes.give(event.process, given.shape, shape)

    def requested(self, event: ev.LeaseRequested, out: list[Instruction]) -> None:
        key = (event.process, event.shape)
        demand = self._demands.by_key.get(key)
        if demand is None:
            shape, job = self._shapes.of(*key), self._scheduler.job_of(event.process)
            worker = self._workers.by_process.get(event.process)
            if not event.wanted or shape is None or job is None or (worker and worker.place is Place.ENDING):
                return
            depth = worker.depth if worker is not None else 0
            demand = Demand(key, job.id, event.process, depth, shape.amounts, shape.amounts, shape.runtime_env)
            fault = Fault(ErrorCode.UNSCHEDULABLE, shape.refusal) if shape.refusal else None
            if (fault := fault or self._settling.place(demand, shape.strategy)) is not None:
                out.append(RefuseShape(event.process, event.shape, fault))
                return
        demand.is_patient = event.is_patient
        if event.process not in self._scheduler.guests:
            self._settle_near(demand, event, out)
        self._demands.want(demand, event.wanted)
        self._scheduler.schedule(out)

    def _settle_near(self, demand: Demand, event: ev.LeaseRequested, out: list[Instruction]) -> None:
        """Note where it would rather be. Where it can never be is answered at once: it then uses what it holds."""
        if (cluster := self._standing.cluster) is None:
            return
        demand.near = {}
        for node, count in event.near.items():
            if not demand.group and cluster.may_serve_near(node, demand.need, demand.strategy):
                demand.near[node] = count
            else:
                out.append(RefuseNear(event.process, event.shape, node, node in cluster.nodes))
        if not demand.group and demand.strategy.get("kind") != "spread":
            demand.away = min(event.wanted, sum(demand.near.values()))  # until it is planned

    def returned(self, event: ev.LeaseReturned, out: list[Instruction]) -> None:
        lease = self._leases.by_id.get(event.lease)
        if lease is None or lease.holder != event.process:
            return
        self._leases.end(lease)
        self._demands.gave_back(lease.group)
        worker = lease.worker
        if worker.place in (Place.LEASED, Place.ACTOR):
            self._scheduler.release(worker)
            self._workers.give_back(worker)
            if worker.is_retired:
                self._scheduler.let_go(worker, "it has run as many calls as max_calls allows", out)
            if worker.binding is not None:
                self._scheduler.wind_up(worker.binding.job, out)
            self._scheduler.schedule(out)

    def blocked(self, event: ev.WorkerBlocked, out: list[Instruction]) -> None:
        worker = self._workers.by_process.get(event.process)
        if worker is not None and worker.holding is not None and worker.pool is not None and not worker.lent:
            self._workers.block(worker)
            worker.pool.lend_cpu(worker.holding)
            self._scheduler.schedule(out)

    def unblocked(self, event: ev.WorkerUnblocked, out: list[Instruction]) -> None:
        worker = self._workers.by_process.get(event.process)
        if worker is not None and worker.holding is not None and worker.pool is not None and worker.lent:
            self._workers.block(worker, False)
            worker.pool.take_back_cpu(worker.holding)
            if self._scheduler.nesting.most_blocked - self._workers.blocked == 1:  # it was full
                self._scheduler.schedule(out)

    def retired(self, event: ev.WorkerRetired, out: list[Instruction]) -> None:
        worker = self._workers.by_process.get(event.process)
        if worker is not None and (lease := self._leases.of_worker(worker)) is not None:
            worker.is_retired = True
            self._ask_back(lease, out)

    def lent(self, event: ev.WorkerLent, out: list[Instruction]) -> None:
        if (worker := self._workers.by_process.get(event.process)) is not None:
            worker.lends = event.lends

    def drain_begun(self, event: ev.DrainBegun, out: list[Instruction]) -> None:
        assert self._standing.cluster is not None
        self._standing.cluster.own.is_draining = True
        for lease in self._leases.by_id.values():
            if lease.worker.place is Place.LEASED:
                self._ask_back(lease, out)

    def _ask_back(self, lease: Lease, out: list[Instruction]) -> None:
        if not lease.is_asked_back:
            lease.is_asked_back = True
            out.append(RevokeLease(lease.holder, lease.id))

    # ---- what other nodes serve, or ask for ----

    def served_elsewhere(self, event: ev.ServedElsewhere, out: list[Instruction]) -> None:
        self._demands.served_elsewhere((event.process, event.shape))

    def place_wanted(self, event: ev.PlaceWanted, out: list[Instruction]) -> None:
        key = (event.process, event.number)
        demand = self._demands.by_key.get(key)
        if demand is None:
            if not event.wanted or event.job not in self._scheduler.jobs:
                return
            demand = Demand(key, event.job, event.process, 0, event.need, event.hold, event.runtime_env)
            demand.is_actor = True
            if self._settling.group(demand, event.strategy) is not None:
                return
        self._demands.want(demand, event.wanted)
        self._scheduler.schedule(out)
