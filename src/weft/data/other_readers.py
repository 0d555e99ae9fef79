"""What makes a Dataset of formats with libraries of their own, and of tables in lakehouses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from weft.data.dataset import Dataset
from weft.data.plan import Read
from weft.data.sources import other_formats as formats
from weft.data.sources import tables, tfrecords
from weft.data.sources.base import check_policies
from weft.data.sources.files import FileSource
from weft.data.sources.formats import Format
from weft.data.sources.memory import GeneratorSource
from weft.data.sources.paths import expand

__all__ = [
    "from_huggingface",
    "read_avro",
    "read_delta",
    "read_excel",
    "read_iceberg",
    "read_lance",
    "read_orc",
    "read_tfrecords",
    "read_webdataset",
]
ROWS_AT_ONCE = 1_000


def _files(paths: Any, format: Format, on_error: str, schema_drift: str) -> Dataset:
    check_policies(on_error, schema_drift)
    return Dataset(Read((), FileSource(expand(paths, format.extensions), format, on_error, schema_drift)))


def read_orc(paths: Any, *, on_error: str = "raise", schema_drift: str = "raise") -> Dataset:
    """ORC files.

    >>> from weft import data
    >>> paths = data.range(3).write_orc("read_orc")
    >>> read_orc("read_orc").sum("id")
    3
    """
    return _files(paths, formats.Orc(), on_error, schema_drift)


def read_avro(paths: Any, *, on_error: str = "raise", schema_drift: str = "raise") -> Dataset:
    """Avro files.

    >>> from weft import data
    >>> paths = data.range(3).write_avro("read_avro")
    >>> read_avro("read_avro").max("id")
    2
    """
    return _files(paths, formats.Avro(), on_error, schema_drift)


def read_excel(
    paths: Any, *, sheet: str | None = None, on_error: str = "raise", schema_drift: str = "raise"
) -> Dataset:
    """A sheet of each workbook, the first unless named. Needs openpyxl."""
    return _files(paths, formats.Excel(sheet), on_error, schema_drift)


def read_webdataset(
    paths: Any, *, decode: bool = True, on_error: str = "raise", schema_drift: str = "raise"
) -> Dataset:
    """Archives of samples: a row per sample, `__key__` and a column per file of it. With `decode`, `json` is what it
    says, `txt` a text and `cls` a number; anything else is bytes.

    >>> from weft import data
    >>> paths = data.from_items([{"__key__": "a", "cls": 3, "txt": "cat"}]).write_webdataset("read_webdataset")
    >>> read_webdataset("read_webdataset").take()
    [{'__key__': 'a', 'cls': 3, 'txt': 'cat'}]
    """
    return _files(paths, formats.WebDataset(decode), on_error, schema_drift)


def read_tfrecords(
    paths: Any, *, lists: Sequence[str] = (), raw: bool = False, on_error: str = "raise", schema_drift: str = "raise"
) -> Dataset:
    """TensorFlow's records, a row per `Example`: a column per feature, of ints, floats of 32 bits and bytes; of lists
    where a record of the file has several, or where `lists` names it. With `raw`, the bytes, in a column `record`.

    >>> from weft import data
    >>> paths = data.from_items([{"id": 3, "x": [0.5, 1.5]}]).write_tfrecords("read_tfrecords")
    >>> read_tfrecords("read_tfrecords").take()
    [{'id': 3, 'x': [0.5, 1.5]}]
    """
    return _files(paths, tfrecords.TfRecord(tuple(lists), raw), on_error, schema_drift)


def read_delta(path: str, *, version: int | None = None, storage_options: Mapping[str, str] | None = None) -> Dataset:
    """A table of Delta Lake, as it is now or as it was at a version. Needs deltalake."""
    return Dataset(Read((), tables.delta_table(path, version, storage_options)))


def read_iceberg(table: Any, *, catalog: Mapping[str, str] | None = None, snapshot_id: int | None = None) -> Dataset:
    """A table of Iceberg: pyiceberg's own, or its name and the properties of its catalog. Needs pyiceberg."""
    return Dataset(Read((), tables.iceberg_table(table, catalog, snapshot_id)))


def read_lance(path: str, *, version: int | None = None) -> Dataset:
    """A dataset of Lance. Needs pylance."""
    return Dataset(Read((), tables.lance_table(path, version)))


def from_huggingface(dataset: Any, *, parts: int = 8) -> Dataset:
    """A dataset of Hugging Face's `datasets`, read in `parts` where it is large."""
    count = max(1, min(parts, len(dataset) // ROWS_AT_ONCE))
    shards = [dataset.shard(count, number, contiguous=True) for number in range(count)]
    return Dataset(Read((), GeneratorSource([partial(_tables_of, shard) for shard in shards], "huggingface")))


def _tables_of(shard: Any) -> Iterator[Any]:
    yield from shard.with_format("arrow").iter(ROWS_AT_ONCE)
