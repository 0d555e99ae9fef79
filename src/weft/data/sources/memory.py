"""What is in memory already, made by formula, or given by an iterator or a database, piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl
import pyarrow as pa

import weft
from weft.data.block import MixedTypesError, coalesced, compact, concatenate, frame_of, from_batch, from_rows, refitted
from weft.data.errors import ReadError
from weft.data.running import Running
from weft.data.schemas import schema_of
from weft.data.sizing import TARGET_BLOCK_BYTES, BlockSizes
from weft.data.sources.base import Source
from weft.data.sources.split import Split

ROWS_A_BLOCK = 65_536
"""Of rows that come one by one from Python, unless they are large."""


@dataclass
class BlockSource(Source):
    """Blocks in the arena: what was put, or made by an earlier execution."""

    refs: list[Any]
    rows: list[int]
    sizes: list[int]
    names: list[str]
    what: str = "blocks"
    kinds: pl.Schema | None = None
    differ: bool = False
    """Whether blocks have other types than these, which they then become when they are read."""

    def __str__(self) -> str:
        return f"{self.what}, {sum(self.rows)} rows"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "refs": [], "rows": [], "sizes": []}

    def columns(self) -> list[str]:
        return self.names

    def types(self) -> pl.Schema | None:
        return self.kinds

    def row_count(self) -> int:
        return sum(self.rows)

    def size_bytes(self) -> int:
        return sum(self.sizes)

    def whole(self, wanted: frozenset[str] | None) -> pl.LazyFrame | None:
        head = RefHead(wanted, self.what, self.kinds if self.differ else None)
        opened = [head.open((block,), Running(0, {})) for block in weft.get(self.refs) if block.num_columns]
        return (
            frame_of(concatenate([block for block in opened if isinstance(block, pa.Table)])).lazy() if opened else None
        )

    def splits(self, parallelism: int, block_bytes: int) -> list[Split]:
        return [Split(f"block {number}", size_bytes=size) for number, size in enumerate(self.sizes)]


@dataclass(frozen=True)
class RefHead:
    """The head of a stage that takes a block of a BlockSource."""

    wanted: frozenset[str] | None
    what: str
    fit: pl.Schema | None = None

    def __str__(self) -> str:
        return self.what

    def inputs(self, given: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
        yield from ((block,) for block in given)

    def open(self, inputs: Sequence[Any], running: Running) -> pl.LazyFrame | pa.Table:
        block: pa.Table = inputs[0]
        if self.fit is not None and block.num_columns:
            block = refitted(block, self.fit)
        if self.wanted is None or block.num_columns == 0:
            return block
        kept = [name for name in block.column_names if name in self.wanted] or block.column_names[:1]
        return block.select(kept)


def put_table(table: pa.Table, parts: int, block_bytes: int = TARGET_BLOCK_BYTES) -> BlockSource:
    """A table as blocks in the arena, cut where it is large."""
    rows = max(1, -(-table.num_rows // max(1, parts)), 1)
    if table.nbytes > parts * block_bytes:
        rows = max(1, table.num_rows * block_bytes // table.nbytes)
    cuts = [compact(table.slice(at, rows)) for at in range(0, table.num_rows, rows)] or [table]
    refs = [weft.put(cut) for cut in cuts]
    rows, sizes = [cut.num_rows for cut in cuts], [cut.nbytes for cut in cuts]
    return BlockSource(refs, rows, sizes, table.column_names, kinds=schema_of(table.schema) or None)


@dataclass
class RangeSource(Source):
    """The numbers from 0, in the column `id`."""

    count: int
    blocks_wanted: int | None = None

    def __str__(self) -> str:
        return f"range({self.count})"

    def columns(self) -> list[str]:
        return ["id"]

    def types(self) -> pl.Schema:
        return pl.Schema({"id": pl.Int64})

    def row_count(self) -> int:
        return self.count

    def size_bytes(self) -> int:
        return 8 * self.count

    def whole(self, wanted: frozenset[str] | None) -> pl.LazyFrame:
        return pl.LazyFrame().select(id=pl.int_range(self.count, dtype=pl.Int64))

    def splits(self, parallelism: int, block_bytes: int) -> list[Split]:
        pieces = self.blocks_wanted or max(2 * parallelism, -(-8 * self.count // block_bytes))
        step = max(1, -(-self.count // pieces))
        return [
            Split(str(self), at, min(step, self.count - at), 8 * min(step, self.count - at))
            for at in range(0, self.count, step)
        ]

    def open(self, split: Split, wanted: frozenset[str] | None, running: Running) -> pl.LazyFrame:
        assert split.rows is not None
        return pl.select(id=pl.int_range(split.first_row, split.first_row + split.rows, dtype=pl.Int64)).lazy()


@dataclass
class GeneratorSource(Source):
    """Rows or batches from functions that return iterables; each function is one sequential split."""

    makers: list[Callable[[], Iterable[Any]]] = field(default_factory=list)
    what: str = "generator"

    def __str__(self) -> str:
        return f"{self.what}, {len(self.makers)} parts"

    def splits(self, parallelism: int, block_bytes: int) -> list[Split]:
        numbers = range(len(self.makers))
        return [Split(f"{self.what} {number}", number, sequential=True, block_bytes=block_bytes) for number in numbers]

    def blocks(self, split: Split) -> Iterator[pa.Table]:
        yield from blocks_of(self.makers[split.first_row](), split.path, split.block_bytes)


def blocks_of(items: Iterable[Any], where: str, block_bytes: int = TARGET_BLOCK_BYTES) -> Iterator[pa.Table]:
    """Blocks of bounded size from rows (dicts or single values, in the column `item`) or from batches."""
    rows: list[Mapping[str, Any]] = []
    done = size_bytes = 0
    for item in items:
        if not isinstance(item, Mapping) and hasattr(item, "columns"):
            yield from coalesced([from_batch(item, where)], BlockSizes(block_bytes, 2 * block_bytes))
            continue
        row = item if isinstance(item, Mapping) else {"item": item}
        rows.append(row)
        size_bytes += bytes_of(row)
        if len(rows) >= ROWS_A_BLOCK or size_bytes >= block_bytes:
            yield rows_to_block(rows, where, done)
            done += len(rows)
            rows, size_bytes = [], 0
    if rows:
        yield rows_to_block(rows, where, done)


def bytes_of(row: Mapping[str, Any]) -> int:
    """About what it takes in a block: its arrays and texts, and 8 bytes for any other value."""
    total = 0
    for value in row.values():
        total += len(value) if isinstance(value, bytes | str | list) else getattr(value, "nbytes", 8)
    return total


def rows_to_block(rows: Sequence[Mapping[str, Any]], where: str, first_row: int) -> pa.Table:
    try:
        return from_rows(rows)
    except MixedTypesError as error:
        raise ReadError(where, error.reason, first_row + error.row, error.column) from None


@dataclass
class SqlSource(Source):
    """The rows of a query, from a cursor of any DB-API driver, read by one task."""

    query: str
    connect: Callable[[], Any]
    parameters: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return "sql"

    def splits(self, parallelism: int, block_bytes: int) -> list[Split]:
        return [Split(f"query {self.query!r}", sequential=True)]

    def blocks(self, split: Split) -> Iterator[pa.Table]:
        connection = self.connect()
        try:
            cursor = connection.cursor()
            cursor.execute(self.query, self.parameters) if self.parameters else cursor.execute(self.query)
            names = [column[0] for column in cursor.description]
            done = 0
            while True:
                rows = cursor.fetchmany(ROWS_A_BLOCK)
                if not rows and done:
                    return
                yield rows_to_block([dict(zip(names, row, strict=True)) for row in rows], split.path, done)
                done += len(rows)
                if not rows:
                    return
        finally:
            connection.close()
