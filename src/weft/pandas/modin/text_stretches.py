"""CSV in stretches of a file, one a task, without holding a stretch in memory: neither where it is cut nor where it is
parsed.

Modin's own way reads each stretch whole, twice over in the worker and once in the driver, which counts its quotes.
Files that are compressed, not of this file system or in another encoding still go that way.

Modin counts the rows of a header as lines of the file, and knows two ends of a line. Where that is wrong it would lose
rows without a word, so such files are read by pandas, in this process.
"""

from __future__ import annotations

import csv
import io
import os
import warnings
from typing import Any

import pandas
from modin.core import io as readers
from modin.core.io.file_dispatcher import OpenFile
from modin.core.storage_formats.pandas import parsers
from modin.utils import ModinAssumptionError
from pandas._libs.lib import no_default
from pandas.api.types import is_list_like
from pandas.io.common import infer_compression

from weft.pandas.modin.text_dates import guessed_formats, have_one_type, mark_holes, mixed_column
from weft.pandas.stretches import Stretch

_PIECE_BYTES = 1 << 20


class StretchParser(parsers.PandasCSVParser):
    @staticmethod
    def parse(fname: Any, common_read_kwargs: dict[str, Any], **kwargs: Any) -> Any:
        """In a worker: the blocks of a stretch, then its index or length, then its dtypes."""
        together = {**common_read_kwargs, **kwargs}
        if not _is_plain_file(fname, together):
            return parsers.PandasCSVParser.parse(fname, common_read_kwargs, **kwargs)
        start, end = together.pop("start"), together.pop("end")
        splits, header_lines = together.pop("num_splits"), together.pop("header_size", 0)
        together["dtype"] = together.pop("common_dtypes", None) or together.get("dtype")
        for name in ("memory_map", "compression", "storage_options"):
            together.pop(name, None)
        with warnings.catch_warnings(), open(fname, "rb", buffering=0) as file:
            warnings.simplefilter("ignore")
            with open(fname, "rb") as again:
                header = b"".join(again.readline() for _ in range(header_lines))
            frame = pandas.read_csv(io.BufferedReader(Stretch(file, header, start, end), _PIECE_BYTES), **together)
        index = len(frame) if isinstance(frame.index, pandas.RangeIndex) else frame.index
        return [*parsers._split_result_for_readers(1, splits, frame), index, mark_holes(frame)]


class StretchDispatcher(readers.CSVDispatcher):
    @classmethod
    def _read(cls, filepath_or_buffer: Any, **kwargs: Any) -> Any:
        try:
            return super()._read(filepath_or_buffer, **kwargs)
        except ModinAssumptionError as error:
            return cls.single_worker_read(filepath_or_buffer, kwargs, reason=str(error))

    @classmethod
    def _get_new_qc(cls, *, dtypes_ids: list[Any], **kwargs: Any) -> Any:
        types = cls.materialize(dtypes_ids)
        if kwargs.get("parse_dates") and not have_one_type(types):
            raise ModinAssumptionError("not all dates of a column have the format of the first")
        mixed = mixed_column(types)
        if mixed is not None:
            raise ModinAssumptionError(f"the column {mixed!r} has values of other types in some parts of the file")
        return super()._get_new_qc(dtypes_ids=dtypes_ids, **kwargs)

    @classmethod
    def check_parameters_support(
        cls, filepath_or_buffer: Any, read_kwargs: dict[str, Any], skiprows_md: Any, header_size: int
    ) -> tuple[bool, str | None]:
        is_supported, reason = super().check_parameters_support(
            filepath_or_buffer, read_kwargs, skiprows_md, header_size
        )
        if is_supported:
            has_gaps = is_list_like(skiprows_md)
            reason = _why_not_cut(read_kwargs, header_size, has_gaps) or _why_not_counted(
                cls._head(filepath_or_buffer, read_kwargs), read_kwargs, header_size
            )
        if reason is None:
            formats = guessed_formats(
                read_kwargs, lambda **others: cls.read_callback(filepath_or_buffer, **{**read_kwargs, **others})
            )
            read_kwargs.update({} if formats is None else {"date_format": formats})
        return reason is None, reason

    @classmethod
    def _head(cls, name: Any, keywords: dict[str, Any]) -> bytes:
        compression = cls.infer_compression(name, keywords["compression"])
        with OpenFile(name, "rb", compression, **(keywords.get("storage_options") or {})) as file:
            head: bytes = file.read(_PIECE_BYTES)
        return head

    @classmethod
    def offset(
        cls,
        f: Any,
        offset_size: int,
        quotechar: bytes = b'"',
        is_quoting: bool = True,
        encoding: str | None = None,
        newline: bytes | None = None,
    ) -> bool:
        """Go so many bytes further, and then to the end of the row. False where a quote is left open by the end."""
        quotes, left = 0, offset_size if is_quoting else 0
        while left > 0 and (piece := f.read(min(left, _PIECE_BYTES))):
            quotes += piece.count(quotechar)
            left -= len(piece)
        if not is_quoting:
            f.seek(offset_size, os.SEEK_CUR)
        is_outside, _ = cls._read_rows(
            f,
            nrows=1,
            quotechar=quotechar,
            is_quoting=is_quoting,
            outside_quotes=quotes % 2 == 0,
            encoding=encoding,
            newline=newline,
        )
        return bool(is_outside)


def _why_not_cut(keywords: dict[str, Any], header_lines: int, skips_with_gaps: bool) -> str | None:
    """What of the keywords is not for parts of a file; None where all are."""
    if keywords.get("date_parser") not in (None, no_default):
        return "dates are read by a function (date_parser)"
    if keywords.get("nrows") == 0:
        return "no rows are asked for (nrows=0)"
    if keywords.get("nrows") is not None and keywords.get("comment") is not None:
        return "rows are counted (nrows) among comments"
    if skips_with_gaps and min(keywords["skiprows"]) <= header_lines:
        return "rows beside the header are left out (skiprows)"
    encoding = keywords.get("encoding") or "utf-8"
    if len("\n\n".encode(encoding)) - len("\n".encode(encoding)) != 1:
        return f"a line's end is more than one byte (encoding={encoding})"
    return None


def _why_not_counted(head: bytes, keywords: dict[str, Any], header_lines: int) -> str | None:
    """What keeps a row of the header from being a line; None where it is one."""
    if b"\r" in head and b"\n" not in head:
        return "lines end with a carriage return alone"
    first = _first_line(keywords.get("skiprows"))
    quote, comment = (keywords.get(name) or "" for name in ("quotechar", "comment"))
    for line in head.split(b"\n", first + header_lines)[first : first + header_lines]:
        if not line.strip():
            return "a line of the header is empty"
        if comment and comment.encode() in line:
            return "there is a comment in the header"
        if quote and keywords.get("quoting") != csv.QUOTE_NONE and line.count(quote.encode()) % 2:
            return "a quoted name or value of the header goes on in the next line"
    return None


def _first_line(skipped: Any) -> int:
    """Of the header: rows may be left out before it, or behind it."""
    if isinstance(skipped, int):
        return skipped
    return len(skipped) if is_list_like(skipped) and 0 in skipped else 0


def _is_plain_file(name: Any, keywords: dict[str, Any]) -> bool:
    return (
        keywords.get("start") is not None
        and keywords.get("end") is not None
        and keywords.get("encoding") is None
        and not keywords.get("storage_options")
        and isinstance(name, str)
        and infer_compression(name, keywords.get("compression", "infer")) is None
        and os.path.isfile(name)
    )
