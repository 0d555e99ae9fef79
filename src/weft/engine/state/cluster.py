"""What a node knows of the others, and which of them it asks for what it cannot take itself.

Pure: no I/O, no clock. Every node has the whole picture, from the others' reports, and so is a global scheduler of its
own. A report may be old by the time it is used: then what was asked for waits in the other node's queue, and the next
report lets it be asked for elsewhere.

>>> matches_labels({"zone": "in(a,b)", "disk": "!hdd"}, {"zone": "a"})
True
"""

from __future__ import annotations

import heapq
import itertools
import json
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from weft.engine.state.resources import CPU, UNIT, Amounts

Strategy = Mapping[str, "str | int | bool"]
Free = dict[int, dict[str, int]]
_MANY = 1 << 30
LOOKED_AT = 256

NODE_ID_LABEL = "ray.io/node-id"


def id_labels(node_id: str) -> dict[str, str]:
    """The labels by which every node is found: its id, by the name of Ray's today and by the one before."""
    return {NODE_ID_LABEL: node_id, "ray.io/node_id": node_id}


class NodeView:
    """One node, as its last report has it. Amounts are in 1/10,000."""

    __slots__ = ("available", "is_alive", "is_draining", "labels", "node_id", "number", "queued", "total")

    def __init__(self, number: int, node_id: str, labels: Mapping[str, str], total: Mapping[str, int]) -> None:
        self.number = number
        self.node_id = node_id
        self.labels = {**id_labels(node_id), **labels}
        self.total = dict(total)
        self.available = dict(total)
        self.queued = 0
        self.is_alive = True
        self.is_draining = False
        """It takes no new work and leaves when what it has is done or has moved."""

    def name(self, node_id: str, labels: Mapping[str, str]) -> None:
        """Its id and labels, when they are known later."""
        self.node_id = node_id
        self.labels = {**id_labels(node_id), **labels}

    @property
    def takes_work(self) -> bool:
        return self.is_alive and not self.is_draining

    def could_hold(self, need: Amounts) -> bool:
        return all(self.total.get(name, 0) >= amount for name, amount in need)


class NodeViews(dict[int, NodeView]):
    """Nodes by number. Knows which may have CPUs free, so that planning in a large, busy cluster looks at few."""

    def __init__(self) -> None:
        super().__init__()
        self.roomy: dict[int, NodeView] = {}
        """All but those whose last report says that no CPU is free."""
        self._largest = 0

    def __setitem__(self, number: int, view: NodeView) -> None:
        super().__setitem__(number, view)
        self._largest = max(self._largest, number)
        self.roomy[number] = view

    def pop(self, number: int, *default: Any) -> Any:
        self.roomy.pop(number, None)
        return super().pop(number, *default)

    def after(self, own: int, with_cpus: bool) -> list[int]:
        """The nodes to look at for one that plans, those next to it in number first, so that not all take the same.

        At most `LOOKED_AT`: the others' turn comes when these are taken."""
        near = self.roomy if with_cpus else self
        if len(near) <= LOOKED_AT:
            return sorted((number for number in near if number != own), key=lambda number: (number < own, number))
        found: list[int] = []
        for number in itertools.chain(range(own + 1, self._largest + 1), range(own)):
            if number in near:
                found.append(number)
                if len(found) == LOOKED_AT:
                    break
        return found

    def taken(self, number: int, need: Amounts) -> None:
        """That node has given so much to this one: it is not free there, though no report has said so yet."""
        if (view := self.get(number)) is not None:
            for name, amount in need:
                view.available[name] = view.available.get(name, 0) - amount
            if view.available.get(CPU, 0) <= 0:
                self.roomy.pop(number, None)

    def reported(self, view: NodeView, available: dict[str, int], queued: int) -> bool:
        """A report came. Whether there may be room now that there was not before."""
        has_grown = not view.is_alive or any(amount > view.available.get(name, 0) for name, amount in available.items())
        view.available, view.queued, view.is_alive = available, queued, True
        if available.get(CPU, 0) > 0:
            self.roomy[view.number] = view
        else:
            self.roomy.pop(view.number, None)
        return has_grown


