"""Operations for which rows of different blocks must meet: sort, shuffle, group, join, repartition, zip, limit.

Each gives a branch whose inputs, when they are first asked for, run everything below it. Runs where data is consumed.
"""

from __future__ import annotations

import itertools
import secrets
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from weft.data import plan
from weft.data.aggregates import combined_frame, partial_frame, whole_frame
from weft.data.block import concatenate, frame_of
from weft.data.collecting import FrameStep
from weft.data.exchange import (
    ColumnsDivide,
    Gather,
    GatherPair,
    GatherShuffled,
    GatherSlices,
    HashDivide,
    PutBeside,
    RandomDivide,
    RangeDivide,
    Sample,
    SlicesDivide,
    ZipSlices,
    boundaries,
    sorted_sample,
)
from weft.data.execute import Branch, Bundle, Execution, get
from weft.data.expressions import all_roots, output
from weft.data.groups import GroupsStep
from weft.data.meeting import Side, common, meet
from weft.data.optimize import prune
from weft.data.sizing import BlockSizes
from weft.data.sources.parquet import ParquetSource
from weft.data.stage import Stage, TakeBlock

if TYPE_CHECKING:
    from weft.data.joining import Joined
    from weft.data.running import Report, Running

BROADCAST_BYTES = 32 * 2**20
"""A side of a join up to this size is copied to all tasks of the other side."""
UNCUT = BlockSizes(2**62, 2**62)
"""For blocks whose number is given."""
TOP_ROWS = 100_000
"""Up to so many first rows of a sort are found without an exchange."""


@dataclass(frozen=True)
class TakeRows:
    """The head of a stage behind a limit. Inputs: a block, and how many rows of it."""

    def __str__(self) -> str:
        return "limit"

    def open(self, inputs: Sequence[Any], running: Running) -> pa.Table:
        block: pa.Table = inputs[0]
        return block.slice(0, inputs[1])


@dataclass(frozen=True)
class NoRows:
    """A step of which nothing comes, not even columns: they are not known."""

    name: str
    moves_rows = True

    def __str__(self) -> str:
        return self.name

    def apply(self, block: pa.Table, running: Running) -> Iterator[pa.Table]:
        yield from ()


