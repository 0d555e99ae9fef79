"""Which nodes may serve a demand, and which it would rather have: what its strategy means here.

Pure: no I/O, no clock. It changes the demand alone; nothing is granted here.
"""

from __future__ import annotations

from collections.abc import Container

from weft.engine.state.bundles import BundlePools
from weft.engine.state.cluster import ClusterView, Strategy
from weft.engine.state.demands import Demand
from weft.engine.state.events import Process
from weft.engine.state.instructions import ErrorCode, Fault
from weft.engine.state.placement import Group, GroupState, GroupTable
from weft.engine.state.resources import Amounts, ResourcePool
from weft.engine.state.standing import Standing


def never(demand: Demand, text: str) -> Fault:
    """No node can ever serve it."""
    return Fault(ErrorCode.ACTOR_UNSCHEDULABLE if demand.is_actor else ErrorCode.UNSCHEDULABLE, text)


class Settling:
    """What may be placed here at all."""

    def __init__(
        self,
        standing: Standing,
        resources: ResourcePool,
        groups: GroupTable,
        bundles: BundlePools,
        guests: Container[Process],
    ) -> None:
        self._standing = standing
        self._resources = resources
        self._groups = groups
        self._bundles = bundles
        self._guests = guests

    def misfit(self, amounts: Amounts) -> str:
        """Why it can never be placed; a cluster may grow, so there it can."""
        is_final = self._standing.cluster is None and not self._standing.waits_alone
        return self._resources.misfit(amounts) if is_final else ""

    def with_memory_there_is(self, amounts: Amounts) -> Amounts:
        """What a soft need of memory comes to."""
        cluster = self._standing.cluster
        views = [] if cluster is None else cluster.nodes.values()
        most = max([self._resources.total.get("memory", 0), *(view.total.get("memory", 0) for view in views)])
        limited = [(name, min(amount, most) if name == "memory" else amount) for name, amount in amounts]
        return tuple((name, amount) for name, amount in limited if amount)

    def place(self, demand: Demand, strategy: Strategy, what: str = "the task") -> Fault | None:
        """Note whether this node may serve it; why none can, for good."""
        if (fault := self.group(demand, strategy)) is not None:
            return fault
        cluster = self._standing.cluster
        if cluster is None:
            refusal = self._refusal_alone(demand.need, strategy)
            return never(demand, f"{what} cannot be placed: {refusal}.") if refusal else None
        if isinstance(demand.key, tuple) and demand.key[0] in self._guests:
            return None
        demand.strategy = strategy
        if demand.group:
            return None
        demand.is_local = cluster.may_serve_here(demand.need, strategy)
        if strategy.get("kind") == "spread" and len(cluster.nodes) > 1:
            demand.away = 1 << 30  # until it is planned
        refusal = cluster.refusal(demand.need, strategy)
        return never(demand, f"{what} cannot be placed: {refusal}.") if refusal else None

    def in_vain(self, demand: Demand, what: str = "the task") -> Fault | None:
        """Why what has been waiting can be placed no more."""
        cluster = self._standing.cluster
        if cluster is None or demand.group or not (why := cluster.is_bound_in_vain(demand.strategy)):
            return None
        return never(demand, f"{what} cannot be placed: {why}.")

    def group(self, demand: Demand, strategy: Strategy) -> Fault | None:
        """Note what a strategy says about groups and priority; why the demand cannot be, if so."""
        demand.priority = int(strategy.get("priority", 0))
        if strategy.get("kind") != "placement_group":
            return None
        demand.group = bytes.fromhex(str(strategy["group"]))
        demand.captures = bool(strategy.get("capture_child_tasks"))
        index = demand.bundle = int(strategy.get("bundle", -1))
        if (group := self._groups.by_id.get(demand.group)) is not None:
            what = "actor" if demand.is_actor else "the task"
            if group.state is GroupState.REMOVED:
                code = ErrorCode.ACTOR_GROUP_REMOVED if demand.is_actor else ErrorCode.GROUP_REMOVED
                return Fault(code, f"{what} cannot run: its {group} was removed.")
            if why := group.misfit(demand.need, index):
                return never(demand, f"{what} can never be placed: {why}.")
        demand.draws_from = self._bundles.list_of(demand.group, index)
        return None

    def _refusal_alone(self, need: Amounts, strategy: Strategy) -> str:
        """Why this node, alone as it is, can never be the one that is meant."""
        if not strategy:
            return ""
        own = self._standing.own
        if not ClusterView(own).allowed((), strategy):
            if strategy.get("kind") == "node_affinity":
                return f"the node {strategy['node_id']} that it is bound to is not alive"
            return f"its labels {_conditions(strategy)} do not match those of the only node, {dict(own.labels)}"
        if strategy.get("fail_on_unavailable") and (short := self._resources.shortage(need)):
            return f"the node that it is bound to has no {' and no '.join(short)} free, and it is not to wait"
        return ""


def is_in(strategy: Strategy, group: Group) -> bool:
    return strategy.get("kind") == "placement_group" and strategy.get("group") == group.id.hex()


def never_placed(what: str, why: str) -> str:
    """The reason, with what can be done."""
    return f"{what} can never be placed: {why}. Ask for less, or start the node with more (see weft.init)."


def _conditions(strategy: Strategy) -> dict[str, object]:
    return {key: value for key, value in strategy.items() if key in ("labels", "fallbacks", "hard") and value}