class _FreeNow(dict[int, dict[str, int]]):
    """What is free on each node, copied when it is first looked at."""

    def __init__(self, nodes: Mapping[int, NodeView]) -> None:
        super().__init__()
        self._nodes = nodes

    def __missing__(self, number: int) -> dict[str, int]:
        copied = self[number] = dict(self._nodes[number].available)
        return copied


class ClusterView:
    """All nodes that can be asked, this one included."""

    def __init__(self, own: NodeView) -> None:
        self.own = own
        self.nodes = NodeViews()
        self.nodes[own.number] = own
        self._turn = 0

    def may_serve_here(self, need: Amounts, strategy: Strategy) -> bool:
        """Whether this node is one of those that may ever serve it."""
        if _is_plain(strategy):
            return self.own.takes_work and self.own.could_hold(need)
        return self.own.number in self.allowed(need, strategy)

    def may_serve_near(self, number: int, need: Amounts, strategy: Strategy) -> bool:
        """Whether that node is one of those that may ever serve it, so that it matters which inputs it has."""
        if _is_plain(strategy):
            view = self.nodes.get(number)
            return view is not None and view.takes_work and view.could_hold(need)
        return strategy.get("kind") != "spread" and number in self.allowed(need, strategy)

    def allowed(self, need: Amounts, strategy: Strategy) -> list[int]:
        """The nodes that may ever serve it, the preferred ones alone where there are such."""
        nodes = [node for node in self.nodes.values() if node.takes_work and node.could_hold(need)]
        kind = strategy.get("kind")
        if kind == "node_affinity":
            meant = [node.number for node in nodes if node.node_id == strategy["node_id"]]
            spills = strategy.get("spill_on_unavailable")
            if spills:
                meant = [number for number in meant if _fits(self.nodes[number].available, need, 1)]
            if meant or not (strategy.get("soft") or spills):
                return meant
        elif kind == "node_label":
            nodes = [node for node in nodes if _fulfils(str(strategy.get("hard", "{}")), node.labels)]
            preferred = [node for node in nodes if _fulfils(str(strategy.get("soft_labels", "{}")), node.labels)]
            nodes = preferred or nodes
        if (selector := strategy.get("labels")) is not None:
            selectors = [json.loads(str(selector)), *json.loads(str(strategy.get("fallbacks", "[]")))]
            nodes = next(filter(None, ([n for n in nodes if matches_labels(s, n.labels)] for s in selectors)), [])
        return [node.number for node in nodes]

    def refusal(self, need: Amounts, strategy: Strategy) -> str:
        """Why it can never be placed in this cluster, however it grows; empty when it may."""
        if why := self.is_bound_in_vain(strategy):
            return why
        if strategy.get("kind") == "node_affinity" and strategy.get("fail_on_unavailable") and not strategy.get("soft"):
            meant = next(node for node in self.nodes.values() if node.node_id == strategy["node_id"])
            if short := [name for name, amount in need if meant.available.get(name, 0) < amount]:
                return f"the node that it is bound to has no {' and no '.join(short)} free, and it is not to wait"
        return ""

    def is_bound_in_vain(self, strategy: Strategy) -> str:
        """Whether the one node that it may run on is gone, or about to: how so. Empty when it is not."""
        if strategy.get("kind") != "node_affinity" or strategy.get("soft"):
            return ""
        meant = next((node for node in self.nodes.values() if node.node_id == strategy["node_id"]), None)
        if meant is None:
            return f"the node {strategy['node_id']} that it is bound to is not alive"
        if meant.is_draining:
            return f"the node {strategy['node_id']} that it is bound to is being drained and takes no new work"
        return ""

    def free(self) -> Free:
        """What is free where, to be used up while planning."""
        return _FreeNow(self.nodes)

    def room(self, need: Amounts, free: Free) -> int:
        """How many of it fit into what is free in the whole cluster."""
        return sum(_fits(free[node.number], need, _MANY) for node in self.nodes.values() if node.takes_work)

    def plan(
        self,
        need: Amounts,
        wanted: int,
        strategy: Strategy,
        asked: Mapping[int, int],
        free: Free,
        share: int = _MANY,
        has_waited: bool = False,
        near: Mapping[int, int] = MappingProxyType({}),
        is_full: bool = False,
    ) -> tuple[dict[int, int], bool, int]:
        """How many to ask each other node for, whether this one may serve it too, and how many are left to others.

        `asked` is what has been asked for and not been granted. What is planned is taken from `free`, at most `share`
        of it: other jobs wait, too. What `has_waited` also queues where nothing is free, though this node could serve
        it: there leases are asked back for it, so that a job is not left with the share of one node. `near` says how
        many would rather be on which node, for the bytes that are there: if it has room, they are asked for there.
        `is_full`: it needs a process, and this node has no room for one, whatever else is free here."""
        chosen = self._near(need, wanted, asked, free, share, near) if near else {}
        if chosen:
            away = sum(chosen.values())
            still = {number: count - chosen.get(number, 0) for number, count in asked.items()}
            rest, can_here, _ = self.plan(need, wanted - away, strategy, still, free, share - away, has_waited)
            return {n: chosen.get(n, 0) + rest.get(n, 0) for n in {*chosen, *rest}}, can_here, away
        if _is_plain(strategy) and self.own.takes_work and self.own.could_hold(need):
            here = 0 if is_full else _take(free[self.own.number], need, min(wanted, share))
            return self._plan_anywhere(need, wanted, asked, free, share, has_waited, here), True, 0
        allowed = self.allowed(need, strategy)
        others = [number for number in allowed if number != self.own.number]
        is_local = self.own.number in allowed
        if strategy.get("kind") == "spread" and others:
            return self._spread(wanted, allowed, asked, is_local)
        taken = _take(free[self.own.number], need, min(wanted, share)) if is_local and not is_full else 0
        left = wanted - taken
        plan: dict[int, int] = {}
        if min(left, share - taken) > 0 and others:
            left -= self._ask_where_free(need, min(left, share - taken), others, free, plan)
        for number in others:  # what waits there may go on waiting
            if (waiting := min(left, asked.get(number, 0) - plan.get(number, 0))) > 0:
                plan[number] = plan.get(number, 0) + waiting
                left -= waiting
        if left > 0 and others and (has_waited or not is_local):
            self._queue_on(others, left, plan)
        return plan, is_local, 0

    def _near(
        self, need: Amounts, wanted: int, asked: Mapping[int, int], free: Free, share: int, near: Mapping[int, int]
    ) -> dict[int, int]:
        """How many of those that would rather be elsewhere have room there."""
        chosen: dict[int, int] = {}
        left = min(wanted, share)
        for number, count in near.items():
            view = self.nodes.get(number)
            if number == self.own.number or view is None or not view.takes_work:
                continue
            if (most := min(count, left, asked.get(number, 0) + _fits(free[number], need, _MANY))) > 0:
                _take(free[number], need, most)
                chosen[number] = most
                left -= most
        return chosen

    def _queue_on(self, others: list[int], left: int, plan: dict[int, int]) -> None:
        """Evenly, though nothing is free there."""
        others.sort(key=lambda number: self.nodes[number].queued)
        for index, number in enumerate(others):
            if count := left // len(others) + (index < left % len(others)):
                plan[number] = plan.get(number, 0) + count

    def _plan_anywhere(
        self, need: Amounts, wanted: int, asked: Mapping[int, int], free: Free, share: int, has_waited: bool, taken: int
    ) -> dict[int, int]:
        """The same for what any node may serve, this one too (`taken`): looks at no node without room."""
        left = wanted - taken
        plan: dict[int, int] = {}
        if min(left, share - taken) > 0:
            near = self.nodes.after(self.own.number, any(name == CPU for name, _ in need))
            others = [
                number for number in near if self.nodes[number].takes_work and self.nodes[number].could_hold(need)
            ]
            left -= self._ask_where_free(need, min(left, share - taken), others, free, plan)
        for number, count in asked.items():  # what waits there may go on waiting
            view = self.nodes.get(number)
            if left > 0 and view is not None and view.takes_work and count > plan.get(number, 0):
                waiting = min(left, count - plan.get(number, 0))
                plan[number] = plan.get(number, 0) + waiting
                left -= waiting
        if left > 0 and has_waited:
            all_near = self.nodes.after(self.own.number, with_cpus=False)
            usable = [n for n in all_near if self.nodes[n].takes_work and self.nodes[n].could_hold(need)]
            self._queue_on(usable, left, plan)
        return plan

    def _ask_where_free(self, need: Amounts, left: int, others: Iterable[int], free: Free, plan: dict[int, int]) -> int:
        """One at a time from where most is free; how many in all."""
        room = [
            (-fitting, self.nodes[number].queued, order, number)
            for order, number in enumerate(others)
            if (fitting := _fits(free[number], need, _MANY)) > 0
        ]
        heapq.heapify(room)
        total = 0
        while total < left and room:
            fitting, queued, order, number = room[0]
            plan[number] = plan.get(number, 0) + 1
            total += 1
            if fitting < -1:
                heapq.heapreplace(room, (fitting + 1, queued, order, number))
            else:
                heapq.heappop(room)
        for number, count in plan.items():
            _take(free[number], need, count)
        return total

    def _spread(
        self, wanted: int, allowed: list[int], asked: Mapping[int, int], is_local: bool
    ) -> tuple[dict[int, int], bool, int]:
        """Evenly, beginning with another node each time; what has been asked for stays where it is."""
        plan = {number: count for number, count in asked.items() if number in allowed and count}
        fresh = wanted - sum(plan.values())
        while fresh < 0:
            number = max(plan, key=lambda number: plan[number])
            plan[number] -= 1
            fresh += 1
        if not plan:
            for _ in range(fresh):
                self._turn += 1
                number = allowed[self._turn % len(allowed)]
                plan[number] = plan.get(number, 0) + 1
        plan.pop(self.own.number, None)
        return plan, is_local, sum(plan.values())


