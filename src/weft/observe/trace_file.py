"""Events of a cluster as a trace for Perfetto and Chrome (the Trace Event Format).

Pure. A process of the trace is a process of Weft. What it ran and waited for lies on its first lanes, one below the
other where calls overlap; what it submitted and put on lanes of their own. Arrows lead from a submission to its run,
and from a run to the `get` that waited for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from weft.observe import event_records as ev
from weft.observe.event_records import Event

SUBMIT_LANE, PUT_LANE, STORE_LANE = 1000, 1001, 1002
_SUBMIT_US = 1.0
_LANE_NAMES = {SUBMIT_LANE: "submits", PUT_LANE: "puts", STORE_LANE: "object store"}
_STORE = {
    ev.SPILLED: "spill to disk",
    ev.RESTORED: "restore from disk",
    ev.RECEIVED: "receive from a node",
    ev.SENT: "send to a node",
}


@dataclass
class NodeEvents:
    """What was read of one node."""

    node_id: str
    offset_ns: int
    """To be added to its monotonic clock for the time of day."""
    events: list[Event]
    missed: int = 0
    """How many more there were: left out while the process was busy, or overwritten before they were read."""
    titles: Mapping[int, str] = field(default_factory=dict)
    """What each process is, by its number: "driver", "worker", an actor's class."""


def trace(nodes: Iterable[NodeEvents]) -> dict[str, Any]:
    """The whole trace; `otherData` says how many events are in it and how many were dropped."""
    known = [node for node in nodes if node.events]
    start_ns = min((event.at_ns + node.offset_ns for node in known for event in node.events), default=0)
    rows: list[dict[str, Any]] = []
    flows = _Flows(rows)
    number = 0
    for node in known:
        by_pid: dict[int, list[Event]] = {}
        for event in node.events:
            by_pid.setdefault(event.pid, []).append(event)
        for pid, events in sorted(by_pid.items()):
            number += 1
            title = node.titles.get(pid) or ("node daemon" if _is_daemon(events) else "a process that has ended")
            _name(rows, "process_name", number, 0, f"{title} (pid {pid}, node {node.node_id[:8]})")
            _Process(rows, flows, number, node.offset_ns - start_ns).add(events)
    flows.draw()
    return {
        "traceEvents": rows,
        "displayTimeUnit": "ms",
        "otherData": {
            "events": sum(len(node.events) for node in known),
            "dropped": sum(node.missed for node in known),
            "start_s": start_ns / 1e9,
        },
    }


def _is_daemon(events: Sequence[Event]) -> bool:
    return all(event.kind in _STORE for event in events)


def _name(rows: list[dict[str, Any]], what: str, pid: int, lane: int, name: str) -> None:
    rows.append({"ph": "M", "name": what, "pid": pid, "tid": lane, "args": {"name": name}})


