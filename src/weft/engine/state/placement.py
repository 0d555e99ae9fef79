"""Placement groups: bundles of resources set aside together, and which node gets which bundle.

Pure: no I/O, no clock. `choose_nodes` is a function of bundles and nodes alone; `GroupTable` keeps every group's life
and says who is told. `bundles.BundlePools` sets the bundles aside on a node; `grouping` joins both to a node's state.

    PENDING -> CREATED -> REMOVED
       ^----------'  RESCHEDULING: a node with some of its bundles is gone, and these look for another

A group that no node can hold stays PENDING: a cluster may grow. A removed group is remembered among the last
`REMEMBERED`, so that what still wants to be in it is told why it cannot.

Invariants (`GroupTable.check`):
    GRP-1  every bundle of a CREATED group is on one node, no bundle of a PENDING or REMOVED one is on any.
    GRP-2  STRICT_PACK bundles share one node, no two STRICT_SPREAD bundles do.
    GRP-3  a name leads to a group that is not removed, and back.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence

from weft.engine.state.cluster import NodeView, matches_labels
from weft.engine.state.events import Process
from weft.engine.state.instructions import Instruction, KeepPromise, SendMessage
from weft.engine.state.resources import UNIT, Amounts, to_amounts, to_floats
from weft.engine.wire.messages import CreateGroup, GroupChanged

REMEMBERED = 10_000
STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")


class GroupState(enum.Enum):
    PENDING = "PENDING"
    CREATED = "CREATED"
    RESCHEDULING = "RESCHEDULING"
    REMOVED = "REMOVED"


class Group:
    """One placement group."""

    __slots__ = ("actor", "bundles", "creator", "id", "job", "nodes", "spec", "state", "watchers")

    def __init__(self, spec: CreateGroup, creator: Process, job: int, actor: bytes) -> None:
        self.id = spec.group
        self.spec = spec
        self.bundles: tuple[Amounts, ...] = tuple(to_amounts(bundle) for bundle in spec.bundles)
        self.creator = creator
        self.job = job
        self.actor = actor
        """The detached actor that created it and whose end is its end; empty: it ends with the job's driver."""
        self.state = GroupState.PENDING
        self.nodes: list[int | None] = [None] * len(self.bundles)
        """The node's number of each bundle that is set aside."""
        self.watchers: dict[Process, None] = {creator: None}

    @property
    def is_waiting(self) -> bool:
        return self.state in (GroupState.PENDING, GroupState.RESCHEDULING)

    def __str__(self) -> str:
        name = f" '{self.spec.name}'" if self.spec.name else ""
        return f"placement group{name} ({self.id.hex()[:8]})"

    def misfit(self, wanted: Amounts, index: int) -> str:
        """Why this can never be in the bundle (-1: in any of them); empty when it can."""
        if index >= len(self.bundles):
            return f"it asks for bundle {index} of {self}, which has {len(self.bundles)}"
        bundles = self.bundles if index < 0 else self.bundles[index : index + 1]
        if any(all(dict(bundle).get(name, 0) >= amount for name, amount in wanted) for bundle in bundles):
            return ""
        which = "no bundle" if index < 0 else f"not bundle {index}"
        asked = ", ".join(f"{amount / UNIT:g} {name}" for name, amount in wanted)
        return f"{which} of {self} can hold {asked}: the bundles are {[to_floats(bundle) for bundle in self.bundles]}"


