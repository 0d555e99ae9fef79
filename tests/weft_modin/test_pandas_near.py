"""Frames on Weft that are not very large: pandas does what it does faster, and the results are those of pandas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from frames import assert_same, made

import weft.pandas.modin as pd
from weft.pandas.modin.journal import journal
from weft.pandas.modin.small import Limit, set_default_limit

ROWS = 3_000


@pytest.fixture(autouse=True)
def _medium_frames(shared_weft_session: None) -> Iterator[None]:
    """Frames of ROWS rows are on Weft, their columns and those of few cells are small."""
    assert pd.DataFrame is not None  # what is registered at the first use is there
    set_default_limit()
    Limit.few_rows, Limit.cells = 100, 2 * ROWS
    journal.near.clear()
    yield
    pd.set_small_rows(None)
    pd.strict(False)


@pytest.fixture
def theirs() -> pandas.DataFrame:
    frame = made(ROWS)
    frame["day"] = pandas.Timestamp("2020-01-01") + pandas.to_timedelta(np.arange(ROWS) % 50, unit="D")
    return frame


CASES: dict[str, Callable[[Any], Any]] = {
    "sort_values": lambda frame: frame.sort_values("price", kind="stable"),
    "drop_duplicates": lambda frame: frame.drop_duplicates(subset=["key", "word"]),
    "duplicated": lambda frame: frame.duplicated(subset=["key"]),
    "describe": lambda frame: frame.describe(),
    "nunique": lambda frame: frame.nunique(),
    "query": lambda frame: frame.query("price > 0"),
    "dropna": lambda frame: frame.dropna(),
    "sample": lambda frame: frame.sample(frac=0.1, random_state=1),
    "nlargest": lambda frame: frame.nlargest(5, "price"),
    "set_index": lambda frame: frame.set_index("key"),
    "melt": lambda frame: frame[["key", "price"]].melt(),
    "cumsum": lambda frame: frame[["key", "price"]].cumsum(),
    "corr": lambda frame: frame[["key", "price"]].corr(),
    "quantile": lambda frame: frame[["key", "price"]].quantile(0.9),
    "filter": lambda frame: frame[frame["price"] > 0],
    "where": lambda frame: frame[["key", "price"]].where(frame[["key", "price"]] > 0, 0),
    "pivot_table": lambda frame: frame.pivot_table(index="key", values="price", aggfunc="mean"),
    "merge outer": lambda frame: frame.merge(frame.head(20), on="key", how="outer"),
    "groupby size": lambda frame: frame.groupby("key").size(),
    "groupby transform": lambda frame: frame.groupby("key")["price"].transform("mean"),
    "groupby agg": lambda frame: frame.groupby("key").agg({"price": "sum"}),
    "value_counts": lambda frame: frame["word"].value_counts(),
    "unique": lambda frame: pandas.Series(frame["word"].unique()),
    "map with a dict": lambda frame: frame["key"].map({1: "one", 2: "two"}),
    "of two columns": lambda frame: frame["price"] + frame.key,
    "of a date": lambda frame: frame["day"].dt.year,
    "loc": lambda frame: frame.sort_values("key", kind="stable").loc[10:20, ["price", "word"]],
}


@pytest.mark.parametrize("case", CASES)
def test_the_result_is_that_of_pandas(case: str, theirs: pandas.DataFrame) -> None:
    ours = pd.DataFrame(theirs)
    assert ours.get_backend() == "Weft"
    wanted = CASES[case](theirs)
    assert_same(CASES[case](ours), wanted)
    ours.sort_values("key")  # from here on the copy is there
    assert_same(CASES[case](ours), wanted)


def test_narrow_frames_are_small_and_what_is_taken_off_a_wide_one_is_too(theirs: pandas.DataFrame) -> None:
    assert pd.DataFrame({"a": np.arange(2.0 * ROWS)}).get_backend() == "Pandas"
    assert pd.DataFrame({"a": np.arange(2.0 * ROWS + 1)}).get_backend() == "Weft"
    assert pd.DataFrame({"a": ["word"] * ROWS}).get_backend() == "Weft"  # an object counts as several numbers
    ours = pd.DataFrame(theirs)
    assert ours["price"].get_backend() == ours.price.get_backend() == "Pandas"
    assert ours["word"].get_backend() == "Weft"
    assert_same(ours["word"], theirs["word"])


def test_what_pandas_made_of_a_medium_frame_stays_in_pandas_until_it_is_large(theirs: pandas.DataFrame) -> None:
    made = pd.DataFrame(theirs).sort_values("key")
    assert made.astype({"key": float}).get_backend() == pd.concat([made, made]).get_backend() == "Pandas"
    Limit.near_cells = 3 * ROWS
    assert made.astype({"key": float}).get_backend() == pd.concat([made, made]).get_backend() == "Weft"


def test_cheap_calls_do_not_make_a_copy_but_use_one(theirs: pandas.DataFrame) -> None:
    numbers, wanted = pd.DataFrame(theirs)[["key", "price"]], theirs[["key", "price"]]
    numbers = pd.concat([numbers] * 2)
    wanted = pandas.concat([wanted] * 2)
    assert_same(numbers * 2, wanted * 2)
    assert_same(numbers.iloc[5:9], wanted.iloc[5:9])
    assert not journal.near
    numbers.median()
    assert_same(numbers * 2, wanted * 2)
    assert_same(numbers.iloc[5:9], wanted.iloc[5:9])
    assert_same(numbers.head(), wanted.head())
    assert journal.near == {"median": 1, "__mul__": 1, "iloc": 1, "head": 1}
    assert "in this process, where that is quicker: __mul__ × 1" in pd.explain(numbers)


def test_what_gains_by_rows_and_what_writes_in_place_stays_on_weft(theirs: pandas.DataFrame) -> None:
    ours, wanted = pd.DataFrame(theirs), theirs.copy()
    numbers = pd.concat([ours[["key", "price"]]] * 2)
    assert numbers.std(axis=1).get_backend() == "Weft"
    assert_same(numbers.std(axis=1), pandas.concat([theirs[["key", "price"]]] * 2).std(axis=1))
    for frame in (ours, wanted):
        frame.sort_values("price", inplace=True)
        frame.dropna(inplace=True)
    assert_same(ours, wanted)
    assert not journal.near


def test_what_is_written_into_a_result_is_not_in_the_frame(theirs: pandas.DataFrame) -> None:
    ours = pd.DataFrame(theirs)
    for _ in range(2):  # without a copy, and with one
        ours["price"].to_numpy()[:] = -1.0
        ours["price"].values[:] = -1.0
        first = ours.head()
        first.iloc[0, 0] = -1
        part = ours.iloc[2:5]
        part.iloc[0, 0] = -1
        assert_same(ours.sort_values("key", kind="stable"), theirs.sort_values("key", kind="stable"))
        assert_same(ours, theirs)


def test_a_change_of_the_frame_is_seen_by_what_comes_after(theirs: pandas.DataFrame) -> None:
    ours = pd.DataFrame(theirs)
    ours.sort_values("price")
    for frame in (ours, theirs):
        frame["price"] = frame["price"].fillna(0.0) * 2
        frame.iloc[3, 0] = 77
        frame.columns = [name.upper() for name in frame.columns]
        frame.index = range(10, 10 + ROWS)
    assert_same(ours.sort_values("PRICE", kind="stable"), theirs.sort_values("PRICE", kind="stable"))
    assert_same(ours["PRICE"], theirs["PRICE"])
    assert_same(ours["WORD"].value_counts(), theirs["WORD"].value_counts())


def test_errors_are_those_of_pandas(theirs: pandas.DataFrame) -> None:
    ours = pd.DataFrame(theirs)
    for _ in range(2):
        with pytest.raises(KeyError, match="nothing"):
            ours["nothing"]
        with pytest.raises(AttributeError, match="nothing"):
            _ = ours.nothing
        with pytest.raises(KeyError, match="nothing"):
            ours.groupby("nothing")
        with pytest.raises(KeyError, match="nothing"):
            ours.sort_values("nothing")


@pytest.mark.parametrize("reason", ["strict", "a limit of rows", "too many cells"])
def test_a_frame_stays_on_weft_where_it_must(reason: str, theirs: pandas.DataFrame) -> None:
    if reason == "strict":
        pd.strict()
    elif reason == "a limit of rows":
        pd.set_small_rows(100)
    else:
        Limit.near_cells = ROWS
    ours = pd.DataFrame(theirs)
    made = ours.sort_values("price")
    assert made.get_backend() == "Weft"
    assert_same(made, theirs.sort_values("price"))
    assert not journal.near


def test_small_frames_are_written_to_parquet(tmp_path: Path) -> None:
    frame = made(10)[["key", "price"]]
    pd.DataFrame(frame).to_parquet(tmp_path / "small.parquet")
    assert_same(pd.read_parquet(tmp_path / "small.parquet"), frame)
