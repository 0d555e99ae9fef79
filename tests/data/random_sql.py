"""Random SQL through `data.sql` and through DuckDB, on the same rows: the answers must be the same.

Queries have joins of all kinds by any condition, subqueries (scalar, IN, EXISTS, correlated by equality or not), common
table expressions, groups, windows, UNION and its like, and orders with limits, over tables with nulls, NaN and
duplicates, in blocks, in arenas so small that parts are divided again.

    python tests/data/random_sql.py --seeds 0:1000
"""

from __future__ import annotations

import datetime
import random
from collections import Counter
from decimal import Decimal
from typing import Any

import duckdb
import polars as pl
import random_plans
from random_plans import settings_of, told

from weft import data
from weft.exceptions import TaskError

KINDS = {
    "int": pl.Int64,
    "float": pl.Float64,
    "str": pl.String,
    "bool": pl.Boolean,
    "date": pl.Date,
    "money": pl.Decimal(9, 2),
    "row": pl.Int32,
}
TABLES = {
    "t": {"n": "row", "k": "int", "i": "int", "f": "float", "s": "str", "b": "bool", "d": "date", "m": "money"},
    "u": {"n": "row", "k": "int", "j": "int", "s": "str", "d": "date"},
}
Columns = list[tuple[str, str]]
"""What may be named, and its kind."""


def cell(rng: random.Random, kind: str, nulls: float) -> Any:
    if rng.random() < nulls:
        return None
    made: dict[str, Any] = {
        "int": rng.randint(-4, 4),
        "float": rng.choice([float("nan"), 0.5, 1.0, -2.0, 3.25, 0.0]),
        "str": rng.choice(["", "a", "ab", "b%", "abc", "Ä"]),
        "bool": rng.random() < 0.5,
        "date": datetime.date(2024, 1, 25) + datetime.timedelta(days=rng.randint(0, 40)),
        "money": Decimal(rng.randint(-500, 500)) / 100,
    }
    return made[kind]


def frame_of(rng: random.Random, name: str) -> pl.DataFrame:
    rows, nulls = rng.choice([0, 1, 5, 20, 40]), rng.choice([0.0, 0.2, 0.2, 0.9])
    return pl.DataFrame(
        {
            column: pl.Series(
                [number if kind == "row" else cell(rng, kind, nulls) for number in range(rows)], dtype=KINDS[kind]
            )
            for column, kind in TABLES[name].items()
        }
    )


