"""data.sql: TPC-H and random queries give what DuckDB gives; what is not supported is refused by name.

`make tpch` runs TPC-H at scale 0.1, `make plans` random queries for an hour.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("duckdb")
pytest.importorskip("sqlglot")
import duckdb
import polars as pl
import pyarrow as pa
import random_sql
import tpch

from weft import data

SCALE = float(os.environ.get("WEFT_TPCH_SCALE", "0.01"))
SEEDS = 30
TRIPS = [
    {"city": "Oslo", "fare": 3, "day": "2024-01-31"},
    {"city": "Bern", "fare": 5, "day": "2024-02-29"},
    {"city": "Oslo", "fare": None, "day": None},
    {"city": None, "fare": 1, "day": "2023-12-31"},
]


@pytest.fixture(scope="module")
def rows() -> dict[str, pl.DataFrame]:
    return tpch.tables(SCALE)


@pytest.fixture(scope="module")
def oracle(rows: dict[str, pl.DataFrame]) -> Iterator[Any]:
    with duckdb.connect(":memory:", config={"threads": 1}) as connection:
        for name, frame in rows.items():
            connection.register(name, frame.to_arrow())
        yield connection


@pytest.mark.usefixtures("shared_weft_session")
@pytest.mark.parametrize("number", tpch.QUERIES)
def test_a_query_of_tpc_h_gives_what_duckdb_gives(
    number: int, rows: dict[str, pl.DataFrame], oracle: Any, tmp_path: Any
) -> None:
    expected = oracle.sql(tpch.QUERIES[number]).fetchall()
    tables = {}
    for name, frame in rows.items():
        folder = tmp_path / name
        folder.mkdir()
        frame.write_parquet(folder / "part.parquet", row_group_size=20_000)
        tables[name] = data.read_parquet(str(folder))
    found = data.sql(tpch.QUERIES[number], **tables).to_polars().rows()
    assert expected, "the rows are made so that each query finds some"
    assert tpch.same(found, expected)


@pytest.mark.usefixtures("shared_weft_session")
def test_random_queries_in_sql_give_what_duckdb_gives() -> None:
    for seed in range(SEEDS):
        random_sql.check(seed)


def asked(statement: str) -> list[dict[str, Any]]:
    return data.sql(statement, trips=data.from_items(TRIPS)).take_all()


@pytest.mark.usefixtures("shared_weft_session")
@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("select count(*) as n, count(fare) as m, sum(fare) as s from trips where fare > 9", [(0, 0, None)]),
        ("select city from trips where fare not in (1, null)", []),
        ("select count(*) as n from trips where city not in (select city from trips)", [(0,)]),
        ("select count(*) as n from trips where city <> 'Oslo'", [(1,)]),
        ("select count(*) as n from trips where not (city = 'Oslo' or fare > 4)", [(0,)]),
        ("select fare from trips order by fare", [(1,), (3,), (5,), (None,)]),
        ("select fare from trips order by fare desc nulls first limit 2 offset 1", [(5,), (3,)]),
        ("select FARE as Fare from TRIPS where Fare = 5", [(5,)]),
        ("select fare + 1 as fare from trips where fare > 2 order by fare", [(4,), (6,)]),
        ("select (select max(fare) from trips where fare > 100) as m, 0.1 + 0.2 = 0.3 as exact", [(None, True)]),
        ("select -7 // 2 as q, -7 % 2 as r, 7 / 2 as f, 1 // 0 as z", [(-3, -1, 3.5, None)]),
        ("select city from trips intersect select null", [(None,)]),
        ("select 1 as a union select 1 union all select 1 order by a", [(1,), (1,)]),
        ("select a.fare from trips a join trips b using (city) where b.fare = 3 order by 1", [(3,), (None,)]),
        ("select case city when 'Oslo' then 1 else 2.5 end as x from trips where fare = 3", [(1,)]),
    ],
)
def test_nulls_names_and_numbers_mean_what_they_mean_in_sql(statement: str, expected: list[Any]) -> None:
    assert [tuple(row.values()) for row in asked(statement)] == expected


CALLS = """
left(s, 2) | left(s, -1) | right(s, 2) | right(s, -1) | repeat(s, 2) | repeat(s, 0) | lpad(s, 4, 'xy') | rpad(s, 1, 'é')
strpos(s, 'b') | split_part(s, 'b', 2) | split_part(s, 'b', -1) | ends_with(s, 'b') | concat_ws('-', s, k, s)
replace(s, '', 'x') | replace(s, 'a', null) | replace(s, 'a', s) | sign(f) | trunc(f) | isnan(f) | isinf(f)
round(log2(k + 9), 9) | pi()
greatest(f, 1) | least(f, g, 0.5) | g + 1 | g * 0.1 | g = 0.1 | g / 3 | g > f | coalesce(g, 0) | k & 6 | xor(k, 5) | ~k
cast(d as timestamp) | d > timestamp '2024-01-31 10:00:00' | cast('2024-02-03 04:05:06.7' as timestamp) | last_day(d)
date_diff('month', d, date '2024-01-01') | date_diff('hour', t, timestamp '2024-02-01 00:00:00') | epoch(t) | isodow(d)
date_part('isoyear', d) | hour(t) | strftime(t, '%Y-%m %H') | t = m | m + interval 1 microsecond | d - (interval 1 day)
e > 'b' | max(e) over () | rank() over (order by e) | lag(f, 1, 0) over (order by n)
lag(d, 1, '2000-01-01') over (order by n) | max(f) over (order by n rows between 1 preceding and 1 following)
sum(g) over (order by n rows 1 preceding) | avg(f) over (order by n desc rows between 1 following and 2 following)
min(s) over (order by n rows between 90 preceding and 2 following)
greatest(f, g, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6) | pi()
"""
AT = [dt.datetime(2024, 1, 31, 23, 59, 59, 1500), dt.datetime(1969, 12, 31, 12), None, dt.datetime(2023, 1, 1)]
KINDS = pl.DataFrame(
    {
        "n": [0, 1, 2, 3],
        "k": [1, -8, None, 7],
        "s": ["ab", "", None, "bÄbaé"],
        "f": [float("nan"), -0.5, None, float("-inf")],
        "g": pl.Series([0.1, float("nan"), None, -2.5], dtype=pl.Float32),
        "d": pl.Series(AT).dt.date(),
        "t": pl.Series(AT),
        "m": pl.Series(AT).cast(pl.Datetime("ms")),
        "e": pl.Series(["c", "a", None, "b"], dtype=pl.Enum(["c", "b", "a"])),
    }
)


@pytest.mark.usefixtures("shared_weft_session")
def test_functions_and_types_mean_what_they_mean_in_duckdb() -> None:
    calls = [call.strip() for line in CALLS.strip().splitlines() for call in line.split(" | ")]
    statement = f"select {', '.join(f'{call} as c{at}' for at, call in enumerate(calls))} from kinds order by n"
    found = data.sql(statement, kinds=data.from_polars(KINDS)).to_polars().rows()
    with duckdb.connect(":memory:") as connection:
        connection.register("kinds", KINDS.to_arrow())
        expected = connection.sql(statement).fetchall()
    for mine, theirs in zip(found, expected, strict=True):
        differ = [pair for pair in zip(calls, mine, theirs, strict=True) if repr(pair[1]) != repr(pair[2])]
        assert not [(call, a, b) for call, a, b in differ if a != b]


@pytest.mark.usefixtures("shared_weft_session")
@pytest.mark.parametrize(("condition", "rows"), [("true", [(1,)]), ("1 = 2", []), ("count(*) > 9", [])])
def test_a_having_without_groups_is_of_one_group(condition: str, rows: list[Any]) -> None:
    assert [tuple(row.values()) for row in asked(f"select 1 as one from trips having {condition}")] == rows


@pytest.mark.usefixtures("shared_weft_session")
@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ("interval 1 day", "as a value"),
        ("hour(z)", "convert_time_zone"),
        ("z = t", "time zone of the other"),
        ("date '0001-01-01' - interval 1 day", "in no year"),
        ("cast(t as int)", "extract a part"),
        ("lag(n, 1, 1.5) over (order by n)", "default of LAG.*cast it to Int64"),
        ("rank() over (order by l)", "order by List"),
        ("s like 'a!' escape '!'", "ends in what escapes"),
    ],
)
def test_what_has_another_meaning_in_duckdb_is_refused(wanted: str, told: str) -> None:
    zoned = KINDS.with_columns(
        pl.col("t").dt.replace_time_zone("UTC").alias("z"), pl.col("n").implode().over("n").alias("l")
    )
    with pytest.raises(ValueError, match=f"(?s){told}"):
        data.sql(f"select {wanted} as x from kinds", kinds=data.from_polars(zoned))


@pytest.mark.usefixtures("shared_weft_session")
def test_a_sum_that_does_not_fit_64_bits_is_an_error() -> None:
    large = data.from_items([{"x": 2**62}, {"x": 2**62}, {"x": 2**62}])
    with pytest.raises(data.RowError, match="i64"):
        data.sql("select sum(x) as s from large", large=large).take_all()


@pytest.mark.usefixtures("shared_weft_session")
@pytest.mark.parametrize(
    "wanted",
    ["x + 1", "x * 2", "-2 - x", "-y", "abs(y)", "y // -1", "sum(x) over ()", "sum(x) over (order by x, y)"],
)
def test_what_does_not_fit_into_64_bits_is_an_error_and_does_not_wrap(wanted: str) -> None:
    most = 2**63 - 1
    rows = [{"x": most, "y": -most - 1}, {"x": 1, "y": 1}]
    smaller = [{"x": most, "y": most}, {"x": -1, "y": 1}] if "sum" in wanted else [{"x": most // 2, "y": 1}]
    with pytest.raises(data.RowError, match="i64"):
        data.sql(f"select {wanted} as z from t", t=data.from_items([*rows, {"x": 2, "y": 2}])).take_all()
    answers = data.sql(f"select {wanted} as z from t", t=data.from_items(smaller)).take_all()
    same = pa.Table.from_pylist(smaller)  # noqa: F841  DuckDB finds it by its name
    assert sorted(row["z"] for row in answers) == sorted(
        int(row[0]) for row in duckdb.sql(f"select {wanted} as z from same").fetchall()
    )


@pytest.mark.usefixtures("shared_weft_session")
def test_a_sum_near_the_largest_integer_is_exact() -> None:
    near = data.from_items([{"x": 2**63 - 3}, {"x": 2**62}, {"x": -(2**62)}, {"x": 1}])
    assert data.sql("select sum(x) as s from near", near=near).take_all() == [{"s": 2**63 - 2}]


@pytest.mark.usefixtures("shared_weft_session")
def test_what_would_not_fit_in_a_branch_that_is_not_taken_is_no_error() -> None:
    rows = data.from_items([{"x": 2**62}, {"x": 3}, {"x": None}])
    asked_for = "select case when x < 10 then x * x when x is null then -1 else x end as y from rows order by y"
    assert [row["y"] for row in data.sql(asked_for, rows=rows).take_all()] == [-1, 9, 2**62]


@pytest.mark.usefixtures("shared_weft_session")
def test_a_scalar_subquery_of_several_rows_is_an_error() -> None:
    with pytest.raises(data.RowError, match="more than one row"):
        asked("select (select fare from trips) as one from trips")


@pytest.mark.usefixtures("shared_weft_session")
@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("select cty from trips", "did you mean 'city'"),
        ("select * from trip", r"no table trip.*pass it"),
        ("select from where", "cannot read the statement"),
        ("delete from trips", "DELETE statements"),
        ("select city, fare from trips group by city", r"fare must be in GROUP BY"),
        ("select city, city from trips", "two columns of the result are called 'city'"),
        ("select city || fare * 0.5e0 as x from trips", "as text.*format it in Python"),
        ("select regexp_matches(city, 'O.*') as x from trips", "compute it with with_column"),
        ("select city from trips where fare", "as a condition.*compare it"),
        ("select sum(city) as s from trips", "cast it to a number"),
        ("select city = 3 as x from trips", r"cast one of them with CAST"),
        ("select sum(distinct fare) as s from trips", "aggregate a SELECT DISTINCT"),
        ("select fare, ntile(4) over (order by fare) as n from trips", "window function"),
        (
            "select sum(fare) over (order by fare rows between 1 following and unbounded following) as s from trips",
            "the frame",
        ),
        ("select city, sum(fare) as s from trips group by rollup (city)", "ROLLUP"),
        ("with recursive r as (select 1 as x union all select x + 1 from r) select x from r", "WITH RECURSIVE"),
        ("select * from trips a join trips b using (city), trips c", "USING beside a comma"),
        ("select (select fare from trips b where b.city = a.city limit 1) as f from trips a", "LIMIT.*row_number"),
        ("select city from trips where fare > all (select 1)", r"ALL .*write IN \(SELECT"),
        ("select * from trips tablesample 10%", "SAMPLE"),
    ],
)
def test_what_is_wrong_or_not_supported_is_told_with_what_to_write(statement: str, told: str) -> None:
    with pytest.raises((ValueError, data.RowError), match=f"(?s){told}"):
        asked(statement)


@pytest.mark.usefixtures("shared_weft_session")
def test_a_table_whose_columns_are_not_known_is_refused() -> None:
    mapped = data.from_items(TRIPS).map(lambda row: row)
    with pytest.raises(ValueError, match=r"trips\.materialize\(\)"):
        data.sql("select city from trips", trips=mapped)
    assert data.sql("select count(*) as n from trips", trips=mapped.materialize()).take() == [{"n": 4}]
    with pytest.raises(TypeError, match="trips is list"):
        data.sql("select city from trips", trips=TRIPS)  # type: ignore[arg-type]


@pytest.mark.usefixtures("shared_weft_session")
@pytest.mark.parametrize("descending", [False, True])
def test_a_sort_puts_nulls_last_where_that_is_said(descending: bool) -> None:
    values = [None if number % 7 == 0 else number % 31 for number in range(400)]
    made = data.from_items([{"x": value} for value in values], parallelism=8).sort(
        "x", descending=descending, nulls_last=True
    )
    expected = pl.DataFrame({"x": values}).sort("x", descending=descending, nulls_last=True)
    assert made.to_polars()["x"].to_list() == expected["x"].to_list()
