"""All that a node daemon decides: one event in, a list of instructions out.

Pure: no I/O, no clock, no randomness; it runs in the daemon's one thread or in a simulator. It composes the machines
beside it: scheduling (resources, demands, leases, workers), actors, jobs. How things are done is the shell's affair.

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
from weft.engine.state.actors import Stage
from weft.engine.state.cluster import Strategy
from weft.engine.state.demands import Demand
from weft.engine.state.draining import can_move
from weft.engine.state.events import Process
from weft.engine.state.grouping import is_in
from weft.engine.state.instructions import (
    ACTOR_DIED,
    NESTED_TOO_DEEPLY,
    UNSCHEDULABLE,
    EndJob,
    Fault,
    Instruction,
    KillWorker,
    SendFault,
    SendMessage,
    SendRecord,
    StopNode,
)
from weft.engine.state.jobs import Job
from weft.engine.state.placement import Group
from weft.engine.state.resources import Amounts, at_least, to_amounts
from weft.engine.state.stuck import WARN_AFTER_TICKS, no_slot, why_stuck
from weft.engine.state.succession import Succession
from weft.engine.state.workers import CRASHES_IN_A_ROW, Place, Worker
from weft.engine.wire import kinds
from weft.engine.wire.messages import ExitProcess, Warn


class Shape:
    """What one process calls by a number: what a lease of it needs, or why it cannot be."""

    __slots__ = ("amounts", "name", "refusal", "runtime_env", "strategy")

    def __init__(self, amounts: Amounts, runtime_env: str, refusal: str, strategy: Strategy, name: str = "") -> None:
        self.name = name
        self.amounts = amounts
        self.runtime_env = runtime_env
        self.refusal = refusal
        self.strategy = strategy


class NodeState(Succession):
    """One node's local scheduler, worker pool and actors."""

    def __init__(
        self,
        total: Mapping[str, float],
        gpu_ids: Sequence[int] = (),
        prestart: int = 1,
        start_limit: int = 8,
        most_blocked: int = 1 << 30,
    ) -> None:
        super().__init__(total, gpu_ids, prestart, start_limit, most_blocked)
        self._shapes: dict[Process, dict[int, Shape]] = {}
        self._created_early: dict[Process, ev.ActorCreated] = {}
        """Of workers elsewhere: the constructor was done before it was known that the actor is there."""
        self._handlers: dict[type[ev.Event], Callable[..., None]] = {
            ev.LeaseRequested: self._lease_requested,
            ev.LeaseReturned: self._lease_returned,
            ev.WorkerBlocked: self._worker_blocked,
            ev.WorkerUnblocked: self._worker_unblocked,
            ev.WorkerLent: self._worker_lent,
            ev.WorkerRetired: self._worker_retired,
            ev.ShapeDefined: self._shape_defined,
            ev.NodeStarted: self._node_started,
            ev.DriverJoined: self._driver_joined,
            ev.DriverGreeted: self._driver_greeted,
            ev.SlotReserved: self._slot_reserved,
            ev.SlotsExhausted: self._slots_exhausted,
            ev.SlotReleased: self._slot_released,
            ev.WorkerForked: self._worker_forked,
            ev.ProcessDied: self._process_died,
            ev.Ticked: self._ticked,
            ev.ActorRequested: self._actor_requested,
            ev.ActorNameClaimed: self._actor_name_claimed,
            ev.ActorCreated: self._actor_created,
            ev.ActorWatched: self._actor_watched,
            ev.ActorDropped: self._actor_dropped,
            ev.ActorKillRequested: self._actor_kill_requested,
            ev.GroupRequested: self._group_requested,
            ev.GroupRemovalRequested: self._group_removal_requested,
            ev.GroupWatched: self._group_watched,
            ev.GroupLearnt: self._group_learnt,
            ev.BundlesAnswered: self._bundles_answered,
            ev.BundlesAsked: self._bundles_asked,
            ev.BundlesDropped: self._bundles_dropped,
            ev.NodeLeft: self._node_left,
            ev.JobLearnt: self._job_learnt,
            ev.GuestJoined: self._guest_joined,
            ev.ServedElsewhere: self._served_elsewhere,
            ev.PlaceWanted: self._place_wanted,
            ev.ActorPlacedElsewhere: self._actor_placed_elsewhere,
            ev.NodesChanged: self._nodes_changed,
            ev.DrainBegun: self._drain_begun,
            ev.ActorsToMove: self._actors_to_move,
            ev.HeadChanged: self._head_changed,
            ev.TookOver: self._took_over,
            ev.HeadReady: self._head_ready,
        }

    def handle(self, event: ev.Event) -> list[Instruction]:
        """What must be done about it, in this order."""
        out: list[Instruction] = []
        self._handlers[type(event)](event, out)
        return out

    @property
    def wants_ticks(self) -> bool:
        """Whether Ticked events are needed now."""
        return self.demands.is_waiting or self.workers.wants_ticks or (self._is_shared and self.groups_wait)

    # ---- leases ----

    def _shape_defined(self, event: ev.ShapeDefined, out: list[Instruction]) -> None:
        given = event.definition
        refusal = ""
        amounts: Amounts = ()
        try:
            amounts = to_amounts(given.resources)
            if given.is_memory_soft:
                amounts = self._with_memory_there_is(amounts)
            refusal = self._misfit(amounts)
        except ValueError as error:
            refusal = str(error)
        if refusal:
            refusal = _refusal(f"task {given.name}" if given.name else "the task", refusal)
        shape = Shape(amounts, given.runtime_env, refusal, given.strategy, given.name)
        self.give_shape(event.process, given.shape, shape)

    def _with_memory_there_is(self, amounts: Amounts) -> Amounts:
        views = [] if self.cluster is None else self.cluster.nodes.values()
        most = max([self.resources.total.get("memory", 0), *(view.total.get("memory", 0) for view in views)])
        limited = [(name, min(amount, most) if name == "memory" else amount) for name, amount in amounts]
        return tuple((name, amount) for name, amount in limited if amount)

    def _name_of(self, process: Process, number: int) -> str:
        shape = self.shape_of(process, number)
        return shape.name if shape is not None and shape.name else "a task"

    def shape_of(self, process: Process, number: int) -> Shape | None:
        """What a process calls by that number."""
        return self._shapes.get(process, {}).get(number)

    def give_shape(self, process: Process, number: int, shape: Shape) -> None:
        """The process has taken tasks over that need it, and calls it by that number."""
        self._shapes.setdefault(process, {})[number] = shape

    def _misfit(self, amounts: Amounts) -> str:
        """Why it can never be placed; a cluster may grow, so there it can."""
        return self.resources.misfit(amounts) if self.cluster is None else ""

    def _settle_place(self, demand: Demand, strategy: Strategy, what: str = "the task") -> Fault | None:
        """Whether this node may serve it; why none can, for good."""
        if (fault := self._settle_group(demand, strategy)) is not None:
            return fault
        if self.cluster is None:
            refusal = self._strategy_refusal(demand.need, strategy)
            return Fault(UNSCHEDULABLE, f"{what} cannot be placed: {refusal}.") if refusal else None
        if isinstance(demand.key, tuple) and demand.key[0] in self.guests:
            return None
        if demand.group:
            demand.strategy = strategy
            return None
        demand.strategy = strategy
        demand.is_local = self.cluster.may_serve_here(demand.need, strategy)
        if strategy.get("kind") == "spread" and len(self.cluster.nodes) > 1:
            demand.away = 1 << 30  # until it is planned
        refusal = self.cluster.refusal(demand.need, strategy)
        return Fault(UNSCHEDULABLE, f"{what} cannot be placed: {refusal}.") if refusal else None

    def _lease_requested(self, event: ev.LeaseRequested, out: list[Instruction]) -> None:
        key = (event.process, event.shape)
        demand = self.demands.by_key.get(key)
        if demand is None:
            shape, job = self.shape_of(*key), self.job_of(event.process)
            worker = self.workers.by_process.get(event.process)
            if not event.wanted or shape is None or job is None or (worker and worker.place is Place.ENDING):
                return
            if shape.refusal:
                head = kinds.PROCESS_BODY.pack(event.shape, 0)
                out.append(SendFault(event.process, kinds.SHAPE_REFUSED, head, Fault(UNSCHEDULABLE, shape.refusal)))
                return
            depth = worker.depth if worker is not None else 0
            demand = Demand(key, job.id, event.process, depth, shape.amounts, shape.amounts, shape.runtime_env)
            if (fault := self._settle_place(demand, shape.strategy)) is not None:
                head = kinds.PROCESS_BODY.pack(event.shape, 0)
                out.append(SendFault(event.process, kinds.SHAPE_REFUSED, head, fault))
                return
        demand.is_patient = event.is_patient
        if event.process not in self.guests:
            self._settle_near(demand, event, out)
        self.demands.want(demand, event.wanted)
        self._schedule(out)

    def _settle_near(self, demand: Demand, event: ev.LeaseRequested, out: list[Instruction]) -> None:
        """Note where it would rather be. Where it can never be is answered at once: it then uses what it holds."""
        if self.cluster is None:
            return
        nodes, demand.near = self.cluster.nodes, {}
        for node, count in event.near.items():
            if not demand.group and self.cluster.may_serve_near(node, demand.need, demand.strategy):
                demand.near[node] = count
            else:
                answer = kinds.NOT_NEAR_BODY.pack(event.shape, node, node in nodes)
                out.append(SendRecord(event.process, kinds.NOT_NEAR, answer))
        if not demand.group and demand.strategy.get("kind") != "spread":
            demand.away = min(event.wanted, sum(demand.near.values()))  # until it is planned

    def _lease_returned(self, event: ev.LeaseReturned, out: list[Instruction]) -> None:
        lease = self.leases.by_id.get(event.lease)
        if lease is None or lease.holder != event.process:
            return
        self.leases.end(lease)
        self.demands.gave_back(lease.group)
        if lease.worker.place in (Place.LEASED, Place.ACTOR):
            self._release(lease.worker)
            self.workers.give_back(lease.worker)
            if lease.worker.is_retired:
                self._let_go(lease.worker, "it has run as many calls as max_calls allows", out)
            if (binding := lease.worker.binding) is not None and not self.jobs[binding.job].is_driver_alive:
                self._wind_up(binding.job, out)
            self._schedule(out)

    def _worker_blocked(self, event: ev.WorkerBlocked, out: list[Instruction]) -> None:
        worker = self.workers.by_process.get(event.process)
        if worker is not None and worker.holding is not None and not worker.lent:
            self.workers.block(worker)
            (worker.pool or self.resources).lend_cpu(worker.holding)
            self._schedule(out)

    def _worker_unblocked(self, event: ev.WorkerUnblocked, out: list[Instruction]) -> None:
        worker = self.workers.by_process.get(event.process)
        if worker is not None and worker.holding is not None and worker.lent:
            self.workers.block(worker, False)
            (worker.pool or self.resources).take_back_cpu(worker.holding)
            if self.nesting.most_blocked - self.workers.blocked == 1:  # it was full
                self._schedule(out)

    def _worker_retired(self, event: ev.WorkerRetired, out: list[Instruction]) -> None:
        worker = self.workers.by_process.get(event.process)
        if worker is None or (lease := self.leases.of_worker(worker)) is None:
            return
        worker.is_retired = True
        if not lease.is_asked_back:
            lease.is_asked_back = True
            out.append(SendRecord(lease.holder, kinds.LEASE_REVOKE, kinds.LEASE_BODY.pack(lease.id)))

    def _worker_lent(self, event: ev.WorkerLent, out: list[Instruction]) -> None:
        if (worker := self.workers.by_process.get(event.process)) is not None:
            worker.lends = event.lends

    # ---- processes ----

    def _node_started(self, event: ev.NodeStarted, out: list[Instruction]) -> None:
        self._schedule(out)

    def _driver_joined(self, event: ev.DriverJoined, out: list[Instruction]) -> None:
        self.jobs[event.job] = self.drivers[event.process] = Job(event)

    def _driver_greeted(self, event: ev.DriverGreeted, out: list[Instruction]) -> None:
        if (job := self.drivers.get(event.process)) is not None:
            job.hello = event.hello

    def _slot_reserved(self, event: ev.SlotReserved, out: list[Instruction]) -> None:
        self.workers.slot_reserved(event.ticket, event.process)
        self._schedule(out)

    def _slots_exhausted(self, event: ev.SlotsExhausted, out: list[Instruction]) -> None:
        if self.workers.slots_exhausted(event.ticket) and event.text:
            out.extend(SendMessage(driver, Warn(event.text)) for driver in self.drivers)

    def _slot_released(self, event: ev.SlotReleased, out: list[Instruction]) -> None:
        self.workers.slot_released()
        self._schedule(out)

    def _worker_forked(self, event: ev.WorkerForked, out: list[Instruction]) -> None:
        self.workers.forked(event.process, event.pid)
        self.actors.forked(event.process, event.pid)
        self._schedule(out)

    def _process_died(self, event: ev.ProcessDied, out: list[Instruction]) -> None:
        process = event.process
        self._created_early.pop(process, None)
        worker = self.workers.died(process, event.status)
        told = dict.fromkeys(event.peers)
        if worker is not None:
            if (lease := self.leases.of_worker(worker)) is not None:
                told[lease.holder] = None
                self.leases.end(lease)
                self.demands.gave_back(lease.group)
            self._release(worker)
        is_for_memory = event.memory_peak is not None
        cause = kinds.DeathCause.STOPPED_FOR_MEMORY if is_for_memory else kinds.DeathCause.ENDED
        death = kinds.PEER_DIED_BODY.pack(*process, cause, event.memory_peak or 0) + event.reason.encode()
        for peer in told:
            out.append(SendRecord(peer, kinds.PEER_DIED, death))
        if (reborn := self.actors.worker_died(process, event.status, event.reason, out, is_for_memory)) is not None:
            self._want_place_for(reborn.id, out)
        self._end_what_it_held(process, event.reason, out)
        if self.workers.crashes_in_a_row >= CRASHES_IN_A_ROW:
            out.append(StopNode(f"{CRASHES_IN_A_ROW} workers in a row ended before their first task: {event.reason}"))
        self.guests.pop(process, None)
        job = self.drivers.pop(process, None)
        self._end_groups_of(process, job, out)
        if job is not None:
            self._driver_left(job, out)
        if worker is not None and worker.binding is not None:
            self._wind_up(worker.binding.job, out)
        self._schedule(out)

    def _end_what_it_held(self, process: Process, reason: str, out: list[Instruction]) -> None:
        self.demands.withdraw(process)
        for lease in self.leases.held_by(process):
            self._kill(lease.worker, out)
        for actor in self.actors.process_died(process):
            self._kill_actor(actor.id, f"died with its owner ({reason})", out)
        self.actors.creator_died(process, out)
        self._shapes.pop(process, None)

    def _driver_left(self, job: Job, out: list[Instruction]) -> None:
        job.is_driver_alive = False
        for worker in self.workers.idle_of_job(job.id):
            self._kill(worker, out)
        self._wind_up(job.id, out)
        if job.is_founder:
            out.append(StopNode())

    def _wind_up(self, job_id: int, out: list[Instruction]) -> None:
        """Without its driver a job goes on for its detached actors only; then its workers end, then the job.

        All its workers, whoever leased them: two that hold each other would never end by themselves."""
        job = self.jobs.get(job_id)
        if job is None or job.is_driver_alive:
            return
        if self.actors.has_living(job_id):
            return
        if any(self._is_actor_of(worker, job_id) for worker in self.workers):
            return
        workers = [worker for worker in self.workers if worker.binding is not None and worker.binding.job == job_id]
        for worker in workers:
            self._kill(worker, out)
        if not workers:
            del self.jobs[job_id]
            self.demands.job_ended(job_id)
            out.append(EndJob(job_id))

    def _is_actor_of(self, worker: Worker, job_id: int) -> bool:
        """Whether it is a living actor that another node keeps: that node ends it."""
        lease = self.leases.of_worker(worker)
        return (
            lease is not None
            and worker.place is Place.ACTOR
            and worker.binding is not None
            and worker.binding.job == job_id
        )

    def _ticked(self, event: ev.Ticked, out: list[Instruction]) -> None:
        self.demands.tick()
        for demand in self.demands.pending():
            text = why_stuck(demand, self.resources, self.workers) if demand.age == WARN_AFTER_TICKS else ""
            if text and demand.job in self.jobs:
                out.append(SendMessage(self.jobs[demand.job].driver, Warn(text)))
        if (deepest := self.nesting.ticked(has_actors=bool(self.actors.living))) is not None:
            fault = Fault(NESTED_TOO_DEEPLY, self.nesting.refusal(deepest, self._name_of))
            self._refuse(deepest, fault, out, for_good=False)
        self._refuse_unknown_groups(out)
        self._groups_ticked(out)
        for worker in self.workers.tick(self._may_end):
            self._let_go(worker, "it was idle and there are enough others", out)
        self._refuse_actors_without_slot(out)
        self._schedule(out)

    def _refuse_actors_without_slot(self, out: list[Instruction]) -> None:
        """Once every slot has been in use for a while, by processes that do not end by themselves.

        Where there are other nodes it may find room there."""
        if self.workers.full_ticks < WARN_AFTER_TICKS or (self.cluster is not None and len(self.cluster.nodes) > 1):
            return
        if not all(w.place is Place.ACTOR or w.lent or self.is_needed(w) for w in self.workers):
            return
        for demand in list(self.demands.pending()):
            if isinstance(demand.key, bytes) and demand.waits_here and demand.pool(self.resources) is not None:
                actor = self.actors.by_id[demand.key]
                self.demands.cancel(actor.id)
                text = no_slot(str(actor), self.workers, len(self.drivers))
                self.actors.fail(actor, Fault(UNSCHEDULABLE, text), out)

    def is_needed(self, worker: Worker) -> bool:
        """Whether it is idle, but owns objects or actors of others."""
        return worker.place is Place.IDLE and not self._may_end(worker)

    def _may_end(self, worker: Worker) -> bool:
        """Whether nothing that still matters depends on an idle worker."""
        owns_actors = bool(self.actors.owned_by(worker.process)) or worker.process in self.owners_elsewhere
        return not worker.lends and not owns_actors and not self.leases.held_by(worker.process)

    # ---- actors ----

    def _actor_requested(self, event: ev.ActorRequested, out: list[Instruction]) -> None:
        job = self.job_of(event.process)
        if job is None or (actor := self.actors.create(event, job.id, out)) is None:
            return
        try:
            refusal = self._misfit(self._actor_amounts(actor.id)[0])
        except ValueError as error:
            refusal = str(error)
        if refusal:
            self.actors.fail(actor, Fault(UNSCHEDULABLE, _refusal(str(actor), refusal)), out)
            return
        self._want_place_for(actor.id, out)
        self._schedule(out)

    def _actor_amounts(self, actor_id: bytes) -> tuple[Amounts, Amounts]:
        """(what must be free to place it, what it holds while it lives)."""
        spec = self.actors.by_id[actor_id].spec
        hold = to_amounts(spec.resources)
        return at_least(hold, to_amounts(spec.placement_resources)), hold

    def _want_place_for(self, actor_id: bytes, out: list[Instruction]) -> None:
        actor = self.actors.by_id[actor_id]
        if (found := self.found.pop(actor_id, None)) is not None:  # the head before had placed it
            self.actors.found(actor, found, out)
            return
        need, hold = self._actor_amounts(actor_id)
        owner = self.workers.by_process.get(actor.owner)
        depth = owner.depth if owner is not None else 0
        # The demand is the actor's own: it outlives the process that asked when the actor is detached.
        demand = Demand(actor_id, actor.job, (0, 0), depth, need, hold, actor.spec.runtime_env)
        if (fault := self._settle_place(demand, actor.spec.strategy, str(actor))) is not None:
            self.actors.fail(actor, fault, out)
        else:
            self.demands.want(demand, 1)

    def _actor_name_claimed(self, event: ev.ActorNameClaimed, out: list[Instruction]) -> None:
        self.actors.claim(event)

    def _actor_created(self, event: ev.ActorCreated, out: list[Instruction]) -> None:
        actor = self.actors.of_worker(event.process)
        if actor is None or actor.id != event.actor:
            known = self.actors.find(event.actor)
            if known is None and not event.ok:
                self.actors.give_up(event.actor, event.error, out)
            elif known is not None and known.stage is Stage.PENDING and event.process not in self.workers.by_process:
                self._created_early[event.process] = event  # faster than the word that it has been placed there
            return
        if self.actors.created(actor, event.ok, event.error, out):
            return
        if (worker := self.workers.by_process.get(event.process)) is not None:
            self.workers.end(worker)
            out.append(SendMessage(event.process, ExitProcess(f"{actor} could not be created")))

    def _actor_watched(self, event: ev.ActorWatched, out: list[Instruction]) -> None:
        owner = event.owner
        if owner is not None and self.actors.find(event.actor) is None and not self._is_alive(owner):
            fault = Fault(ACTOR_DIED, f"actor ({event.actor.hex()[:8]}) was never created: its creator died first")
            self.actors.give_up(event.actor, fault, out)
        self.actors.watch(event.process, event.actor, out, owner)

    def _is_alive(self, process: Process) -> bool:
        return process in self.drivers or process in self.workers.by_process or process in self.guests

    def _actor_dropped(self, event: ev.ActorDropped, out: list[Instruction]) -> None:
        known = self.actors.find(event.actor)
        if self.actors.forget_alias(event.process, event.actor, out) or (known is not None and known.spec.detached):
            return
        if (actor := self.actors.end(event.actor, "ended: all handles to it are gone", out)) is not None:
            assert actor.worker is not None
            out.append(SendMessage(actor.worker, ExitProcess("all handles to its actor are gone", drain=True)))
        self.demands.cancel(event.actor)
        self._schedule(out)

    def _actor_kill_requested(self, event: ev.ActorKillRequested, out: list[Instruction]) -> None:
        actor = self.actors.find(event.actor)
        if actor is not None and actor.worker == event.process:
            self.actors.end(event.actor, "ended itself by exit_actor()", out)  # it is on its way out
        elif event.no_restart:
            self._kill_actor(event.actor, "was killed by weft.kill()", out)
        elif actor is not None and actor.worker is not None:
            self._kill_process(actor.worker, out)
        self._schedule(out)

    def _kill_process(self, process: Process, out: list[Instruction]) -> None:
        """A worker of this node or of another."""
        if (worker := self.workers.by_process.get(process)) is not None:
            self._kill(worker, out)
        else:
            out.append(KillWorker(process))

    def _kill_actor(self, actor_id: bytes, why: str, out: list[Instruction]) -> None:
        known = self.actors.find(actor_id)
        if (actor := self.actors.end(actor_id, why, out)) is not None and actor.worker is not None:
            self._kill_process(actor.worker, out)
        if known is not None:
            self.demands.cancel(known.id)
            if actor is None:
                self._wind_up(known.job, out)

    def _shapes_in(self, group: Group) -> list[tuple[Process, int]]:
        shapes = [(process, number, shape) for process, mine in self._shapes.items() for number, shape in mine.items()]
        return [(process, number) for process, number, shape in shapes if is_in(shape.strategy, group)]

    def _end_actor(self, actor_id: bytes, out: list[Instruction]) -> None:
        self._kill_actor(actor_id, "was ended", out)

    # ---- other nodes ----

    def _job_learnt(self, event: ev.JobLearnt, out: list[Instruction]) -> None:
        if event.job not in self.jobs:
            job = self.jobs[event.job] = self.drivers[event.driver] = Job(
                ev.DriverJoined(event.driver, event.job, event.pid)
            )
            job.hello = event.hello

    def _guest_joined(self, event: ev.GuestJoined, out: list[Instruction]) -> None:
        self.guests[event.process] = event.job

    def _served_elsewhere(self, event: ev.ServedElsewhere, out: list[Instruction]) -> None:
        self.demands.served_elsewhere((event.process, event.shape))

    def _place_wanted(self, event: ev.PlaceWanted, out: list[Instruction]) -> None:
        key = (event.process, event.number)
        demand = self.demands.by_key.get(key)
        if demand is None:
            if not event.wanted or event.job not in self.jobs:
                return
            demand = Demand(key, event.job, event.process, 0, event.need, event.hold, event.runtime_env)
            demand.is_actor = True
            if self._settle_group(demand, event.strategy) is not None:
                return
        self.demands.want(demand, event.wanted)
        self._schedule(out)

    def _actor_placed_elsewhere(self, event: ev.ActorPlacedElsewhere, out: list[Instruction]) -> None:
        actor = self.actors.find(event.actor)
        if actor is None or actor.stage is not Stage.PENDING:
            out.append(KillWorker(event.worker))
            return
        self.demands.cancel(actor.id)
        self.actors.placed(actor, event.worker, event.pid, out, has_creation=True)
        if (created := self._created_early.pop(event.worker, None)) is not None:
            self._actor_created(created, out)

    def _drain_begun(self, event: ev.DrainBegun, out: list[Instruction]) -> None:
        assert self.cluster is not None
        self.cluster.own.is_draining = True
        for lease in self.leases.by_id.values():
            if not lease.is_asked_back and lease.worker.place is Place.LEASED:
                lease.is_asked_back = True
                out.append(SendRecord(lease.holder, kinds.LEASE_REVOKE, kinds.LEASE_BODY.pack(lease.id)))

    def _actors_to_move(self, event: ev.ActorsToMove, out: list[Instruction]) -> None:
        assert self.cluster is not None
        for process in event.workers:
            actor = self.actors.of_worker(process)
            if actor is not None and can_move(actor, self._actor_amounts(actor.id)[0], self.cluster):
                actor.is_moving = True
                out.append(SendMessage(process, ExitProcess("its node is being drained", drain=True)))

    def _head_ready(self, event: ev.HeadReady, out: list[Instruction]) -> None:
        self.end_unknown_actors(out)

    def _nodes_changed(self, event: ev.NodesChanged, out: list[Instruction]) -> None:
        self._plan_groups(out)
        self._schedule(out)

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
        found = {one.worker for one in self.found.values()}
        for worker in self.workers:
            is_leased = self.leases.of_worker(worker) is not None or worker.process in found
            actor = self.actors.of_worker(worker.process)
            if worker.place is not Place.ENDING:
                is_actor = worker.place is Place.ACTOR
                assert is_leased == (worker.place is Place.LEASED) or is_actor, f"NOD-2: worker {worker.process}"
                assert (actor is not None or is_leased) == is_actor or not is_actor, f"NOD-2: worker {worker.process}"
        for lease in self.leases.by_id.values():
            assert lease.worker.process in self.workers.by_process, f"NOD-2: lease {lease.id} of a dead worker"


def _refusal(what: str, why: str) -> str:
    return f"{what} can never be placed: {why}. Ask for less, or start the node with more (see weft.init)."
