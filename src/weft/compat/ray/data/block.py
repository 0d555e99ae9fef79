"""What a block is to Ray Data: a table of Arrow's here; a batch is what a function gets of it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

Block = pa.Table
DataBatch = Any
BlockColumn = pa.ChunkedArray


class BlockAccessor:
    """Reads a block."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    @classmethod
    def for_block(cls, block: Any) -> BlockAccessor:
        """Of a table, or of a frame of pandas."""
        return cls(block if isinstance(block, pa.Table) else pa.Table.from_pandas(block, preserve_index=False))

    def num_rows(self) -> int:
        return int(self._table.num_rows)

    def size_bytes(self) -> int:
        return int(self._table.nbytes)

    def schema(self) -> pa.Schema:
        return self._table.schema

    def to_arrow(self) -> pa.Table:
        return self._table

    def to_pandas(self) -> Any:
        return self._table.to_pandas()
