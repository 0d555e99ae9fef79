"""Why work waits: which resource is missing on which node, and what a larger cluster would need.

Pure. For `weft status` and for whoever makes a cluster larger; the scheduler itself does not ask here.

>>> views = [NodeView(0, "n0", {}, {"CPU": 2 * UNIT})]
>>> why_waiting((("CPU", 4 * UNIT),), {}, views)[0].why
'it has 2 CPU in all, and 4 are wanted'
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from weft.engine.state.cluster import ClusterView, NodeView, Strategy
from weft.engine.state.demands import Demand, DemandQueue
from weft.engine.state.events import Process
from weft.engine.state.placement import Group, choose_nodes
from weft.engine.state.resources import UNIT, Amounts, to_floats, total_of

NEVER, LATER, NOW = "never", "later", "now"
MOST_NODES_TOLD = 4
_BYTES = ("memory", "object_store_memory")


class Shortage(msgspec.Struct, frozen=True):
    """Why one node does not take it now."""

    node_id: str
    fits: str
    """"never" as the node is, "later" when others have given back what they hold, "now" when it is its turn."""
    why: str
    missing: dict[str, float] = {}
    """How much more of each resource would have to be free there."""


class DemandRow(msgspec.Struct, frozen=True):
    """Work of one kind that waits, all of it together."""

    kind: str
    """"task", "actor" or "placement group"."""
    resources: dict[str, float]
    """Of one; of a placement group the sum of its bundles."""
    count: int
    """How many workers are asked for, about: a process asks for as many as it has tasks, up to a bound."""
    job: int
    waits_s: int
    """How long the oldest of them has waited, in seconds; about."""
    strategy: dict[str, str | int | bool]
    fits: str
    """The best that any node can do: "never" means that the cluster must grow."""
    nodes: list[Shortage]
    bundles: list[dict[str, float]] = []


def why_waiting(need: Amounts, strategy: Strategy, views: Iterable[NodeView]) -> list[Shortage]:
    """For each living node."""
    return [_why_on(view, need, strategy) for view in views if view.is_alive]


def _why_on(view: NodeView, need: Amounts, strategy: Strategy) -> Shortage:
    if view.is_draining:
        return Shortage(view.node_id, NEVER, "it is being drained and takes no new work")
    if not ClusterView(view).allowed((), strategy):
        if strategy.get("kind") == "node_affinity":
            return Shortage(view.node_id, NEVER, f"it is bound to node {str(strategy.get('node_id'))[:8]}")
        return Shortage(view.node_id, NEVER, "its labels are not the ones that are asked for")
    for kind, has, words in ((NEVER, view.total, "has {} {} in all"), (LATER, view.available, "has {} {} free")):
        short = [(name, amount) for name, amount in need if has.get(name, 0) < amount]
        if short:
            texts = [f"{words.format(_shown(n, has.get(n, 0)), n)}, and {_shown(n, a)} are wanted" for n, a in short]
            missing = {name: (amount - max(0, has.get(name, 0))) / UNIT for name, amount in short}
            return Shortage(view.node_id, kind, f"it {'; it '.join(texts)}", missing)
    return Shortage(view.node_id, NOW, "there is room: it waits for its turn, or for a worker to start")


def _shown(name: str, amount: int) -> str:
    value = max(0, amount) / UNIT
    return f"{value / (1 << 30):.2f} GiB" if name in _BYTES else f"{value:g}"


def asked(need: Amounts) -> str:
    return ", ".join(f"{_shown(name, amount)} {name}" for name, amount in need) or "nothing"


def reason(need: Amounts, strategy: Strategy, views: Sequence[NodeView]) -> str:
    """What it asks for and what of it is missing where, for a person.

    >>> reason((("CPU", 4 * UNIT),), {}, [NodeView(0, "n0", {}, {"CPU": 2 * UNIT})])
    'it asks for 4 CPU, which no node can ever hold as the cluster is; node n0: it has 2 CPU in all, and 4 are wanted'
    """
    wanted = asked(need)
    if group := strategy.get("group"):
        return f"it asks for {wanted}: {_in_group(str(group))}"
    return _told(f"it asks for {wanted}", why_waiting(need, strategy, views))


def is_impossible(need: Amounts, strategy: Strategy, views: Sequence[NodeView]) -> bool:
    """Whether no node can ever hold it as the cluster is."""
    return best_of(why_waiting(need, strategy, views)) == NEVER


def group_reason(group: Group, views: Sequence[NodeView]) -> str:
    """The same of a placement group that waits: of the largest bundle without a place."""
    row = _group_row(group, views)
    bundles = "; ".join(", ".join(f"{amount:g} {name}" for name, amount in one.items()) for one in row.bundles)
    wanted = f"{len(row.bundles)} of its bundles have no place ({bundles}), strategy {group.spec.strategy}"
    return _told(wanted, row.nodes, row.fits)


def _told(wanted: str, nodes: Sequence[Shortage], fits: str = "") -> str:
    never = ", which no node can ever hold as the cluster is" if (fits or best_of(nodes)) == NEVER else ""
    parts = [f"node {one.node_id[:8]}: {one.why}" for one in nodes[:MOST_NODES_TOLD]]
    if len(nodes) > MOST_NODES_TOLD:
        parts.append(f"and {len(nodes) - MOST_NODES_TOLD} more nodes")
    return "; ".join([wanted + never, *parts])


def _in_group(group: str) -> str:
    return f"it waits for room in its placement group {group[:8]}, or for that to be placed"


def best_of(rows: Sequence[Shortage]) -> str:
    found = {row.fits for row in rows}
    return next((fits for fits in (NOW, LATER) if fits in found), NEVER)


def demand_rows(demands: DemandQueue, guests: Mapping[Process, int], views: Sequence[NodeView]) -> list[DemandRow]:
    """What waits of this node's own processes and actors, one row a shape; what others ask for is theirs to report."""
    rows: dict[tuple[object, ...], list[Demand]] = {}
    for demand in demands.by_key.values():
        if isinstance(demand.key, str) or not demand.wanted:
            continue
        if isinstance(demand.key, tuple) and (demand.key[0] in guests or demand.is_actor):
            continue
        shape = (demand.is_actor, demand.need, demand.job, tuple(sorted(demand.strategy.items())), demand.group)
        rows.setdefault(shape, []).append(demand)
    return [_row(alike, views) for alike in rows.values()]


