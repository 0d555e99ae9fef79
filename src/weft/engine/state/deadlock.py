"""Finds waits that can never end: a graph of what waits for what, and which of it can still go on.

Pure: no I/O, no clock. The graph is told in rounds (`node/deadlocks.py` asks the processes); a node of it is a wait, an
object, a task, a thread, a worker's place. It can go on when at least `needed` of those it waits for can; one that
nobody has told of can always go on. What is left over cannot: that is a deadlock.

A round is put together from answers of different moments, so one round proves nothing. A wait keeps its number for as
long as it lasts, and what it waits for changes only when the wait or the object ends: what two rounds in a row tell
in the same words was true of all of it at once in the moment between them.

    DLK-1  a wait is broken only if all that it can be ended by cannot go on, in two rounds in a row.
    DLK-2  of one deadlock one wait is broken in a round: the one that began last.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

WAIT = "wait:"
"""How the key of a wait begins."""


class Waiting(msgspec.Struct, frozen=True):
    """One node of the graph."""

    key: str
    on: tuple[str, ...]
    """The keys of what it waits for. None at all: it never goes on by itself."""
    needed: int = 1
    """So many of them must come."""
    text: str = ""
    """For people: what it is."""
    began_s: float = 0.0
    """Of a wait: when, by the wall clock."""


class Deadlock(msgspec.Struct, frozen=True):
    """One that was found."""

    victim: str
    """The key of the wait to be broken."""
    cycle: tuple[str, ...]
    """For people: who waits for what, one line each."""


def stuck(graph: Mapping[str, Waiting]) -> set[str]:
    """The keys of all that can never go on.

    >>> a, b = Waiting("wait:a", ("task:b",)), Waiting("task:b", ("wait:a",))
    >>> sorted(stuck({"wait:a": a, "task:b": b}))
    ['task:b', 'wait:a']
    >>> stuck({"wait:a": a})
    set()
    """
    missing = {key: one.needed for key, one in graph.items()}
    waiters: dict[str, list[str]] = {}
    going = [key for key, one in graph.items() if one.needed <= 0]
    for key, one in graph.items():
        for other in dict.fromkeys(one.on):
            if other in graph:
                waiters.setdefault(other, []).append(key)
            else:
                missing[key] -= 1
                if missing[key] == 0:
                    going.append(key)
    alive = set(going)
    while going:
        for key in waiters.get(going.pop(), ()):
            missing[key] -= 1
            if missing[key] <= 0 and key not in alive:
                alive.add(key)
                going.append(key)
    return set(graph) - alive


class DeadlockFinder:
    """Compares each round with the one before."""

    def __init__(self) -> None:
        self._seen: dict[str, frozenset[Waiting]] = {}
        """By wait: all the stuck nodes that it depends on, as they were in the last round."""

    @property
    def suspects(self) -> bool:
        """Whether the last round should be repeated soon."""
        return bool(self._seen)

    def round_told(self, nodes: Iterable[Waiting]) -> list[Deadlock]:
        """What must be broken now."""
        graph = {node.key: node for node in nodes}
        held = stuck(graph)
        before, self._seen = self._seen, {}
        found: dict[frozenset[str], Deadlock] = {}
        for key in sorted(key for key in held if key.startswith(WAIT)):
            self._seen[key] = evidence = _reached(key, graph, held)
            if before.get(key) == evidence:
                path, cycle = _walk(key, graph, held)
                found.setdefault(frozenset(cycle), _deadlock(path, cycle, graph))
        for one in found.values():
            del self._seen[one.victim]
        return list(found.values())


def _reached(first: str, graph: Mapping[str, Waiting], held: set[str]) -> frozenset[Waiting]:
    seen = {first}
    to_do = [first]
    while to_do:
        for other in graph[to_do.pop()].on:
            if other in held and other not in seen:
                seen.add(other)
                to_do.append(other)
    return frozenset(graph[key] for key in seen)


def _walk(first: str, graph: Mapping[str, Waiting], held: set[str]) -> tuple[list[str], list[str]]:
    """A way from one stuck node to the next, and its part that closes (or its end, when it closes nowhere)."""
    path = [first]
    places = {first: 0}
    while following := next((other for other in graph[path[-1]].on if other in held), None):
        if following in places:
            return path, path[places[following] :]
        places[following] = len(path)
        path.append(following)
    last_wait = max(index for index, key in enumerate(path) if key.startswith(WAIT))
    return path, path[last_wait:]


def _deadlock(path: list[str], cycle: list[str], graph: Mapping[str, Waiting]) -> Deadlock:
    waits = [key for key in cycle if key.startswith(WAIT)]
    victim = max(waits, key=lambda key: (graph[key].began_s, key))
    start = cycle.index(victim)
    return Deadlock(victim, tuple(_lines([graph[key] for key in cycle[start:] + cycle[:start]])))


def _lines(nodes: list[Waiting]) -> list[str]:
    """One for each wait: what it waits for, up to the next one."""
    lines: list[list[str]] = []
    for node in nodes:
        if node.key.startswith(WAIT):
            lines.append([node.text])
        elif node.text:
            lines[-1].append(node.text)
    return [f"{first} {', '.join(dict.fromkeys(rest))}".rstrip() for first, *rest in lines]
