"""Files of any format that is read whole, one a split; large ones of row-wise formats as a sequence of blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl
import pyarrow as pa

import weft
from weft.data.block import block_of
from weft.data.errors import DataError, ReadError, SchemaError
from weft.data.running import Running
from weft.data.schemas import fitted
from weft.data.sizing import TARGET_BLOCK_BYTES
from weft.data.sources.base import Source, keep_wanted, union_of
from weft.data.sources.formats import Format
from weft.data.sources.paths import is_remote, scannable
from weft.data.sources.split import Split

FILES_A_TASK = 16


def file_schemas(format: Format, paths: Sequence[str]) -> list[pl.Schema | DataError]:
    """Of each file its schema, or why it has none."""
    found: list[pl.Schema | DataError] = []
    for path in paths:
        try:
            found.append(format.schema(path))
        except (pl.exceptions.PolarsError, pa.ArrowException, OSError, DataError, ValueError) as error:
            found.append(error if isinstance(error, DataError) else ReadError(path, f"{error}"))
    return found


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
        """Of the first file that can be read, which the others have to fit; or what all have in common."""
        if self._schema is None and self.schema_drift == "union":
            self._schema = self._of_all()
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

    def _of_all(self) -> pl.Schema:
        paths = [path for path, size in self.files if size or self.format.allows_empty]
        chunks = [paths[at : at + FILES_A_TASK] for at in range(0, len(paths), FILES_A_TASK)]
        if len(chunks) > 1:
            task = weft.remote(file_schemas)
            found = [each for part in weft.get([task.remote(self.format, chunk) for chunk in chunks]) for each in part]
        else:
            found = file_schemas(self.format, paths)
        problems = [each for each in found if isinstance(each, DataError)]
        if problems and (self.on_error == "raise" or len(problems) == len(paths)):
            raise problems[0]
        pairs = zip(paths, found, strict=True)
        return union_of((path, schema) for path, schema in pairs if not isinstance(schema, DataError))

    def columns(self) -> list[str]:
        return list(self.schema())

    def types(self) -> pl.Schema | None:
        return self.schema() or None

    def size_bytes(self) -> int | None:
        plain = self.format.is_scanned and self.on_error == "raise"
        if not plain or any(is_remote(path) or path.endswith(".gz") for path, _ in self.files):
            return None
        return sum(size for _, size in self.files)

    def whole(self, wanted: frozenset[str] | None) -> pl.LazyFrame | None:
        filled = [path for path, size in self.files if size or self.format.allows_empty]
        names = list(self.schema())
        if not filled or not self.format.is_scanned:
            return None
        return pl.concat([keep_wanted(self._scan(path).select(names), names, wanted) for path in filled])

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
            misfit = (
                self.format.misfit(path, schema) if self.schema_drift == "raise" and self._may_drift(path) else None
            )
            if misfit is not None:
                raise SchemaError(path, *misfit)
            frame = self.format.scan(scannable(path), path, schema if self.schema_drift == "raise" else None)
            there = frame.collect_schema()
        except (pl.exceptions.PolarsError, pa.ArrowException, ValueError) as error:
            raise self.explain_failure(path, error) from None
        if self.schema_drift != "raise":
            return fitted(frame, schema)
        for name, kind in schema.items():
            if name not in there:
                raise SchemaError(path, name, "the column is missing")
            if there[name] != kind:
                raise SchemaError(path, name, f"it is {there[name]}, but must be {kind}")
        extra = [name for name in there if name not in schema]
        if extra:
            raise SchemaError(path, extra[0], "the first file has no such column")
        return frame

    def _may_drift(self, path: str) -> bool:
        """The schema is of all rows of the first file."""
        return path != self.files[0][0]

    def _leniently(self, path: str, running: Running) -> pl.LazyFrame:
        """The rows that can be read, the others counted; none where nothing can."""
        try:
            frame, bad_rows = self.format.readable_rows(path, self.schema())
        except (pl.exceptions.PolarsError, pa.ArrowException, OSError, ValueError, DataError):
            running.skip("files that cannot be read", 1)
            return pl.LazyFrame(schema=self.schema())
        if bad_rows:
            running.skip("rows that cannot be read", bad_rows)
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
