"""From an actor's wish for a place to its end: asking for a worker, moving, killing.

Pure: no I/O, no clock. What each change means to those who watch the actor is `actors`' affair.
"""

from __future__ import annotations

from weft.engine.state import events as ev
from weft.engine.state.actors import ActorTable, Stage
from weft.engine.state.demands import Demand
from weft.engine.state.draining import can_move
from weft.engine.state.events import Process
from weft.engine.state.instructions import ErrorCode, Fault, Instruction, KillWorker, SendMessage
from weft.engine.state.resources import Amounts, at_least, to_amounts
from weft.engine.state.scheduling import Scheduler
from weft.engine.state.settling import Settling, never_placed
from weft.engine.state.standing import Standing
from weft.engine.state.stuck import WARN_AFTER_TICKS, no_slot
from weft.engine.state.workers import Place, Worker
from weft.engine.wire.messages import ExitProcess


class ActorPlaces:
    """The actors that this node keeps, and where they are."""

    def __init__(self, actors: ActorTable, scheduler: Scheduler, standing: Standing, settling: Settling) -> None:
        self._actors = actors
        self._scheduler = scheduler
        self._standing = standing
        self._settling = settling
        self._demands = scheduler.demands
        self._workers = scheduler.workers
        self.found: dict[bytes, ev.FoundActor] = {}
        """After taking over: workers that are actors of which it has not been told yet."""
        self.owners_elsewhere: set[Process] = set()
        """Processes of this node whose actors another node keeps."""
        self._created_early: dict[Process, ev.ActorCreated] = {}
        """Of workers elsewhere: the constructor was done before it was known that the actor is there."""

    # ---- wanting a place ----

    def requested(self, event: ev.ActorRequested, out: list[Instruction]) -> None:
        job = self._scheduler.job_of(event.process)
        if job is None or (actor := self._actors.create(event, job.id, out)) is None:
            return
        try:
            refusal = self._settling.misfit(self._amounts(actor.id)[0])
        except ValueError as error:
            refusal = str(error)
        if refusal:
            self._actors.fail(actor, Fault(ErrorCode.ACTOR_UNSCHEDULABLE, never_placed(str(actor), refusal)), out)
            return
        self.want(actor.id, out)
        self._scheduler.schedule(out)

    def _amounts(self, actor_id: bytes) -> tuple[Amounts, Amounts]:
        """(what must be free to place it, what it holds while it lives)."""
        spec = self._actors.by_id[actor_id].spec
        hold = to_amounts(spec.resources)
        return at_least(hold, to_amounts(spec.placement_resources)), hold

    def want(self, actor_id: bytes, out: list[Instruction]) -> None:
        """A place for it, here or elsewhere."""
        actor = self._actors.by_id[actor_id]
        if (found := self.found.pop(actor_id, None)) is not None:  # the head before had placed it
            self._actors.found(actor, found, out)
            return
        need, hold = self._amounts(actor_id)
        owner = self._workers.by_process.get(actor.owner)
        depth = owner.depth if owner is not None else 0
        # The demand is the actor's own: it outlives the process that asked when the actor is detached.
        demand = Demand(actor_id, actor.job, (0, 0), depth, need, hold, actor.spec.runtime_env)
        if (fault := self._settling.place(demand, actor.spec.strategy, str(actor))) is not None:
            self._actors.fail(actor, fault, out)
        else:
            self._demands.want(demand, 1)

    def refuse_without_slot(self, out: list[Instruction]) -> None:
        """Once every slot has been in use for a while, by processes that do not end by themselves.

        Where there are other nodes it may find room there."""
        if self._workers.full_ticks < WARN_AFTER_TICKS or self._standing.is_shared:
            return
        if not all(w.place is Place.ACTOR or w.lent or self.is_needed(w) for w in self._workers):
            return
        for demand in list(self._demands.pending()):
            is_here = demand.waits_here and demand.pool(self._scheduler.resources) is not None
            if isinstance(demand.key, bytes) and is_here:
                actor = self._actors.by_id[demand.key]
                self._demands.cancel(actor.id)
                text = no_slot(str(actor), self._workers, len(self._scheduler.drivers))
                self._actors.fail(actor, Fault(ErrorCode.ACTOR_UNSCHEDULABLE, text), out)

    def is_needed(self, worker: Worker) -> bool:
        """Whether it is idle, but owns objects or actors of others."""
        return worker.place is Place.IDLE and not self.may_end(worker)

    def may_end(self, worker: Worker) -> bool:
        """Whether nothing that still matters depends on an idle worker."""
        owns_actors = bool(self._actors.owned_by(worker.process)) or worker.process in self.owners_elsewhere
        return not worker.lends and not owns_actors and not self._scheduler.leases.held_by(worker.process)

    # ---- placed ----

    def placed_elsewhere(self, event: ev.ActorPlacedElsewhere, out: list[Instruction]) -> None:
        actor = self._actors.find(event.actor)
        if actor is None or actor.stage is not Stage.PENDING:
            out.append(KillWorker(event.worker))
            return
        self._demands.cancel(actor.id)
        self._actors.placed(actor, event.worker, event.pid, out, has_creation=True)
        if (created := self._created_early.pop(event.worker, None)) is not None:
            self.created(created, out)

    def created(self, event: ev.ActorCreated, out: list[Instruction]) -> None:
        actor = self._actors.of_worker(event.process)
        if actor is None or actor.id != event.actor:
            known = self._actors.find(event.actor)
            if known is None and not event.ok:
                self._actors.give_up(event.actor, event.error, out)
            elif known is not None and known.stage is Stage.PENDING and event.process not in self._workers.by_process:
                self._created_early[event.process] = event  # faster than the word that it has been placed there
            return
        if self._actors.created(actor, event.ok, event.error, out):
            return
        if (worker := self._workers.by_process.get(event.process)) is not None:
            self._workers.end(worker)
            out.append(SendMessage(event.process, ExitProcess(f"{actor} could not be created")))

    def name_claimed(self, event: ev.ActorNameClaimed, out: list[Instruction]) -> None:
        self._actors.claim(event)

    def watched(self, event: ev.ActorWatched, out: list[Instruction]) -> None:
        owner = event.owner
        if owner is not None and self._actors.find(event.actor) is None and not self._is_alive(owner):
            fault = Fault(
                ErrorCode.ACTOR_DIED, f"actor ({event.actor.hex()[:8]}) was never created: its creator died first"
            )
            self._actors.give_up(event.actor, fault, out)
        self._actors.watch(event.process, event.actor, out, owner)

    def _is_alive(self, process: Process) -> bool:
        here = self._scheduler
        return process in here.drivers or process in self._workers.by_process or process in here.guests

    # ---- ends ----

    def dropped(self, event: ev.ActorDropped, out: list[Instruction]) -> None:
        known = self._actors.find(event.actor)
        if self._actors.forget_alias(event.process, event.actor, out) or (known is not None and known.spec.detached):
            return
        if (actor := self._actors.end(event.actor, "ended: all handles to it are gone", out)) is not None:
            assert actor.worker is not None
            out.append(SendMessage(actor.worker, ExitProcess("all handles to its actor are gone", drain=True)))
        self._demands.cancel(event.actor)
        self._scheduler.schedule(out)

    def kill_requested(self, event: ev.ActorKillRequested, out: list[Instruction]) -> None:
        actor = self._actors.find(event.actor)
        if actor is not None and actor.worker == event.process:
            self._actors.end(event.actor, "ended itself by exit_actor()", out)  # it is on its way out
        elif event.no_restart:
            self.kill(event.actor, "was killed by weft.kill()", out)
        elif actor is not None and actor.worker is not None:
            self._scheduler.kill_process(actor.worker, out)
        self._scheduler.schedule(out)

    def kill(self, actor_id: bytes, why: str, out: list[Instruction]) -> None:
        known = self._actors.find(actor_id)
        if (actor := self._actors.end(actor_id, why, out)) is not None and actor.worker is not None:
            self._scheduler.kill_process(actor.worker, out)
        if known is not None:
            self._demands.cancel(known.id)
            if actor is None:
                self._scheduler.wind_up(known.job, out)

    def process_died(self, event: ev.ProcessDied, out: list[Instruction]) -> None:
        """The actor that lived in it may live again."""
        self._created_early.pop(event.process, None)
        is_for_memory = event.memory_peak is not None
        reborn = self._actors.worker_died(event.process, event.status, event.reason, out, is_for_memory)
        if reborn is not None:
            self.want(reborn.id, out)

    def owner_died(self, process: Process, reason: str, out: list[Instruction]) -> None:
        for actor in self._actors.process_died(process):
            self.kill(actor.id, f"died with its owner ({reason})", out)
        self._actors.creator_died(process, out)

    def to_move(self, event: ev.ActorsToMove, out: list[Instruction]) -> None:
        assert self._standing.cluster is not None
        for process in event.workers:
            actor = self._actors.of_worker(process)
            if actor is not None and can_move(actor, self._amounts(actor.id)[0], self._standing.cluster):
                actor.is_moving = True
                out.append(SendMessage(process, ExitProcess("its node is being drained", drain=True)))

    def end_unknown(self, event: ev.HeadReady, out: list[Instruction]) -> None:
        """Whoever could have told of them has: what is still unknown is nobody's."""
        for found in self.found.values():
            worker = self._workers.by_process.get(found.worker)
            if worker is None or worker.place is Place.ACTOR:
                self._scheduler.kill_process(found.worker, out)
        self.found = {}
