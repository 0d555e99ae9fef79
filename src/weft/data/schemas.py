"""One schema for the blocks of a dataset: the type that columns of several blocks have in common, and how a block is
brought to it. Pure.

Blocks differ where a function, a generator or a file gave another type than before. Numbers have a number in common,
dates a time, structs all their fields; a number and a text have nothing in common.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

import polars as pl
import pyarrow as pa

from weft.data.errors import RowError
from weft.library.checks import did_you_mean

_TEXTS = (pl.String, pl.Categorical, pl.Enum)


def schema_of(schema: pa.Schema) -> pl.Schema:
    """What Polars sees of a block."""
    return _frame_of(schema).schema


@lru_cache(maxsize=256)
def _frame_of(schema: pa.Schema) -> pl.DataFrame:
    frame = pl.from_arrow(schema.empty_table())
    assert isinstance(frame, pl.DataFrame)
    return frame


def empty_frame(schema: pl.Schema) -> pl.LazyFrame:
    """No rows of these columns, for what is only asked for its types."""
    return _empty_frame(tuple(schema.items()))


@lru_cache(maxsize=256)
def _empty_frame(columns: tuple[tuple[str, pl.DataType], ...]) -> pl.LazyFrame:
    return pl.LazyFrame(schema=dict(columns))


def common_type(left: pl.DataType, right: pl.DataType) -> pl.DataType | None:
    """None where there is none. Signed integers win over unsigned ones: a value that does not fit is an error then."""
    if left == right or right == pl.Null:
        return left
    if left == pl.Null:
        return right
    if isinstance(left, pl.Struct) and isinstance(right, pl.Struct):
        fields = common_types(pl.Schema(left.to_schema()), pl.Schema(right.to_schema()))
        return None if fields is None else pl.Struct(fields)
    if isinstance(left, pl.List | pl.Array) and isinstance(right, pl.List | pl.Array):
        inner = common_type(_inner(left), _inner(right))
        return None if inner is None else pl.List(inner)
    if left.is_integer() and right.is_integer() and pl.UInt64 in (left, right):
        return pl.UInt64() if left.is_unsigned_integer() and right.is_unsigned_integer() else pl.Int64()
    if (left in _TEXTS) != (right in _TEXTS) or left.is_nested() or right.is_nested():
        return None
    both = [pl.LazyFrame(schema={"c": kind}) for kind in (left, right)]
    try:
        return pl.concat(both, how="vertical_relaxed").collect_schema()["c"]
    except pl.exceptions.PolarsError:
        return None


def _inner(kind: pl.List | pl.Array) -> pl.DataType:
    found = kind.inner
    return found if isinstance(found, pl.DataType) else found()


def common_types(left: pl.Schema, right: pl.Schema) -> pl.Schema | None:
    """With the columns of both; None where one has no common type."""
    found = dict(left)
    for name, kind in right.items():
        common = common_type(found[name], kind) if name in found else kind
        if common is None:
            return None
        found[name] = common
    return pl.Schema(found)


def common_schema(schemas: Iterable[pl.Schema], what: str) -> pl.Schema:
    """With the columns of all. RowError names the column that has no common type."""
    found: pl.Schema = pl.Schema()
    for schema in schemas:
        both = common_types(found, schema)
        if both is None:
            name = next(name for name in schema if name in found and common_type(found[name], schema[name]) is None)
            raise RowError(
                what,
                "its blocks",
                None,
                name,
                f"it is {found[name]} in one and {schema[name]} in another; cast it to one type before",
            )
        found = both
    return found


def fitting(frame_schema: pl.Schema, wanted: pl.Schema) -> list[pl.Expr]:
    """The columns of `wanted`, of a frame that has others: cast where they are there, null where not."""
    return [
        _fitted(pl.col(name), frame_schema[name], kind).alias(name)
        if name in frame_schema
        else pl.lit(None, kind).alias(name)
        for name, kind in wanted.items()
    ]


def _fitted(value: pl.Expr, there: pl.DataType, wanted: pl.DataType) -> pl.Expr:
    if there == wanted:
        return value
    if isinstance(there, pl.Struct) and isinstance(wanted, pl.Struct):
        have = pl.Schema(there.to_schema())
        fields = [
            _fitted(value.struct.field(name), have[name], kind).alias(name)
            if name in have
            else pl.lit(None, kind).alias(name)
            for name, kind in pl.Schema(wanted.to_schema()).items()
        ]
        return pl.when(value.is_not_null()).then(pl.struct(fields)) if fields else value.cast(wanted)
    if isinstance(there, pl.List | pl.Array) and isinstance(wanted, pl.List) and _inner(there).is_nested():
        lists = value if isinstance(there, pl.List) else value.arr.to_list()
        return lists.list.eval(_fitted(pl.element(), _inner(there), _inner(wanted)))
    return value.cast(wanted)


def fitted(frame: pl.LazyFrame, wanted: pl.Schema) -> pl.LazyFrame:
    there = frame.collect_schema()
    return frame if there == wanted else frame.select(fitting(there, wanted))


def missing_name(error: Exception) -> str:
    """The column that Polars has not found."""
    said = str(error).partition("\n")[0]
    named = re.search(r'"([^"]*)"', said)
    return named.group(1) if named else said.strip("'` ")


def wrong_name(operator: str, error: Exception, there: Iterable[str]) -> RowError:
    """The error for a column that is not there, or for two of one name."""
    if isinstance(error, pl.exceptions.ColumnNotFoundError):
        return no_such_column(operator, "the dataset", missing_name(error), there)
    named = re.search(r"""['"]([^'"]*)['"]""", str(error))
    reason = "two columns would have this name; give one another with alias() or rename()"
    return RowError(operator, "the dataset", None, named.group(1) if named else None, reason)


def no_such_column(operator: str, where: str, name: str, there: Iterable[str]) -> RowError:
    """The error for a column that is not there, with the one that was meant."""
    names = list(there)
    hint = did_you_mean(name, names) or "."
    shown = ", ".join(names[:40]) + (f" and {len(names) - 40} more" if len(names) > 40 else "")
    return RowError(operator, where, None, name, f"there is no such column{hint} There are: {shown or 'none'}")
