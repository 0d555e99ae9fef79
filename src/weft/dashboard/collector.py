"""The newest events of the cluster, kept while somebody looks: bounded, and the same for all who look.

Reads the nodes' rings at most once in `READ_S`, when a page asks. Used by many threads.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Any

from weft.observe import event_records as ev
from weft.observe.collect import Asks, Reader
from weft.observe.trace_file import NodeEvents

READ_S = 0.5
MOST_RUNS = 10_000
MOST_TASKS = 5_000
MOST_OF_A_PROCESS = 4_000
"""Of each process at a time; older ones count as dropped."""


@dataclass
class Task:
    """What is known of one task."""

    id: str
    name: str = ""
    parent: str = ""
    submitted_s: float | None = None
    started_s: float | None = None
    ended_s: float | None = None
    status: str = "submitted"
    attempt: int = 1
    actor: str = ""
    pid: int = 0
    node_id: str = ""
    uses: list[str] = field(default_factory=list)
    """Tasks whose results it needs."""
    previous_call: str = ""
    """Of a call whose start nobody has told: what its caller had called on the same actor before."""


class Collector:
    def __init__(self, client: Asks) -> None:
        self._reader = Reader(client)
        self._lock = threading.Lock()
        self._read_s = 0.0
        self._number = 0
        self.runs: deque[tuple[int, dict[str, Any]]] = deque(maxlen=MOST_RUNS)
        """(number, slice) of what ran or waited, for the task stream."""
        self.tasks: OrderedDict[str, Task] = OrderedDict()
        self.recorded = 0
        self.dropped = 0

    def look(self) -> None:
        """Read what is new, unless that was done a moment ago."""
        with self._lock:
            if time.monotonic() - self._read_s < READ_S:
                return
            for node in self._reader.read(MOST_OF_A_PROCESS):
                self._add(node)
            self._read_s = time.monotonic()

    def since(self, number: int, limit: int) -> dict[str, Any]:
        """The slices from that number on, the newest `limit` of them."""
        self.look()
        with self._lock:
            found = [{**row, "n": at} for at, row in self.runs if at >= number][-limit:]
            return {"next": self._number, "slices": found, "recorded": self.recorded, "dropped": self.dropped}

    def known_tasks(self) -> list[Task]:
        self.look()
        with self._lock:
            return list(self.tasks.values())

    def _add(self, node: NodeEvents) -> None:
        self.dropped += node.missed
        self.recorded += len(node.events)
        for event in sorted(node.events, key=lambda one: one.at_ns):
            at_s = (event.at_ns + node.offset_ns) / 1e9
            if event.kind == ev.SUBMITTED:
                task = self._task(event.task)
                task.name, task.parent, task.submitted_s = event.name, event.other.hex(), at_s
            elif event.kind == ev.USES:
                task = self._task(event.task)
                made_by = ev.task_of(event.other).hex()
                if made_by not in task.uses:
                    task.uses.append(made_by)
            elif event.kind == ev.RAN:
                self._ran(node, event, at_s)
            elif event.kind == ev.WAITED:
                self._slice(node, event, at_s, "wait", "wait", ev.task_of(event.other).hex())

    def _ran(self, node: NodeEvents, event: ev.Event, at_s: float) -> None:
        task = self._task(event.task)
        task.name = event.name
        task.started_s, task.ended_s = at_s, at_s + event.duration_ns / 1e9
        task.status = ev.STATUSES[event.status] if event.status < len(ev.STATUSES) else str(event.status)
        task.attempt, task.pid, task.node_id = event.attempt + 1, event.pid, node.node_id
        task.actor = "" if ev.is_nil(event.other) else event.other.hex()
        self._slice(node, event, at_s, "actor" if task.actor else "task", event.name, event.task.hex(), task.status)

    def _slice(
        self, node: NodeEvents, event: ev.Event, at_s: float, kind: str, name: str, task: str, status: str = ""
    ) -> None:
        title = node.titles.get(event.pid, "ended")
        row = {"kind": kind, "name": name, "task": task, "at": at_s, "for": event.duration_ns / 1e9, "pid": event.pid,
               "node": node.node_id[:8], "title": title, "status": status}  # fmt: skip
        self.runs.append((self._number, row))
        self._number += 1

    def _task(self, identity: bytes) -> Task:
        key = identity.hex()
        task = self.tasks.get(key)
        if task is None:
            task = self.tasks[key] = Task(key)
            if len(self.tasks) > MOST_TASKS:
                self.tasks.popitem(last=False)
        return task