class GroupTable:
    """All placement groups, living and lately removed."""

    def __init__(self) -> None:
        self.by_id: dict[bytes, Group] = {}
        self.names: dict[tuple[str, str], bytes] = {}
        self.living: dict[bytes, Group] = {}
        self._removed: dict[bytes, None] = {}
        self._early_watchers: dict[bytes, dict[Process, None]] = {}
        """Of groups not yet heard of: the asker was faster than the creator's message."""

    def create(self, spec: CreateGroup, creator: Process, job: int, actor: bytes = b"") -> Group | None:
        """The group to be placed; None when it is known already, or removed before it came."""
        if spec.group in self.by_id:
            return None
        group = Group(spec, creator, job, actor)
        group.watchers.update(self._early_watchers.pop(group.id, {}))
        self.by_id[group.id] = self.living[group.id] = group
        if spec.name:
            self.names.setdefault((spec.namespace, spec.name), group.id)
        return group

    def find_named(self, namespace: str, name: str) -> Group | None:
        return self.by_id.get(self.names.get((namespace, name), b""))

    def placed(self, group: Group, nodes: Sequence[int], out: list[Instruction], keeps_promise: bool = False) -> None:
        """All its bundles are set aside. A creator on this node is told by its promise, which wakes who waits."""
        group.nodes = list(nodes)
        was_new, group.state = group.state is GroupState.PENDING, GroupState.CREATED
        if keeps_promise and was_new and group.spec.promise and group.creator in group.watchers:
            out.append(KeepPromise(group.creator, group.spec.promise))
            self._tell(group, out, but=group.creator)
        else:
            self._tell(group, out)

    def node_died(self, node: int, out: list[Instruction]) -> list[Group]:
        """The groups that have lost bundles on it; `missing` says which of theirs must be placed again."""
        lost = []
        for group in self.living.values():
            if node in group.nodes:
                group.nodes = [None if where == node else where for where in group.nodes]
                group.state = GroupState.RESCHEDULING
                self._tell(group, out)
                lost.append(group)
        return lost

    def remove(self, group: Group, remover: Process, out: list[Instruction]) -> bool:
        """False when it was removed before. The remover knows; the other watchers are told."""
        if self.living.pop(group.id, None) is None:
            return False
        group.state = GroupState.REMOVED
        group.nodes = [None] * len(group.bundles)
        if self.names.get((group.spec.namespace, group.spec.name)) == group.id:
            del self.names[group.spec.namespace, group.spec.name]
        group.watchers.pop(remover, None)
        self._tell(group, out)
        group.watchers = {}
        self._removed[group.id] = None
        if len(self._removed) > REMEMBERED:
            oldest = next(iter(self._removed))
            del self._removed[oldest], self.by_id[oldest]
        return True

    def watch(self, group_id: bytes, process: Process, out: list[Instruction]) -> None:
        """Tell it now if there is something to tell, and from now on."""
        group = self.by_id.get(group_id)
        if group is None:
            self._early_watchers.setdefault(group_id, {})[process] = None
            return
        if group.state is not GroupState.REMOVED:
            group.watchers[process] = None
        if group.state is not GroupState.PENDING:
            out.append(SendMessage(process, GroupChanged(group.id, group.state.value)))

    def process_died(self, process: Process) -> None:
        for group in self.living.values():
            group.watchers.pop(process, None)
        for group_id in [key for key, watchers in self._early_watchers.items() if process in watchers]:
            del self._early_watchers[group_id][process]
            if not self._early_watchers[group_id]:
                del self._early_watchers[group_id]

    def _tell(self, group: Group, out: list[Instruction], but: Process | None = None) -> None:
        for process in group.watchers:
            if process != but:
                out.append(SendMessage(process, GroupChanged(group.id, group.state.value)))

    def check(self) -> None:
        """Assert the invariants."""
        for group in self.by_id.values():
            placed = [node for node in group.nodes if node is not None]
            if group.state is GroupState.CREATED:
                assert len(placed) == len(group.bundles), f"GRP-1: {group} is created with {group.nodes}"
            elif group.state is not GroupState.RESCHEDULING:
                assert not placed, f"GRP-1: {group} is {group.state} with {group.nodes}"
            if group.spec.strategy == "STRICT_PACK":
                assert len(set(placed)) <= 1, f"GRP-2: {group} is packed on {placed}"
            elif group.spec.strategy == "STRICT_SPREAD":
                assert len(set(placed)) == len(placed), f"GRP-2: {group} is spread over {placed}"
            assert (group.id in self.living) == (group.state is not GroupState.REMOVED), f"GRP-3: {group}"
        for (namespace, name), group_id in self.names.items():
            spec = self.living[group_id].spec
            assert (spec.namespace, spec.name) == (namespace, name), f"GRP-3: {name}"


# ---- which node gets which bundle ------------------------------------------------------------------

Free = dict[int, dict[str, int]]


def choose_nodes(group: Group, nodes: Sequence[NodeView], empty: bool = False) -> list[int] | None:
    """A node's number for each bundle, None when they do not fit (even if the nodes were `empty`).

    Bundles that are set aside already stay where they are. The nodes come in the order in which they are liked."""
    alive = [node for node in nodes if node.takes_work]
    label = group.spec.same_label
    if label:
        for value in dict.fromkeys(node.labels.get(label) for node in alive):
            same = [node for node in alive if node.labels.get(label) == value]
            if value is not None and (found := _choose(group, same, empty)) is not None:
                return found
        return None
    return _choose(group, alive, empty)


