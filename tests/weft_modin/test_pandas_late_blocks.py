"""`isna`, `notna` and `fillna` computed in object memory give what pandas gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas
import pytest
from frames import assert_same, made

import weft.pandas.modin as pd
from weft.pandas.modin.calls import run_on_block
from weft.pandas.modin.late_blocks import Filled, LateFrame, MissingValues
from weft.util import LateArray

ROWS = 70_000
"""More than one piece, and large enough to be written late."""


def numbers(rows: int = ROWS) -> pandas.DataFrame:
    random = np.random.default_rng(3)
    values = random.normal(size=(rows, 5))
    values[random.random(values.shape) < 0.1] = np.nan
    frame = pandas.DataFrame(values, columns=list("abcde"))
    return frame.assign(n=random.integers(0, 9, rows), flag=values[:, 0] > 0, day=pandas.Timestamp("2026-01-01"))


LAYOUTS = {
    "columns one after another": lambda f: f.copy(),
    "rows one after another": lambda f: pandas.DataFrame(f[list("abcde")].to_numpy().copy(), columns=list("abcde")),
    "every other row": lambda f: f[list("abcd")].iloc[::2],
    "words, times and categories": lambda f: made(),
    "no rows": lambda f: f.iloc[:0],
    "no columns": lambda f: f[[]],
}


@pytest.mark.parametrize("function", [MissingValues(), MissingValues(are_missing=False), Filled(7.5)], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_late_block_has_the_values_that_pandas_computes(function: Any, layout: str) -> None:
    block = LAYOUTS[layout](numbers())
    if isinstance(function, Filled):
        block = block.select_dtypes(["number", "bool"])
    late, rows, columns = run_on_block([(function, (), {})], block)
    assert isinstance(late, LateFrame)
    assert (rows, columns) == block.shape
    rebuild, arguments = late.__reduce__()
    blocks = [(values.written() if isinstance(values, LateArray) else values, at) for values, at in arguments[0]]
    pandas.testing.assert_frame_equal(rebuild(blocks, arguments[1]), function(block))


def test_what_has_no_late_form_is_left_to_pandas() -> None:
    words = made(50)[["key", "price", "word"]]
    sparse = pandas.DataFrame({"n": pandas.arrays.SparseArray([0.0, np.nan, 1.0])})
    for function, block in ((Filled(7.5), words), (MissingValues(), sparse)):
        assert function.late(block) is None
        pandas.testing.assert_frame_equal(run_on_block([(function, (), {})], block)[0], function(block))


@pytest.mark.usefixtures("shared_weft_session")
@pytest.mark.parametrize(
    "operate",
    [
        lambda f: f.isna(),
        lambda f: f.notna(),
        lambda f: f.isna().sum(),
        lambda f: f.a.isna(),
        lambda f: f[f.a.notna() & f.b.isna()],
        lambda f: f[list("abcn")].fillna(0),
        lambda f: f[list("abcn")].fillna(-1.5).isna().any(),
        lambda f: f.a.fillna(2**53 + 1),
        lambda f: f.a.fillna(True),
        lambda f: f.a.fillna(np.nan),
        lambda f: f[list("ab")].fillna(0, limit=3),
        lambda f: f.fillna(0.0),
        lambda f: f.rename(columns={"a": "z"}).set_axis(range(5, ROWS + 5)).isna(),
    ],
)
def test_frames_on_weft_agree_with_pandas(operate: Any) -> None:
    frame = numbers()
    assert_same(operate(pd.DataFrame(frame)), operate(frame))


@pytest.mark.usefixtures("shared_weft_session")
def test_a_frame_is_filled_in_place() -> None:
    theirs, ours = numbers(), pd.DataFrame(numbers())
    theirs.fillna(1.0, inplace=True)
    ours.fillna(1.0, inplace=True)
    assert_same(ours, theirs)
    assert_same(ours.dtypes, theirs.dtypes)


@pytest.mark.usefixtures("shared_weft_session")
def test_filling_along_rows_gives_one_type_as_in_pandas() -> None:
    frame = numbers()[["a", "n"]]
    assert_same(pd.DataFrame(frame).fillna(0.0, axis=1), frame.fillna(0.0, axis=1))
