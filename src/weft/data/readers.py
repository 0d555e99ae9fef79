"""What makes a Dataset: readers of files, and what is in memory or comes from elsewhere.

Paths are files, folders, globs, URLs of fsspec, or lists of these. `on_error="skip"` leaves out files and rows that
cannot be read, and counts them (`Dataset.stats`); `schema_drift="fill"` makes files with other columns fit the first
one, and `schema_drift="union"` gives the dataset the columns of all of them.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from weft.data import block as blocks
from weft.data.dataset import Dataset
from weft.data.execute import cluster_sizing
from weft.data.plan import Read
from weft.data.sources.base import Source, check_policies
from weft.data.sources.files import FileSource
from weft.data.sources.formats import Arrow, Binary, Csv, Format, Images, Json, Numpy, Text
from weft.data.sources.memory import GeneratorSource, RangeSource, SqlSource, put_table, rows_to_block
from weft.data.sources.parquet import ParquetSource
from weft.data.sources.paths import expand

__all__ = [
    "from_arrow",
    "from_generator",
    "from_items",
    "from_numpy",
    "from_pandas",
    "from_polars",
    "from_torch",
    "range",
    "read_arrow",
    "read_binary_files",
    "read_csv",
    "read_datasource",
    "read_images",
    "read_json",
    "read_numpy",
    "read_parquet",
    "read_sql",
    "read_text",
]


def _of(source: Source) -> Dataset:
    return Dataset(Read((), source))


def _files(paths: Any, format: Format, on_error: str, schema_drift: str) -> Dataset:
    check_policies(on_error, schema_drift)
    return _of(FileSource(expand(paths, format.extensions), format, on_error, schema_drift))


def read_parquet(
    paths: Any, *, columns: list[str] | None = None, on_error: str = "raise", schema_drift: str = "raise"
) -> Dataset:
    """Parquet files. What later steps do not need is not read.

    >>> import tempfile
    >>> from weft import data
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     written = data.range(10).write_parquet(folder)
    ...     read_parquet(folder).filter(data.col("id") > 3).count()
    6
    """
    check_policies(on_error, schema_drift)
    made = _of(ParquetSource(expand(paths, (".parquet", ".pq")), on_error, schema_drift))
    return made if columns is None else made.select(*columns)


def read_csv(paths: Any, *, on_error: str = "raise", schema_drift: str = "raise", **options: Any) -> Dataset:
    """CSV files; the options are those of `polars.scan_csv`. Types are those that the first file's rows suggest, or
    `schema_overrides`.

    >>> paths = from_items([{"x": 1, "name": "a"}, {"x": 2, "name": "b"}]).write_csv("read_csv")
    >>> read_csv("read_csv").sort("x").take_all()
    [{'x': 1, 'name': 'a'}, {'x': 2, 'name': 'b'}]
    """
    return _files(paths, Csv(options), on_error, schema_drift)


def read_json(paths: Any, *, on_error: str = "raise", schema_drift: str = "raise") -> Dataset:
    """Files with an object a line, or with one array of objects.

    >>> paths = from_items([{"x": 1}, {"x": 2}]).write_json("read_json")
    >>> read_json("read_json").sum("x")
    3
    """
    return _files(paths, Json(), on_error, schema_drift)


def read_text(paths: Any, *, on_error: str = "raise") -> Dataset:
    """A row per line, in the column `text`.

    >>> paths = from_items([{"text": "one line"}]).write_text("read_text")
    >>> read_text("read_text").take_all()
    [{'text': 'one line'}]
    """
    return _files(paths, Text(), on_error, "raise")


def read_arrow(paths: Any, *, on_error: str = "raise", schema_drift: str = "raise") -> Dataset:
    """Arrow IPC (Feather) files."""
    return _files(paths, Arrow(), on_error, schema_drift)


def read_numpy(paths: Any, *, on_error: str = "raise") -> Dataset:
    """`.npy` files, a row an element of the first dimension, in the column `data`; or `.npz`, a column an array."""
    return _files(paths, Numpy(), on_error, "raise")


def read_images(
    paths: Any,
    *,
    size: tuple[int, int] | None = None,
    mode: str | None = None,
    include_paths: bool = False,
    on_error: str = "raise",
) -> Dataset:
    """A row an image, in the column `image`. `size` (height, width) and `mode` ("RGB") make them alike, which they
    have to be."""
    return _files(paths, Images(size, mode, include_paths), on_error, "raise")


def read_binary_files(paths: Any) -> Dataset:
    """A row per file: `bytes` and `path`."""
    return _files(paths, Binary(), "raise", "raise")


def read_sql(query: str, connect: Callable[[], Any], *, parameters: tuple[Any, ...] = ()) -> Dataset:
    """The rows of a query, from any DB-API driver; `connect` makes a connection where the query runs.

    >>> import sqlite3
    >>> read_sql("SELECT 6 * 7 AS answer", lambda: sqlite3.connect(":memory:")).take()
    [{'answer': 42}]
    """
    return _of(SqlSource(query, connect, parameters))


def read_datasource(source: Source) -> Dataset:
    """A source of one's own."""
    return _of(source)


