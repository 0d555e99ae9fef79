"""The formats of files: how each is scanned, and how what is wrong in one is found."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from weft.data.block import frame_of, from_batch
from weft.data.errors import ReadError
from weft.data.sources.paths import opened, scannable

Scannable = str | io.BytesIO
NOT_UTF_8 = "\N{REPLACEMENT CHARACTER}"
FIRST_LINES = 1_000


def of_64_bits(path: str, schema: pl.Schema, frame: pl.LazyFrame) -> pl.Schema:
    """Polars takes integers above the signed ones for 128 bits wide, which Arrow has not."""
    wide = [name for name, kind in schema.items() if kind == pl.Int128]
    if not wide:
        return schema
    least = frame.select(pl.col(wide).min()).collect().row(0, named=True)
    most = frame.select(pl.col(wide).max()).collect().row(0, named=True)
    for name in wide:
        if least[name] < 0 or most[name] >= 2**64:
            raise ReadError(
                path,
                "its integers need more than 64 bits; schema_overrides of read_csv can make them texts",
                None,
                name,
            )
    return pl.Schema({**schema, **dict.fromkeys(wide, pl.UInt64())})


class Format:
    """The base of all formats."""

    name = ""
    extensions: tuple[str, ...] = ()
    can_stream = False
    """Whether a large file is read as a sequence of blocks."""
    allows_empty = False
    is_scanned = False
    """Whether Polars reads it by itself, as far as it is wanted."""

    def scan(self, source: Scannable, path: str, schema: pl.Schema | None) -> pl.LazyFrame:
        raise NotImplementedError

    def schema(self, path: str) -> pl.Schema:
        frame = self.scan(scannable(path), path, None)
        return of_64_bits(path, frame.collect_schema(), frame)

    def misfit(self, path: str, schema: pl.Schema) -> tuple[str, str] | None:
        """(column, what is wrong with it) where the file has what scanning it with the schema would leave out."""
        return None

    def readable_rows(self, path: str, schema: pl.Schema) -> tuple[pl.DataFrame, int]:
        """What can be read of a file that cannot be read as a whole, and how many rows cannot."""
        raise ReadError(path, "it cannot be read in part")

    def first_bad_value(self, path: str, schema: pl.Schema) -> tuple[int | None, str | None, str] | None:
        """(row, column, what is wrong with it); None if that cannot be told."""
        return None

    def bytes_a_row(self, path: str, schema: pl.Schema) -> int:
        """About; from the first rows."""
        head = self.scan(scannable(path), path, schema or None).head(1000).collect()
        return int(head.estimated_size() // max(1, head.height))


@dataclass
class Csv(Format):
    options: dict[str, Any] = field(default_factory=dict)
    name = "csv"
    extensions = (".csv", ".csv.gz", ".tsv")
    is_scanned = True
    can_stream = True

    def scan(self, source: Scannable, path: str, schema: pl.Schema | None) -> pl.LazyFrame:
        chosen = {**self.options}
        if schema is not None:
            header = pl.scan_csv(source, **self.options).collect_schema()
            if isinstance(source, io.BytesIO):
                source.seek(0)
            chosen["schema_overrides"] = {name: kind for name, kind in schema.items() if name in header}
        return pl.scan_csv(source, **chosen)

    def _as_text(self, path: str) -> pl.DataFrame:
        chosen = {name: value for name, value in self.options.items() if name not in ("schema", "schema_overrides")}
        lenient = {"infer_schema": False, "truncate_ragged_lines": True, "encoding": "utf8-lossy"}
        return pl.read_csv(scannable(path), **{**chosen, **lenient})

    def _bad_values(self, text: pl.DataFrame, schema: pl.Schema) -> pl.DataFrame:
        """Of each column: where its text is there and no value of its type."""
        return text.select(
            [
                (
                    pl.col(name).is_not_null()
                    & (_parsed(name, kind).is_null() | pl.col(name).str.contains(NOT_UTF_8, literal=True))
                ).alias(name)
                for name, kind in schema.items()
                if name in text.columns
            ]
        )

    def _too_long(self, path: str, text: pl.DataFrame) -> pl.Series:
        """Which rows have more fields than there are columns, where rows can be told from lines without Polars."""
        none = pl.Series([False] * text.height, dtype=pl.Boolean)
        if set(self.options) - {"separator", "schema", "schema_overrides"}:
            return none
        with opened(path) as file:
            plain = gzip.open(file) if path.endswith(".gz") else file  # noqa: SIM115
            lines = io.TextIOWrapper(plain, errors="replace", newline="")
            fields = [len(row) for row in csv.reader(lines, delimiter=self.options.get("separator", ","))]
        return pl.Series([count > text.width for count in fields[1:]]) if len(fields) == text.height + 1 else none

    def readable_rows(self, path: str, schema: pl.Schema) -> tuple[pl.DataFrame, int]:
        text = self._as_text(path)
        if missing := [name for name in schema if name not in text.columns]:
            raise ReadError(path, "the column is missing", None, missing[0])
        bad = self._bad_values(text, schema).select(pl.any_horizontal(pl.all())).to_series() | self._too_long(
            path, text
        )
        good = text.filter(~bad).select([_parsed(name, kind) for name, kind in schema.items()])
        return good, int(bad.sum())

    def first_bad_value(self, path: str, schema: pl.Schema) -> tuple[int | None, str | None, str] | None:
        try:
            text = self._as_text(path)
        except (pl.exceptions.PolarsError, OSError):
            return None
        too_long = self._too_long(path, text).arg_true()
        bad = self._bad_values(text, schema)
        rows = bad.with_row_index("row").filter(pl.any_horizontal(pl.exclude("row")))
        if len(too_long) and (not rows.height or too_long[0] <= rows["row"][0]):
            return too_long[0], None, f"it must have {text.width} fields, as there are columns, but has more"
        if not rows.height:
            return None
        found = rows.row(0, named=True)
        row = found.pop("row")
        column = next(name for name, wrong in found.items() if wrong)
        if NOT_UTF_8 in text[column][row]:
            return row, column, f"{text[column][row]!r} is no UTF-8"
        return row, column, f"{text[column][row]!r} is no {schema[column]}"


def _parsed(name: str, kind: Any) -> pl.Expr:
    """A column of text as its type, null where it is none."""
    column = pl.col(name)
    if kind == pl.Boolean:
        lower = column.str.to_lowercase()
        return pl.when(lower == "true").then(True).when(lower == "false").then(False).alias(name)
    if kind.is_temporal():
        return column.str.strptime(kind, strict=False)
    return column if kind == pl.String else column.str.strip_chars().cast(kind, strict=False)


@dataclass
class Json(Format):
    """One object a line; or one array of objects."""

    lines: bool = True
    name = "json"
    extensions = (".json", ".jsonl", ".ndjson")
    is_scanned = True

    @property
    def can_stream(self) -> bool:  # type: ignore[override]
        return self.lines

    def scan(self, source: Scannable, path: str, schema: pl.Schema | None) -> pl.LazyFrame:
        if not self.lines or _starts_with_bracket(path):
            return pl.read_json(source, schema_overrides=schema, infer_schema_length=None).lazy()
        return pl.scan_ndjson(source, schema=schema, infer_schema_length=None)

    def schema(self, path: str) -> pl.Schema:
        """Polars takes a column for text as soon as one of its values is. Here the first value decides, so that a text
        among numbers is told. (Numbers among texts become texts.)"""
        found = super().schema(path)
        texts = {name for name, kind in found.items() if kind == pl.String}
        if not texts or not self.lines or _starts_with_bracket(path):
            return found
        for _, values in itertools.islice(_json_lines(path), FIRST_LINES):
            for name in [name for name in texts if isinstance(values, dict) and values.get(name) is not None]:
                texts.remove(name)
                kind = _KINDS.get(type(values[name]))
                if kind is not None:
                    found[name] = kind
        return found

    def misfit(self, path: str, schema: pl.Schema) -> tuple[str, str] | None:
        """Fields that the schema has not, at any depth and in any row: Polars would read the rest and say nothing.
        Numbers and texts are left to the reading, which names the row."""
        return _unknown_field(super().schema(path), schema)

    def readable_rows(self, path: str, schema: pl.Schema) -> tuple[pl.DataFrame, int]:
        good, bad = [], 0
        for _, values in _json_lines(path):
            if (
                isinstance(values, str)
                or _has_more(values, pl.Struct(schema))
                or any(_misfit(values.get(name), kind) for name, kind in schema.items())
            ):
                bad += 1
            else:
                good.append(values)
        return pl.DataFrame(good, schema=schema), bad

    def first_bad_value(self, path: str, schema: pl.Schema) -> tuple[int | None, str | None, str] | None:
        if not self.lines or _starts_with_bracket(path):
            return None
        for row, values in _json_lines(path):
            if isinstance(values, str):
                return row, None, values
            for name, kind in schema.items():
                if _misfit(values.get(name), kind):
                    return row, name, f"{values[name]!r} is no {kind}"
        return None


def _unknown_field(found: pl.Schema, expected: pl.Schema, within: str = "") -> tuple[str, str] | None:
    for name, kind in found.items():
        path = f"{within}{name}"
        if name not in expected:
            return path, f"the first file has no such {'field' if within else 'column'}"
        there, wanted = _values_of(kind), _values_of(expected[name])
        if there == pl.Null:
            continue
        if wanted == pl.Null:
            return path, f"it is {kind}, but only null in the first file"
        if isinstance(there, pl.Struct) != isinstance(wanted, pl.Struct):
            return path, f"it is {kind}, but must be {expected[name]}"
        if isinstance(there, pl.Struct) and isinstance(wanted, pl.Struct):
            inside = _unknown_field(pl.Schema(there.to_schema()), pl.Schema(wanted.to_schema()), f"{path}.")
            if inside is not None:
                return inside
    missing = [name for name in expected if name not in found] if not within else []  # objects may lack any field
    return (missing[0], "the column is missing") if missing else None


def _has_more(value: Any, kind: Any) -> bool:
    """Whether a value has a field, at any depth, that the type has not."""
    if isinstance(value, dict) and isinstance(kind, pl.Struct):
        fields = kind.to_schema()
        return any(name not in fields or _has_more(inner, fields[name]) for name, inner in value.items())
    if isinstance(value, list) and isinstance(kind, pl.List):
        return any(_has_more(inner, kind.inner) for inner in value)
    return value is not None and kind == pl.Null


def _values_of(kind: Any) -> Any:
    """Of a list, the type of what is in it."""
    while isinstance(kind, pl.List):
        kind = kind.inner
    return kind


_KINDS: dict[type, Any] = {bool: pl.Boolean(), int: pl.Int64(), float: pl.Float64()}


def _starts_with_bracket(path: str) -> bool:
    with opened(path) as file:
        return file.read(64).lstrip()[:1] == b"["


def _json_lines(path: str) -> Any:
    """(row, its object, or what is wrong with it)."""
    import json

    with opened(path) as file:
        rows = (line for line in file if line.strip())
        for row, line in enumerate(rows):
            try:
                values = json.loads(line)
            except ValueError as error:
                yield row, f"it is no JSON: {error}"
                continue
            yield row, values if isinstance(values, dict) else f"it must be an object, but is {values!r}"


def _misfit(value: Any, kind: Any) -> bool:
    try:
        pl.Series([value], dtype=kind, strict=True)
    except (TypeError, pl.exceptions.PolarsError, OverflowError):
        return True
    return False


class Text(Format):
    """A row per line, in the column `text`."""

    name = "text"
    can_stream = True

    def scan(self, source: Scannable, path: str, schema: pl.Schema | None) -> pl.LazyFrame:
        return pl.scan_lines(source, name="text")

    def schema(self, path: str) -> pl.Schema:
        return pl.Schema({"text": pl.String})


class Arrow(Format):
    """Arrow's IPC files and streams."""

    name = "arrow"
    extensions = (".arrow", ".feather", ".ipc")
    is_scanned = True

    def scan(self, source: Scannable, path: str, schema: pl.Schema | None) -> pl.LazyFrame:
        return pl.scan_ipc(source)


