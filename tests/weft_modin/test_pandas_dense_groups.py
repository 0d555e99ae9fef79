"""Groups by whole numbers that lie close together give the partial results that pandas gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas
import pytest
from frames import assert_same

import weft.pandas.modin as pd
from weft.pandas.modin import group_sums
from weft.pandas.modin.dense_groups import dense_groups

FUNCTIONS = {"price": "mean", "least": "min", "most": "max", "number": "sum", "n": "count"}
ROWS = 3_000


def numbered(keys: Any, rows: int = ROWS) -> pandas.DataFrame:
    random = np.random.default_rng(5)
    floats = random.normal(size=(rows, 3))
    floats[random.random(floats.shape) < 0.2] = np.nan
    frame = pandas.DataFrame(floats, columns=["price", "least", "most"])
    frame.insert(0, "key", random.choice(keys, rows))
    frame.loc[frame.key == frame.key.min(), "price"] = np.nan  # a group without values
    frame.loc[7, "most"] = np.inf
    return frame.assign(number=random.integers(-9, 9, rows), n=floats[:, 0])


KEYS = {
    "from zero": np.arange(50),
    "below zero": np.arange(-20, 20),
    "with holes": np.array([3, 5, 200, 201]),
    "narrow": np.arange(100, 127, dtype=np.int8),
    "the whole range of a narrow type": np.arange(-128, 128).astype(np.int8),
    "at the end of the range": np.arange(2**63 - 30, 2**63 - 1),
}


@pytest.mark.parametrize("name", KEYS)
def test_partial_results_are_those_of_pandas(name: str) -> None:
    frame = numbered(KEYS[name])
    assert dense_groups(frame["key"]) is not None
    whole = group_sums.together(group_sums.of_block(frame, ["key"], FUNCTIONS, True), FUNCTIONS, True)
    pandas.testing.assert_frame_equal(whole, frame.groupby("key").agg(FUNCTIONS), check_exact=True)


@pytest.mark.parametrize(
    "keys", [np.array([0, 10**6]), np.array([-(2**63), 2**63 - 1]), np.array([0.0, 1.0]), np.array(["a", "b"])], ids=str
)
def test_keys_that_lie_apart_or_are_no_whole_numbers_are_looked_up(keys: Any) -> None:
    frame = numbered(keys) if keys.dtype.kind == "i" else numbered(np.arange(2)).assign(key=np.resize(keys, ROWS))
    assert dense_groups(frame["key"]) is None
    assert dense_groups(frame["key"][:0]) is None
    whole = group_sums.together(group_sums.of_block(frame, ["key"], FUNCTIONS, True), FUNCTIONS, True)
    pandas.testing.assert_frame_equal(whole, frame.groupby("key").agg(FUNCTIONS), check_exact=True)


@pytest.mark.parametrize("keys", [np.arange(3), np.array(["a", "b", "c"])], ids=["dense", "looked up"])
def test_means_of_numbers_whose_sum_does_not_fit_are_those_of_pandas(keys: Any) -> None:
    large = np.random.default_rng(6).integers(2**61, 2**62, ROWS)
    frame = pandas.DataFrame({"key": np.resize(keys, ROWS), "large": large, "same": large})
    functions = {"large": "mean", "same": "sum"}
    blocks = [group_sums.of_block(block, ["key"], functions, True) for block in (frame[:1000], frame[1000:])]
    whole = group_sums.together(pandas.concat(blocks), functions, True)
    pandas.testing.assert_frame_equal(whole, frame.groupby("key").agg(functions))


@pytest.mark.usefixtures("shared_weft_session")
def test_blocks_with_other_ranges_of_keys_are_put_together() -> None:
    theirs = numbered(np.arange(50)).sort_values("key", ignore_index=True)[["key", "price", "number"]]
    asked = {"price": "mean", "number": "max"}
    assert_same(pd.DataFrame(theirs).groupby("key").agg(asked), theirs.groupby("key").agg(asked))
