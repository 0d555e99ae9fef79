"""A part of a file of text, as a file of its own that begins with the header."""

from __future__ import annotations

import io
from typing import Any


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
