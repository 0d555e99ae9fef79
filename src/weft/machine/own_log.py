"""What a daemon tells people of itself, on its standard error: a log that cannot be written ends no daemon.

Where the log is a file and its disk is full, `print` raises. Nothing that a daemon says is worth its end.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_STANDARD_ERROR = 2


class _Dropping(io.RawIOBase):
    """Takes all; what the file does not take is dropped."""

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return _STANDARD_ERROR

    def write(self, data: ReadableBuffer, /) -> int:
        with contextlib.suppress(OSError):
            os.write(_STANDARD_ERROR, data)
        return memoryview(data).nbytes


def never_fail() -> None:
    """From now on `sys.stderr` drops what cannot be written, in this process."""
    sys.stderr = io.TextIOWrapper(_Dropping(), "utf-8", "backslashreplace", write_through=True)
