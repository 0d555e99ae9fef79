"""Placement groups on a node: how they are placed, drawn from and removed. The part of a node between its scheduling
and the whole (`node.NodeState`).

Pure: no I/O, no clock. On one node a group waits in the same queue as tasks and actors, as one demand for all of its
bundles, so it is served in turn and leases are asked back for it. A task or actor that is to be in a group waits for
a pool of the group's bundles instead of the node's.

Removing a group ends what runs in it: actors with ActorPlacementGroupRemoved, tasks with TaskPlacementGroupRemoved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft.engine.state import events as ev
from weft.engine.state.actors import Stage
from weft.engine.state.bundles import BundlePools
from weft.engine.state.cluster import ClusterView, NodeView, Strategy
from weft.engine.state.demands import PATIENCE_TICKS, Demand
from weft.engine.state.events import Process
from weft.engine.state.instructions import (
    ACTOR_GROUP_REMOVED,
    GROUP_REMOVED,
    UNSCHEDULABLE,
    AnswerBundles,
    Fault,
    Instruction,
    PublishGroup,
    ReleaseBundles,
    ReserveBundles,
    SendFault,
    SendMessage,
)
from weft.engine.state.jobs import Job
from weft.engine.state.placement import Group, GroupState, GroupTable, choose_nodes
from weft.engine.state.resources import UNIT, Amounts, total_of
from weft.engine.state.scheduling import Scheduler
from weft.engine.state.workers import Place, Worker
from weft.engine.wire import kinds
from weft.engine.wire.messages import Warn


class GroupScheduler(Scheduler):
    """A scheduler that knows placement groups."""

    def __init__(
        self, total: Mapping[str, float], gpu_ids: Sequence[int], prestart: int, start_limit: int, most_blocked: int
    ) -> None:
        super().__init__(total, gpu_ids, prestart, start_limit, most_blocked)
        self.groups = GroupTable()
        self.bundles = BundlePools(self.resources)
        self.own = NodeView(0, "", {}, self.resources.total)
        """This node, as far as it is chosen by its id and labels."""
        self._placing: dict[bytes, _Placing] = {}
        """On the head: groups whose bundles nodes have been asked to set aside."""
        self.is_head = True
        """Whether this node keeps the groups and actors of its cluster; alone it does."""
        self.found: dict[bytes, ev.FoundActor] = {}
        """After taking over: workers that are actors of which it has not been told yet."""
        self._attempts = 0
        self._asked: dict[str, ev.BundlesAsked] = {}
        """Bundles that wait in this node's queue for the head."""

    # ---- what may be placed here at all ----

    def _settle_group(self, demand: Demand, strategy: Strategy) -> Fault | None:
        """Note what a strategy says about groups and priority; why the demand cannot be, if so."""
        demand.priority = int(strategy.get("priority", 0))
        if strategy.get("kind") != "placement_group":
            return None
        demand.group = bytes.fromhex(str(strategy["group"]))
        demand.captures = bool(strategy.get("capture_child_tasks"))
        index = demand.bundle = int(strategy.get("bundle", -1))
        if (group := self.groups.by_id.get(demand.group)) is not None:
            if group.state is GroupState.REMOVED:
                return self._removed_fault(group, demand)
            if why := group.misfit(demand.need, index):
                what = "actor" if demand.is_actor else "the task"
                return Fault(UNSCHEDULABLE, f"{what} can never be placed: {why}.")
        demand.draws_from = self.bundles.list_of(demand.group, index)
        return None

    def _removed_fault(self, group: Group, demand: Demand) -> Fault:
        what = "actor" if demand.is_actor else "the task"
        code = ACTOR_GROUP_REMOVED if demand.is_actor else GROUP_REMOVED
        return Fault(code, f"{what} cannot run: its {group} was removed.")

    def _strategy_refusal(self, need: Amounts, strategy: Strategy) -> str:
        """Why this node, alone as it is, can never be the one that is meant."""
        if self.cluster is not None or not strategy:
            return ""
        if not ClusterView(self.own).allowed((), strategy):
            if strategy.get("kind") == "node_affinity":
                return f"the node {strategy['node_id']} that it is bound to is not alive"
            return f"its labels {_conditions(strategy)} do not match those of the only node, {dict(self.own.labels)}"
        if strategy.get("fail_on_unavailable") and (short := self.resources.shortage(need)):
            return f"the node that it is bound to has no {' and no '.join(short)} free, and it is not to wait"
        return ""

    # ---- a group's life ----

    def _group_requested(self, event: ev.GroupRequested, out: list[Instruction]) -> None:
        job = self.job_of(event.process)
        if job is None:
            return
        creator = self.actors.of_worker(event.process)
        actor = creator.id if creator is not None and creator.spec.detached else b""
        group = self.groups.create(event.spec, event.process, job.id, actor)
        if group is None:
            return
        if self._place_at_once(group, out):
            return
        self._publish(group, out)
        self._want_bundles(group, out)
        self._schedule(out)

    def _place_at_once(self, group: Group, out: list[Instruction]) -> bool:
        """The usual case on a node that is alone: nothing waits, and it fits. It can make nothing else fit."""
        spec = group.spec
        is_choosy = spec.labels or spec.same_label or (spec.strategy == "STRICT_SPREAD" and len(group.bundles) > 1)
        if self._is_shared or is_choosy or self.demands.is_waiting:
            return False
        if not self.bundles.reserve(group.id, dict(enumerate(group.bundles))):
            return False
        self.groups.placed(group, [self._number] * len(group.bundles), out, keeps_promise=True)
        self._publish(group, out)
        return True

    def _want_bundles(self, group: Group, out: list[Instruction]) -> None:
        """Queue it, if this node could ever hold it and is alone; else the nodes are asked when they can."""
        if choose_nodes(group, self._views(), empty=True) is None:
            job = self.jobs.get(group.job)
            if job is not None:
                out.append(SendMessage(job.driver, Warn(self._why_pending(group))))
            return
        if self._is_shared:
            self._plan_groups(out)
            return
        need = total_of(group.bundles)
        demand = Demand(group.id.hex(), group.job, (0, 0), 0, need, need, "")
        demand.parts = group.bundles
        self.demands.want(demand, 1)

    def _why_pending(self, group: Group) -> str:
        nodes = len(self._views())
        short = self.resources.misfit(total_of(group.bundles)) if nodes == 1 else "no nodes have room for its bundles"
        if group.spec.strategy == "STRICT_SPREAD" and nodes < len(group.bundles):
            are = "is" if nodes == 1 else "are"
            short = f"its {len(group.bundles)} bundles must be on as many nodes, but there {are} {nodes}"
        return (
            f"{group} stays pending: {short or 'no node has the labels that it asks for'}. It will be placed once a "
            "node joins that can hold it; otherwise remove it and ask for less."
        )

    def _place_group(self, demand: Demand, out: list[Instruction]) -> bool:
        """Set its bundles aside; they fit."""
        if (asked := self._asked.get(str(demand.key))) is not None:
            if not self.bundles.reserve(asked.group, asked.bundles):
                return False
            del self._asked[str(demand.key)]
            self.demands.granted(demand)
            self.demands.gave_back(demand.key)
            self._answer(asked.group, True, asked.attempt, out)
            return True
        group = self.groups.by_id[bytes.fromhex(str(demand.key))]
        if not self.bundles.reserve(group.id, dict(enumerate(group.bundles))):
            return False
        self.demands.granted(demand)
        self.demands.gave_back(demand.key)
        self.groups.placed(group, [self._number] * len(group.bundles), out, keeps_promise=not self._is_shared)
        self._publish(group, out)
        return True

    def _group_removal_requested(self, event: ev.GroupRemovalRequested, out: list[Instruction]) -> None:
        if (group := self.groups.by_id.get(event.group)) is not None:
            self._remove_group(group, event.process, out)
            self._schedule(out)

    def _remove_group(self, group: Group, remover: Process, out: list[Instruction]) -> None:
        if not self.groups.remove(group, remover, out):
            return
        self._publish(group, out)
        self._call_off(group, out)
        self._asked.pop(group.id.hex(), None)
        self.demands.cancel(group.id.hex())
        for actor in [actor for actor in self.actors.by_id.values() if is_in(actor.spec.strategy, group)]:
            if actor.stage is not Stage.DEAD and actor.ending is None:
                actor.ending = Fault(ACTOR_GROUP_REMOVED, f"{actor} was ended: its {group} was removed.")
                self._end_actor(actor.id, out)
        fault = Fault(GROUP_REMOVED, f"the task cannot run: its {group} was removed.")
        for process, shape in self._shapes_in(group):  # also of those who are served elsewhere
            out.append(SendFault(process, kinds.SHAPE_REFUSED, kinds.PROCESS_BODY.pack(shape, 0), fault))
        for demand in self.demands.of_group(group.id):
            self.demands.cancel(demand.key)
        group_hex = group.id.hex()
        for worker in list(self.workers):
            if worker.place is Place.LEASED and self.bundles.group_of(worker.pool) == group.id:
                self._kill(worker, out)
        for worker in self.workers.idle_of_group(group_hex):
            self._let_go(worker, "its placement group was removed", out)
        self.bundles.give_up(group.id)

    def _end_actor(self, actor_id: bytes, out: list[Instruction]) -> None:
        raise NotImplementedError

    def _shapes_in(self, group: Group) -> list[tuple[Process, int]]:
        """The shapes that processes have defined to be in the group."""
        raise NotImplementedError

    def _refuse(self, demand: Demand, fault: Fault, out: list[Instruction], for_good: bool = True) -> None:
        """Whatever waits in that shape fails, now and later; or only what waits now."""
        assert isinstance(demand.key, tuple)
        head = kinds.PROCESS_BODY.pack(demand.key[1], int(not for_good))
        out.append(SendFault(demand.requester, kinds.SHAPE_REFUSED, head, fault))
        self.demands.cancel(demand.key)

    def _group_watched(self, event: ev.GroupWatched, out: list[Instruction]) -> None:
        self.groups.watch(event.group, event.process, out)

    def _end_groups_of(self, process: Process, driver_of: Job | None, out: list[Instruction]) -> None:
        """After a death: what is to end with that driver or with an actor that is dead."""
        if not self.groups.living:
            return
        self.groups.process_died(process)
        if not self.is_head:
            return  # the head decides, and tells
        for group in list(self.groups.living.values()):
            if group.spec.detached:
                continue
            if group.actor:
                owner = self.actors.find(group.actor)
                is_over = owner is None or owner.stage is Stage.DEAD
            else:
                job = self.jobs.get(group.job)  # one without its driver goes on while it has workers
                is_over = job is None or job is driver_of or not job.is_driver_alive
            if is_over:
                self._remove_group(group, process, out)

    def _refuse_unknown_groups(self, out: list[Instruction]) -> None:
        """Each tick: who waits for a group that nobody has made."""
        for demand in list(self.demands.by_key.values()):
            if demand.group and demand.group not in self.groups.by_id and demand.age >= PATIENCE_TICKS:
                text = f"there is no placement group {demand.group.hex()}, or it was removed long ago."
                if isinstance(demand.key, tuple):
                    self._refuse(demand, Fault(GROUP_REMOVED, text), out)
                elif isinstance(demand.key, bytes):
                    self.demands.cancel(demand.key)
                    self.actors.fail(self.actors.by_id[demand.key], Fault(ACTOR_GROUP_REMOVED, f"actor: {text}"), out)
                self.bundles.forget_lists(demand.group)

    # ---- drawing ----

    def _drawn(self, worker: Worker) -> None:
        if worker.pool is not None and worker.pool is not self.resources:
            self.bundles.drawn(worker.pool)

    def _release(self, worker: Worker) -> None:
        pool = worker.pool if worker.holding is not None else None
        super()._release(worker)
        if pool is not None and pool is not self.resources:
            self.bundles.returned(pool)

    def group_rows(self) -> list[dict[str, object]]:
        """For placement_group_table."""
        return [self.group_row(group) for group in self.groups.by_id.values()]

    def group_row(self, group: Group) -> dict[str, object]:
        return {
            "group": group.id.hex(),
            "name": group.spec.name,
            "namespace": group.spec.namespace,
            "bundles": [{name: amount / UNIT for name, amount in bundle} for bundle in group.bundles],
            "nodes": [self._node_id(node) for node in group.nodes],
            "strategy": group.spec.strategy,
            "state": group.state.value,
            "detached": group.spec.detached,
            "job": group.job,
        }

    def _node_id(self, number: int | None) -> str:
        if number is None:
            return ""
        return next((node.node_id for node in self._views() if node.number == number), "")

    # ---- many nodes: the head places groups, the others learn of them ----

    @property
    def _number(self) -> int:
        return self.cluster.own.number if self.cluster is not None else self.own.number

    @property
    def _is_shared(self) -> bool:
        return self.cluster is not None and len(self.cluster.nodes) > 1

    @property
    def groups_wait(self) -> bool:
        """Whether this node is to place groups when others have room."""
        return self.is_head and any(group.is_waiting for group in self.groups.living.values())

    def _views(self) -> list[NodeView]:
        if self.cluster is None:
            self.own.available = self.resources.available
            return [self.own]
        self.cluster.own.available = self.resources.available
        return list(self.cluster.nodes.values())

    def _publish(self, group: Group, out: list[Instruction]) -> None:
        if self.cluster is not None and self.is_head:
            out.append(PublishGroup(group.spec, group.state.value, list(group.nodes)))

    def _plan_groups(self, out: list[Instruction]) -> None:
        """Place what waits, in turn, where there is room now."""
        if self.cluster is None or not self.groups_wait:
            return
        for group in [group for group in self.groups.living.values() if group.is_waiting]:
            if not self._is_shared and group.id.hex() in self.demands.by_key:
                continue  # it waits in this node's own queue
            if group.id not in self._placing and (nodes := choose_nodes(group, self._views())) is not None:
                self._begin(group, nodes, False, out)

    def _groups_ticked(self, out: list[Instruction]) -> None:
        """The group that has waited longest queues on its nodes, or it would never find them empty beside a stream of
        tasks. One at a time, so that no two hold what the other waits for; the next one's turn comes."""
        if not self._is_shared or not self.is_head:
            return
        for group_id, placing in list(self._placing.items()):
            placing.age += 1
            if placing.waits and placing.age > PATIENCE_TICKS:
                group = self.groups.by_id[group_id]
                self._call_off(group, out)
                self.groups.living[group_id] = self.groups.living.pop(group_id)  # behind the others
        if any(placing.waits for placing in self._placing.values()):
            return
        for group in self.groups.living.values():
            if group.is_waiting and group.id not in self._placing:
                nodes = choose_nodes(group, self._views(), empty=True)
                if nodes is not None:
                    self._begin(group, nodes, True, out)
                    return

    def _begin(self, group: Group, nodes: list[int], waits: bool, out: list[Instruction]) -> None:
        """Ask the nodes, this one too, to set aside what is to be there."""
        self.demands.cancel(group.id.hex())  # it may have waited in this node's own queue, when that was alone
        parts: dict[int, dict[int, Amounts]] = {}
        for index, node in enumerate(nodes):
            if group.nodes[index] is None:
                parts.setdefault(node, {})[index] = group.bundles[index]
        self._attempts += 1
        placing = self._placing[group.id] = _Placing(nodes, parts, self._attempts, waits)
        for node, bundles in parts.items():
            if node == self._number:
                continue
            assert self.cluster is not None
            available = self.cluster.nodes[node].available
            for name, amount in total_of(tuple(bundles.values())):
                available[name] = available.get(name, 0) - amount  # until its next report
            out.append(ReserveBundles(node, group.id, bundles, placing.attempt, waits))
        if self._number in parts:
            self._bundles_asked(ev.BundlesAsked(group.id, parts[self._number], placing.attempt, waits), out)

    def _bundles_asked(self, event: ev.BundlesAsked, out: list[Instruction]) -> None:
        """The head asks, which may be this node."""
        if self.is_draining:
            self._answer(event.group, False, event.attempt, out)
        elif self.bundles.reserve(event.group, event.bundles):
            self._answer(event.group, True, event.attempt, out)
        elif not event.waits:
            self._answer(event.group, False, event.attempt, out)
        else:
            parts = tuple(event.bundles.values())
            need = total_of(parts)
            demand = Demand(event.group.hex(), 0, (0, 0), 0, need, need, "")
            demand.parts = parts
            self._asked[event.group.hex()] = event
            self.demands.want(demand, 1)
            self._schedule(out)

    def _answer(self, group: bytes, ok: bool, attempt: int, out: list[Instruction]) -> None:
        if self.is_head:
            self._bundles_answered(ev.BundlesAnswered(self._number, group, ok, attempt), out)
        else:
            out.append(AnswerBundles(group, ok, attempt))

    def _bundles_dropped(self, event: ev.BundlesDropped, out: list[Instruction]) -> None:
        if self._asked.pop(event.group.hex(), None) is not None:
            self.demands.cancel(event.group.hex())
        self.bundles.give_back(event.group, event.bundles)
        self._schedule(out)

    def _bundles_answered(self, event: ev.BundlesAnswered, out: list[Instruction]) -> None:
        placing = self._placing.get(event.group)
        if placing is None or placing.attempt != event.attempt or event.node not in placing.waiting:
            return
        placing.waiting.discard(event.node)
        if not event.ok:
            placing.parts.pop(event.node, None)
            placing.has_failed = True
        self._finish(self.groups.by_id[event.group], out)

    def _finish(self, group: Group, out: list[Instruction]) -> None:
        placing = self._placing[group.id]
        if placing.has_failed:
            self._call_off(group, out)  # it goes on waiting
        elif not placing.waiting:
            del self._placing[group.id]
            self.groups.placed(group, placing.nodes, out)
            self._publish(group, out)
            self._schedule(out)

    def _call_off(self, group: Group, out: list[Instruction]) -> None:
        """Give back what was set aside, or asked for, for a group that is not placed yet."""
        placing = self._placing.pop(group.id, None)
        for node, bundles in placing.parts.items() if placing is not None else ():
            if node == self._number:
                self._bundles_dropped(ev.BundlesDropped(group.id, list(bundles)), out)
            else:
                out.append(ReleaseBundles(node, group.id, list(bundles)))

    def _node_left(self, event: ev.NodeLeft, out: list[Instruction]) -> None:
        if not self.is_head:
            return
        for group_id, placing in list(self._placing.items()):
            if event.node in placing.nodes:
                placing.parts.pop(event.node, None)
                self._call_off(self.groups.by_id[group_id], out)
        for group in self.groups.node_died(event.node, out):
            self._publish(group, out)
        self._plan_groups(out)

    def _group_learnt(self, event: ev.GroupLearnt, out: list[Instruction]) -> None:
        """On a node that is not the head."""
        group = self.groups.by_id.get(event.spec.group)
        if group is None:
            if event.state == GroupState.REMOVED.value:
                return
            group = self.groups.create(event.spec, (0, 0), 0)
            assert group is not None
            group.watchers.clear()
        if event.state == GroupState.REMOVED.value:
            self._remove_group(group, (0, 0), out)
        elif group.state is not GroupState.REMOVED:  # else a new head has not heard of it yet, and will
            group.state, group.nodes = GroupState(event.state), list(event.nodes)
        self._schedule(out)

    def plan_group(self, demand: Demand) -> tuple[dict[int, int], bool, int]:
        """How many to ask each other node for, whether this one may serve it, and how many are left to others."""
        group = self.groups.by_id.get(demand.group)
        if group is None or group.state is not GroupState.CREATED:
            return {}, True, 0
        room: dict[int, int] = {}
        for index, (node, bundle) in enumerate(zip(group.nodes, group.bundles, strict=True)):
            if demand.bundle in (-1, index) and node is not None:
                room[node] = room.get(node, 0) + _times(dict(bundle), demand)
        is_local = self._number in room
        left = demand.wanted - sum(_times(pool.available, demand) for pool in demand.draws_from or ())
        others = [node for node in room if node != self._number]
        plan: dict[int, int] = {}
        for node in others:
            if (count := min(left, room[node])) > 0:
                plan[node] = count
                left -= count
        if left > 0 and others and not is_local:
            plan[others[0]] = plan.get(others[0], 0) + left
        return plan, is_local, sum(plan.values())


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


def _times(free: Mapping[str, int], demand: Demand) -> int:
    """How many grants fit."""
    return max(0, min([demand.wanted, *(free.get(name, 0) // amount for name, amount in demand.need)]))


def is_in(strategy: Strategy, group: Group) -> bool:
    return strategy.get("kind") == "placement_group" and strategy.get("group") == group.id.hex()


def _conditions(strategy: Strategy) -> dict[str, object]:
    return {key: value for key, value in strategy.items() if key in ("labels", "fallbacks", "hard") and value}