@dataclass
class Exchanges:
    execution: Execution
    below: Callable[[plan.Node], list[Branch]]

    def branches(self, node: plan.Node) -> list[Branch]:
        made: list[Branch] = getattr(self, f"_{type(node).__name__.lower()}")(node)
        return made

    def _parts(self, *nodes: plan.Node, shrink: int = 1) -> int:
        """How many parts an exchange has of what the nodes give, and which gets so much smaller before."""
        expected = sum(estimated_bytes(node, self.execution) for node in nodes) // shrink
        return self.execution.sizing.parts(expected)

    def _exchange(self, branches: list[Branch], divide: Any, head: Any) -> Branch:
        """What `divide` put into the same part meets in one task, which begins with `head`."""

        def inputs() -> Iterator[tuple[Any, ...]]:
            for (refs,) in meet(self.execution, [Side(branches, divide)]):
                yield refs

        return Branch(inputs, [Stage(head)])

    # ---- one input ---------------------------------------------------------------------------------

    def _groupby(self, node: plan.GroupBy) -> list[Branch]:
        keys, aggregates = node.keys, node.aggregates
        branches = self.below(node.inputs[0])
        combines = all(aggregate.combines for aggregate in aggregates)
        parts = self._parts(node.inputs[0], shrink=4 if combines else 1)
        divide = HashDivide(keys, parts if keys else 1)
        if combines:
            step = FrameStep("partial groups", lambda frame: partial_frame(frame, keys, aggregates))
            head = Gather("combine groups", lambda frame: combined_frame(frame, keys, aggregates))
            return [self._exchange([branch.then(step) for branch in branches], divide, head)]
        head = Gather("groups", lambda frame: whole_frame(frame, keys, aggregates))
        return [self._exchange(branches, divide, head)]

    def _mapgroups(self, node: plan.MapGroups) -> list[Branch]:
        divide = HashDivide(node.keys, self._parts(node.inputs[0]) if node.keys else 1)
        branch = self._exchange(self.below(node.inputs[0]), divide, Gather("groups"))
        return [branch.then(GroupsStep(node.keys, node.function))]

    def _shuffle(self, node: plan.Shuffle) -> list[Branch]:
        seed = secrets.randbelow(2**31) if node.seed is None else node.seed
        divide = RandomDivide(self._parts(node.inputs[0]), seed)
        return [self._exchange(self.below(node.inputs[0]), divide, GatherShuffled(seed))]

    def _sort(self, node: plan.Sort) -> list[Branch]:
        key, child = node.keys[0], node.inputs[0]
        node = replace(node, inputs=())  # what runs in tasks takes along no plan

        def inputs() -> Iterator[tuple[Any, ...]]:
            if _is_cheap(child):  # its key alone is read first, so that its rows need not be kept until all are there
                key_only = prune(plan.Project((child,), (pl.col(key),)), None)
                sampled = [branch.then(Sample(key, keep=False)) for branch in self.below(key_only)]
                reports = [bundle.report for bundle in self.execution.run(sampled, ordered=False)]
                divide = self._ranges(node, reports, estimated_bytes(child, self.execution))
                side = Side(self.below(child), divide)
            else:
                sampled = [branch.then(Sample(key, keep=True)) for branch in self.below(child)]
                bundles = list(self.execution.run(sampled))
                reports = [bundle.report for bundle in bundles]
                divide = self._ranges(node, reports, sum(report.size_bytes for report in reports))
                side = Side([Branch(lambda: _taken(bundles), [Stage(TakeBlock())])], divide)
            for (refs,) in meet(self.execution, [side]):
                yield refs

        def in_order(frame: pl.LazyFrame) -> pl.LazyFrame:
            whole = frame.collect()  # the streaming engine takes twice as long for a sort of what is in memory
            return node.in_order(whole).lazy()

        return [Branch(inputs, [Stage(Gather("sort", in_order))])]

    def _ranges(self, node: plan.Sort, reports: Sequence[Report], size_bytes: int) -> RangeDivide:
        parts = self.execution.sizing.parts(size_bytes, len(reports))
        sample = sorted_sample([part for report in reports for part in report.extra.get("samples", ())])
        last = bool(node.nulls_last) and node.nulls_last[0]
        return RangeDivide(node.keys[0], node.descending[0], boundaries([sample], parts), sample, last)

    def _limit(self, node: plan.Limit) -> list[Branch]:
        rows, child = node.rows, node.inputs[0]
        if isinstance(child, plan.Sort) and rows <= TOP_ROWS:
            return [self._top(child, rows)]
        step = FrameStep("limit", lambda frame: frame.head(rows))
        branches = [branch.then(step) for branch in self.below(child)]

        def inputs() -> Iterator[tuple[Any, ...]]:
            left = rows
            for number, bundle in enumerate(self.execution.run(branches)):
                if number and not left:
                    return
                taken = min(left, bundle.report.rows)
                left -= taken
                yield bundle.ref, taken
                if not left:
                    return

        return [Branch(inputs, [Stage(TakeRows())])]

    def _top(self, node: plan.Sort, rows: int) -> Branch:
        order = replace(node, inputs=())  # what runs in tasks takes along no plan

        def first(frame: pl.LazyFrame) -> pl.LazyFrame:
            return order.in_order(frame).head(rows)

        branches = [branch.then(FrameStep("top", first)) for branch in self.below(node.inputs[0])]

        def inputs() -> Iterator[tuple[Any, ...]]:
            refs = tuple(bundle.ref for bundle in self.execution.run(branches))
            yield from [refs] if refs else []

        return Branch(inputs, [Stage(Gather("top", first))])

    def _allrows(self, node: plan.AllRows) -> list[Branch]:
        branches, expressions = self.below(node.inputs[0]), list(node.expressions)
        if node.keep:
            return [self._beside(branches, node)]

        def inputs() -> Iterator[tuple[Any, ...]]:
            refs = tuple(bundle.ref for bundle in self.execution.run(branches))
            yield from [refs] if refs else []

        head = Gather("select over all rows", lambda frame: frame.collect().lazy().select(expressions))
        return [Branch(inputs, [Stage(head)])]

    def _beside(self, branches: list[Branch], node: plan.AllRows) -> Branch:
        """Of each block the columns that the expressions read go to one task, and what it makes comes back."""
        expressions, names = list(node.expressions), [output(expr) for expr in node.expressions]
        divide = ColumnsDivide(all_roots(expressions))

        def computed(frame: pl.LazyFrame) -> pl.LazyFrame:
            return frame.collect().lazy().with_columns(expressions).select(names)

        def inputs() -> Iterator[tuple[Any, ...]]:
            bundles = list(self.execution.run([branch.divided(divide) for branch in branches]))
            if not bundles:
                return
            stage = Stage(
                Gather("over all rows", computed),
                divide=SlicesDivide(tuple(bundle.report.part_rows[1] for bundle in bundles)),
            )
            read = tuple(bundle.refs[0] for bundle in bundles)
            (made,) = self.execution.run([Branch(partial(iter, [read]), [stage])])
            pairs = deque((bundle.refs[1], ref) for bundle, ref in zip(bundles, made.refs, strict=True))
            del bundles, made, read, stage
            while pairs:
                yield pairs.popleft()

        return Branch(inputs, [Stage(PutBeside())])

    def _repartition(self, node: plan.Repartition) -> list[Branch]:
        branches, wanted = self.below(node.inputs[0]), node.blocks

        def inputs() -> Iterator[tuple[Any, ...]]:
            bundles = list(self.execution.run(branches))
            total = sum(bundle.report.rows for bundle in bundles)
            cuts = [total * number // wanted for number in range(wanted + 1)]
            fit = common([bundle.report.schema for bundle in bundles], "repartition")
            for start, stop in itertools.pairwise(cuts):
                slices, refs = _overlapping(bundles, start, stop)
                yield ((slices, fit), *refs)

        return [Branch(inputs, [Stage(GatherSlices(), sizes=UNCUT)])]

    # ---- two inputs --------------------------------------------------------------------------------

    def _zip(self, node: plan.Zip) -> list[Branch]:
        left, right = (self.below(child) for child in node.inputs)

        def inputs() -> Iterator[tuple[Any, ...]]:
            left_bundles, right_bundles = list(self.execution.run(left)), list(self.execution.run(right))
            counts = [sum(bundle.report.rows for bundle in side) for side in (left_bundles, right_bundles)]
            if counts[0] != counts[1]:
                raise ValueError(f"zip needs as many rows on both sides, but got {counts[0]} and {counts[1]}")
            fit = common([bundle.report.schema for bundle in right_bundles], "zip")
            at = 0
            filled = [bundle for bundle in left_bundles if bundle.report.rows]  # an empty one may have lost its columns
            for bundle in filled or _with_columns(left_bundles):
                slices, refs = _overlapping(right_bundles, at, at + bundle.report.rows)
                at += bundle.report.rows
                yield ((slices, fit), bundle.ref, *refs)

        return [Branch(inputs, [Stage(ZipSlices())])]

    def _join(self, node: plan.Join) -> list[Branch]:
        joined = node.joined
        sizes = [estimated_bytes(child, self.execution) for child in node.inputs]
        small = 1 if sizes[1] <= sizes[0] or node.how != "inner" else 0
        if self.execution.runs and _may_broadcast(node.how, small) and sizes[small] <= 8 * BROADCAST_BYTES:
            bundles = list(self.execution.run(self.below(node.inputs[small])))
            if sum(bundle.report.size_bytes for bundle in bundles) <= BROADCAST_BYTES:
                return self._broadcast(node, joined, small, bundles)
            known = [Branch(lambda: _taken(bundles), [Stage(TakeBlock())])]
        else:
            known = self.below(node.inputs[small])
        sides = [known if which == small else self.below(node.inputs[which]) for which in (0, 1)]
        return [self._hash_join(node, joined, sides)]

    def _broadcast(self, node: plan.Join, joined: Joined, small: int, bundles: list[Bundle]) -> list[Branch]:
        """Each task of the large side joins with the whole small one."""
        table = concatenate(get([bundle.ref for bundle in bundles])) if bundles else pa.table({})
        knows = [side is not None for side in (joined.left, joined.right)]
        knows[small] |= table.num_columns > 0
        step: Any
        if joined.is_nothing(small == 1 or knows[0], small == 0 or knows[1]):
            step = NoRows("join")
        elif small == 1:
            step = FrameStep("join", lambda frame: joined(frame, frame_of(table).lazy()), moves_rows=True)
        else:
            step = FrameStep("join", lambda frame: joined(frame_of(table).lazy(), frame), moves_rows=True)
        return [branch.then(step) for branch in self.below(node.inputs[1 - small])]

    def _hash_join(self, node: plan.Join, joined: Joined, sides: list[list[Branch]]) -> Branch:
        parts = self._parts(*node.inputs)

        def inputs() -> Iterator[tuple[Any, ...]]:
            keys = (node.left_on, node.right_on)
            divided = [Side(side, HashDivide(of_side, parts)) for side, of_side in zip(sides, keys, strict=True)]
            for left, right in meet(self.execution, divided):
                yield (len(left), *left, *right)

        return Branch(inputs, [Stage(GatherPair("join", joined))])


def _may_broadcast(how: str, small: int) -> bool:
    return how in (("inner", "right") if small == 0 else ("inner", "left", "semi", "anti"))


def _taken(bundles: list[Bundle]) -> Iterator[tuple[Any, ...]]:
    """Each block, given up here when it is asked for."""
    while bundles:
        yield (bundles.pop(0).ref,)


def _with_columns(bundles: Sequence[Bundle]) -> list[Bundle]:
    """One of them, if possible one that has kept its columns."""
    return ([bundle for bundle in bundles if len(bundle.report.schema)] or list(bundles))[:1]


def _overlapping(bundles: Sequence[Bundle], start: int, stop: int) -> tuple[list[tuple[int, int]], list[Any]]:
    """Rows [start, stop) of all: which slices of which blocks. At least one block, for its columns."""
    slices, refs, at = [], [], 0
    for bundle in bundles:
        end = at + bundle.report.rows
        if at < stop and end > start:
            slices.append((max(start, at) - at, min(stop, end) - at))
            refs.append(bundle.ref)
        at = end
    if not refs and bundles:
        return [(0, 0)], [_with_columns(bundles)[0].ref]
    return slices, refs


def _is_cheap(node: plan.Node) -> bool:
    """Whether reading it twice costs less than keeping it: no user's function, no exchange, and only files."""
    if isinstance(node, plan.Read):
        return isinstance(node.source, ParquetSource)
    return isinstance(node, plan.Filter | plan.Project | plan.Drop | plan.Rename) and _is_cheap(node.inputs[0])


def estimated_bytes(node: plan.Node, execution: Execution) -> int:
    """What a node gives, in memory, at most about; from the sizes of its sources."""
    if isinstance(node, plan.Read):
        total = sum(split.size_bytes for split in node.source.splits(execution.cpus, execution.sizing.block_bytes))
        names, columns = node.source.columns(), node.columns
        return total * len(columns) // max(1, len(names)) if names and columns else total
    if isinstance(node, plan.GroupBy) and not node.keys:
        return 0
    return sum(estimated_bytes(child, execution) for child in node.inputs)
