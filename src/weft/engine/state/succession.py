"""What changes on a node when another one, or this one, becomes the cluster's head. The part of a node between its
placement groups and the whole (`node.NodeState`).

Pure: no I/O, no clock. A new head has the rows of the control store, and what every living node says that it has: the
actors that live there and the bundles that are set aside there. Where the two differ the nodes are right, because rows
are written after the fact. An actor that the rows know and no node has was lost with the head before, and restarts as
after any death. A worker that was to be an actor of which no row is left is ended.
"""

from __future__ import annotations

from weft.engine.state import events as ev
from weft.engine.state.actors import Stage
from weft.engine.state.events import Process
from weft.engine.state.grouping import GroupScheduler
from weft.engine.state.instructions import ACTOR_DIED, Fault, Instruction, ReleaseBundles
from weft.engine.state.placement import GroupState
from weft.engine.state.workers import Place

LOST_WITH_HEAD = "its node died, and the cluster's head with it"
ATTEMPTS_SHIFT = 24


class Succession(GroupScheduler):
    """A scheduler whose cluster's head may change."""

    def _want_place_for(self, actor_id: bytes, out: list[Instruction]) -> None:
        raise NotImplementedError

    def _kill_process(self, process: Process, out: list[Instruction]) -> None:
        raise NotImplementedError

    # ---- another node is the head ----

    def _head_changed(self, event: ev.HeadChanged, out: list[Instruction]) -> None:
        self.demands.withdraw(event.old)
        for lease in self.leases.held_by(event.old):
            self.leases.pass_on(lease, event.new)
            if lease.worker.process not in event.hosted:  # the actor that it was meant for never came
                self._kill_process(lease.worker.process, out)
        self._forget_asked()
        self._schedule(out)

    def _forget_asked(self) -> None:
        """Bundles that were asked for and have not been set aside: the new head asks again."""
        for key in list(self._asked):
            self.demands.cancel(key)
        self._asked.clear()

    # ---- this node is the head ----

    def _took_over(self, event: ev.TookOver, out: list[Instruction]) -> None:
        self.is_head = True
        self._attempts = event.epoch << ATTEMPTS_SHIFT
        self._forget_asked()
        self.actors.aliases.update(event.aliases)
        left = dict(event.found)
        if event.old is not None:
            self._free_places_of(event.old, {found.worker for found in left.values()}, out)
        for row in event.actors:
            self._restore_actor(row, left.pop(row.spec.actor, None), event.is_restart, out)
        self.found = left
        set_aside = dict(event.bundles)
        for group in event.groups:
            self._restore_group(group, set_aside.pop(group.spec.group, {}), out)
        for group_id, bundles in set_aside.items():
            self._drop_bundles(group_id, bundles, out)
        self._end_groups_of((0, 0), None, out)  # whose jobs are over
        self._plan_groups(out)
        self._schedule(out)

    def _free_places_of(self, old: Process, hosted: set[Process], out: list[Instruction]) -> None:
        """The head before had leased workers of this node for its actors: they are this node's own now."""
        self.demands.withdraw(old)
        for lease in self.leases.held_by(old):
            self.leases.end(lease)
            self.demands.gave_back(lease.group)
            if lease.worker.process not in hosted:
                self._kill_process(lease.worker.process, out)

    def _restore_actor(
        self, row: ev.RestoredActor, found: ev.FoundActor | None, is_restart: bool, out: list[Instruction]
    ) -> None:
        actor = self.actors.restore(row)
        if actor is not None and actor.stage is not Stage.DEAD and row.job not in self.jobs:
            self.actors.fail(
                actor, Fault(ACTOR_DIED, f"{actor} died with its job, and the cluster's head with it"), out
            )
        if actor is None or actor.stage is Stage.DEAD:
            if found is not None:
                self._kill_process(found.worker, out)
            return
        actor.is_moving = is_restart and actor.spec.detached  # the end of all is no fault of the actor's
        if found is not None:
            self.actors.found(actor, found, out)
        elif row.stage == Stage.PENDING.value or self.actors.lost(actor, LOST_WITH_HEAD, out) is not None:
            self._want_place_for(actor.id, out)

    def end_unknown_actors(self, out: list[Instruction]) -> None:
        """Whoever could have told of them has: what is still unknown is nobody's."""
        for found in self.found.values():
            worker = self.workers.by_process.get(found.worker)
            if worker is None or worker.place is Place.ACTOR:
                self._kill_process(found.worker, out)
        self.found = {}

    def _restore_group(self, row: ev.RestoredGroup, where: dict[int, int], out: list[Instruction]) -> None:
        group = self.groups.by_id.get(row.spec.group) or self.groups.create(row.spec, row.creator, row.job, row.actor)
        assert group is not None
        group.creator, group.job, group.actor, group.watchers = row.creator, row.job, row.actor, {}
        if GroupState.REMOVED in (group.state, GroupState(row.state)):
            self._drop_bundles(group.id, where, out)
            self._remove_group(group, (0, 0), out)
            return
        nodes = [where.get(index) for index in range(len(group.bundles))]
        if None not in nodes:
            group.state = GroupState.CREATED
        elif row.state == GroupState.PENDING.value:
            self._drop_bundles(group.id, where, out)
            group.state, nodes = GroupState.PENDING, [None] * len(nodes)
        else:
            group.state = GroupState.RESCHEDULING
        group.nodes = nodes
        self._publish(group, out)

    def _drop_bundles(self, group: bytes, where: dict[int, int], out: list[Instruction]) -> None:
        for node in set(where.values()):
            bundles = [index for index, at in where.items() if at == node]
            if node == self._number:
                self._bundles_dropped(ev.BundlesDropped(group, bundles), out)
            else:
                out.append(ReleaseBundles(node, group, bundles))
