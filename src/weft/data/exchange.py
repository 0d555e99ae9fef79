"""Moving rows between blocks: how a stage divides its rows into parts, and how the parts of one kind come together.

An exchange has a map side, whose stages end in one of the `…Divide` steps, and a reduce side, whose stages begin with
`Gather`. Which rows meet: those with equal keys, those of one range of a key, or random ones. Runs in workers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from weft.data.block import block_of, concatenate, frame_of, gathered
from weft.data.plan import beside
from weft.data.running import Running
from weft.data.schemas import common_schema, missing_name, no_such_column

_PART = "__weft_part"
SAMPLE_EVERY_ROWS = 1_000
SAMPLE_LEAST, SAMPLE_MOST = 32, 4_000


@dataclass(frozen=True)
class HashDivide:
    """Rows with equal keys go to the same part, whatever their type in this block is."""

    keys: tuple[str, ...]
    parts: int
    seed: int = 0

    def __str__(self) -> str:
        return f"divide by hash of {', '.join(self.keys)}"

    def divide(self, frame: pl.DataFrame, running: Running) -> list[pl.DataFrame]:
        if self.parts == 1 or frame.height == 0:
            return [frame, *[frame.clear()] * (self.parts - 1)]
        for name in self.keys:
            if name not in frame.columns:
                raise no_such_column(str(self), f"block {running.index}", name, frame.columns)
        keys = frame.select([_hashable(name, frame.schema[name]) for name in self.keys])
        return split_by(frame, keys.hash_rows(seed=self.seed) % self.parts, self.parts)

    def finer(self, number: int, parts: int) -> HashDivide | None:
        """None where all rows are of one group."""
        return HashDivide(self.keys, parts, self.seed + 1) if self.keys else None


def _hashable(name: str, kind: Any) -> pl.Expr:
    """The same for values that are equal once they have a type in common. Large integers that a float does not tell
    apart go to one part, which does no harm."""
    column = pl.col(name)
    if kind.is_numeric() or kind in (pl.Boolean, pl.Null):
        return column.cast(pl.Float64)
    if kind in (pl.Date, pl.Datetime):
        return column.dt.epoch("us")
    return column.cast(pl.String) if kind in (pl.Categorical, pl.Enum) else column


@dataclass(frozen=True)
class RandomDivide:
    """Every row goes anywhere, and each part is in random order."""

    parts: int
    seed: int
    within: tuple[int, ...] = ()
    """The part of which this divides the rows once more, one above zero, and the parts that it lies in."""

    def __str__(self) -> str:
        return "divide at random"

    def divide(self, frame: pl.DataFrame, running: Running) -> list[pl.DataFrame]:
        random = np.random.default_rng((self.seed, running.index, *self.within))
        return split_by(frame, pl.Series(random.integers(0, self.parts, frame.height, dtype=np.uint32)), self.parts)

    def finer(self, number: int, parts: int) -> RandomDivide:
        return RandomDivide(parts, self.seed, (number + 1, *self.within))


@dataclass(frozen=True)
class RangeDivide:
    """By where the key lies among the boundaries; nulls go where the sort puts them, first unless said."""

    key: str
    descending: bool
    boundaries: pa.Array
    sample: pa.Array | None = None
    """Of the key, sorted, where the rows may have to be divided once more. It stays where the exchange is run."""
    nulls_last: bool = False

    def __str__(self) -> str:
        return f"divide by ranges of {self.key}"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "sample": None}

    @property
    def parts(self) -> int:
        return len(self.boundaries) + 1

    def divide(self, frame: pl.DataFrame, running: Running) -> list[pl.DataFrame]:
        if self.parts == 1 or frame.height == 0:
            return [frame, *[frame.clear()] * (self.parts - 1)]
        bounds, values = pl.Series(self.boundaries), frame[self.key]
        if values.dtype != bounds.dtype:
            values = values.cast(bounds.dtype)
        place = bounds.search_sorted(values, side="left").cast(pl.Int32)
        if values.dtype.is_float():  # which a sort puts behind all numbers
            place = place.set(values.is_nan().fill_null(False), len(bounds))
        if self.descending:
            place = len(bounds) - place
        return split_by(frame, place.set(values.is_null(), len(bounds) if self.nulls_last else 0), self.parts)

    def finer(self, number: int, parts: int) -> RangeDivide | None:
        """None where no two values of the part are known to differ."""
        if self.sample is None:
            return None
        bounds, values = pl.Series(self.boundaries), pl.Series(self.sample)
        place = len(bounds) - number if self.descending else number
        if place > 0:
            values = values.filter(values > bounds[place - 1])
        if place < len(bounds):
            values = values.filter(values <= bounds[place])
        if values.n_unique() < 2:
            return None
        within = values.to_arrow()
        return RangeDivide(self.key, self.descending, boundaries([within], parts), within, self.nulls_last)


@dataclass(frozen=True)
class ColumnsDivide:
    """Into the columns that are read by what looks at all rows, and the whole block."""

    read: frozenset[str] | None
    parts = 2

    def __str__(self) -> str:
        return "divide by columns"

    def divide(self, frame: pl.DataFrame, running: Running) -> list[pl.DataFrame]:
        if self.read is None:
            return [frame, frame]
        read = [name for name in frame.columns if name in self.read] or frame.columns[:1]  # one says how many rows
        return [frame.select(read), frame]


@dataclass(frozen=True)
class SlicesDivide:
    """Into so many rows each, in order."""

    rows: tuple[int, ...]

    def __str__(self) -> str:
        return "divide as before"

    @property
    def parts(self) -> int:
        return len(self.rows)

    def divide(self, frame: pl.DataFrame, running: Running) -> list[pl.DataFrame]:
        starts = itertools.accumulate(self.rows, initial=0)
        return [frame.slice(start, rows) for start, rows in zip(starts, self.rows, strict=False)]


@dataclass(frozen=True)
class Sample:
    """Leaves a sample of the key in the report, for a sort to choose its boundaries by; the rows stay, or they go."""

    key: str
    keep: bool
    moves_rows = False

    def __str__(self) -> str:
        return f"sample {self.key}"

    def apply(self, block: pa.Table, running: Running) -> Iterator[pa.Table]:
        rows = block.num_rows
        if self.key not in block.column_names:
            raise no_such_column(str(self), running.path or f"block {running.index}", self.key, block.column_names)
        if rows:
            wanted = min(max(SAMPLE_LEAST, rows // SAMPLE_EVERY_ROWS), SAMPLE_MOST, rows)
            sample = frame_of(block.select([self.key])).sample(wanted, seed=running.index)
            running.extra.setdefault("samples", []).append(block_of(sample).column(0).combine_chunks())
        yield block if self.keep else block.slice(0, 0)


def split_by(frame: pl.DataFrame, part: pl.Series, parts: int) -> list[pl.DataFrame]:
    """The rows of each part, in their order."""
    if parts <= 64:
        return [frame.filter(part == number) for number in range(parts)]
    found = frame.with_columns(part.alias(_PART)).partition_by(_PART, as_dict=True, include_key=False)
    return [found.get((number,), frame.clear()) for number in range(parts)]


def sorted_sample(samples: Sequence[pa.Array]) -> pa.Array:
    """All values but nulls, which a sort puts first, and NaN, which come last."""
    filled = [sample for sample in samples if len(sample)]
    if not filled:
        return pa.array([])
    each = [pl.Series("key", sample) for sample in filled]
    kind = common_schema((pl.Schema({"key": one.dtype}) for one in each), "sort")["key"]
    values = pl.concat([one.cast(kind) for one in each], how="vertical").drop_nulls().sort()
    return (values.filter(values.is_not_nan()) if values.dtype.is_float() else values).to_arrow()


def boundaries(samples: Sequence[pa.Array], parts: int) -> pa.Array:
    """At most parts - 1 values that divide the samples evenly."""
    values = pl.Series(sorted_sample(samples))
    positions = sorted({len(values) * number // parts for number in range(1, parts)})
    chosen = values.gather([position for position in positions if position < len(values)]).unique().sort()
    return chosen.to_arrow()


@dataclass(frozen=True)
class Gather:
    """The head of a reduce side: the parts together, then what is done to them as a whole."""

    name: str
    transform: Callable[[pl.LazyFrame], pl.LazyFrame] | None = None

    def __str__(self) -> str:
        return self.name

    def open(self, inputs: Sequence[pa.Table], running: Running) -> pl.LazyFrame | pa.Table:
        running.rows_moved = True
        whole = gathered(inputs)
        if whole.width == 0:
            return block_of(whole)
        if self.transform is None:
            return whole.lazy()
        try:
            made = self.transform(whole.lazy())
            made.collect_schema()
            return made
        except pl.exceptions.ColumnNotFoundError as error:
            raise no_such_column(str(self), "its rows", missing_name(error), whole.columns) from None


@dataclass(frozen=True)
class GatherShuffled:
    seed: int

    def __str__(self) -> str:
        return "shuffle"

    def open(self, inputs: Sequence[pa.Table], running: Running) -> pa.Table:
        running.rows_moved = True
        whole = gathered(inputs)
        if whole.height == 0:
            return block_of(whole)
        frame = whole.rechunk()  # gathering from many chunks takes ten times as long
        return block_of(frame.sample(fraction=1.0, shuffle=True, seed=self.seed + running.index))


@dataclass(frozen=True)
class GatherPair:
    """The head of a join or a zip: the first input says how many of the others are of the left side."""

    name: str
    combine: Callable[[pl.LazyFrame, pl.LazyFrame], pl.LazyFrame]

    def __str__(self) -> str:
        return self.name

    def open(self, inputs: Sequence[Any], running: Running) -> pl.LazyFrame | pa.Table:
        running.rows_moved = True
        left, right = inputs[1 : 1 + inputs[0]], inputs[1 + inputs[0] :]
        made = self.combine(gathered(left).lazy(), gathered(right).lazy())
        return made if made.collect_schema() else pa.table({})


def sliced(slices: tuple[Sequence[tuple[int, int]], pa.Schema | None], blocks: Sequence[pa.Table]) -> pa.Table:
    """Rows [start, stop) of each block, one after the other; as the schema says, where the blocks differ."""
    bounds, fit = slices
    pairs = zip(bounds, blocks, strict=True)
    return concatenate([block.slice(start, stop - start) for (start, stop), block in pairs], fit)


@dataclass(frozen=True)
class GatherSlices:
    """The head of a repartition. Inputs: what `sliced` takes, blocks."""

    def __str__(self) -> str:
        return "slices"

    def open(self, inputs: Sequence[Any], running: Running) -> pa.Table:
        running.rows_moved = True
        return sliced(inputs[0], inputs[1:])


@dataclass(frozen=True)
class PutBeside:
    """The head of a stage whose inputs are a block and columns for it, each new or in place of the one of that name."""

    def __str__(self) -> str:
        return "put beside"

    def open(self, inputs: Sequence[Any], running: Running) -> pa.Table:
        block, made = (gathered([piece]) for piece in inputs)
        return block_of(block.with_columns(made.get_columns()) if block.width else block)


@dataclass(frozen=True)
class ZipSlices:
    """Left block, then slices of right blocks side by side with it. Inputs: what `sliced` takes, left, right…"""

    def __str__(self) -> str:
        return "zip"

    def open(self, inputs: Sequence[Any], running: Running) -> pa.Table:
        running.rows_moved = True
        left: pa.Table = inputs[1]
        right = sliced(inputs[0], inputs[2:])
        for name, unique in zip(right.column_names, beside(left.column_names, right.column_names), strict=True):
            left = left.append_column(unique, right.column(name))
        return left
