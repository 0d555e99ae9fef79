"""A frame as a source of weft.data: one split for each part, already in Arrow's form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

import weft
from weft.data import Source, Split


class FrameSource(Source):
    def __init__(self, refs: list[Any], names: list[str], rows: int) -> None:
        self._refs = refs
        self._names = names
        self._rows = rows

    def __str__(self) -> str:
        return f"a frame of {self._rows} rows"

    def columns(self) -> list[str]:
        return self._names

    def row_count(self) -> int:
        return self._rows

    def splits(self, parallelism: int, block_bytes: int) -> Sequence[Split]:
        return [Split(f"blocks {number}", first_row=number) for number in range(len(self._refs))]

    def open(self, split: Split, wanted: frozenset[str] | None, running: Any) -> pa.Table:
        table: pa.Table = weft.get(self._refs[split.first_row])
        if wanted is None:
            return table
        return table.select([name for name in table.column_names if name in wanted] or table.column_names[:1])
