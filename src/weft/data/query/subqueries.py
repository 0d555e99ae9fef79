"""Subqueries become joins. Pure.

A subquery that names columns of the query around it has an answer for each of their values. Where it names them only
in equalities of its WHERE, it is grouped by the other side of these and joined by them. Else it is computed for the
distinct values of these columns, which are one more table of its FROM, and joined by them, nulls being equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl
from sqlglot import exp

from weft.data import plan
from weft.data.aggregates import Aggregate
from weft.data.query import aggregating
from weft.data.query.relation import Field, Pair, Relation, fresh, refused
from weft.data.query.sources import conjuncts, in_level
from weft.data.query.values import Value, condition, together, value

if TYPE_CHECKING:
    from weft.data.query.selecting import Level


def kept(level: Level, node: Any) -> bool:
    """Applies a condition that is EXISTS, NOT EXISTS or IN as a join that leaves rows out. False: it is none."""
    while isinstance(node, exp.Paren):
        node = node.this
    negated = isinstance(node, exp.Not)
    inside = node.this if negated else node
    while isinstance(inside, exp.Paren):
        inside = inside.this
    if isinstance(inside, exp.Exists):
        links = _links(level, inside.this)
        how = "anti" if negated else "semi"
        level.relation = level.relation.join(links.rows(), links.pairs, how)
        return True
    if isinstance(inside, exp.In) and inside.args.get("query") is not None and not negated:
        links = _links(level, inside.args["query"])
        level.relation = level.relation.join(links.rows(), [*links.pairs, _member(level, inside, links)], "semi")
        return True
    return False


def joined(level: Level, node: Any) -> Value:
    """The value of a subquery in an expression, as a column of the level."""
    if isinstance(node, exp.Exists):
        links = _links(level, node.this)
        return Value(_marked(level, links, links.pairs).is_not_null(), pl.Boolean())
    if isinstance(node, exp.In):
        return _in(level, node)
    return _scalar(level, node)


def externals(node: Any) -> list[exp.Column]:
    """The columns that a query takes from those around it."""
    if isinstance(node, exp.Subquery):
        return externals(node.this)
    if isinstance(node, exp.SetOperation):
        return externals(node.this) + externals(node.expression)
    start = node.args.get("from_")
    own = {each.this.alias_or_name for each in [start, *(node.args.get("joins") or [])] if each is not None}
    found: list[exp.Column] = []

    def look(at: Any) -> None:
        if isinstance(at, exp.Query) and at is not node:
            found.extend(each for each in externals(at) if each.table not in own)
            return
        if isinstance(at, exp.Column) and at.table and at.table not in own:
            found.append(at)
        for child in at.iter_expressions():
            look(child)

    look(node)
    return found


@dataclass
class _Links:
    """A subquery's rows, and by what they belong to rows of the level around it."""

    inner: Level
    node: Any
    pairs: list[Pair]
    keys: list[str]
    """The columns of the inner side of the pairs."""

    def rows(self) -> Relation:
        """What EXISTS asks for: all rows before the columns are computed; of a grouped query its groups."""
        return self.inner.relation

    def value(self) -> Value:
        """Of the one column that the subquery gives."""
        if len(self.node.expressions) != 1:
            raise ValueError(
                f"sql(): a subquery here must give one column, but {self.node.sql('duckdb')[:80]} gives more"
            )
        return value(self.inner, self.node.expressions[0])


