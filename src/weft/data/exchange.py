"""Moving rows between blocks: how a stage divides its rows into parts, and how the parts of one kind come together.

An exchange has a map side, whose stages end in one of the `…Divide` steps, and a reduce side, whose stages begin with
`Gather`. Which rows meet: those with equal keys, those of one range of a key, or random ones. Runs in workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from weft.data.block import block_of, concatenate, frame_of, gathered
from weft.data.errors import RowError
from weft.data.running import Running

_PART = "__weft_part"
SAMPLE_EVERY_ROWS = 1_000
SAMPLE_LEAST, SAMPLE_MOST = 32, 4_000


@dataclass(frozen=True)
class HashDivide:
    """Rows with equal keys go to the same part, whatever the width of their integers."""

    keys: tuple[str, ...]
    parts: int
    seed: int = 0

    def __str__(self) -> str:
        return f"divide by hash of {', '.join(self.keys)}"

    def divide(self, frame: pl.DataFrame, running: Running) -> list[pl.DataFrame]:
        if self.parts == 1 or frame.height == 0:
            return [frame, *[frame.clear()] * (self.parts - 1)]
        keys = frame.select([_hashable(name, frame.schema[name]) for name in self.keys])
        return split_by(frame, keys.hash_rows(seed=self.seed) % self.parts, self.parts)

    def finer(self, number: int, parts: int) -> HashDivide:
        return HashDivide(self.keys, parts, self.seed + 1)


def _hashable(name: str, kind: Any) -> pl.Expr:
    column = pl.col(name)
    if kind.is_integer():
        return column.cast(pl.Int64, strict=False)
    if kind.is_float():
        return column.cast(pl.Float64)
    return column.cast(pl.String) if kind == pl.Categorical else column


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
    """By where the key lies among the boundaries; nulls go where the sort puts them, first."""

    key: str
    descending: bool
    boundaries: pa.Array
    sample: pa.Array | None = None
    """Of the key, sorted, where the rows may have to be divided once more. It stays where the exchange is run."""

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
        place = bounds.search_sorted(values, side="left").cast(pl.Int32)
        if values.dtype.is_float():  # which a sort puts behind all numbers
            place = place.set(values.is_nan().fill_null(False), len(bounds))
        if self.descending:
            place = len(bounds) - place
        return split_by(frame, place.set(values.is_null(), 0), self.parts)

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
        return RangeDivide(self.key, self.descending, boundaries([within], parts), within)


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
            raise RowError(
                str(self), running.path or f"block {running.index}", None, self.key, "there is no such column"
            )
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
    values = pl.concat([pl.Series(sample) for sample in filled], how="vertical").drop_nulls().sort()
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
        return whole.lazy() if self.transform is None else self.transform(whole.lazy())


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

    def open(self, inputs: Sequence[Any], running: Running) -> pl.LazyFrame:
        running.rows_moved = True
        left, right = inputs[1 : 1 + inputs[0]], inputs[1 + inputs[0] :]
        return self.combine(gathered(left).lazy(), gathered(right).lazy())


@dataclass(frozen=True)
class GatherSlices:
    """The head of a repartition or zip side: rows [start, stop) of each of the inputs, one after the other.

    The first input is the list of (start, stop).
    """

    def __str__(self) -> str:
        return "slices"

    def open(self, inputs: Sequence[Any], running: Running) -> pa.Table:
        running.rows_moved = True
        pairs = zip(inputs[0], inputs[1:], strict=True)
        return concatenate([block.slice(start, stop - start) for (start, stop), block in pairs])


@dataclass(frozen=True)
class ZipSlices:
    """Left block, then slices of right blocks side by side with it. Inputs: [(start, stop), …], left, right…"""

    def __str__(self) -> str:
        return "zip"

    def open(self, inputs: Sequence[Any], running: Running) -> pa.Table:
        running.rows_moved = True
        left: pa.Table = inputs[1]
        pairs = zip(inputs[0], inputs[2:], strict=True)
        right = concatenate([block.slice(start, stop - start) for (start, stop), block in pairs])
        for name in right.column_names:
            unique, number = name, 0
            while unique in left.column_names:
                number += 1
                unique = f"{name}_{number}"
            left = left.append_column(unique, right.column(name))
        return left
