"""Random queries in SQL against DuckDB, and the same in weft.data's own steps: the rows must be the same.

Polars computes in weft.data and in `random_plans`; here the other side shares nothing with it. A query filters, joins,
adds a window, groups, orders and limits, as far as the two have one meaning: DuckDB's `max` takes NaN for the largest
number, Polars leaves it out, so that floats have no extremes here.

    python tests/data/random_queries.py --seeds 0:1000
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

import duckdb
import polars as pl
import random_plans
from random_plans import Column, dataset_of, settings_of, table

from weft import data
from weft.data import col


@dataclass
class Query:
    """A Dataset, and the SQL that must give the same rows."""

    dataset: data.Dataset
    sql: str
    columns: list[Column]

    def names(self) -> list[str]:
        return [one.name for one in self.columns]


def filtered(rng: random.Random, query: Query) -> Query:
    one = rng.choice(query.columns)
    name, column = one.name, col(one.name)
    number = rng.randint(-3, 3)
    choices: list[tuple[Any, str]] = [(column.is_not_null(), f"{name} IS NOT NULL")]
    if one.kind in ("int", "float"):
        choices += [(column > number, f"{name} > {number}"), (column + 1 <= number, f"{name} + 1 <= {number}")]
    if one.kind == "int":
        choices += [(~column.is_in([1, 2]), f"{name} NOT IN (1, 2)")]
    if one.kind == "str":
        choices += [(column.str.starts_with("a"), f"starts_with({name}, 'a')"), (column > "a", f"{name} > 'a'")]
        choices += [(column.str.len_chars() > 1, f"length({name}) > 1")]
    if one.kind == "bool":
        choices += [(column, name), (~column, f"NOT {name}")]
    expression, sql = rng.choice(choices)
    if rng.random() < 0.5:
        return Query(
            query.dataset.filter(sql if "starts_with" not in sql else expression),
            f"SELECT * FROM ({query.sql}) WHERE {sql}",
            query.columns,
        )
    return Query(query.dataset.filter(expression), f"SELECT * FROM ({query.sql}) WHERE {sql}", query.columns)


def joined(rng: random.Random, query: Query, connection: Any) -> Query:
    frame, columns = table(rng, "r")
    pairs = [(one.name, other.name) for one in query.columns for other in columns if one.kind == other.kind]
    if not pairs:
        return query
    connection.register("other", frame.to_arrow())
    left, right = rng.choice(pairs)
    how = rng.choice(["inner", "left", "full", "semi", "anti"])
    made = query.dataset.join(dataset_of(rng, frame)[1], on=left, right_on=right, how=how)
    if how in ("semi", "anti"):
        word = "" if how == "semi" else "NOT"
        inside = f"SELECT 1 FROM other WHERE other.{right} = q.{left}"
        return Query(made, f"SELECT * FROM ({query.sql}) q WHERE {word} EXISTS ({inside})", query.columns)
    others = [one for one in columns if one.name != right]
    kept = [f"coalesce(q.{left}, other.{right}) AS {left}" if name == left else f"q.{name}" for name in query.names()]
    chosen = ", ".join([*kept, *(f"other.{one.name}" for one in others)])
    sql = f"SELECT {chosen} FROM ({query.sql}) q {how.upper()} JOIN other ON q.{left} = other.{right}"
    return Query(made, sql, [*query.columns, *others])


def windowed(rng: random.Random, query: Query) -> Query:
    ints = [one.name for one in query.columns if one.kind == "int"]
    if not ints:
        return query
    value, key = rng.choice(ints), rng.choice(query.names())
    order = ", ".join(f"{name} ASC NULLS FIRST" for name in query.names())
    expression, sql = rng.choice(
        [
            (col(value).sum().over(key), f"coalesce(sum({value}) OVER (PARTITION BY {key}), 0)"),
            (col(value).count().over(key), f"count({value}) OVER (PARTITION BY {key})"),
            (pl.len(), "count(*) OVER ()"),
            (col(value).max(), f"max({value}) OVER ()"),
            (col(value).cum_count(), f"count({value}) OVER (ORDER BY {order} ROWS UNBOUNDED PRECEDING)"),
        ]
    )
    ordered = query.dataset.sort(*query.names())
    made = ordered.with_column("w", expression.cast(pl.Int64))
    return Query(made, f"SELECT *, {sql} AS w FROM ({query.sql})", [*query.columns, Column("w", "int")])


def grouped(rng: random.Random, query: Query) -> Query:
    keys = rng.sample(query.names(), rng.randint(1, min(2, len(query.columns))))
    columns = sorted((one for one in query.columns if one.name in keys), key=lambda one: keys.index(one.name))
    aggregates, parts = [data.Aggregate("len", None, "n")], ["count(*) AS n"]
    for number, one in enumerate(query.columns):
        kinds = {"count": "count({})", "n_unique": "count(DISTINCT {0}) + max(CASE WHEN {0} IS NULL THEN 1 ELSE 0 END)"}
        if one.kind != "float":
            kinds |= {"min": "min({})", "max": "max({})"}
        if one.kind == "int":
            kinds |= {"sum": "coalesce(sum({}), 0)", "mean": "avg({})"}
        if one.kind == "bool":
            kinds = {"count": "count({})"}
        kind = rng.choice(list(kinds))
        aggregates.append(data.Aggregate(kind, one.name, f"a{number}"))
        parts.append(f"{kinds[kind].format(one.name)} AS a{number}")
    sql = f"SELECT {', '.join([*keys, *parts])} FROM ({query.sql}) GROUP BY {', '.join(keys)}"
    made = [Column(aggregate.name, "other") for aggregate in aggregates]
    return Query(query.dataset.groupby(*keys).agg(*aggregates), sql, [*columns, *made])


def limited(rng: random.Random, query: Query) -> Query:
    rows = rng.choice([1, 5, 100])
    downs = [rng.random() < 0.5 for _ in query.columns]
    order = ", ".join(
        f"{name} {'DESC' if down else 'ASC'} NULLS FIRST" for name, down in zip(query.names(), downs, strict=True)
    )
    made = query.dataset.sort(*query.names(), descending=downs).limit(rows)
    return Query(made, f"SELECT * FROM ({query.sql}) ORDER BY {order} LIMIT {rows}", query.columns)


def rows_of(columns: list[str], rows: list[tuple[Any, ...]], names: list[str]) -> Counter[tuple[Any, ...]]:
    at = [columns.index(name) for name in names]
    return Counter(tuple(random_plans.told(row[number]) for number in at) for row in rows)


@random_plans.both_ways
def check(seed: int) -> None:
    """AssertionError tells the query that differs."""
    rng = random.Random(seed)
    with settings_of(rng) as settings, duckdb.connect(":memory:", config={"threads": 1}) as connection:
        frame, columns = table(rng)
        connection.register("t", frame.to_arrow())
        query = Query(dataset_of(rng, frame)[1], "SELECT * FROM t", columns)
        for _ in range(rng.randint(0, 2)):
            query = filtered(rng, query)
        if rng.random() < 0.6:
            query = joined(rng, query, connection)
        if rng.random() < 0.5:
            query = windowed(rng, query)
        if rng.random() < 0.5:
            query = grouped(rng, query)
        if rng.random() < 0.5:
            query = limited(rng, query)
        try:
            found = query.dataset.to_polars()
        except data.DataError as error:
            raise AssertionError(f"seed {seed} ({settings}): {error}\n  {query.sql}") from error
        answer = connection.sql(query.sql)
        names, expected = answer.columns, answer.fetchall()
    if not expected and not found.height:
        return
    mine = rows_of(found.columns, found.rows(), names)
    theirs = rows_of(names, expected, names)
    if mine != theirs:
        more, less = list(mine - theirs)[:3], list(theirs - mine)[:3]
        raise AssertionError(f"seed {seed} ({settings}): {more} instead of {less}\n  {names}\n  {query.sql}")


if __name__ == "__main__":
    raise SystemExit(random_plans.main(check, "queries"))