def _choose(group: Group, nodes: Sequence[NodeView], empty: bool) -> list[int] | None:
    free: Free = {node.number: dict(node.total if empty else node.available) for node in nodes}
    selectors = group.spec.labels
    missing = [index for index, node in enumerate(group.nodes) if node is None]
    if any(node is not None and node not in free for node in group.nodes):
        return None
    may: dict[int, list[int]] = {
        index: [
            node.number
            for node in nodes
            if not (index < len(selectors) and selectors[index]) or matches_labels(selectors[index], node.labels)
        ]
        for index in missing
    }
    missing.sort(key=lambda index: (-sum(amount for _, amount in group.bundles[index]), index))
    chosen: dict[int, int] = {index: node for index, node in enumerate(group.nodes) if node is not None}
    if empty:
        for index, node in chosen.items():  # they are not in the way of others, but of this group's own
            _take(free[node], group.bundles[index])
    pick = {
        "PACK": _pack,
        "STRICT_PACK": _strict_pack,
        "SPREAD": _spread,
        "STRICT_SPREAD": _strict_spread,
    }[group.spec.strategy]
    if not pick(group.bundles, missing, may, free, chosen):
        return None
    return [chosen[index] for index in range(len(group.bundles))]


Chosen = dict[int, int]
Bundles = Sequence[Amounts]


def _fits(free: Mapping[str, int], bundle: Amounts) -> bool:
    return all(free.get(name, 0) >= amount for name, amount in bundle)


def _take(free: dict[str, int], bundle: Amounts) -> None:
    for name, amount in bundle:
        free[name] -= amount


def _fill(bundles: Bundles, wanted: Iterable[int], may: dict[int, list[int]], node: int, free: Free) -> list[int]:
    """Those of the bundles that fit on the node together, taken in turn."""
    left = dict(free[node])
    fitting = []
    for index in wanted:
        if node in may[index] and _fits(left, bundles[index]):
            _take(left, bundles[index])
            fitting.append(index)
    return fitting


def _settle(bundles: Bundles, fitting: Iterable[int], node: int, free: Free, chosen: Chosen) -> None:
    for index in fitting:
        _take(free[node], bundles[index])
        chosen[index] = node


def _strict_pack(bundles: Bundles, missing: list[int], may: dict[int, list[int]], free: Free, chosen: Chosen) -> bool:
    for node in dict.fromkeys(chosen.values()) or free:
        fitting = _fill(bundles, missing, may, node, free)
        if len(fitting) == len(missing):
            _settle(bundles, fitting, node, free, chosen)
            return True
    return False


def _pack(bundles: Bundles, missing: list[int], may: dict[int, list[int]], free: Free, chosen: Chosen) -> bool:
    """Each time the node that takes most of what is left, so that few are used."""
    while missing:
        best = max(free, key=lambda node: len(_fill(bundles, missing, may, node, free)), default=None)
        fitting = _fill(bundles, missing, may, best, free) if best is not None else []
        if best is None or not fitting:
            return False
        _settle(bundles, fitting, best, free, chosen)
        missing = [index for index in missing if index not in chosen]
    return True


def _spread(bundles: Bundles, missing: list[int], may: dict[int, list[int]], free: Free, chosen: Chosen) -> bool:
    """Each bundle on the node that has fewest of them."""
    for index in missing:
        used = list(chosen.values())
        fitting = [node for node in may[index] if _fits(free[node], bundles[index])]
        if not fitting:
            return False
        _settle(bundles, [index], min(fitting, key=used.count), free, chosen)
    return True


def _strict_spread(bundles: Bundles, missing: list[int], may: dict[int, list[int]], free: Free, chosen: Chosen) -> bool:
    """A matching of bundles and nodes, by augmenting paths: found whenever there is one."""
    taken: dict[int, int] = {node: index for index, node in chosen.items()}
    fixed = set(chosen)

    def place(index: int, seen: set[int]) -> bool:
        for node in may[index]:
            if node in seen or not _fits(free[node], bundles[index]):
                continue
            seen.add(node)
            holder = taken.get(node)
            if holder is None or (holder not in fixed and place(holder, seen)):
                taken[node] = index
                chosen[index] = node
                return True
        return False

    return all(place(index, set()) for index in missing)
