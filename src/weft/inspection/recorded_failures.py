"""What failed tasks were given, kept by their node for `weft replay`: small ones in memory, large ones in files.

A large one comes as an open file of its worker, which has no name; this process opens it too, so that it lasts as long
as it is kept and is gone with the node, whatever happens. Runs in the daemon's thread.
"""

from __future__ import annotations

import os

MOST_BYTES = 16 << 20
"""Of what is in memory."""
MOST_FILES = 16
MOST_FILE_BYTES = 1 << 30
PART_BYTES = 4 << 20


class KeptInputs:
    def __init__(self) -> None:
        self._small: dict[str, bytes] = {}
        self._files: dict[str, tuple[int, int]] = {}
        """(descriptor, bytes)."""

    def keep(self, task: str, inputs: bytes) -> None:
        self._forget(task)
        self._small[task] = inputs
        while sum(map(len, self._small.values())) > MOST_BYTES:
            del self._small[next(iter(self._small))]

    def keep_file(self, task: str, path: str) -> None:
        """OSError when the file is gone, or is none."""
        self._forget(task)
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        size = os.fstat(descriptor).st_size
        self._files[task] = (descriptor, size)
        while len(self._files) > MOST_FILES or sum(size for _, size in self._files.values()) > MOST_FILE_BYTES:
            self._forget(next(iter(self._files)))

    def find(self, beginning: str) -> list[tuple[str, int]]:
        """(task, bytes) of those whose id begins so."""
        known = {task: len(inputs) for task, inputs in self._small.items()}
        known |= {task: size for task, (_, size) in self._files.items()}
        return [(task, size) for task, size in known.items() if task.startswith(beginning)]

    def part(self, task: str, offset: int) -> bytes:
        """At most `PART_BYTES` from there on; empty at the end, and for a task that is not known."""
        if task in self._small:
            return self._small[task][offset : offset + PART_BYTES]
        if task in self._files:
            return os.pread(self._files[task][0], PART_BYTES, offset)
        return b""

    def _forget(self, task: str) -> None:
        self._small.pop(task, None)
        if task in self._files:
            os.close(self._files.pop(task)[0])
