"""A running stream: starts its subtasks, keeps its sources pumping, takes checkpoints, and starts again from the last
one when a subtask dies. Runs in a thread of the process that started it.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import weft
from weft import cloudpickle
from weft.data.streams.board import StreamBoard
from weft.data.streams.checkpoints import Checkpoint, Checkpoints
from weft.data.streams.graph import Graph, channel
from weft.data.streams.subtask import Subtask, SubtaskReport
from weft.exceptions import ActorError, NodeDiedError, ObjectLostError, TaskError, WorkerCrashedError

PUMP_S = 0.05
COLLECT_EVERY_S = 0.02
DEATHS = (ActorError, NodeDiedError, ObjectLostError, WorkerCrashedError)
_END = object()


@dataclass(frozen=True)
class JobOptions:
    checkpoint_every_s: float = 1.0
    checkpoint_dir: str | None = None
    max_restarts: int = 10
    sink: Callable[[int, list[Any]], None] | None = None


@dataclass
class StageProgress:
    """One stage's figures, over all its subtasks."""

    name: str
    parallelism: int
    events_in: int = 0
    events_out: int = 0
    late: int = 0
    watermark: float = float("-inf")
    busy_s: float = 0.0
    events_per_s: float = 0.0


@dataclass
class _Subtask:
    key: tuple[int, int]
    actor: Any
    report: SubtaskReport = field(default_factory=SubtaskReport)
    asked: Any = None
    """The ref of the answer that is awaited."""
    asked_at: float = 0.0
    barrier_sent: int | None = None


