"""Frames go to weft.data, Arrow, NumPy, torch and scikit-learn, and come back, whether deferred or plain."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas
import pyarrow as pa
import pytest

import weft.pandas as pd
from weft import data
from weft.pandas.frames import is_deferred

pytestmark = pytest.mark.usefixtures("shared_weft_session")


@pytest.fixture(params=[True, False], ids=["deferred", "plain"])
def is_large(request: pytest.FixtureRequest) -> bool:
    pd.set_rows(0 if request.param else 10**9)
    return bool(request.param)


def simple(rows: int = 700) -> dict[str, Any]:
    words = ["warp", "weft", None, "loom"]
    return {
        "key": [row % 7 for row in range(rows)],
        "price": [row / 8 if row % 17 else None for row in range(rows)],
        "word": [words[row % 4] for row in range(rows)],
    }


def test_a_frame_becomes_a_dataset_and_comes_back(is_large: bool) -> None:
    frame, theirs = pd.DataFrame(simple()), pandas.DataFrame(simple())
    assert is_deferred(frame) is is_large
    dataset = pd.to_dataset(frame)
    assert dataset.count() == len(theirs)
    again = pd.from_dataset(dataset)
    assert is_deferred(again) is is_large
    pandas.testing.assert_frame_equal(again, theirs)


def test_what_a_plan_makes_is_transformed_by_weft_data(is_large: bool) -> None:
    frame, theirs = pd.DataFrame(simple()), pandas.DataFrame(simple())
    dataset = pd.to_dataset(frame[frame.key > 2].assign(twice=frame.key * 2))
    found = dataset.groupby("key").agg(twice="sum").sort("key").take_all()
    expected = theirs[theirs.key > 2].assign(twice=theirs.key * 2).groupby("key").twice.sum()
    assert [(row["key"], row["twice_sum"]) for row in found] == list(expected.items())


def test_blocks_of_other_types_become_one_frame(is_large: bool) -> None:
    blocks = [pa.table({"x": [1, 2]}), pa.table({"x": [0.5]})]
    frame = pd.from_dataset(data.range(2, blocks=2).map_batches(lambda ids: blocks[int(ids["id"][0])]))
    pandas.testing.assert_frame_equal(frame, pandas.DataFrame({"x": [1.0, 2.0, 0.5]}))


def test_a_dataset_of_no_row_is_a_frame_of_none(is_large: bool) -> None:
    frame = pd.from_dataset(data.range(5).filter(data.col("id") > 9))
    assert len(frame) == 0 and list(frame.columns) == ["id"]


def test_an_arrow_table_becomes_a_frame_and_comes_back(is_large: bool) -> None:
    table = pa.table({"x": [1, 2, 3], "word": ["a", None, "c"]})
    frame = pd.from_arrow(table)
    assert is_deferred(frame) is is_large
    assert pd.to_arrow(frame).to_pydict() == table.to_pydict()
    assert pd.to_arrow(pd.DataFrame(simple())).column("key").to_pylist() == simple()["key"]


def test_a_frame_of_numbers_becomes_a_tensor(is_large: bool) -> None:
    torch = pytest.importorskip("torch")
    tensor = pd.to_torch(pd.DataFrame({"a": list(range(90)), "b": [1.0] * 90}), dtype=torch.float32)
    assert tensor.shape == (90, 2)
    assert float(tensor[:, 0].sum()) == 4005.0
    with pytest.raises(TypeError, match="columns must be numbers"):
        pd.to_torch(pd.DataFrame({"word": ["a"]}))


def test_scikit_learn_fits_a_frame(is_large: bool) -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    frame = pd.DataFrame({"x": list(np.arange(500.0)), "y": list(np.arange(500.0) * 3 + 1)})
    model = linear_model.LinearRegression().fit(frame[["x"]], frame["y"])
    assert model.coef_[0] == pytest.approx(3.0)
    assert model.predict(frame[["x"]].head(2)).tolist() == pytest.approx([1.0, 4.0])
