"""A stage: the steps that one task runs on one block, fused. Runs in workers.

Steps are of two kinds. Relational ones take and give a lazy Polars frame, so that neighbours are optimised and run
together, a reader included: its filter and columns reach the file format. The others take a block and give one, or
several. A stage may end in a step that divides its rows for an exchange; then it gives several blocks.

What a task is given may be several inputs, each of which goes through the steps by itself; and what comes out is put
together, or cut, to blocks of about one size. Where they are more than one, the task's value is a `Cut`.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import polars as pl
import pyarrow as pa

import weft
from weft.data.block import block_of, coalesced, concatenate, frame_of, piece_of
from weft.data.collecting import KERNEL_FAILURES, FrameStep, Query, told, where
from weft.data.errors import RowError
from weft.data.functions import Placement
from weft.data.running import Report, Running
from weft.data.sizing import BlockSizes


class Head(Protocol):
    """The first step: from what the task was given to rows."""

    def open(self, inputs: Sequence[Any], running: Running) -> pl.LazyFrame | pa.Table: ...


class Divide(Protocol):
    """The last step of a stage before an exchange."""

    parts: int

    def divide(self, frame: pl.DataFrame, running: Running) -> list[pl.DataFrame]: ...


class Ending(Protocol):
    """A last step that takes blocks as a task would give them, such as one that writes files."""

    def end(self, block: pa.Table, running: Running) -> pa.Table: ...


@dataclass(frozen=True)
class Cut:
    """What a task made, in blocks that it put into the arena one after the other."""

    refs: tuple[Any, ...]


@dataclass(frozen=True)
class TakeBlock:
    """The head of a stage whose input is what another stage made."""

    def __str__(self) -> str:
        return "block"

    def inputs(self, given: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
        yield from ((weft.get(ref),) for ref in given[0].refs) if isinstance(given[0], Cut) else [(given[0],)]

    def open(self, inputs: Sequence[Any], running: Running) -> pa.Table:
        return inputs[0]


@dataclass(frozen=True)
class Stage:
    head: Any
    steps: tuple[Any, ...] = ()
    divide: Any = None
    placement: Placement = field(default_factory=Placement)
    ending: Any = None
    sizes: BlockSizes | None = None
    """Of the blocks that it makes; None: as the execution says."""

    @property
    def name(self) -> str:
        parts = [str(part) for part in (self.head, *self.steps, self.divide, self.ending) if part is not None]
        return " → ".join(parts)

    def run(self, index: int, inputs: Sequence[Any], instances: dict[int, Any]) -> tuple[list[Any], Report]:
        """The values of the task, and what it tells of them."""
        running = Running(index, instances)
        try:
            return self._run(inputs, running)
        except KERNEL_FAILURES as error:  # which nothing nearer to it has explained
            raise RowError(self.name, where(running), None, None, told(error)) from None

    def _run(self, inputs: Sequence[Any], running: Running) -> tuple[list[Any], Report]:
        clock = Clock()
        sizes = self.sizes or BlockSizes()
        values = self._values(inputs, running, clock)
        if self.divide is not None:
            frame = together(list(values))
            parts = [piece_of(part) for part in self.divide.divide(frame, running)]
            clock.lap(str(self.divide), frame)
            return list(parts), report(parts[0].schema, [measured(part) for part in parts], running, clock)
        blocks = coalesced(map(as_block, values), sizes)
        if self.ending is not None:
            blocks = iter([concatenate([self.ending.end(block, running) for block in blocks])])
        first = next(blocks)
        value, measures = put_together(first, blocks)
        clock.lap("to blocks", first)
        return [value], report(first.schema, measures, running, clock)

    def _values(self, inputs: Sequence[Any], running: Running, clock: Clock) -> Iterator[pl.DataFrame | pa.Table]:
        given = self.head.inputs(inputs) if hasattr(self.head, "inputs") else [inputs]
        for one in given:
            running.rows_moved = False
            value = self.head.open(one, running)
            clock.lap(str(self.head), value)
            name = str(self.head) if isinstance(value, pl.LazyFrame) else ""
            yield from self._through(Query(value, name, running.rows_moved), 0, running, clock)

    def _through(self, query: Query, at: int, running: Running, clock: Clock) -> Iterator[pl.DataFrame | pa.Table]:
        """What the steps from `at` on make of it."""
        for number, step in enumerate(self.steps[at:], at):
            if isinstance(query.value, pa.Table) and query.value.num_columns == 0:
                break  # nothing came out of a user's function, so its columns are not known either
            if isinstance(step, FrameStep):
                query = query.then(step)
                running.rows_moved |= step.moves_rows
                continue
            value = query.collect(running)
            clock.lap(str(query), value)
            moved = running.rows_moved
            made = coalesced(step.apply(as_block(value), running), self.sizes or BlockSizes())
            for count, block in enumerate(made):
                clock.lap(str(step), block)
                running.rows_moved = moved or step.moves_rows or count > 0
                yield from self._through(Query(block, "", running.rows_moved), number + 1, running, clock)
                running.rows_moved = moved
            return
        value = query.collect(running)
        clock.lap(str(query), value)
        yield value


def put_together(first: pa.Table, further: Iterator[pa.Table]) -> tuple[Any, list[tuple[int, int]]]:
    """The value of a task that made these blocks, and the (rows, bytes) of each. Several are put one by one."""
    second = next(further, None)
    if second is None:
        return first, [measured(first)]
    refs, sizes = [], []
    for block in itertools.chain([first, second], further):
        refs.append(weft.put(block))
        sizes.append(measured(block))
    return Cut(tuple(refs)), sizes


def measured(block: pa.Table) -> tuple[int, int]:
    return block.num_rows, block.nbytes


def as_block(value: pl.DataFrame | pa.Table) -> pa.Table:
    return block_of(value) if isinstance(value, pl.DataFrame) else value


def together(values: Sequence[pl.DataFrame | pa.Table]) -> pl.DataFrame:
    if len(values) == 1:
        return values[0] if isinstance(values[0], pl.DataFrame) else frame_of(values[0])
    return frame_of(concatenate([as_block(value) for value in values]))


class Clock:
    """Seconds and rows of the steps."""

    def __init__(self) -> None:
        self.begun = self._last = time.perf_counter()
        self.laps: list[tuple[str, float, int]] = []

    def lap(self, name: str, value: Any) -> None:
        now = time.perf_counter()
        if not isinstance(value, pl.LazyFrame) and name:
            rows = value.height if isinstance(value, pl.DataFrame) else value.num_rows
            self.laps.append((name, now - self._last, rows))
            self._last = now


def report(schema: pa.Schema, sizes: Sequence[tuple[int, int]], running: Running, clock: Clock) -> Report:
    running.extra.pop("source", None)
    rows = tuple(count for count, _ in sizes)
    size_bytes = tuple(count for _, count in sizes)
    return Report(
        rows=sum(rows),
        size_bytes=sum(size_bytes),
        schema=schema.remove_metadata(),
        seconds=time.perf_counter() - clock.begun,
        steps=tuple(clock.laps),
        skipped=running.skipped,
        part_rows=rows,
        part_bytes=size_bytes,
        extra=running.extra,
    )
