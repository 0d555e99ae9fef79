"""Windows: which an event belongs to, and when they are complete. Pure: events and watermarks in, results out.

WIN-1 A window gives its result once, when the watermark passes its end plus the allowed lateness.
WIN-2 An event counts in every window that contains its time and is not complete; otherwise it is late, and counted so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from weft.data.streams.watermarks import BEGINNING


@dataclass(frozen=True, order=True)
class Window:
    """Times from `start` up to but not including `end`, in seconds."""

    start: float
    end: float


@dataclass(frozen=True)
class Tumbling:
    """Windows of one length, one after the other.

    >>> Tumbling(10).windows(25.0)
    [Window(start=20.0, end=30.0)]
    """

    size_s: float
    offset_s: float = 0.0

    def __post_init__(self) -> None:
        _positive("size_s", self.size_s)

    def windows(self, time: float) -> list[Window]:
        """The one that this time is in."""
        start = time - (time - self.offset_s) % self.size_s
        return [Window(start, start + self.size_s)]


@dataclass(frozen=True)
class Sliding:
    """Windows of one length that begin every `slide_s`.

    >>> [window.start for window in Sliding(10, 5).windows(12.0)]
    [10.0, 5.0]
    """

    size_s: float
    slide_s: float

    def __post_init__(self) -> None:
        _positive("size_s", self.size_s)
        _positive("slide_s", self.slide_s)

    def windows(self, time: float) -> list[Window]:
        """Those that this time is in, latest first."""
        start = time - time % self.slide_s
        made = []
        while start > time - self.size_s:
            made.append(Window(start, start + self.size_s))
            start -= self.slide_s
        return made


@dataclass(frozen=True)
class Session:
    """Events of a key that are less than `gap_s` apart."""

    gap_s: float

    def __post_init__(self) -> None:
        _positive("gap_s", self.gap_s)


def _positive(name: str, value: float) -> None:
    if not value > 0:
        raise ValueError(f"{name} must be positive, but got {value!r}")


@dataclass
class Fold:
    """What a window makes of its events: `add(accumulator, value)`, beginning with `zero()`; `merge` of two."""

    zero: Callable[[], Any]
    add: Callable[[Any, Any], Any]
    merge: Callable[[Any, Any], Any] | None = None


@dataclass
class FixedWindows:
    """The state of tumbling and sliding windows: of each window the accumulators of its keys."""

    assigner: Tumbling | Sliding
    fold: Fold
    lateness_s: float = 0.0
    watermark: float = BEGINNING
    late: int = 0
    open: dict[Window, dict[Any, Any]] = field(default_factory=dict)

    def add(self, keys: Iterable[Any], values: Iterable[Any], times: Iterable[float]) -> None:
        if isinstance(self.assigner, Tumbling):
            self._add_tumbling(keys, values, times)
            return
        zero, fold = self.fold.zero, self.fold.add
        complete = self.watermark - self.lateness_s
        for key, value, time in zip(keys, values, times, strict=True):
            counted = False
            for window in self.assigner.windows(time):
                if window.end <= complete:
                    continue
                counted = True
                state = self.open.setdefault(window, {})
                state[key] = fold(state[key] if key in state else zero(), value)
            self.late += not counted

    def _add_tumbling(self, keys: Iterable[Any], values: Iterable[Any], times: Iterable[float]) -> None:
        """The same, with the window of neighbouring events looked up once."""
        zero, fold = self.fold.zero, self.fold.add
        complete = self.watermark - self.lateness_s
        start, end = 0.0, float("-inf")
        state: dict[Any, Any] = {}
        for key, value, time in zip(keys, values, times, strict=True):
            if not start <= time < end:
                (window,) = self.assigner.windows(time)
                start, end = window.start, window.end
                state = self.open.setdefault(window, {}) if end > complete else {}
            if end <= complete:
                self.late += 1
            elif key in state:
                state[key] = fold(state[key], value)
            else:
                state[key] = fold(zero(), value)

    def advance(self, watermark: float) -> list[tuple[Any, Window, Any]]:
        """(key, window, result) of each window that is complete now, the earliest first."""
        self.watermark = max(self.watermark, watermark)
        done = sorted(window for window in self.open if window.end <= self.watermark - self.lateness_s)
        return [(key, window, value) for window in done for key, value in self.open.pop(window).items()]

    def snapshot(self) -> Any:
        return self.watermark, self.late, self.open

    def restore(self, state: Any) -> None:
        self.watermark, self.late, self.open = state


@dataclass
class SessionWindows:
    """The state of sessions: of each key its open sessions, which an event between two of them makes one."""

    assigner: Session
    fold: Fold
    lateness_s: float = 0.0
    watermark: float = BEGINNING
    late: int = 0
    open: dict[Any, list[tuple[float, float, Any]]] = field(default_factory=dict)
    """(start, end, accumulator) of each session of a key; end is the last event plus the gap."""

    def __post_init__(self) -> None:
        if self.fold.merge is None:
            raise ValueError("sessions can grow together: give the aggregate a merge(a, b) of two accumulators")

    def add(self, keys: Iterable[Any], values: Iterable[Any], times: Iterable[float]) -> None:
        for key, value, time in zip(keys, values, times, strict=True):
            start, end, state = time, time + self.assigner.gap_s, self.fold.add(self.fold.zero(), value)
            sessions = self.open.get(key, [])
            first, last = start, end
            touched = [one for one in sessions if one[0] < last and first < one[1]]
            if not touched and end <= self.watermark - self.lateness_s:
                self.late += 1
                continue
            apart = [one for one in sessions if not (one[0] < last and first < one[1])]
            assert self.fold.merge is not None
            for one in touched:
                start, end = min(start, one[0]), max(end, one[1])
                state = self.fold.merge(one[2], state)
            self.open[key] = [*apart, (start, end, state)]

    def advance(self, watermark: float) -> list[tuple[Any, Window, Any]]:
        self.watermark = max(self.watermark, watermark)
        complete = self.watermark - self.lateness_s
        done = []
        for key in list(self.open):
            left = []
            for start, end, state in self.open[key]:
                if end <= complete:
                    done.append((key, Window(start, end), state))
                else:
                    left.append((start, end, state))
            if left:
                self.open[key] = left
            else:
                del self.open[key]
        return sorted(done, key=lambda one: one[1])

    def snapshot(self) -> Any:
        return self.watermark, self.late, self.open

    def restore(self, state: Any) -> None:
        self.watermark, self.late, self.open = state


def windows_of(assigner: Tumbling | Sliding | Session, fold: Fold, lateness_s: float) -> FixedWindows | SessionWindows:
    if isinstance(assigner, Session):
        return SessionWindows(assigner, fold, lateness_s)
    return FixedWindows(assigner, fold, lateness_s)
