"""Expressions of one row: from sqlglot's tree to Polars' expressions, with SQL's meaning. Pure.

Nulls follow three-valued logic, which is Polars' own for comparisons, `&`, `|` and `~`. Integers have 64 bits: what
does not fit is an error, by a cast that fails in the rows in question and in no other. A number with a point is a
decimal, exact beside integers and decimals, and a float beside floats.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any, Protocol, TypeVar

import polars as pl
from sqlglot import exp

from weft.data.query.relation import Relation, only_args, refused

_NOT_CONSTANT: Any = object()
Made = TypeVar("Made")
MOST_SCALE = 30
"""Digits behind the point of a decimal; of 38, so that there is room before it."""


@dataclass(frozen=True)
class Interval:
    """Of a constant length."""

    months: int = 0
    days: int = 0
    microseconds: int = 0

    def __neg__(self) -> Interval:
        return Interval(-self.months, -self.days, -self.microseconds)

    @property
    def words(self) -> list[str]:
        """As Polars' `offset_by` takes them, one after the other."""
        parts = ((self.months, "mo"), (self.days, "d"), (self.microseconds, "us"))
        return [f"{count}{unit}" for count, unit in parts if count]


@dataclass(frozen=True)
class Value:
    """An expression, its type, and what it is where that is known now."""

    expr: pl.Expr
    kind: pl.DataType
    constant: Any = _NOT_CONSTANT

    @property
    def is_constant(self) -> bool:
        return self.constant is not _NOT_CONSTANT


def constant(value: Any) -> Value:
    if isinstance(value, bool):
        return Value(pl.lit(value), pl.Boolean(), value)
    if isinstance(value, int):
        if abs(value) >= 2**63:
            raise refused(f"the integer {value}, of more than 64 bits", "write it with a point")
        return Value(pl.lit(value, pl.Int64), pl.Int64(), value)
    if isinstance(value, Decimal):
        exact = pl.Decimal(38, max(0, -int(value.as_tuple().exponent)))
        return Value(pl.lit(value, exact), exact, value)
    if isinstance(value, dt.datetime):
        return Value(pl.lit(value, pl.Datetime("us")), pl.Datetime("us"), value)
    if isinstance(value, Interval):
        return Value(pl.lit(None), pl.Duration("us"), value)
    kinds: dict[type, pl.DataType] = {float: pl.Float64(), str: pl.String(), dt.date: pl.Date(), type(None): pl.Null()}
    kind = kinds[type(value)]
    return Value(pl.lit(value, kind), kind, value)


class Place(Protocol):
    """Where an expression stands: a SELECT that is being made (`selecting.Level`)."""

    guards: list[pl.Expr]
    """The branches of CASE that it stands in: what fails in other rows is no error."""

    @property
    def relation(self) -> Relation: ...

    def known(self, node: exp.Expr) -> Value | None: ...

    def column(self, node: exp.Column) -> Value: ...

    def subquery(self, node: exp.Expr) -> Value: ...


def typed(place: Place, expr: pl.Expr) -> Value:
    return Value(expr, place.relation.type_of(expr))


def value(place: Place, node: exp.Expr) -> Value:
    """ValueError names what is not supported."""
    known = place.known(node)
    if known is not None:
        return known
    only_args(node, "this", "expression", "expressions", *_ARGS.get(type(node), ()))
    make = _KINDS.get(type(node))
    if make is not None:
        return make(place, node)
    from weft.data.query.calls import called

    return called(place, node)


def condition(place: Place, node: exp.Expr) -> pl.Expr:
    return truth(value(place, node), node)


def truth(given: Value, node: exp.Expr) -> pl.Expr:
    if given.kind == pl.Null:
        return pl.lit(None, pl.Boolean)
    if given.kind != pl.Boolean:
        raise refused(f"{node.sql('duckdb')} as a condition", f"it is {given.kind}: compare it with something")
    return given.expr


# ---- types that meet -------------------------------------------------------------------------------