class Writer:
    """Writes one query."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.number = 0

    def name(self, letter: str) -> str:
        self.number += 1
        return f"{letter}{self.number}"

    def pick(self, columns: Columns, kind: str) -> str | None:
        found = [name for name, each in columns if each == kind]
        return self.rng.choice(found) if found else None

    # ---- expressions ---------------------------------------------------------------------------------

    def integer(self, columns: Columns, depth: int = 2) -> str:
        rng = self.rng
        column = self.pick(columns, "int") or str(rng.randint(-3, 3))
        if depth == 0 or rng.random() < 0.3:
            return rng.choice([column, column, str(rng.randint(-3, 3))])
        a, b = self.integer(columns, depth - 1), self.integer(columns, depth - 1)
        choices = [f"({a} + {b})", f"({a} - {b})", f"({a} * {b})", f"({a} // {rng.choice([2, -3])})"]
        choices += [f"({a} % {rng.choice([2, -3])})", f"coalesce({a}, {b})", f"abs({a})", f"nullif({a}, {b})"]
        choices += [f"case when {self.condition(columns, depth - 1)} then {a} else {b} end", f"greatest({a}, {b})"]
        text, date = self.pick(columns, "str"), self.pick(columns, "date")
        if text:
            choices += [
                f"length({text})",
                f"strpos({text}, 'b')",
                f"length(split_part({text}, 'b', {rng.choice([1, -1])}))",
            ]
        if date:
            choices.append(f"extract({rng.choice(['year', 'month', 'day', 'isodow', 'week'])} from {date})")
            choices.append(f"date_diff('{rng.choice(['day', 'month', 'year'])}', {date}, date '2024-02-01')")
        if depth > 1:
            choices.append(f"(select {self.aggregate(columns)})")
        return rng.choice(choices)

    def aggregate(self, columns: Columns) -> str:
        """The rest of a scalar subquery over u, correlated or not."""
        alias = self.name("u")
        own = [(f"{alias}.{name}", kind) for name, kind in TABLES["u"].items()]
        kind = self.rng.choice(
            ["count(*)", f"count({alias}.j)", f"sum({alias}.j)", f"max({alias}.k)", f"min({alias}.j) + 1"]
        )
        return f"{kind} from u {alias} where {self.link(columns, own)}"

    def link(self, columns: Columns, own: Columns) -> str:
        rng = self.rng
        mine, outer = self.pick(own, "int"), self.pick(columns, "int") or "1"
        choices = [f"{mine} = {outer}", f"{mine} = {outer}", f"{mine} = {outer} and {self.condition(own, 0)}"]
        choices += [f"{mine} < {outer}", f"{mine} = {outer} and {self.pick(own, 'int')} <> {outer}"]
        choices += [f"{self.condition(own, 0)}", f"{mine} = {outer} + 1 or {mine} is null"]
        return rng.choice(choices)

    def condition(self, columns: Columns, depth: int = 2) -> str:
        rng = self.rng
        if depth > 0 and rng.random() < 0.5:
            a, b = self.condition(columns, depth - 1), self.condition(columns, depth - 1)
            return rng.choice([f"({a} and {b})", f"({a} or {b})", f"not ({a})"])
        name, kind = rng.choice(columns)
        operator = rng.choice(["=", "<>", "<", "<=", ">", ">="])
        choices = [f"{name} is null", f"{name} is not null"]
        if kind == "int":
            other = self.integer(columns, 0)
            choices += [f"{name} {operator} {other}", f"{name} between {other} and {rng.randint(-1, 3)}"]
            choices += [f"{name} {rng.choice(['', 'not '])}in (1, {other}{rng.choice(['', ', null'])})"]
            choices += [f"{name} is {rng.choice(['', 'not '])}distinct from {other}", f"{name} * 0.5 {operator} 0.5"]
        if kind == "float":
            choices += [f"{name} {operator} {rng.choice(['0.5', '1', '-2'])}", f"{name} / 2 > 0.25"]
            choices += [
                f"isnan({name})",
                f"{rng.choice(['greatest', 'least'])}({name}, 0.5) {operator} 1",
                f"sign({name}) = 1",
            ]
        if kind == "money":
            choices += [f"{name} {operator} 0.5", f"{name} * 1.5 {operator} 1", f"{name} between 0.06 - 0.01 and 2"]
        if kind == "str":
            pattern = rng.choice(["a%", "%b", "_", "%", "a_c", "%b%", "b\\%"])
            choices += [f"{name} {operator} 'ab'", f"{name} {rng.choice(['', 'not '])}like '{pattern}'"]
            choices += [f"upper({name}) = 'AB'", f"{name} || 'x' = 'ax'", f"{name} in ('a', 'ab')"]
            choices += [
                f"left({name}, -1) = 'a'",
                f"right({name}, 2) = 'ab'",
                f"lpad({name}, 3, 'xy') {operator} 'xab'",
            ]
            choices += [f"ends_with({name}, 'b')", f"replace({name}, 'a', {name}) = 'aab'"]
            choices += [f"substring({name}, 1, 1) = 'a'", f"{name} like 'b!%' escape '!'"]
        if kind == "date":
            choices += [f"{name} {operator} date '2024-01-31' + interval '1' month", f"{name} {operator} '2024-02-10'"]
            choices += [f"{name} - date '2024-02-01' > 3", f"date_trunc('month', {name}) = date '2024-02-01'"]
            choices += [
                f"{name} + interval 1 month > date '2024-03-01'",
                f"cast({name} as timestamp) {operator} '2024-02-10 12:00:00'",
            ]
            choices += [f"last_day({name}) = date '2024-02-29'", f"strftime({name}, '%Y-%m') {operator} '2024-02'"]
        if kind == "bool":
            choices += [name, f"not {name}", f"{name} is true", f"{name} is not false"]
        return rng.choice(choices)

    def nested(self, columns: Columns) -> str:
        """A condition with a subquery."""
        rng = self.rng
        alias = self.name("u")
        own = [(f"{alias}.{name}", kind) for name, kind in TABLES["u"].items()]
        link = self.link(columns, own)
        word = rng.choice(["", "not "])
        outer = self.pick(columns, "int") or "1"
        choices = [
            f"{word}exists (select 1 from u {alias} where {link})",
            f"{outer} {word}in (select {alias}.j from u {alias} where {link})",
            f"{outer} {word}in (select {alias}.k from u {alias})",
            f"{outer} {rng.choice(['<', '=', '>='])} (select {self.aggregate(columns)})",
            f"{outer} in (select {alias}.k from u {alias} group by {alias}.k having count(*) > 1)",
        ]
        made = rng.choice(choices)
        return rng.choice([made, made, f"({made} or {self.condition(columns, 0)})", f"not ({made})"])

    # ---- queries -------------------------------------------------------------------------------------

    def source(self) -> tuple[str, Columns]:
        rng = self.rng
        alias = self.name("t")
        columns = [(f"{alias}.{name}", kind) for name, kind in TABLES["t"].items()]
        if rng.random() < 0.4:
            return f"t {alias}", columns
        other = self.name("u")
        more = [(f"{other}.{name}", kind) for name, kind in TABLES["u"].items()]
        on = rng.choice(
            [
                f"{alias}.k = {other}.k",
                f"{alias}.k = {other}.k and {alias}.s = {other}.s",
                f"{alias}.k = {other}.j and {self.condition(more, 0)}",
                f"{alias}.k = {other}.j and {self.condition(columns, 0)}",
                f"{alias}.k = {other}.k and {alias}.i < {other}.j",
                f"{alias}.d < {other}.d and {alias}.k = 1",
                f"{alias}.i > {other}.j",
            ]
        )
        how = rng.choice(["join", "left join", "right join", "full join", "semi join", "anti join", "cross", ","])
        table = rng.choice(["u", "u", "(select * from u where j is not null)"])
        if how == "cross":
            return f"t {alias} cross join {table} {other}", columns + more
        if how == ",":
            return f"t {alias}, {table} {other}", columns + more
        kept = columns if how in ("semi join", "anti join") else columns + more
        return f"t {alias} {how} {table} {other} on {on}", kept

    def where(self, columns: Columns) -> str:
        rng = self.rng
        parts = [self.condition(columns) for _ in range(rng.randint(0, 2))]
        if rng.random() < 0.4:
            parts.append(self.nested(columns))
        both = [name for name, kind in columns if kind == "int"]
        if len(both) > 2 and rng.random() < 0.5:
            a, b = rng.sample(both, 2)
            parts.append(f"{a} = {b}")
        return f" where {' and '.join(parts)}" if parts else ""

    def select(self) -> tuple[str, int]:
        """A query and how many columns it has, of which the first is an integer, under the names c0, c1, …"""
        rng = self.rng
        source, columns = self.source()
        where = self.where(columns)
        if rng.random() < 0.4:
            return self.grouped(source, columns, where)
        items = [self.integer(columns), *(name for name, _ in rng.sample(columns, 2))]
        if rng.random() < 0.3:
            items += [self.window(columns), self.window(columns)]
        if rng.random() < 0.2:
            items.append(f"(select {self.aggregate(columns)})")
        shown = ", ".join(f"{item} as c{number}" for number, item in enumerate(items))
        word = "distinct " if rng.random() < 0.2 else ""
        return f"select {word}{shown} from {source}{where}", len(items)

    def grouped(self, source: str, columns: Columns, where: str) -> tuple[str, int]:
        rng = self.rng
        keys = [rng.choice([self.integer(columns, 1), rng.choice(columns)[0]]) for _ in range(rng.randint(0, 2))]
        keys = [key for key in dict.fromkeys(keys) if not key.lstrip("-").isdigit()]
        items = ["count(*)", *keys]
        for _ in range(rng.randint(1, 3)):
            name, kind = rng.choice(columns)
            kinds = [f"count({name})", f"count(distinct {name})", f"min({name})", f"max({name})"]
            if kind == "int":
                kinds += [f"sum({name})", f"avg({name})", f"sum({name}) filter (where {self.condition(columns, 0)})"]
                kinds += [f"sum({name}) + count(*)", f"count(*) filter (where {self.condition(columns, 0)})"]
            if kind == "money":
                kinds += [f"sum({name})", f"avg({name})", f"sum({name} * (1 - {name}))"]
            if kind == "bool":
                kinds = [f"count({name})", f"bool_or({name})", f"bool_and({name})"]
            items.append(rng.choice(kinds))
        shown = ", ".join(f"{item} as c{number}" for number, item in enumerate(items))
        group = f" group by {', '.join(keys)}" if keys else ""
        having = rng.choice(["", "", " having count(*) > 1", " having count(*) > (select count(*) - 20 from u)"])
        return f"select {shown} from {source}{where}{group}{having}", len(items)

    def window(self, columns: Columns) -> str:
        rng = self.rng
        value, key = self.pick(columns, "int"), rng.choice(columns)[0]
        partition = rng.choice([f"partition by {key}", ""])
        downs = [rng.choice(["", " desc", " nulls first", " desc nulls last"]) for _ in range(2)]
        order = f"order by {rng.choice(columns)[0]}{downs[0]}, {value}{downs[1]}"
        everything = ", ".join(name for name, _ in columns)
        choices = [
            f"{kind} over ({partition})" for kind in (f"sum({value})", "count(*)", f"max({value})", f"avg({value})")
        ]
        choices += [f"{kind} over ({partition} {order})" for kind in (f"sum({value})", "count(*)", f"min({value})")]
        choices += [f"{kind} over ({partition} {order})" for kind in ("rank()", "dense_rank()")]
        choices += [f"row_number() over ({partition} order by {everything})"]
        choices += [f"lag({value}) over ({partition} order by {everything})"]
        choices += [f"lead({value}, 2, 7) over ({partition} order by {everything})"]
        choices += [f"first_value({value}) over ({partition} order by {everything})"]
        choices += [f"sum({value}) over ({partition} order by {everything} rows between 2 preceding and current row)"]
        choices += [
            f"{kind} over ({partition} order by {everything} rows between 1 preceding and 2 following)"
            for kind in (f"avg({value})", f"min({value})")
        ]
        choices += [f"last_value({value}) over ({partition} order by {everything})"]
        return rng.choice(choices)

    def query(self) -> tuple[str, bool]:
        """The query, and whether its rows come in an order that is all their own."""
        rng = self.rng
        text, width = self.select()
        if rng.random() < 0.25:
            word = rng.choice(["union all", "union", "intersect", "except"])
            left, right = ("select c0 from (" + one + ") as x" for one in (text, self.select()[0]))
            text, width = f"{left} {word} {right}", 1
        elif rng.random() < 0.3:
            name = self.name("w")
            text = (
                f"with {name} as ({text}) select a.c0, a.c1 from {name} a join {name} b on a.c0 = b.c0 where a.c0 < 3"
            )
            width = 2
        if rng.random() < 0.5:
            return text, False
        order = [
            f"{number + 1}{rng.choice(['', ' desc'])}{rng.choice(['', ' nulls first', ' nulls last'])}"
            for number in range(width)
        ]
        rng.shuffle(order)
        limit = rng.choice(["", " limit 3", " limit 10 offset 2", " limit 0"])
        return f"select * from ({text}) as whole order by {', '.join(order)}{limit}", True


def shown(cell: Any) -> Any:
    cell = told(cell)
    if isinstance(cell, datetime.date) and not isinstance(cell, datetime.datetime):
        return datetime.datetime(cell.year, cell.month, cell.day)
    return round(cell, 9) if isinstance(cell, float) else cell


@random_plans.both_ways
def check(seed: int) -> None:
    """AssertionError tells the query that differs."""
    rng = random.Random(seed)
    with settings_of(rng) as settings, duckdb.connect(":memory:", config={"threads": 1}) as connection:
        tables = {}
        for name in TABLES:
            frame = frame_of(rng, name)
            connection.register(name, frame.to_arrow())
            blocks = random_plans.blocks_of(rng, frame)[:6]
            rest = frame.slice(sum(block.num_rows for block in blocks)).to_arrow()
            tables[name] = data.from_arrow([*blocks, rest])
        text, ordered = Writer(rng).query()
        theirs = [tuple(map(shown, row)) for row in connection.sql(text).fetchall()]
        try:
            mine = [tuple(map(shown, row)) for row in data.sql(text, **tables).to_polars().rows()]
        except (data.DataError, ValueError, pl.exceptions.PolarsError, TaskError) as error:
            raise AssertionError(f"seed {seed} ({settings}): {type(error).__name__}: {error}\n  {text}") from error
    if (mine != theirs) if ordered else (Counter(mine) != Counter(theirs)):
        more, less = list(Counter(mine) - Counter(theirs))[:3], list(Counter(theirs) - Counter(mine))[:3]
        raise AssertionError(f"seed {seed} ({settings}): {more} instead of {less}\n  {text}")


if __name__ == "__main__":
    raise SystemExit(random_plans.main(check, "queries in SQL"))
