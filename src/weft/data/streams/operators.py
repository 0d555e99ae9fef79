"""What is done to the events of a stream, a batch at a time. Operators of one stage run one after the other.

`process` takes a batch and gives one; `advance` is told the new watermark and gives what is complete by it. What an
operator remembers is in `snapshot`, and comes back by `restore`. Runs in the actor of a subtask.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from weft.data.streams.batch import Batch
from weft.data.streams.windows import FixedWindows, Fold, Session, SessionWindows, Sliding, Tumbling, Window, windows_of


def note_event(error: BaseException, where: str) -> None:
    """Add to an error which event an operator was at: it is still there, in the frame of the operator that called the
    user's function."""
    trace = error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        if frame.f_code.co_filename == __file__ and "value" in frame.f_locals and hasattr(error, "add_note"):
            error.add_note(f"in {where}, at the event {reprlib.repr(frame.f_locals['value'])}")
            return
        trace = trace.tb_next


class Operator:
    """The base of all operators; those without state need only `process`."""

    @property
    def name(self) -> str:
        return type(self).__name__.removesuffix("Operator").lower()

    def process(self, batch: Batch, side: int) -> Batch:
        """`side` is 1 for events of a second input."""
        raise NotImplementedError

    def advance(self, watermark: float) -> Batch | None:
        return None

    def snapshot(self) -> Any:
        return None

    def restore(self, state: Any) -> None:
        return None

    def late(self) -> int:
        """How many events came too late to count."""
        return 0


@dataclass
class MapOperator(Operator):
    function: Callable[[Any], Any]

    def process(self, batch: Batch, side: int) -> Batch:
        function = self.function
        return batch.with_values([function(value) for value in batch.values])


@dataclass
class FilterOperator(Operator):
    function: Callable[[Any], Any]

    def process(self, batch: Batch, side: int) -> Batch:
        function = self.function
        return batch.at([i for i, value in enumerate(batch.values) if function(value)])


@dataclass
class FlatMapOperator(Operator):
    function: Callable[[Any], Iterable[Any]]

    def process(self, batch: Batch, side: int) -> Batch:
        values: list[Any] = []
        sources: list[int] = []
        for number, value in enumerate(batch.values):
            made = list(self.function(value))
            values.extend(made)
            sources.extend([number] * len(made))
        return batch.at(sources).with_values(values)


@dataclass
class KeyOperator(Operator):
    function: Callable[[Any], Any]

    def process(self, batch: Batch, side: int) -> Batch:
        function = self.function
        return batch._replace(keys=[function(value) for value in batch.values])


@dataclass
class ReduceOperator(Operator):
    """Of each key the running result: (key, value) for each event."""

    function: Callable[[Any, Any], Any]
    state: dict[Any, Any] = field(default_factory=dict)

    def process(self, batch: Batch, side: int) -> Batch:
        state, function, made = self.state, self.function, []
        for key, value in zip(batch.keys or (), batch.values, strict=True):
            state[key] = function(state[key], value) if key in state else value
            made.append((key, state[key]))
        return batch.with_values(made)

    def snapshot(self) -> Any:
        return self.state

    def restore(self, state: Any) -> None:
        self.state = state


@dataclass
class ProcessOperator(Operator):
    """A function of (key, value, state), where state is a dict of the key's own; gives any number of values."""

    function: Callable[[Any, Any, dict[str, Any]], Iterable[Any] | None]
    state: dict[Any, dict[str, Any]] = field(default_factory=dict)

    def process(self, batch: Batch, side: int) -> Batch:
        values: list[Any] = []
        sources: list[int] = []
        for number, (key, value) in enumerate(zip(batch.keys or (), batch.values, strict=True)):
            made = self.function(key, value, self.state.setdefault(key, {}))
            for item in made if made is not None else ():
                values.append(item)
                sources.append(number)
        return batch.at(sources).with_values(values)

    def snapshot(self) -> Any:
        return self.state

    def restore(self, state: Any) -> None:
        self.state = state


class WindowResult(NamedTuple):
    """What a window of a key came to."""

    key: Any
    window: Window
    value: Any


def results(done: list[tuple[Any, Window, Any]]) -> Batch | None:
    if not done:
        return None
    made = [WindowResult(*one) for one in done]
    return Batch(list(made), [one.window.end for one in made], [one.key for one in made])


@dataclass
class WindowOperator(Operator):
    assigner: Tumbling | Sliding | Session
    fold: Fold
    lateness_s: float = 0.0

    def __post_init__(self) -> None:
        self._windows: FixedWindows | SessionWindows = windows_of(self.assigner, self.fold, self.lateness_s)

    def process(self, batch: Batch, side: int) -> Batch:
        if batch.values:
            if batch.times is None or batch.keys is None:
                raise ValueError("windows need keys and times: key_by() comes before window()")
            self._windows.add(batch.keys, batch.values, batch.times)
        return Batch([], [], [], batch.watermark)

    def advance(self, watermark: float) -> Batch | None:
        return results(self._windows.advance(watermark))

    def snapshot(self) -> Any:
        return self._windows.snapshot()

    def restore(self, state: Any) -> None:
        self._windows.restore(state)

    def late(self) -> int:
        return self._windows.late


@dataclass
class WindowJoinOperator(WindowOperator):
    """Pairs of values of both inputs in the same window of the same key."""

    fold: Fold = field(default_factory=lambda: Fold(lambda: ([], []), add_side, merge_sides))

    def process(self, batch: Batch, side: int) -> Batch:
        return super().process(batch.with_values([(side, value) for value in batch.values]), side)

    def advance(self, watermark: float) -> Batch | None:
        done = self._windows.advance(watermark)
        return results([(key, window, (a, b)) for key, window, (left, right) in done for a in left for b in right])


def add_side(sides: tuple[list[Any], list[Any]], value: tuple[int, Any]) -> tuple[list[Any], list[Any]]:
    sides[value[0]].append(value[1])
    return sides


def merge_sides(left: tuple[list[Any], list[Any]], right: tuple[list[Any], list[Any]]) -> tuple[list[Any], list[Any]]:
    return [*left[0], *right[0]], [*left[1], *right[1]]


@dataclass
class BroadcastOperator(Operator):
    """`function(value, shared)` of each event; each event of the second input goes through `update(shared, event)`."""

    function: Callable[[Any, Any], Any]
    update: Callable[[Any, Any], Any]
    shared: Any = None

    def process(self, batch: Batch, side: int) -> Batch:
        if side == 1:
            for value in batch.values:
                self.shared = self.update(self.shared, value)
            return Batch([], [], [] if batch.keys is not None else None, batch.watermark)
        return batch.with_values([self.function(value, self.shared) for value in batch.values])

    def snapshot(self) -> Any:
        return self.shared

    def restore(self, state: Any) -> None:
        self.shared = state


@dataclass
class ForEachOperator(Operator):
    """Calls a function with each value where it is, and passes it on."""

    function: Callable[[Any], Any]

    def process(self, batch: Batch, side: int) -> Batch:
        for value in batch.values:
            self.function(value)
        return batch
