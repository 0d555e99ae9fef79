"""Frames of `weft.pandas` raise what pandas raises; at a terminal the column that was meant is named beside it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

import weft.pandas as pd
from weft.terminal.uncaught import note_next_step

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="errors have notes from Python 3.11 on")

WRONG: dict[str, Callable[[Any], Any]] = {
    "taken": lambda frame: frame["fair"],
    "several": lambda frame: frame[["city", "fair"]],
    "grouped": lambda frame: frame.groupby("fair").sum(),
    "taken of groups": lambda frame: frame.groupby("city")["fair"].sum(),
    "aggregated": lambda frame: frame.groupby("city").agg({"fair": "sum"}),
    "sorted": lambda frame: frame.sort_values("fair"),
}


@pytest.mark.parametrize("way", WRONG)
def test_a_misspelt_column_is_told_with_the_one_that_was_meant(way: str) -> None:
    frame = pd.DataFrame({"city": ["a", "b"], "fare": [1.0, 2.0]})
    with pytest.raises(KeyError) as raised:
        WRONG[way](frame)
    assert note_next_step(raised.value)
    assert raised.value.__notes__[-1] == "There is no column 'fair': did you mean 'fare'?"


def test_a_key_that_is_like_no_column_is_left_alone() -> None:
    frame = pd.DataFrame({"city": ["a", "b"]})
    for wrong in (lambda: frame["zzz"], lambda: {"city": 1}["citi"]):
        with pytest.raises(KeyError) as raised:
            wrong()
        assert not note_next_step(raised.value)
