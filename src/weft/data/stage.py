"""A stage: the steps that one task runs on one block, fused. Runs in workers.

Steps are of two kinds. Relational ones take and give a lazy Polars frame, so that neighbours are optimised and run
together, a reader included: its filter and columns reach the file format. The others take and give a block. A stage
may end in a step that divides its rows for an exchange; then it gives several blocks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import polars as pl
import pyarrow as pa

from weft.data.block import block_of, compact, frame_of
from weft.data.errors import DataError, RowError
from weft.data.functions import Placement
from weft.data.running import Report, Running


class Head(Protocol):
    """The first step: from what the task was given to rows."""

    def open(self, inputs: Sequence[Any], running: Running) -> pl.LazyFrame | pa.Table: ...


class BlockStep(Protocol):
    def apply(self, block: pa.Table, running: Running) -> pa.Table: ...


class Divide(Protocol):
    """The last step of a stage before an exchange."""

    parts: int

    def divide(self, frame: pl.DataFrame, running: Running) -> list[pl.DataFrame]: ...


@dataclass(frozen=True)
class FrameStep:
    """A relational step."""

    name: str
    transform: Callable[[pl.LazyFrame], pl.LazyFrame]
    moves_rows: bool = False

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class TakeBlock:
    """The head of a stage whose input is one block."""

    def __str__(self) -> str:
        return "block"

    def open(self, inputs: Sequence[Any], running: Running) -> pa.Table:
        return inputs[0]


@dataclass(frozen=True)
class Stage:
    head: Any
    steps: tuple[Any, ...] = ()
    divide: Any = None
    placement: Placement = field(default_factory=Placement)

    @property
    def name(self) -> str:
        parts = [str(part) for part in (self.head, *self.steps, self.divide) if part is not None]
        return " → ".join(parts)

    def run(self, index: int, inputs: Sequence[Any], instances: dict[int, Any]) -> tuple[list[pa.Table], Report]:
        running = Running(index, instances)
        clock = Clock()
        value = self.head.open(inputs, running)
        clock.lap(str(self.head), value)
        waiting: list[str] = [str(self.head)] if isinstance(value, pl.LazyFrame) else []
        for step in self.steps:
            if isinstance(value, pa.Table) and value.num_columns == 0:
                break  # nothing came out of a user's function, so its columns are not known either
            if isinstance(step, FrameStep):
                value = step.transform(value if isinstance(value, pl.LazyFrame) else frame_of(value).lazy())
                waiting.append(step.name)
                running.rows_moved |= step.moves_rows
                continue
            value = collect(value, running, waiting) if isinstance(value, pl.LazyFrame) else value
            clock.lap(" → ".join(waiting), value)
            waiting = []
            value = step.apply(value if isinstance(value, pa.Table) else block_of(value), running)
            clock.lap(str(step), value)
        if isinstance(value, pl.LazyFrame):
            value = collect(value, running, waiting)
            clock.lap(" → ".join(waiting), value)
        made = self._parts(value, running)
        clock.lap(str(self.divide or "to a block"), value)
        return made, report(made, running, clock)

    def _parts(self, value: pl.DataFrame | pa.Table, running: Running) -> list[pa.Table]:
        if self.divide is None:
            return [compact(block_of(value) if isinstance(value, pl.DataFrame) else value)]
        frame = value if isinstance(value, pl.DataFrame) else frame_of(value)
        return [block_of(part) for part in self.divide.divide(frame, running)]


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


def collect(frame: pl.LazyFrame, running: Running, names: Sequence[str]) -> pl.DataFrame:
    """Run the relational steps. Their errors name the file and the steps."""
    try:
        return frame.collect(engine="streaming")
    except DataError:
        raise
    except pl.exceptions.ColumnNotFoundError as error:
        column = str(error).partition("\n")[0].strip("\"'` ")
        raise RowError(names[-1], _where(running), None, column, f"there is no such column: {error}") from None
    except (pl.exceptions.PolarsError, OSError) as error:
        explained = getattr(running.extra.pop("source", None), "explain_failure", None)
        if explained is not None and running.path is not None:
            raise explained(running.path, error) from None
        raise RowError(" → ".join(names), _where(running), None, None, f"{type(error).__name__}: {error}") from None


def _where(running: Running) -> str:
    return running.path if running.path is not None else f"block {running.index}"


def report(made: Sequence[pa.Table], running: Running, clock: Clock) -> Report:
    running.extra.pop("source", None)
    rows = tuple(block.num_rows for block in made)
    sizes = tuple(block.nbytes for block in made)
    return Report(
        rows=sum(rows),
        size_bytes=sum(sizes),
        schema=made[0].schema.remove_metadata(),
        seconds=time.perf_counter() - clock.begun,
        steps=tuple(clock.laps),
        skipped=running.skipped,
        part_rows=rows,
        part_bytes=sizes,
        extra=running.extra,
    )
