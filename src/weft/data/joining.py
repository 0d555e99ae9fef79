"""The join of two frames, whatever came of their sides. Runs in workers, and on empty frames in plans."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from weft.data.errors import RowError
from weft.data.schemas import common_type


@dataclass(frozen=True)
class Joined:
    """Keys of different types are compared, and given, in the one that they have in common."""

    left_on: tuple[str, ...]
    right_on: tuple[str, ...]
    how: str
    suffix: str
    left: pl.Schema | None = None
    """What the left side has, where that is known: for a side of which nothing came."""
    right: pl.Schema | None = None
    nulls_equal: bool = False

    def __call__(self, left: pl.LazyFrame, right: pl.LazyFrame) -> pl.LazyFrame:
        left_schema, right_schema = left.collect_schema(), right.collect_schema()
        if not right_schema and self.right:
            right, right_schema = pl.LazyFrame(schema=self.right), self.right
        if not left_schema and self.left:
            left, left_schema = pl.LazyFrame(schema=self.left), self.left
        if self.is_nothing(bool(left_schema), bool(right_schema)):
            return pl.LazyFrame()
        if not right_schema:
            return left.head(0) if self.how == "semi" else left
        if not left_schema:
            return right
        left, right = self._of_one_type(left, left_schema, right, right_schema)
        how: Any = self.how
        coalesce = True if how in ("full", "left", "right") else None
        return left.join(
            right,
            left_on=self.left_on,
            right_on=self.right_on,
            how=how,
            suffix=self.suffix,
            coalesce=coalesce,
            nulls_equal=self.nulls_equal,
        )

    def is_nothing(self, knows_left: bool, knows_right: bool) -> bool:
        """Whether there is no row, and columns are missing: of a side that has none there is no row either."""
        if not knows_left:
            return self.how not in ("right", "full") or not knows_right
        return not knows_right and self.how in ("inner", "right")

    def _of_one_type(
        self, left: pl.LazyFrame, left_schema: pl.Schema, right: pl.LazyFrame, right_schema: pl.Schema
    ) -> tuple[pl.LazyFrame, pl.LazyFrame]:
        for left_key, right_key in zip(self.left_on, self.right_on, strict=True):
            kinds = left_schema.get(left_key), right_schema.get(right_key)
            if kinds[0] == kinds[1] or kinds[0] is None or kinds[1] is None:
                continue
            common = common_type(kinds[0], kinds[1])
            if common is None:
                raise RowError(
                    "join",
                    "the sides",
                    None,
                    left_key,
                    f"it is {kinds[0]} on the left and {kinds[1]} on the right; cast one of them before",
                )
            left = left.with_columns(pl.col(left_key).cast(common))
            right = right.with_columns(pl.col(right_key).cast(common))
        return left, right
