"""Reading and writing files in parallel: Modin's readers on Weft, and a writer of CSV.

What has no parallel form here (pickle, HDF, HTML, …) is read and written by pandas in this process.
"""

from __future__ import annotations

import functools
import io
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas
from modin.core import io as readers
from modin.core.storage_formats.pandas import parsers
from modin.error_message import ErrorMessage
from modin.experimental.core import io as glob_readers
from modin.experimental.core.storage_formats.pandas import parsers as glob_parsers
from pandas._libs.lib import no_default
from pandas.io.common import get_handle, stringify_path
from pandas.io.parsers import TextFileReader

from weft.pandas.modin.frame import WeftFrame
from weft.pandas.modin.journal import journal
from weft.pandas.modin.json_lines import LinesDispatcher
from weft.pandas.modin.parquet_parts import PartsDispatcher
from weft.pandas.modin.partition import WeftPartition
from weft.pandas.modin.query_compiler import WeftQueryCompiler
from weft.pandas.modin.sheets import SheetDispatcher
from weft.pandas.modin.small import PYTHON_SHARE, SmallQueryCompiler, is_small, is_small_file
from weft.pandas.modin.text_stretches import StretchDispatcher, StretchParser
from weft.pandas.modin.wrapper import WeftWrapper

_PARTS = {
    "frame_cls": WeftFrame,
    "frame_partition_cls": WeftPartition,
    "query_compiler_cls": WeftQueryCompiler,
    "base_io": readers.BaseIO,
}


COLUMNAR_WORK = 8
"""A byte of a file with columns, coded and compressed, holds as much as so many bytes of text."""
FIXED_WIDTH_WORK = 4
"""pandas parses such lines in Python."""


class _ReadByPandas:
    """What a reader of Modin leaves to pandas is noted, unless it is small."""

    operation: str

    @classmethod
    def single_worker_read(cls, fname: Any, *args: Any, reason: str, **kwargs: Any) -> Any:
        with warnings.catch_warnings():  # Modin's parsers, made for workers, switch all warnings off
            made = cls.parse(fname, *args, **kwargs)  # type: ignore[attr-defined]
        is_frame = isinstance(made, pandas.DataFrame)
        if not (is_frame and is_small(made)) and journal.note_fallback(cls.operation, reason):
            ErrorMessage.default_to_pandas(f"`{cls.operation}`", reason=reason)
        return _from_pandas(made)


def _from_pandas(made: Any) -> Any:
    """A frame, the sheets of a workbook, or frames one after another."""
    if isinstance(made, dict):
        return {name: WeftIO.from_pandas(frame) for name, frame in made.items()}
    if isinstance(made, TextFileReader):
        read = made.read
        made.read = lambda *args, **kwargs: WeftIO.from_pandas(read(*args, **kwargs))
        return made
    return WeftIO.from_pandas(made)


def _dispatcher(operation: str, *bases: type, **attributes: Any) -> Any:
    attributes = {**_PARTS, "operation": operation, **attributes}
    return type(f"Weft{bases[-1].__name__}", (_ReadByPandas, WeftWrapper, *bases), attributes)


def _read_small(dispatcher: Any, read_in_pandas: Any, path_name: str, work: int = 1) -> Any:
    """Modin's reader, and pandas itself for small files; `work`: what a row costs, compared with one of CSV."""

    @functools.wraps(dispatcher.read)
    def read(*args: Any, **kwargs: Any) -> Any:
        path = args[0] if args else kwargs.get(path_name)
        if is_small_file(path, work):
            made = read_in_pandas(*args, **{name: value for name, value in kwargs.items() if value is not no_default})
            if isinstance(made, pandas.DataFrame | dict | TextFileReader):
                return _from_pandas(made)
        return dispatcher.read(*args, **kwargs)

    return read


def _write_small(write: Any, write_in_pandas: str) -> Any:
    """Modin's writer, and the method of pandas for small frames."""

    @functools.wraps(write)
    def run(qc: Any, **kwargs: Any) -> Any:
        if isinstance(qc, SmallQueryCompiler):
            return getattr(qc.to_pandas(), write_in_pandas)(**kwargs)
        return write(qc, **kwargs)

    return run


def _glob(kind: str, parser: type, base_write: Any) -> Any:
    return _dispatcher(f"read_{kind}_glob", parser, glob_readers.ExperimentalGlobDispatcher, base_write=base_write)


_csv = _dispatcher("read_csv", StretchParser, StretchDispatcher)
_fwf = _dispatcher("read_fwf", parsers.PandasFWFParser, readers.FWFDispatcher)
_json = _dispatcher("read_json", parsers.PandasJSONParser, LinesDispatcher)
_parquet = _dispatcher("read_parquet", parsers.PandasParquetParser, PartsDispatcher)
_feather = _dispatcher("read_feather", parsers.PandasFeatherParser, readers.FeatherDispatcher)
_excel = _dispatcher("read_excel", parsers.PandasExcelParser, SheetDispatcher)
_sql = _dispatcher("read_sql", parsers.PandasSQLParser, readers.SQLDispatcher)
_parquet_glob = _glob("parquet", glob_parsers.ExperimentalPandasParquetParser, readers.BaseIO.to_parquet)
_json_glob = _glob("json", glob_parsers.ExperimentalPandasJsonParser, readers.BaseIO.to_json)
_xml_glob = _glob("xml", glob_parsers.ExperimentalPandasXmlParser, readers.BaseIO.to_xml)
_pickle_glob = _glob("pickle", glob_parsers.ExperimentalPandasPickleParser, readers.BaseIO.to_pickle)


