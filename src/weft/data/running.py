"""What a stage knows while it runs in a worker: where its rows come from, what was skipped, how long steps took.

It is also where instances of users' classes live, one per process and class.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from weft.data.errors import RowError

if TYPE_CHECKING:
    from weft.data.functions import Function


@dataclass
class Running:
    """One execution of a stage on one input."""

    index: int
    instances: dict[int, Any]
    """Of users' classes, by the identity of the Function; shared by all executions in this process."""
    path: str | None = None
    """The file that the rows were read from."""
    first_row: int = 0
    """Which row of the file the first one is."""
    rows_moved: bool = False
    """Whether rows were left out or added since they were read, so that their numbers are not the file's."""
    ended: int = 0
    """How many blocks the ending of the stage has taken."""
    skipped: dict[str, int] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)

    def instance_of(self, function: Function) -> Callable[..., Any]:
        if id(function) not in self.instances:
            self.instances[id(function)] = function.make()
        called: Callable[..., Any] = self.instances[id(function)]
        return called

    def skip(self, what: str, count: int) -> None:
        self.skipped[what] = self.skipped.get(what, 0) + count

    def row_error(self, operator: str, row: int, column: str | None, reason: str, rows: int = 1) -> RowError:
        where = f"block {self.index}" if self.path is None else self.path
        if self.path is not None and self.rows_moved:
            where = f"what earlier steps left of block {self.index} of {self.path}"
        number = row if self.rows_moved else self.first_row + row
        if rows > 1:
            reason = f"in the batch of {rows} rows that begins there, {reason}"
        return RowError(operator, where, number, column, reason)


@dataclass(frozen=True)
class Report:
    """What a task tells of what it made, beside it."""

    rows: int
    size_bytes: int
    schema: pa.Schema
    seconds: float
    steps: tuple[tuple[str, float, int], ...]
    """Of each step: its name, seconds and rows that it gave."""
    skipped: dict[str, int]
    part_rows: tuple[int, ...]
    """Of each part of a division, or of each block of a Cut."""
    part_bytes: tuple[int, ...]
    extra: dict[str, Any]
