"""Deferred frames are pandas' own to whoever asks, and get values when somebody looks."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import odd_frames
import pandas
import pytest

import weft.pandas as pd
from weft import cloudpickle
from weft.pandas.frames import is_deferred
from weft.pandas.moves import moves


def test_a_frame_is_pandas_own_to_isinstance() -> None:
    frame = pd.DataFrame(odd_frames.columns())
    assert is_deferred(frame)
    assert is_deferred(frame["key"])
    assert isinstance(frame, pandas.DataFrame)
    assert isinstance(frame, pd.DataFrame)
    assert isinstance(frame["key"], pandas.Series)
    assert isinstance(pandas.DataFrame(), pd.DataFrame)
    assert issubclass(pandas.DataFrame, pd.DataFrame)
    assert type(frame) == pandas.DataFrame  # noqa: E721
    assert pd.DataFrame == pandas.DataFrame
    assert is_deferred(frame)


def test_who_looks_at_values_gets_a_plain_frame() -> None:
    frame = pd.DataFrame(odd_frames.columns())
    plain = pandas.DataFrame(odd_frames.columns())
    odd_frames.assert_same(frame.describe(), plain.describe())
    assert type(frame) is pandas.DataFrame
    odd_frames.assert_same(frame, plain)


def test_what_is_known_without_values_needs_none() -> None:
    frame = pd.DataFrame(odd_frames.columns())
    plain = pandas.DataFrame(odd_frames.columns())
    assert frame.shape == plain.shape
    assert len(frame) == len(plain)
    assert frame.size == plain.size
    assert not frame.empty
    assert "key" in frame
    assert list(frame) == list(plain)
    odd_frames.assert_same(frame.dtypes, plain.dtypes)
    odd_frames.assert_same(frame.index, plain.index)
    odd_frames.assert_same(frame.columns, plain.columns)
    assert frame.key.name == "key"
    assert frame.key.dtype == plain.key.dtype
    assert is_deferred(frame)
    assert not moves.in_pandas


def test_small_frames_are_plain() -> None:
    pd.set_rows(None)
    frame = pd.DataFrame({"a": [1, 2]})
    assert type(frame) is pandas.DataFrame
    assert type(pd.Series([1])) is pandas.Series


def test_subclasses_are_of_pandas() -> None:
    class Own(pd.DataFrame):
        @property
        def _constructor(self) -> type:
            return Own

        def twice(self) -> pandas.DataFrame:
            return super().__add__(self)

    own = Own({"a": [1, 2]})
    assert type(own[["a"]]) is Own
    assert own.twice().a.tolist() == [2, 4]
    assert Own.__mro__[1] is pandas.DataFrame


def test_a_method_that_a_program_adds_is_on_all_frames() -> None:
    pd.DataFrame.first_of = lambda self, name: self[name].iloc[0]
    try:
        assert pandas.DataFrame({"a": [7]}).first_of("a") == 7
        assert pd.DataFrame({"a": [7, 8]}).first_of("a") == 7
    finally:
        del pd.DataFrame.first_of
    assert not hasattr(pandas.DataFrame, "first_of")


def test_pickles_and_copies_are_plain() -> None:
    frame = pd.DataFrame(odd_frames.columns())
    twin = copy.deepcopy(frame)
    loaded = pickle.loads(pickle.dumps(frame))
    assert type(loaded) is pandas.DataFrame
    odd_frames.assert_same(loaded, pandas.DataFrame(odd_frames.columns()))
    odd_frames.assert_same(twin, loaded)
    assert pickle.loads(pickle.dumps(pd.DataFrame)) is pd.DataFrame


def test_numpy_and_arrow_take_deferred_frames() -> None:
    import pyarrow as pa

    frame = pd.DataFrame({"a": [1, 2, 3], "b": [1.5, 2.5, 3.5]})
    assert np.asarray(frame).tolist() == [[1, 1.5], [2, 2.5], [3, 3.5]]
    other = pd.DataFrame({"a": [1, 2, 3]})
    assert pa.Table.from_pandas(other).to_pydict() == {"a": [1, 2, 3]}
    assert np.sqrt(pd.Series([4.0, 9.0])).tolist() == [2.0, 3.0]


def test_plain_frames_take_deferred_ones() -> None:
    plain = pandas.DataFrame({"a": [1, 2, 3]})
    frame = pd.DataFrame({"a": [1, 2, 3], "z": [4, 5, 6]})
    odd_frames.assert_same(pandas.concat([plain, frame]), pandas.concat([plain, plain.assign(z=[4, 5, 6])]))
    again = pd.DataFrame({"a": [3, 1], "z": [4, 5]})
    odd_frames.assert_same(plain.merge(again), plain.merge(pandas.DataFrame({"a": [3, 1], "z": [4, 5]})))


def test_an_assignment_through_a_column_reaches_what_it_reaches_in_pandas() -> None:
    frames = [pd.DataFrame({"a": [1.0, np.nan, 3.0]}), pandas.DataFrame({"a": [1.0, np.nan, 3.0]})]
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        for frame in frames:
            frame["a"].fillna(0.0, inplace=True)
            frame["a"][0] = 9.0
    odd_frames.assert_same(frames[0], frames[1])


def test_a_column_taken_before_a_write_shows_what_it_shows_in_pandas() -> None:
    seen = []
    for make in (pd.DataFrame, pandas.DataFrame):
        frame = make({"a": [1, 2, 3]})
        column = frame["a"]
        frame.loc[0, "a"] = 100
        seen.append(column.tolist())
    assert seen[0] == seen[1]


def test_assigning_to_a_frame_leaves_its_copies_alone() -> None:
    frame = pd.DataFrame({"a": [1, 2, 3]})
    twin = frame.copy()
    frame["b"] = frame["a"] * 2
    frame["c"] = 7
    assert list(twin.columns) == ["a"]
    odd_frames.assert_same(frame, pandas.DataFrame({"a": [1, 2, 3], "b": [2, 4, 6], "c": [7, 7, 7]}))


def test_labels_can_be_assigned() -> None:
    frame = pd.DataFrame({"a": [1, 2, 3]})
    frame.columns = ["z"]
    frame.index = [5, 6, 7]
    odd_frames.assert_same(frame, pandas.DataFrame({"z": [1, 2, 3]}, index=[5, 6, 7]))
    series = pd.Series([1, 2, 3])
    series.name = "n"
    odd_frames.assert_same(series, pandas.Series([1, 2, 3], name="n"))


def test_errors_are_those_of_pandas() -> None:
    frame = pd.DataFrame(odd_frames.columns())
    with pytest.raises(KeyError, match="nothing"):
        frame["nothing"]
    with pytest.raises(AttributeError, match="nothing"):
        frame.nothing  # noqa: B018
    with pytest.raises(TypeError):
        frame["word"] + 1


def test_an_error_of_the_users_function_is_raised_once() -> None:
    calls = []

    def fail(value: int) -> int:
        calls.append(value)
        raise RuntimeError(f"no {value}")

    with pytest.raises(RuntimeError, match="no 1"):
        pd.Series([1, 2, 3, 4]).map(fail)
    assert calls == [1]


def test_strict_raises_where_pandas_would_have_to_do_it() -> None:
    frame = pd.DataFrame(odd_frames.columns())
    with pd.strict():
        assert frame.key.sum() == odd_frames.columns()["key"].sum()
        with pytest.raises(pd.FallbackError, match=r"sort_values at .*test_deferred_frames.py:\d+ would be done"):
            frame.sort_values("key")
    assert is_deferred(frame)
    frame.sort_values("key")


def test_explain_says_what_ran_where() -> None:
    frame = pd.DataFrame(odd_frames.columns())
    frame.key.sum()
    frame.sort_values("key")
    told = pd.explain()
    assert "1 frames cut into parts" in told
    assert "on parts: sum × 1" in told
    assert "in pandas: sort_values" in told
    assert "test_deferred_frames.py" in told


def test_a_script_that_imports_pandas_runs_on_deferred_frames(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("NUMBER = 3\n")
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, pandas as pd\n"
        "from beside import NUMBER\n"
        "from weft.pandas import parts\n"
        "parts.use_this_process(2)\n"
        "frame = pd.DataFrame({'a': [1, 2, NUMBER]})\n"
        "assert isinstance(frame, pd.DataFrame)\n"
        "print(sys.argv[1:], int(frame.a.sum()), type(frame).__name__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "weft.pandas", "--profile", str(script), "x", "--y"],
        env={"WEFT_PANDAS_ROWS": "0", "PYTHONPATH": ":".join(sys.path)},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "['x', '--y'] 6 DataFrame\n"), done.stderr
    assert "on parts: sum × 1" in done.stderr


def test_the_extension_of_notebooks_replaces_the_names_of_pandas() -> None:
    import weft.pandas

    plain = pandas.DataFrame
    weft.pandas.load_ipython_extension(None)
    try:
        assert is_deferred(pandas.DataFrame({"a": [1, 2]}))
        assert isinstance(plain(), pandas.DataFrame)
        for value in (pandas.DataFrame({"a": [1, 2]}), plain({"a": [1]}), pandas.Series([1]), pandas.DataFrame):
            for pickler in (pickle, cloudpickle):
                odd_frames.assert_same(pickle.loads(pickler.dumps(value)), value)
        assert pickle.loads(cloudpickle.dumps(lambda: pandas.Series([1, 2]).sum()))() == 3
    finally:
        weft.pandas.unload_ipython_extension(None)
    assert pandas.DataFrame is plain
