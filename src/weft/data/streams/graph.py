"""The stages of a stream and how they are connected: what is chained into one actor, and how events are divided."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from weft.data.streams.batch import Batch
from weft.data.streams.operators import Operator
from weft.data.streams.sources import StreamSource


@dataclass(frozen=True)
class Times:
    """Where the times of a source's events come from: a function of the event, or the clock."""

    function: Callable[[Any], float] | None = None
    max_delay_s: float = 0.0
    idle_after_s: float | None = None


@dataclass
class StageSpec:
    """Operators that run in one actor, `parallelism` times. Made once, pickled to every subtask."""

    name: str
    parallelism: int
    operators: list[Operator] = field(default_factory=list)
    source: StreamSource | None = None
    times: Times = field(default_factory=Times)
    gives_output: bool = False


@dataclass(frozen=True)
class Edge:
    """From one stage to another. `how`: "key", "any" or "all"; `side` is 1 for the second input of a join."""

    upstream: int
    downstream: int
    how: str
    side: int = 0


@dataclass
class Graph:
    stages: list[StageSpec] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)

    def into(self, stage: int) -> list[Edge]:
        return [edge for edge in self.edges if edge.downstream == stage]

    def out_of(self, stage: int) -> list[Edge]:
        return [edge for edge in self.edges if edge.upstream == stage]

    def channels(self, stage: int) -> list[str]:
        """The names of all inputs of a subtask of the stage: one a subtask above it."""
        return [
            channel(edge, number)
            for edge in self.into(stage)
            for number in range(self.stages[edge.upstream].parallelism)
        ]

    def copy(self) -> Graph:
        return Graph(list(self.stages), list(self.edges))


def channel(edge: Edge, upstream_index: int) -> str:
    return f"{edge.upstream}>{edge.downstream}/{edge.side}:{upstream_index}"


def side_of(name: str) -> int:
    return int(name.partition("/")[2].partition(":")[0])


def stable_hash(key: Any) -> int:
    """The same in every process and every run."""
    return zlib.crc32(key.encode() if isinstance(key, str) else repr(key).encode())


class Divider:
    """Events to the subtasks of a stage."""

    def __init__(self, how: str, count: int) -> None:
        self._how = how
        self._count = count
        self._next = 0
        self._known: dict[Any, int] = {}

    def divided(self, batch: Batch) -> list[Batch | None]:
        """For each subtask its events; None where there are none for it."""
        if self._how == "all" or self._count == 1:
            return [batch] * self._count
        made: list[Batch | None] = [None] * self._count
        if self._how == "any":
            made[self._next] = batch
            self._next = (self._next + 1) % self._count
            return made
        positions: list[list[int]] = [[] for _ in range(self._count)]
        known, count = self._known, self._count
        if len(known) > 1_000_000:
            known.clear()
        for number, key in enumerate(batch.keys or ()):
            place = known.get(key)
            if place is None:
                place = known[key] = stable_hash(key) % count
            positions[place].append(number)
        return [batch.at(chosen) if chosen else None for chosen in positions]
