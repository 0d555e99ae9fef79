"""Functions and classes that drivers and workers have made known to the daemon, for the actors that it starts.

Runs in the daemon's thread; the rows are in the control store. Keys are hashes of the content, so two jobs may share a
row; it goes when the last job that exported it has ended.
"""

from __future__ import annotations

from weft.store.tables import FUNCTIONS, MemoryTables

_KEY_BYTES = 8


class FunctionTable:
    """FUNCTION records by key, as they came."""

    def __init__(self, tables: MemoryTables) -> None:
        self._tables = tables
        self._jobs: dict[bytes, set[int]] = {}

    def keep(self, job: int, record: bytes) -> None:
        key = record[:_KEY_BYTES]
        if key not in self._jobs:
            self._jobs[key] = set()
            self._tables.put(FUNCTIONS, key, record)
        self._jobs[key].add(job)

    def find(self, key: int) -> bytes | None:
        return self._tables.get(FUNCTIONS, key.to_bytes(_KEY_BYTES, "little"))

    def drop(self, job: int, function: int) -> None:
        """That job needs it no more."""
        key = function.to_bytes(_KEY_BYTES, "little")
        jobs = self._jobs.get(key, set())
        jobs.discard(job)
        if not jobs and self._jobs.pop(key, None) is not None:
            self._tables.delete(FUNCTIONS, key)

    def end_job(self, job: int) -> None:
        gone = []
        for key, jobs in self._jobs.items():
            jobs.discard(job)
            if not jobs:
                gone.append(key)
        for key in gone:
            del self._jobs[key]
        self._tables.delete(FUNCTIONS, *gone)