def number(given: Value, kind: pl.DataType) -> pl.Expr:
    """Of a numeric type, cast without loss; a constant becomes a literal of it."""
    if given.kind == kind:
        return given.expr
    if given.is_constant and kind.is_float() and given.constant is not None:
        return pl.lit(float(given.constant), kind)
    return given.expr.cast(kind)


def scale_of(kind: pl.DataType) -> int:
    return kind.scale if isinstance(kind, pl.Decimal) else 0


def common_number(kinds: Sequence[pl.DataType]) -> pl.DataType:
    found = [kind for kind in kinds if kind != pl.Null]
    if any(kind.is_float() for kind in found):
        return pl.Float64() if pl.Float64 in found else pl.Float32()
    if any(kind.is_decimal() for kind in found):
        return pl.Decimal(38, max(map(scale_of, found)))
    return pl.Int64()


def together(values: Sequence[Value], what: str) -> tuple[list[pl.Expr], pl.DataType]:
    """The values in the type that they have in common. ValueError: they have none."""
    kinds = [one.kind for one in values if one.kind != pl.Null]
    if not kinds:
        return [one.expr for one in values], pl.Null()
    if all(kind.is_numeric() for kind in kinds):
        kind = kinds[0] if all(one == kinds[0] for one in kinds) else common_number(kinds)
        return [number(one, kind) for one in values], kind
    if any(kind.is_temporal() for kind in kinds):
        values = [as_time(one) if isinstance(one.constant, str) else one for one in values]
        kinds = [one.kind for one in values if one.kind != pl.Null]
        if all(kind in (pl.Date, pl.Datetime) for kind in kinds):
            kind = _common_time(kinds, what)
            return [one.expr if one.kind == kind else one.expr.cast(kind) for one in values], kind
    texts = (pl.String, pl.Categorical, pl.Enum)
    if all(kind in texts for kind in kinds):
        return [one.expr if one.kind == pl.String else one.expr.cast(pl.String) for one in values], pl.String()
    if any(kind != kinds[0] for kind in kinds):
        shown = " and ".join(dict.fromkeys(map(str, kinds)))
        raise refused(f"{what} of {shown}", "cast one of them with CAST(… AS …)")
    return [one.expr if one.kind == kinds[0] else one.expr.cast(kinds[0]) for one in values], kinds[0]


def total_number(kind: pl.DataType) -> pl.DataType:
    """In which sums are made."""
    return pl.Float64() if kind.is_float() else common_number([kind])


def _common_time(kinds: Sequence[pl.DataType], what: str) -> pl.DataType:
    """The finer one: the other would lose what it has."""
    times = [kind for kind in kinds if isinstance(kind, pl.Datetime)]
    if len({kind.time_zone for kind in times}) > 1 or (len(times) < len(kinds) and times and times[0].time_zone):
        raise refused(f"{what} of {' and '.join(map(str, kinds))}", "convert one to the time zone of the other before")
    return max(times, key=lambda kind: ("ms", "us", "ns").index(kind.time_unit)) if times else pl.Date()


def extreme(word: str, given: Sequence[pl.Expr], kind: pl.DataType) -> pl.Expr:
    """The "max" or "min" of a row, nulls left out. NaN is larger than all numbers."""
    make = pl.max_horizontal if word == "max" else pl.min_horizontal
    if not kind.is_float():
        return make(*given)
    numbers = make(*(each.fill_nan(None) for each in given))
    nan = pl.when(pl.any_horizontal([each.is_nan().fill_null(False) for each in given])).then(
        pl.lit(float("nan"), kind)
    )
    return pl.coalesce(nan, numbers) if word == "max" else pl.coalesce(numbers, nan)


def ordering(kind: pl.DataType) -> Callable[[pl.Expr], pl.Expr]:
    """What is sorted by, of a column: enumerated texts are texts, and in their order."""
    if kind.is_nested():
        raise refused(f"an order by {kind}", "order by what is in it, in columns of their own")
    return lambda expr: expr.cast(pl.String) if isinstance(kind, pl.Enum) else expr


