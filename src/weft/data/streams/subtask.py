"""The actor that runs one of the parallel instances of a stage.

Batches arrive as calls from the subtasks above, which run in their callers' order, so a channel is first in, first out.
What comes after a barrier waits as `Alignment` says. A subtask above waits when it has too many calls under way here,
or when too much of what it sent waits here for a barrier of another: that is all the back-pressure there is.
"""

from __future__ import annotations

import os
import pickle
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import weft
from weft import cloudpickle
from weft.data.streams import operators as ops
from weft.data.streams.alignment import Alignment, Barrier, End, Ended, Process, Snapshot
from weft.data.streams.batch import Batch
from weft.data.streams.graph import Divider, StageSpec, side_of
from weft.data.streams.watermarks import BEGINNING, END, SourceWatermark, Watermarks

MOST_UNDER_WAY = 8
"""Calls to one subtask below that are not done."""
"""Nor may more of one input wait for a barrier."""
HELD_PAUSE_S = 0.001
"""Between two questions whether what waits has been taken."""
EVENTS_A_POLL = 4096


@dataclass
class Acknowledgement:
    """A snapshot: of a barrier, the state at it, and what was put out since the one before."""

    number: int
    state: bytes
    outputs: list[Any]


@dataclass
class SubtaskReport:
    """What the job is told of a subtask, with every answer."""

    acknowledgements: list[Acknowledgement] = field(default_factory=list)
    exhausted: bool = False
    ended: bool = False
    outputs: list[Any] = field(default_factory=list)
    """What was put out since the last barrier; only once it has ended."""
    events_in: int = 0
    events_out: int = 0
    late: int = 0
    watermark: float = BEGINNING
    busy_s: float = 0.0
    pid: int = 0


class Below:
    """The subtasks of a stage below, as one of those above sees them."""

    def __init__(self, how: str, actors: list[Any], channel: str) -> None:
        self._actors = actors
        self._channel = channel
        self._divider = Divider(how, len(actors))
        self._under_way: list[deque[Any]] = [deque() for _ in actors]
        self._told = [BEGINNING] * len(actors)

    def send(self, batch: Batch) -> None:
        for number, part in enumerate(self._divider.divided(batch)):
            if part is None or not part.values:
                if batch.watermark <= self._told[number] and not batch.idle:
                    continue
                part = Batch([], [], [], batch.watermark, batch.idle)
            self._told[number] = max(self._told[number], batch.watermark)
            self._call(number, part)

    def tell(self, item: Barrier | End) -> None:
        for number in range(len(self._actors)):
            self._call(number, item)

    def _call(self, number: int, item: Any) -> None:
        waiting, held = self._under_way[number], 0
        while len(waiting) >= MOST_UNDER_WAY:
            held = weft.get(waiting.popleft())
        # Its barrier has been sent to all below before what waits there, so that what they wait for comes without it.
        while held >= MOST_UNDER_WAY:
            time.sleep(HELD_PAUSE_S)
            held = weft.get(self._actors[number].held.remote(self._channel))
        waiting.append(self._actors[number].receive.remote(self._channel, item))

    def drain(self) -> None:
        """Until all that was sent has been processed."""
        for waiting in self._under_way:
            while waiting:
                weft.get(waiting.popleft())


