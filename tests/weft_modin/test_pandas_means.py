"""Means of columns of numbers are summed up in the workers by pieces, and are what pandas gives."""

from __future__ import annotations

import numpy as np
import pandas
import pytest
from frames import assert_same

import weft.pandas.modin as pd
from weft.pandas.modin import column_means
from weft.pandas.modin.late_blocks import PIECE

pytestmark = pytest.mark.usefixtures("shared_weft_session")

NAN, INF = float("nan"), float("inf")
FRAMES = {
    "numbers with holes": pandas.DataFrame({"a": [1, 2, 3] * 50, "b": [1.5, NAN, 2.0] * 50}),
    "more rows than a piece": pandas.DataFrame({"a": np.arange(PIECE * 2 + 7.0), "b": np.ones(PIECE * 2 + 7)}),
    "no value at all": pandas.DataFrame({"a": [NAN] * 90}),
    "infinities": pandas.DataFrame({"a": [INF, 1.0, 2.0] * 30, "b": [INF, -INF, 1.0] * 30}),
    "two columns of one name": pandas.DataFrame(np.arange(300.0).reshape(100, 3), columns=["x", "x", "y"]),
    "a sum beyond 64 bits": pandas.DataFrame({"a": [2**62] * 80}),
}


@pytest.mark.parametrize("name", FRAMES)
@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")  # pandas', of infinities
def test_means_are_those_of_pandas(name: str) -> None:
    assert_same(pd.DataFrame(FRAMES[name]).mean(), FRAMES[name].mean())


def test_columns_of_other_types_are_left_to_modin() -> None:
    theirs = pandas.DataFrame({"a": [True, False] * 40})
    assert not column_means.is_possible(theirs.dtypes, {})
    assert_same(pd.DataFrame(theirs).mean(), theirs.mean())


def test_missing_values_that_count_are_left_to_modin() -> None:
    theirs = FRAMES["numbers with holes"]
    assert not column_means.is_possible(theirs.dtypes, {"skipna": False})
    assert_same(pd.DataFrame(theirs).mean(skipna=False), theirs.mean(skipna=False))
