"""Formats there and back, on real files: partitions in folders, ORC, Avro, Excel, WebDataset; and tables of lakehouses,
where their libraries are installed."""

from __future__ import annotations

import contextlib
import datetime as dt
import importlib
import io
import tarfile
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from weft import data

pytestmark = pytest.mark.usefixtures("shared_weft_session")
ROWS = [
    {"id": number, "city": ["Ulm", "Bonn", None][number % 3], "day": dt.date(2024, 1, 1 + number % 2), "x": number / 4}
    for number in range(60)
]


def made() -> data.Dataset:
    return data.from_items(ROWS, parallelism=4)


def in_order(dataset: data.Dataset) -> list[dict[str, Any]]:
    rows = dataset.sort("id").take_all()
    return [{name: row[name] for name in ROWS[0]} for row in rows]


@pytest.fixture(autouse=True, scope="session")
def _libraries_are_awake(tmp_path_factory: pytest.TempPathFactory) -> None:
    """They open descriptors at their first use that are theirs and stay: before the checks for leaks begin."""
    folder, table = tmp_path_factory.mktemp("awake"), pa.table({"x": [1]})
    with contextlib.suppress(ModuleNotFoundError):
        deltalake = importlib.import_module("deltalake")
        deltalake.write_deltalake(str(folder / "delta"), table)
        assert deltalake.DeltaTable(str(folder / "delta")).to_pyarrow_dataset().count_rows() == 1
        deltalake.DeltaTable(str(folder / "delta")).delete("x = 2")
    with contextlib.suppress(ModuleNotFoundError):
        lance = importlib.import_module("lance")
        assert lance.write_dataset(table, str(folder / "lance")).count_rows() == 1
        assert lance.dataset(str(folder / "lance")).to_table().num_rows == 1


# ---- partitions in folders -----------------------------------------------------------------------------


def test_partitions_are_written_to_folders_and_read_back(tmp_path: Path) -> None:
    paths = made().write_parquet(str(tmp_path), partition_by=["city", "day"])
    assert {str(Path(path).parent.relative_to(tmp_path)) for path in paths} == {
        f"city={city}/day=2024-01-0{day}" for city in ("Ulm", "Bonn", "__HIVE_DEFAULT_PARTITION__") for day in (1, 2)
    }
    assert pl.read_parquet(paths[0], hive_partitioning=False).columns == ["id", "x"]
    found = data.read_parquet(str(tmp_path))
    assert in_order(found) == ROWS
    assert found.schema().field("day").type == pa.date32()
    others = pl.read_parquet(str(tmp_path / "**/*.parquet"), hive_partitioning=True, try_parse_hive_dates=True)
    assert others.sort("id")["city"].to_list() == [row["city"] for row in ROWS]


def test_files_of_other_partitions_are_not_read(tmp_path: Path) -> None:
    made().write_parquet(str(tmp_path), partition_by="city")
    for path in tmp_path.glob("city=Bonn/*"):
        path.write_bytes(path.read_bytes()[:-40] + bytes(32) + path.read_bytes()[-8:])  # nobody may ask for its rows
    whole = data.read_parquet(str(tmp_path), on_error="skip")
    ulm = whole.filter((data.col("city") == "Ulm") & (data.col("x") < 5))
    assert "parquet, 4 files" in ulm.explain() or "parquet, 3 files" in ulm.explain()
    assert [row["id"] for row in ulm.sort("id").take_all()] == [n for n in range(0, 60, 3) if n / 4 < 5]
    nobody = data.read_parquet([str(path) for path in tmp_path.glob("city=Ulm/*")]).filter(data.col("city") == "Rom")
    assert nobody.take_all() == [] and nobody.columns() == ["id", "day", "x", "city"]


