"""The storage that needs nothing else: tables in memory, and with a folder a log and snapshots of them.

An entry is in the log before it is in memory. `fsync`: "always" (before `apply` returns), "periodic" (at each tick) or
"never". Snapshots are made when the log has grown large, in between, in the thread of the replica.
"""

from __future__ import annotations

import bisect
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from weft.machine import own_folders
from weft.store import journal
from weft.store.disk_rows import DiskRows, on_disk
from weft.store.state.chain_messages import Entry
from weft.store.state.chain_rows import Key, Row
from weft.store.storage import DISK_TABLES, PIECE_BYTES, StorageDamaged, StorageRefused

SMALLEST_COMPACTION = 16 << 20
FSYNC = ("always", "periodic", "never")
_COPYING = -1


class EmbeddedStorage:
    """The rows of one shard."""

    def __init__(
        self,
        folder: Path | None = None,
        fsync: str = "periodic",
        write: journal.WriteCall = os.write,
        compact_bytes: int = SMALLEST_COMPACTION,
    ) -> None:
        """As the folder has it. Raises StorageDamaged."""
        if fsync not in FSYNC:
            raise ValueError(f"fsync must be one of {', '.join(FSYNC)}, but got {fsync!r}")
        self._folder = folder
        self._fsync = fsync
        self._write = write
        self._compact_bytes = compact_bytes
        self._tables: dict[str, dict[bytes, bytes]] = {}
        self._applied = 0
        self._log: journal.Log | None = None
        self._snapshot_bytes = 0
        self._keys: list[Key] | None = None
        """Of the rows in memory, while they are copied to another replica."""
        if folder is not None:
            own_folders.make_closed(folder)
        self._disk = DiskRows(None if folder is None else folder / "disk_rows.sqlite")
        if folder is not None:
            self._recover(folder)

    @property
    def applied(self) -> int:
        return self._applied

    @property
    def is_synced(self) -> bool:
        """Whether all that was applied is on the disk."""
        return self._log is None or self._log.is_synced

    def to_be_synced(self) -> int:
        """Of the log; see `journal.Log`."""
        assert self._log is not None
        return self._log.to_be_synced()

    # ---- reading ----

    def get(self, table: str, key: bytes) -> bytes | None:
        if table in DISK_TABLES:
            return self._disk.get(table, key)
        rows = self._tables.get(table)
        return None if rows is None else rows.get(key)

    def read(self, keys: Sequence[Key]) -> list[bytes | None]:
        return [self.get(table, key) for table, key in keys]

    def scan(self, table: str, prefix: bytes) -> list[tuple[bytes, bytes]]:
        if table in DISK_TABLES:
            return self._disk.scan(table, prefix)
        rows = self._tables.get(table, {})
        return sorted((key, value) for key, value in rows.items() if key.startswith(prefix))

    def rows_after(self, after: Key | None) -> tuple[list[Row], Key | None]:
        if after is None or self._keys is None:
            self._keys = sorted((table, key) for table, rows in self._tables.items() for key in rows)
        found: list[Row] = []
        size = 0
        if after is None or after[0] not in DISK_TABLES:
            for key in self._keys[0 if after is None else bisect.bisect_right(self._keys, after) :]:
                if (value := self.get(*key)) is not None:
                    found.append((*key, value))
                    size += len(value) + len(key[1])
                if size > PIECE_BYTES:
                    return found, key
            after = None
        self._keys = None
        while size <= PIECE_BYTES:
            rows = self._disk.after(after, 100)
            if not rows:
                return found, None
            found += rows
            size += sum(len(key) + len(value) for _, key, value in rows)
            after = rows[-1][:2]
        return found, after

    def statistics(self) -> dict[str, int]:
        return {**{table: len(rows) for table, rows in self._tables.items() if rows}, **self._disk.counts()}

    # ---- writing ----

    def apply(self, entries: Sequence[Entry]) -> None:
        if not entries:
            return
        assert entries[0].seq == self._applied + 1, f"entry {entries[0].seq} after {self._applied}"
        before = self._log.size if self._log is not None else 0
        if self._log is not None:
            self._log.append(entries)
        cold = [change for entry in entries for change in on_disk(entry.changes, DISK_TABLES)]
        if cold:
            try:
                self._disk.apply(cold)
            except StorageRefused:
                if self._log is not None:
                    self._log.cut_back(before)
                raise
        self._apply_in_memory(entries)
        if self._log is not None:
            if self._fsync == "always":
                self._log.sync()
            if self._log.size > max(self._compact_bytes, 2 * self._snapshot_bytes):
                self._compact_if_possible()

    def _apply_in_memory(self, entries: Sequence[Entry]) -> None:
        tables = self._tables
        for entry in entries:
            for table, key, value in entry.changes:
                if table in DISK_TABLES:
                    continue
                rows = tables.get(table)
                if rows is None:
                    rows = tables[table] = {}
                if value is None:
                    rows.pop(key, None)
                else:
                    rows[key] = value
        self._applied = entries[-1].seq

    def load(self, rows: Sequence[Row], is_first: bool, applied: int | None) -> None:
        if is_first:
            self._remove_files()
            self._tables = {}
            self._disk.clear()
            self._applied = _COPYING
        for table, key, value in rows:
            if table not in DISK_TABLES:
                self._tables.setdefault(table, {})[key] = value
        self._disk.apply([row for row in rows if row[0] in DISK_TABLES])
        if applied is not None:
            self._applied = applied
            if self._folder is not None:
                self.compact()

    def tick(self) -> None:
        if self._log is not None and self._fsync == "periodic":
            self._log.sync()

    def clear(self) -> None:
        self.close()
        self._tables = {}
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def close(self) -> None:
        if self._log is not None:
            if self._fsync != "never":
                self._log.sync()
            self._log.close()
            self._log = None
        self._disk.close()

    # ---- the folder ----

    def compact(self) -> None:
        """Write a snapshot and begin a new log; what they replace is removed. Raises StorageRefused."""
        assert self._folder is not None
        self._disk.sync()
        path = journal.write_snapshot(self._folder, self._applied, self.rows_in_memory(), self._write)
        fresh = journal.Log(self._folder / f"log-{self._applied + 1}", self._write)
        if self._log is not None and self._log.path != fresh.path:
            self._log.close()
        self._log = fresh
        self._snapshot_bytes = path.stat().st_size
        for _, old in [*journal.numbered(self._folder, "snapshot"), *journal.numbered(self._folder, "log")]:
            if old not in (path, fresh.path):
                old.unlink()
        journal.sync_folder(self._folder)

    def _compact_if_possible(self) -> None:
        try:
            self.compact()
        except StorageRefused:
            self._snapshot_bytes = self._log.size if self._log is not None else 0  # again when it has doubled

    def rows_in_memory(self) -> Iterator[Row]:
        return ((table, key, value) for table, rows in self._tables.items() for key, value in rows.items())

    def _recover(self, folder: Path) -> None:
        snapshots = journal.numbered(folder, "snapshot")
        if snapshots:
            _, path = snapshots[-1]
            self._applied, rows = journal.read_snapshot(path)
            self._snapshot_bytes = path.stat().st_size
            for table, key, value in rows:
                self._tables.setdefault(table, {})[key] = value
        logs = journal.numbered(folder, "log")
        for index, (first, path) in enumerate(logs):
            if first > self._applied + 1:
                raise StorageDamaged(
                    f"{path} begins with entry {first}, but the files before it end with {self._applied}: one is "
                    "missing. Restore it, or remove the folder and let this server join again."
                )
            for entry in journal.read_log(path, self._applied):
                if entry.seq != self._applied + 1:
                    raise StorageDamaged(f"{path} goes from entry {self._applied} to {entry.seq}: some are missing")
                self._disk.apply(on_disk(entry.changes, DISK_TABLES))
                self._apply_in_memory([entry])
            if index < len(logs) - 1 and logs[index + 1][0] > self._applied + 1:
                raise StorageDamaged(f"{path} ends with entry {self._applied}, but more followed: it is cut short")
        self._log = journal.Log(logs[-1][1] if logs else folder / f"log-{self._applied + 1}", self._write)

    def _remove_files(self) -> None:
        if self._folder is None:
            return
        if self._log is not None:
            self._log.close()
            self._log = None
        for kind in ("log", "snapshot"):
            for _, path in journal.numbered(self._folder, kind):
                path.unlink()
