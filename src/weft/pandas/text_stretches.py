"""CSV in stretches of a file, one a task, without holding a stretch in memory: neither where it is cut nor where it is
parsed.

Modin's own way reads each stretch whole, twice over in the worker and once in the driver, which counts its quotes.
Files that are compressed, not of this file system or in another encoding still go that way.
"""

from __future__ import annotations

import io
import os
import warnings
from typing import Any

import pandas
from modin.core import io as readers
from modin.core.storage_formats.pandas import parsers
from pandas.io.common import infer_compression

_PIECE_BYTES = 1 << 20


class Stretch(io.RawIOBase):
    """Lines of a header, then the bytes of a file from `start` to `end`."""

    def __init__(self, file: io.FileIO, header: bytes, start: int, end: int) -> None:
        super().__init__()
        self._file = file
        self._header = header
        self._left = end - start
        file.seek(start)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._header:
            piece, self._header = self._header[: len(buffer)], self._header[len(buffer) :]
            buffer[: len(piece)] = piece
            return len(piece)
        count = self._file.readinto(memoryview(buffer)[: self._left]) or 0
        self._left -= count
        return count


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
        return [*parsers._split_result_for_readers(1, splits, frame), index, frame.dtypes]


class StretchDispatcher(readers.CSVDispatcher):
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
