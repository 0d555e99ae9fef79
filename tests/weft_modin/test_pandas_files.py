"""Frames are read from files and written to them in parallel, and are what pandas reads and writes."""

from __future__ import annotations

import io
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas
import pytest
from frames import ROWS, assert_same, made

import weft.pandas.modin as pd

pytestmark = [
    pytest.mark.usefixtures("shared_weft_session"),
    pytest.mark.filterwarnings("ignore:.*efaulting to pandas"),
]


def simple() -> pandas.DataFrame:
    return made()[["key", "price", "word"]]


def write_fwf(frame: pandas.DataFrame, path: Path) -> None:
    path.write_text(frame.to_string(index=False))


FORMATS: dict[str, tuple[Callable[[pandas.DataFrame, Path], Any], Callable[[Any, Path], Any]]] = {
    "csv": (lambda f, path: f.to_csv(path, index=False), lambda m, path: m.read_csv(path)),
    "parquet": (lambda f, path: f.to_parquet(path), lambda m, path: m.read_parquet(path)),
    "json": (
        lambda f, path: f.to_json(path, orient="records", lines=True),
        lambda m, path: m.read_json(path, orient="records", lines=True),
    ),
    "feather": (lambda f, path: f.to_feather(path), lambda m, path: m.read_feather(path)),
    "fwf": (write_fwf, lambda m, path: m.read_fwf(path)),
    "pickle": (lambda f, path: f.to_pickle(path), lambda m, path: m.read_pickle(path)),
}


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_is_read_as_pandas_reads_it(name: str, tmp_path: Path) -> None:
    write, read = FORMATS[name]
    path = tmp_path / f"table.{name}"
    write(simple(), path)
    assert_same(read(pd, path), read(pandas, path))


CSV_OPTIONS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "some columns": {"usecols": ["word", "key"]},
    "an index": {"index_col": "key"},
    "types": {"dtype": {"key": "float32"}},
    "no header": {"header": None},
    "names": {"names": ["a", "b", "c"], "header": 0},
    "rows skipped": {"skiprows": 3},
    "a few rows": {"nrows": 700},
    "no quotes": {"quoting": 3},
    "an encoding": {"encoding": "utf-8"},
}


@pytest.mark.parametrize("name", CSV_OPTIONS)
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_csv_in_stretches_is_read_as_pandas_reads_it(name: str, line_end: str, tmp_path: Path) -> None:
    simple().to_csv(tmp_path / "table.csv", index=False, lineterminator=line_end)
    options = CSV_OPTIONS[name]
    ours = pd.read_csv(tmp_path / "table.csv", **options)
    assert_same(ours, pandas.read_csv(tmp_path / "table.csv", low_memory=False, **options))


NUMBERED = [f'{number},"{number}, quoted\nin two lines"' for number in range(900)]
ODD_CSV: dict[str, tuple[str, dict[str, Any]]] = {
    "lines that end with a carriage return": ("\r".join(["n,t", *(f"{n},x" for n in range(900))]), {}),
    "a name of two lines": ("\n".join(['"n\nn",t', *NUMBERED]), {}),
    "rows of two lines before the header": ("\n".join(["n,t", *NUMBERED]), {"header": 3}),
    "names of two rows, one of two lines": ("\n".join(["n,t", *NUMBERED]), {"header": [0, 1]}),
    "a comment before the header": ("\n".join(["# n, t", "n,t", *NUMBERED]), {"comment": "#"}),
    "an empty line before the header": ("\n".join(["", "n,t", *NUMBERED]), {}),
    "comments between rows that are counted": (
        "\n".join(["n,t", *(f"{n},x\n# {n}" for n in range(900))]),
        {"comment": "#", "nrows": 500},
    ),
    "no rows": ("\n".join(["n,t", *NUMBERED]), {"nrows": 0}),
    "rows left out from the first on": ("\n".join(["n,t", *NUMBERED]), {"skiprows": [1, 2, 600]}),
    "rows left out further down": ("\n".join(["n,t", *NUMBERED]), {"skiprows": [2, 3, 600]}),
    "lines left out before the header": ("\n".join(["#", "#", "n,t", *NUMBERED]), {"skiprows": [0, 1]}),
    "two bytes a character": ("\n".join(["n,t", *NUMBERED]), {"encoding": "utf-16"}),
}


@pytest.mark.parametrize("name", ODD_CSV)
def test_an_odd_csv_file_is_read_as_pandas_reads_it(name: str, tmp_path: Path) -> None:
    text, options = ODD_CSV[name]
    (tmp_path / "odd.csv").write_bytes(text.encode(options.get("encoding", "utf-8")))
    ours = pd.read_csv(tmp_path / "odd.csv", **options)
    assert_same(ours, pandas.read_csv(tmp_path / "odd.csv", **options))


