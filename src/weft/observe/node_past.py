"""What a node did in the last day: how busy it was, how often each function ran, and which single runs its file has.

The native core's recorder reads the events of all processes into a file without a name and sums them by function
(`native/recorder.hpp`); here those sums and the machine's counters are taken in stretches: of ten seconds for an hour,
of a minute for a day. What is older is forgotten. Runs in the daemon's thread, on a timer; only a search in the file
has a thread of its own.

PAST-1  Sums are of all events that were read. How many were not is beside them in each stretch.
PAST-2  It is bounded by the number of stretches, and of functions in each.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from weft.machine import load
from weft.observe.event_records import TALLIES

STRETCH_S = 10.0
MINUTE_S = 60.0
MOST_STRETCHES = 360
MOST_MINUTES = 1440
MOST_FUNCTIONS = 100
"""Of a stretch, by the time they took; the others are told together."""
MOST_RUNS = 1000


class FunctionSums(msgspec.Struct, array_like=True):
    """Of one function in a stretch of time."""

    runs: int = 0
    failed: int = 0
    retried: int = 0
    run_ns: int = 0
    longest_ns: int = 0

    def add(self, more: FunctionSums) -> None:
        self.runs += more.runs
        self.failed += more.failed
        self.retried += more.retried
        self.run_ns += more.run_ns
        self.longest_ns = max(self.longest_ns, more.longest_ns)


class Stretch(msgspec.Struct):
    """What ended between `from_s` and `time_s`, and the machine's counters at its end."""

    from_s: float
    time_s: float
    machine: dict[str, Any]
    """As `counters` has it."""
    functions: dict[str, FunctionSums]
    recorded: int = 0
    missed: int = 0
    """Events that were not read: left out by a busy process, or gone before they were looked at."""
    thinned: int = 0
    """Events that are counted here, and in no file."""

    def extend(self, later: Stretch) -> None:
        self.time_s, self.machine = later.time_s, later.machine
        self.recorded += later.recorded
        self.missed += later.missed
        self.thinned += later.thinned
        for name, sums in later.functions.items():
            self.functions.setdefault(name, FunctionSums()).add(sums)


class Port(Protocol):
    """The part of `_native.NodePort` that is needed here."""

    def statistics(self) -> dict[str, int]: ...
    def tallies(self) -> list[int]: ...
    def take_recorded(self) -> tuple[int, int, int, int, list[tuple[bytes, int, int, int, int, int]]]: ...
    def find_runs(
        self, from_ns: int, to_ns: int, name: bytes, is_unwell: bool, is_longest: bool, most: int
    ) -> bytes: ...


class Clocked(Protocol):
    """The part of a loop that is needed here."""

    def call_later(self, delay_s: float, call: Callable[[], None]) -> object: ...
    def watch(self, fd: int, callback: Callable[[], None]) -> None: ...
    def unwatch(self, fd: int) -> None: ...


class NodePast:
    def __init__(self, loop: Clocked, port: Port, began_s: float) -> None:
        """`began_s`: when recording began, which it did without this."""
        self._loop = loop
        self._port = port
        self._stretches: deque[Stretch] = deque()
        self._minutes: deque[Stretch] = deque(maxlen=MOST_MINUTES)
        self._from_s = began_s
        self.refused = 0
        """Events that the disk has not taken."""
        loop.call_later(STRETCH_S, self._tick)

    def _tick(self) -> None:
        self.take()
        self._loop.call_later(STRETCH_S, self._tick)

    def take(self) -> None:
        """End the present stretch, and begin another."""
        recorded, missed, thinned, self.refused, functions = self._port.take_recorded()
        named = {name.decode("utf-8", "replace"): FunctionSums(*sums) for name, *sums in functions}
        now_s = time.time()
        counted = (recorded, missed, thinned)
        self._stretches.append(Stretch(self._from_s, now_s, counters(self._port), _largest(named), *counted))
        self._from_s = now_s
        while len(self._stretches) > MOST_STRETCHES:
            self._keep_by_minutes(self._stretches.popleft())

    def _keep_by_minutes(self, stretch: Stretch) -> None:
        last = self._minutes[-1] if self._minutes else None
        if last is not None and stretch.time_s - last.from_s <= MINUTE_S + 1:
            last.extend(stretch)
            last.functions = _largest(last.functions)
        else:
            self._minutes.append(stretch)

    def since(self, time_s: float) -> list[Stretch]:
        """Those that ended after it, the oldest first, up to this moment."""
        if time.time() - self._from_s > 1.0:
            self.take()
        return [one for kept in (self._minutes, self._stretches) for one in kept if one.time_s > time_s]

    def find(self, wanted: dict[str, Any], then: Callable[[bytes | Exception], None]) -> None:
        """Events of runs, in a thread of its own: `since_s` and `until_s` on the wall clock, `name`, `failed`,
        `longest`, `limit`. What the search raised comes in their place."""
        offset_ns = time.time_ns() - time.monotonic_ns()
        until_s = wanted.get("until_s")
        asked = (
            int(float(wanted.get("since_s", 0)) * 1e9) - offset_ns,
            (1 << 62) if until_s is None else int(float(until_s) * 1e9) - offset_ns,
            str(wanted.get("name", "")).encode()[:56],
            bool(wanted.get("failed", False)),
            bool(wanted.get("longest", False)),
            max(0, min(int(wanted.get("limit", MOST_RUNS)), MOST_RUNS)),
        )
        found: list[bytes | Exception] = []
        ready = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

        def search() -> None:
            try:
                found.append(self._port.find_runs(*asked))
            except Exception as error:
                found.append(error)
            os.eventfd_write(ready, 1)

        def came() -> None:
            self._loop.unwatch(ready)
            os.close(ready)
            then(found[0])

        try:
            threading.Thread(target=search, name="weft-past", daemon=True).start()
        except RuntimeError:  # no thread can be had
            os.close(ready)
            raise
        self._loop.watch(ready, came)


def counters(port: Port) -> dict[str, Any]:
    """Of the machine and the node: sums that only grow, and levels."""
    return {
        **load.report(),
        "arena_used_bytes": port.statistics()["used_bytes"],
        "tallies": dict(zip(TALLIES, port.tallies(), strict=True)),
    }


def _largest(functions: dict[str, FunctionSums]) -> dict[str, FunctionSums]:
    if len(functions) <= MOST_FUNCTIONS:
        return functions
    by_time = sorted(functions.items(), key=lambda item: -item[1].run_ns)
    kept, others = dict(by_time[: MOST_FUNCTIONS - 1]), FunctionSums()
    for _, sums in by_time[MOST_FUNCTIONS - 1 :]:
        others.add(sums)
    kept.setdefault("", FunctionSums()).add(others)
    return kept