def test_an_overwrite_replaces_all_partitions_and_a_failure_leaves_them(tmp_path: Path) -> None:
    made().write_parquet(str(tmp_path), partition_by="city")

    def fails(row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "x": 1 / (row["id"] - 41)}

    with pytest.raises(data.RowError):
        made().map(fails).write_parquet(str(tmp_path), partition_by="city", mode="overwrite")
    assert in_order(data.read_parquet(str(tmp_path))) == ROWS
    kept = made().filter(data.col("city") == "Ulm")
    kept.write_parquet(str(tmp_path), partition_by="day", mode="overwrite")
    assert data.read_parquet([str(path) for path in tmp_path.glob("day=*")]).count() == 20
    assert not list(tmp_path.glob("city=*/*.parquet")) and not list(tmp_path.glob(".weft*"))
    with pytest.raises(data.WriteError, match="no column 'town'"):
        made().write_parquet(str(tmp_path), partition_by="town")
    with pytest.raises(data.WriteError, match="must leave a column"):
        made().select("city").write_parquet(str(tmp_path), partition_by="city")
    with pytest.raises(data.WriteError, match=r"column 'l' is .*no name of a folder"):
        data.from_items([{"l": [1], "x": 1}]).write_parquet(str(tmp_path), partition_by="l")


def test_names_of_folders_may_be_any_text(tmp_path: Path) -> None:
    odd = [{"id": n, "name": text} for n, text in enumerate(["a/b", "50%", "x=y", "ö", "007", ""])]
    data.from_items(odd).write_parquet(str(tmp_path), partition_by="name")
    found = data.read_parquet(str(tmp_path)).sort("id").take_all()
    assert found == odd


# ---- files -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["orc", "avro"])
def test_rows_come_back_from_files(tmp_path: Path, kind: str) -> None:
    getattr(made(), f"write_{kind}")(str(tmp_path))
    found = getattr(data, f"read_{kind}")(str(tmp_path))
    assert in_order(found) == ROWS
    assert found.filter(data.col("city") == "Ulm").select("x").sum("x") == sum(n / 4 for n in range(0, 60, 3))
    (tmp_path / f"bad.{kind}").write_bytes(b"this is no such file")
    with pytest.raises(data.DataError, match=f"bad.{kind}"):
        getattr(data, f"read_{kind}")(str(tmp_path)).take_all()


def test_sheets_come_back_from_workbooks(tmp_path: Path) -> None:
    pytest.importorskip("openpyxl")
    made().write_excel(str(tmp_path))
    found = data.read_excel(str(tmp_path))
    assert in_order(found.with_column("day", data.col("day").dt.date())) == ROWS  # a cell has no date without a time
    with pytest.raises(data.DataError, match="other"):
        data.read_excel(str(tmp_path), sheet="other").take_all()


def test_samples_come_back_from_archives(tmp_path: Path) -> None:
    samples = [
        {"__key__": f"s{n}", "cls": n, "txt": f"number {n}", "json": {"n": n}, "seg.png": bytes([n])} for n in range(9)
    ]
    data.from_items(samples, parallelism=3).write_webdataset(str(tmp_path))
    found = sorted(data.read_webdataset(str(tmp_path)).take_all(), key=lambda row: str(row["__key__"]))
    assert found == samples
    raw = data.read_webdataset(str(tmp_path), decode=False).filter(data.col("__key__") == "s4").take()
    assert raw[0]["json"] == b'{"n": 4}'
    with tarfile.open(tmp_path / "other.tar", "w") as archive:  # as another program writes it: in a folder, one absent
        for name, content in (("a/1.txt", b"one"), ("a/1.cls", b"1"), ("a/2.cls", b"2")):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    assert data.read_webdataset(str(tmp_path / "other.tar")).take_all() == [
        {"__key__": "a/1", "txt": "one", "cls": 1},
        {"__key__": "a/2", "txt": None, "cls": 2},
    ]
    with pytest.raises(data.WriteError, match="named by a column '__key__'"):
        made().write_webdataset(str(tmp_path))


# ---- tables ----------------------------------------------------------------------------------------------


