"""GROUP BY and aggregates, with SQL's nulls: a sum of nothing is null, a count is zero. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl
from sqlglot import exp

from weft.data import plan
from weft.data.aggregates import Aggregate
from weft.data.query.relation import Relation, fresh, only_args, refused
from weft.data.query.values import Value, condition, constant, exact_sum, number, total_number, value

if TYPE_CHECKING:
    from weft.data.query.selecting import Level


def aggregates(parts: Sequence[exp.Expr]) -> list[Any]:
    """The aggregates of these expressions that belong to their SELECT: not those of subqueries, nor what a window
    computes itself."""
    found: list[Any] = []

    def look(node: Any) -> None:
        if isinstance(node, exp.Query):
            return
        if isinstance(node, exp.Window):
            inside = node.this
            while isinstance(inside, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
                inside = inside.this
            for child in (*inside.iter_expressions(), *_beside(node)):
                look(child)
            return
        if isinstance(node, exp.Filter | exp.WithinGroup) or _is_aggregate(node):
            found.append(node)
            return
        for child in node.iter_expressions():
            look(child)

    for part in parts:
        look(part)
    return found


def _beside(window: exp.Window) -> list[exp.Expr]:
    return [child for child in window.iter_expressions() if child is not window.this]


def _is_aggregate(node: exp.Expr) -> bool:
    return isinstance(node, exp.AggFunc)


@dataclass
class _Gathering:
    """What is computed before the groups, and in them."""

    level: Level
    before: list[pl.Expr] = field(default_factory=list)
    made: list[Aggregate] = field(default_factory=list)
    counts: list[str] = field(default_factory=list)
    """Those that are zero of no row."""
    seen: dict[tuple[str, str, int], str] = field(default_factory=dict)

    def column(self, expr: pl.Expr) -> str:
        name = fresh("input")
        self.before.append(expr.alias(name))
        return name

    def __call__(self, kind: str, column: str | None, ddof: int = 1) -> pl.Expr:
        key = (kind, column or "", ddof)
        if key not in self.seen:
            self.seen[key] = fresh(kind)
            self.made.append(Aggregate(kind, column, self.seen[key], ddof))
            if kind in ("len", "count", "n_unique"):
                self.counts.append(self.seen[key])
        made = pl.col(self.seen[key])
        return made.cast(pl.Int64) if kind in ("len", "count", "n_unique") else made


def aggregate(level: Level, keys: Sequence[Any], nodes: Sequence[Any], extra: Sequence[pl.Expr]) -> list[str]:
    """Groups the rows of a level by its keys and by `extra`; gives the names of the columns of `extra`."""
    gathering = _Gathering(level)
    names: dict[str, Value] = {}
    key_names, extra_names = [], [fresh("key") for _ in extra]
    for node in keys:
        text = node.sql("duckdb")
        if text not in names:
            found = value(level, node)
            key_names.append(fresh("key"))
            gathering.before.append(found.expr.alias(key_names[-1]))
            names[text] = Value(pl.col(key_names[-1]), found.kind)
    gathering.before += [expr.alias(name) for expr, name in zip(extra, extra_names, strict=True)]
    for node in nodes:
        text = node.sql("duckdb")
        if text not in names:
            names[text] = _made(gathering, node)
    if not (key_names or extra_names or gathering.made):
        gathering("len", None)  # HAVING alone: there is one group
    # What has the subqueries of inputs beside it is known only now.
    below = level.relation.with_columns(gathering.before).dataset
    grouping = plan.GroupBy((below._plan,), (*key_names, *extra_names), tuple(gathering.made))
    level.relation = Relation(below._then(grouping), ())
    level.names, level.grouped, level.counts = names, True, gathering.counts
    return extra_names


def _made(gathering: _Gathering, node: Any) -> Value:
    where = None
    if isinstance(node, exp.Filter):
        where, node = condition(gathering.level, node.expression.this), node.this
    make = _KINDS.get(type(node))
    if make is None or not _is_aggregate(node):
        raise refused(f"the aggregate {node.sql('duckdb')}", "use groupby().agg() or map_groups() of a Dataset")
    only_args(node, "this", "expressions", "big_int")
    distinct = isinstance(node.this, exp.Distinct)
    if distinct and (len(node.this.expressions) != 1 or type(node) not in (exp.Count, exp.Min, exp.Max)):
        raise refused(node.sql("duckdb"), "aggregate a SELECT DISTINCT of these columns")
    if isinstance(node, exp.Count) and (node.this is None or isinstance(node.this, exp.Star)):
        if where is None:
            return Value(gathering("len", None), pl.Int64())
        given = constant(1)
    elif node.expressions and isinstance(node, exp.Count):
        raise refused(node.sql("duckdb"), "count one column")
    else:
        given = value(gathering.level, node.this.expressions[0] if distinct else node.this)
    if where is not None:
        given = Value(pl.when(where).then(given.expr), given.kind)
    return make(gathering, given, node)


def _numeric(given: Value, node: exp.Expr) -> None:
    if not given.kind.is_numeric() and given.kind != pl.Null:
        raise refused(f"{node.sql('duckdb')} of {given.kind}", "cast it to a number")


def _count(gathering: _Gathering, given: Value, node: Any) -> Value:
    column = gathering.column(given.expr)
    if isinstance(node.this, exp.Distinct):
        nulls = gathering("count", column) < gathering("len", None)
        return Value(gathering("n_unique", column) - nulls.cast(pl.Int64), pl.Int64())
    return Value(gathering("count", column), pl.Int64())


def _sum(gathering: _Gathering, given: Value, node: Any) -> Value:
    _numeric(given, node)
    total, _, kind = _total(gathering, given)
    return Value(total, kind)


def _total(gathering: _Gathering, given: Value) -> tuple[pl.Expr, pl.Expr, pl.DataType]:
    """The sum, null of no value; the number of values; the sum's type."""
    kind = total_number(given.kind)
    column = gathering.column(number(given, kind))
    count, total = gathering("count", column), gathering("sum", column)
    if given.kind in (pl.Int64, pl.UInt64):
        total = exact_sum(total, gathering("sum", gathering.column(number(given, pl.Float64()))))
    return pl.when(count > 0).then(total), count, kind


