"""Small frames stay in plain pandas, move to Weft when they grow, and what falls back to pandas is said."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas
import pytest
from frames import assert_same, made

import weft
import weft.pandas as pd
from weft.pandas.journal import journal

LIMIT = 1_000


@pytest.fixture(autouse=True)
def _small_and_no_history() -> Iterator[None]:
    pd.set_small_rows(LIMIT)
    journal.fallbacks.clear()
    yield
    pd.set_small_rows(None)
    pd.strict(False)


def test_a_small_frame_needs_no_engine() -> None:
    theirs = made(LIMIT)
    frame = pd.DataFrame(theirs)
    assert frame.get_backend() == "Pandas"
    assert_same(frame.groupby("key").price.sum(), theirs.groupby("key").price.sum())
    assert_same(frame.merge(frame.head(3), on="key"), theirs.merge(theirs.head(3), on="key"))
    assert not weft.is_initialized()


def test_a_small_file_is_read_without_the_engine(tmp_path: Path) -> None:
    made(10)[["key", "word"]].to_csv(tmp_path / "small.csv", index=False)
    frame = pd.read_csv(tmp_path / "small.csv", usecols=["key"])
    assert frame.get_backend() == "Pandas"
    assert frame.shape == (10, 1)
    assert not weft.is_initialized()


def test_a_small_frame_is_written_without_the_engine(tmp_path: Path) -> None:
    frame = made(10)[["key", "word"]]
    pd.DataFrame(frame).to_csv(tmp_path / "small.csv", index=False)
    assert (tmp_path / "small.csv").read_text() == frame.to_csv(index=False)
    assert not weft.is_initialized()


@pytest.mark.usefixtures("weft_session")
def test_a_frame_moves_to_weft_when_it_grows() -> None:
    theirs = made(600)
    frame = pd.DataFrame(theirs)
    together = pd.concat([frame, frame])
    assert (frame.get_backend(), together.get_backend()) == ("Pandas", "Weft")
    assert_same(together, pandas.concat([theirs, theirs]))
    crossed = frame[["key"]].merge(pd.DataFrame({"n": [1, 2]}), how="cross")
    assert crossed.get_backend() == "Weft"
    assert len(crossed) == 1200


@pytest.mark.usefixtures("weft_session")
def test_a_function_for_each_row_goes_to_weft_earlier() -> None:
    frame = pd.DataFrame(made(100))[["key", "price"]]
    assert frame.sum().get_backend() == "Pandas"
    assert frame.apply(lambda row: row.key * 2, axis=1).get_backend() == "Weft"


@pytest.mark.usefixtures("weft_session")
def test_a_small_frame_moves_where_it_meets_a_large_one() -> None:
    large, small = made(LIMIT + 1), made(10, seed=1)
    ours = pd.DataFrame(large).merge(pd.DataFrame(small).drop_duplicates("key"), on="key")
    assert ours.get_backend() == "Weft"
    assert_same(ours, large.merge(small.drop_duplicates("key"), on="key"))


def test_a_negative_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="must not be negative, but got -1"):
        pd.set_small_rows(-1)


@pytest.mark.usefixtures("weft_session")
def test_a_fall_back_is_warned_of_once_and_explained() -> None:
    frame = pd.DataFrame({"x": np.arange(LIMIT + 1.0)})
    with pytest.warns(UserWarning, match="efaulting to pandas"):
        frame.to_json()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        frame.to_json()
    told = pd.explain(frame)
    assert "DataFrame on Weft" in told
    assert "to_json × 2" in told
    assert __file__ in told


@pytest.mark.usefixtures("weft_session")
def test_strict_mode_refuses_to_fall_back() -> None:
    frame = pd.DataFrame({"x": np.arange(LIMIT + 1.0)})
    with pd.strict(), pytest.raises(pd.FallbackError, match=r"to_json at .*test_pandas_small") as raised:
        frame.to_json()
    assert raised.value.operation == "to_json"
    assert journal.strict is False


def test_explain_tells_of_a_small_frame() -> None:
    assert "10 rows, 5 columns, in backend Pandas" in pd.explain(pd.DataFrame(made(10)))
