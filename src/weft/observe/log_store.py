"""What workers have written lately, kept by their node for people: bounded, and readable after a worker's death.

Runs in the daemon's thread. The newest lines of a node are in memory (`MOST_BYTES` of text). A node that lives on its
own (`weft start`) also appends them to one file per worker in its session's folder, as lines of JSON, so that they
can be read after the node's death; a file that has grown beyond `FILE_BYTES` gives way to a second one, and the one
before that goes.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Callable, Iterator

import msgspec

from weft.machine import own_folders

MOST_BYTES = 8 << 20
FILE_BYTES = 4 << 20
MOST_LINES = 10_000
_encode = msgspec.json.Encoder().encode


class LogLine(msgspec.Struct, frozen=True):
    """One line of a worker's output."""

    number: int
    time_s: float
    pid: int
    job: int
    stream: str
    name: str
    """Of the task or actor that wrote it; empty when native code did."""
    text: str


class LogStore:
    """The lines of one node."""

    def __init__(self, folder: Callable[[], str] | None) -> None:
        self._folder = folder
        """Where files go, made when it is asked for; None where nothing may be left behind."""
        self._path = ""
        self._lines: deque[LogLine] = deque()
        self._bytes = 0
        self.dropped = 0
        self._next = 0

    def add(self, pid: int, job: int, stream: str, lines: list[tuple[str, str]]) -> None:
        now_s = time.time()
        made = []
        for name, text in lines:
            made.append(LogLine(self._next, now_s, pid, job, stream, name, text))
            self._next += 1
            self._bytes += _size(made[-1])
        self._lines.extend(made)
        while self._bytes > MOST_BYTES:
            self._bytes -= _size(self._lines.popleft())
            self.dropped += 1
        if self._folder is not None:
            with contextlib.suppress(OSError):  # a full disk must not stop the node
                self._write(pid, made)

    def find(self, since: int = 0, limit: int = 1000, pid: int | None = None, text: str = "") -> list[LogLine]:
        """The newest lines from number `since` on that fit, the oldest of them first."""
        found: list[LogLine] = []
        wanted = text.lower()
        for line in reversed(self._lines):
            if line.number < since or len(found) >= min(limit, MOST_LINES):
                break
            if pid is not None and line.pid != pid:
                continue
            if wanted and wanted not in line.text.lower() and wanted not in line.name.lower():
                continue
            found.append(line)
        return found[::-1]

    def _write(self, pid: int, lines: list[LogLine]) -> None:
        if not self._path:
            assert self._folder is not None
            self._path = os.path.join(self._folder(), "logs")
            own_folders.make_closed(self._path)
        path = os.path.join(self._path, f"worker-{pid}.jsonl")
        with open(path, "ab") as file:
            file.write(b"".join(_encode(line) + b"\n" for line in lines))
            is_full = file.tell() > FILE_BYTES
        if is_full:
            os.replace(path, f"{path}.1")


def read_files(folder: str) -> Iterator[LogLine]:
    """All lines in the files of a session, in the order in which they were written."""
    decode = msgspec.json.Decoder(LogLine).decode
    found: list[LogLine] = []
    for name in os.listdir(folder):
        if ".jsonl" not in name:
            continue
        with open(os.path.join(folder, name), "rb") as file:
            for raw in file:
                with contextlib.suppress(msgspec.MsgspecError):  # the last line of a node that was killed
                    found.append(decode(raw))
    yield from sorted(found, key=lambda line: line.number)


def _size(line: LogLine) -> int:
    return len(line.text) + len(line.name) + 100
