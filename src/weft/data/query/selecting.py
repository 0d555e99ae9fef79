"""One SELECT: from its rows to its columns, groups, windows, order and limit. Pure: a plan comes of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl
from sqlglot import exp

from weft.data import plan
from weft.data.dataset import Dataset
from weft.data.query import aggregating, sources, windows
from weft.data.query.relation import Field, Pair, Relation, copied, fresh, only_args, refused
from weft.data.query.values import Value, condition, ordering, together, value

Env = Mapping[str, Relation]
"""The tables and common table expressions that a query sees."""
_SELECT = (
    "expressions",
    "from_",
    "joins",
    "where",
    "group",
    "having",
    "qualify",
    "order",
    "limit",
    "offset",
    "distinct",
)


def query(env: Env, node: Any) -> Relation:
    """The rows of a SELECT, a UNION, or one of these in parentheses; its fields are what it gives, in order."""
    with_ = node.args.get("with_")
    if with_ is not None:
        if with_.args.get("recursive"):
            raise refused("WITH RECURSIVE", "repeat the step in Python, on materialize() of the one before")
        made = dict(env)
        for cte in with_.expressions:
            only_args(cte, "this", "alias", "materialized")
            made[cte.alias] = query(made, cte.this)
        env = made
    if isinstance(node, exp.Select):
        return selected(env, node)
    if isinstance(node, exp.SetOperation):
        only_args(node, "this", "expression", "distinct", "order", "limit", "offset", "with_")
        return _ordered(_combined(env, node), node)
    if isinstance(node, exp.Subquery):
        only_args(node, "this", "alias", "order", "limit", "offset", "with_")
        return _ordered(query(env, node.this), node)
    raise refused(f"{type(node).__name__.upper()} as a query", "write SELECT, UNION, INTERSECT or EXCEPT")


def selected(env: Env, node: Any) -> Relation:
    level = Level.of_rows(env, node)
    level.group(node)
    return level.finish(node)


class Level:
    """The rows that a SELECT has so far. Subqueries and windows add columns to them; grouping replaces them."""

    def __init__(self, env: Env, relation: Relation) -> None:
        self.env = env
        self.relation = relation
        self.names: dict[str, Value] = {}
        """What is computed already: keys, aggregates and windows, by their text."""
        self.grouped = False
        self.guards: list[pl.Expr] = []
        self.counts: list[str] = []
        """Columns of a grouping that are zero where it has no row."""

    @classmethod
    def of_rows(cls, env: Env, node: Any, without: Sequence[exp.Expr] = (), domain: Relation | None = None) -> Level:
        """FROM and WHERE, but for some conditions. With `domain`, for each row of it: it is one more table."""
        only_args(node, "with_", *_SELECT)
        where = node.args.get("where")
        left_out = {id(each) for each in without}
        conditions = [each for each in sources.conjuncts(where.this if where else None) if id(each) not in left_out]
        return sources.rows(env, node, conditions, domain)

    # ---- what an expression asks -----------------------------------------------------------------------

    def known(self, node: exp.Expr) -> Value | None:
        return self.names.get(node.sql("duckdb")) if self.names else None

    def column(self, node: exp.Column) -> Value:
        for field in self.relation.fields:
            if field.name == node.name and field.table == node.table:
                return Value(pl.col(field.column), self.relation.schema[field.column])
        if self.grouped:
            raise ValueError(f"sql(): {node.sql('duckdb')} must be in GROUP BY, or inside an aggregate such as max()")
        raise refused(f"the column {node.sql('duckdb')} here", "no table of this part of the query has it")

    def subquery(self, node: exp.Expr) -> Value:
        from weft.data.query.subqueries import joined

        return joined(self, node)

    # ---- the steps --------------------------------------------------------------------------------------

    def add(self, exprs: Sequence[pl.Expr], names: Sequence[str], over_all: bool = False) -> None:
        """Columns beside those that there are."""
        made = tuple(expr.alias(name) for expr, name in zip(exprs, names, strict=True))
        kind: Any = plan.AllRows if over_all else plan.Project
        if made:
            below = self.relation.dataset
            self.relation = Relation(below._then(kind((below._plan,), made, keep=True)), self.relation.fields)

    def keep(self, node: exp.Expr) -> None:
        """The rows for which a condition holds."""
        from weft.data.query.subqueries import kept

        if not kept(self, node):
            predicate = condition(self, node)  # which may add columns
            self.relation = self.relation.filter(predicate)

    def group(self, node: Any, keys: Sequence[pl.Expr] = ()) -> list[str]:
        """GROUP BY, where there is one or an aggregate, with `keys` besides; what HAVING says is kept is another step.
        Gives the names of the keys."""
        group = node.args.get("group")
        if group is not None:
            only_args(group, "expressions")
        found = aggregating.aggregates(_parts(node))
        if group is None and not found and not node.args.get("having"):
            return []
        return aggregating.aggregate(self, group.expressions if group else [], found, keys)

    def finish(self, node: Any) -> Relation:
        """HAVING, windows, the columns, DISTINCT, the order and the limit."""
        having, qualify = node.args.get("having"), node.args.get("qualify")
        for each in sources.conjuncts(having.this if having else None):
            self.keep(each)
        for window in _windows(_parts(node)):
            text = window.sql("duckdb")
            if text not in self.names:
                self.names[text] = windows.windowed(self, window)
        if qualify is not None:
            self.keep(qualify.this)
        made = [(each.alias_or_name, value(self, each)) for each in node.expressions]
        orders = _orders(node)
        outputs = {exp.column(name).sql("duckdb"): found for name, found in made}
        before = dict(self.names)
        self.names |= outputs
        keys = [value(self, ordered.this) for ordered in orders]
        self.names = before
        fields = [Field("", name, fresh(name)) for name, _ in made]
        exprs = [found.expr.alias(field.column) for (_, found), field in zip(made, fields, strict=True)]
        distinct = node.args.get("distinct")
        if distinct is not None and distinct.args.get("on"):
            raise refused("DISTINCT ON", "write row_number() OVER (PARTITION BY …) and keep the rows with 1")
        shown = {str(found.expr): field.column for (_, found), field in zip(made, fields, strict=True)}
        names = [shown.get(str(key.expr)) or fresh("order") for key in keys]
        hidden = [key.expr.alias(name) for key, name in zip(keys, names, strict=True) if name not in shown.values()]
        if hidden and distinct is not None:
            raise refused("an order by what SELECT DISTINCT does not give", "add it to the columns")
        dataset = self.relation.only([*exprs, *hidden])
        if distinct is not None:
            dataset = dataset._then(plan.GroupBy((dataset._plan,), tuple(field.column for field in fields), ()))
        return _limited(_sorted(Relation(dataset, tuple(fields)), orders, names), node)


def _parts(node: Any) -> list[exp.Expr]:
    """Where aggregates and windows may stand."""
    having, qualify = node.args.get("having"), node.args.get("qualify")
    return [*node.expressions, *(each.this for each in (having, qualify) if each), *_orders(node)]


def _orders(node: Any) -> list[Any]:
    order = node.args.get("order")
    for each in [] if order is None else order.expressions:
        only_args(each, "this", "desc", "nulls_first")
    return [] if order is None else list(order.expressions)


def _windows(parts: Sequence[exp.Expr]) -> Iterator[exp.Window]:
    for part in parts:
        for node in part.walk(prune=lambda found: isinstance(found, exp.Query)):
            if isinstance(node, exp.Window):
                yield node


def _sorted(relation: Relation, orders: Sequence[Any], names: Sequence[str]) -> Relation:
    """By these columns, of which those that are no fields then go."""
    if not orders:
        return relation
    first: dict[str, Any] = {}
    for name, ordered in zip(names, orders, strict=True):  # a column twice sorts by its first mention
        first.setdefault(name, ordered)
    downs = tuple(bool(ordered.args.get("desc")) for ordered in first.values())
    lasts = tuple(not ordered.args.get("nulls_first") for ordered in first.values())
    below = relation.dataset
    for name in list(first):
        by = ordering(relation.schema[name])(pl.col(name))
        if isinstance(relation.schema[name], pl.Enum):
            below = below.with_column(text := fresh("text"), by)
            first = {text if each == name else each: ordered for each, ordered in first.items()}
    dataset = below._then(plan.Sort((below._plan,), tuple(first), downs, lasts))
    hidden = [name for name in first if name not in {field.column for field in relation.fields}]
    return Relation(dataset.drop(*hidden) if hidden else dataset, relation.fields)


def _ordered(relation: Relation, node: Any) -> Relation:
    """ORDER BY and LIMIT of a UNION or of parentheses: by what it gives."""
    orders = _orders(node)
    names = []
    for ordered in orders:
        at = ordered.this
        found = [field.column for field in relation.fields if field.name == at.name]
        if isinstance(at, exp.Literal) and at.is_int and 1 <= int(at.name) <= len(relation.fields):
            found = [relation.fields[int(at.name) - 1].column]
        if not found or not isinstance(at, exp.Column | exp.Literal):
            raise refused(f"ORDER BY {at.sql('duckdb')} of a UNION", "order by one of its columns")
        names.append(found[0])
    return _limited(_sorted(relation, orders, names), node)


def _limited(relation: Relation, node: Any) -> Relation:
    limit, offset = node.args.get("limit"), node.args.get("offset")
    rows = None if limit is None else _count(limit, "LIMIT")
    skipped = 0 if offset is None else _count(offset, "OFFSET")
    dataset = relation.dataset
    if rows is not None:
        dataset = dataset.limit(rows + skipped)
    if skipped:
        dataset = dataset.filter(pl.int_range(pl.len()) >= skipped)
    return Relation(dataset, relation.fields)


def _count(node: Any, word: str) -> int:
    found = node.args.get("count") if isinstance(node, exp.Fetch) else node.expression
    options = node.args.get("limit_options")
    percent = options is not None and (options.args.get("percent") or options.args.get("with_ties"))
    if not isinstance(found, exp.Literal) or not found.is_int or percent or node.expressions:
        raise refused(f"{word} {found.sql('duckdb') if found else ''}", "write a whole number")
    return int(found.name)


def _combined(env: Env, node: Any) -> Relation:
    """UNION, INTERSECT and EXCEPT: columns meet by their position, in the type that they have in common."""
    sides = [query(env, node.this), query(env, node.expression)]
    if len(sides[0].fields) != len(sides[1].fields):
        raise ValueError(
            f"sql(): both sides of a {type(node).__name__.upper()} must have as many columns, but they have "
            f"{len(sides[0].fields)} and {len(sides[1].fields)}"
        )
    fields = [Field("", field.name, fresh(field.name)) for field in sides[0].fields]
    exprs: list[list[pl.Expr]] = [[], []]
    for number, field in enumerate(fields):
        at = [side.fields[number].column for side in sides]
        values = [Value(pl.col(name), side.schema[name]) for name, side in zip(at, sides, strict=True)]
        both, _ = together(values, f"the column {field.name} of a UNION")
        for side_exprs, expr in zip(exprs, both, strict=True):
            side_exprs.append(expr.alias(field.column))
    left, right = (side.only(made) for side, made in zip(sides, exprs, strict=True))
    made = Relation(left, tuple(fields))
    names = [field.column for field in fields]
    if isinstance(node, exp.Union):
        whole = Relation(left.union(right), tuple(fields))
        return Relation(whole.distinct(names), whole.fields) if node.args.get("distinct") else whole
    if not node.args.get("distinct"):
        raise refused(f"{type(node).__name__.upper()} ALL", "number equal rows with row_number() and leave out ALL")
    other = copied(Relation(right, tuple(fields)), fields)
    pairs = [
        Pair(pl.col(name), pl.col(field.column), null_safe=True)
        for name, field in zip(names, other.fields, strict=True)
    ]
    found = made.join(other, pairs, "semi" if isinstance(node, exp.Intersect) else "anti")
    return Relation(found.distinct(names), found.fields)


def one_row() -> Relation:
    """What a SELECT without FROM reads."""
    from weft.data.readers import from_items

    dataset: Dataset = from_items([{fresh("one"): 1}])
    return Relation(dataset, ())