def as_time(given: Value) -> Value:
    text = given.constant.strip()
    try:
        return constant(dt.date.fromisoformat(text) if len(text) <= 10 else dt.datetime.fromisoformat(text))
    except ValueError:
        raise ValueError(f"sql() cannot read {text!r} as a date: write it as '2024-12-31' or with a time") from None


# ---- what there is -------------------------------------------------------------------------------------


def _literal(place: Place, node: Any) -> Value:
    if node.is_string:
        return constant(node.name)
    text = node.name
    if "e" in text.lower():
        return constant(float(text))
    return constant(Decimal(text) if "." in text else int(text))


def _comparison(make: Callable[[pl.Expr, pl.Expr], pl.Expr]) -> Callable[[Place, Any], Value]:
    def compared(place: Place, node: Any) -> Value:
        both = value(place, node.this), value(place, node.expression)
        return comparison(both, make, node)

    return compared


def comparison(both: Sequence[Value], make: Callable[[pl.Expr, pl.Expr], pl.Expr], node: Any) -> Value:
    (left, right), kind = together(both, f"the comparison {node.sql('duckdb')}")
    if kind == pl.Null:
        return Value(pl.lit(None, pl.Boolean), pl.Boolean())
    return Value(make(left, right), pl.Boolean())


def _logic(make: Callable[[pl.Expr, pl.Expr], pl.Expr]) -> Callable[[Place, Any], Value]:
    def combined(place: Place, node: Any) -> Value:
        parts = [condition(place, part) for part in node.flatten()]
        whole = parts[0]
        for part in parts[1:]:
            whole = make(whole, part)
        return Value(whole, pl.Boolean())

    return combined


def _arithmetic(word: str) -> Callable[[Place, Any], Value]:
    def computed(place: Place, node: Any) -> Value:
        return arithmetic(place, word, value(place, node.this), value(place, node.expression), node)

    return computed


def arithmetic(place: Place, word: str, left: Value, right: Value, node: exp.Expr) -> Value:
    from weft.data.query.dates import moved

    if left.kind.is_temporal() or right.kind.is_temporal():
        return moved(place, word, left, right, node)
    kinds = left.kind, right.kind
    if any(not kind.is_numeric() and kind != pl.Null for kind in kinds):
        raise refused(f"{word} of {kinds[0]} and {kinds[1]} in {node.sql('duckdb')}", "cast both to numbers")
    if pl.Null in kinds:
        return Value(pl.lit(None, pl.Float64), pl.Float64())
    if left.is_constant and right.is_constant and word in "+-*" and not any(kind.is_float() for kind in kinds):
        made = {"+": left.constant + right.constant, "-": left.constant - right.constant}
        return constant(made.get(word, left.constant * right.constant))
    kind = common_number(kinds)
    if word == "/" and not kind.is_float():
        kind = pl.Float64()
    if word == "*" and kind.is_decimal():  # Polars keeps the larger scale of the two, and would round
        scale = sum(map(scale_of, kinds))
        if scale > MOST_SCALE:
            raise refused(f"decimals of {scale} digits in {node.sql('duckdb')}", "cast one factor to DOUBLE")
        kind = pl.Decimal(38, scale)
    a, b = number(left, kind), number(right, kind)
    if word in ("//", "%"):
        return Value(_whole(word, a, b, kind, node), kind)
    if kind == pl.Float32 and word == "/":  # Polars multiplies by what a constant goes into one
        return Value((a.cast(pl.Float64) / b.cast(pl.Float64)).cast(kind), kind)
    if kind == pl.Int64:
        a, b = a.cast(pl.Int128), b.cast(pl.Int128)
        return Value(fits(place, {"+": a + b, "-": a - b, "*": a * b}[word]), kind)
    return Value({"+": a + b, "-": a - b, "*": a * b, "/": a / b}[word], kind)


def fits(place: Place, wide: pl.Expr) -> pl.Expr:
    """An integer of 128 bits in 64; an error where it does not fit, in rows that are asked for."""
    for guard in place.guards:
        wide = pl.when(guard).then(wide)
    return wide.cast(pl.Int64)


