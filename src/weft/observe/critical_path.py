"""Which chain of tasks made a run take as long as it did. Pure.

Walked backwards from the end of the last task. What held a task up while it ran is the last result that its process
waited for; what held up its beginning is the last of its inputs, or else who submitted it. Time in which nothing of
these happened is the task's own, or a wait for a worker. Of tasks with many inputs only the first are recorded: the
last result of the same submitter that came before the beginning counts as one of them.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from weft.observe import event_records as ev
from weft.observe.trace_file import NodeEvents

MOST_STEPS = 100_000
DRIVER = "the driver"
RUNS, WAITS = "runs", "waits for a worker"
Process = tuple[str, int]
"""(node, pid)"""


@dataclass
class Run:
    """What is known of one task: its last attempt."""

    id: bytes
    name: str = ""
    parent: bytes = b""
    submitter: Process | None = None
    submitted_s: float | None = None
    process: Process | None = None
    begun_s: float | None = None
    ended_s: float = 0.0
    status: str = ""
    attempt: int = 1
    is_call: bool = False
    uses: list[bytes] = field(default_factory=list)
    """Tasks whose results it needs, the first of them."""
    inputs: int = 0
    """How many results it needs."""


@dataclass(frozen=True)
class Wait:
    """A process waited for the result of a task."""

    ended_s: float
    begun_s: float
    task: bytes


@dataclass
class History:
    """What the events of a cluster tell."""

    runs: dict[bytes, Run] = field(default_factory=dict)
    waits: dict[Process, list[Wait]] = field(default_factory=dict)
    titles: dict[Process, str] = field(default_factory=dict)
    events: int = 0
    dropped: int = 0

    def add(self, nodes: Iterable[NodeEvents], since_s: float = 0.0) -> None:
        """What ended since then; the rest is left out."""
        for node in nodes:
            self.events += len(node.events)
            self.dropped += node.missed
            self.titles.update({(node.node_id, pid): title for pid, title in node.titles.items()})
            for event in node.events:
                at_s = (event.at_ns + node.offset_ns) / 1e9
                if at_s + event.duration_ns / 1e9 >= since_s:
                    self._add((node.node_id, event.pid), event, at_s)

    def _add(self, process: Process, event: ev.Event, at_s: float) -> None:
        if event.kind == ev.WAITED:
            wait = Wait(at_s + event.duration_ns / 1e9, at_s, ev.task_of(event.other))
            self.waits.setdefault(process, []).append(wait)
        elif event.kind in (ev.SUBMITTED, ev.USES, ev.RAN):
            run = self.runs.setdefault(event.task, Run(event.task))
            if event.kind == ev.SUBMITTED:
                run.name, run.parent, run.submitter, run.submitted_s = event.name, event.other, process, at_s
                run.inputs = event.amount
            elif event.kind == ev.USES:
                run.uses.append(ev.task_of(event.other))
            elif run.begun_s is None or at_s >= run.begun_s:
                run.name, run.process, run.begun_s = event.name, process, at_s
                run.ended_s, run.attempt = at_s + event.duration_ns / 1e9, event.attempt + 1
                run.status = ev.STATUSES[event.status] if event.status < len(ev.STATUSES) else str(event.status)
                run.is_call = not ev.is_nil(event.other)

    def ended(self) -> list[Run]:
        """Those that have run, in the order of their beginnings."""
        begun = [run for run in self.runs.values() if run.begun_s is not None]
        return sorted(begun, key=lambda run: run.begun_s or 0.0)


@dataclass(frozen=True)
class Step:
    """A stretch of the path."""

    name: str
    what: str
    begun_s: float
    ended_s: float

    @property
    def for_s(self) -> float:
        return self.ended_s - self.begun_s


def path(history: History) -> list[Step]:
    """The steps of the chain that ended last, in the order of time."""
    ended = history.ended()
    if not ended:
        return []
    walk = _Walk(history, max(ended, key=_run_end))
    return walk.steps[::-1]


def _end(wait: Wait) -> float:
    return wait.ended_s


def _run_end(run: Run) -> float:
    return run.ended_s


class _Walk:
    def __init__(self, history: History, last: Run) -> None:
        self.steps: list[Step] = []
        self._history = history
        self._waits = {process: sorted(waits, key=_end) for process, waits in history.waits.items()}
        self._ended: dict[Process | None, list[Run]] = {}
        """What each process has submitted, in the order of the ends."""
        for run in sorted(history.ended(), key=_run_end):
            self._ended.setdefault(run.submitter, []).append(run)
        self._run: Run | None = last
        self._process = last.process
        self._at_s = last.ended_s
        for _ in range(MOST_STEPS):
            if not self._back():
                break

    def _back(self) -> bool:
        """One cause back; False at the beginning."""
        run = self._run
        begun_s = 0.0 if run is None or run.begun_s is None else run.begun_s
        waited = self._waited_for(begun_s)
        if waited is not None:
            ended_s, cause = waited
            self._own(run, ended_s)
            self._go(cause)
            return True
        if run is None or run.begun_s is None:
            return False
        self._own(run, run.begun_s)
        last = self._last_input(run, run.begun_s)
        submitted_s = run.submitted_s
        if last is not None and (submitted_s is None or last.ended_s > submitted_s):
            self._step(run.name, WAITS, last.ended_s, run.begun_s)
            self._go(last)
            return True
        if submitted_s is None:
            return False
        self._step(run.name, WAITS, submitted_s, run.begun_s)
        parent = self._history.runs.get(run.parent)
        self._run = parent if parent is not None and parent.begun_s is not None else None
        self._process, self._at_s = run.submitter, submitted_s
        return True

    def _last_input(self, run: Run, begun_s: float) -> Run | None:
        known = [self._history.runs[one] for one in run.uses if one in self._history.runs]
        if run.inputs > len(run.uses):
            others = self._ended.get(run.submitter, [])
            known += others[max(0, bisect.bisect_right(others, begun_s, key=_run_end) - 1) :][:1]
        return max((one for one in known if one.ended_s <= begun_s), key=_run_end, default=None)

    def _waited_for(self, begun_s: float) -> tuple[float, Run] | None:
        """The last wait of this process before now, since it began this: its end, and the task that it was for."""
        waits: Sequence[Wait] = self._waits.get(self._process, ()) if self._process else ()
        for number in range(bisect.bisect_right(waits, self._at_s, key=_end) - 1, -1, -1):
            wait = waits[number]
            if wait.ended_s <= begun_s:
                return None
            cause = self._history.runs.get(wait.task)
            if cause is not None and cause.begun_s is not None and wait.begun_s < cause.ended_s <= wait.ended_s:
                return wait.ended_s, cause
        return None

    def _go(self, cause: Run) -> None:
        self._run, self._process, self._at_s = cause, cause.process, cause.ended_s

    def _own(self, run: Run | None, since_s: float) -> None:
        self._step(DRIVER if run is None else run.name, RUNS, since_s, self._at_s)

    def _step(self, name: str, what: str, begun_s: float, ended_s: float) -> None:
        if ended_s > begun_s:
            self.steps.append(Step(name, what, begun_s, ended_s))
