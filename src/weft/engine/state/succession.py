"""What changes on a node when another one, or this one, becomes the cluster's head.

Pure: no I/O, no clock. A new head has the rows of the control store, and what every living node says that it has: the
actors that live there and the bundles that are set aside there. Where the two differ the nodes are right, because rows
are written after the fact. An actor that the rows know and no node has was lost with the head before, and restarts as
after any death. A worker that was to be an actor of which no row is left is ended.
"""

from __future__ import annotations

from weft.engine.state import events as ev
from weft.engine.state.actor_places import ActorPlaces
from weft.engine.state.actors import ActorTable, Stage
from weft.engine.state.events import Process
from weft.engine.state.grouping import Grouping
from weft.engine.state.instructions import ErrorCode, Fault, Instruction
from weft.engine.state.scheduling import Scheduler
from weft.engine.state.standing import Standing

LOST_WITH_HEAD = "its node died, and the cluster's head with it"


class Succession:
    """What another node, or this one, becoming the head means here."""

    def __init__(
        self,
        scheduler: Scheduler,
        standing: Standing,
        actors: ActorTable,
        actor_places: ActorPlaces,
        grouping: Grouping,
    ) -> None:
        self._scheduler = scheduler
        self._standing = standing
        self._actors = actors
        self._actor_places = actor_places
        self._grouping = grouping

    # ---- another node is the head ----

    def head_changed(self, event: ev.HeadChanged, out: list[Instruction]) -> None:
        self._scheduler.demands.withdraw(event.old)
        for lease in self._scheduler.leases.held_by(event.old):
            self._scheduler.leases.pass_on(lease, event.new)
            if lease.worker.process not in event.hosted:  # the actor that it was meant for never came
                self._scheduler.kill_process(lease.worker.process, out)
        self._grouping.forget_asked()
        self._scheduler.schedule(out)

    # ---- this node is the head ----

    def took_over(self, event: ev.TookOver, out: list[Instruction]) -> None:
        self._standing.is_head = True
        self._actors.aliases.update(event.aliases)
        left = dict(event.found)
        if event.old is not None:
            self._free_places_of(event.old, {found.worker for found in left.values()}, out)
        for row in event.actors:
            self._restore_actor(row, left.pop(row.spec.actor, None), event.is_restart, out)
        self._actor_places.found = left
        self._grouping.took_over(event, out)
        self._scheduler.schedule(out)

    def _free_places_of(self, old: Process, hosted: set[Process], out: list[Instruction]) -> None:
        """The head before had leased workers of this node for its actors: they are this node's own now."""
        self._scheduler.demands.withdraw(old)
        for lease in self._scheduler.leases.held_by(old):
            self._scheduler.leases.end(lease)
            self._scheduler.demands.gave_back(lease.group)
            if lease.worker.process not in hosted:
                self._scheduler.kill_process(lease.worker.process, out)

    def _restore_actor(
        self, row: ev.RestoredActor, found: ev.FoundActor | None, is_restart: bool, out: list[Instruction]
    ) -> None:
        actor = self._actors.restore(row)
        if actor is not None and actor.stage is not Stage.DEAD and row.job not in self._scheduler.jobs:
            self._actors.fail(
                actor, Fault(ErrorCode.ACTOR_DIED, f"{actor} died with its job, and the cluster's head with it"), out
            )
        if actor is None or actor.stage is Stage.DEAD:
            if found is not None:
                self._scheduler.kill_process(found.worker, out)
            return
        actor.is_moving = is_restart and actor.spec.detached  # the end of all is no fault of the actor's
        if found is not None:
            self._actors.found(actor, found, out)
        elif row.stage == Stage.PENDING.value or self._actors.lost(actor, LOST_WITH_HEAD, out) is not None:
            self._actor_places.want(actor.id, out)