def exact_sum(total: pl.Expr, rough: pl.Expr) -> pl.Expr:
    """A sum in 64 bits, which may have gone around, beside the same of floats: then they are far apart."""
    around = (rough - total.cast(pl.Float64)).abs() > 2.0**63
    return pl.when(around).then(_error_where(around, rough)).otherwise(total)


def _error_where(bad: pl.Expr, too_large: pl.Expr) -> pl.Expr:
    """A cast of rows that do not fit, and of nulls. Of a constant Polars would make the largest integer."""
    return pl.when(bad).then(too_large * 4.0).cast(pl.Int64)


def _whole(word: str, a: pl.Expr, b: pl.Expr, kind: pl.DataType, node: exp.Expr) -> pl.Expr:
    """Towards zero, as SQL has it; Polars goes down. By zero it is null: an error would also hit the branches of a CASE
    that are not taken."""
    if kind != pl.Int64:
        raise refused(f"{node.sql('duckdb')} of {kind}", "cast both to BIGINT, or write floor(a / b)")
    down = a // b
    towards = down + ((a - down * b != 0) & ((a < 0) != (b < 0))).cast(pl.Int64)
    if word == "%":
        return a - towards * b
    around = (a == -(2**63)) & (b == -1)
    return pl.when(around).then(_error_where(around, a.cast(pl.Float64))).otherwise(towards)


def _negated(place: Place, node: Any) -> Value:
    inside = value(place, node.this)
    if inside.is_constant and isinstance(inside.constant, int | Decimal | float | Interval):
        return constant(-inside.constant)
    if not inside.kind.is_numeric():
        raise refused(f"{node.sql('duckdb')} of {inside.kind}", "cast it to a number")
    kind = common_number([inside.kind])
    if kind == pl.Int64:
        return Value(fits(place, pl.lit(0, pl.Int128) - number(inside, pl.Int128())), kind)
    return Value(-number(inside, kind), kind)


def _case(place: Place, node: Any) -> Value:
    subject = node.args.get("this")
    conditions: list[pl.Expr] = []
    results: list[Value] = []
    before = pl.lit(False)
    for branch in node.args["ifs"]:
        tested = exp.EQ(this=subject.copy(), expression=branch.this.copy()) if subject else branch.this
        conditions.append(_guarded(place, ~before, partial(condition, place, tested)))
        holds = conditions[-1].fill_null(False)
        results.append(_guarded(place, ~before & holds, partial(value, place, branch.args["true"])))
        before = before | holds
    default = node.args.get("default")
    results.append(constant(None) if default is None else _guarded(place, ~before, partial(value, place, default)))
    exprs, kind = together(results, f"the branches {node.sql('duckdb')}")
    chain: Any = pl.when(conditions[0]).then(exprs[0])
    for tested, expr in zip(conditions[1:], exprs[1:-1], strict=True):
        chain = chain.when(tested).then(expr)
    return Value(chain.otherwise(exprs[-1]), kind)


def _guarded(place: Place, guard: pl.Expr, make: Callable[[], Made]) -> Made:
    place.guards.append(guard)
    try:
        return make()
    finally:
        place.guards.pop()


def _if(place: Place, node: Any) -> Value:
    return _case(place, exp.Case(ifs=[node.copy()], default=node.args.get("false")))


def _between(place: Place, node: Any) -> Value:
    inside = value(place, node.this)
    low = comparison((inside, value(place, node.args["low"])), lambda a, b: a >= b, node)
    high = comparison((inside, value(place, node.args["high"])), lambda a, b: a <= b, node)
    return Value(low.expr & high.expr, pl.Boolean())


def _in(place: Place, node: Any) -> Value:
    if node.args.get("query") is not None:
        return place.subquery(node)
    if not node.expressions:
        raise refused(f"{node.sql('duckdb')}", "write IN (a, b, …) or IN (SELECT …)")
    inside = value(place, node.this)
    items = [value(place, item) for item in node.expressions]
    exprs, kind = together([inside, *items], f"the list {node.sql('duckdb')}")
    if kind == pl.Null:
        return Value(pl.lit(None, pl.Boolean), pl.Boolean())
    if all(isinstance(item.constant, str) for item in items) and kind == pl.String:
        return Value(exprs[0].is_in([item.constant for item in items]), pl.Boolean())
    found = exprs[0] == exprs[1]
    for other in exprs[2:]:
        found = found | (exprs[0] == other)
    return Value(found, pl.Boolean())


