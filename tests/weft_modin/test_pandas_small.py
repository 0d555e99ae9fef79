"""Small frames stay in plain pandas, move to Weft when they grow, and what falls back to pandas is said."""

from __future__ import annotations

import io
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from frames import assert_same, made

import weft
import weft.pandas.modin as pd
from weft.pandas.modin.journal import journal
from weft.pandas.modin.small import set_default_limit

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


READERS: dict[str, tuple[Callable[[pandas.DataFrame, Path], Any], Callable[[Any, Path], Any]]] = {
    "parquet": (lambda f, path: f.to_parquet(path), lambda m, path: m.read_parquet(path, columns=["word"])),
    "feather": (lambda f, path: f.to_feather(path), lambda m, path: m.read_feather(path)),
    "json": (lambda f, path: f.to_json(path), lambda m, path: m.read_json(path)),
    "fixed width": (lambda f, path: path.write_text(f.to_string(index=False)), lambda m, path: m.read_fwf(path)),
    "a buffer": (lambda f, path: f.to_csv(path), lambda m, path: m.read_csv(io.StringIO(path.read_text()))),
    "pieces": (lambda f, path: f.to_csv(path), lambda m, path: m.concat(m.read_csv(path, chunksize=3))),
}


@pytest.mark.parametrize("name", READERS)
def test_small_files_of_all_kinds_are_read_without_the_engine(name: str, tmp_path: Path) -> None:
    write, read = READERS[name]
    write(made(10)[["key", "word"]], tmp_path / "small")
    with pd.strict():
        ours = read(pd, tmp_path / "small")
    assert ours.get_backend() == "Pandas"
    assert_same(ours, read(pandas, tmp_path / "small"))
    assert not weft.is_initialized()


def test_a_small_frame_is_written_without_the_engine(tmp_path: Path) -> None:
    frame = made(10)[["key", "word"]]
    pd.DataFrame(frame).to_csv(tmp_path / "small.csv", index=False)
    assert (tmp_path / "small.csv").read_text() == frame.to_csv(index=False)
    pd.DataFrame(frame).to_parquet(tmp_path / "small.parquet", index=False)
    assert_same(pandas.read_parquet(tmp_path / "small.parquet"), frame)
    base = f"sqlite:///{tmp_path / 'small.db'}"
    pd.DataFrame(frame).to_sql("small", base, index=False)
    assert_same(pandas.read_sql("select * from small", base), frame)
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
    doubled = frame.apply(lambda row: row.key * 2, axis=1)
    assert isinstance(doubled, pd.Series)
    assert doubled.get_backend() == "Weft"
    assert_same(doubled, made(100)[["key", "price"]].apply(lambda row: row.key * 2, axis=1))


@pytest.mark.usefixtures("weft_session")
def test_a_small_frame_moves_where_it_meets_a_large_one() -> None:
    large, small = made(LIMIT + 1), made(10, seed=1)
    ours = pd.DataFrame(large).merge(pd.DataFrame(small).drop_duplicates("key"), on="key")
    assert ours.get_backend() == "Weft"
    assert_same(ours, large.merge(small.drop_duplicates("key"), on="key"))


@pytest.mark.parametrize("limit", ["many", 2.5, True])
def test_a_limit_that_is_no_number_of_rows_is_refused(limit: Any) -> None:
    with pytest.raises(TypeError, match="must be a whole number or None"):
        pd.set_small_rows(limit)


def test_a_limit_in_the_environment_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_PANDAS_SMALL_ROWS", "many")
    with pytest.raises(ValueError, match="WEFT_PANDAS_SMALL_ROWS must be a number of rows, but is 'many'"):
        set_default_limit()


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


@pytest.mark.usefixtures("weft_session")
def test_what_a_reader_leaves_to_pandas_is_a_fall_back(tmp_path: Path) -> None:
    made(10 * LIMIT).to_csv(tmp_path / "large.csv", index=False)
    pieces = {"filepath_or_buffer": tmp_path / "large.csv", "skiprows": [1, 5]}
    pd.set_small_rows(1)
    with pytest.warns(UserWarning, match="rows beside the header"):
        pd.read_csv(**pieces)
    assert "in pandas: read_csv × 1" in pd.explain()
    with pd.strict(), pytest.raises(pd.FallbackError, match=r"read_csv at .*test_pandas_small.*skiprows"):
        pd.read_csv(**pieces)


@pytest.mark.parametrize("other", [5, pandas.DataFrame({"a": [1]})], ids=["a number", "a frame of pandas"])
def test_explain_says_what_it_takes(other: Any) -> None:
    with pytest.raises(TypeError, match=r"a frame or series of weft\.pandas\.modin, but got a "):
        pd.explain(other)


def test_explain_tells_of_a_small_frame() -> None:
    assert "10 rows, 5 columns, in backend Pandas" in pd.explain(pd.DataFrame(made(10)))


