"""Placement groups on a node: how they are placed and removed.

Pure: no I/O, no clock. On one node a group waits in the same queue as tasks and actors, as one demand for all of its
bundles, so it is served in turn and leases are asked back for it. A task or actor that is to be in a group waits for
a pool of the group's bundles instead of the node's.

Removing a group ends what runs in it: actors with ActorPlacementGroupRemoved, tasks with TaskPlacementGroupRemoved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.engine.state import events as ev
from weft.engine.state.actors import ActorTable, Stage
from weft.engine.state.demands import PATIENCE_TICKS, Demand
from weft.engine.state.instructions import (
    AnswerBundles,
    ErrorCode,
    Fault,
    Instruction,
    PublishGroup,
    RefuseShape,
    ReleaseBundles,
    ReserveBundles,
    SendMessage,
)
from weft.engine.state.placement import Group, GroupState, GroupTable, choose_nodes
from weft.engine.state.resources import UNIT, Amounts, total_of
from weft.engine.state.settling import is_in
from weft.engine.state.workers import Place
from weft.engine.wire.messages import Warn

if TYPE_CHECKING:
    from weft.engine.state.actor_places import ActorPlaces
    from weft.engine.state.events import Process
    from weft.engine.state.jobs import Job
    from weft.engine.state.leasing import Shapes
    from weft.engine.state.scheduling import Scheduler
    from weft.engine.state.standing import Standing

ATTEMPTS_SHIFT = 24
"""Attempts of one epoch are below it."""


class Grouping:
    """The placement groups of a node, or of a cluster on its head."""

    def __init__(
        self, table: GroupTable, scheduler: Scheduler, standing: Standing, shapes: Shapes, actors: ActorTable,
        actor_places: ActorPlaces,
    ) -> None:  # fmt: skip
        self.table = table
        self._scheduler = scheduler
        self._standing = standing
        self._shapes = shapes
        self._actors = actors
        self._actor_places = actor_places
        self._demands = scheduler.demands
        self._bundles = scheduler.bundles
        self._placing: dict[bytes, _Placing] = {}
        """On the head: groups whose bundles nodes have been asked to set aside."""
        self._attempts = 0
        self._asked: dict[str, ev.BundlesAsked] = {}
        """Bundles that wait in this node's queue for the head."""

    # ---- a group's life ----

    def requested(self, event: ev.GroupRequested, out: list[Instruction]) -> None:
        job = self._scheduler.job_of(event.process)
        if job is None:
            return
        creator = self._actors.of_worker(event.process)
        actor = creator.id if creator is not None and creator.spec.detached else b""
        group = self.table.create(event.spec, event.process, job.id, actor)
        if group is None:
            return
        if self._place_at_once(group, out):
            return
        self.publish(group, out)
        self._want_bundles(group, out)
        self._scheduler.schedule(out)

    def _place_at_once(self, group: Group, out: list[Instruction]) -> bool:
        """The usual case on a node that is alone: nothing waits, and it fits. It can make nothing else fit."""
        spec = group.spec
        is_choosy = spec.labels or spec.same_label or (spec.strategy == "STRICT_SPREAD" and len(group.bundles) > 1)
        if self._standing.is_shared or is_choosy or self._demands.is_waiting:
            return False
        if not self._bundles.reserve(group.id, dict(enumerate(group.bundles))):
            return False
        self.table.placed(group, [self._standing.number] * len(group.bundles), out, keeps_promise=True)
        self.publish(group, out)
        return True

    def _want_bundles(self, group: Group, out: list[Instruction]) -> None:
        """Queue it, if this node could ever hold it and is alone; else the nodes are asked when they can."""
        if choose_nodes(group, self._standing.views(), empty=True) is None:
            job = self._scheduler.jobs.get(group.job)
            if job is not None:
                out.append(SendMessage(job.driver, Warn(self._why_pending(group))))
            return
        if self._standing.is_shared:
            self.plan(out)
            return
        need = total_of(group.bundles)
        demand = Demand(group.id.hex(), group.job, (0, 0), 0, need, need, "")
        demand.parts = group.bundles
        self._demands.want(demand, 1)

    def _why_pending(self, group: Group) -> str:
        nodes = len(self._standing.views())
        short = (
            self._scheduler.resources.misfit(total_of(group.bundles))
            if nodes == 1
            else "no nodes have room for its bundles"
        )
        if group.spec.strategy == "STRICT_SPREAD" and nodes < len(group.bundles):
            are = "is" if nodes == 1 else "are"
            short = f"its {len(group.bundles)} bundles must be on as many nodes, but there {are} {nodes}"
        return (
            f"{group} stays pending: {short or 'no node has the labels that it asks for'}. It will be placed once a "
            "node joins that can hold it; otherwise remove it and ask for less."
        )

    def place(self, demand: Demand, out: list[Instruction]) -> bool:
        """Set its bundles aside; they fit."""
        if (asked := self._asked.get(str(demand.key))) is not None:
            if not self._bundles.reserve(asked.group, asked.bundles):
                return False
            del self._asked[str(demand.key)]
            self._demands.granted(demand)
            self._demands.gave_back(demand.key)
            self._answer(asked.group, True, asked.attempt, out)
            return True
        group = self.table.by_id[bytes.fromhex(str(demand.key))]
        if not self._bundles.reserve(group.id, dict(enumerate(group.bundles))):
            return False
        self._demands.granted(demand)
        self._demands.gave_back(demand.key)
        self.table.placed(
            group, [self._standing.number] * len(group.bundles), out, keeps_promise=not self._standing.is_shared
        )
        self.publish(group, out)
        return True

    def removal_requested(self, event: ev.GroupRemovalRequested, out: list[Instruction]) -> None:
        if (group := self.table.by_id.get(event.group)) is not None:
            self.remove(group, event.process, out)
            self._scheduler.schedule(out)

    def remove(self, group: Group, remover: Process, out: list[Instruction]) -> None:
        if not self.table.remove(group, remover, out):
            return
        self.publish(group, out)
        self._call_off(group, out)
        self._asked.pop(group.id.hex(), None)
        self._demands.cancel(group.id.hex())
        for actor in [actor for actor in self._actors.by_id.values() if is_in(actor.spec.strategy, group)]:
            if actor.stage is not Stage.DEAD and actor.ending is None:
                actor.ending = Fault(ErrorCode.ACTOR_GROUP_REMOVED, f"{actor} was ended: its {group} was removed.")
                self._actor_places.kill(actor.id, "was ended", out)
        fault = Fault(ErrorCode.GROUP_REMOVED, f"the task cannot run: its {group} was removed.")
        for process, shape in self._shapes.in_group(group):  # also of those who are served elsewhere
            out.append(RefuseShape(process, shape, fault))
        for demand in self._demands.of_group(group.id):
            self._demands.cancel(demand.key)
        group_hex = group.id.hex()
        for worker in list(self._scheduler.workers):
            if worker.place is Place.LEASED and self._bundles.group_of(worker.pool) == group.id:
                self._scheduler.kill(worker, out)
        for worker in self._scheduler.workers.idle_of_group(group_hex):
            self._scheduler.let_go(worker, "its placement group was removed", out)
        self._bundles.give_up(group.id)

    def watched(self, event: ev.GroupWatched, out: list[Instruction]) -> None:
        self.table.watch(event.group, event.process, out)

    def end_with(self, process: Process, driver_of: Job | None, out: list[Instruction]) -> None:
        """After a death: what is to end with that driver or with an actor that is dead."""
        if not self.table.living:
            return
        self.table.process_died(process)
        if not self._standing.is_head:
            return  # the head decides, and tells
        for group in list(self.table.living.values()):
            if group.spec.detached:
                continue
            if group.actor:
                owner = self._actors.find(group.actor)
                is_over = owner is None or owner.stage is Stage.DEAD
            else:
                job = self._scheduler.jobs.get(group.job)  # one without its driver goes on while it has workers
                is_over = job is None or job is driver_of or not job.is_driver_alive
            if is_over:
                self.remove(group, process, out)

    def refuse_unknown(self, out: list[Instruction]) -> None:
        """Each tick: who waits for a group that nobody has made."""
        for demand in list(self._demands.by_key.values()):
            if demand.group and demand.group not in self.table.by_id and demand.age >= PATIENCE_TICKS:
                text = f"there is no placement group {demand.group.hex()}, or it was removed long ago."
                if isinstance(demand.key, tuple):
                    self._scheduler.refuse(demand, Fault(ErrorCode.GROUP_REMOVED, text), out)
                elif isinstance(demand.key, bytes):
                    self._demands.cancel(demand.key)
                    fault = Fault(ErrorCode.ACTOR_GROUP_REMOVED, f"actor: {text}")
                    self._actors.fail(self._actors.by_id[demand.key], fault, out)
                self._bundles.forget_lists(demand.group)

    def row(self, group: Group) -> dict[str, object]:
        """For placement_group_table."""
        return {
            "group": group.id.hex(),
            "name": group.spec.name,
            "namespace": group.spec.namespace,
            "bundles": [{name: amount / UNIT for name, amount in bundle} for bundle in group.bundles],
            "nodes": [self._standing.node_id(node) for node in group.nodes],
            "strategy": group.spec.strategy,
            "state": group.state.value,
            "detached": group.spec.detached,
            "job": group.job,
        }

    @property
    def is_waiting(self) -> bool:
        """Whether this node is to place groups when others have room."""
        return self._standing.is_head and any(group.is_waiting for group in self.table.living.values())

    def publish(self, group: Group, out: list[Instruction]) -> None:
        if self._standing.cluster is not None and self._standing.is_head:
            out.append(PublishGroup(group.spec, group.state.value, list(group.nodes)))

    def plan(self, out: list[Instruction]) -> None:
        """Place what waits, in turn, where there is room now."""
        if self._standing.cluster is None or not self.is_waiting:
            return
        for group in [group for group in self.table.living.values() if group.is_waiting]:
            if not self._standing.is_shared and group.id.hex() in self._demands.by_key:
                continue  # it waits in this node's own queue
            if group.id not in self._placing and (nodes := choose_nodes(group, self._standing.views())) is not None:
                self._begin(group, nodes, False, out)

    def ticked(self, out: list[Instruction]) -> None:
        """The group that has waited longest queues on its nodes, or it would never find them empty beside a stream of
        tasks. One at a time, so that no two hold what the other waits for; the next one's turn comes."""
        if not self._standing.is_shared or not self._standing.is_head:
            return
        for group_id, placing in list(self._placing.items()):
            placing.age += 1
            if placing.waits and placing.age > PATIENCE_TICKS:
                group = self.table.by_id[group_id]
                self._call_off(group, out)
                self.table.living[group_id] = self.table.living.pop(group_id)  # behind the others
                self.plan(out)  # there may be room elsewhere by now
        if any(placing.waits for placing in self._placing.values()):
            return
        for group in self.table.living.values():
            if group.is_waiting and group.id not in self._placing:
                nodes = choose_nodes(group, self._standing.views(), empty=True)
                if nodes is not None:
                    self._begin(group, nodes, True, out)
                    return

    def _begin(self, group: Group, nodes: list[int], waits: bool, out: list[Instruction]) -> None:
        """Ask the nodes, this one too, to set aside what is to be there."""
        self._demands.cancel(group.id.hex())  # it may have waited in this node's own queue, when that was alone
        parts: dict[int, dict[int, Amounts]] = {}
        for index, node in enumerate(nodes):
            if group.nodes[index] is None:
                parts.setdefault(node, {})[index] = group.bundles[index]
        self._attempts += 1
        placing = self._placing[group.id] = _Placing(nodes, parts, self._attempts, waits)
        for node, bundles in parts.items():
            if node == self._standing.number:
                continue
            assert self._standing.cluster is not None
            available = self._standing.cluster.nodes[node].available
            for name, amount in total_of(tuple(bundles.values())):
                available[name] = available.get(name, 0) - amount  # until its next report
            out.append(ReserveBundles(node, group.id, bundles, placing.attempt, waits))
        if self._standing.number in parts:
            self.bundles_asked(ev.BundlesAsked(group.id, parts[self._standing.number], placing.attempt, waits), out)

    def bundles_asked(self, event: ev.BundlesAsked, out: list[Instruction]) -> None:
        """The head asks, which may be this node."""
        if self._standing.is_draining:
            self._answer(event.group, False, event.attempt, out)
        elif self._bundles.reserve(event.group, event.bundles):
            self._answer(event.group, True, event.attempt, out)
        elif not event.waits:
            self._answer(event.group, False, event.attempt, out)
        else:
            parts = tuple(event.bundles.values())
            need = total_of(parts)
            demand = Demand(event.group.hex(), 0, (0, 0), 0, need, need, "")
            demand.parts = parts
            self._asked[event.group.hex()] = event
            self._demands.want(demand, 1)
            self._scheduler.schedule(out)

    def _answer(self, group: bytes, ok: bool, attempt: int, out: list[Instruction]) -> None:
        if self._standing.is_head:
            self.bundles_answered(ev.BundlesAnswered(self._standing.number, group, ok, attempt), out)
        else:
            out.append(AnswerBundles(group, ok, attempt))

    def bundles_dropped(self, event: ev.BundlesDropped, out: list[Instruction]) -> None:
        if self._asked.pop(event.group.hex(), None) is not None:
            self._demands.cancel(event.group.hex())
        self._bundles.give_back(event.group, event.bundles)
        self._scheduler.schedule(out)

    def bundles_answered(self, event: ev.BundlesAnswered, out: list[Instruction]) -> None:
        placing = self._placing.get(event.group)
        if placing is None or placing.attempt != event.attempt or event.node not in placing.waiting:
            return
        placing.waiting.discard(event.node)
        if not event.ok:
            placing.parts.pop(event.node, None)
            placing.has_failed = True
        self._finish(self.table.by_id[event.group], out)

    def _finish(self, group: Group, out: list[Instruction]) -> None:
        placing = self._placing[group.id]
        if placing.has_failed:
            self._call_off(group, out)  # it goes on waiting
        elif not placing.waiting:
            del self._placing[group.id]
            self.table.placed(group, placing.nodes, out)
            self.publish(group, out)
            self._scheduler.schedule(out)

    def _call_off(self, group: Group, out: list[Instruction]) -> None:
        """Give back what was set aside, or asked for, for a group that is not placed yet."""
        placing = self._placing.pop(group.id, None)
        for node, bundles in placing.parts.items() if placing is not None else ():
            if node == self._standing.number:
                self.bundles_dropped(ev.BundlesDropped(group.id, list(bundles)), out)
            else:
                out.append(ReleaseBundles(node, group.id, list(bundles)))

    def node_left(self, event: ev.NodeLeft, out: list[Instruction]) -> None:
        if not self._standing.is_head:
            return
        for group_id, placing in list(self._placing.items()):
            if event.node in placing.nodes:
                placing.parts.pop(event.node, None)
                self._call_off(self.table.by_id[group_id], out)
        for group in self.table.node_died(event.node, out):
            self.publish(group, out)
        self.plan(out)

    def learnt(self, event: ev.GroupLearnt, out: list[Instruction]) -> None:
        """On a node that is not the head."""
        group = self.table.by_id.get(event.spec.group)
        if group is None:
            if event.state == GroupState.REMOVED.value:
                return
            group = self.table.create(event.spec, (0, 0), 0)
            assert group is not None
            group.watchers.clear()
        if event.state == GroupState.REMOVED.value:
            self.remove(group, (0, 0), out)
        elif group.state is not GroupState.REMOVED:  # else a new head has not heard of it yet, and will
            group.state, group.nodes = GroupState(event.state), list(event.nodes)
        self._scheduler.schedule(out)

    # ---- this node or another has become the head ----

    def forget_asked(self) -> None:
        """Bundles that were asked for and have not been set aside: the new head asks again."""
        for key in list(self._asked):
            self._demands.cancel(key)
        self._asked.clear()

    def took_over(self, event: ev.TookOver, out: list[Instruction]) -> None:
        """This node is the head: groups are as the rows and the nodes say."""
        self._attempts = event.epoch << ATTEMPTS_SHIFT
        self.forget_asked()
        set_aside = dict(event.bundles)
        for group in event.groups:
            self._restore(group, set_aside.pop(group.spec.group, {}), out)
        for group_id, bundles in set_aside.items():
            self._drop_bundles(group_id, bundles, out)
        self.end_with((0, 0), None, out)  # whose jobs are over
        self.plan(out)

    def _restore(self, row: ev.RestoredGroup, where: dict[int, int], out: list[Instruction]) -> None:
        group = self.table.by_id.get(row.spec.group) or self.table.create(row.spec, row.creator, row.job, row.actor)
        assert group is not None
        group.creator, group.job, group.actor, group.watchers = row.creator, row.job, row.actor, {}
        if GroupState.REMOVED in (group.state, GroupState(row.state)):
            self._drop_bundles(group.id, where, out)
            self.remove(group, (0, 0), out)
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
        self.publish(group, out)

    def _drop_bundles(self, group: bytes, where: dict[int, int], out: list[Instruction]) -> None:
        for node in set(where.values()):
            bundles = [index for index, at in where.items() if at == node]
            if node == self._standing.number:
                self.bundles_dropped(ev.BundlesDropped(group, bundles), out)
            else:
                out.append(ReleaseBundles(node, group, bundles))


class _Placing:
    """A group whose bundles are being set aside."""

    __slots__ = ("age", "attempt", "has_failed", "nodes", "parts", "waiting", "waits")

    def __init__(self, nodes: list[int], parts: dict[int, dict[int, Amounts]], attempt: int, waits: bool) -> None:
        self.nodes = nodes
        self.parts = dict(parts)
        """The bundles that each node has set aside, or has been asked for."""
        self.waiting = set(parts)
        """Nodes that have not answered."""
        self.attempt = attempt
        self.waits = waits
        """The nodes answer when they have room."""
        self.has_failed = False
        self.age = 0