def _is(place: Place, node: Any) -> Value:
    inside, other = value(place, node.this), node.expression
    if isinstance(other, exp.Null):
        return Value(inside.expr.is_null(), pl.Boolean())
    if isinstance(other, exp.Boolean):
        return Value(truth(inside, node.this).eq_missing(pl.lit(other.this)), pl.Boolean())
    raise refused(node.sql("duckdb"), "write IS NULL, IS TRUE, or IS NOT DISTINCT FROM")


def _aliased(place: Place, node: Any) -> Value:
    return value(place, node.this)


_ARGS: dict[type, tuple[str, ...]] = {
    exp.Alias: ("alias",),
    exp.Between: ("low", "high"),
    exp.Case: ("ifs", "default"),
    exp.Cast: ("to", "_type"),
    exp.Coalesce: ("is_nvl",),
    exp.Column: ("table",),
    exp.Concat: ("safe", "coalesce"),
    exp.DPipe: ("safe",),
    exp.Div: ("typed", "safe"),
    exp.Greatest: ("ignore_nulls",),
    exp.If: ("true", "false"),
    exp.ILike: ("negate", "escape"),
    exp.In: ("query",),
    exp.Interval: ("unit",),
    exp.Least: ("ignore_nulls",),
    exp.Like: ("negate", "escape"),
    exp.Literal: ("is_string",),
    exp.Pad: ("fill_pattern", "is_left"),
    exp.Repeat: ("times",),
    exp.SplitPart: ("delimiter", "part_index"),
    exp.StrPosition: ("substr",),
    exp.TimeToStr: ("format",),
    exp.ConcatWs: ("safe", "coalesce"),
    exp.DateDiff: ("unit", "date_part_boundary"),
    exp.Replace: ("replacement",),
    exp.Round: ("decimals",),
    exp.Subquery: ("alias", "limit", "offset", "order", "with_"),
    exp.Substring: ("start", "length"),
    exp.TimestampTrunc: ("unit",),
    exp.DateTrunc: ("unit",),
    exp.Trim: ("position",),
}
"""What is read of a node besides its operands. Anything else is refused."""
_KINDS: dict[type, Callable[[Place, Any], Value]] = {
    exp.Literal: _literal,
    exp.Null: lambda place, node: constant(None),
    exp.Boolean: lambda place, node: constant(bool(node.this)),
    exp.Column: lambda place, node: place.column(node),
    exp.Paren: _aliased,
    exp.Alias: _aliased,
    exp.EQ: _comparison(lambda a, b: a == b),
    exp.NEQ: _comparison(lambda a, b: a != b),
    exp.GT: _comparison(lambda a, b: a > b),
    exp.GTE: _comparison(lambda a, b: a >= b),
    exp.LT: _comparison(lambda a, b: a < b),
    exp.LTE: _comparison(lambda a, b: a <= b),
    exp.NullSafeEQ: _comparison(lambda a, b: a.eq_missing(b)),
    exp.NullSafeNEQ: _comparison(lambda a, b: a.ne_missing(b)),
    exp.And: _logic(lambda a, b: a & b),
    exp.Or: _logic(lambda a, b: a | b),
    exp.Not: lambda place, node: Value(~condition(place, node.this), pl.Boolean()),
    exp.Add: _arithmetic("+"),
    exp.Sub: _arithmetic("-"),
    exp.Mul: _arithmetic("*"),
    exp.Div: _arithmetic("/"),
    exp.IntDiv: _arithmetic("//"),
    exp.Mod: _arithmetic("%"),
    exp.Neg: _negated,
    exp.Case: _case,
    exp.If: _if,
    exp.Between: _between,
    exp.In: _in,
    exp.Is: _is,
    exp.Exists: lambda place, node: place.subquery(node),
    exp.Subquery: lambda place, node: place.subquery(node),
}