JANUARY = [f"{number // 33 + 1:02d}/01/2026" for number in range(900)]
DATES: dict[str, tuple[list[str], dict[str, Any]]] = {
    "as ISO says": ([f"2026-01-{number % 28 + 1:02d}" for number in range(900)], {"parse_dates": ["day"]}),
    "with the day first": (JANUARY, {"parse_dates": ["day"], "dayfirst": True}),
    "with the day first, unsaid": (JANUARY, {"parse_dates": [1]}),
    "with a format": (JANUARY, {"parse_dates": ["day"], "date_format": "%d/%m/%Y"}),
    "as an index": (JANUARY, {"parse_dates": True, "index_col": "day", "dayfirst": True}),
    "with text at the end": ([*JANUARY[:890], *["soon"] * 10], {"parse_dates": ["day"], "dayfirst": True}),
    "with holes at the beginning": ([*[""] * 400, *JANUARY[400:]], {"parse_dates": ["day"], "dayfirst": True}),
    "with times at the end": (["2026-01-01"] * 800 + ["2026-01-01 05:00"] * 100, {"parse_dates": ["day"]}),
    "in some columns": (JANUARY, {"parse_dates": ["day"], "dayfirst": True, "usecols": ["day"]}),
}


@pytest.mark.parametrize("name", DATES)
@pytest.mark.filterwarnings("ignore:Parsing dates", "ignore:Could not infer format")
def test_dates_in_stretches_are_read_as_pandas_reads_them(name: str, tmp_path: Path) -> None:
    dates, options = DATES[name]
    lines = (f"{number},{date}" for number, date in enumerate(dates))
    (tmp_path / "dates.csv").write_text("\n".join(["n,day", *lines]))
    assert_same(*(module.read_csv(tmp_path / "dates.csv", **options) for module in (pd, pandas)))


def test_rows_with_quoted_line_ends_are_not_cut(tmp_path: Path) -> None:
    theirs = pandas.DataFrame({"n": range(2000), "text": ['several\nlines, "quoted"\n\n', "one"] * 1000})
    theirs.to_csv(tmp_path / "table.csv", index=False)
    ours = pd.read_csv(tmp_path / "table.csv")
    assert ours._query_compiler._modin_frame._partitions.shape[0] == 3
    assert_same(ours, theirs)


@pytest.mark.parametrize("ending", ["csv", "csv.gz"])
def test_a_csv_file_is_written_as_pandas_writes_it(ending: str, tmp_path: Path) -> None:
    theirs = made()
    pd.DataFrame(theirs).to_csv(tmp_path / f"ours.{ending}")
    theirs.to_csv(tmp_path / f"theirs.{ending}")
    assert_same(pandas.read_csv(tmp_path / f"ours.{ending}"), pandas.read_csv(tmp_path / f"theirs.{ending}"))
    if ending == "csv":
        assert (tmp_path / "ours.csv").read_bytes() == (tmp_path / "theirs.csv").read_bytes()


def test_a_file_with_names_alone_is_a_frame_without_rows(tmp_path: Path) -> None:
    path = tmp_path / "names.csv"
    path.write_text("key,word\n")
    assert_same(pd.read_csv(path), pandas.read_csv(path))


