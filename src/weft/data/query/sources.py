"""FROM and WHERE: which tables are joined by which conditions, in which order. Pure.

Conditions of inner joins and of WHERE are one set: those of one table filter it, those that make columns of two tables
equal join them, and the others filter as soon as their tables are there. The largest table comes first, and then the
smallest of those that an equality joins to what is there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl
from sqlglot import exp

from weft.data.query.relation import Field, Pair, Relation, copied, no_such_table, only_args, refused
from weft.data.query.values import together, value

if TYPE_CHECKING:
    from weft.data.query.selecting import Level

Env = Mapping[str, Relation]


def conjuncts(node: Any) -> list[Any]:
    """What must all hold; of an OR also what all its branches have in common."""
    if node is None:
        return []
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.And):
        return [found for part in node.flatten() for found in conjuncts(part)]
    if isinstance(node, exp.Or):
        branches = [conjuncts(branch) for branch in node.flatten()]
        texts = [{each.sql("duckdb") for each in branch} for branch in branches]
        shared = set.intersection(*texts)
        return [*(each for each in branches[0] if each.sql("duckdb") in shared), node]
    return [node]


def in_level(node: exp.Expr) -> Iterator[exp.Expr]:
    """The nodes of an expression, but for those of subqueries."""
    return node.walk(prune=lambda found: isinstance(found, exp.Query))


def has_subquery(node: exp.Expr) -> bool:
    return any(isinstance(found, exp.Query | exp.Exists) for found in in_level(node))


def tables_of(node: exp.Expr) -> frozenset[str]:
    return frozenset(found.table for found in in_level(node) if isinstance(found, exp.Column))


def rows(env: Env, node: Any, conditions: Sequence[Any], domain: Relation | None) -> Level:
    from weft.data.query.selecting import Level, one_row

    start = node.args.get("from_")
    pool = [each for each in conditions if not has_subquery(each)]
    items = [] if domain is None else [domain]
    if start is not None:
        for item in _items(start.this, node.args.get("joins") or []):
            found, inner = _item(env, item)
            items += found
            pool += inner
    late = [each for each in pool if has_subquery(each)]
    pool = [each for each in pool if not has_subquery(each)]
    level = Level(env, join_all(env, items or [one_row()], pool))
    for each in (*late, *(each for each in conditions if has_subquery(each))):
        level.keep(each)
    return level


def _items(first: Any, joins: Sequence[Any]) -> list[list[Any]]:
    """What commas divide, which bind less than JOIN: each a table and the joins after it."""
    items: list[list[Any]] = [[first]]
    for join in joins:
        comma = not any(join.args.get(word) for word in ("side", "kind", "on", "using", "method"))
        if comma:
            items.append([join.this])
        else:
            items[-1].append(join)
    return items


def _item(env: Env, item: Sequence[Any]) -> tuple[list[Relation], list[Any]]:
    """The relations of one item and the conditions between them; an outer join makes one of all before it."""
    found, pool = [table(env, item[0])], []
    for join in item[1:]:
        side, kind = (join.args.get("side") or "").upper(), (join.args.get("kind") or "").upper()
        only_args(join, "this", "on", "side", "kind")
        other, on = table(env, join.this), conjuncts(join.args.get("on"))
        if any(has_subquery(each) for each in on) and (side or kind in ("SEMI", "ANTI")):
            raise refused("a subquery in ON of an outer join", "join with it as a table, WITH name AS (…)")
        if not side and kind in ("", "INNER", "CROSS"):
            found.append(other)
            pool += on
            continue
        if kind not in ("", "OUTER", "SEMI", "ANTI") or side not in ("", "LEFT", "RIGHT", "FULL"):
            raise refused(f"{side} {kind} JOIN".strip(), "write INNER, LEFT, RIGHT, FULL, SEMI, ANTI or CROSS JOIN")
        how = kind.lower() if kind in ("SEMI", "ANTI") else side.lower()
        now = [each for each in pool if not has_subquery(each)]
        pool = [each for each in pool if has_subquery(each)]
        found = [outer(env, join_all(env, found, now), other, how, on)]
    return found, pool


def table(env: Env, node: Any) -> Relation:
    """A table, a common table expression or a derived table, with columns of its own."""
    from weft.data.query.selecting import query

    if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
        only_args(node, "this", "alias")
        if node.name not in env:
            raise no_such_table(node.name, env)
        made = env[node.name]
    elif isinstance(node, exp.Subquery):
        from weft.data.query.subqueries import externals

        outside = externals(node.this)
        if outside:
            raise refused(f"{outside[0].sql('duckdb')} of an outer query in FROM", "join the tables, without LATERAL")
        made = query(env, node)
    else:
        raise refused(f"{node.sql('duckdb')} in FROM", "pass it as a Dataset: sql(…, name=dataset)")
    fields = [Field(node.alias_or_name, field.name, field.column) for field in made.fields]
    return copied(made, fields)


def join_all(env: Env, items: Sequence[Relation], pool: Sequence[Any]) -> Relation:
    """The rows of all for which all conditions hold."""
    from weft.data.query.selecting import Level

    left = {id(each): each for each in pool}
    filtered = []
    for item in items:
        level = Level(env, item)
        for each in list(left.values()):
            if tables_of(each) and tables_of(each) <= item.tables:
                level.keep(left.pop(id(each)))
        filtered.append(level.relation)
    waiting = sorted(filtered, key=lambda relation: -relation.rows)
    whole = waiting.pop(0)
    while waiting:
        linked = [other for other in waiting if any(_equates(each, whole, other) for each in left.values())]
        other = min(linked or waiting, key=lambda relation: relation.rows)
        waiting.remove(other)
        used = [each for each in left.values() if _equates(each, whole, other)]
        pairs = [pair(env, each, whole, other) for each in used]
        whole = whole.join(other, pairs, "inner")
        for each in used:
            del left[id(each)]
        level = Level(env, whole)
        for each in [each for each in left.values() if tables_of(each) <= whole.tables]:
            level.keep(left.pop(id(each)))
        whole = level.relation
    level = Level(env, whole)
    for each in left.values():
        level.keep(each)
    return level.relation


def _equates(node: Any, left: Relation, right: Relation) -> bool:
    return _sides(node, left, right) is not None


def _sides(node: Any, left: Relation, right: Relation) -> tuple[Any, Any] | None:
    """Of an equality of something of the left and something of the right: these two."""
    if not isinstance(node, exp.EQ):
        return None
    one, two = tables_of(node.this), tables_of(node.expression)
    if one and two and one <= left.tables and two <= right.tables:
        return node.this, node.expression
    if one and two and two <= left.tables and one <= right.tables:
        return node.expression, node.this
    return None


def pair(env: Env, node: Any, left: Relation, right: Relation) -> Pair:
    from weft.data.query.selecting import Level

    sides = _sides(node, left, right)
    assert sides is not None
    values = [value(Level(env, relation), side) for relation, side in zip((left, right), sides, strict=True)]
    (one, two), _ = together(values, f"the join by {node.sql('duckdb')}")
    return Pair(one, two)


def outer(env: Env, left: Relation, right: Relation, how: str, on: Sequence[Any]) -> Relation:
    """A join that is not inner, by any condition."""
    from weft.data.query.selecting import Level

    if how == "right":
        return outer(env, right, left, "left", on)
    if how != "full":  # what is said of the right rows alone only leaves fewer of them to be found
        level = Level(env, right)
        for each in on:
            if tables_of(each) and tables_of(each) <= right.tables:
                level.keep(each)
        right = level.relation
        on = [each for each in on if not (tables_of(each) and tables_of(each) <= right.tables)]
    equal = [each for each in on if _equates(each, left, right)]
    if len(equal) == len(on) and (on or how != "full"):
        return left.join(right, [pair(env, each, left, right) for each in equal], how)
    return _by_values(env, left, right, how, on)


def _by_values(env: Env, left: Relation, right: Relation, how: str, on: Sequence[Any]) -> Relation:
    """Rows that have the same values in the columns of the condition find the same partners. So these values are joined
    with the right rows, and the left rows with what came of that, nulls being equal."""
    names = [field for field in left.fields if _is_named(field, on)]
    keys: tuple[Field, ...] = ()
    items = [right]
    if names:
        domain = copied(Relation(left.distinct([field.column for field in names]), tuple(names)), names)
        keys, items = domain.fields, [domain, right]
    found = join_all(env, items, on)
    pairs = [
        Pair(pl.col(field.column), pl.col(key.column), null_safe=True) for field, key in zip(names, keys, strict=True)
    ]
    matched = Relation(found.dataset, tuple(right.fields))
    if how in ("semi", "anti"):
        return left.join(Relation(found.distinct([key.column for key in keys]), ()) if keys else matched, pairs, how)
    joined = left.join(matched, pairs, "left")
    if keys:
        joined = Relation(joined.dataset.drop(*_there(joined, [key.column for key in keys])), joined.fields)
    if how == "left":
        return joined
    partners = [field for field in right.fields if _is_named(field, on)]
    if not partners:
        raise refused("a FULL JOIN whose condition names no column of its right side", "name one in ON")
    known = Relation(found.distinct([field.column for field in partners]), tuple(partners))
    known = copied(known, partners)
    same = [
        Pair(pl.col(field.column), pl.col(other.column), null_safe=True)
        for field, other in zip(partners, known.fields, strict=True)
    ]
    alone = right.join(known, same, "anti")
    schema = left.schema
    nulls = [pl.lit(None, schema[field.column]).alias(field.column) for field in left.fields]
    columns = [field.column for field in (*left.fields, *right.fields)]
    lonely = alone.with_columns(nulls).dataset.select(*columns)
    return Relation(joined.dataset.select(*columns).union(lonely), (*left.fields, *right.fields))


def _there(relation: Relation, names: Sequence[str]) -> list[str]:
    return [name for name in names if name in relation.schema]


def _is_named(field: Field, on: Sequence[Any]) -> bool:
    return any(
        isinstance(found, exp.Column) and (found.table, found.name) == (field.table, field.name)
        for each in on
        for found in in_level(each)
    )
