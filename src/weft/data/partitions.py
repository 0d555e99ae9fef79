"""Partitions in the names of folders, as Hive has them: `year=2024/city=Ulm/part.parquet`. Pure.

Rows of one folder have its values in these columns, which are in no file. A value is a text in a name: where all of
them are whole numbers or dates, that is what they are read as.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, unquote

import polars as pl
import pyarrow as pa

from weft.data.block import block_of, frame_of
from weft.data.errors import WriteError

NULL = "__HIVE_DEFAULT_PARTITION__"


def values_in(path: str) -> dict[str, str | None]:
    """The columns that the folders of a file name, outermost first."""
    pairs = [part.partition("=") for part in os.path.dirname(path).split("/") if part.find("=") > 0]
    return {unquote(name): None if value == NULL else unquote(value) for name, _, value in pairs}


def kinds_of(paths: Sequence[str]) -> dict[str, pl.DataType]:
    """The types of the columns that all files have in their folders; none where these differ."""
    found = [values_in(path) for path in paths]
    if not found or any(list(each) != list(found[0]) for each in found):
        return {}
    return {name: _kind([each[name] for each in found]) for name in found[0]}


def _kind(values: Sequence[str | None]) -> pl.DataType:
    there = [value for value in values if value is not None]
    for kind, parse in ((pl.Int64(), _whole), (pl.Date(), dt.date.fromisoformat)):
        try:
            if there and all(str(parse(value)) == value for value in there):
                return kind
        except ValueError:
            continue
    return pl.String()


def _whole(text: str) -> int:
    value = int(text)
    if not -(2**63) <= value < 2**63:
        raise ValueError(text)
    return value


def literal(text: str | None, kind: pl.DataType) -> Any:
    if text is None or kind == pl.String:
        return text
    return _whole(text) if kind == pl.Int64 else dt.date.fromisoformat(text)


def with_values(frame: pl.LazyFrame, path: str, kinds: dict[str, pl.DataType]) -> pl.LazyFrame:
    """The rows of a file with the values of its folders."""
    values = values_in(path) if kinds else {}
    made = [pl.lit(literal(values[name], kind), kind).alias(name) for name, kind in kinds.items()]
    return frame.with_columns(made) if made else frame


def table_of(paths: Sequence[str], kinds: dict[str, pl.DataType]) -> pl.DataFrame:
    """A row per file."""
    rows = [values_in(path) for path in paths]
    columns = {name: [literal(row[name], kind) for row in rows] for name, kind in kinds.items()}
    return pl.DataFrame(columns, schema=kinds)


def partitions(block: pa.Table, keys: Sequence[str], where: str) -> list[tuple[str, pa.Table]]:
    """The rows by folder, without the columns that are in its name."""
    missing = [key for key in keys if key not in block.column_names]
    if missing or len(keys) == len(block.column_names):
        reason = f"there is no column {missing[0]!r}" if missing else "partition_by must leave a column for the files"
        raise WriteError(where, f"{reason}: there are {', '.join(block.column_names)}")
    for key in keys:
        kind = block.schema.field(key).type
        if pa.types.is_nested(kind) or any(check(kind) for check in (pa.types.is_binary, pa.types.is_large_binary)):
            raise WriteError(where, f"column {key!r} is {kind}, which is no name of a folder: partition by another")
    parts = frame_of(block).partition_by(*keys, maintain_order=True, include_key=False, as_dict=True)
    return [(_folder(keys, values), block_of(part)) for values, part in parts.items()]


def _folder(keys: Sequence[str], values: Sequence[Any]) -> str:
    named = zip(keys, values, strict=True)
    return "".join(
        f"{quote(key, safe='')}={NULL if value is None else quote(str(value), safe=' ')}/" for key, value in named
    )