class WeftIO(readers.BaseIO):
    frame_cls = WeftFrame
    frame_partition_cls = WeftPartition
    query_compiler_cls = WeftQueryCompiler

    read_csv = _read_small(_csv, pandas.read_csv, "filepath_or_buffer")
    read_fwf = _read_small(_fwf, pandas.read_fwf, "filepath_or_buffer", work=FIXED_WIDTH_WORK)
    read_json = _read_small(_json, pandas.read_json, "path_or_buf")
    read_parquet = _read_small(_parquet, pandas.read_parquet, "path", work=COLUMNAR_WORK)
    to_parquet = _write_small(_parquet.write, "to_parquet")
    read_feather = _read_small(_feather, pandas.read_feather, "path", work=COLUMNAR_WORK)
    read_excel = _read_small(_excel, pandas.read_excel, "io", work=PYTHON_SHARE)
    read_sql = _sql.read
    to_sql = _write_small(_sql.write, "to_sql")

    read_csv_glob = _dispatcher(
        "read_csv_glob",
        glob_parsers.ExperimentalPandasCSVGlobParser,
        glob_readers.ExperimentalCSVGlobDispatcher,
    ).read
    read_custom_text = _dispatcher(
        "read_custom_text",
        glob_parsers.ExperimentalCustomTextParser,
        glob_readers.ExperimentalCustomTextDispatcher,
    ).read
    read_sql_distributed = _dispatcher(
        "read_sql_distributed", glob_readers.ExperimentalSQLDispatcher, base_read=_sql.read
    ).read
    read_parquet_glob, to_parquet_glob = _parquet_glob.read, _parquet_glob.write
    read_json_glob, to_json_glob = _json_glob.read, _json_glob.write
    read_xml_glob, to_xml_glob = _xml_glob.read, _xml_glob.write
    read_pickle_glob, to_pickle_glob = _pickle_glob.read, _pickle_glob.write

    @classmethod
    def _maybe_warn_on_default(cls, *, message: str = "", reason: str = "") -> None:
        if journal.note_fallback(message, reason):
            super()._maybe_warn_on_default(message=message, reason=reason)

    @classmethod
    def from_pandas(cls, df: Any) -> Any:
        """Small frames stay as they are."""
        return SmallQueryCompiler(df) if is_small(df) else super().from_pandas(df)

    @classmethod
    def to_csv(cls, qc: Any, **kwargs: Any) -> Any:
        """Rows become text in the workers; this process writes the pieces one after another."""
        path = stringify_path(kwargs["path_or_buf"])
        if isinstance(qc, SmallQueryCompiler):
            return qc.to_pandas().to_csv(**kwargs)
        if not isinstance(path, str) or "b" in kwargs["mode"]:
            return readers.BaseIO.to_csv(qc, **kwargs)
        frame = qc._modin_frame
        frame._propagate_index_objs(axis=None)
        opening = {
            "path_or_buf": path,
            "mode": kwargs["mode"],
            "encoding": kwargs["encoding"],
            "errors": kwargs["errors"],
            "compression": kwargs["compression"],
            "storage_options": kwargs.get("storage_options"),
        }
        pieces = _csv_pieces(frame, {name: value for name, value in kwargs.items() if name not in opening})
        with get_handle(**opening, is_text=True) as handles:
            for piece in pieces:
                handles.handle.write(WeftWrapper.materialize(piece))
        return None

    @classmethod
    def from_map(cls, func: Any, iterable: Iterable[Any], *args: Any, **kwargs: Any) -> Any:
        """A frame of what a function makes of each item, a row of blocks an item."""
        function = WeftFrame._partition_mgr_cls.preprocess_func(func)
        refs = [WeftWrapper.deploy(function, (item, *args), kwargs, return_pandas_df=True) for item in iterable]
        return cls.query_compiler_cls(WeftFrame(np.array([[WeftPartition(ref)] for ref in refs])))


def _csv_pieces(frame: Any, keywords: dict[str, Any]) -> list[Any]:
    """Refs of the text of each row of blocks; the header is in the first."""
    function = WeftFrame._partition_mgr_cls.preprocess_func(_render_csv)
    pieces = []
    for index, row in enumerate(frame._partitions):
        blocks = [block.list_of_blocks[0] for block in row]
        piece_keywords = keywords if index == 0 else {**keywords, "header": False}
        pieces.append(WeftWrapper.deploy(function, [blocks, piece_keywords]))
    return pieces


def _render_csv(blocks: list[Any], keywords: dict[str, Any]) -> str:
    text = io.StringIO()
    frame = blocks[0] if len(blocks) == 1 else pandas.concat(blocks, axis=1)
    frame.to_csv(text, **keywords)
    return text.getvalue()
