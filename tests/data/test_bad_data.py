"""What is wrong is named by file, row and column, or skipped and counted; and no partial file is left."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from weft import data
from weft.data.writers import Writer, save_csv

pytestmark = pytest.mark.usefixtures("shared_weft_session")


def write(folder: Path, **files: str) -> str:
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    return str(folder)


# ---- files ------------------------------------------------------------------------------------------


def test_a_value_of_the_wrong_type_in_a_csv_is_named(tmp_path: Path) -> None:
    rows = "".join(f"{i},{i * 2}\n" for i in range(2000))
    path = write(tmp_path, a_csv="x,y\n" + rows + "7,many\n8,9\n")
    with pytest.raises(data.ReadError) as caught:
        data.read_csv(path).take_all()
    error = caught.value
    assert (error.path, error.row, error.column) == (f"{path}/a.csv", 2000, "y")
    assert "'many' is no Int64" in str(error)


def test_rows_of_a_csv_that_can_not_be_read_are_skipped_and_counted(tmp_path: Path) -> None:
    rows = "".join(f"{i},{i * 2}\n" for i in range(2000))
    path = write(tmp_path, a_csv="x,y\n" + rows + "7,many\n8,9\nnone,3\n", b_csv="x,y\n1,2\n")
    ds = data.read_csv(path, on_error="skip")
    assert ds.count() == 2002
    assert ds.statistics is not None and ds.statistics.skipped == {"rows that cannot be read": 2}


@pytest.mark.parametrize(
    ("bad", "column", "message"),
    [(b"3,4,5\n", None, "must have 2 fields"), (b"5,M\xfcller\n", "y", "no UTF-8"), (b"x,y\n", "x", "no Int64")],
)
def test_a_row_of_a_csv_that_is_none_is_named_or_skipped(
    tmp_path: Path, bad: bytes, column: str | None, message: str
) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(b"x,y\n" + b"1,one\n" * 2000 + bad + b"2,two\n")
    with pytest.raises(data.ReadError, match=message) as caught:
        data.read_csv(str(file)).take_all()
    assert (caught.value.path, caught.value.row, caught.value.column) == (str(file), 2000, column)
    ds = data.read_csv(str(file), on_error="skip")
    assert [row["x"] for row in ds.take_all()] == [1] * 2000 + [2]
    assert ds.statistics is not None and ds.statistics.skipped == {"rows that cannot be read": 1}


def test_a_text_among_numbers_of_json_is_named_or_skipped(tmp_path: Path) -> None:
    file = write(tmp_path, a_json='{"x": 1}\n{"x": null}\n{"x": "three"}\n{"x": 4}\n') + "/a.json"
    with pytest.raises(data.ReadError) as caught:
        data.read_json(file).take_all()
    assert (caught.value.path, caught.value.row, caught.value.column) == (file, 2, "x")
    ds = data.read_json(file, on_error="skip")
    assert [row["x"] for row in ds.take_all()] == [1, None, 4]
    assert ds.statistics is not None and ds.statistics.skipped == {"rows that cannot be read": 1}


def test_a_broken_line_of_json_is_named_or_skipped(tmp_path: Path) -> None:
    path = write(tmp_path, a_json='{"x": 1}\n{"x": 2}\n', b_json='{"x": 3}\n{"x": \n{"x": "text"}\n{"x": 4}\n')
    with pytest.raises(data.ReadError) as caught:
        data.read_json(path).take_all()
    assert (caught.value.path, caught.value.row) == (f"{path}/b.json", 1)
    ds = data.read_json(path, on_error="skip")
    assert [row["x"] for row in ds.take_all()] == [1, 2, 3, 4]
    assert ds.statistics is not None and ds.statistics.skipped == {"rows that cannot be read": 2}


def test_a_corrupt_parquet_file_is_named_or_skipped(tmp_path: Path) -> None:
    for name in "ab":
        pq.write_table(pa.table({"x": list(range(1000)), "y": ["text"] * 1000}), tmp_path / f"{name}.parquet")
    whole = (tmp_path / "b.parquet").read_bytes()
    (tmp_path / "b.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(data.ReadError, match=r"b\.parquet cannot be read"):
        data.read_parquet(str(tmp_path)).count()
    ds = data.read_parquet(str(tmp_path), on_error="skip")
    assert len(ds.take_all()) == 1000
    assert ds.statistics is not None and ds.statistics.skipped == {"files that cannot be read": 1}


def test_a_corrupt_column_of_parquet_is_named(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": list(range(1000)), "y": list(range(1000))}), file, compression="zstd")
    start = pq.read_metadata(file).row_group(0).column(1).data_page_offset
    broken = bytearray(file.read_bytes())
    broken[start + 30 : start + 200] = b"\xff" * 170
    file.write_bytes(bytes(broken))
    with pytest.raises(data.ReadError) as caught:
        data.read_parquet(str(file)).take_all()
    assert (caught.value.path, caught.value.column) == (str(file), "y")
    assert data.read_parquet(str(file)).select("x").filter(data.col("x") > 500).count() == 499


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_drift_of_the_schema_is_named_or_filled(tmp_path: Path, kind: str) -> None:
    first, other, more = {"x": [1], "y": ["a"]}, {"x": [2.0], "z": [1]}, {"x": [3], "y": ["c"], "z": [2]}
    for name, columns in zip("abc", (first, other, more), strict=True):
        getattr(data.from_arrow(pa.table(columns), parallelism=1), f"write_{kind}")(str(tmp_path / name))
    paths = [str(tmp_path / name) for name in "abc"]
    with pytest.raises(data.SchemaError) as caught:
        getattr(data, f"read_{kind}")(paths[:2]).take_all()  # of several, the one that is found first is told
    assert caught.value.column in ("x", "y") and "/b/" in caught.value.path
    rows = getattr(data, f"read_{kind}")(paths, schema_drift="fill").take_all()
    assert rows == [{"x": 1, "y": "a"}, {"x": 2, "y": None}, {"x": 3, "y": "c"}]


@pytest.mark.parametrize("kind", ["parquet", "csv", "json"])
def test_a_union_of_schemas_has_the_columns_of_all_files(tmp_path: Path, kind: str) -> None:
    files = ({"x": [1], "y": ["a"]}, {"x": [2.5], "z": [1]}, {"z": [2], "y": ["c"], "x": [3]})
    for name, columns in zip("abc", files, strict=True):
        getattr(data.from_arrow(pa.table(columns), parallelism=1), f"write_{kind}")(str(tmp_path / name))
    ds = getattr(data, f"read_{kind}")([str(tmp_path / name) for name in "abc"], schema_drift="union")
    assert ds.columns() == ["x", "y", "z"]
    assert ds.take_all() == [
        {"x": 1.0, "y": "a", "z": None},
        {"x": 2.5, "y": None, "z": 1},
        {"x": 3.0, "y": "c", "z": 2},
    ]
    assert ds.filter(data.col("z") > 1).select("y").take_all() == [{"y": "c"}]


LATE = '{"x": 1}\n' * 150
JSON_DRIFT = {
    "a field of an object": ('{"m": {"a": 1}}\n', '{"m": {"b": 2}}\n', "m.b", {"m": {"a": None, "b": 2}}),
    "a field within a list": ('{"m": [{"a": 1}]}\n', '{"m": [{"b": 2}]}\n', "m.b", {"m": [{"a": None, "b": 2}]}),
    "a column": ('{"x": 1}\n', '{"x": 2, "y": 3}\n', "y", {"x": 2, "y": 3}),
    "a late column": (LATE, LATE + '{"x": 2, "y": 3}\n', "y", {"x": 2, "y": 3}),
    "a late field": (
        '{"m": {"a": 1}}\n',
        '{"m": {"a": 1}}\n' * 150 + '{"m": {"b": 2}}\n',
        "m.b",
        {"m": {"a": None, "b": 2}},
    ),
    "what was null": ('{"x": null, "y": 1}\n', '{"x": {"a": 1}, "y": 2}\n', "x", {"x": {"a": 1}, "y": 2}),
    "a column that is missing": ('{"x": 1, "y": 2}\n', '{"y": 3}\n', "x", {"x": None, "y": 3}),
    "an array": ('{"x": 1}\n', '[{"x": 1}, {"x": 2, "y": 3}]', "y", {"x": 2, "y": 3}),
}


@pytest.mark.parametrize("which", JSON_DRIFT)
def test_no_field_of_json_is_lost_in_silence(tmp_path: Path, which: str) -> None:
    first, second, column, expected = JSON_DRIFT[which]
    path = write(tmp_path, a_json=first, b_json=second)
    with pytest.raises(data.SchemaError, match="schema_drift='union'") as caught:
        data.read_json(path).take_all()
    assert (caught.value.path, caught.value.column) == (f"{path}/b.json", column)
    assert data.read_json(path, schema_drift="union").take_all()[-1] == expected
    if which != "what was null":  # which no value can be cast to
        names = data.read_json(f"{path}/a.json").columns()
        assert data.read_json(path, schema_drift="fill").to_arrow().column_names == names


def test_rows_of_json_with_fields_that_the_dataset_has_not_are_skipped_and_counted(tmp_path: Path) -> None:
    path = write(tmp_path, a_json='{"m": {"a": 1}}\n', b_json='{"m": {"a": 2}}\n{"m": {"b": 3}}\n{"m": null}\n')
    ds = data.read_json(path, on_error="skip")
    assert ds.take_all() == [{"m": {"a": 1}}, {"m": {"a": 2}}, {"m": None}]
    assert ds.statistics is not None and ds.statistics.skipped == {"rows that cannot be read": 1}


def test_fields_that_come_late_in_the_only_file_are_read(tmp_path: Path) -> None:
    path = write(tmp_path, a_json=LATE + '{"x": 2, "y": {"z": 3}}\n')
    assert data.read_json(path).take_all()[-1] == {"x": 2, "y": {"z": 3}}
    array = write(tmp_path, b_json="[" + ",".join(['{"x": 1}'] * 150) + ', {"x": 2, "y": 3}]')
    assert data.read_json(f"{array}/b.json").take_all()[-1] == {"x": 2, "y": 3}


def test_a_map_column_is_written_to_json_and_read_back_whole(tmp_path: Path) -> None:
    maps = pa.array([[("a", 1)], [("b", 2)], [], [("a", 3), ("c", 4)]], pa.map_(pa.string(), pa.int64()))
    data.from_arrow(pa.table({"m": maps}), parallelism=4).write_json(str(tmp_path))
    rows = data.read_json(str(tmp_path), schema_drift="union").take_all()
    assert [{key: value for key, value in row["m"].items() if value is not None} for row in rows] == [
        {"a": 1},
        {"b": 2},
        {},
        {"a": 3, "c": 4},
    ]
    with pytest.raises(data.SchemaError, match="schema_drift"):
        data.read_json(str(tmp_path)).take_all()


def test_empty_files_are_no_rows(tmp_path: Path) -> None:
    path = write(tmp_path, a_csv="", b_csv="x\n1\n", c_csv="")
    ds = data.read_csv(path)
    assert ds.take_all() == [{"x": 1}]
    assert ds.statistics is not None and ds.statistics.skipped == {"empty files": 2}
    (tmp_path / "b.csv").write_text("")
    assert data.read_csv(path).take_all() == []


def test_an_image_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"no image")
    with pytest.raises(data.ReadError, match=r"a\.png"):
        data.read_images(str(tmp_path)).take_all()


# ---- users' functions -------------------------------------------------------------------------------


def reciprocal(row: dict[str, Any]) -> dict[str, Any]:
    return {"y": 1 / (row["x"] - 1234)}


def test_a_function_that_raises_on_one_row_is_told_with_file_and_row(tmp_path: Path) -> None:
    path = write(tmp_path, a_csv="x\n1\n", b_csv="x\n" + "".join(f"{i}\n" for i in range(1000, 2000)))
    with pytest.raises(data.RowError) as caught:
        data.read_csv(path).map(reciprocal).take_all()
    error = caught.value
    assert (error.operator, error.where, error.row) == ("map(reciprocal)", f"{path}/b.csv", 234)
    assert "ZeroDivisionError" in str(error)
    ds = data.read_csv(path).map(reciprocal, on_error="skip")
    assert len(ds.take_all()) == 1000
    assert ds.statistics is not None and ds.statistics.skipped == {"map(reciprocal)": 1}


def test_a_missing_column_is_named() -> None:
    with pytest.raises(data.RowError) as caught:
        data.range(10, blocks=1).map(lambda row: {"y": row["nope"]}).take_all()
    assert (caught.value.row, caught.value.column) == (0, "nope")


def test_a_key_error_of_a_functions_own_is_no_missing_column() -> None:
    with pytest.raises(data.RowError, match="KeyError: 'mine'") as caught:
        data.range(10, blocks=1).map(lambda row: {"y": {}["mine"]}).take_all()
    assert (caught.value.row, caught.value.column) == (0, None)


WRONG_COLUMN: dict[str, Any] = {
    "filter": lambda ds: ds.filter(data.col("prcie") > 1),
    "select": lambda ds: ds.select("prcie"),
    "with_column": lambda ds: ds.with_column("c", data.col("prcie") + 1),
    "over all rows": lambda ds: ds.with_column("c", data.col("prcie").cum_sum()),
    "sql": lambda ds: ds.filter("prcie > 3"),
    "sort": lambda ds: ds.sort("name", "prcie"),
    "drop": lambda ds: ds.drop("prcie"),
    "rename": lambda ds: ds.rename({"prcie": "cost"}),
    "groupby": lambda ds: ds.groupby("prcie").count(),
    "agg": lambda ds: ds.groupby("name").sum("prcie"),
    "map_groups": lambda ds: ds.groupby("prcie").map_groups(lambda group: group),
    "join": lambda ds: ds.join(ds, on="prcie"),
    "join, right": lambda ds: ds.join(ds, on="price", right_on="prcie"),
    "unique": lambda ds: ds.unique("prcie"),
    "sum": lambda ds: ds.sum("prcie"),
}


@pytest.mark.parametrize("step", WRONG_COLUMN)
def test_a_misspelt_column_is_told_when_the_step_is_written_with_the_one_that_was_meant(step: str) -> None:
    ds = data.from_items([{"price": 1, "name": "a", "other": 2}]).filter(data.col("other") > 1)
    with pytest.raises(data.RowError, match=r"did you mean 'price'\? There are: price, name, other") as caught:
        WRONG_COLUMN[step](ds)
    assert caught.value.column == "prcie"


@pytest.mark.parametrize("step", [name for name in WRONG_COLUMN if name not in ("drop",)])
def test_a_misspelt_column_behind_a_function_is_told_when_it_runs(step: str) -> None:
    ds = data.from_items([{"price": 1, "name": "a", "other": 2}]).map(lambda row: row)
    with pytest.raises(data.RowError, match=r"did you mean 'price'\?") as caught:
        list(WRONG_COLUMN[step](ds))
    assert caught.value.column == "prcie"


def test_a_function_that_exits_is_told_as_one_that_raises() -> None:
    with pytest.raises(data.RowError, match="SystemExit") as caught:
        data.range(10, blocks=1).map(lambda row: sys.exit(3) if row["id"] == 4 else row).take_all()
    assert caught.value.row == 4


def test_a_place_that_can_not_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here")
    with pytest.raises(data.WriteError, match="file"):
        data.range(3).write_parquet(str(tmp_path / "file"))


def test_an_expression_that_fails_at_one_row_is_told_with_file_row_and_column(tmp_path: Path) -> None:
    path = write(tmp_path, a_csv="x\na1\n", b_csv="x\n" + "".join(f"a{i}\n" for i in range(100)) + "ax\na7\n")
    numbers = data.read_csv(path).with_column("x", data.col("x").str.slice(1).cast(pl.Int64))
    with pytest.raises(data.RowError) as caught:
        numbers.filter(data.col("x") >= 0).take_all()
    error = caught.value
    assert (error.where, error.row, error.column) == (f"{path}/b.csv", 100, "x")
    assert '"x"' in error.reason


def test_mixed_types_are_told_with_row_and_column() -> None:
    with pytest.raises(data.ReadError) as caught:
        data.from_items([{"x": 1}, {"x": 2}, {"x": "three"}])
    assert (caught.value.row, caught.value.column) == (2, "x")
    with pytest.raises(data.RowError) as wrong:
        data.range(5, blocks=1).map(lambda row: {"x": row["id"] if row["id"] < 3 else "text"}).take_all()
    assert (wrong.value.row, wrong.value.column) == (3, "x")


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda batch: 5, "must be a dict of arrays"),
        (lambda batch: {"x": [1], "y": [1, 2]}, "different lengths"),
        (lambda batch: {"x": 1}, "one value a row"),
    ],
)
def test_a_function_that_returns_no_batch_is_told(function: Any, message: str) -> None:
    with pytest.raises(data.RowError, match=message):
        data.range(5).map_batches(function).take_all()


def test_wrong_options_are_refused_at_once() -> None:
    ds = data.range(3)
    for wrong in (
        lambda: ds.map_batches(len, batch_format="excel"),
        lambda: ds.map(len, on_error="ignore"),
        lambda: ds.map_batches(len, batch_size=0),
        lambda: ds.join(ds, "id", how="sideways"),
        lambda: ds.groupby("id").agg(id="average"),
        lambda: ds.filter("id >"),
        lambda: data.read_csv("x", on_error="maybe"),
    ):
        with pytest.raises(ValueError, match=r"must be|no SQL"):
            wrong()
    with pytest.raises(TypeError, match="speed"):
        ds.map(len, speed=3)
    with pytest.raises(TypeError, match="batchsize; did you mean 'batch_size'"):
        ds.map_batches(len, batchsize=3)


def test_errors_survive_pickling() -> None:
    for error in (
        data.ReadError("a", "b", 1, "c"),
        data.SchemaError("a", "b", "c"),
        data.RowError("a", "b", 1, "c", "d"),
        data.WriteError("a", "b"),
    ):
        assert str(pickle.loads(pickle.dumps(error))) == str(error)


# ---- writing ----------------------------------------------------------------------------------------


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    target = tmp_path / "out"
    data.range(5).write_parquet(str(target))
    before = sorted(os.listdir(target))

    def late_failure(row: dict[str, Any]) -> dict[str, Any]:
        if row["id"] == 9_999:
            raise ValueError("no")
        return row

    with pytest.raises(data.RowError):
        data.range(10_000, blocks=20).map(late_failure).write_parquet(str(target))
    assert sorted(os.listdir(target)) == before


def test_tasks_that_still_write_after_a_failure_do_not_keep_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One comes between the removal of the staging folder's files and its own."""
    writer = Writer(str(tmp_path), "csv", save_csv)
    writer.begin()
    remove_folder = os.rmdir

    def after_a_task(path: Any, **given: Any) -> None:
        with contextlib.suppress(FileNotFoundError):
            Path(writer.staging, "part.csv").touch()
        remove_folder(path, **given)

    monkeypatch.setattr(os, "rmdir", after_a_task)
    writer.clean_up()
    assert not list(tmp_path.iterdir())


