"""What a source is: it divides itself into splits, and reads one of them, in a worker.

A source that can only be read from its beginning (a generator, a cursor, a large text file) gives blocks one after the
other instead, from one task that is held back by its consumer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa

from weft.data.block import frame_of
from weft.data.errors import SchemaError
from weft.data.running import Running
from weft.data.schemas import common_type, common_types
from weft.data.sources.split import Split
from weft.library.checks import one_of


class Source:
    """The base of all sources. Instances are pickled into stages, so they are small."""

    _most_of_keys: dict[tuple[str, ...], int] | None = None

    def columns(self) -> list[str] | None:
        """The names of the columns, where that is known without reading."""
        return None

    def types(self) -> pl.Schema | None:
        """The names and types of the columns, where they are known without reading all."""
        return None

    def row_count(self) -> int | None:
        """Where it is known without reading."""
        return None

    def pruned(self, predicate: pl.Expr) -> Source:
        """Without what cannot have a row for which it holds. Of the others, all rows."""
        return self

    def size_bytes(self) -> int | None:
        """What its rows take in memory, where `whole` gives them."""
        return None

    def whole(self, wanted: frozenset[str] | None) -> pl.LazyFrame | None:
        """All rows as one query of this process, in order; None where tasks have to read them."""
        return None

    def most_of_a_key(self, keys: tuple[str, ...]) -> int | None:
        """How many rows have the same key at most, but for nulls; asked for once."""
        known = self._most_of_keys or {}
        if keys not in known:
            found = self.whole(frozenset(keys))
            if found is None:
                return None
            counts = found.select(keys).drop_nulls().group_by(keys).len().select(pl.col("len").max().fill_null(0))
            self._most_of_keys = known = {**known, keys: int(counts.collect(engine="streaming").item())}
        return known[keys]

    def splits(self, parallelism: int, block_bytes: int) -> Sequence[Split]:
        """For so many tasks at a time; none should make more than `block_bytes` where that can be helped."""
        raise NotImplementedError

    def open(self, split: Split, wanted: frozenset[str] | None, running: Running) -> pl.LazyFrame | pa.Table:
        """The rows of a split, in a worker. With `wanted`, other columns may be left out."""
        raise NotImplementedError

    def blocks(self, split: Split) -> Iterator[pa.Table]:
        """Of a sequential split."""
        raise NotImplementedError


@dataclass(frozen=True)
class ReadHead:
    """The head of a stage that reads a split."""

    source: Source
    wanted: frozenset[str] | None

    def __str__(self) -> str:
        return f"read {self.source}"

    def inputs(self, given: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
        yield from ((split,) for split in given)

    def open(self, inputs: Sequence[Any], running: Running) -> pl.LazyFrame | pa.Table:
        split: Split = inputs[0]
        running.path, running.first_row = split.path, split.first_row
        running.extra["source"] = self.source
        return self.source.open(split, self.wanted, running)


@dataclass(frozen=True)
class SequentialHead:
    """The head of a stage whose block comes from a sequential read."""

    wanted: frozenset[str] | None

    def __str__(self) -> str:
        return "block"

    def open(self, inputs: Sequence[Any], running: Running) -> pl.LazyFrame | pa.Table:
        block: pa.Table = inputs[0]
        return block if self.wanted is None else keep_wanted(frame_of(block).lazy(), block.column_names, self.wanted)


def keep_wanted(frame: pl.LazyFrame, names: Sequence[str], wanted: frozenset[str] | None) -> pl.LazyFrame:
    """Only those columns; but at least one, which carries the number of rows."""
    if wanted is None:
        return frame
    kept = [name for name in names if name in wanted] or list(names[:1])
    return frame.select(kept)


def union_of(schemas: Iterable[tuple[str, pl.Schema]]) -> pl.Schema:
    """The columns of all files, given with their paths, in the types that they have in common."""
    whole = pl.Schema()
    for path, schema in schemas:
        both = common_types(whole, schema)
        if both is None:
            name = next(name for name in schema if common_type(whole.get(name, schema[name]), schema[name]) is None)
            raise SchemaError(path, name, f"it is {schema[name]}, but {whole[name]} in another file")
        whole = both
    return whole


def check_policies(on_error: str, schema_drift: str) -> None:
    one_of("on_error", on_error, ("raise", "skip"))
    one_of("schema_drift", schema_drift, ("raise", "fill", "union"))