def test_what_is_written_into_a_column_of_a_small_frame_is_in_the_frame() -> None:
    frame = pd.DataFrame({"a": [1, 2, 3], "b": [4.0, 5.0, 6.0]})
    before = frame.copy()
    frame["c"] = frame["a"] + frame["b"]
    frame.loc[frame["a"] == 2, "b"] = 0.0
    frame["a"].replace(3, 30, inplace=True)
    frame.sort_values("a", ascending=False, inplace=True)
    assert frame.to_dict("list") == {"a": [30, 2, 1], "b": [6.0, 0.0, 4.0], "c": [9.0, 7.0, 5.0]}
    assert before.to_dict("list") == {"a": [1, 2, 3], "b": [4.0, 5.0, 6.0]}


def test_labels_of_a_small_result_are_its_own() -> None:
    frame = pd.DataFrame({"a": [1, 2, 3]}, index=[7, 8, 9])
    column = frame["a"]
    column.index = ["x", "y", "z"]
    column.name = "other"
    kept = frame.abs()
    kept.columns = ["b"]
    assert list(frame.index) == [7, 8, 9]
    assert (list(frame.columns), list(kept.columns), column.name) == (["a"], ["b"], "other")
    assert (frame["a"].name, frame["a"].sum()) == ("a", 6)


def test_a_column_that_was_read_before_is_read_as_it_is_now() -> None:
    frame = pd.DataFrame({"a": [3, 1, 2], "b": [4.0, 5.0, 6.0]})
    assert (frame["b"].tolist(), frame.b.tolist()) == ([4.0, 5.0, 6.0], [4.0, 5.0, 6.0])
    frame["b"] = frame["b"] * 2
    assert frame.b.tolist() == [8.0, 10.0, 12.0]
    frame.loc[0, "b"] = 0.0
    assert frame["b"].tolist() == [0.0, 10.0, 12.0]
    frame.iloc[1, 1] = 1.0
    frame.sort_values("a", inplace=True)
    assert frame["b"].tolist() == [1.0, 12.0, 0.0]
    frame.columns = ["b", "a"]
    assert (frame["b"].tolist(), frame.a.tolist()) == ([1, 2, 3], [1.0, 12.0, 0.0])
    del frame["b"]
    with pytest.raises(KeyError):
        frame["b"]
    with pytest.raises(AttributeError, match="no attribute 'b'"):
        frame.b  # noqa: B018


@pytest.mark.parametrize("theirs", [pandas.DataFrame({"a": [], "b": []}), pandas.DataFrame(), made(3)[[]]])
def test_a_small_frame_without_cells_is_read_like_any_other(theirs: pandas.DataFrame) -> None:
    frame = pd.DataFrame(theirs)
    assert_same(frame.loc[:], theirs.loc[:])
    assert_same(frame.iloc[:0], theirs.iloc[:0])
    assert_same(frame.isna(), theirs.isna())
    assert (len(frame), frame.shape, frame.empty) == (len(theirs), theirs.shape, True)
    frame.fillna(0, inplace=True)
    assert_same(frame, theirs)


@pytest.mark.usefixtures("weft_session")
@pytest.mark.filterwarnings("ignore:.*defaulting to pandas")
@pytest.mark.parametrize("limit", [LIMIT, None])
def test_a_function_for_each_of_no_rows_is_left_to_pandas(limit: int | None) -> None:
    theirs = made(10).head(0)
    pd.set_small_rows(limit)
    assert_same(pd.DataFrame(theirs).apply(str, axis=1), theirs.apply(str, axis=1))


def test_errors_of_small_frames_are_those_of_pandas() -> None:
    frame = pd.DataFrame(made(10))
    with pytest.raises(KeyError, match="no such column"):
        frame["no such column"]
    with pytest.raises(KeyError):
        frame.sort_values("no such column")
    with pytest.raises(TypeError):
        frame.fillna(1, no_such_keyword=True)


def test_a_small_frame_stays_one_after_many_steps() -> None:
    frame = pd.DataFrame(made(LIMIT))
    chained = frame.dropna().sort_values("price").groupby("word").price.mean().reset_index()
    assert chained.get_backend() == "Pandas"
    assert isinstance(chained, pd.DataFrame)
    assert isinstance(chained["price"], pd.Series)
    assert frame.pin_backend()["key"].is_backend_pinned()


_REGISTERED_LATER = """
import warnings; warnings.simplefilter("ignore")
import weft.pandas.modin as pd
from modin.pandas.api.extensions import register_base_accessor, register_dataframe_accessor

frame = pd.DataFrame({"a": [1, 1]})
assert int(frame.nunique()["a"]) == 1
register_dataframe_accessor("nunique", backend="Pandas")(lambda self: "for small frames")
register_dataframe_accessor("isna")(lambda self: "for all")
register_base_accessor("size")(property(lambda self: "for frames and series"))
register_dataframe_accessor("empty", backend="Python_Test")(property(lambda self: "for others"))
print(frame.nunique(), frame.isna(), frame.size, frame.a.size, frame.empty, frame.shape, sep="; ")
"""