class _Flows:
    """Arrows, drawn when all ends are known: a trace viewer wants both."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._rows = rows
        self.submits: dict[bytes, tuple[int, int, float]] = {}
        self.runs: dict[bytes, tuple[int, int, float, float]] = {}
        self.waits: list[tuple[bytes, int, int, float]] = []

    def draw(self) -> None:
        number = 0
        for task, (pid, lane, begin_us, _) in self.runs.items():
            if task in self.submits:
                number += 1
                self._arrow(number, "submit", self.submits[task], (pid, lane, begin_us))
        for task, pid, lane, end_us in self.waits:
            if task in self.runs and self.runs[task][3] <= end_us:
                number += 1
                ran = self.runs[task]
                self._arrow(number, "result", (ran[0], ran[1], ran[3]), (pid, lane, end_us))

    def _arrow(self, number: int, name: str, tail: tuple[int, int, float], head: tuple[int, int, float]) -> None:
        common = {"cat": "flow", "name": name, "id": number}
        for phase, (pid, lane, at_us) in (("s", tail), ("f", head)):
            row = {"ph": phase, "pid": pid, "tid": lane, "ts": at_us, **common}
            self._rows.append({**row, "bp": "e"} if phase == "f" else row)


class _Process:
    """One process's rows."""

    def __init__(self, rows: list[dict[str, Any]], flows: _Flows, number: int, offset_ns: int) -> None:
        self._rows = rows
        self._flows = flows
        self._number = number
        self._offset_ns = offset_ns
        self._lanes: list[list[float]] = []
        """The ends of the slices that are open on each lane."""
        self._named: set[int] = set()

    def add(self, events: Sequence[Event]) -> None:
        for event in sorted(events, key=lambda one: (one.at_ns, -one.duration_ns)):
            begin_us = (event.at_ns + self._offset_ns) / 1000
            if event.kind == ev.SUBMITTED:
                self._submitted(event, begin_us)
            elif event.kind == ev.RAN:
                self._ran(event, begin_us)
            elif event.kind == ev.WAITED:
                self._waited(event, begin_us)
            elif event.kind == ev.PUT:
                args = {"object": event.other.hex(), "bytes": event.bytes}
                self._slice(PUT_LANE, "put", "put", begin_us, _SUBMIT_US, args)
            elif event.kind in _STORE:
                args = {"bytes": event.bytes, "what": event.name}
                self._slice(STORE_LANE, _STORE[event.kind], "store", begin_us, event.duration_ns / 1000, args)

    def _submitted(self, event: Event, begin_us: float) -> None:
        args = {"task": event.task.hex(), "parent": event.other.hex(), "bytes": event.bytes, "inputs": event.amount}
        self._slice(SUBMIT_LANE, f"submit {event.name}", "submit", begin_us, _SUBMIT_US, args)
        self._flows.submits[event.task] = (self._number, SUBMIT_LANE, begin_us)

    def _ran(self, event: Event, begin_us: float) -> None:
        spent_us = event.duration_ns / 1000
        lane = self._lane(begin_us, begin_us + spent_us)
        args: dict[str, Any] = {"task": event.task.hex(), "status": _status(event.status), "attempt": event.attempt + 1}
        if not ev.is_nil(event.other):
            args["actor"] = event.other.hex()
        category = "task" if ev.is_nil(event.other) else "actor call"
        self._slice(lane, event.name, category, begin_us, spent_us, args)
        self._flows.runs[event.task] = (self._number, lane, begin_us, begin_us + spent_us)

    def _waited(self, event: Event, begin_us: float) -> None:
        spent_us = event.duration_ns / 1000
        lane = self._lane(begin_us, begin_us + spent_us)
        self._slice(lane, "wait", "wait", begin_us, spent_us, {"for": event.other.hex(), "objects": event.amount})
        self._flows.waits.append((ev.task_of(event.other), self._number, lane, begin_us + spent_us))

    def _lane(self, begin_us: float, end_us: float) -> int:
        """The first lane on which the slice lies behind, or wholly inside, what is there."""
        for number, open_ends in enumerate(self._lanes):
            while open_ends and open_ends[-1] <= begin_us:
                open_ends.pop()
            if not open_ends or open_ends[-1] >= end_us:
                open_ends.append(end_us)
                return number
        self._lanes.append([end_us])
        return len(self._lanes) - 1

    def _slice(
        self, lane: int, name: str, category: str, begin_us: float, spent_us: float, args: dict[str, Any]
    ) -> None:
        if lane not in self._named:
            self._named.add(lane)
            _name(self._rows, "thread_name", self._number, lane, _LANE_NAMES.get(lane, f"lane {lane + 1}"))
        self._rows.append(
            {"ph": "X", "pid": self._number, "tid": lane, "name": name, "cat": category, "ts": begin_us,
             "dur": spent_us, "args": args}
        )  # fmt: skip


def _status(number: int) -> str:
    return ev.STATUSES[number] if number < len(ev.STATUSES) else str(number)