def _is_plain(strategy: Strategy) -> bool:
    """Whether it says nothing about which node is meant."""
    return strategy.get("kind", "default") == "default" and "labels" not in strategy


def _fits(free: Mapping[str, int], need: Amounts, most: int) -> int:
    """How many of it fit into what is free."""
    return max(0, min([most, *(free.get(name, 0) // amount for name, amount in need if amount)]))


def _take(free: dict[str, int], need: Amounts, most: int) -> int:
    count = _fits(free, need, most)
    for name, amount in need:
        free[name] = free.get(name, 0) - amount * count
    return count


def _fulfils(conditions: str, labels: Mapping[str, str]) -> bool:
    """Conditions as scheduling_strategies writes them: {key: [word, values]}."""
    for key, (word, values) in json.loads(conditions).items():
        has = key in labels
        is_in = has and labels[key] in values
        if not {"in": is_in, "not_in": not is_in, "exists": has, "does_not_exist": not has}[word]:
            return False
    return True


def matches_labels(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """A label selector: {key: "value", "!value", "in(a,b)" or "!in(a,b)"}."""
    for key, condition in selector.items():
        negated = condition.startswith("!")
        text = condition.removeprefix("!")
        values = [value.strip() for value in text[3:-1].split(",")] if text.startswith("in(") else [text]
        if (labels.get(key) in values) == negated:
            return False
    return True


def no_node_can(what: str, need: Amounts, strategy: Strategy, nodes: Mapping[int, NodeView]) -> str:
    """The warning for work that no node of the cluster, as it is now, can ever hold."""
    wanted = ", ".join(f"{amount / UNIT:g} {name}" for name, amount in need) or "nothing"
    bound = f" with {dict(strategy)}" if strategy else ""
    largest = "; ".join(
        f"node {node.node_id[:8]} has " + ", ".join(f"{node.total.get(name, 0) / UNIT:g} {name}" for name, _ in need)
        for node in nodes.values()
        if node.is_alive
    )
    return (
        f"{what} waits for a node that does not exist: it asks for {wanted}{bound}, and no node can hold that "
        f"({largest}). It will run once such a node joins; otherwise ask for less."
    )
