"""All that a node daemon decides: one event in, a list of instructions out.

Pure: no I/O, no clock, no randomness; it runs in the daemon's one thread or in a simulator. It composes the machines
beside it (`scheduling`, `leasing`, `actor_places`, `grouping`, `succession`), shows their tables to who reads them, and
decides itself what a process's coming and going means. How things are done is the shell's affair.

What follows from a death, whoever it was: its peers and the holder of its lease are told; the workers that it had
leased are killed (what they run belonged to it); its actors that are not detached are killed; its wishes are
withdrawn. So a driver's death takes its whole job down, but for its detached actors and what those use.

Invariants (`NodeState.check`): those of its parts, and
    NOD-1  every holding belongs to exactly one worker, and the resources add up.
    NOD-2  a worker is LEASED if and only if it is under a lease, ACTOR if and only if an actor lives in it.
    NOD-3  nothing that fits waits, unless it waits for a worker to be forked or behind one that insists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from weft.engine.state import events as ev
from weft.engine.state.actor_places import ActorPlaces
from weft.engine.state.actors import ActorTable
from weft.engine.state.cluster import ClusterView
from weft.engine.state.events import Process
from weft.engine.state.grouping import Grouping
from weft.engine.state.instructions import ErrorCode, Fault, Instruction, SendMessage, StopNode, TellDeath
from weft.engine.state.jobs import Job
from weft.engine.state.leasing import Leasing, Shapes
from weft.engine.state.placement import GroupTable
from weft.engine.state.resources import ResourcePool
from weft.engine.state.scheduling import Scheduler
from weft.engine.state.settling import Settling
from weft.engine.state.standing import Standing
from weft.engine.state.stuck import WARN_AFTER_TICKS, why_stuck
from weft.engine.state.succession import Succession
from weft.engine.state.workers import CRASHES_IN_A_ROW, Place
from weft.engine.wire.messages import Warn


class NodeState:
    """One node's local scheduler, worker pool and actors."""

    def __init__(
        self,
        total: Mapping[str, float],
        gpu_ids: Sequence[int] = (),
        prestart: int = 1,
        start_limit: int = 8,
        most_blocked: int = 1 << 30,
    ) -> None:
        self.resources = ResourcePool(total, gpu_ids)
        self.standing = Standing(self.resources)
        self.actors = ActorTable()
        self.groups = GroupTable()
        self.shapes = Shapes()
        scheduler = Scheduler(self.resources, self.standing, self.actors, prestart, start_limit, most_blocked)
        self._scheduler = scheduler
        self.demands, self.leases, self.workers = scheduler.demands, scheduler.leases, scheduler.workers
        self.bundles, self.nesting = scheduler.bundles, scheduler.nesting
        self.jobs, self.drivers, self.guests = scheduler.jobs, scheduler.drivers, scheduler.guests
        self.job_of = scheduler.job_of
        self._settling = Settling(self.standing, self.resources, self.groups, self.bundles, self.guests)
        self._leasing = Leasing(scheduler, self.standing, self._settling, self.shapes)
        self.actor_places = ActorPlaces(self.actors, scheduler, self.standing, self._settling)
        self.grouping = Grouping(self.groups, scheduler, self.standing, self.shapes, self.actors, self.actor_places)
        self._succession = Succession(scheduler, self.standing, self.actors, self.actor_places, self.grouping)
        scheduler.place_group = self.grouping.place
        self._handlers = self._make_handlers()

    def _make_handlers(self) -> dict[type[ev.Event], Callable[..., None]]:
        leasing, actors, grouping = self._leasing, self.actor_places, self.grouping
        return {
            ev.LeaseRequested: leasing.requested,
            ev.LeaseReturned: leasing.returned,
            ev.WorkerBlocked: leasing.blocked,
            ev.WorkerUnblocked: leasing.unblocked,
            ev.WorkerLent: leasing.lent,
            ev.WorkerRetired: leasing.retired,
            ev.ShapeDefined: leasing.defined,
            ev.ServedElsewhere: leasing.served_elsewhere,
            ev.PlaceWanted: leasing.place_wanted,
            ev.DrainBegun: leasing.drain_begun,
            ev.NodeStarted: self._node_started,
            ev.DriverJoined: self._driver_joined,
            ev.DriverGreeted: self._driver_greeted,
            ev.SlotReserved: self._slot_reserved,
            ev.SlotsExhausted: self._slots_exhausted,
            ev.SlotReleased: self._slot_released,
            ev.WorkerForked: self._worker_forked,
            ev.ProcessDied: self._process_died,
            ev.Ticked: self._ticked,
            ev.JobLearnt: self._job_learnt,
            ev.GuestJoined: self._guest_joined,
            ev.NodesChanged: self._nodes_changed,
            ev.ActorRequested: actors.requested,
            ev.ActorNameClaimed: actors.name_claimed,
            ev.ActorCreated: actors.created,
            ev.ActorWatched: actors.watched,
            ev.ActorDropped: actors.dropped,
            ev.ActorKillRequested: actors.kill_requested,
            ev.ActorPlacedElsewhere: actors.placed_elsewhere,
            ev.ActorsToMove: actors.to_move,
            ev.HeadReady: actors.end_unknown,
            ev.GroupRequested: grouping.requested,
            ev.GroupRemovalRequested: grouping.removal_requested,
            ev.GroupWatched: grouping.watched,
            ev.GroupLearnt: grouping.learnt,
            ev.BundlesAnswered: grouping.bundles_answered,
            ev.BundlesAsked: grouping.bundles_asked,
            ev.BundlesDropped: grouping.bundles_dropped,
            ev.NodeLeft: grouping.node_left,
            ev.HeadChanged: self._succession.head_changed,
            ev.TookOver: self._succession.took_over,
        }

    @property
    def cluster(self) -> ClusterView | None:
        """The other nodes; None where there can be none."""
        return self.standing.cluster

    @cluster.setter
    def cluster(self, view: ClusterView | None) -> None:
        self.standing.cluster = view

    def handle(self, event: ev.Event) -> list[Instruction]:
        """What must be done about it, in this order."""
        out: list[Instruction] = []
        self._handlers[type(event)](event, out)
        return out

    def is_here(self, process: Process) -> bool:
        """Whether it is a driver or a worker of this node, and lives."""
        return process in self.drivers or process in self.workers.by_process

    @property
    def wants_ticks(self) -> bool:
        """Whether Ticked events are needed now."""
        return (
            self.demands.is_waiting
            or self.workers.wants_ticks
            or (self.standing.is_shared and self.grouping.is_waiting)
        )

    # ---- processes ----

    def _node_started(self, event: ev.NodeStarted, out: list[Instruction]) -> None:
        self._scheduler.schedule(out)

    def _driver_joined(self, event: ev.DriverJoined, out: list[Instruction]) -> None:
        self.jobs[event.job] = self.drivers[event.process] = Job(event)

    def _driver_greeted(self, event: ev.DriverGreeted, out: list[Instruction]) -> None:
        if (job := self.drivers.get(event.process)) is not None:
            job.hello = event.hello

    def _slot_reserved(self, event: ev.SlotReserved, out: list[Instruction]) -> None:
        self.workers.slot_reserved(event.ticket, event.process)
        self._scheduler.schedule(out)

    def _slots_exhausted(self, event: ev.SlotsExhausted, out: list[Instruction]) -> None:
        if self.workers.slots_exhausted(event.ticket) and event.text:
            out.extend(SendMessage(driver, Warn(event.text)) for driver in self.drivers)

    def _slot_released(self, event: ev.SlotReleased, out: list[Instruction]) -> None:
        self.workers.slot_released()
        self._scheduler.schedule(out)

    def _worker_forked(self, event: ev.WorkerForked, out: list[Instruction]) -> None:
        self.workers.forked(event.process, event.pid)
        self.actors.forked(event.process, event.pid)
        self._scheduler.schedule(out)

    def _process_died(self, event: ev.ProcessDied, out: list[Instruction]) -> None:
        process = event.process
        worker = self.workers.died(process, event.status)
        told = dict.fromkeys(event.peers)
        if worker is not None:
            if (lease := self.leases.of_worker(worker)) is not None:
                told[lease.holder] = None
                self.leases.end(lease)
                self.demands.gave_back(lease.group)
            self._scheduler.release(worker)
        out.extend(TellDeath(peer, process, event.reason, event.memory_peak) for peer in told)
        ended = self.actors.job_on(process)  # also where another node holds the actor
        self.actor_places.process_died(event, out)
        self._end_what_it_held(process, event.reason, out)
        if self.workers.crashes_in_a_row >= CRASHES_IN_A_ROW:
            out.append(StopNode(f"{CRASHES_IN_A_ROW} workers in a row ended before their first task: {event.reason}"))
        self.guests.pop(process, None)
        job = self.drivers.pop(process, None)
        self.grouping.end_with(process, job, out)
        if job is not None:
            self._driver_left(job, out)
        if worker is not None and worker.binding is not None:
            ended = worker.binding.job
        if ended is not None:
            self._scheduler.wind_up(ended, out)
        self._scheduler.schedule(out)

    def _end_what_it_held(self, process: Process, reason: str, out: list[Instruction]) -> None:
        self.demands.withdraw(process)
        for lease in self.leases.held_by(process):
            self._scheduler.kill(lease.worker, out)
        self.actor_places.owner_died(process, reason, out)
        self.shapes.forget(process)

    def _driver_left(self, job: Job, out: list[Instruction]) -> None:
        job.is_driver_alive = False
        for worker in self.workers.idle_of_job(job.id):
            self._scheduler.kill(worker, out)
        self._scheduler.wind_up(job.id, out)
        if job.is_founder:
            out.append(StopNode())

    def _ticked(self, event: ev.Ticked, out: list[Instruction]) -> None:
        self.demands.tick()
        for demand in self.demands.pending():
            text = why_stuck(demand, self.resources, self.workers) if demand.age == WARN_AFTER_TICKS else ""
            if text and demand.job in self.jobs:
                out.append(SendMessage(self.jobs[demand.job].driver, Warn(text)))
        if (deepest := self.nesting.ticked(has_actors=bool(self.actors.living))) is not None:
            fault = Fault(ErrorCode.NESTED_TOO_DEEPLY, self.nesting.refusal(deepest, self.shapes.name_of))
            self._scheduler.refuse(deepest, fault, out, only_now=True)
        self._refuse_in_vain(out)
        self.grouping.refuse_unknown(out)
        self.grouping.ticked(out)
        for worker in self.workers.tick(self.actor_places.may_end):
            self._scheduler.let_go(worker, "it was idle and there are enough others", out)
        self.actor_places.refuse_without_slot(out)
        self._scheduler.schedule(out)

    def _refuse_in_vain(self, out: list[Instruction]) -> None:
        """What may run on one node alone, and waits for it, when that is gone."""
        for demand in [one for one in self.demands.wanting() if one.strategy]:
            if isinstance(demand.key, tuple) and (fault := self._settling.in_vain(demand)) is not None:
                self._scheduler.refuse(demand, fault, out)
            elif isinstance(demand.key, bytes):
                actor = self.actors.by_id[demand.key]
                if (fault := self._settling.in_vain(demand, str(actor))) is not None:
                    self.demands.cancel(demand.key)
                    self.actors.fail(actor, fault, out)

    # ---- other nodes ----

    def _job_learnt(self, event: ev.JobLearnt, out: list[Instruction]) -> None:
        if event.job not in self.jobs:
            job = self.jobs[event.job] = self.drivers[event.driver] = Job(
                ev.DriverJoined(event.driver, event.job, event.pid)
            )
            job.hello = event.hello

    def _guest_joined(self, event: ev.GuestJoined, out: list[Instruction]) -> None:
        self.guests[event.process] = event.job

    def _nodes_changed(self, event: ev.NodesChanged, out: list[Instruction]) -> None:
        self.grouping.plan(out)
        self._scheduler.schedule(out)

    def check(self) -> None:
        """Assert the invariants of all parts and of the whole."""
        self.demands.check()
        self.leases.check(self.demands)
        self.workers.check()
        self.actors.check()
        self.groups.check()
        held = [(w.pool, w.holding, w.lent) for w in self.workers if w.holding is not None and w.pool is not None]
        self.bundles.check(held)
        reserved = [(holding, False) for holding in self.bundles.holdings()]
        self.resources.check(reserved + [(holding, lent) for pool, holding, lent in held if pool is self.resources])
        found = {one.worker for one in self.actor_places.found.values()}
        for worker in self.workers:
            is_leased = self.leases.of_worker(worker) is not None or worker.process in found
            actor = self.actors.of_worker(worker.process)
            if worker.place is not Place.ENDING:
                is_actor = worker.place is Place.ACTOR
                assert is_leased == (worker.place is Place.LEASED) or is_actor, f"NOD-2: worker {worker.process}"
                assert (actor is not None or is_leased) == is_actor or not is_actor, f"NOD-2: worker {worker.process}"
        for lease in self.leases.by_id.values():
            assert lease.worker.process in self.workers.by_process, f"NOD-2: lease {lease.id} of a dead worker"