class Subtask:
    def __init__(self, pickled: bytes, index: int, channels: list[str], state: bytes | None) -> None:
        self._spec: StageSpec = cloudpickle.loads(pickled)
        self._index = index
        self._operators = self._spec.operators
        self._alignment = Alignment.of(channels)
        self._watermarks = Watermarks.of(channels)
        self._below: list[Below] = []
        self._acknowledgements: list[Acknowledgement] = []
        self._outputs: list[Any] = []
        self._report = SubtaskReport(pid=os.getpid())
        self._source_watermark = SourceWatermark(self._spec.times.max_delay_s)
        self._last_event_at = time.monotonic()
        self._idle = False
        self._state = state

    def connect(self, below: list[tuple[str, list[Any], str]]) -> int:
        """Where what comes out goes; then the subtask is ready. The source is opened here: what it raises then is an
        error of the stream, and not the death of an actor, after which it would be started again."""
        self._restore(self._state)
        self._state = None
        self._below = [Below(how, actors, channel) for how, actors, channel in below]
        return self._report.pid

    # ---- events from above --------------------------------------------------------------------------

    def receive(self, channel: str, item: Any) -> int:
        """Gives how many items of the channel wait for a barrier."""
        begun = time.perf_counter()
        for action in self._alignment.arrived(channel, item):
            if isinstance(action, Process):
                self._take(action.channel, action.item)
            elif isinstance(action, Snapshot):
                self._snapshot(action.number)
            elif isinstance(action, Ended):
                self._end()
        self._report.busy_s += time.perf_counter() - begun
        return self._alignment.held(channel)

    def held(self, channel: str) -> int:
        return self._alignment.held(channel)

    def _take(self, channel: str, batch: Batch) -> None:
        if batch.idle:
            moved = self._watermarks.fell_idle(channel)
        else:
            if batch.values:
                self._report.events_in += len(batch.values)
                self._through(batch._replace(watermark=self._watermarks.current), 0, side_of(channel))
            moved = self._watermarks.advanced(channel, batch.watermark)
        if moved is not None:
            self._advance(moved)

    def _through(self, batch: Batch, first: int, side: int) -> None:
        for operator in self._operators[first:]:
            if not batch.values:
                return
            try:
                batch = operator.process(batch, side)
            except Exception as error:
                ops.note_event(error, f"{operator.name} in {self._spec.name}")
                raise
        self._emit(batch)

    def _advance(self, watermark: float) -> None:
        """What is complete by the new watermark goes through the operators behind; then those below are told."""
        self._report.watermark = watermark
        for number, operator in enumerate(self._operators):
            made = operator.advance(watermark)
            if made is not None:
                self._through(made, number + 1, 0)
        for below in self._below:
            below.send(Batch([], [], [], watermark))

    def _emit(self, batch: Batch) -> None:
        self._report.events_out += len(batch.values)
        if self._spec.gives_output:
            self._outputs.extend(batch.values)
        if batch.values:
            for below in self._below:
                below.send(batch)

    def _end(self) -> None:
        for below in self._below:
            below.tell(End())
        self._report.ended = True

    # ---- events of a source --------------------------------------------------------------------------

    def pump(self, duration_s: float, barrier: int | None, finish: bool) -> SubtaskReport:
        """Poll the source for a while. With `barrier` a checkpoint begins here; `finish` says that all sources are at
        their end and no checkpoint is under way."""
        source = self._spec.source
        assert source is not None
        begun = time.perf_counter()
        if barrier is not None:
            self._snapshot(barrier)
        while not self._report.exhausted:
            left = duration_s - (time.perf_counter() - begun)
            if left <= 0:
                break
            events = source.poll(EVENTS_A_POLL, min(left, 0.005))
            if events is None:
                self._report.exhausted = True
                self._advance(END)
            else:
                self._ingest(events)
        if finish:
            source.close()
            self._end()
        self._report.busy_s += time.perf_counter() - begun
        return self.collect()

    def _ingest(self, events: list[Any]) -> None:
        times = self._spec.times
        now = time.monotonic()
        if events:
            self._last_event_at, self._idle = now, False
            self._report.events_in += len(events)
            stamps = [time.time()] * len(events) if times.function is None else [times.function(one) for one in events]
            self._through(Batch(events, stamps, None, self._source_watermark.latest - times.max_delay_s), 0, 0)
            self._advance_source(self._source_watermark.observe(max(stamps)))
        elif times.function is None:
            self._advance_source(self._source_watermark.observe(time.time()))
        elif not self._idle and self._is_quiet(now):
            self._idle = True
            for below in self._below:
                below.send(Batch([], [], [], idle=True))

    def _is_quiet(self, now: float) -> bool:
        patience_s = self._spec.times.idle_after_s
        assert self._spec.source is not None
        return self._spec.source.unassigned or (patience_s is not None and now - self._last_event_at > patience_s)

    def _advance_source(self, watermark: float) -> None:
        if watermark > self._report.watermark:
            self._advance(watermark)

    # ---- checkpoints and the job ---------------------------------------------------------------------

    def _snapshot(self, number: int) -> None:
        source = self._spec.source
        state = {
            "operators": [operator.snapshot() for operator in self._operators],
            "offset": None if source is None else source.offset(),
            "source_watermark": self._source_watermark.latest,
            "watermarks": (self._watermarks.channels, self._watermarks.current),
        }
        self._acknowledgements.append(Acknowledgement(number, pickle.dumps(state, 5), self._outputs))
        self._outputs = []
        for below in self._below:
            below.tell(Barrier(number))

    def _restore(self, state: bytes | None) -> None:
        source = self._spec.source
        if source is not None:
            source.open(self._index, self._spec.parallelism)
        if state is None:
            return
        found = pickle.loads(state)
        for operator, own in zip(self._operators, found["operators"], strict=True):
            operator.restore(own)
        if source is not None:
            source.seek(found["offset"])
        self._source_watermark.latest = found["source_watermark"]
        self._watermarks.channels, self._watermarks.current = found["watermarks"]
        self._report.watermark = self._watermarks.current

    def collect(self) -> SubtaskReport:
        """The figures, and the snapshots since the last call."""
        report = self._report
        acknowledgements, self._acknowledgements = self._acknowledgements, []
        return SubtaskReport(
            acknowledgements,
            report.exhausted,
            report.ended,
            list(self._outputs) if report.ended else [],
            report.events_in,
            report.events_out,
            sum(operator.late() for operator in self._operators),
            report.watermark,
            report.busy_s,
            report.pid,
        )