def range(count: int, *, blocks: int | None = None) -> Dataset:
    """The numbers from 0 to count - 1, in the column `id`.

    >>> range(3).take_all()
    [{'id': 0}, {'id': 1}, {'id': 2}]
    """
    if count < 0:
        raise ValueError(f"count must not be negative, but got {count}")
    return _of(RangeSource(count, blocks))


def from_items(items: Iterable[Any], *, parallelism: int | None = None) -> Dataset:
    """Rows that are there: dicts, or single values, which become the column `item`.

    >>> from_items([{"x": 1}, {"x": 2}]).sum("x")
    3
    >>> from_items(["a", "b"]).take_all()
    [{'item': 'a'}, {'item': 'b'}]
    """
    rows = [item if isinstance(item, dict) else {"item": item} for item in items]
    return from_arrow(rows_to_block(rows, "from_items", 0), parallelism=parallelism)


def from_arrow(tables: pa.Table | list[pa.Table], *, parallelism: int | None = None) -> Dataset:
    """Arrow tables, copied into the arena.

    >>> from_arrow(pa.table({"x": [1, 2, 3]})).max("x")
    3
    """
    table = tables if isinstance(tables, pa.Table) else _one_table(tables)
    sizing = cluster_sizing()
    return _of(put_table(table, parallelism or 2 * sizing.cpus, sizing.block_bytes))


def _one_table(tables: list[pa.Table]) -> pa.Table:
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException:  # by our rules of what types have in common, which name the column
        return blocks.concatenate(tables)


def from_pandas(frame: Any) -> Dataset:
    """A pandas frame; its index is left out.

    >>> import pandas as pd
    >>> from_pandas(pd.DataFrame({"x": [1, 2]})).take_all()
    [{'x': 1}, {'x': 2}]
    """
    return from_arrow(blocks.from_batch(frame, "the frame"))


def from_polars(frame: Any) -> Dataset:
    """A Polars frame.

    >>> import polars as pl
    >>> from_polars(pl.DataFrame({"x": [1, 2]})).count()
    2
    """
    return from_arrow(blocks.from_batch(frame, "the frame"))


def from_numpy(arrays: Any, column: str = "data") -> Dataset:
    """An array, a row an element of its first dimension; or a dict of arrays, a column each.

    >>> import numpy as np
    >>> from_numpy({"x": np.arange(4)}).mean("x")
    1.5
    """
    return from_arrow(blocks.from_batch(arrays if isinstance(arrays, dict) else {column: arrays}, "the arrays"))


def from_torch(dataset: Any) -> Dataset:
    """A torch dataset with a length: a row per item, in the column `item` unless items are dicts."""
    return from_items([dataset[number] for number in builtins.range(len(dataset))])


def from_generator(*makers: Callable[[], Iterable[Any]]) -> Dataset:
    """What the iterables give that the functions return, rows (dicts or single values) or batches; each function is
    called in a task of its own, which is held back by its consumer.

    >>> from_generator(lambda: ({"x": i} for i in builtins.range(10**9))).limit(2).take()
    [{'x': 0}, {'x': 1}]
    """
    if not makers or not all(map(callable, makers)):
        raise TypeError("from_generator() expects functions that return iterables, such as lambda: iter([1, 2])")
    return _of(GeneratorSource(list(makers)))
