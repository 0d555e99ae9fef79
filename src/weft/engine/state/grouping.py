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
    Fault,
    Instruction,
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

    def __init__(self, total: Mapping[str, float], gpu_ids: Sequence[int], prestart: int, start_limit: int) -> None:
        super().__init__(total, gpu_ids, prestart, start_limit)
        self.groups = GroupTable()
        self.bundles = BundlePools(self.resources)
        self.own = NodeView(0, "", {}, self.resources.total)
        """This node, as far as it is chosen by its id and labels."""

    # ---- what may be placed here at all ----

    def _settle_group(self, demand: Demand, strategy: Strategy) -> Fault | None:
        """Note what a strategy says about groups and priority; why the demand can not be, if so."""
        demand.priority = int(strategy.get("priority", 0))
        if strategy.get("kind") != "placement_group":
            return None
        demand.group = bytes.fromhex(str(strategy["group"]))
        demand.captures = bool(strategy.get("capture_child_tasks"))
        index = int(strategy.get("bundle", -1))
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
        return Fault(code, f"{what} can not run: its {group} was removed.")

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
        self._refuse_misfits(group, out)
        self._want_bundles(group, out)
        self._schedule(out)

    def _want_bundles(self, group: Group, out: list[Instruction]) -> None:
        """Queue it, if this node could ever hold it."""
        if choose_nodes(group, [self.own], empty=True) is None:
            job = self.jobs.get(group.job)
            if job is not None:
                out.append(SendMessage(job.driver, Warn(self._why_pending(group))))
            return
        need = total_of(group.bundles)
        demand = Demand(group.id.hex(), group.job, (0, 0), 0, need, need, "")
        demand.parts = group.bundles
        self.demands.want(demand, 1)

    def _why_pending(self, group: Group) -> str:
        short = self.resources.misfit(total_of(group.bundles))
        if not short and group.spec.strategy == "STRICT_SPREAD":
            short = f"its {len(group.bundles)} bundles must be on as many nodes, but there is 1"
        return (
            f"{group} stays pending: {short or 'no node has the labels that it asks for'}. It will be placed once a "
            "node joins that can hold it; otherwise remove it and ask for less."
        )

    def _place_group(self, demand: Demand, out: list[Instruction]) -> bool:
        """Set its bundles aside; they fit."""
        group = self.groups.by_id[bytes.fromhex(str(demand.key))]
        if not self.bundles.reserve(group.id, dict(enumerate(group.bundles))):
            return False
        self.demands.granted(demand)
        self.demands.gave_back(demand.key)
        self.groups.placed(group, [self.own.number] * len(group.bundles), out)
        return True

    def _group_removal_requested(self, event: ev.GroupRemovalRequested, out: list[Instruction]) -> None:
        if (group := self.groups.by_id.get(event.group)) is not None:
            self._remove_group(group, event.process, out)
            self._schedule(out)

    def _remove_group(self, group: Group, remover: Process, out: list[Instruction]) -> None:
        if not self.groups.remove(group, remover, out):
            return
        self.demands.cancel(group.id.hex())
        for actor in [actor for actor in self.actors.by_id.values() if _is_in(actor.spec.strategy, group)]:
            if actor.stage is not Stage.DEAD and actor.ending is None:
                actor.ending = Fault(ACTOR_GROUP_REMOVED, f"{actor} was ended: its {group} was removed.")
                self._end_actor(actor.id, out)
        for demand in self.demands.of_group(group.id):
            if isinstance(demand.key, tuple):
                self._refuse(demand, self._removed_fault(group, demand), out)
        group_hex = group.id.hex()
        for worker in list(self.workers):
            if worker.place is Place.LEASED and self.bundles.group_of(worker.pool) == group.id:
                self._kill(worker, out)
        for worker in self.workers.idle_of_group(group_hex):
            self._let_go(worker, "its placement group was removed", out)
        self.bundles.give_up(group.id)

    def _end_actor(self, actor_id: bytes, out: list[Instruction]) -> None:
        raise NotImplementedError

    def _refuse(self, demand: Demand, fault: Fault, out: list[Instruction]) -> None:
        """Whatever waits in that shape fails, now and later."""
        assert isinstance(demand.key, tuple)
        head = kinds.PROCESS_BODY.pack(demand.key[1], 0)
        out.append(SendFault(demand.requester, kinds.SHAPE_REFUSED, head, fault))
        self.demands.cancel(demand.key)

    def _refuse_misfits(self, group: Group, out: list[Instruction]) -> None:
        """Who asked to be in the group before it was known, and is too large for it."""

    def _group_watched(self, event: ev.GroupWatched, out: list[Instruction]) -> None:
        self.groups.watch(event.group, event.process, out)

    def _end_groups_of(self, process: Process, driver_of: Job | None, out: list[Instruction]) -> None:
        """After a death: what is to end with that driver or with an actor that is dead."""
        if not self.groups.living:
            return
        self.groups.process_died(process)
        for group in list(self.groups.living.values()):
            if group.spec.detached:
                continue
            if group.actor:
                owner = self.actors.find(group.actor)
                is_over = owner is None or owner.stage is Stage.DEAD
            else:
                is_over = group.job not in self.jobs or (driver_of is not None and group.job == driver_of.id)
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
        nodes = self.cluster.nodes if self.cluster is not None else {self.own.number: self.own}
        return nodes[number].node_id if number in nodes else ""


def _is_in(strategy: Strategy, group: Group) -> bool:
    return strategy.get("kind") == "placement_group" and strategy.get("group") == group.id.hex()


def _conditions(strategy: Strategy) -> dict[str, object]:
    return {key: value for key, value in strategy.items() if key in ("labels", "hard") and value}
