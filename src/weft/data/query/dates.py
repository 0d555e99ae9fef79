"""Dates, times and intervals of SQL. Pure."""

from __future__ import annotations

import calendar
import datetime as dt
import re
from collections.abc import Sequence
from typing import Any

import polars as pl
from sqlglot import exp

from weft.data.query.relation import only_args, refused
from weft.data.query.values import Interval, Place, Value, as_time, constant, number, typed, value

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
    "ISODOW": "weekday",
    "ISOYEAR": "iso_year",
}
_OF_TIME = ("HOUR", "MINUTE", "SECOND", "EPOCH")
_SHOWN = "YmdHMS"
"""What of a format means the same here as in DuckDB."""


def interval(place: Place, node: Any) -> Value:
    """`INTERVAL '3' MONTH`, `INTERVAL 3 MONTHS`, `INTERVAL '3 months'`."""
    above = node.parent
    while isinstance(above, exp.Paren | exp.Neg):
        above = above.parent
    if not isinstance(above, exp.Add | exp.Sub):
        raise refused(f"{node.sql('duckdb')} as a value", "add it to a date, or take it from one")
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
        without_zone(left, node)
        length = right.constant if word == "+" else -right.constant
        if left.is_constant:
            try:
                return constant(_after(left.constant, length))
            except (ValueError, OverflowError):
                raise refused(
                    f"{node.sql('duckdb')}, which is in no year from 1 to 9999", "write another date"
                ) from None
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
        "a date takes + and - INTERVAL or whole days, two dates have a difference, and times have date_diff()",
    )


def _after(start: dt.date, length: Interval) -> dt.datetime:
    at = start if isinstance(start, dt.datetime) else dt.datetime(start.year, start.month, start.day)
    month = at.year * 12 + at.month - 1 + length.months
    year, month = divmod(month, 12)
    day = min(at.day, calendar.monthrange(year, month + 1)[1])
    return at.replace(year=year, month=month + 1, day=day) + dt.timedelta(
        days=length.days, microseconds=length.microseconds
    )


def without_zone(given: Value, node: exp.Expr) -> None:
    """What a clock shows depends on where it hangs; DuckDB asks its session."""
    if getattr(given.kind, "time_zone", None) is not None:
        raise refused(
            f"{node.sql('duckdb')} of {given.kind}",
            "convert it before: with_column(name, col(name).dt.convert_time_zone(…).dt.replace_time_zone(None))",
        )


def _time_like(place: Place, what: str, of: exp.Expr) -> Value:
    inside = value(place, of)
    if inside.kind not in (pl.Date, pl.Datetime):
        raise refused(f"{what} of {inside.kind}", "cast it to DATE or TIMESTAMP")
    without_zone(inside, of)
    return inside


def part_of(place: Place, given: Sequence[Any]) -> str:
    """The first argument of date_part()."""
    found = value(place, given[0]).constant if len(given) == 2 else None
    if not isinstance(found, str):
        raise refused("date_part() of no constant part", "write date_part('year', …)")
    return found


def extracted(place: Place, field: str, of: exp.Expr) -> Value:
    inside = _time_like(place, field, of)
    field = field.upper()
    if field in ("DOW", "DAYOFWEEK"):
        return Value((inside.expr.dt.weekday() % 7).cast(pl.Int64), pl.Int64())
    time = inside.expr.cast(pl.Datetime("us"))
    if field == "SECOND":
        return Value(time.dt.second().cast(pl.Int64), pl.Int64())
    if field == "EPOCH":
        return Value(time.dt.epoch("us") / 1_000_000, pl.Float64())
    if field not in _FIELDS:
        raise refused(f"EXTRACT of {field}", f"write one of DOW, SECOND, EPOCH, {', '.join(_FIELDS)}")
    kind = pl.Datetime("us") if field in _OF_TIME else inside.kind
    return Value(getattr(inside.expr.cast(kind).dt, _FIELDS[field])().cast(pl.Int64), pl.Int64())


def truncated(place: Place, unit: str, of: exp.Expr) -> Value:
    inside = _time_like(place, f"date_trunc of {unit}", of)
    every = "1y" if unit.upper() == "YEAR" else _TRUNCATED.get(unit.upper())
    if every is None:
        raise refused(f"date_trunc of {unit}", f"write one of YEAR, {', '.join(_TRUNCATED)}")
    return typed(place, inside.expr.cast(pl.Datetime("us")).dt.truncate(every))


def last_day(place: Place, node: Any) -> Value:
    inside = _time_like(place, "last_day()", node.this)
    return Value(inside.expr.cast(pl.Date).dt.month_end(), pl.Date())


def between(place: Place, node: Any) -> Value:
    """`date_diff(unit, start, stop)`: how many borders of the unit lie between them."""
    only_args(node, "this", "expression", "unit", "date_part_boundary")
    unit = node.args["unit"].name.upper()
    both = [value(place, each) for each in (node.expression, node.this)]
    both = [as_time(each) if isinstance(each.constant, str) else each for each in both]
    for each in both:
        if each.kind not in (pl.Date, pl.Datetime):
            raise refused(f"{node.sql('duckdb')} of {each.kind}", "cast it to DATE or TIMESTAMP")
        without_zone(each, node)
    times = [each.expr.cast(pl.Datetime("us")).dt for each in both]
    months = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
    if unit in months:
        starts = [(time.year().cast(pl.Int64) * 12 + time.month() - 1) // months[unit] for time in times]
    elif unit == "DAY" or unit in _MICROSECONDS:
        length = 24 * _MICROSECONDS["HOUR"] if unit == "DAY" else _MICROSECONDS[unit]
        starts = [time.epoch("us") // length for time in times]
    else:
        raise refused(f"date_diff of {unit}", f"write one of YEAR, QUARTER, MONTH, DAY, {', '.join(_MICROSECONDS)}")
    return Value((starts[1] - starts[0]).cast(pl.Int64), pl.Int64())


def formatted(place: Place, node: Any) -> Value:
    """`strftime(time, format)`."""
    inside = _time_like(place, "strftime()", node.this)
    wanted = value(place, node.args["format"]).constant
    if not isinstance(wanted, str) or set(re.findall("%(.?)", wanted)) - set(_SHOWN):
        shown = ", ".join(f"%{letter}" for letter in _SHOWN)
        raise refused(node.sql("duckdb"), f"write the format as a text with no more than {shown}")
    return Value(inside.expr.cast(pl.Datetime("us")).dt.strftime(wanted), pl.String())
