"""Where events come from. A source knows its offset and can go back to one, which makes recovery exact.

Runs in the actor of its subtask; one instance a subtask.
"""

from __future__ import annotations

import itertools
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO


class StreamSource:
    """The base of all sources. `poll` gives the next events, an empty list when there are none yet, None at the end."""

    @property
    def unassigned(self) -> bool:
        """Whether nothing comes from this subtask, for now: then no time of events waits for it."""
        return False

    def open(self, index: int, parallelism: int) -> None:
        """Before the first poll, in the subtask number `index` of `parallelism`."""

    def poll(self, most: int, timeout_s: float) -> list[Any] | None:
        """At most so many events, waiting at most so long for the first; None when there will be no more."""
        raise NotImplementedError

    def offset(self) -> Any:
        """Where the next poll goes on; small, and can be pickled."""
        raise NotImplementedError

    def seek(self, offset: Any) -> None:
        """Go back, or ahead, to what `offset` gave."""
        raise NotImplementedError

    def close(self) -> None:
        """After the last poll."""


class IteratorSource(StreamSource):
    """What an iterable gives that `make(index, parallelism)` returns. It must give the same again to be replayed;
    its offset is how many events were taken. It is iterated in a thread, since it may wait for its next event as long
    as it likes, and a checkpoint may not."""

    AHEAD = 16_384

    def __init__(self, make: Callable[[int, int], Iterable[Any]]) -> None:
        self._make = make
        self._taken = 0

    def open(self, index: int, parallelism: int) -> None:
        self._events: Iterator[Any] = iter(self._make(index, parallelism))
        self._ahead: deque[Any] = deque()
        self._changed = threading.Event()
        self._room = threading.Event()
        self._thread: threading.Thread | None = None
        self._ended = False
        self._failure: BaseException | None = None

    def _iterate(self) -> None:
        try:
            for event in self._events:
                self._ahead.append(event)
                if len(self._ahead) == 1:
                    self._changed.set()
                elif len(self._ahead) >= self.AHEAD:
                    self._room.clear()
                    if len(self._ahead) >= self.AHEAD:
                        self._room.wait()
        except BaseException as error:
            self._failure = error
        finally:
            self._ended = True
            self._changed.set()

    def poll(self, most: int, timeout_s: float) -> list[Any] | None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._iterate, name="data-iterator-source", daemon=True)
            self._thread.start()
        ended = self._ended  # before looking, so that nothing can come between
        if not self._ahead and not ended:
            self._changed.clear()
            if not self._ahead and not self._ended:
                self._changed.wait(timeout_s)
            return self._take(most)
        found = self._take(most)
        if found or not ended:
            return found
        if self._failure is not None:
            raise self._failure
        return None

    def _take(self, most: int) -> list[Any]:
        count = min(most, len(self._ahead))
        found = [self._ahead.popleft() for _ in range(count)]
        self._room.set()
        self._taken += count
        return found

    def offset(self) -> int:
        return self._taken

    def seek(self, offset: int) -> None:
        skipped = sum(1 for _ in itertools.islice(self._events, offset))
        if skipped < offset:
            raise ValueError(f"the iterable ended after {skipped} events, but {offset} were taken from it before")
        self._taken = offset


class PacedSource(IteratorSource):
    """An iterable at so many events a second, each with its due time: (time, event). It never ends by itself early."""

    def __init__(self, make: Callable[[int, int], Iterable[Any]], events_per_s: float) -> None:
        super().__init__(make)
        self._rate = events_per_s
        self._begun: float | None = None

    def poll(self, most: int, timeout_s: float) -> list[Any] | None:
        now = time.time()
        if self._begun is None:
            self._begun = now - self._taken / self._rate
        due = int((now - self._begun) * self._rate) - self._taken
        if due <= 0:
            time.sleep(min(timeout_s, 0.001))
            return []
        first = self._taken
        found = super().poll(min(due, most), 0)
        return found and [(self._begun + (first + number) / self._rate, item) for number, item in enumerate(found)]


class FileSource(StreamSource):
    """The lines of a file that grows. Ends when a file of the same name with `.done` behind it is there, or, with
    `follow=False`, at the end of the file. Where another file takes the name, as rotation does, it goes on with that
    one. Its offset is (the file's inode, bytes), and a file that was renamed is found again in its folder. One subtask
    reads it."""

    def __init__(self, path: str, follow: bool = True) -> None:
        self._path = os.path.abspath(os.fspath(path))
        self._follow = follow

    def open(self, index: int, parallelism: int) -> None:
        self._file: BinaryIO | None = None
        self._inode, self._offset = 0, 0
        if index == 0:
            self._open(self._path)

    def _open(self, path: str) -> None:
        self.close()
        self._file = open(path, "rb")  # noqa: SIM115
        self._inode, self._offset = os.fstat(self._file.fileno()).st_ino, 0

    def poll(self, most: int, timeout_s: float) -> list[Any] | None:
        if self._file is None:
            return None
        done = not self._follow or os.path.exists(self._path + ".done")
        replaced = self._is_replaced()
        found = []
        for line in itertools.islice(self._file, most):
            if not line.endswith(b"\n") and not (done or replaced):
                self._file.seek(self._offset)  # its end has not been written yet
                break
            self._offset += len(line)
            found.append(line.rstrip(b"\r\n").decode(errors="replace"))
        if found:
            return found
        if replaced:
            self._open(self._path)
            return []
        if done:
            return None
        self._file.seek(self._offset)
        time.sleep(min(timeout_s, 0.005))
        return []

    def _is_replaced(self) -> bool:
        """Whether another file has the name by now. Looked at before reading, so that the last lines are not missed."""
        try:
            now = os.stat(self._path)
        except FileNotFoundError:  # for the moment between two names
            return False
        if now.st_ino == self._inode and now.st_size < self._offset:
            raise OSError(f"{self._path} was cut to {now.st_size} bytes after {self._offset} of it had been read")
        return now.st_ino != self._inode

    def offset(self) -> tuple[int, int]:
        return self._inode, self._offset

    def seek(self, offset: tuple[int, int]) -> None:
        if self._file is None:
            return
        inode, at = offset
        if inode != self._inode:
            names = [entry.path for entry in os.scandir(os.path.dirname(self._path)) if entry.inode() == inode]
            if not names:
                raise ValueError(f"the file that was {self._path} is gone, of which {at} bytes had been read")
            self._open(names[0])
        self._offset = at
        self._file.seek(at)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class SocketSource(StreamSource):
    """Lines from a TCP server, until it closes. A socket cannot go back: what was on its way at a failure is lost."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._rest = b""
        self._lines: list[str] = []
        self._taken = 0

    def open(self, index: int, parallelism: int) -> None:
        self._socket = socket.create_connection(self._address, timeout=10) if index == 0 else None

    def poll(self, most: int, timeout_s: float) -> list[Any] | None:
        if self._socket is None:
            return None
        if not self._lines:
            self._socket.settimeout(max(timeout_s, 0.001))
            try:
                got = self._socket.recv(1 << 16)
            except TimeoutError:
                return []
            if not got:
                last, self._rest = self._rest, b""
                return [last.decode(errors="replace")] if last else None
            *lines, self._rest = (self._rest + got).split(b"\n")
            self._lines = [line.decode(errors="replace") for line in lines]
        found, self._lines = self._lines[:most], self._lines[most:]
        self._taken += len(found)
        return found

    def offset(self) -> int:
        return self._taken

    def seek(self, offset: int) -> None:
        self._taken = offset

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