def _row(alike: list[Demand], views: Sequence[NodeView]) -> DemandRow:
    first = alike[0]
    if first.group:
        text = _in_group(first.group.hex())
        nodes = [Shortage(view.node_id, LATER, text) for view in views if view.is_alive]
    else:
        nodes = why_waiting(first.need, first.strategy, views)
    return DemandRow(
        "actor" if first.is_actor else "task",
        to_floats(first.need),
        sum(demand.wanted for demand in alike),
        first.job,
        max(demand.age for demand in alike),
        dict(first.strategy),
        best_of(nodes),
        nodes,
    )


def group_rows(groups: Iterable[Group], views: Sequence[NodeView]) -> list[DemandRow]:
    """The placement groups that wait."""
    return [_group_row(group, views) for group in groups if group.is_waiting]


def _group_row(group: Group, views: Sequence[NodeView]) -> DemandRow:
    missing = [bundle for bundle, node in zip(group.bundles, group.nodes, strict=True) if node is None]
    fits = LATER if choose_nodes(group, views, empty=True) is not None else NEVER
    largest = max(missing, key=lambda bundle: sum(amount for _, amount in bundle), default=())
    return DemandRow(
        "placement group",
        to_floats(total_of(missing)),
        1,
        group.job,
        0,
        {"kind": group.spec.strategy},
        fits,
        why_waiting(largest, {}, views),
        [to_floats(bundle) for bundle in missing],
    )
