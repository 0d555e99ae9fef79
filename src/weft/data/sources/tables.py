"""Tables of lakehouses: Delta Lake, Iceberg and Lance, each through its own library.

One version of a table is read: this process asks the library which files it has, and each task reads some of them by
the same library, which knows of deleted rows, of columns that were renamed or added, and of partitions. Writing is one
transaction of this process, to which the blocks come one after the other: all of it is there, or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import polars as pl
import pyarrow as pa

from weft import cloudpickle
from weft.data.block import refitted
from weft.data.errors import ReadError
from weft.data.running import Running
from weft.data.schemas import schema_of
from weft.data.sources.base import Source
from weft.data.sources.extras import library
from weft.data.sources.split import Split
from weft.library.checks import one_of

MODES = ("append", "overwrite", "error")
UNPACKED = 3
"""About how much larger rows are in memory than in their files."""


@dataclass(frozen=True)
class Piece:
    """A file of a table, or what else the library reads by itself."""

    name: str
    handle: Any
    rows: int | None
    size_bytes: int


@dataclass
class TableSource(Source):
    what: str
    kinds: pa.Schema
    pieces: list[Piece]
    read: Callable[[Any, list[str]], pa.Table]
    """Of what a piece refers to, these columns; in a worker."""

    def __str__(self) -> str:
        return f"{self.what}, {len(self.pieces)} files"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "pieces": []}

    def columns(self) -> list[str]:
        return list(self.kinds.names)

    def types(self) -> pl.Schema:
        return schema_of(self.kinds)

    def row_count(self) -> int | None:
        counts = [piece.rows for piece in self.pieces]
        return None if None in counts else sum(count or 0 for count in counts)

    def splits(self, parallelism: int, block_bytes: int) -> list[Split]:
        return [
            Split(piece.name, size_bytes=piece.size_bytes, piece=bytes(cloudpickle.dumps(piece.handle)))
            for piece in self.pieces
        ]

    def open(self, split: Split, wanted: frozenset[str] | None, running: Running) -> pa.Table:
        names = [name for name in self.kinds.names if wanted is None or name in wanted] or self.kinds.names[:1]
        try:
            found = self.read(cloudpickle.loads(split.piece), names)
        except (OSError, pa.ArrowException, ValueError) as error:
            raise ReadError(split.path, f"{type(error).__name__}: {error}") from error
        expected = pa.schema([self.kinds.field(name) for name in names])
        return refitted(found, schema_of(expected)) if found.schema != expected else found


# ---- Delta Lake --------------------------------------------------------------------------------------


def delta_table(path: str, version: int | None, storage_options: Mapping[str, str] | None) -> TableSource:
    deltalake = library("deltalake", "deltalake", "read_delta()")
    table = deltalake.DeltaTable(path, version=version, storage_options=dict(storage_options or {}) or None)
    found = table.to_pyarrow_dataset()  # refuses what it cannot read right, such as vectors of deleted rows
    actions = pa.table(table.get_add_actions(flatten=True)).select(["path", "size_bytes"]).to_pylist()
    sizes = {action["path"]: action["size_bytes"] for action in actions}
    pieces = [
        Piece(f"{path}/{fragment.path}", fragment, None, UNPACKED * sizes.get(fragment.path, 0))
        for fragment in found.get_fragments()
    ]
    return TableSource(f"delta, version {table.version()}", found.schema, pieces, partial(_of_fragment, found.schema))


def _of_fragment(kinds: pa.Schema, fragment: Any, names: list[str]) -> pa.Table:
    return fragment.to_table(schema=kinds, columns=names)


def write_delta(
    blocks: Iterator[pa.Table], path: str, mode: str, partition_by: list[str], options: Mapping[str, str] | None
) -> int:
    deltalake = library("deltalake", "deltalake", "write_delta()")
    one_of("mode", mode, MODES)
    writing = Writing(blocks)
    chosen = {"partition_by": partition_by or None, "storage_options": dict(options or {}) or None}
    return writing.through(lambda reader: deltalake.write_deltalake(path, reader, mode=mode, **chosen))


# ---- Iceberg -----------------------------------------------------------------------------------------


def iceberg_handle(table: Any, catalog: Mapping[str, str] | None, what: str) -> Any:
    """The table of that name in a catalog, or itself."""
    if not isinstance(table, str):
        return table
    found = library("pyiceberg.catalog", "pyiceberg", what)
    if catalog is None:
        raise ValueError(f"{what} needs the catalog of {table!r}: catalog={{'uri': …}} for a name, or pass the table")
    return found.load_catalog("weft", **catalog).load_table(table)


def iceberg_table(table: Any, catalog: Mapping[str, str] | None, snapshot_id: int | None) -> TableSource:
    library("pyiceberg.catalog", "pyiceberg", "read_iceberg()")
    arrow = library("pyiceberg.io.pyarrow", "pyiceberg", "read_iceberg()")
    found = iceberg_handle(table, catalog, "read_iceberg()")
    scan = found.scan(snapshot_id=snapshot_id)
    schema = scan.projection()
    pieces = [
        Piece(
            task.file.file_path,
            task,
            None if task.delete_files else task.file.record_count,
            UNPACKED * task.file.file_size_in_bytes,
        )
        for task in scan.plan_files()
    ]
    name = f"iceberg {'.'.join(found.name())}"
    return TableSource(
        name, arrow.schema_to_pyarrow(schema), pieces, partial(_of_task, found.metadata, found.io, schema)
    )


def _of_task(metadata: Any, io: Any, schema: Any, task: Any, names: list[str]) -> pa.Table:
    every_row = library("pyiceberg.expressions", "pyiceberg", "read_iceberg()").AlwaysTrue()
    arrow = library("pyiceberg.io.pyarrow", "pyiceberg", "read_iceberg()")
    return arrow.ArrowScan(metadata, io, schema.select(*names), every_row).to_table([task]).select(names)


def write_iceberg(blocks: Iterator[pa.Table], table: Any, catalog: Mapping[str, str] | None, mode: str) -> int:
    one_of("mode", mode, ("append", "overwrite"))
    found = iceberg_handle(table, catalog, "write_iceberg()")
    return Writing(blocks).through(found.append if mode == "append" else found.overwrite)


# ---- Lance -------------------------------------------------------------------------------------------


def lance_table(path: str, version: int | None) -> TableSource:
    lance = library("lance", "pylance", "read_lance()")
    found = lance.dataset(path, version=version)
    pieces = [
        Piece(f"{path}, fragment {fragment.fragment_id}", fragment.fragment_id, fragment.count_rows(), 0)
        for fragment in found.get_fragments()
    ]
    widths = [8 * len(found.schema) * (piece.rows or 0) for piece in pieces]
    sized = [Piece(each.name, each.handle, each.rows, size) for each, size in zip(pieces, widths, strict=True)]
    return TableSource(f"lance, version {found.version}", found.schema, sized, partial(_of_lance, path, found.version))


def _of_lance(path: str, version: int, number: int, names: list[str]) -> pa.Table:
    lance = library("lance", "pylance", "read_lance()")
    return lance.dataset(path, version=version).get_fragment(number).to_table(columns=names)


def write_lance(blocks: Iterator[pa.Table], path: str, mode: str) -> int:
    lance = library("lance", "pylance", "write_lance()")
    one_of("mode", mode, MODES)
    kind, there = "create" if mode == "error" else mode, None
    if mode == "append":
        try:
            there = lance.dataset(path).schema
        except (ValueError, FileNotFoundError):
            kind = "create"  # there is none yet
    return Writing(blocks, there).through(lambda reader: lance.write_dataset(reader, path, mode=kind))


# ---- one transaction -----------------------------------------------------------------------------------


class Writing:
    """Blocks as one stream of one schema: that of the table, where it has to be, else of the first block. What fails on
    the way fails as itself."""

    def __init__(self, blocks: Iterator[pa.Table], kinds: pa.Schema | None = None) -> None:
        self._blocks = blocks
        self._first = next(blocks, pa.table({}))
        same = kinds is not None and sorted(kinds.names) == sorted(self._first.column_names)
        self._kinds = kinds if same else self._first.schema
        self._rows = 0
        self._problem: BaseException | None = None

    def through(self, write: Callable[[pa.RecordBatchReader], Any]) -> int:
        """How many rows were written."""
        if not self._first.num_columns:
            raise ValueError("there is nothing to write: the dataset has no columns")
        reader = pa.RecordBatchReader.from_batches(self._kinds, self._batches())
        try:
            write(reader)
        except Exception:
            if self._problem is not None:
                raise self._problem from None
            raise
        return self._rows

    def _batches(self) -> Iterator[pa.RecordBatch]:
        block: pa.Table | None = self._first
        try:
            while block is not None:
                fitting = block if block.schema.equals(self._kinds) else refitted(block, schema_of(self._kinds))
                self._rows += fitting.num_rows
                yield from fitting.cast(self._kinds).to_batches()
                block = next(self._blocks, None)
        except BaseException as error:
            self._problem = error
            raise
