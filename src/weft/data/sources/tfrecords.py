"""TFRecord: files of TensorFlow's records, each a protobuf message `Example`, without TensorFlow.

`Example` has one field (1), `Features`, which has a map (1) from names (1) to `Feature` (2). A feature is a list of
bytes (1), of floats of 32 bits (2) or of ints of 64 bits (3), whose values (1) may be packed.

TFR-1 A feature is a column of values where no row of the file has more than one, and of lists where one has, or where
      `lists` names it: so say which are lists where the first file may have none.
TFR-2 What the format cannot hold is refused: floats that need more than 32 bits, integers above 2**63 - 1,
      nulls in lists.
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from weft.data.block import frame_of
from weft.data.errors import ReadError
from weft.data.sources.formats import Format, Scannable
from weft.data.sources.paths import opened
from weft.library.records import BrokenRecordError, framed, unframed, varint

RAW = "record"
_BYTES, _FLOATS, _INTS = 1, 2, 3
_KINDS: dict[int, pl.DataType] = {_BYTES: pl.Binary(), _FLOATS: pl.Float32(), _INTS: pl.Int64()}


@dataclass
class TfRecord(Format):
    """A row per record: a column per feature, or, raw, the bytes."""

    lists: tuple[str, ...] = ()
    raw: bool = False
    name = "tfrecord"
    extensions = (".tfrecord", ".tfrecords", ".tfrecord.gz", ".tfrecords.gz")

    def scan(self, source: Scannable, path: str, schema: pl.Schema | None) -> pl.LazyFrame:
        try:
            with opened(path) as file:
                content = gzip.GzipFile(fileobj=file) if path.endswith(".gz") else file
                records = list(unframed(content))
            if self.raw:
                return pl.LazyFrame({RAW: records}, schema={RAW: pl.Binary})
            return _frame([dict(_features(record)) for record in records], self.lists, schema)
        except (BrokenRecordError, OSError, EOFError, IndexError, UnicodeError, struct.error) as error:
            raise ReadError(path, f"{type(error).__name__}: {error}") from None
        except _DiffersError as error:
            raise ReadError(path, error.args[1], None, error.args[0]) from None


class _DiffersError(Exception):
    """A feature of one name is of two kinds, or has more values than its column takes."""


def _frame(rows: list[dict[str, Any]], lists: tuple[str, ...], schema: pl.Schema | None) -> pl.LazyFrame:
    kinds: dict[str, int] = {}
    longest: dict[str, int] = {}
    for row in rows:
        for name, (kind, values) in row.items():
            if kinds.setdefault(name, kind) != kind:
                raise _DiffersError(name, f"it is {_KINDS[kinds[name]]} in one record and {_KINDS[kind]} in another")
            longest[name] = max(longest.get(name, 0), len(values))
    columns: dict[str, pl.Series] = {}
    for name, kind in sorted(kinds.items()):  # a map has no order
        are_lists = name in lists or longest[name] > 1
        if schema is not None and name in schema and isinstance(schema[name], pl.List) != are_lists:
            if are_lists and name not in lists:
                raise _DiffersError(name, f"it has one value in each record of the first file; pass lists=[{name!r}]")
            are_lists = True
        found = [row[name][1] if name in row else None for row in rows]
        values = found if are_lists else [each[0] if each else None for each in found]
        columns[name] = pl.Series(name, values, pl.List(_KINDS[kind]) if are_lists else _KINDS[kind])
    return pl.LazyFrame(columns)


# ---- messages --------------------------------------------------------------------------------------


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Numbers of fields, each with its bytes or its number."""
    at = 0
    while at < len(message):
        tag, at = _number(message, at)
        wire = tag & 7
        if wire == 0:
            value, at = _number(message, at)
            yield tag >> 3, value
            continue
        size = {1: 8, 5: 4}.get(wire)
        if wire == 2:
            size, at = _number(message, at)
        if size is None or at + size > len(message):
            raise BrokenRecordError("a record is no Example: pass raw=True for its bytes")
        yield tag >> 3, message[at : at + size]
        at += size


