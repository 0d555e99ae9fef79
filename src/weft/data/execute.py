"""Runs branches of stages: submits tasks within a window and gives their blocks in order. Runs where data is consumed.

A branch is a sequence of inputs and the stages that each goes through. The tasks of all stages of an input are
submitted at once, each with the refs of the one before, so that no block waits for this process. What bounds memory is
how many inputs are under way. Nothing runs ahead of its consumer by more than the window, nor after it has gone.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

import weft
from weft.data.board import DataBoard
from weft.data.errors import DataError
from weft.data.progress import Progress
from weft.data.running import Report
from weft.data.sizing import Sizing
from weft.data.stage import Stage, TakeBlock
from weft.data.statistics import Statistics
from weft.data.tasks import pickle_stage, stage_actor, stage_task
from weft.data.window import Window
from weft.exceptions import TaskError


@dataclass(frozen=True)
class Bundle:
    """What a branch made of one input: one block, or the parts of one."""

    refs: tuple[Any, ...]
    report: Report
    index: int = 0
    """Which input it was made of, counted over all branches."""

    @property
    def ref(self) -> Any:
        return self.refs[0]


def put_bundle(block: pa.Table) -> Bundle:
    """Of a block that this process made."""
    rows, size = block.num_rows, block.nbytes
    schema = block.schema.remove_metadata()
    return Bundle((weft.put(block),), Report(rows, size, schema, 0.0, (), {}, (rows,), (size,), {}))


@dataclass
class Branch:
    """Inputs, and what they go through. `prepare` is called when it is about to run, as what is ahead may decide."""

    inputs: Callable[[], Iterable[tuple[Any, ...]]]
    stages: list[Stage]

    def then(self, step: Any) -> Branch:
        return self._off_gpus().then_there(step)

    def then_there(self, step: Any) -> Branch:
        """The same, on the device that the last stage may hold."""
        last = self.stages[-1]
        return self._with_last(replace(last, steps=(*last.steps, step)))

    def then_stage(self, stage: Stage) -> Branch:
        return Branch(self.inputs, [*self.stages, stage])

    def divided(self, divide: Any) -> Branch:
        branch = self._off_gpus()
        return branch._with_last(replace(branch.stages[-1], divide=divide))

    def ended(self, ending: Any) -> Branch:
        branch = self._off_gpus()
        return branch._with_last(replace(branch.stages[-1], ending=ending))

    def _off_gpus(self) -> Branch:
        """What else is done does not hold a device."""
        return self.then_stage(Stage(TakeBlock())) if self.stages[-1].placement.num_gpus else self

    def _with_last(self, stage: Stage) -> Branch:
        return Branch(self.inputs, [*self.stages[:-1], stage])


@dataclass
class _Run:
    """One input on its way through the stages."""

    parts: tuple[Any, ...]
    reports: list[Any]
    names: list[str]
    index: int
    done: tuple[Report, ...] = ()


SIZING_KEPT_S = 1.0
_sizing: tuple[str, float, Sizing] = ("", 0.0, Sizing(1, 2**30))
"""Of which node's cluster, until when, and what it is: to ask the head costs as much as a query of little data."""


def cluster_sizing() -> Sizing:
    """Starts an engine if there is none."""
    global _sizing
    if not weft.is_initialized():
        weft.init()
    node, now = weft.get_runtime_context().get_node_id(), time.monotonic()
    if _sizing[0] != node or now >= _sizing[1]:
        there = weft.cluster_resources()
        found = Sizing(max(1, int(there.get("CPU", 1))), int(there.get("object_store_memory", 2**30)))
        _sizing = (node, now + SIZING_KEPT_S, found)
    return _sizing[2]