def test_a_delta_table_is_read_at_any_of_its_versions(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    path = str(tmp_path / "table")
    assert made().write_delta(path, partition_by=["city"]) == 60
    assert in_order(data.read_delta(path)) == ROWS
    assert made().limit(5).write_delta(path) == 5
    deltalake.DeltaTable(path).delete("city = 'Bonn'")
    assert data.read_delta(path).filter(data.col("city") == "Bonn").count() == 0
    assert data.read_delta(path, version=1).count() == 65
    assert data.read_delta(path, version=0).select("x").sum("x") == sum(row["x"] for row in ROWS)
    with pytest.raises(data.RowError):
        made().map(lambda row: {**row, "x": 1 / (row["id"] - 41)}).write_delta(path, mode="overwrite")
    assert deltalake.DeltaTable(path).version() == 2


def test_an_iceberg_table_is_read_with_columns_that_came_later(tmp_path: Path) -> None:
    memory = pytest.importorskip("pyiceberg.catalog.memory")
    catalog = memory.InMemoryCatalog("catalog", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("db")
    table = catalog.create_table("db.trips", schema=pa.Table.from_pylist(ROWS).schema)
    assert made().write_iceberg(table) == 60
    assert in_order(data.read_iceberg(table)) == ROWS
    first = table.current_snapshot().snapshot_id
    with table.update_schema() as update:
        update.add_column("tip", importlib.import_module("pyiceberg.types").DoubleType())
        update.rename_column("x", "fare")
    table.append(pa.table({"id": [60], "fare": [1.5], "tip": [0.5]}))
    table.delete("id < 10")
    assert data.read_iceberg(table).count() == 51
    assert data.read_iceberg(table).filter(data.col("id") >= 59).sort("id").select("fare", "tip").take_all() == [
        {"fare": 14.75, "tip": None},
        {"fare": 1.5, "tip": 0.5},
    ]
    assert data.read_iceberg(table, snapshot_id=first).count() == 60
    with pytest.raises(ValueError, match=r"needs the catalog of 'db\.trips'"):
        data.read_iceberg("db.trips")


def test_a_lance_dataset_is_read_at_any_of_its_versions(tmp_path: Path) -> None:
    pytest.importorskip("lance")
    path = str(tmp_path / "table.lance")
    assert made().write_lance(path) == 60
    assert made().limit(5).write_lance(path) == 5
    assert data.read_lance(path).count() == 65
    assert in_order(data.read_lance(path, version=1)) == ROWS
    assert data.read_lance(path).select("city").filter(data.col("city").is_null()).to_polars().height == 21


def test_a_dataset_of_hugging_face_is_read_in_parts() -> None:
    datasets = pytest.importorskip("datasets")
    theirs = datasets.Dataset.from_list([{"n": n, "text": f"number {n}"} for n in range(5000)])
    found = data.from_huggingface(theirs.filter(lambda row: row["n"] % 2 == 0), parts=3)
    assert found.sum("n") == sum(range(0, 5000, 2))
    assert [row["text"] for row in found.take(2)] == ["number 0", "number 2"]


@pytest.mark.parametrize(
    ("call", "package"),
    [
        (lambda path: data.read_delta(path), "deltalake"),
        (lambda path: data.read_iceberg("db.t", catalog={"uri": path}), "pyiceberg"),
        (lambda path: data.read_lance(path), "pylance"),
        (lambda path: data.range(3).write_excel(path), "openpyxl"),
    ],
)
def test_a_library_that_is_not_there_is_named(
    call: Any, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = {"pylance": "lance"}.get(package, package)
    importing = importlib.import_module

    def without(wanted: str, *given: Any) -> Any:
        if wanted.partition(".")[0] == name:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return importing(wanted, *given)

    if package == "openpyxl":
        from weft.data.sources import other_formats

        monkeypatch.setattr(importlib, "import_module", without)
        with pytest.raises(ModuleNotFoundError, match="needs openpyxl: pip install openpyxl"):
            other_formats.save_excel(pa.table({"x": [1]}), io.BytesIO())
        return
    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(ModuleNotFoundError, match=f"needs {package}: pip install {package}"):
        call(str(tmp_path))
