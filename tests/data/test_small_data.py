"""Little data is one query in this process; what is large, or for tasks, is not. That it is the same: random plans."""

from __future__ import annotations

import os
from pathlib import Path

import polars as pl
import pytest

from weft import data
from weft.data import small

pytestmark = pytest.mark.usefixtures("shared_weft_session")


def ran_here(dataset: data.Dataset) -> bool:
    assert dataset.statistics is not None
    return list(dataset.statistics.stages) == [small.NAME]


@pytest.fixture
def trips(tmp_path: Path) -> data.Dataset:
    for part in range(3):
        pl.DataFrame({"city": ["Ulm", "Bonn"] * 50, "fare": range(100)}).write_parquet(tmp_path / f"{part}.parquet")
    return data.read_parquet(str(tmp_path))


def test_a_query_of_little_data_needs_no_task(trips: data.Dataset) -> None:
    found = trips.filter(data.col("fare") > 9).groupby("city").agg(fare="sum").sort("city")
    assert found.take_all() == [{"city": "Bonn", "fare_sum": 7425}, {"city": "Ulm", "fare_sum": 7290}]
    assert ran_here(found)
    assert small.NAME in found.explain()


def test_what_is_more_than_the_limit_is_for_tasks(trips: data.Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    found = trips.groupby("city").agg(fare="max").sort("city")
    here = found.take_all()
    for limit in ("0", "100"):
        monkeypatch.setenv(small.VARIABLE, limit)
        assert found.take_all() == here
        assert not ran_here(found)
    monkeypatch.setenv(small.VARIABLE, "much")
    with pytest.raises(ValueError, match="must be a number of bytes, but is 'much'"):
        found.take_all()


def test_a_join_that_could_be_large_is_for_tasks(trips: data.Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(small.VARIABLE, str(100_000))
    pairs = trips.join(trips, "city", suffix="_other").filter(data.col("fare") < 0)
    assert pairs.to_polars().is_empty()
    assert not ran_here(pairs)  # 150 times 150 pairs of either city
    cities = trips.groupby("city").agg(fare="max")
    with_most = trips.join(cities, "city")
    assert with_most.to_polars().height == 300
    assert ran_here(with_most)  # a row of each city
    keyed = data.from_polars(pl.DataFrame({"fare": range(100), "twice": range(0, 200, 2)}))
    assert trips.join(keyed, "fare").sum("twice") == 3 * 9_900


def test_what_fails_here_is_told_by_tasks_with_its_row() -> None:
    bad = data.from_items([{"text": "1"}, {"text": "2"}, {"text": "three"}], parallelism=1)
    with pytest.raises(data.RowError, match="row 2") as raised:
        bad.select(data.col("text").cast(pl.Int64)).sort("text").take_all()
    assert raised.value.row == 2


def test_a_users_function_in_an_expression_does_not_run_here(trips: data.Dataset) -> None:
    here = os.getpid()
    told = data.col("fare").map_elements(lambda _: os.getpid(), return_dtype=pl.Int64).alias("pid")
    made = trips.select(told).groupby("pid").count()
    assert here not in [row["pid"] for row in made.take_all()]


@pytest.mark.parametrize("kinds", [["mean"], ["mean", "median"]])
def test_a_mean_of_texts_is_refused_and_not_null(
    trips: data.Dataset, kinds: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("0", str(2**30)):
        monkeypatch.setenv(small.VARIABLE, limit)
        with pytest.raises(data.RowError, match="only numbers and times have a mean"):
            trips.groupby("fare").agg(city=kinds).take_all()