def _links(level: Level, node: Any, group: bool = True) -> _Links:
    """Compiles a subquery as far as its groups."""
    from weft.data.query.selecting import Level, query

    while isinstance(node, exp.Subquery) and not any(node.args.get(word) for word in ("limit", "order", "with_")):
        node = node.this
    outside = externals(node)
    if group and isinstance(node, exp.Select) and node.args.get("distinct") and not node.args.get("limit"):
        node.set("distinct", None)  # whether there is a row, or an equal one, does not depend on it
    whole = not isinstance(node, exp.Select) or _is_more_than_rows(node)
    if outside and whole:
        raise refused(
            f"LIMIT, DISTINCT, WITH, windows or UNION in a subquery that names {outside[0].sql('duckdb')} of the query "
            "around it",
            "use min() or max(), or join with a query that has row_number() OVER (PARTITION BY …)",
        )
    if whole:  # it has no link: its own rows are what it gives
        made = query(level.env, node)
        name = fresh("sub")
        fields = tuple(Field(name, field.name, field.column) for field in made.fields)
        columns = [exp.column(field.name, table=name) for field in fields]
        return _Links(Level(level.env, Relation(made.dataset, fields)), exp.Select(expressions=columns), [], [])
    equalities = _equalities(node, outside)
    if equalities is None:
        return _by_domain(level, node, outside, group)
    inner = Level.of_rows(level.env, node, without=[each for each, _, _ in equalities])
    sides = []
    for each, ours, theirs in equalities:
        both, _ = together((value(level, theirs), value(inner, ours)), each.sql("duckdb"))
        sides.append(both)
    keys = _grouped(inner, node, [ours for _, ours in sides], group)
    return _Links(inner, node, [Pair(outer, pl.col(key)) for (outer, _), key in zip(sides, keys, strict=True)], keys)


def _is_more_than_rows(node: Any) -> bool:
    words = ("limit", "offset", "distinct", "with_", "qualify")
    windows = any(isinstance(found, exp.Window) for part in node.expressions for found in in_level(part))
    return windows or any(node.args.get(word) for word in words)


def _equalities(node: Any, outside: Sequence[exp.Column]) -> list[tuple[Any, Any, Any]] | None:
    """(condition, inner side, outer side) of those conditions that hold all that is named of outside; else None."""
    names = {id(each) for each in outside}
    found, covered = [], set()
    where = node.args.get("where")
    for each in conjuncts(where.this if where else None):
        if not isinstance(each, exp.EQ) or any(isinstance(at, exp.Query) for at in each.walk()):
            continue
        sides = [{id(at): at for at in side.find_all(exp.Column)} for side in (each.this, each.expression)]
        outer = [bool(side) and set(side) <= names for side in sides]
        inner = [bool(side) and not set(side) & names for side in sides]
        if outer[1] and inner[0]:
            found.append((each, each.this, each.expression))
        elif outer[0] and inner[1]:
            found.append((each, each.expression, each.this))
        else:
            continue
        covered |= names & (set(sides[0]) | set(sides[1]))
    return found if covered == names else None


def _by_domain(level: Level, node: Any, outside: Sequence[exp.Column], group: bool) -> _Links:
    from weft.data.query.selecting import Level

    columns = {(each.table, each.name): each for each in outside}
    made = [Field(table, name, fresh(name)) for table, name in columns]
    values = [value(level, each) for each in columns.values()]
    wide = level.relation.with_columns(each.expr.alias(field.column) for each, field in zip(values, made, strict=True))
    domain = Relation(wide.distinct([field.column for field in made]), tuple(made))
    inner = Level.of_rows(level.env, node, domain=domain)
    keys = _grouped(inner, node, [pl.col(field.column) for field in made], group)
    pairs = [Pair(each.expr, pl.col(key), null_safe=True) for each, key in zip(values, keys, strict=True)]
    return _Links(inner, node, pairs, keys)


def _grouped(inner: Level, node: Any, keys: Sequence[pl.Expr], group: bool) -> list[str]:
    """The names of the keys, in the rows or in the groups of the subquery."""
    is_grouped = node.args.get("group") or node.args.get("having") or aggregating.aggregates(node.expressions)
    if not is_grouped:
        names = [fresh("key") for _ in keys]
        inner.add(keys, names)
        return names
    if group and not node.args.get("group") and keys:
        raise refused(
            f"EXISTS or IN over the aggregate {node.expressions[0].sql('duckdb')} of correlated rows",
            "compare with the subquery's value: x = (SELECT max(…) …)",
        )
    names = inner.group(node, keys)
    having = node.args.get("having")
    if group and having is not None:
        for each in conjuncts(having.this):
            inner.keep(each)
    return names


