"""Runs relational steps as one lazy Polars query, and finds the row at which such a query fails. Runs in workers."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa

from weft.data.block import frame_of
from weft.data.errors import DataError, RowError
from weft.data.running import Running
from weft.data.schemas import missing_name, no_such_column

KERNEL_FAILURES = (pl.exceptions.PolarsError, pl.exceptions.PanicException, pa.ArrowException)
"""What the kernels raise; a panic of Polars is no Exception."""
Failures = (pl.exceptions.PolarsError, OSError)


@dataclass(frozen=True)
class FrameStep:
    """A relational step."""

    name: str
    transform: Callable[[pl.LazyFrame], pl.LazyFrame]
    moves_rows: bool = False

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Query:
    """What a head opened, or a block, and the relational steps that wait to be done with it."""

    value: pl.LazyFrame | pa.Table
    name: str
    """Of the head, if its work waits too."""
    rows_moved: bool
    """Whether the rows of `value` have other numbers than in their file."""
    steps: tuple[FrameStep, ...] = ()

    def then(self, step: FrameStep) -> Query:
        return Query(self.value, self.name, self.rows_moved, (*self.steps, step))

    def __str__(self) -> str:
        return " → ".join(name for name in (self.name, *(step.name for step in self.steps)) if name)

    def frame(self, value: pl.LazyFrame | pa.Table | pl.DataFrame) -> pl.LazyFrame:
        frame = (
            value if isinstance(value, pl.LazyFrame) else (frame_of(value) if isinstance(value, pa.Table) else value)
        )
        lazy = frame.lazy()
        for step in self.steps:
            lazy = step.transform(lazy)
        return lazy

    def collect(self, running: Running) -> pl.DataFrame | pa.Table:
        """Run it. Errors name the file, and the row and column where they can be found."""
        if not self.steps and isinstance(self.value, pa.Table):
            return self.value
        try:
            return self.frame(self.value).collect(engine="streaming")
        except DataError:
            raise
        except pl.exceptions.ColumnNotFoundError as error:
            raise no_such_column(str(self), where(running), missing_name(error), _names_of(self.value)) from None
        except Failures as error:
            raise self._explained(error, running) from None

    def _explained(self, error: Exception, running: Running) -> Exception:
        reason = told(error)
        source = running.extra.pop("source", None)
        try:
            rows = self.value.collect(engine="streaming") if isinstance(self.value, pl.LazyFrame) else self.value
        except Failures:
            if hasattr(source, "explain_failure") and running.path is not None:
                explained: Exception = source.explain_failure(running.path, error)
                return explained
            return RowError(str(self), where(running), None, None, reason)
        row = self._first_failing_row(rows if isinstance(rows, pl.DataFrame) else frame_of(rows))
        named = re.search(r"in column '([^']+)'", str(error))
        column = named.group(1) if named else None
        if row is None:
            return RowError(str(self), where(running), None, column, reason)
        running.rows_moved = self.rows_moved
        return running.row_error(_names(self.steps), row, column, reason)

    def _first_failing_row(self, rows: pl.DataFrame) -> int | None:
        """The last row of the shortest beginning with which the steps fail; None where it is not a row's fault."""

        def fails(count: int) -> bool:
            try:
                self.frame(rows.head(count)).collect(engine="streaming")
            except Failures:
                return True
            return False

        if fails(0) or not fails(rows.height):
            return None
        low, high = 0, rows.height
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if fails(middle) else (middle, high)
        return low


def _names_of(value: pl.LazyFrame | pa.Table) -> list[str]:
    return value.column_names if isinstance(value, pa.Table) else value.collect_schema().names()


def _names(steps: Sequence[Any]) -> str:
    return " → ".join(step.name for step in steps)


def told(error: BaseException) -> str:
    """What a kernel says, without the plan that it was at."""
    return f"{type(error).__name__}: {str(error).partition(chr(10) * 2 + 'Resolved plan')[0]}"


def where(running: Running) -> str:
    return running.path if running.path is not None else f"block {running.index}"
