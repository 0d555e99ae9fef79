"""Continuous training: a learner at the end of a stream, and versions of its model as it goes.

The learner is the operator of a stage with one subtask. Its state is in every checkpoint, so that after a failure each
event has been learned from exactly once. A version is published when the checkpoint that it belongs to is complete; of
several in one checkpoint only the last.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from weft.data.streams.batch import Batch
from weft.data.streams.graph import Edge, StageSpec
from weft.data.streams.job import StageProgress, StreamJob
from weft.data.streams.operators import Operator
from weft.data.streams.watermarks import END

if TYPE_CHECKING:
    from weft.data.streams.stream import Stream


class Learner(Protocol):
    """What learns. It is pickled to where it runs."""

    def update(self, events: list[Any]) -> dict[str, float] | None:
        """Learn from a batch; figures of interest, such as the loss."""
        ...

    def state(self) -> Any:
        """All that it has learned and needs to go on; can be pickled."""
        ...

    def load(self, state: Any) -> None:
        """Go on from what `state` gave."""
        ...


@dataclass(frozen=True)
class ModelVersion:
    """A model as it was after so many updates."""

    number: int
    updates: int
    events: int
    """Learned from up to here."""
    state: Any
    metrics: dict[str, float]


@dataclass
class TrainOperator(Operator):
    learner: Any
    batch_size: int
    publish_every: int
    waiting: list[Any] = field(default_factory=list)
    updates: int = 0
    events: int = 0
    versions: int = 0
    metrics: dict[str, float] = field(default_factory=dict)

    def process(self, batch: Batch, side: int) -> Batch:
        made = []
        self.waiting.extend(batch.values)
        while len(self.waiting) >= self.batch_size:
            now, self.waiting = self.waiting[: self.batch_size], self.waiting[self.batch_size :]
            self._update(now)
            if self.updates % self.publish_every == 0:
                made.append(self._version())
        return Batch(made, [0.0] * len(made), None, batch.watermark)

    def _update(self, events: list[Any]) -> None:
        self.metrics = self.learner.update(events) or {}
        self.updates += 1
        self.events += len(events)

    def _version(self) -> ModelVersion:
        self.versions += 1
        return ModelVersion(self.versions, self.updates, self.events, self.learner.state(), self.metrics)

    def advance(self, watermark: float) -> Batch | None:
        """At the end of all events the rest is learned, and a last version made."""
        if watermark != END:
            return None
        if self.waiting:
            self._update(self.waiting)
            self.waiting = []
        return Batch([self._version()], [0.0])

    def snapshot(self) -> Any:
        return self.learner.state(), self.waiting, self.updates, self.events, self.versions, self.metrics

    def restore(self, state: Any) -> None:
        learned, self.waiting, self.updates, self.events, self.versions, self.metrics = state
        self.learner.load(learned)


class TrainingJob:
    """What `Stream.train` gives: a stream that runs, and the newest version of what it has learned."""

    def __init__(self, publish: Callable[[ModelVersion], None] | None) -> None:
        self._publish = publish
        self._changed = threading.Condition()
        self._latest: ModelVersion | None = None
        self.job: StreamJob

    def _sink(self, number: int, versions: list[ModelVersion]) -> None:
        if not versions:
            return
        newest = max(versions, key=lambda version: version.number)
        if self._publish is not None:
            self._publish(newest)
        with self._changed:
            self._latest = newest
            self._changed.notify_all()

    @property
    def latest(self) -> ModelVersion | None:
        """The newest version of the model, or None before the first."""
        return self._latest

    def wait_for_version(self, number: int, timeout_s: float | None = None) -> ModelVersion:
        """The newest version, once it is at least this one. TimeoutError; RuntimeError if the stream ends before."""

        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._changed:
            while True:
                ended = self.job.has_ended
                if self._latest is not None and self._latest.number >= number:
                    return self._latest
                if ended:
                    break
                if deadline is not None and time.monotonic() > deadline:
                    raise TimeoutError(f"version {number} was not published within {timeout_s} s")
                self._changed.wait(0.05)  # the end of the stream notifies nobody
        self.job.wait(0)
        raise RuntimeError(f"the stream ended before version {number}: the last was {self._latest}")

    def wait(self, timeout_s: float | None = None) -> bool:
        """Until the stream has ended: whether it has."""
        return self.job.wait(timeout_s)

    def stop(self) -> None:
        """Ends the stream and the training."""
        self.job.stop()

    def progress(self) -> list[StageProgress]:
        """What each stage has done."""
        return self.job.progress()

    def __enter__(self) -> TrainingJob:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def train(
    stream: Stream,
    learner: Learner,
    *,
    batch_size: int = 256,
    publish_every: int = 10,
    publish: Callable[[ModelVersion], None] | None = None,
    **options: Any,
) -> TrainingJob:
    """`learner.update` of every `batch_size` events; after every `publish_every` updates a version, which goes to
    `publish(version)` in this process, to `latest`, and to whoever waits for it. Further options: those of `start`."""
    for name, value in (("batch_size", batch_size), ("publish_every", publish_every)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, but got {value}")
    if "sink" in options:
        raise TypeError("train() has no sink: give publish a function")
    graph = stream._graph.copy()
    graph.stages.append(StageSpec("train", 1, [TrainOperator(learner, batch_size, publish_every)]))
    graph.edges.append(Edge(stream._stage, len(graph.stages) - 1, "any"))
    made = TrainingJob(publish)
    made.job = type(stream)(graph, len(graph.stages) - 1).start(sink=made._sink, **options)
    return made
