"""A job's output on disk: files of bounded size, the oldest removed, read by the offset in all that was ever written.

A file is named by the offset of its first byte, so a reader needs no index and misses nothing when files are turned.
"""

from __future__ import annotations

import os

from weft.machine import own_folders

FILE_BYTES = 8 << 20
FILES_KEPT = 8


class LogWriter:
    """Appends; one process writes."""

    def __init__(self, folder: str, file_bytes: int = FILE_BYTES, files_kept: int = FILES_KEPT) -> None:
        self._folder = folder
        self._file_bytes = file_bytes
        self._files_kept = files_kept
        self._start = self._size = 0
        own_folders.make_closed(folder)
        self._fd = self._open()

    def write(self, data: bytes) -> None:
        while data:
            if self._size >= self._file_bytes:
                self._turn()
            part = data[: self._file_bytes - self._size]
            self._size += os.write(self._fd, part)
            data = data[len(part) :]

    def close(self) -> None:
        os.close(self._fd)

    def _open(self) -> int:
        path = os.path.join(self._folder, f"{self._start:015d}.log")
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def _turn(self) -> None:
        os.close(self._fd)
        self._start += self._size
        self._size = 0
        self._fd = self._open()
        for start in _starts(self._folder)[: -self._files_kept]:
            os.unlink(os.path.join(self._folder, f"{start:015d}.log"))


def read(folder: str, offset: int, most_bytes: int) -> tuple[bytes, int]:
    """What follows `offset`, and the offset after it. What was removed is skipped; nothing when there is no more.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     writer = LogWriter(folder, file_bytes=4, files_kept=2)
    ...     writer.write(b"abcdefghij")
    ...     writer.close()
    ...     read(folder, 0, 100), read(folder, 8, 100), read(folder, 10, 100)
    ((b'efgh', 8), (b'ij', 10), (b'', 10))
    """
    starts = [start for start in _starts(folder) if start <= offset] or _starts(folder)[:1]
    if not starts:
        return b"", offset
    start = starts[-1]
    offset = max(offset, start)
    try:
        with open(os.path.join(folder, f"{start:015d}.log"), "rb") as file:
            file.seek(offset - start)
            data = file.read(most_bytes)
    except FileNotFoundError:  # turned away in this moment
        return b"", offset
    return data, offset + len(data)


def _starts(folder: str) -> list[int]:
    try:
        return sorted(int(name[:-4]) for name in os.listdir(folder) if name.endswith(".log"))
    except FileNotFoundError:
        return []