def test_what_a_killed_program_had_prepared_goes_with_the_next_write(tmp_path: Path) -> None:
    prepare = f"""
from weft.data.writers import Writer, save_csv
writer = Writer({str(tmp_path)!r}, "csv", save_csv)
writer.begin()
open(f"{{writer.staging}}/part.csv", "w").write("half")
print(writer.staging, flush=True)
input()
"""
    with subprocess.Popen(
        [sys.executable, "-c", prepare], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        staging = Path(program.stdout.readline().strip())
        data.range(3).write_csv(str(tmp_path))
        assert (staging / "part.csv").exists()
        program.kill()
    data.range(3).write_csv(str(tmp_path))
    assert not staging.exists()
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]
    assert data.read_csv(str(tmp_path)).count() == 6


def test_overwriting_replaces_and_refusing_refuses(tmp_path: Path) -> None:
    target = str(tmp_path / "out")
    data.range(5).write_parquet(target)
    data.range(7).write_parquet(target, mode="overwrite")
    assert data.read_parquet(target).count() == 7
    with pytest.raises(FileExistsError, match="not empty"):
        data.range(1).write_parquet(target, mode="error")
    assert data.read_parquet(target).count() == 7


def test_a_worker_killed_while_it_writes_is_tried_again(shared_weft_session: ModuleType, tmp_path: Path) -> None:
    marker = tmp_path / "killed"

    def die_once(batch: dict[str, Any]) -> dict[str, Any]:
        if batch["id"][0] == 0 and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return batch

    data.range(1000, blocks=4).map_batches(die_once).write_parquet(str(tmp_path / "out"))
    assert marker.exists()
    assert sorted(row["id"] for row in data.read_parquet(str(tmp_path / "out"))) == list(range(1000))
    assert not [name for name in os.listdir(tmp_path / "out") if name.startswith(".")]