def test_csv_is_appended_to_a_file(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    frame = pd.DataFrame(simple())
    frame.to_csv(path, index=False)
    frame.to_csv(path, index=False, mode="a", header=False)
    assert len(path.read_text().splitlines()) == 2 * len(frame) + 1


def test_parquet_is_written_in_parts_that_anybody_can_read(tmp_path: Path) -> None:
    theirs = simple()
    pd.DataFrame(theirs).to_parquet(tmp_path / "table")
    assert len(list((tmp_path / "table").iterdir())) == 3
    assert_same(pandas.read_parquet(tmp_path / "table"), theirs)


@pytest.mark.parametrize("limit", [None, ROWS])
def test_parquet_replaces_what_was_there(limit: int | None, tmp_path: Path) -> None:
    """Parts, or the single file of a frame that was small."""
    pd.set_small_rows(limit)
    pd.DataFrame(simple()).to_parquet(tmp_path / "table")
    assert (tmp_path / "table").is_file() == (limit is not None)
    pd.set_small_rows(None)
    pd.DataFrame(simple().head(20)).to_parquet(tmp_path / "table")
    assert_same(pandas.read_parquet(tmp_path / "table"), simple().head(20))


def test_parquet_is_written_where_it_was_read_from(tmp_path: Path) -> None:
    theirs = simple()
    pd.DataFrame(theirs).to_parquet(tmp_path / "table")
    (tmp_path / "table" / "_notes.txt").write_text("kept")
    frame = pd.read_parquet(tmp_path / "table")
    frame[frame.key > 20].to_parquet(tmp_path / "table")
    assert_same(pandas.read_parquet(tmp_path / "table"), theirs[theirs.key > 20])
    assert (tmp_path / "table" / "_notes.txt").read_text() == "kept"


def test_some_rows_of_lines_of_json_are_read(tmp_path: Path) -> None:
    simple().to_json(tmp_path / "table.json", orient="records", lines=True)
    ours, theirs = (m.read_json(tmp_path / "table.json", orient="records", lines=True, nrows=50) for m in (pd, pandas))
    assert_same(ours, theirs)


def test_a_table_of_a_database_is_read_in_pieces(tmp_path: Path) -> None:
    theirs = simple()
    with sqlite3.connect(tmp_path / "base.db") as connection:
        theirs.to_sql("prices", connection, index=False)
        ours = pd.read_sql("select * from prices", connection)
        assert_same(ours, theirs)
    connection.close()


def test_a_frame_is_made_of_what_a_function_makes_of_each_item() -> None:
    from modin.pandas.io import from_map

    ours = from_map(lambda n: pandas.DataFrame({"n": [n] * n}), [1, 2, 3])
    assert ours.n.tolist() == [1, 2, 2, 3, 3, 3]


@pytest.fixture(scope="module")
def workbook(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("excel") / "book.xlsx"
    with pandas.ExcelWriter(path) as writer:
        made(200).to_excel(writer, sheet_name="prices", index=False)
        made(7).to_excel(writer, sheet_name="few")
        made(1).iloc[:0].to_excel(writer, sheet_name="names only", index=False)
        pandas.DataFrame([[1, 2]] * 20, columns=["a", "a"]).to_excel(writer, sheet_name="repeated", index=False)
    return path


@pytest.mark.parametrize(
    "keywords",
    [
        {},
        {"sheet_name": "few", "index_col": 0},
        {"sheet_name": 1},
        {"usecols": ["key", "word"]},
        {"dtype": {"key": "float64"}, "na_values": ["warp"]},
        {"converters": {"word": str.upper}},
        {"nrows": 50},
        {"skipfooter": 5},
        {"skiprows": 3},
        {"header": None},
        {"header": 1},
        {"header": [0, 1]},
        {"sheet_name": "names only"},
        {"sheet_name": "repeated"},
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:.*implementation has mismatches with pandas")
def test_a_sheet_is_read_as_pandas_reads_it(keywords: dict[str, Any], workbook: Path) -> None:
    assert_same(pd.read_excel(workbook, **keywords), pandas.read_excel(workbook, **keywords))


def test_a_sheet_is_found_where_sheets_were_moved(tmp_path: Path) -> None:
    import openpyxl

    path = tmp_path / "moved.xlsx"
    with pandas.ExcelWriter(path) as writer:
        for name, rows in (("first", 20), ("second", 30), ("third", 40)):
            simple().head(rows).to_excel(writer, sheet_name=name, index=False)
    book = openpyxl.load_workbook(path)
    book.move_sheet("third", offset=-2)
    book.save(path)
    for number in range(3):
        assert_same(pd.read_excel(path, sheet_name=number), pandas.read_excel(path, sheet_name=number))


def test_a_sheet_without_rows_is_read(tmp_path: Path) -> None:
    path = tmp_path / "empty.xlsx"
    pandas.DataFrame().to_excel(path, index=False)
    assert_same(pd.read_excel(path), pandas.read_excel(path))


def test_a_workbook_in_memory_is_read(workbook: Path) -> None:
    data = workbook.read_bytes()
    assert_same(pd.read_excel(io.BytesIO(data), sheet_name=1), pandas.read_excel(io.BytesIO(data), sheet_name=1))


@pytest.mark.parametrize("limit", [None, 100_000], ids=["on Weft", "small"])
def test_all_sheets_of_a_workbook_are_read(limit: int | None, workbook: Path) -> None:
    pd.set_small_rows(limit)
    ours, theirs = pd.read_excel(workbook, sheet_name=None), pandas.read_excel(workbook, sheet_name=None)
    assert list(ours) == list(theirs)
    for name, frame in theirs.items():
        assert_same(ours[name], frame)


def test_a_small_sheet_stays_in_pandas(workbook: Path) -> None:
    pd.set_small_rows(100_000)
    assert pd.read_excel(workbook).get_backend() == "Pandas"


@pytest.mark.parametrize("keywords", [{}, {"index": False, "columns": ["key", "word"]}, {"startrow": 2}], ids=str)
def test_a_sheet_is_written_as_pandas_writes_it(keywords: dict[str, Any], tmp_path: Path) -> None:
    theirs = made(100)
    pd.DataFrame(theirs).to_excel(tmp_path / "ours.xlsx", **keywords)
    theirs.to_excel(tmp_path / "theirs.xlsx", **keywords)
    assert_same(pandas.read_excel(tmp_path / "ours.xlsx"), pandas.read_excel(tmp_path / "theirs.xlsx"))


def test_several_sheets_are_written_by_one_writer(tmp_path: Path) -> None:
    frame = pd.DataFrame(simple())
    with pd.ExcelWriter(tmp_path / "book.xlsx") as writer:
        frame.head(30).to_excel(writer, sheet_name="warp")
        frame.tail(20).to_excel(writer, sheet_name="weft")
    sheets = pandas.read_excel(tmp_path / "book.xlsx", sheet_name=None, index_col=0)
    assert_same(sheets["warp"], simple().head(30))
    assert_same(sheets["weft"], simple().tail(20))
