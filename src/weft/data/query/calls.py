"""Functions of one row, by their names in SQL. Pure."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Sequence
from typing import Any

import polars as pl
from sqlglot import exp

from weft.data.query.dates import between, extracted, formatted, interval, last_day, part_of, truncated, without_zone
from weft.data.query.relation import refused
from weft.data.query.texts import CALLS as TEXT_CALLS
from weft.data.query.texts import as_text
from weft.data.query.values import (
    Place,
    Value,
    as_time,
    comparison,
    constant,
    extreme,
    fits,
    number,
    scale_of,
    together,
    value,
)

_TYPES: dict[str, pl.DataType] = {
    "BIGINT": pl.Int64(),
    "BOOLEAN": pl.Boolean(),
    "DATE": pl.Date(),
    "DOUBLE": pl.Float64(),
    "FLOAT": pl.Float32(),
    "INT": pl.Int32(),
    "SMALLINT": pl.Int16(),
    "TEXT": pl.String(),
    "TIMESTAMP": pl.Datetime("us"),
    "TINYINT": pl.Int8(),
    "VARCHAR": pl.String(),
}


def called(place: Place, node: exp.Expr) -> Value:
    make = _CALLS.get(type(node))
    if make is not None:
        return make(place, node)
    if isinstance(node, exp.Anonymous) and node.name.lower() in _BY_NAME:
        return _BY_NAME[node.name.lower()](place, node.expressions)
    if isinstance(node, exp.AggFunc):
        raise refused(f"the aggregate {node.sql('duckdb')} here", "an aggregate stands in SELECT, HAVING or ORDER BY")
    if isinstance(node, exp.All | exp.Any):
        raise refused(node.sql("duckdb"), "write IN (SELECT …), EXISTS (SELECT …), or compare with min() or max()")
    name = node.name if isinstance(node, exp.Anonymous) else type(node).__name__
    raise refused(f"{name} in {node.sql('duckdb')}", "compute it with with_column() or map_batches() before the query")


def _of_float(make: Callable[[pl.Expr], pl.Expr]) -> Callable[[Place, Any], Value]:
    def made(place: Place, node: Any) -> Value:
        return Value(make(_float(value(place, node.this), node)), pl.Float64())

    return made


def _float(given: Value, node: exp.Expr) -> pl.Expr:
    if not given.kind.is_numeric():
        raise refused(f"{node.sql('duckdb')} of {given.kind}", "cast it to DOUBLE")
    return number(given, pl.Float64())


def _coalesce(place: Place, node: Any) -> Value:
    exprs, kind = together([value(place, each) for each in (node.this, *node.expressions)], node.sql("duckdb"))
    return Value(pl.coalesce(exprs), kind)


def _nullif(place: Place, node: Any) -> Value:
    first, second = value(place, node.this), value(place, node.expression)
    same = comparison((first, second), lambda a, b: a == b, node)
    return Value(pl.when(~same.expr.fill_null(False)).then(first.expr), first.kind)


def _extreme(word: str) -> Callable[[Place, Any], Value]:
    def made(place: Place, node: Any) -> Value:
        exprs, kind = together([value(place, each) for each in (node.this, *node.expressions)], node.sql("duckdb"))
        return Value(extreme(word, exprs, kind), kind)

    return made


def _cast(place: Place, node: Any) -> Value:
    inside, to = value(place, node.this), node.args["to"]
    name = to.this.name.removesuffix("NTZ")
    kind = _TYPES.get(name)
    if name == "DECIMAL":
        sizes = [int(each.name) for each in to.expressions] or [18, 3]
        kind = pl.Decimal(sizes[0], sizes[1] if len(sizes) > 1 else 0)
    if kind is None:
        raise refused(f"CAST AS {to.sql('duckdb')}", f"write one of {', '.join(_TYPES)} or DECIMAL(p, s)")
    if isinstance(inside.constant, str) and kind.is_temporal():
        at = as_time(inside).constant
        if kind == pl.Date:
            return constant(at.date() if isinstance(at, dt.datetime) else at)
        return constant(at if isinstance(at, dt.datetime) else dt.datetime(at.year, at.month, at.day))
    if kind == pl.String:
        return Value(as_text(inside, node), kind)
    if inside.kind.is_temporal():
        without_zone(inside, node)
    if (inside.kind.is_temporal() and not kind.is_temporal()) or (inside.kind == pl.Boolean and kind.is_decimal()):
        raise refused(f"{node.sql('duckdb')} of {inside.kind}", "extract a part of it, or write CASE")
    if kind.is_integer() and inside.kind.is_float():
        return Value(inside.expr.round(0, mode="half_to_even").cast(kind), kind)
    if kind.is_integer() and inside.kind.is_decimal():
        return Value(_rounded(inside, 0).cast(kind), kind)
    if isinstance(kind, pl.Decimal) and inside.kind.is_decimal() and scale_of(inside.kind) > kind.scale:
        return Value(_rounded(inside, kind.scale).cast(kind), kind)
    if isinstance(kind, pl.Decimal) and inside.kind.is_float():
        raise refused(f"{node.sql('duckdb')} of {inside.kind}", "round() it instead")
    if inside.kind == pl.String and kind.is_temporal():
        made = inside.expr.str.to_date("%Y-%m-%d") if kind == pl.Date else inside.expr.str.to_datetime(time_unit="us")
        return Value(made, kind)
    return Value(inside.expr.cast(kind), kind)


def _rounded(given: Value, digits: int) -> pl.Expr:
    return given.expr.round(digits, mode="half_away_from_zero")


def _round(place: Place, node: Any) -> Value:
    inside = value(place, node.this)
    given = node.args.get("decimals")
    digits = 0 if given is None else value(place, given).constant
    if not isinstance(digits, int) or digits < 0 or not inside.kind.is_numeric():
        raise refused(node.sql("duckdb"), "round a number to a constant number of digits, from 0 on")
    if inside.kind.is_integer():
        return inside
    kind = pl.Decimal(38, min(digits, scale_of(inside.kind))) if inside.kind.is_decimal() else inside.kind
    made = _rounded(inside, digits)
    return Value(made.cast(kind) if kind.is_decimal() else made, kind)


def _whole(make: Callable[[pl.Expr], pl.Expr]) -> Callable[[Place, Any], Value]:
    def made(place: Place, node: Any) -> Value:
        inside = value(place, node.this)
        if node.args.get("decimals") is not None or not inside.kind.is_numeric():
            raise refused(node.sql("duckdb"), "give one number")
        if inside.kind.is_integer():
            return inside
        return Value(make(number(inside, pl.Float64())), pl.Float64())

    return made


def _absolute(place: Place, node: Any) -> Value:
    inside = value(place, node.this)
    if not inside.kind.is_numeric():
        raise refused(f"{node.sql('duckdb')} of {inside.kind}", "cast it to a number")
    if inside.kind.is_integer():
        return Value(fits(place, inside.expr.cast(pl.Int128).abs()), pl.Int64())
    return Value(inside.expr.abs(), inside.kind)


def _power(place: Place, node: Any) -> Value:
    base, exponent = (_float(value(place, each), node) for each in (node.this, node.expression))
    return Value(base.pow(exponent), pl.Float64())


def _sign(place: Place, node: Any) -> Value:
    given = _float(value(place, node.this), node)
    sign = (given > 0).cast(pl.Int64) - (given < 0).cast(pl.Int64)
    return Value(pl.when(given.is_nan()).then(0).otherwise(sign), pl.Int64())


def _logarithm(place: Place, node: Any) -> Value:
    """`log(x)` and `log(base, x)`."""
    of, base = (node.this, 10) if node.expression is None else (node.expression, value(place, node.this).constant)
    if base not in (2, 10):
        raise refused(node.sql("duckdb"), "divide by ln() of the base")
    given = _float(value(place, of), node)
    return Value(given.log10() if base == 10 else given.log(2), pl.Float64())


def _of_floats_only(make: Callable[[pl.Expr], pl.Expr]) -> Callable[[Place, Any], Value]:
    def made(place: Place, node: Any) -> Value:
        given = value(place, node.this)
        if not given.kind.is_float():
            raise refused(f"{node.sql('duckdb')} of {given.kind}", "cast it to DOUBLE")
        return Value(make(given.expr), pl.Boolean())

    return made


def _bits(make: Callable[..., pl.Expr]) -> Callable[[Place, Any], Value]:
    def made(place: Place, node: Any) -> Value:
        found = [value(place, each) for each in (node.this, node.expression) if each is not None]
        for each in found:
            if not each.kind.is_integer():
                raise refused(f"{node.sql('duckdb')} of {each.kind}", "cast it to BIGINT")
        return Value(make(*(number(each, pl.Int64()) for each in found)), pl.Int64())

    return made


def _field(name: str) -> Callable[[Place, Any], Value]:
    return lambda place, node: extracted(place, name, _without_cast(node.this))


def _without_cast(node: exp.Expr) -> exp.Expr:
    """`year(d)` is parsed as year(CAST(d AS DATE)) by some dialects; the cast changes nothing of it."""
    return node.this if isinstance(node, exp.TsOrDsToDate) else node


_CALLS: dict[type, Callable[[Place, Any], Value]] = {
    **TEXT_CALLS,
    exp.Interval: interval,
    exp.Extract: lambda place, node: extracted(place, node.this.name, node.expression),
    exp.Year: _field("YEAR"),
    exp.Month: _field("MONTH"),
    exp.Day: _field("DAY"),
    exp.Quarter: _field("QUARTER"),
    exp.Hour: _field("HOUR"),
    exp.Minute: _field("MINUTE"),
    exp.Second: _field("SECOND"),
    exp.DayOfMonth: _field("DAY"),
    exp.DayOfWeek: _field("DOW"),
    exp.DayOfWeekIso: _field("ISODOW"),
    exp.DayOfYear: _field("DOY"),
    exp.Week: _field("WEEK"),
    exp.WeekOfYear: _field("WEEK"),
    exp.TimeToUnix: _field("EPOCH"),
    exp.LastDay: last_day,
    exp.DateDiff: between,
    exp.TimeToStr: formatted,
    exp.DateTrunc: lambda place, node: truncated(place, node.args["unit"].name, node.this),
    exp.TimestampTrunc: lambda place, node: truncated(place, node.args["unit"].name, node.this),
    exp.Coalesce: _coalesce,
    exp.Nullif: _nullif,
    exp.Greatest: _extreme("max"),
    exp.Least: _extreme("min"),
    exp.Cast: _cast,
    exp.Abs: _absolute,
    exp.Round: _round,
    exp.Floor: _whole(lambda given: given.floor()),
    exp.Ceil: _whole(lambda given: given.ceil()),
    exp.Sqrt: _of_float(lambda given: given.sqrt()),
    exp.Ln: _of_float(lambda given: given.log()),
    exp.Exp: _of_float(lambda given: given.exp()),
    exp.Log: _logarithm,
    exp.Pow: _power,
    exp.Sign: _sign,
    exp.Trunc: _whole(lambda given: pl.when(given < 0).then(given.ceil()).otherwise(given.floor())),
    exp.Sin: _of_float(lambda given: given.sin()),
    exp.Cos: _of_float(lambda given: given.cos()),
    exp.Tan: _of_float(lambda given: given.tan()),
    exp.Asin: _of_float(lambda given: given.arcsin()),
    exp.Acos: _of_float(lambda given: given.arccos()),
    exp.Atan: _of_float(lambda given: given.arctan()),
    exp.Radians: _of_float(lambda given: given.radians()),
    exp.Degrees: _of_float(lambda given: given.degrees()),
    exp.Cbrt: _of_float(lambda given: given.cbrt()),
    exp.Pi: lambda place, node: constant(math.pi),
    exp.IsNan: _of_floats_only(lambda given: given.is_nan()),
    exp.IsInf: _of_floats_only(lambda given: given.is_infinite()),
    exp.BitwiseAnd: _bits(lambda a, b: a & b),
    exp.BitwiseOr: _bits(lambda a, b: a | b),
    exp.BitwiseXor: _bits(lambda a, b: a ^ b),
    exp.BitwiseNot: _bits(lambda a: pl.lit(-1) - a),
}
_BY_NAME: dict[str, Callable[[Place, Sequence[Any]], Value]] = {
    "date_part": lambda place, given: extracted(place, part_of(place, given), given[1]),
    "datepart": lambda place, given: extracted(place, part_of(place, given), given[1]),
    "weekday": lambda place, given: extracted(place, "DOW", given[0]),
    "prefix": lambda place, given: value(place, exp.StartsWith(this=given[0].copy(), expression=given[1].copy())),
    "suffix": lambda place, given: value(place, exp.EndsWith(this=given[0].copy(), expression=given[1].copy())),
}
"""What the parser has no node for."""
