"""Excel: large sheets in parallel, where Modin's reader gets them right.

It forgets `nrows`, leaves `skipfooter` rows out of every part, takes the first row for the names whatever `header` says
and repeated names as they are. It looks for the third sheet in `sheet3.xml`, which is another one where sheets were
moved or deleted, and forever for the first row of a sheet without rows. All of that is read by pandas, in this process.
"""

from __future__ import annotations

import os
import posixpath
import warnings
import zipfile
from io import BytesIO
from typing import Any
from xml.etree import ElementTree

from modin.core import io as readers

_SHEET = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}sheet"
_RELATION = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
_FIRST_ROW_WITHIN = 1 << 16


class SheetDispatcher(readers.ExcelDispatcher):
    @classmethod
    def _read(cls, io: Any, **kwargs: Any) -> Any:
        reason = _why_by_pandas(io, kwargs)
        if not reason:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Parallel `read_excel` is a new feature")
                made = super()._read(io, **kwargs)
            if not isinstance(made, cls.query_compiler_cls):
                return made
            if made._modin_frame._partitions.size == 0:
                reason = "the sheet has no rows but the names"
            elif not made.columns.is_unique:
                reason = "names of columns repeat"
        return cls.single_worker_read(io, reason=reason, **kwargs) if reason else made


def _why_by_pandas(source: Any, keywords: dict[str, Any]) -> str:
    """What keeps the sheet from being read in parallel; nothing where it can be."""
    if keywords.get("nrows") is not None:
        return "only some rows are asked for (nrows)"
    if keywords.get("skipfooter"):
        return "the last rows are left out (skipfooter)"
    header = keywords.get("header", 0)
    if header is not None and not (type(header) is int and header == 0):
        return f"the header is not the first row (header={header})"
    is_here = isinstance(source, bytes | BytesIO) or (isinstance(source, str | os.PathLike) and os.path.isfile(source))
    if not is_here or not zipfile.is_zipfile(BytesIO(source) if isinstance(source, bytes) else source):
        return "only workbooks (.xlsx) in files of this machine are read in parallel"
    return "" if _is_regular(source) else "a sheet is empty, or sheets were moved or deleted"


def _is_regular(source: Any) -> bool:
    """Whether each sheet of a workbook has rows and lies in the file that has its number."""
    with zipfile.ZipFile(BytesIO(source) if isinstance(source, bytes) else source) as book:
        numbers = [sheet.get(_RELATION) for sheet in ElementTree.fromstring(book.read("xl/workbook.xml")).iter(_SHEET)]
        relations = ElementTree.fromstring(book.read("xl/_rels/workbook.xml.rels"))
        targets = {relation.get("Id"): relation.get("Target") or "" for relation in relations}
        for place, number in enumerate(numbers, start=1):
            name = f"sheet{place}.xml"
            if posixpath.basename(targets.get(number, "")) != name:
                return False
            with book.open(f"xl/worksheets/{name}") as sheet:
                if b"</row>" not in sheet.read(_FIRST_ROW_WITHIN):
                    return False
    return True
