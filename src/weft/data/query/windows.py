"""Window functions. They look at all rows, so each step of one is an `AllRows` of the plan. Pure.

The keys of ORDER BY become numbers first, in which direction and place of nulls are contained, so that what follows
sorts by whole numbers alone.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import polars as pl
from sqlglot import exp

from weft.data.query.relation import fresh, only_args, refused
from weft.data.query.values import (
    Value,
    condition,
    exact_sum,
    extreme,
    number,
    ordering,
    scale_of,
    together,
    total_number,
    value,
)

if TYPE_CHECKING:
    from weft.data.query.selecting import Level

_LAST = 2**62
MOST_NEAR = 100
"""Rows of a frame that are looked at one by one."""


@dataclass
class _Window:
    level: Level
    node: Any
    partition: list[str]
    ranks: list[str]
    """The keys of its order, as numbers; none where it has no order."""
    row: str
    """The number of a row in its partition, from 1, where there is an order."""

    def over(self, expr: pl.Expr, ordered: bool = False, peers: bool = False) -> pl.Expr:
        """Within the partition, or within the rows of it that are equal in its order."""
        keys = [*self.partition, *(self.ranks if peers else ())]
        order = [self.row] if ordered else None
        if not keys and order is None:
            return expr
        return expr.over(keys or None, order_by=order)

    def step(self, expr: pl.Expr, word: str = "window") -> pl.Expr:
        name = fresh(word)
        self.level.add([expr], [name], over_all=True)
        return pl.col(name)

    def plain(self, expr: pl.Expr) -> pl.Expr:
        """A column, for what is computed over it."""
        name = fresh("input")
        self.level.add([expr], [name])
        return pl.col(name)

    def of_last_peer(self, expr: pl.Expr) -> pl.Expr:
        """What the last of the rows that are equal in the order has."""
        return self.step(self.over(self.step(expr).sort_by(self.row).last(), peers=True))


def windowed(level: Level, node: Any) -> Value:
    only_args(node, "this", "partition_by", "order", "spec", "over")
    given = node.this
    where = None
    if isinstance(given, exp.Filter):
        where, given = condition(level, given.expression.this), given.this
    if isinstance(given, exp.IgnoreNulls | exp.RespectNulls):
        raise refused(node.sql("duckdb"), "leave out IGNORE NULLS")
    only_args(given, "this", "offset", "default", "big_int")
    window = _prepared(level, node)
    name = _name_of(given)
    if name in ("row_number", "rank", "dense_rank"):
        return Value(_rank(window, name, node), pl.Int64())
    if name in ("lag", "lead", "first_value", "last_value"):
        return _other_row(window, name, given)
    if name not in ("count", "sum", "avg", "min", "max") or isinstance(given.this, exp.Distinct):
        raise refused(f"the window function {given.sql('duckdb')}", "compute it with groupby().map_groups()")
    return _aggregated(window, name, given, where)


def _name_of(node: exp.Expr) -> str:
    return node.name.lower() if isinstance(node, exp.Anonymous) else str(node.sql_name()).lower()  # type: ignore[attr-defined]


def _prepared(level: Level, node: Any) -> _Window:
    partition = [value(level, each).expr for each in node.args.get("partition_by") or []]
    order = node.args.get("order")
    keys = [(_ordered(value(level, each.this)), each) for each in (order.expressions if order else [])]
    names = [fresh("partition") for _ in partition]
    key_names = [fresh("order") for _ in keys]
    level.add([*partition, *(key.expr for key, _ in keys)], [*names, *key_names])
    ranks = [fresh("rank") for _ in keys]
    window = _Window(level, node, names, ranks, fresh("row"))
    exprs = []
    for name, (_, ordered) in zip(key_names, keys, strict=True):
        rank = pl.col(name).rank("dense", descending=bool(ordered.args.get("desc"))).cast(pl.Int64)
        exprs.append(rank.fill_null(-1 if ordered.args.get("nulls_first") else _LAST))
    level.add(exprs, ranks, over_all=True)
    if ranks:
        row = pl.int_range(1, pl.len() + 1, dtype=pl.Int64)
        level.add([row.over(names or None, order_by=ranks)], [window.row], over_all=True)
    return window


def _ordered(given: Value) -> Value:
    made = ordering(given.kind)(given.expr)
    return Value(made, pl.String() if isinstance(given.kind, pl.Enum) else given.kind)


def _rank(window: _Window, name: str, node: exp.Expr) -> pl.Expr:
    if name == "row_number":
        if window.ranks:
            return pl.col(window.row)
        return window.step(window.over(pl.int_range(1, pl.len() + 1, dtype=pl.Int64)))
    if not window.ranks:
        raise refused(f"{node.sql('duckdb')} without ORDER BY", "write OVER (… ORDER BY …)")
    rank = window.step(window.over(pl.col(window.row).min(), peers=True))
    if name == "rank":
        return rank
    first = window.plain((rank == pl.col(window.row)).cast(pl.Int64))
    number_of = window.step(window.over(first.cum_sum(), ordered=True))
    return window.step(window.over(number_of.max(), peers=True))


def _other_row(window: _Window, name: str, node: Any) -> Value:
    level = window.level
    if not window.ranks:
        raise refused(f"{name}() without ORDER BY", "write OVER (… ORDER BY …)")
    found = value(level, node.this)
    column = window.plain(found.expr)
    if name == "first_value":
        if _frame(window.node)[0] not in ("whole", "range", "rows"):
            raise refused(window.node.sql("duckdb"), "leave out the frame")
        return Value(window.step(window.over(column.sort_by(window.row).first())), found.kind)
    if name == "last_value":
        kind = _frame(window.node)[0]
        if kind == "whole":
            return Value(window.step(window.over(column.sort_by(window.row).last())), found.kind)
        if kind == "rows":
            return Value(column, found.kind)
        if kind == "range":
            return Value(window.step(window.over(column.sort_by(window.row).last(), peers=True)), found.kind)
        raise refused(window.node.sql("duckdb"), "leave out the frame")
    offset_node, default_node = node.args.get("offset"), node.args.get("default")
    offset = 1 if offset_node is None else value(level, offset_node).constant
    default = None if default_node is None else value(level, default_node)
    if not isinstance(offset, int) or offset < 0 or (default is not None and not default.is_constant):
        raise refused(node.sql("duckdb"), "the offset and the default must be constants")
    shift = offset if name == "lag" else -offset
    fill = None if default is None or default.constant is None else _default(found, default, node)
    return Value(window.step(window.over(column.shift(shift, fill_value=fill), ordered=True)), found.kind)


def _default(found: Value, default: Value, node: exp.Expr) -> pl.Expr:
    """In the type of the column."""
    both, kind = together([found, default], f"the default of {node.sql('duckdb')}")
    same = (kind.is_integer() and found.kind.is_integer()) or scale_of(kind) == scale_of(found.kind) > 0
    if kind != found.kind and not same:
        raise refused(f"the default of {node.sql('duckdb')}, of {kind}", f"cast it to {found.kind}")
    return both[1].cast(found.kind)


def _frame(node: Any) -> tuple[str, int, int]:
    """ "whole", "range" and "rows" up to the current row, "last" with how many rows before it, or "near" with how many
    before and behind it."""
    spec = node.args.get("spec")
    if spec is None:
        return ("range" if node.args.get("order") else "whole"), 0, 0
    kind = str(spec.args.get("kind") or "RANGE").upper()
    start, end = spec.args.get("start"), spec.args.get("end")
    sides = str(spec.args.get("start_side") or "").upper(), str(spec.args.get("end_side") or "").upper()
    before, after = _bound(start), _bound(end if end is not None else "CURRENT ROW")
    plain = not spec.args.get("exclude") and kind in ("ROWS", "RANGE")
    if plain and (before, sides[0]) == ("UNBOUNDED", "PRECEDING"):
        if (after, sides[1]) == ("UNBOUNDED", "FOLLOWING"):
            return "whole", 0, 0
        if after == "CURRENT ROW":
            return (kind.lower() if node.args.get("order") or kind == "ROWS" else "whole"), 0, 0
    if plain and kind == "ROWS" and after == "CURRENT ROW" and sides[0] == "PRECEDING" and before.isdigit():
        return "last", int(before), 0
    first, last = _distance(before, sides[0]), _distance(after, sides[1])
    if plain and kind == "ROWS" and first is not None and last is not None and 0 <= last - first < MOST_NEAR:
        return "near", -first, last
    raise refused(
        f"the frame {spec.sql('duckdb')}",
        f"write ROWS BETWEEN n PRECEDING AND m FOLLOWING of up to {MOST_NEAR} rows, or begin with UNBOUNDED PRECEDING",
    )


def _distance(bound: str, side: str) -> int | None:
    """Of a bound of a frame from the current row."""
    if bound == "CURRENT ROW":
        return 0
    return (int(bound) if side == "FOLLOWING" else -int(bound)) if bound.isdigit() else None


def _bound(given: Any) -> str:
    return given.upper() if isinstance(given, str) else str(given.name).upper() if given is not None else ""


def _aggregated(window: _Window, name: str, node: Any, where: pl.Expr | None) -> Value:
    level = window.level
    star = name == "count" and (node.this is None or isinstance(node.this, exp.Star))
    found = Value(pl.lit(1, pl.Int64), pl.Int64()) if star else value(level, node.this)
    if name in ("sum", "avg"):
        if not found.kind.is_numeric():
            raise refused(f"{node.sql('duckdb')} of {found.kind}", "cast it to a number")
        kind_of = total_number(found.kind)
        found = Value(number(found, kind_of), kind_of)
    if name in ("min", "max"):
        found = _ordered(found)
    if where is not None:
        found = Value(pl.when(where).then(found.expr), found.kind)
    column = window.plain(found.expr)
    kind, before, after = _frame(window.node)
    if kind != "whole" and not window.ranks:
        raise refused(window.node.sql("duckdb"), "give the window an ORDER BY, or leave out its frame")
    if kind == "near" or (kind == "last" and name != "count" and not found.kind.is_integer() and before < MOST_NEAR):
        return _near(window, name, column, found.kind, range(-after, before + 1))
    if found.kind.is_float() and ((kind != "whole" and name in ("min", "max")) or kind == "last"):
        raise refused(f"{node.sql('duckdb')} of floats in a frame", "cast it to DECIMAL, or leave out the frame")
    if kind == "whole":
        return _of_all(window, name, column, found.kind)
    return _running(window, name, column, found.kind, kind, before)


def _of_all(window: _Window, name: str, column: pl.Expr, kind: pl.DataType) -> Value:
    count = column.count().cast(pl.Int64)
    if name == "count":
        return Value(window.step(window.over(count)), pl.Int64())
    if name in ("sum", "avg"):
        total = exact_sum(column.sum(), column.cast(pl.Float64).sum()) if kind == pl.Int64 else column.sum()
        total = pl.when(count > 0).then(total)
        made = total if name == "sum" else total.cast(pl.Float64) / count
        return Value(window.step(window.over(made)), kind if name == "sum" else pl.Float64())
    found = column.min() if name == "min" else column.max()
    if name == "max" and kind.is_float():
        found = pl.when(column.is_nan().any()).then(pl.lit(float("nan"), kind)).otherwise(found)
    return Value(window.step(window.over(found)), kind)


def _near(window: _Window, name: str, column: pl.Expr, kind: pl.DataType, shifts: range) -> Value:
    """Of a few rows, each of which is asked: so a sum of floats has no trace of what has left the frame."""
    rows = [column.shift(by) for by in reversed(shifts)]
    if name in ("min", "max"):
        return Value(window.step(window.over(extreme(name, rows, kind), ordered=True)), kind)
    count = pl.sum_horizontal([row.is_not_null().cast(pl.Int64) for row in rows])
    if name == "count":
        return Value(window.step(window.over(count, ordered=True)), pl.Int64())
    wide = pl.Int128() if kind == pl.Int64 else kind
    total = reduce(operator.add, [row.cast(wide).fill_null(pl.lit(0).cast(wide)) for row in rows]).cast(kind)
    total = window.step(window.over(pl.when(count > 0).then(total), ordered=True))
    if name == "sum":
        return Value(total, kind)
    return Value(total.cast(pl.Float64) / window.step(window.over(count, ordered=True)), pl.Float64())


def _running(window: _Window, name: str, column: pl.Expr, kind: pl.DataType, frame: str, before: int) -> Value:
    steps = _cumulated(window, name, column, kind, frame, before)
    if frame == "range":
        steps = [window.of_last_peer(each) for each in steps]
    if name == "count":
        return Value(steps[0], pl.Int64())
    if name in ("min", "max"):
        return Value(steps[0], kind)
    total = pl.when(steps[0] > 0).then(steps[1])
    return Value(total if name == "sum" else total.cast(pl.Float64) / steps[0], kind if name == "sum" else pl.Float64())


def _cumulated(
    window: _Window, name: str, column: pl.Expr, kind: pl.DataType, frame: str, before: int
) -> Sequence[pl.Expr]:
    """Up to each row: the extreme, or how many values there are and their sum."""
    counted = column.is_not_null().cast(pl.Int64)
    rows = before + 1
    if name in ("min", "max"):
        if frame == "last" and not kind.is_integer():
            raise refused(f"{name} of {kind} over some rows before", "write ROWS UNBOUNDED PRECEDING")
        if frame == "last":
            rolled = (
                column.rolling_min(rows, min_samples=1) if name == "min" else column.rolling_max(rows, min_samples=1)
            )
            return [window.step(window.over(rolled, ordered=True))]
        best = column.cum_min() if name == "min" else column.cum_max()
        return [window.step(window.over(best.forward_fill(), ordered=True))]
    if frame == "last" and kind.is_decimal() and name != "count":
        raise refused(f"{name} of {kind} over some rows before", "cast it to BIGINT, or write ROWS UNBOUNDED PRECEDING")
    zeroed = pl.when(column.is_null()).then(pl.lit(0).cast(kind)).otherwise(column) if kind.is_numeric() else column

    def summed(of: pl.Expr) -> pl.Expr:
        return of.rolling_sum(rows, min_samples=1) if frame == "last" else of.cum_sum()

    count, total = summed(counted), summed(zeroed)
    if kind == pl.Int64:
        total = exact_sum(total, summed(zeroed.cast(pl.Float64)))
    made = [window.step(window.over(count, ordered=True))]
    return made if name == "count" else [*made, window.step(window.over(total, ordered=True))]
