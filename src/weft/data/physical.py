"""From an optimised plan to branches of stages: what is fused, what is exchanged, and in how many parts.

Row-wise steps join the stage below them, so that reading, filtering, mapping and the first half of an exchange are one
task. A new stage begins after an exchange, where a function needs actors, and before and after those on a GPU, which
must not wait for files. What depends on sizes (the side of a join that is copied to all, the number of parts) is
decided when the sizes are known, while running.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import polars as pl

import weft
from weft import cloudpickle
from weft.data import plan
from weft.data.collecting import FrameStep
from weft.data.exchanges import Exchanges
from weft.data.execute import Branch, Execution
from weft.data.functions import FunctionOp, Placement
from weft.data.schemas import fitted
from weft.data.sources.base import ReadHead, SequentialHead, keep_wanted
from weft.data.sources.memory import BlockSource, RefHead
from weft.data.sources.split import Split
from weft.data.stage import Stage, TakeBlock
from weft.data.tasks import reading_task


@dataclass
class Planner:
    """Makes the branches of one execution."""

    execution: Execution

    def branches(self, node: plan.Node) -> list[Branch]:
        make = getattr(self, f"_{type(node).__name__.lower()}", None)
        if make is not None:
            made: list[Branch] = make(node)
            return made
        return Exchanges(self.execution, self.branches).branches(node)

    def _read(self, node: plan.Read) -> list[Branch]:
        source = node.source
        if isinstance(source, BlockSource):
            runs = self.execution.sizing.runs(source.sizes)
            head = RefHead(node.wanted, source.what, source.kinds if source.differ else None)
            return [Branch(lambda: (tuple(source.refs[run]) for run in runs), [Stage(head)])]
        self.execution.statistics.skip(getattr(source, "skipped", dict)())
        splits = list(source.splits(self.execution.cpus, self.execution.sizing.block_bytes))
        runs_of_splits = _by_kind(splits)
        if not runs_of_splits:  # nothing but empty files
            kinds = source.types()
            empty = [] if kinds is None else [(pl.DataFrame(schema=kinds).to_arrow(),)]
            return [Branch(lambda: empty, [Stage(SequentialHead(node.wanted))])]
        return [self._reading(source, kind, node.wanted) for kind in runs_of_splits]

    def _reading(self, source: Any, splits: Sequence[Split], wanted: plan.Wanted) -> Branch:
        if splits[0].sequential:
            return Branch(partial(self._sequential, source, splits), [Stage(SequentialHead(wanted))])
        runs = self.execution.sizing.runs([split.size_bytes for split in splits])
        return Branch(lambda: (tuple(splits[run]) for run in runs), [Stage(ReadHead(source, wanted))])

    def _sequential(self, source: Any, splits: Sequence[Split]) -> Iterator[tuple[Any, ...]]:
        """Blocks of one split after the other; tasks of the next splits already read ahead."""
        pickled = weft.put(cloudpickle.dumps(source))
        waiting = list(splits)
        reading: list[Any] = []
        while waiting or reading:
            while waiting and len(reading) < self.execution.cpus:
                reading.append(reading_task.remote(pickled, waiting.pop(0)))
            for ref in reading[0]:
                yield (ref,)
            reading.pop(0)

    # ---- row-wise steps ----------------------------------------------------------------------------

    def _filter(self, node: plan.Filter) -> list[Branch]:
        predicate = node.predicate
        return self._step(node, FrameStep("filter", lambda frame: frame.filter(predicate), moves_rows=True))

    def _project(self, node: plan.Project) -> list[Branch]:
        expressions = list(node.expressions)
        if node.keep:
            return self._step(node, FrameStep("with_columns", lambda frame: frame.with_columns(expressions)))
        return self._step(node, FrameStep("select", lambda frame: frame.select(expressions)))

    def _reshape(self, node: plan.Reshape) -> list[Branch]:
        expression = node.expression
        return self._step(node, FrameStep("select", lambda frame: frame.select(expression), moves_rows=True))

    def _drop(self, node: plan.Drop) -> list[Branch]:
        names = list(node.names)
        return self._step(node, FrameStep("drop", lambda frame: frame.drop(names, strict=False)))

    def _rename(self, node: plan.Rename) -> list[Branch]:
        mapping = dict(node.mapping)
        return self._step(node, FrameStep("rename", lambda frame: frame.rename(mapping)))

    def _step(self, node: plan.Node, step: Any) -> list[Branch]:
        return [branch.then(step) for branch in self.branches(node.inputs[0])]

    def _map(self, node: plan.Map) -> list[Branch]:
        function = node.function
        return [
            self._with_function(branch, function.placement, FunctionOp(function))
            for branch in self.branches(node.inputs[0])
        ]

    def _with_function(self, branch: Branch, placement: Placement, step: FunctionOp) -> Branch:
        if branch.stages[-1].placement == placement and placement.actors is None:
            return branch.then_there(step)
        if placement.actors is None and not placement.num_gpus and branch.stages[-1].placement == Placement():
            last = branch.stages[-1]  # what comes before it is done where the function runs
            fused = Stage(last.head, (*last.steps, step), placement=placement)
            return Branch(branch.inputs, [*branch.stages[:-1], fused])
        return branch.then_stage(Stage(TakeBlock(), (step,), placement=placement))

    def _union(self, node: plan.Union) -> list[Branch]:
        schema = node.schema
        made = []
        for child in node.inputs:
            branches = self.branches(child)
            if schema is not None and child.schema != schema:
                branches = [branch.then(FrameStep("fit", partial(fitted, wanted=schema))) for branch in branches]
            elif node.wanted is not None:
                branches = [branch.then(FrameStep("select", partial(only, wanted=node.wanted))) for branch in branches]
            made += branches
        return made

    def _write(self, node: plan.Write) -> list[Branch]:
        return [branch.ended(node.writer) for branch in self.branches(node.inputs[0])]

    def _count(self, node: plan.Count) -> list[Branch]:
        return self._step(node, FrameStep("count", lambda frame: frame.select(pl.len().alias("rows"))))


def only(frame: pl.LazyFrame, wanted: frozenset[str]) -> pl.LazyFrame:
    return keep_wanted(frame, frame.collect_schema().names(), wanted)


def _by_kind(splits: Iterable[Split]) -> list[list[Split]]:
    """Runs of neighbours that are read the same way."""
    runs: list[list[Split]] = []
    for split in splits:
        if runs and runs[-1][0].sequential == split.sequential:
            runs[-1].append(split)
        else:
            runs.append([split])
    return runs