@dataclass
class Execution:
    """One execution of one plan: how wide it may be, and what it has done so far."""

    statistics: Statistics = field(default_factory=Statistics)
    runs: bool = True
    """False where a plan is only to be shown."""
    sizing: Sizing = field(init=False)
    board: DataBoard = field(init=False)
    progress: Progress = field(default_factory=Progress)

    def __post_init__(self) -> None:
        self.sizing = cluster_sizing()
        self.board = DataBoard(self.sizing.budget_bytes)

    @property
    def cpus(self) -> int:
        return self.sizing.cpus

    def run(self, branches: Sequence[Branch], ordered: bool = True) -> Iterator[Bundle]:
        """The bundles of all branches, one after the other; in the order of the inputs unless told otherwise."""
        with contextlib.ExitStack() as stack:
            yield from self._windowed(self._submissions(branches, stack), ordered)

    def _windowed(self, submissions: Iterator[_Run], ordered: bool) -> Iterator[Bundle]:
        window = Window(2 * self.cpus + 1, self.sizing.budget_bytes)
        order: deque[_Run] = deque()
        unfinished: dict[Any, _Run] = {}
        more = True
        try:
            while more or order:
                while more and window.may_submit():
                    run = next(submissions, None)
                    if run is None:
                        more = False
                        break
                    window.submitted()
                    order.append(run)
                    unfinished[run.reports[-1]] = run
                ready = order[0] if order and order[0].done else None
                if ready is None and not ordered:
                    ready = next((run for run in order if run.done), None)
                if ready is not None:
                    order.remove(ready)
                    last = ready.done[-1]
                    yield from _bundles(ready)
                    window.taken(last.size_bytes)
                elif unfinished:
                    self._await_some(unfinished, window)
        finally:
            self.board.end(self.statistics)
            for run in unfinished.values():
                for report in run.reports:
                    weft.cancel(report)

    def _await_some(self, unfinished: dict[Any, _Run], window: Window) -> None:
        ready, _ = weft.wait(list(unfinished), num_returns=1)
        for ref in ready:
            run = unfinished.pop(ref)
            run.done = tuple(get(run.reports))
            window.finished(run.done[-1].size_bytes)
            for name, report in zip(run.names, run.done, strict=True):
                self.statistics.add(name, report)
            self.statistics.held(window.held_bytes, window.running)
            self.progress.tell(self.statistics)
            self.board.tell(self.statistics)

    def _submissions(self, branches: Sequence[Branch], stack: contextlib.ExitStack) -> Iterator[_Run]:
        index = 0
        for branch in branches:
            sized = [replace(stage, sizes=stage.sizes or self.sizing.block_sizes) for stage in branch.stages]
            runners = [_runner(stage, stack) for stage in sized]
            for inputs in branch.inputs():
                run = _Run((), [], [stage.name for stage in branch.stages], index)
                for runner in runners:
                    *made, report = runner(index, inputs)
                    inputs = tuple(made)
                    run.reports.append(report)
                run.parts = inputs
                index += 1
                yield run


def _bundles(run: _Run) -> Iterator[Bundle]:
    """What came of one input; of what the last stage cut, a bundle a block."""
    last = run.done[-1]
    if len(run.parts) == len(last.part_rows):
        yield Bundle(run.parts, last, run.index)
        return
    for ref, rows, size_bytes in zip(get(run.parts[0]).refs, last.part_rows, last.part_bytes, strict=True):
        yield Bundle((ref,), replace(last, rows=rows, size_bytes=size_bytes), run.index)
        last = replace(last, extra={})  # what is told of all of it is told once


Runner = Callable[[int, tuple[Any, ...]], Sequence[Any]]


def _runner(stage: Stage, stack: contextlib.ExitStack) -> Runner:
    """Submits one input of a stage; what comes back are the refs of its parts and of its report."""
    returns = (stage.divide.parts if stage.divide is not None else 1) + 1
    name, pickled = pickle_stage(stage)
    if stage.placement.actors is not None:
        return _Actors(stage, pickled, returns, stack)
    task = stage_task.options(num_returns=returns, name=f"data: {stage.name}"[:120], **stage.placement.options())

    def submit(index: int, inputs: tuple[Any, ...]) -> Sequence[Any]:
        refs: Any = task.remote(name, pickled, index, *inputs)
        made: Sequence[Any] = refs
        return made

    return submit


class _Actors:
    """A pool that gives each input to the actor with the fewest; it ends with the execution."""

    def __init__(self, stage: Stage, pickled: Any, returns: int, stack: contextlib.ExitStack) -> None:
        count = stage.placement.actors or 1
        kind = stage_actor.options(**stage.placement.options(), max_restarts=3, max_task_retries=3)
        self._actors = [kind.remote(pickled) for _ in range(count)]
        self._busy: list[list[Any]] = [[] for _ in range(count)]
        self._returns = returns
        stack.callback(self._end)

    def __call__(self, index: int, inputs: tuple[Any, ...]) -> Sequence[Any]:
        waiting = [ref for busy in self._busy for ref in busy]
        if waiting:
            done = set(weft.wait(waiting, num_returns=len(waiting), timeout=0)[0])
            self._busy = [[ref for ref in busy if ref not in done] for busy in self._busy]
        chosen = min(range(len(self._actors)), key=lambda number: len(self._busy[number]))
        refs: Sequence[Any] = self._actors[chosen].run.options(num_returns=self._returns).remote(index, *inputs)
        self._busy[chosen].append(refs[-1])
        return refs

    def _end(self) -> None:
        for actor in self._actors:
            weft.kill(actor)


def get(refs: Any) -> Any:
    """The values; what went wrong with the data is raised as itself, with the task's story as its cause."""
    try:
        return weft.get(refs)
    except TaskError as error:
        cause: BaseException | None = error
        while isinstance(cause, TaskError) and cause.cause is not None:
            cause = cause.cause
        if isinstance(cause, DataError):
            raise cause from error
        raise
