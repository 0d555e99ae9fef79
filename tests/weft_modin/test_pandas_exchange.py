"""Frames go to weft.data, Arrow, NumPy, torch and scikit-learn, and come back."""

from __future__ import annotations

import numpy as np
import pandas
import pyarrow as pa
import pytest
from frames import assert_same, made

import weft.pandas.modin as pd
from weft import data

pytestmark = pytest.mark.usefixtures("shared_weft_session")


def simple() -> pandas.DataFrame:
    return made()[["key", "price", "word"]]


def test_a_frame_becomes_a_dataset_and_comes_back() -> None:
    theirs = simple()
    dataset = pd.to_dataset(pd.DataFrame(theirs))
    assert dataset.count() == len(theirs)
    assert_same(pd.from_dataset(dataset), theirs)


def test_a_dataset_of_a_frame_is_transformed_by_weft_data() -> None:
    theirs = simple()
    rows = pd.to_dataset(pd.DataFrame(theirs)).groupby("word").agg(key="max").sort("word").take()
    assert [row["key_max"] for row in rows] == theirs.groupby("word").key.max().tolist()


def test_a_dataset_of_files_becomes_a_frame_that_can_be_grouped() -> None:
    frame = pd.from_dataset(data.range(1000))
    assert frame.get_backend() == "Weft"
    assert int(frame.id.sum()) == 499_500


def test_an_arrow_table_becomes_a_frame_and_comes_back() -> None:
    table = pa.table({"x": [1, 2, 3], "word": ["a", None, "c"]})
    assert pd.to_arrow(pd.from_arrow(table)).equals(table)
    theirs = simple()
    assert_same(pd.to_arrow(pd.DataFrame(theirs)).to_pandas(), theirs)


def test_a_frame_becomes_an_array_and_is_made_of_one() -> None:
    array = np.arange(3000.0).reshape(-1, 3)
    frame = pd.DataFrame(array, columns=["a", "b", "c"])
    assert np.array_equal(frame.to_numpy(), array)
    assert np.array_equal(np.asarray(frame + 1), array + 1)


def test_a_frame_of_numbers_becomes_a_tensor() -> None:
    torch = pytest.importorskip("torch")
    tensor = pd.to_torch(pd.DataFrame({"a": np.arange(90.0), "b": np.ones(90)}), dtype=torch.float32)
    assert tensor.shape == (90, 2)
    assert float(tensor[:, 0].sum()) == 4005.0
    with pytest.raises(TypeError, match="columns must be numbers"):
        pd.to_torch(pd.DataFrame({"word": ["a"]}))


def test_scikit_learn_fits_a_frame() -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    frame = pd.DataFrame({"x": np.arange(500.0), "y": np.arange(500.0) * 3 + 1})
    model = linear_model.LinearRegression().fit(frame[["x"]], frame["y"])
    assert model.coef_[0] == pytest.approx(3.0)
    assert model.predict(frame[["x"]].head(2)).tolist() == pytest.approx([1.0, 4.0])