def _average(gathering: _Gathering, given: Value, node: Any) -> Value:
    _numeric(given, node)
    total, count, _ = _total(gathering, given)
    return Value(total.cast(pl.Float64) / count, pl.Float64())


def _extreme(kind: str) -> Callable[[_Gathering, Value, Any], Value]:
    def made(gathering: _Gathering, given: Value, node: Any) -> Value:
        if node.expressions:
            raise refused(node.sql("duckdb"), "give one argument")
        if given.kind.is_nested():
            raise refused(f"{node.sql('duckdb')} of {given.kind}", "order the rows and take the first")
        expr = given.expr.cast(pl.String) if given.kind in (pl.Categorical, pl.Enum) else given.expr
        column = gathering.column(expr)
        found = gathering(kind, column)
        if kind == "max" and given.kind.is_float():  # NaN is larger than all numbers; Polars leaves it out
            nan = gathering("any", gathering.column(given.expr.is_nan()))
            found = pl.when(nan).then(pl.lit(float("nan"), given.kind)).otherwise(found)
        return Value(found, pl.String() if given.kind in (pl.Categorical, pl.Enum) else given.kind)

    return made


def _spread(kind: str, ddof: int) -> Callable[[_Gathering, Value, Any], Value]:
    def made(gathering: _Gathering, given: Value, node: Any) -> Value:
        _numeric(given, node)
        return Value(gathering(kind, gathering.column(number(given, pl.Float64())), ddof), pl.Float64())

    return made


def _median(gathering: _Gathering, given: Value, node: Any) -> Value:
    _numeric(given, node)
    return Value(gathering("median", gathering.column(number(given, pl.Float64()))), pl.Float64())


def _logical(kind: str) -> Callable[[_Gathering, Value, Any], Value]:
    def made(gathering: _Gathering, given: Value, node: Any) -> Value:
        if given.kind != pl.Boolean:
            raise refused(f"{node.sql('duckdb')} of {given.kind}", "compare it with something")
        column = gathering.column(given.expr)
        return Value(pl.when(gathering("count", column) > 0).then(gathering(kind, column)), pl.Boolean())

    return made


_KINDS: dict[type, Callable[[_Gathering, Value, Any], Value]] = {
    exp.Count: _count,
    exp.Sum: _sum,
    exp.Avg: _average,
    exp.Min: _extreme("min"),
    exp.Max: _extreme("max"),
    exp.Stddev: _spread("std", 1),
    exp.StddevSamp: _spread("std", 1),
    exp.StddevPop: _spread("std", 0),
    exp.Variance: _spread("var", 1),
    exp.VariancePop: _spread("var", 0),
    exp.Median: _median,
    exp.LogicalOr: _logical("any"),
    exp.LogicalAnd: _logical("all"),
}