def test_an_extension_comes_before_what_goes_to_pandas_directly() -> None:
    printed = subprocess.run(
        [sys.executable, "-c", _REGISTERED_LATER], capture_output=True, text=True, timeout=280, check=False
    )
    expected = "for small frames; for all; for frames and series; for frames and series; False; (2, 1)"
    assert printed.stdout.strip() == expected, printed.stderr


def test_a_small_frame_takes_what_is_pandas_own() -> None:
    theirs = made(20)
    frame = pd.DataFrame(theirs)
    assert_same(frame.assign(more=theirs.price), theirs.assign(more=theirs.price))
    assert_same(frame.price + theirs.price, theirs.price + theirs.price)
    assert_same(frame[theirs.price > 0], theirs[theirs.price > 0])
    assert_same(frame.merge(theirs, on="key"), theirs.merge(theirs, on="key"))


def _by_label(frame: Any) -> None:
    frame["b"] = frame["b"] * 2
    frame["new"] = 1


def _by_mask(frame: Any) -> None:
    frame[frame["b"] > 4.0] = 0


def _by_list(frame: Any) -> None:
    frame[["a", "b"]] = frame[["b", "a"]].to_numpy()


@pytest.mark.parametrize("change", [_by_label, _by_mask, _by_list])
def test_what_is_assigned_to_a_small_frame_is_in_it_alone(change: Callable[[Any], None]) -> None:
    theirs = pandas.DataFrame({"a": [1, 2, 3], "b": [4.0, 5.0, 6.0]})
    frame = pd.DataFrame(theirs.copy())
    copied, groups, sibling = frame.copy(), frame.groupby("a"), pd.DataFrame(frame)
    before = theirs.copy()
    change(frame)
    change(theirs)
    assert_same(frame, theirs)
    assert_same(sibling, theirs)
    assert_same(copied, before)
    assert_same(groups.b.sum(), before.groupby("a").b.sum())
    with pytest.raises(ValueError, match="Length of values"):
        frame["b"] = [1]


def test_columns_of_two_levels_are_assigned_to() -> None:
    theirs = pandas.DataFrame([[1, 2, 3]], columns=pandas.MultiIndex.from_tuples([("a", "x"), ("b", "x"), ("b", "y")]))
    frame = pd.DataFrame(theirs)
    frame["b"] = frame["b"] * 2
    theirs["b"] = theirs["b"] * 2
    assert_same(frame, theirs)


@pytest.mark.usefixtures("weft_session")
def test_a_small_frame_that_grows_by_a_column_moves_to_weft() -> None:
    frame = pd.DataFrame()
    frame["a"] = np.arange(LIMIT + 1)
    assert (frame.get_backend(), len(frame)) == ("Weft", LIMIT + 1)


def test_columns_of_one_name_are_a_frame() -> None:
    theirs = pandas.DataFrame([[1, 2, 3]], columns=["a", "a", "b"])
    frame = pd.DataFrame(theirs)
    assert_same(frame["a"], theirs["a"])
    assert_same(frame.a, theirs.a)
    assert_same(frame["b"], theirs["b"])


def test_groups_of_a_small_frame_are_modins_to_programs() -> None:
    from modin.pandas.groupby import DataFrameGroupBy, SeriesGroupBy

    theirs = made(LIMIT)
    groups = pd.DataFrame(theirs).groupby("word")
    assert isinstance(groups, DataFrameGroupBy)
    assert isinstance(groups.price, SeriesGroupBy)
    highest = groups[["price"]].apply(lambda group: group.price.max())
    assert_same(highest, theirs.groupby("word")[["price"]].apply(lambda group: group.price.max()))
    assert_same(groups.price.agg(lambda column: column.max()), theirs.groupby("word").price.max())
    assert [name for name, _ in groups] == ["loom", "warp", "weft"]
    assert len(groups) == groups.ngroups == 3


def test_places_of_a_small_frame_are_read_and_written() -> None:
    frame = pd.DataFrame({"a": [1, 2, 3], "b": [4.0, 5.0, 6.0]})
    frame.loc[1, "a"] = 20
    frame.iloc[0, 1] = 40.0
    frame.at[2, "b"] = 60.0
    assert (frame.loc[1, "a"], frame.iat[0, 1], frame.b.iloc[-1]) == (20, 40.0, 60.0)
    assert frame.loc[lambda f: f.a > 1, "b"].tolist() == [5.0, 60.0]
    with pytest.raises(IndexError):
        frame.iloc[7]


def test_words_of_other_libraries_are_answered(shared_weft_session: Any) -> None:
    for rows in (10, 2 * LIMIT):
        with pytest.raises(AttributeError, match="computed as they are used"):
            pd.DataFrame(made(rows)).compute()
    with pytest.raises(AttributeError, match=r"Did you mean weft\.pandas\.modin\.read_csv\?"):
        pd.read_cvs  # noqa: B018
    with pytest.raises(ImportError, match="computed as they are used"):
        from weft.pandas.modin import compute  # noqa: F401
    with pytest.raises(AttributeError, match="no attribute '__nothing__'"):
        pd.__nothing__  # noqa: B018