class Numpy(Format):
    """`.npy`, a row an element of the first dimension, in the column `data`; `.npz`, a column an array."""

    name = "numpy"
    extensions = (".npy", ".npz")

    def scan(self, source: Scannable, path: str, schema: pl.Schema | None) -> pl.LazyFrame:
        try:
            found = np.load(source, allow_pickle=False)
        except (ValueError, EOFError, OSError) as error:
            raise ReadError(path, f"{error}") from None
        arrays = {"data": found} if isinstance(found, np.ndarray) else dict(found)
        return frame_of(from_batch(arrays, path)).lazy()


@dataclass
class Images(Format):
    """A row per file, in the column `image`: height, width and, for colour, channels."""

    size: tuple[int, int] | None = None
    mode: str | None = None
    include_paths: bool = False
    name = "images"
    extensions = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".tif", ".tiff", ".webp")

    def scan(self, source: Scannable, path: str, schema: pl.Schema | None) -> pl.LazyFrame:
        from PIL import Image, UnidentifiedImageError

        try:
            with Image.open(source) as image:
                chosen = image if self.mode is None else image.convert(self.mode)
                if self.size is not None:
                    chosen = chosen.resize((self.size[1], self.size[0]))
                pixels = np.asarray(chosen)
        except (UnidentifiedImageError, OSError, ValueError) as error:
            raise ReadError(path, f"{error}") from None
        columns: dict[str, Any] = {"image": pixels[None]}
        if self.include_paths:
            columns["path"] = pa.array([path])
        return frame_of(from_batch(columns, path)).lazy()


class Binary(Format):
    """A row per file: its `bytes` and its `path`."""

    name = "binary files"
    allows_empty = True

    def scan(self, source: Scannable, path: str, schema: pl.Schema | None) -> pl.LazyFrame:
        with opened(path) as file:
            return pl.LazyFrame({"bytes": [file.read()], "path": [path]})
