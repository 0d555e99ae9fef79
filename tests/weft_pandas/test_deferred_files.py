"""Files read in parts give what pandas reads, to the bit; what cannot be is read by pandas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import odd_frames
import pandas
import pytest

import weft.pandas as pd
from weft.pandas.frames import is_deferred
from weft.pandas.moves import moves

NAMES = ["key", "price", "flag", "word"]


def written(folder: Path, text: str) -> Path:
    path = folder / "rows.csv"
    path.write_text(text, newline="")
    return path


def test_a_large_file_is_read_in_parts(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    pandas.DataFrame(odd_frames.columns())[NAMES].to_csv(path, index=False)
    frame = pd.read_csv(path)
    assert is_deferred(frame)
    assert len(frame) == odd_frames.ROWS
    odd_frames.assert_same(frame.price.sum(), pandas.read_csv(path).price.sum())
    odd_frames.assert_same(frame[frame.key > 20], pandas.read_csv(path).query("key > 20"))
    odd_frames.assert_same(frame, pandas.read_csv(path))
    assert moves.on_parts["read_csv"].count == 1


def test_a_file_of_medium_size_is_read_in_parts_and_put_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.pandas.limits.LEAST_TEXT_BYTES", 1_000)
    pd.set_rows(None)
    path = tmp_path / "rows.csv"
    pandas.DataFrame(odd_frames.columns())[NAMES].to_csv(path, index=False)
    frame = pd.read_csv(path)
    assert type(frame) is pandas.DataFrame
    assert moves.on_parts["read_csv"].count == 1
    odd_frames.assert_same(frame, pandas.read_csv(path))
    frame.loc[0, "key"] = 7
    assert frame.key[0] == 7


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "ints, then a hole": ("a,b\n" + "1,2\n" * 50 + ",3\n" + "4,5\n" * 50, {}),
    "ints, then floats": ("a,b\n" + "1,2\n" * 90 + "1.5,3\n" * 10, {}),
    "quotes over lines": ("a,b\n" + '"x\ny, z",2\n' * 60 + '"q ""in"" q",3\n' * 20, {}),
    "types given": ("a,b\n" + "1,2\n" * 90, {"dtype": {"a": "float64"}}),
    "columns chosen": ("a,b,c\n" + "1,2,x\n" * 90, {"usecols": ["c", "a"]}),
    "semicolons": ("a;b\n" + "1;2\n" * 90, {"sep": ";"}),
    "carriage returns and line feeds": ("a,b\r\n" + "1,2\r\n" * 90, {}),
    "no line end at the end": ("a,b\n" + "1,2\n" * 90 + "3,4", {}),
    "texts": ("a,b\n" + "é,ü\n" * 90, {}),
    "markers of holes": ("a,b\n" + "1,-\n" * 90 + "2,NA\n", {"na_values": ["-"]}),
}


@pytest.mark.parametrize("name", CASES)
def test_files_in_parts_are_what_pandas_reads(name: str, tmp_path: Path) -> None:
    text, kwargs = CASES[name]
    path = written(tmp_path, text)
    frame = pd.read_csv(path, **kwargs)
    assert is_deferred(frame)
    odd_frames.assert_same(frame, pandas.read_csv(path, **kwargs))


BY_PANDAS: dict[str, tuple[str, dict[str, Any]]] = {
    "ints, then texts": ("a,b\n" + "1,2\n" * 60 + "x,3\n" * 30, {}),
    "bools, then texts": ("a,b\n" + "True,2\n" * 60 + "x,3\n" * 30, {}),
    "large ints, then floats": ("a,b\n" + f"{2**60 + 1},2\n" * 60 + "1.5,3\n" * 30, {}),
    "an index": ("a,b\n" + "1,2\n" * 90, {"index_col": "a"}),
    "more values than names": ("a,b\n" + "1,2,3\n" * 90, {}),
    "rows skipped": ("a,b\n" + "1,2\n" * 90, {"skiprows": [3]}),
    "dates": ("a,b\n" + "13/01/2026,2\n" * 30 + "01/02/2026,3\n" * 60, {"parse_dates": ["a"], "dayfirst": True}),
    "no header": ("1,2\n" * 90, {"header": None}),
    "a header of two lines": ('"a\nb",c\n' + "1,2\n" * 90, {}),
    "carriage returns alone": ("a,b\r" + "1,2\r" * 90, {}),
    "chunks": ("a,b\n" + "1,2\n" * 90, {"nrows": 5}),
    "blank lines before the header": ("\n\na,b\n" + "1,2\n" * 90, {}),
    "empty part at the end": ("a,b\n" + "1,2\n" * 30 + "\n" * 400, {}),
    "comments": ("a,b\n" + "1,2 # no\n" * 90, {"comment": "#"}),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", BY_PANDAS)
def test_what_cannot_be_cut_is_read_by_pandas(name: str, tmp_path: Path) -> None:
    text, kwargs = BY_PANDAS[name]
    path = written(tmp_path, text)
    frame = pd.read_csv(path, **kwargs)
    assert type(frame) is pandas.DataFrame
    assert "read_csv" in moves.in_pandas
    odd_frames.assert_same(frame, pandas.read_csv(path, **kwargs))


def test_errors_of_a_file_are_those_of_pandas(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        pd.read_csv(tmp_path / "nothing.csv")
    path = written(tmp_path, "a,b\n" + "1,2\n" * 90 + "1,2,3,4\n")
    with pytest.raises(pandas.errors.ParserError, match="line 92"):
        pd.read_csv(path)


def test_groups_of_rows_are_read_in_parts(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pandas.DataFrame(odd_frames.columns()).drop(columns=["kind", "whole"]).to_parquet(path, row_group_size=200)
    frame = pd.read_parquet(path)
    assert is_deferred(frame)
    odd_frames.assert_same(frame, pandas.read_parquet(path))
    some = pd.read_parquet(path, columns=["word", "key"])
    assert is_deferred(some)
    odd_frames.assert_same(some, pandas.read_parquet(path, columns=["word", "key"]))


def test_categories_are_read_by_pandas(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pandas.DataFrame(odd_frames.columns()).to_parquet(path, row_group_size=200)
    odd_frames.assert_same(pd.read_parquet(path), pandas.read_parquet(path))
    assert "read_parquet" in moves.in_pandas


def test_ints_with_holes_of_one_group_are_read_by_pandas(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    path = tmp_path / "rows.parquet"
    parquet.write_table(pa.table({"a": pa.array([1, 2, None, 4], pa.int64())}), path, row_group_size=2)
    odd_frames.assert_same(pd.read_parquet(path), pandas.read_parquet(path))


def test_a_file_with_an_index_is_read_by_pandas(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pandas.DataFrame({"a": range(10)}, index=list("abcdefghij")).to_parquet(path, row_group_size=3)
    frame = pd.read_parquet(path)
    assert type(frame) is pandas.DataFrame
    odd_frames.assert_same(frame, pandas.read_parquet(path))


@pytest.mark.usefixtures("weft_session")
def test_on_the_engine_it_is_what_pandas_gives(tmp_path: Path) -> None:
    from weft.pandas import parts

    path = tmp_path / "rows.csv"
    pandas.DataFrame(odd_frames.columns())[NAMES].to_csv(path, index=False)
    chosen, parts._chosen = parts._chosen, None
    try:
        plain = pandas.read_csv(path)
        frame = pd.read_csv(path)
        assert is_deferred(frame)
        frame["double"] = frame.price * 2
        plain["double"] = plain.price * 2
        bound = 20
        for call in (
            lambda df: df[df.key > 3].double.sum(),
            lambda df: df.key.map(lambda value: value + bound),
            lambda df: df.word.str.upper(),
            lambda df: df.groupby("key").price.max(),
            lambda df: df.groupby("word").agg({"price": "mean"}),
            lambda df: df.merge(pandas.DataFrame({"key": range(50), "z": np.arange(50.0)}), on="key"),
            lambda df: df[["key", "price"]].apply(lambda row: row.key + row.price, axis=1),
        ):
            odd_frames.assert_same(call(frame), call(plain))
        assert is_deferred(frame)
        with pytest.raises(ZeroDivisionError):
            frame.key.map(lambda value: 1 // 0)
        odd_frames.assert_same(frame, plain)
        made = pd.DataFrame(odd_frames.columns())
        assert is_deferred(made)
        odd_frames.assert_same(made.sort_values("price"), pandas.DataFrame(odd_frames.columns()).sort_values("price"))
    finally:
        parts._chosen = chosen
