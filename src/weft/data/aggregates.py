"""Aggregates: what each makes of a block (partial), and how partial results are combined.

A sum of sums is a sum, so most aggregates move a row per group instead of all rows. Those that need every value of a
group in one place (median, quantile, number of distinct values, lists) are computed after the rows were moved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from weft.data.errors import RowError

COMBINING = ("sum", "min", "max", "count", "len", "mean", "std", "var", "any", "all")
GATHERING = ("median", "n_unique", "list")
MOMENTS = ("mean", "std", "var")


@dataclass(frozen=True)
class Aggregate:
    """One output column. `column` is None only for `len`."""

    kind: str
    column: str | None
    name: str
    ddof: int = 1
    q: float = 0.5

    def __str__(self) -> str:
        return f"{self.kind}({self.column or ''})"

    @property
    def combines(self) -> bool:
        """Whether it can be made of the blocks' own aggregates, without gathering the rows."""
        return self.kind in COMBINING

    @property
    def of_nothing(self) -> int | bool | None:
        """What it is of no row at all."""
        return {"sum": 0, "count": 0, "len": 0, "n_unique": 0, "any": False, "all": True}.get(self.kind)

    def whole(self) -> pl.Expr:
        """Over all rows of a group."""
        if self.kind == "len":
            return pl.len().alias(self.name)
        column = pl.col(self.column or "")
        if self.kind == "quantile":
            return column.quantile(self.q, "linear").alias(self.name)
        if self.kind in ("std", "var"):
            spread = column.std(ddof=self.ddof) if self.kind == "std" else column.var(ddof=self.ddof)
            return spread.alias(self.name)
        if self.kind == "list":
            return column.alias(self.name)
        expr: pl.Expr = getattr(column, self.kind)()
        return expr.alias(self.name)

    @property
    def has_moments(self) -> bool:
        """Whether blocks contribute sums that are put together, not their own result."""
        return self.kind in MOMENTS

    def partial(self, kind: pl.DataType) -> list[pl.Expr]:
        """What each block contributes, of a column of that type. A mean of times is a time: its type goes along."""
        if not self.has_moments:
            return [self.whole()]
        self.check(kind)
        column, of_times = pl.col(self.column or ""), pl.lit(None)
        if kind.is_temporal() and self.kind == "mean":
            made = pl.Datetime("us") if kind == pl.Date else kind
            column, of_times = column.cast(made).to_physical(), pl.lit(None, made)
        column = column.cast(pl.Float64)
        parts = [column.sum().alias(f"{self.name}:sum"), column.count().alias(f"{self.name}:count")]
        parts.append(of_times.first().alias(f"{self.name}:type"))
        if self.kind != "mean":  # the sum of squared deviations from the block's own mean: no cancellation
            parts.append((column - column.mean()).pow(2).sum().alias(f"{self.name}:deviation"))
        return parts

    def check(self, kind: pl.DataType) -> None:
        """RowError where a column of that type has no such aggregate: Polars would say null."""
        if kind.is_numeric() or kind in (pl.Boolean, pl.Null) or (kind.is_temporal() and self.kind == "mean"):
            return
        have = "numbers and times have" if self.kind == "mean" else "numbers have"
        reason = f"it is {kind}, and only {have} a {self.kind}; cast it before, such as to Float64, if it holds numbers"
        raise RowError(str(self), "the dataset", None, self.column, reason)

    def combined(self, made: pl.DataType) -> list[pl.Expr]:
        """Over the partial rows of a group; `made` is the type of a mean that is a time, or Null."""
        if self.has_moments:
            return self._combined_moments(made)
        column = pl.col(self.name)
        kind = "sum" if self.kind in ("count", "len") else self.kind
        expr: pl.Expr = getattr(column, kind)()
        return [expr.alias(self.name)]

    def _combined_moments(self, made: pl.DataType) -> list[pl.Expr]:
        total, count = pl.col(f"{self.name}:sum"), pl.col(f"{self.name}:count").cast(pl.Int64)
        mean = total.sum() / count.sum()
        if self.kind == "mean":
            found = pl.when(count.sum() > 0).then(mean)
            return [(found if made == pl.Null else found.cast(pl.Int64).cast(made)).alias(self.name)]
        between = pl.when(count > 0).then(count * (total / count - mean).pow(2)).otherwise(0.0)
        deviation = (pl.col(f"{self.name}:deviation") + between).sum()
        left = count.sum() - self.ddof
        variance = pl.when(left > 0).then(deviation / left)
        return [(variance.sqrt() if self.kind == "std" else variance).alias(self.name)]


def check_kind(kind: str) -> str:
    """The kind, or ValueError."""
    known = (*COMBINING, *GATHERING, "quantile")
    if kind not in known:
        raise ValueError(f"an aggregate must be one of {', '.join(sorted(known))}, but got {kind!r}")
    return kind


def parse(given: Mapping[str, str | Sequence[str]]) -> list[Aggregate]:
    """From `{"x": "sum", "y": ["min", "max"]}`; the columns are called x_sum, y_min and y_max."""
    found = []
    for column, kinds in given.items():
        for kind in [kinds] if isinstance(kinds, str) else kinds:
            found.append(Aggregate(check_kind(kind), column, f"{column}_{kind}"))
    return found


def _kinds(frame: pl.LazyFrame, names: Sequence[str | None]) -> dict[str | None, pl.DataType]:
    """The types of these columns."""
    schema = frame.collect_schema() if names else pl.Schema()
    return {name: schema[name] for name in names if name is not None and name in schema}


def partial_frame(frame: pl.LazyFrame, keys: Sequence[str], aggregates: Sequence[Aggregate]) -> pl.LazyFrame:
    """What one block contributes to each group."""
    kinds = _kinds(frame, [aggregate.column for aggregate in aggregates if aggregate.has_moments])
    parts = [expr for one in aggregates for expr in one.partial(kinds.get(one.column, pl.Null()))]
    if not keys:
        return frame.select(parts)
    return frame.group_by(*keys).agg(parts) if parts else frame.select(*keys).unique()


def combined_frame(frame: pl.LazyFrame, keys: Sequence[str], aggregates: Sequence[Aggregate]) -> pl.LazyFrame:
    """The groups of what blocks contributed."""
    kinds = _kinds(frame, [f"{aggregate.name}:type" for aggregate in aggregates if aggregate.has_moments])
    parts = [expr for one in aggregates for expr in one.combined(kinds.get(f"{one.name}:type", pl.Null()))]
    if not keys:
        return frame.select(parts)
    return frame.group_by(*keys).agg(parts) if parts else frame.select(*keys).unique()


def whole_frame(frame: pl.LazyFrame, keys: Sequence[str], aggregates: Sequence[Aggregate]) -> pl.LazyFrame:
    """The groups of rows that are all here."""
    for name, kind in _kinds(frame, [aggregate.column for aggregate in aggregates if aggregate.has_moments]).items():
        for aggregate in aggregates:
            if aggregate.has_moments and aggregate.column == name:
                aggregate.check(kind)
    parts = [aggregate.whole() for aggregate in aggregates]
    return frame.group_by(*keys).agg(parts) if keys else frame.select(parts)
