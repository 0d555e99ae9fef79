"""Parquet in parts: a folder with a file for each row of blocks, which replaces what was there under its name before.

Modin writes its parts over those of an earlier frame and leaves the rest of them, which are then read as rows of the
new frame; and it cannot write where a single file is.
"""

from __future__ import annotations

import re
from typing import Any

import fsspec
from modin.core import io as readers
from pandas.io.common import stringify_path

_PART = re.compile(r"part-\d{4,}\.\w+\.parquet")
"""A name that Modin gives to a part."""


class PartsDispatcher(readers.ParquetDispatcher):
    @classmethod
    def write(cls, qc: Any, **kwargs: Any) -> Any:
        path = stringify_path(kwargs["path"])
        if isinstance(path, str) and not kwargs.get("partition_cols"):  # with those, pandas adds to a folder as well
            qc.execute()  # its rows may come from the very files that go
            client = (kwargs.get("storage_options") or {}).get("client_kwargs", {})
            remove_parts(*fsspec.core.url_to_fs(path, client_kwargs=client))
        return super().write(qc, **kwargs)


def remove_parts(system: Any, path: str) -> None:
    """The file of this name, or the parts in the folder of this name; other files in it stay."""
    if system.isfile(path):
        system.rm_file(path)
    elif system.isdir(path):
        for entry in system.ls(path, detail=True):
            name = str(entry["name"])
            if entry["type"] == "file" and _PART.fullmatch(name.rsplit("/", 1)[-1]):
                system.rm_file(name)
