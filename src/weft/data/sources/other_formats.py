"""Formats of files that Polars does not scan: ORC, Avro, Excel, and WebDataset's archives of samples."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa

from weft.data.block import frame_of, from_rows
from weft.data.errors import ReadError
from weft.data.sources.extras import library
from weft.data.sources.formats import Format, Scannable
from weft.data.sources.paths import opened

KEY = "__key__"


class Orc(Format):
    name = "orc"
    extensions = (".orc",)

    def scan(self, source: Scannable, path: str, schema: pl.Schema | None) -> pl.LazyFrame:
        import pyarrow.orc as orc

        return frame_of(orc.read_table(source)).lazy()


class Avro(Format):
    name = "avro"
    extensions = (".avro",)

    def scan(self, source: Scannable, path: str, schema: pl.Schema | None) -> pl.LazyFrame:
        return pl.read_avro(source).lazy()


@dataclass
class Excel(Format):
    """A sheet, the first unless named; the first row has the names of the columns."""

    sheet: str | None = None
    name = "excel"
    extensions = (".xlsx",)

    def scan(self, source: Scannable, path: str, schema: pl.Schema | None) -> pl.LazyFrame:
        library("openpyxl", "openpyxl", "read_excel()")
        chosen: dict[str, Any] = {} if self.sheet is None else {"sheet_name": self.sheet}
        found: pl.DataFrame = pl.read_excel(source, engine="openpyxl", **chosen)
        fits = [pl.col(name).cast(kind) for name, kind in (schema or {}).items() if name in found.columns]
        return found.with_columns(fits).lazy()  # a column of one sheet may have whole numbers only


@dataclass
class WebDataset(Format):
    """A row per sample: the files of an archive that share a name up to its first dot, in columns by what follows."""

    decode: bool = True
    name = "webdataset"
    extensions = (".tar",)

    def scan(self, source: Scannable, path: str, schema: pl.Schema | None) -> pl.LazyFrame:
        rows: list[dict[str, Any]] = []
        try:
            with opened(path) as file, tarfile.open(fileobj=file, mode="r|*") as archive:
                for member in archive:
                    if member.isfile():
                        self._add(rows, member.name, archive.extractfile(member).read())  # type: ignore[union-attr]
        except (tarfile.TarError, EOFError, ValueError) as error:
            raise ReadError(path, f"{type(error).__name__}: {error}") from None
        return frame_of(from_rows(rows)).lazy()

    def _add(self, rows: list[dict[str, Any]], name: str, content: bytes) -> None:
        folder, _, file = name.rpartition("/")
        stem, _, column = file.partition(".")
        key = f"{folder}/{stem}" if folder else stem
        if not rows or rows[-1][KEY] != key:  # the files of a sample are neighbours
            rows.append({KEY: key})
        decoded = _DECODED.get(column.rpartition(".")[2]) if self.decode else None
        rows[-1][column] = content if decoded is None else decoded(content)


_DECODED: dict[str, Callable[[bytes], Any]] = {
    "json": json.loads,
    "txt": lambda content: content.decode(),
    "text": lambda content: content.decode(),
    "cls": lambda content: int(content),
}


# ---- writing ---------------------------------------------------------------------------------------


def save_orc(block: pa.Table, file: Any) -> None:
    import pyarrow.orc as orc

    orc.write_table(block, file)


def save_avro(block: pa.Table, file: Any) -> None:
    frame_of(block).write_avro(file)


def save_excel(block: pa.Table, file: Any) -> None:
    book = library("openpyxl", "openpyxl", "write_excel()").Workbook(write_only=True)
    sheet = book.create_sheet()
    sheet.append(block.column_names)
    for row in block.to_pylist():
        sheet.append(list(row.values()))
    book.save(file)


def save_webdataset(block: pa.Table, file: Any) -> None:
    """A file per value that is there, named by `__key__` and the column."""
    if KEY not in block.column_names:
        raise ValueError(f"samples are named by a column {KEY!r}: add it with with_column({KEY!r}, …)")
    with tarfile.open(fileobj=file, mode="w|") as archive:
        for row in block.to_pylist():
            key = row.pop(KEY)
            for column, value in row.items():
                if value is not None:
                    content = _encoded(column, value)
                    entry = tarfile.TarInfo(f"{key}.{column}")
                    entry.size = len(content)
                    archive.addfile(entry, io.BytesIO(content))


def _encoded(column: str, value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if column.rpartition(".")[2] == "json":
        return json.dumps(value).encode()
    if isinstance(value, str | int):
        return str(value).encode()
    raise ValueError(f"column {column!r} has {type(value).__name__}, which is no file: encode it as bytes before")
