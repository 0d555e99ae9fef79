"""Expressions that look past a row give over many blocks what they give over one."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from weft import data
from weft.data import col
from weft.data.reach import Reach, reach

ROWS = 100
FRAME = pl.DataFrame(
    {
        "x": [None if number % 17 == 3 else number * 7 % 31 for number in range(ROWS)],
        "y": [number * 5 % 23 for number in range(ROWS)],
        "g": [f"g{number % 4}" for number in range(ROWS)],
        "l": [[number, number + 1] if number % 3 else [] for number in range(ROWS)],
    }
)
x, y, g = col("x"), col("y"), col("g")


@pytest.fixture(scope="module", autouse=True)
def _session(shared_weft_session: ModuleType) -> None:
    pass


@pytest.fixture(scope="module")
def blocks(_session: None) -> data.Dataset:
    return data.from_arrow(FRAME.to_arrow(), parallelism=8)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (x + 1, Reach.ROW),
        (pl.lit(3) + 1, Reach.CONSTANT),
        (x.is_in([1, 2]), Reach.ROW),
        (x.is_in(pl.Series([1, 2])), Reach.ROW),
        (x.is_in(y), Reach.ALL_ROWS),
        (x.replace({1: 2}), Reach.ROW),
        (pl.when(x > 3).then(y).otherwise(0), Reach.ROW),
        (pl.when(x > 3).then(y).otherwise(y.max()), Reach.ALL_ROWS),
        (col("l").list.eval(pl.element().cum_sum()), Reach.ROW),
        (col("l").list.sum() + x.shift(), Reach.ALL_ROWS),
        (x.cum_sum().list.eval(pl.element()), Reach.ALL_ROWS),
        (col("a").arr.eval(pl.element().rank()), Reach.ROW),
        (x.map_batches(lambda values: values, is_elementwise=True) + 1, Reach.ROW),
        (x.map_batches(lambda values: values), Reach.ALL_ROWS),
        (col("s").struct.with_fields(pl.field("a") + 1), Reach.ROW),
        (col("s").struct.with_fields(pl.field("a").sum()), Reach.ALL_ROWS),
        (col("s").struct.field("*"), Reach.ROW),
        (pl.all() + 1, Reach.ROW),
        (pl.all().rank(), Reach.ALL_ROWS),
        (pl.struct(pl.all()), Reach.ROW),
        (col("l").explode(), Reach.RESHAPING),
        (x.drop_nulls() + 1, Reach.RESHAPING),
        (x.sum().over("g"), Reach.ALL_ROWS),
        (x > x.mean(), Reach.ALL_ROWS),
        (pl.len(), Reach.ALL_ROWS),
        (x + pl.lit(pl.Series([1, 2])), Reach.ALL_ROWS),
        (col("t").str.to_date(), Reach.ALL_ROWS),  # the format is guessed from the first value
        (col("t").str.to_date("%y-%m-%d"), Reach.ROW),
        (pl.sql_expr("SUM(x) OVER (PARTITION BY g)"), Reach.ALL_ROWS),
    ],
    ids=str,
)
def test_each_expression_is_known_by_how_far_it_looks(expression: pl.Expr, expected: Reach) -> None:
    assert reach(expression) is expected


FAR = [
    x.cum_sum(),
    x.cum_count(),
    y.cum_max(reverse=True),
    x.rank("dense"),
    x.shift(2),
    x.diff(),
    x.fill_null(strategy="forward"),
    x.sum().over("g"),
    x.cum_sum().over("g"),
    y.rank("ordinal").over("g"),
    x - x.mean(),
    x.n_unique() + y,
    y.sort_by("x", "y"),
    y.reverse(),
    y.rolling_sum(3),
    x.is_duplicated(),
    x.is_first_distinct(),
    pl.len() + y,
    pl.int_range(pl.len()),
    x.is_in(y.implode()),
    pl.sum_horizontal(pl.col("x", "y")).cum_sum(),
    pl.sql_expr("SUM(y) OVER (PARTITION BY g)"),
]


@pytest.mark.parametrize("expression", FAR, ids=str)
def test_a_column_over_all_rows_is_the_same_in_many_blocks(blocks: data.Dataset, expression: pl.Expr) -> None:
    assert_frame_equal(blocks.with_column("c", expression).to_polars(), FRAME.with_columns(expression.alias("c")))
    assert_frame_equal(blocks.with_column("x", expression).to_polars(), FRAME.with_columns(expression.alias("x")))


def test_a_running_sum_ends_at_the_sum() -> None:
    assert data.range(1000, blocks=8).with_column("c", col("id").cum_sum()).max("c") == 499_500


@pytest.mark.parametrize(
    "expressions",
    [
        (x.sum(),),
        (x.sum(), y.max(), pl.len()),
        (y.cum_sum(),),
        (y, x.sum().alias("s")),
        (y, x.shift(1).alias("s"), pl.lit(1).alias("one")),
        (pl.lit(1),),
        (col("l").explode(),),
        (x.drop_nulls(),),
        (y.filter(y > 10), y.filter(y > 10).alias("again")),
        (x.unique().sort(),),
        (pl.all().count(),),
        (pl.col("x", "y"),),
        (pl.exclude("l"), y.sum().alias("s")),
        (g.value_counts(sort=True).struct.unnest(),),
    ],
    ids=str,
)
def test_a_selection_over_all_rows_is_the_same_in_many_blocks(
    blocks: data.Dataset, expressions: tuple[pl.Expr, ...]
) -> None:
    expected = FRAME.select(expressions)
    made = blocks.select(*expressions)
    assert_frame_equal(made.to_polars(), expected)
    assert made.count() == expected.height
    last = expected.columns[-1]
    assert_frame_equal(made.select(last).to_polars(), expected.select(last))


@pytest.mark.parametrize(
    "predicate",
    [x > x.mean(), y == y.max(), x.rank() < 20, x.is_first_distinct(), y > y.mean().over("g"), pl.lit(True)],
    ids=str,
)
def test_a_filter_over_all_rows_is_the_same_in_many_blocks(blocks: data.Dataset, predicate: pl.Expr) -> None:
    expected = FRAME.filter(predicate)
    assert_frame_equal(blocks.filter(predicate).to_polars(), expected)
    assert blocks.filter(predicate).count() == expected.height
    assert_frame_equal(blocks.filter(predicate).select("y").to_polars(), expected.select("y"))


def test_nothing_sinks_past_what_looks_at_all_rows(blocks: data.Dataset) -> None:
    def both(make: Any) -> None:
        lazy = make(FRAME.lazy(), lambda frame, name, value: frame.with_columns(value.alias(name)))
        made = make(blocks, lambda dataset, name, value: dataset.with_column(name, value))
        assert_frame_equal(made.to_polars(), lazy.collect())

    both(lambda ds, add: add(ds, "c", y.cum_sum()).filter(y > 10))
    both(lambda ds, add: add(ds, "c", y.cum_sum()).limit(7))
    both(lambda ds, add: ds.sort("y", "x").filter(y.cum_sum() > 100))
    both(lambda ds, add: add(ds.sort("y", "x"), "c", x.shift(1)).filter(x > 3).select("c"))
    both(lambda ds, add: ds.filter(y > 3).filter(y > y.mean()).filter(y < 20))


def test_a_constant_keeps_the_number_of_rows_when_nothing_else_is_wanted(blocks: data.Dataset) -> None:
    assert blocks.select("x", pl.lit(1).alias("one")).select("one").to_polars().height == ROWS
    assert blocks.select(pl.lit(1).alias("one"), "x").filter(pl.lit(True)).count() == ROWS
    assert blocks.drop("x").aggregate(data.Aggregate("len", None, "rows")) == {"rows": ROWS}


def test_texts_beside_what_looks_at_all_rows_are_those_that_functions_know(blocks: data.Dataset) -> None:
    made = blocks.select("y", "g").with_column("c", y.cum_sum())
    assert str(made.schema().field("g").type) == "large_string"
    assert made.filter(lambda row: row["g"] == "g1").count() == ROWS // 4