def _member(level: Level, node: Any, links: _Links) -> Pair:
    """`x IN (SELECT y …)`: x equals y, and a null equals nothing."""
    both, _ = together((value(level, node.this), links.value()), node.this.sql("duckdb") + " IN (SELECT …)")
    return Pair(both[0], both[1])


def _marked(level: Level, links: _Links, pairs: Sequence[Pair]) -> pl.Expr:
    """A column of the level that is null where no row of the subquery belongs to a row."""
    names = [fresh("key") for _ in pairs]
    inner = links.inner
    inner.add([pair.right for pair in pairs], names)
    mark = fresh("mark")
    distinct = inner.relation.distinct(names) if names else inner.relation.dataset.limit(1)
    marked = Relation(Relation(distinct, ()).with_columns([pl.lit(True).alias(mark)]).dataset.select(*names, mark), ())
    same = [Pair(pair.left, pl.col(name), pair.null_safe) for pair, name in zip(pairs, names, strict=True)]
    level.relation = level.relation.join(marked, same, "left")
    return pl.col(mark)


def _in(level: Level, node: Any) -> Value:
    """True where a value is equal; else null where it is null or the subquery has a null, and has rows at all."""
    links = _links(level, node.args["query"])
    member = _member(level, node, links)
    rows, values = fresh("rows"), fresh("values")
    inner = links.inner
    given = fresh("value")
    inner.add([member.right], [given])
    counted = (Aggregate("len", None, rows), Aggregate("count", given, values))
    below = inner.relation.dataset
    figures = Relation(below._then(plan.GroupBy((below._plan,), tuple(links.keys), counted)), ())
    found = _marked(level, links, [*links.pairs, Pair(member.left, pl.col(given))]).is_not_null()
    level.relation = level.relation.join(figures, links.pairs, "left")
    some = pl.col(rows).fill_null(0) > 0
    unknown = some & (member.left.is_null() | (pl.col(values) < pl.col(rows)))
    return Value(pl.when(found).then(pl.lit(True)).when(~unknown).then(pl.lit(False)), pl.Boolean())


def _scalar(level: Level, node: Any) -> Value:
    """The one value of a subquery; null of no row, an error of several."""
    from weft.data.query.selecting import Level

    links = _links(level, node, group=False)
    inner, select = links.inner, links.node
    if inner.grouped and not select.args.get("group"):  # one row for each key, or of nothing at all: counts are zero
        level.relation = level.relation.join(Relation(inner.relation.dataset, ()), links.pairs, "left")
        level.add([pl.col(name).fill_null(0) for name in inner.counts], inner.counts)
        after = Level(level.env, level.relation)
        after.names, after.grouped = inner.names, True
        made = value(after, select.expressions[0])
        having = select.args.get("having")
        if having is not None:
            made = Value(pl.when(condition(after, having.this)).then(made.expr), made.kind)
        level.relation = after.relation
        return made
    having = select.args.get("having")
    for each in conjuncts(having.this if having is not None else None):
        inner.keep(each)
    found = links.value()
    given, rows, answer = fresh("value"), fresh("rows"), fresh("answer")
    inner.add([found.expr], [given])
    below = inner.relation.dataset
    kinds = (Aggregate("len", None, rows), Aggregate("max", given, answer))
    one = Relation(below._then(plan.GroupBy((below._plan,), tuple(links.keys), kinds)), ())
    level.relation = level.relation.join(one, links.pairs, "left")
    # The cast of this text fails, and the error shows it.
    several = pl.when(pl.col(rows) > 1).then(pl.lit("a subquery gave more than one row")).cast(pl.Int64)
    return Value(pl.when(several.is_null()).then(pl.col(answer)), found.kind)
