"""Files of any format that is read whole, one a split; large ones of row-wise formats as a sequence of blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import polars as pl
import pyarrow as pa

from weft.data.block import block_of
from weft.data.errors import DataError, ReadError, SchemaError
from weft.data.running import Running
from weft.data.sizing import TARGET_BLOCK_BYTES
from weft.data.sources.base import Source, filled, keep_wanted
from weft.data.sources.formats import Format
from weft.data.sources.paths import scannable
from weft.data.sources.split import Split


@dataclass
class FileSource(Source):
    files: list[tuple[str, int]]
    format: Format
    on_error: str = "raise"
    schema_drift: str = "raise"
    _schema: pl.Schema | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"{self.format.name}, {len(self.files)} files"

    def __getstate__(self) -> dict[str, Any]:
        """Workers are told the schema; of the files each needs its own."""
        self.schema()
        return {**self.__dict__, "files": self.files[:1]}

    def schema(self) -> pl.Schema:
        """Of the first file that can be read; the others have to fit it."""
        if self._schema is None:
            problem: Exception | None = None
            for path, size in self.files:
                if size == 0 and not self.format.allows_empty:
                    continue
                try:
                    self._schema = self.format.schema(path)
                    return self._schema
                except (pl.exceptions.PolarsError, pa.ArrowException, OSError, DataError, ValueError) as error:
                    problem = error if isinstance(error, DataError) else ReadError(path, f"{error}")
                    if self.on_error == "raise":
                        raise problem from None
            if problem is not None:
                raise problem
            self._schema = pl.Schema()  # nothing but empty files
        return self._schema

    def columns(self) -> list[str]:
        return list(self.schema())

    def splits(self, parallelism: int, block_bytes: int) -> list[Split]:
        most = min(block_bytes, TARGET_BLOCK_BYTES)
        return [
            Split(path, size_bytes=size, sequential=self.format.can_stream and size > most, block_bytes=most)
            for path, size in self.files
            if size or self.format.allows_empty
        ]

    def skipped(self) -> dict[str, int]:
        empty = sum(size == 0 for _, size in self.files)
        return {"empty files": empty} if empty and not self.format.allows_empty else {}

    def open(self, split: Split, wanted: frozenset[str] | None, running: Running) -> pl.LazyFrame:
        schema = self.schema()
        if self.on_error == "raise":
            return keep_wanted(self._scan(split.path), list(schema), wanted)
        try:
            return keep_wanted(self._scan(split.path), list(schema), wanted).collect().lazy()
        except (pl.exceptions.PolarsError, pa.ArrowException, OSError, DataError):
            return keep_wanted(self._leniently(split.path, running), list(schema), wanted)

    def _scan(self, path: str) -> pl.LazyFrame:
        """The file's rows with the dataset's columns."""
        schema = self.schema()
        try:
            frame = self.format.scan(scannable(path), path, None if self.schema_drift == "fill" else schema)
            there = frame.collect_schema()
        except (pl.exceptions.PolarsError, pa.ArrowException, ValueError) as error:
            raise self.explain_failure(path, error) from None
        if self.schema_drift == "fill":
            return filled(frame, schema)
        for name, kind in schema.items():
            if name not in there:
                raise SchemaError(path, name, "the column is missing")
            if there[name] != kind:
                raise SchemaError(path, name, f"it is {there[name]}, but must be {kind}")
        extra = [name for name in there if name not in schema]
        if extra:
            raise SchemaError(path, extra[0], "the first file has no such column")
        return frame

    def _leniently(self, path: str, running: Running) -> pl.LazyFrame:
        """The rows that can be read, the others counted; none where nothing can."""
        try:
            frame, bad_rows = self.format.readable_rows(path, self.schema())
        except (pl.exceptions.PolarsError, pa.ArrowException, OSError, ValueError, DataError):
            running.skip("files that can not be read", 1)
            return pl.LazyFrame(schema=self.schema())
        if bad_rows:
            running.skip("rows that can not be read", bad_rows)
            running.rows_moved = True
        return frame.lazy()

    def explain_failure(self, path: str, error: Exception) -> Exception:
        if isinstance(error, DataError):
            return error
        row, column, reason = self.format.first_bad_value(path, self.schema()) or (None, None, f"{error}")
        return ReadError(path, reason, row, column)

    def blocks(self, split: Split) -> Iterator[pa.Table]:
        frame = self._scan(split.path)
        rows = max(1, split.block_bytes // max(1, self.format.bytes_a_row(split.path, self.schema())))
        try:
            for batch in frame.collect_batches(chunk_size=rows, maintain_order=True, lazy=True, engine="streaming"):
                yield block_of(batch)
        except (pl.exceptions.PolarsError, OSError) as error:
            raise self.explain_failure(split.path, error) from None
