"""Dates, times and intervals of SQL. Pure."""

from __future__ import annotations

import calendar
import datetime as dt
from typing import Any

import polars as pl
from sqlglot import exp

from weft.data.query.relation import refused
from weft.data.query.values import Interval, Place, Value, constant, number, typed, value

_MICROSECONDS = {"MICROSECOND": 1, "MILLISECOND": 1000, "SECOND": 10**6, "MINUTE": 60 * 10**6, "HOUR": 3600 * 10**6}
_TRUNCATED = {"SECOND": "1s", "MINUTE": "1m", "HOUR": "1h", "DAY": "1d", "WEEK": "1w", "MONTH": "1mo", "QUARTER": "1q"}
_FIELDS = {
    "YEAR": "year",
    "MONTH": "month",
    "DAY": "day",
    "QUARTER": "quarter",
    "WEEK": "week",
    "HOUR": "hour",
    "MINUTE": "minute",
    "DAYOFYEAR": "ordinal_day",
    "DOY": "ordinal_day",
}


def interval(place: Place, node: Any) -> Value:
    """`INTERVAL '3' MONTH`, `INTERVAL 3 MONTHS`, `INTERVAL '3 months'`."""
    unit = node.args.get("unit")
    found = value(place, node.this).constant
    try:
        if unit is None:
            count, word = str(found).split()
        else:
            count, word = str(found), unit.name
        number_of = int(count)
    except ValueError:
        raise refused(f"{node.sql('duckdb')}", "write INTERVAL '3' MONTH, of a whole constant number") from None
    word = word.upper().removesuffix("S")
    if word in _MICROSECONDS:
        return constant(Interval(microseconds=number_of * _MICROSECONDS[word]))
    months = {"YEAR": 12, "QUARTER": 3, "MONTH": 1}
    if word in months:
        return constant(Interval(months=number_of * months[word]))
    if word in ("DAY", "WEEK"):
        return constant(Interval(days=number_of * (7 if word == "WEEK" else 1)))
    raise refused(f"intervals of {word}", "write YEAR, MONTH, WEEK, DAY, HOUR, MINUTE or SECOND")


def moved(place: Place, word: str, left: Value, right: Value, node: exp.Expr) -> Value:
    """A date and an interval, a date and days, or the difference of two dates."""
    if word == "+" and (isinstance(left.constant, Interval) or left.kind.is_integer()):
        left, right = right, left
    if isinstance(left.constant, str) and isinstance(right.constant, Interval):
        raise refused(node.sql("duckdb"), f"write DATE '{left.constant}'")
    if left.kind in (pl.Date, pl.Datetime) and isinstance(right.constant, Interval) and word in "+-":
        length = right.constant if word == "+" else -right.constant
        if left.is_constant:
            return constant(_after(left.constant, length))
        made = left.expr.cast(pl.Datetime("us"))
        for part in length.words:
            made = made.dt.offset_by(part)
        return Value(made, pl.Datetime("us"))
    if left.kind == pl.Date and right.kind.is_integer() and word in "+-":
        days = number(right, pl.Int64())
        return Value((left.expr.cast(pl.Int64) + (days if word == "+" else -days)).cast(pl.Date), pl.Date())
    if left.kind == pl.Date and right.kind == pl.Date and word == "-":
        return Value(left.expr.cast(pl.Int64) - right.expr.cast(pl.Int64), pl.Int64())
    raise refused(
        f"{word} of {left.kind} and {right.kind} in {node.sql('duckdb')}",
        "a date takes + and - INTERVAL or whole days, and two dates have a difference",
    )


def _after(start: dt.date, length: Interval) -> dt.datetime:
    at = start if isinstance(start, dt.datetime) else dt.datetime(start.year, start.month, start.day)
    month = at.year * 12 + at.month - 1 + length.months
    year, month = divmod(month, 12)
    day = min(at.day, calendar.monthrange(year, month + 1)[1])
    return at.replace(year=year, month=month + 1, day=day) + dt.timedelta(
        days=length.days, microseconds=length.microseconds
    )


def extracted(place: Place, field: str, of: exp.Expr) -> Value:
    inside = value(place, of)
    if inside.kind not in (pl.Date, pl.Datetime):
        raise refused(f"{field} of {inside.kind}", "cast it to DATE or TIMESTAMP")
    field = field.upper()
    if field in ("DOW", "DAYOFWEEK"):
        return Value((inside.expr.dt.weekday() % 7).cast(pl.Int64), pl.Int64())
    if field == "SECOND":
        return Value(inside.expr.cast(pl.Datetime("us")).dt.second().cast(pl.Int64), pl.Int64())
    if field not in _FIELDS:
        raise refused(f"EXTRACT of {field}", f"write one of {', '.join(_FIELDS)}")
    kind = pl.Datetime("us") if field in ("HOUR", "MINUTE") else inside.kind
    return Value(getattr(inside.expr.cast(kind).dt, _FIELDS[field])().cast(pl.Int64), pl.Int64())


def truncated(place: Place, unit: str, of: exp.Expr) -> Value:
    inside = value(place, of)
    every = "1y" if unit.upper() == "YEAR" else _TRUNCATED.get(unit.upper())
    if every is None or inside.kind not in (pl.Date, pl.Datetime):
        raise refused(f"date_trunc of {unit} and {inside.kind}", f"write one of YEAR, {', '.join(_TRUNCATED)}")
    return typed(place, inside.expr.cast(pl.Datetime("us")).dt.truncate(every))
