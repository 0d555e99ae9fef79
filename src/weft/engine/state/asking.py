"""Asks other nodes for what this one cannot give: leases for its processes, and (on the head) places for actors.

Pure: no I/O, no clock; what is to be sent goes to the callables that it is given. `cluster` decides whom to ask.
A lease is asked for in the name of the process that will hold it, with what the process itself would say to its own
daemon; only grants come back through here.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import TypeAlias

import msgspec

from weft.engine.state import events as ev
from weft.engine.state.cluster import ClusterView, Free, no_node_can
from weft.engine.state.demands import Demand, DemandKey
from weft.engine.state.events import Process
from weft.engine.state.node import NodeState
from weft.engine.state.placement import Group, GroupState
from weft.engine.state.resources import to_floats
from weft.engine.state.stuck import WARN_AFTER_TICKS
from weft.engine.wire import link_messages as lm
from weft.engine.wire.messages import DefineShape, Warn

_MANY = 1 << 30
QUEUES_ELSEWHERE_TICKS = 1
"""Who has waited so long without a grant also queues on nodes where nothing is free."""
FIRST_WINDOW = 8


class AskLeases(msgspec.Struct, frozen=True):
    """So many more leases are wanted now; the newest counts."""

    shape: int
    wanted: int
    is_patient: bool
    """Who asks has some on its own node and takes none away from others."""


Ask: TypeAlias = DefineShape | AskLeases
SayAs: TypeAlias = Callable[[int, Process, Ask], bool]
"""(node, process, what): to that node's daemon in the process's name; False when it cannot be reached."""


class Asking:
    """What is asked for, where."""

    def __init__(
        self,
        state: NodeState,
        feed: Callable[[ev.Event], None],
        say_as: SayAs,
        send: Callable[[int, lm.LinkMessage], bool],
        tell_job: Callable[[int, int], None],
        warn: Callable[[Process, Warn], None],
    ) -> None:
        self._state = state
        self._feed = feed
        self._say_as = say_as
        self._send = send
        self._tell_job = tell_job
        self._warn = warn
        self.asked: dict[DemandKey, dict[int, int]] = {}
        self._defined: dict[Process, set[tuple[int, int]]] = {}
        """(node, shape) of which that node was told, by the process whose shape it is."""
        self._places: dict[int, tuple[bytes, int]] = {}
        """(actor, node) by the number of what is asked."""
        self._numbers = itertools.count(1)
        self.creating: dict[bytes, Process] = {}
        """Actors whose creation is on its way to a worker elsewhere."""
        self._granted: dict[DemandKey, int] = {}
        """How many other nodes have given it since it began to wait."""
        self._warned: dict[Process | bytes | str, set[DemandKey]] = {}
        """By whose they are: a process's or their own."""
        self._patient: set[DemandKey] = set()
        """Those that hold something here: the other nodes have been told so."""

    def plan(self) -> None:
        """Ask for what waits now; take back what is no longer wanted."""
        view = self._state.cluster
        if view is None:
            return
        view.own.available = self._state.resources.available
        free = view.free()
        has_changed = False
        wanted: set[DemandKey] = set()
        waiting = sorted(self._waiting(), key=lambda demand: (demand.rank_of_priority, demand.order))
        unserved = {demand.job for demand in waiting}
        for demand in waiting:
            wanted.add(demand.key)
            plan, is_local, away = self._plan_one(view, demand, free, unserved)
            has_changed |= (is_local, away) != (demand.is_local, demand.away)
            demand.is_local, demand.away = is_local, away
            self._ask(demand, plan)
            if not is_local and not plan:
                self._warn_of_no_node(view, demand)
        for key in [key for key in self.asked if key not in wanted]:
            self._withdraw(key)
        for key in [key for key in self._granted if key not in wanted]:
            del self._granted[key]
        if has_changed:
            self._feed(ev.NodesChanged())

    def _plan_one(
        self, view: ClusterView, demand: Demand, free: Free, unserved: set[int]
    ) -> tuple[dict[int, int], bool, int]:
        """`unserved` are the jobs that nothing has been planned for yet; what is free is shared with them."""
        if demand.group:
            return _plan_in_group(demand, self._state.groups.by_id.get(demand.group), view.own.number)
        share = -(-view.room(demand.need, free) // len(unserved)) if len(unserved) > 1 else _MANY
        unserved.discard(demand.job)
        return view.plan(
            demand.need,
            min(demand.wanted, self._window(demand)),
            demand.strategy,
            self.asked.get(demand.key, {}),
            free,
            share,
            has_waited=demand.age >= QUEUES_ELSEWHERE_TICKS,
            near=demand.near if demand.age < 1 else {},
            is_full=demand.is_actor and self._state.workers.full_ticks > 0,
        )

    def _warn_of_no_node(self, view: ClusterView, demand: Demand) -> None:
        if demand.age < WARN_AFTER_TICKS:
            return
        warned = self._warned.setdefault(demand.key[0] if isinstance(demand.key, tuple) else demand.key, set())
        if demand.key not in warned:
            warned.add(demand.key)
            what = "an actor" if isinstance(demand.key, bytes) else "a task"
            text = no_node_can(what, demand.need, demand.strategy, view.nodes)
            self._warn(self._state.jobs[demand.job].driver, Warn(text))

    def _window(self, demand: Demand) -> int:
        """How many may be asked for and not granted: reports are old, and all nodes may have seen the same one.

        Each grant makes it one larger, so it doubles with every round while there is room."""
        if demand.strategy.get("kind") == "spread":
            return demand.wanted
        return FIRST_WINDOW + self._granted.get(demand.key, 0)

    def _waiting(self) -> list[Demand]:
        """The demands of this node's own processes and actors that want more."""
        return [
            demand
            for demand in self._state.demands.wanting()
            if not isinstance(demand.key, str)
            and demand.key not in self.creating
            and (isinstance(demand.key, bytes) or demand.key[0] not in self._state.guests)
            and not (demand.is_actor and isinstance(demand.key, tuple))
        ]

    def _ask(self, demand: Demand, plan: dict[int, int]) -> None:
        before = self.asked.get(demand.key, {})
        has_turned = bool(before) and demand.held > 0 and demand.key not in self._patient
        if plan == before and not has_turned:
            return
        if demand.held:
            self._patient.add(demand.key)
        else:
            self._patient.discard(demand.key)
        for node in {*plan, *before}:
            count = plan.get(node, 0)
            if count != before.get(node, 0) or has_turned:
                ask = self._ask_place if isinstance(demand.key, bytes) else self._ask_leases
                if not ask(demand, node, count):
                    plan.pop(node, None)  # there is no link to it now; the next plan tries again
        if plan:
            self.asked[demand.key] = plan
        else:
            self.asked.pop(demand.key, None)

    def _ask_leases(self, demand: Demand, node: int, count: int) -> bool:
        assert isinstance(demand.key, tuple)
        process, shape = demand.key
        defined = self._defined.setdefault(process, set())
        if (node, shape) not in defined:
            defined.add((node, shape))
            strategy = _what_matters_there(demand)
            definition = DefineShape(shape, to_floats(demand.need), demand.runtime_env, strategy)
            if not self._say_as(node, process, definition):
                defined.discard((node, shape))
                return False
        return self._say_as(node, process, AskLeases(shape, count, bool(demand.held)))

    def _ask_place(self, demand: Demand, node: int, count: int) -> bool:
        assert isinstance(demand.key, bytes)
        if count == 0:
            for number in [n for n, (actor, at) in self._places.items() if (actor, at) == (demand.key, node)]:
                del self._places[number]
                self._send(node, lm.WantPlace(number, demand.job, [], [], "", 0))
            return True
        number = next(self._numbers)
        self._places[number] = (demand.key, node)
        self._tell_job(node, demand.job)
        is_sent = self._send(
            node,
            lm.WantPlace(
                number,
                demand.job,
                list(demand.need),
                list(demand.hold),
                demand.runtime_env,
                1,
                _what_matters_there(demand),
            ),
        )
        if not is_sent:
            del self._places[number]
        return is_sent

    def _withdraw(self, key: DemandKey) -> None:
        self._patient.discard(key)
        for node in self.asked.pop(key):
            if isinstance(key, bytes):
                for number in [n for n, (actor, at) in self._places.items() if (actor, at) == (key, node)]:
                    del self._places[number]
                    self._send(node, lm.WantPlace(number, 0, [], [], "", 0))
            elif isinstance(key, tuple):
                self._say_as(node, key[0], AskLeases(key[1], 0, False))

    # ---- answers ----

    def granted(self, node: int, process: Process, shape: int) -> None:
        """A lease of another node for a process of this one."""
        self._one_came((process, shape), node)
        demand = self._state.demands.by_key.get((process, shape))
        if demand is not None and self._state.cluster is not None:
            self._state.cluster.nodes.taken(node, demand.need)
        self._granted[process, shape] = self._granted.get((process, shape), 0) + 1
        if demand is not None and node in demand.near:
            demand.near[node] = max(0, demand.near[node] - 1)
        self._feed(ev.ServedElsewhere(process, shape))

    def place_found(self, node: int, number: int, worker: Process) -> bytes | None:
        """The actor that the worker is for; None when it is wanted no more."""
        actor, _ = self._places.pop(number, (b"", 0))
        if not actor:
            return None
        self._one_came(actor, node)
        demand = self._state.demands.by_key.get(actor)
        if demand is None or not demand.wanted or actor in self.creating:
            return None
        self.creating[actor] = worker
        demand.is_local = False  # it has its place
        return actor

    def _one_came(self, key: DemandKey, node: int) -> None:
        if (asked := self.asked.get(key)) is not None and node in asked:
            asked[node] -= 1
            if asked[node] <= 0:
                del asked[node]
            if not asked:
                del self.asked[key]

    # ---- ends ----

    def node_gone(self, node: int) -> None:
        for key in list(self.asked):
            self.asked[key].pop(node, None)
            if not self.asked[key]:
                del self.asked[key]
        for defined in self._defined.values():
            defined -= {known for known in defined if known[0] == node}
        for number in [number for number, (_, at) in self._places.items() if at == node]:
            del self._places[number]

    def process_gone(self, process: Process) -> None:
        for _, shape in self._defined.pop(process, ()):
            self.asked.pop((process, shape), None)  # its death tells the other nodes
            self._patient.discard((process, shape))
        self._warned.pop(process, None)

    def worker_gone(self, worker: Process) -> None:
        """A proxy died; if it was to be an actor, the actor needs another place."""
        for actor in [actor for actor, chosen in self.creating.items() if chosen == worker]:
            del self.creating[actor]

    def queued(self) -> int:
        return sum(demand.wanted for demand in self._state.demands.wanting() if demand.waits_here)


def _what_matters_there(demand: Demand) -> dict[str, str | int | bool]:
    """Of its strategy, to the node that is asked: the group it is in, or its priority; the node has been chosen."""
    if demand.group:
        return dict(demand.strategy)
    return {"priority": demand.priority} if demand.priority else {}


def _plan_in_group(demand: Demand, group: Group | None, own: int) -> tuple[dict[int, int], bool, int]:
    """How many to ask each other node for, whether this one may serve it, and how many are left to others."""
    if group is None or group.state is not GroupState.CREATED:
        return {}, True, 0
    room: dict[int, int] = {}
    for index, (node, bundle) in enumerate(zip(group.nodes, group.bundles, strict=True)):
        if demand.bundle in (-1, index) and node is not None:
            room[node] = room.get(node, 0) + _times(dict(bundle), demand)
    left = demand.wanted - sum(_times(pool.available, demand) for pool in demand.draws_from or ())
    others = [node for node in room if node != own]
    plan: dict[int, int] = {}
    for node in others:
        if (count := min(left, room[node])) > 0:
            plan[node] = count
            left -= count
    if left > 0 and others and own not in room:
        plan[others[0]] = plan.get(others[0], 0) + left
    return plan, own in room, sum(plan.values())


def _times(free: Mapping[str, int], demand: Demand) -> int:
    """How many grants fit."""
    return max(0, min([demand.wanted, *(free.get(name, 0) // amount for name, amount in demand.need)]))
