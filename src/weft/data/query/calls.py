"""Functions of one row, by their names in SQL. Pure."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from typing import Any

import polars as pl
from sqlglot import exp

from weft.data.query.dates import extracted, interval, truncated
from weft.data.query.relation import refused
from weft.data.query.values import Place, Value, as_time, comparison, constant, fits, number, scale_of, together, value

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
    if isinstance(node, exp.AggFunc):
        raise refused(f"the aggregate {node.sql('duckdb')} here", "an aggregate stands in SELECT, HAVING or ORDER BY")
    if isinstance(node, exp.All | exp.Any):
        raise refused(node.sql("duckdb"), "write IN (SELECT …), EXISTS (SELECT …), or compare with min() or max()")
    name = node.name if isinstance(node, exp.Anonymous) else type(node).__name__
    raise refused(f"{name} in {node.sql('duckdb')}", "compute it with with_column() or map_batches() before the query")


def _texts(place: Place, node: Any, *given: Any) -> list[pl.Expr]:
    found = [value(place, each) for each in given]
    for each in found:
        if each.kind not in (pl.String, pl.Categorical, pl.Enum, pl.Null):
            raise refused(f"{node.sql('duckdb')} of {each.kind}", "cast it to VARCHAR")
    return [each.expr.cast(pl.String) if each.kind != pl.String else each.expr for each in found]


def _of_text(make: Callable[[pl.Expr], pl.Expr], kind: pl.DataType | None = None) -> Callable[[Place, Any], Value]:
    def made(place: Place, node: Any) -> Value:
        (text,) = _texts(place, node, node.this)
        expr = make(text)
        return Value(expr if kind is None else expr.cast(kind), kind or pl.String())

    return made


def _of_float(make: Callable[[pl.Expr], pl.Expr]) -> Callable[[Place, Any], Value]:
    def made(place: Place, node: Any) -> Value:
        return Value(make(_float(value(place, node.this), node)), pl.Float64())

    return made


def _float(given: Value, node: exp.Expr) -> pl.Expr:
    if not given.kind.is_numeric():
        raise refused(f"{node.sql('duckdb')} of {given.kind}", "cast it to DOUBLE")
    return number(given, pl.Float64())


def _like(place: Place, node: Any, flags: str = "s") -> Value:
    (text,) = _texts(place, node, node.this)
    pattern, escape = node.expression, node.args.get("escape")
    found = value(place, pattern).constant
    if not isinstance(found, str):
        raise refused(f"{node.sql('duckdb')}, whose pattern is no constant", "write the pattern as a text")
    matches = text.str.contains(_regex(found, escape.name if escape else None, flags))
    return Value(~matches if node.args.get("negate") else matches, pl.Boolean())


def _regex(pattern: str, escape: str | None, flags: str) -> str:
    made, letters = [], iter(pattern)
    for letter in letters:
        if letter == escape:
            made.append(re.escape(next(letters, "")))
        else:
            made.append({"%": ".*", "_": "."}.get(letter) or re.escape(letter))
    return f"(?{flags})^{''.join(made)}$"


def _escaped(place: Place, node: Any) -> Value:
    """`x LIKE pattern ESCAPE letter`, which the parser puts around the LIKE."""
    inside = node.this.copy()
    inside.set("escape", node.expression.copy())
    return value(place, inside)


def _substring(place: Place, node: Any) -> Value:
    (text,) = _texts(place, node, node.this)
    start = value(place, node.args["start"]).constant
    length_node = node.args.get("length")
    length = None if length_node is None else value(place, length_node).constant
    if not isinstance(start, int) or start < 1 or not (length is None or (isinstance(length, int) and length >= 0)):
        raise refused(node.sql("duckdb"), "start must be a constant from 1 on, and the length a constant")
    return Value(text.str.slice(start - 1, length), pl.String())


def _coalesce(place: Place, node: Any) -> Value:
    exprs, kind = together([value(place, each) for each in (node.this, *node.expressions)], node.sql("duckdb"))
    return Value(pl.coalesce(exprs), kind)


def _nullif(place: Place, node: Any) -> Value:
    first, second = value(place, node.this), value(place, node.expression)
    same = comparison((first, second), lambda a, b: a == b, node)
    return Value(pl.when(~same.expr.fill_null(False)).then(first.expr), first.kind)


def _extreme(make: Callable[..., pl.Expr]) -> Callable[[Place, Any], Value]:
    def made(place: Place, node: Any) -> Value:
        exprs, kind = together([value(place, each) for each in (node.this, *node.expressions)], node.sql("duckdb"))
        if kind.is_float():
            raise refused(f"{node.sql('duckdb')} of floats", "write CASE WHEN a > b THEN a ELSE b END")
        return Value(make(*exprs), kind)

    return made


def _concat(place: Place, node: Any) -> Value:
    """`concat` leaves nulls out, `||` does not."""
    given = node.expressions if isinstance(node, exp.Concat) else list(node.flatten())
    found = [_as_text(value(place, each), node) for each in given]
    whole = isinstance(node, exp.DPipe)
    return Value(pl.concat_str(found, ignore_nulls=not whole), pl.String())


def _as_text(given: Value, node: exp.Expr) -> pl.Expr:
    if given.kind == pl.String:
        return given.expr
    if given.kind.is_float() or given.kind == pl.Datetime or given.kind.is_nested() or given.kind == pl.Binary:
        raise refused(
            f"{given.kind} as text in {node.sql('duckdb')}", "format it in Python, or cast it to an exact type before"
        )
    return given.expr.cast(pl.String)


def _cast(place: Place, node: Any) -> Value:
    inside, to = value(place, node.this), node.args["to"]
    name = to.this.name
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
        return Value(_as_text(inside, node), kind)
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


def _trim(place: Place, node: Any) -> Value:
    given = node.args.get("expression")
    letters = " " if given is None else value(place, given).constant
    if not isinstance(letters, str):
        raise refused(node.sql("duckdb"), "write the letters as a text")
    (text,) = _texts(place, node, node.this)
    where = str(node.args.get("position") or "").upper()
    strip = {"LEADING": text.str.strip_chars_start, "TRAILING": text.str.strip_chars_end}.get(where)
    return Value((strip or text.str.strip_chars)(letters), pl.String())


def _replaced(place: Place, node: Any) -> Value:
    text, old, new = _texts(place, node, node.this, node.expression, node.args["replacement"])
    return Value(text.str.replace_all(old, new, literal=True), pl.String())


def _starts(place: Place, node: Any) -> Value:
    text, prefix = _texts(place, node, node.this, node.expression)
    return Value(text.str.starts_with(prefix), pl.Boolean())


def _contains(place: Place, node: Any) -> Value:
    text, part = _texts(place, node, node.this, node.expression)
    return Value(text.str.contains(part, literal=True), pl.Boolean())


def _field(name: str) -> Callable[[Place, Any], Value]:
    return lambda place, node: extracted(place, name, _without_cast(node.this))


def _without_cast(node: exp.Expr) -> exp.Expr:
    """`year(d)` is parsed as year(CAST(d AS DATE)) by some dialects; the cast changes nothing of it."""
    return node.this if isinstance(node, exp.TsOrDsToDate) else node


_CALLS: dict[type, Callable[[Place, Any], Value]] = {
    exp.Interval: interval,
    exp.Extract: lambda place, node: extracted(place, node.this.name, node.expression),
    exp.Year: _field("YEAR"),
    exp.Month: _field("MONTH"),
    exp.Day: _field("DAY"),
    exp.Quarter: _field("QUARTER"),
    exp.DateTrunc: lambda place, node: truncated(place, node.args["unit"].name, node.this),
    exp.TimestampTrunc: lambda place, node: truncated(place, node.args["unit"].name, node.this),
    exp.Like: _like,
    exp.ILike: lambda place, node: _like(place, node, "si"),
    exp.Escape: _escaped,
    exp.Substring: _substring,
    exp.Upper: _of_text(lambda text: text.str.to_uppercase()),
    exp.Lower: _of_text(lambda text: text.str.to_lowercase()),
    exp.Length: _of_text(lambda text: text.str.len_chars(), pl.Int64()),
    exp.Trim: _trim,
    exp.Replace: _replaced,
    exp.StartsWith: _starts,
    exp.Contains: _contains,
    exp.Concat: _concat,
    exp.DPipe: _concat,
    exp.Coalesce: _coalesce,
    exp.Nullif: _nullif,
    exp.Greatest: _extreme(pl.max_horizontal),
    exp.Least: _extreme(pl.min_horizontal),
    exp.Cast: _cast,
    exp.Abs: _absolute,
    exp.Round: _round,
    exp.Floor: _whole(lambda given: given.floor()),
    exp.Ceil: _whole(lambda given: given.ceil()),
    exp.Sqrt: _of_float(lambda given: given.sqrt()),
    exp.Ln: _of_float(lambda given: given.log()),
    exp.Exp: _of_float(lambda given: given.exp()),
    exp.Pow: _power,
}