def _number(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        shift += 7
        at += 1
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at


def _features(record: bytes) -> Iterator[tuple[str, tuple[int, list[Any]]]]:
    """Of an Example: names, each with the kind of its values and these."""
    for one, features in _fields(record):
        for two, entry in _fields(_message(features)) if one == 1 else ():
            parts = dict(_fields(_message(entry))) if two == 1 else {}
            for kind, values in _fields(_message(parts.get(2, b""))):
                if kind in _KINDS:
                    yield _message(parts.get(1, b"")).decode(), (kind, _values(kind, _message(values)))


def _message(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise BrokenRecordError("a record is no Example: pass raw=True for its bytes")
    return value


def _values(kind: int, message: bytes) -> list[Any]:
    found: list[Any] = []
    for number, value in _fields(message):
        if number != 1:
            continue
        if kind == _BYTES:
            found.append(_message(value))
        elif kind == _FLOATS:
            found.extend(np.frombuffer(_message(value), "<f4").tolist())
        elif isinstance(value, int):
            found.append(_signed(value))
        else:
            at = 0
            while at < len(value):
                each, at = _number(value, at)
                found.append(_signed(each))
    return found


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


# ---- writing ---------------------------------------------------------------------------------------


def save_tfrecords(block: pa.Table, file: Any) -> None:
    """A record per row; a column of nothing but binary values that is called `record` is written as it is."""
    frame = frame_of(block)
    if frame.schema == {RAW: pl.Binary()}:
        for value in frame[RAW]:
            if value is None:
                raise ValueError(f"column {RAW!r} has a null, which is no record")
            file.write(framed(value))
        return
    columns = [(name.encode(), *_column(frame[name])) for name in frame.columns]
    for row in range(frame.height):
        entries = []
        for name, kind, values in columns:
            if (value := values[row]) is not None:
                feature = _field(kind, _packed(kind, value))
                entries.append(_field(1, _field(1, name) + _field(2, feature)))
        file.write(framed(_field(1, b"".join(entries))))


def _column(values: pl.Series) -> tuple[int, list[Any]]:
    """The kind of a column, and the list of each row, None where it has none."""
    kind: pl.DataType = values.dtype
    if isinstance(kind, pl.List | pl.Array):
        inner = values.explode(empty_as_null=False, keep_nulls=False) if isinstance(kind, pl.List) else values.explode()
        of, _ = _column(inner)
        if inner.null_count():
            raise ValueError(f"column {values.name!r} has a null in a list, which no feature can hold")
        return of, values.to_list()
    if kind.is_integer() or kind == pl.Boolean:
        if kind == pl.UInt64 and (values > 2**63 - 1).any():
            raise ValueError(f"column {values.name!r} has integers above 2**63 - 1: cast it to String before")
        return _INTS, _alone(values.cast(pl.Int64))
    if kind.is_float():
        narrow = values.cast(pl.Float32)
        if not narrow.cast(kind).equals(values):
            raise ValueError(
                f"column {values.name!r} has numbers that no float of 32 bits is: cast it to Float32 before"
            )
        return _FLOATS, _alone(narrow)
    if kind in (pl.String, pl.Binary):
        return _BYTES, _alone(values.cast(pl.Binary))
    raise ValueError(
        f"column {values.name!r} is {kind}, which is no feature: cast it to numbers, texts or lists of these"
    )


def _alone(values: pl.Series) -> list[Any]:
    return [None if value is None else [value] for value in values]


def _packed(kind: int, values: list[Any]) -> bytes:
    if kind == _BYTES:
        return b"".join(_field(1, value.encode() if isinstance(value, str) else value) for value in values)
    if kind == _FLOATS:
        return _field(1, np.asarray(values, "<f4").tobytes()) if values else b""
    return _field(1, b"".join(varint(int(value) & 0xFFFFFFFFFFFFFFFF) for value in values)) if values else b""


def _field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content