class StreamJob:
    """What `Stream.start` gives. Iterating gives the outputs, each once, as their checkpoints are complete."""

    def __init__(self, graph: Graph, options: JobOptions) -> None:
        if not weft.is_initialized():
            weft.init()
        self._graph = graph
        self._options = options
        keys = {(stage, number) for stage, spec in enumerate(graph.stages) for number in range(spec.parallelism)}
        self._checkpoints = Checkpoints(keys, options.checkpoint_dir)
        self._pickled = [cloudpickle.dumps(spec) for spec in graph.stages]
        self._outputs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._subtasks: dict[tuple[int, int], _Subtask] = {}
        self._begun = time.monotonic()
        self._board = StreamBoard()
        self.restarts = 0
        self.checkpoints_completed = 0
        if self._checkpoints.last is not None and options.sink is not None:
            options.sink(
                self._checkpoints.last.number, self._checkpoints.last.outputs
            )  # the program may have died before
        self._thread = threading.Thread(target=self._run, name="weft-data-stream", daemon=True)
        self._thread.start()

    # ---- for its owner -------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        while True:
            item = self._outputs.get()
            if item is _END:
                self._outputs.put(_END)
                self._raise_failure()
                return
            yield from item

    def wait(self, timeout_s: float | None = None) -> bool:
        """Until the stream has ended: whether it has. Raises what ended it early."""
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            return False
        self._raise_failure()
        return True

    @property
    def has_ended(self) -> bool:
        """Whether it runs no longer, for whatever reason."""
        return not self._thread.is_alive()

    def stop(self) -> None:
        """End it now; what came after the last checkpoint is not put out, and is done again when it is resumed."""
        self._stopping.set()
        self._thread.join()

    def __enter__(self) -> StreamJob:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def progress(self) -> list[StageProgress]:
        """Each stage's figures up to now."""
        took = max(1e-9, time.monotonic() - self._begun)
        made = []
        for number, spec in enumerate(self._graph.stages):
            reports = [one.report for key, one in list(self._subtasks.items()) if key[0] == number]
            events_in = sum(report.events_in for report in reports)
            made.append(
                StageProgress(
                    spec.name,
                    spec.parallelism,
                    events_in,
                    sum(report.events_out for report in reports),
                    sum(report.late for report in reports),
                    min((report.watermark for report in reports), default=float("-inf")),
                    sum(report.busy_s for report in reports),
                    events_in / took,
                )
            )
        return made

    def pids(self) -> list[int]:
        """Of the processes of all subtasks."""
        return [one.report.pid for one in list(self._subtasks.values()) if one.report.pid]

    # ---- its thread ----------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    self._attempt()
                    break
                except Exception as error:
                    if not _is_death(error):
                        raise
                    self.restarts += 1
                    if self.restarts > self._options.max_restarts:
                        raise
                finally:
                    self._tear_down()
        except BaseException as error:
            self._failure = error
        finally:
            ended = "failed" if self._failure is not None else "stopped" if self._stopping.is_set() else "finished"
            self._board.end(time.monotonic() - self._begun, ended, self.progress(), self._figures())
            self._outputs.put(_END)

    def _attempt(self) -> None:
        self._checkpoints.abandon()
        self._build()
        last_at = time.monotonic()
        while not self._stopping.is_set():
            self._ask()
            self._hear()
            now = time.monotonic()
            if self._board.is_due():
                self._board.tell(now - self._begun, "running", self.progress(), self._figures())
            if self._ended():
                self._commit_rest()
                return
            due = now - last_at >= self._options.checkpoint_every_s
            if due and self._checkpoints.under_way is None and not self._finishing():
                self._checkpoints.begin()
                last_at = now

    def _build(self) -> None:
        """All subtasks, those below first, with the states of the last checkpoint."""
        states = {} if self._checkpoints.last is None else self._checkpoints.last.states
        kind: Any = weft.remote(num_cpus=0, max_restarts=0, max_task_retries=0, scheduling_strategy="SPREAD")(Subtask)
        actors: dict[int, list[Any]] = {}
        for stage, spec in enumerate(self._graph.stages):
            channels = self._graph.channels(stage)
            actors[stage] = [
                kind.remote(self._pickled[stage], number, channels, states.get((stage, number)))
                for number in range(spec.parallelism)
            ]
        self._subtasks = {
            (stage, number): _Subtask((stage, number), actor)
            for stage, group in actors.items()
            for number, actor in enumerate(group)
        }
        connected = []
        for (stage, number), subtask in self._subtasks.items():
            below = [(edge.how, actors[edge.downstream], channel(edge, number)) for edge in self._graph.out_of(stage)]
            connected.append(subtask.actor.connect.remote(below))
        for subtask, pid in zip(self._subtasks.values(), weft.get(connected), strict=True):
            subtask.report.pid = pid

    def _figures(self) -> dict[str, Any]:
        return {"restarts": self.restarts, "checkpoints": self.checkpoints_completed}

    def _finishing(self) -> bool:
        sources = [one for one in self._subtasks.values() if self._graph.stages[one.key[0]].source is not None]
        return all(one.report.exhausted for one in sources)

    def _ask(self) -> None:
        """Every source pumps, every other subtask is asked for its figures now and then."""
        now = time.monotonic()
        finish = self._finishing() and self._checkpoints.under_way is None
        for one in self._subtasks.values():
            if one.asked is not None or one.report.ended:
                continue
            if self._graph.stages[one.key[0]].source is None:
                if now - one.asked_at >= COLLECT_EVERY_S:
                    one.asked, one.asked_at = one.actor.collect.remote(), now
                continue
            barrier = self._checkpoints.under_way
            if one.report.exhausted and not finish and barrier in (None, one.barrier_sent):
                continue
            fresh = barrier if barrier != one.barrier_sent else None
            one.asked, one.barrier_sent = one.actor.pump.remote(PUMP_S, fresh, finish), barrier

    def _hear(self) -> None:
        asked = {one.asked: one for one in self._subtasks.values() if one.asked is not None}
        if not asked:
            self._stopping.wait(COLLECT_EVERY_S / 4)
            return
        ready, _ = weft.wait(list(asked), num_returns=1, timeout=COLLECT_EVERY_S)
        for ref in ready:
            one = asked[ref]
            one.asked = None
            one.report = weft.get(ref)
            for acknowledgement in one.report.acknowledgements:
                done = self._checkpoints.acknowledged(
                    one.key, acknowledgement.number, acknowledgement.state, acknowledgement.outputs
                )
                if done is not None:
                    self._commit(done)

    def _ended(self) -> bool:
        return all(one.report.ended for one in self._subtasks.values())

    def _commit(self, checkpoint: Checkpoint) -> None:
        self.checkpoints_completed += 1
        self._put_out(checkpoint.number, checkpoint.outputs)

    def _commit_rest(self) -> None:
        """What was put out after the last checkpoint: the stream has ended, so nothing can undo it."""
        rest = [item for one in self._subtasks.values() for item in one.report.outputs]
        self._put_out(self._checkpoints.next_number, rest)

    def _put_out(self, number: int, outputs: list[Any]) -> None:
        if self._options.sink is not None:
            self._options.sink(number, outputs)
        elif outputs:
            self._outputs.put(outputs)

    def _tear_down(self) -> None:
        for one in self._subtasks.values():
            with contextlib.suppress(Exception):  # it may be dead already
                weft.kill(one.actor)
            one.asked = None


def _is_death(error: BaseException | None) -> bool:
    """Whether a process was lost; what a user's function raises is no such thing."""
    while error is not None:
        if isinstance(error, DEATHS):
            return True
        error = error.cause if isinstance(error, TaskError) else None
    return False
