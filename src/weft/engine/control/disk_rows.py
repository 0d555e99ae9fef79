"""Rows that are not kept in memory: finished lineage and events, in an SQLite file.

Without a path the file has no name and goes with the process. SQLite is imported at the first such row.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from weft.engine.control.storage import StorageDamaged, StorageRefused
from weft.engine.state.chain_rows import Change, Key, Row

if TYPE_CHECKING:
    import sqlite3

_CACHE_KIB = 4096


class DiskRows:
    """Tables of one shard that live on disk."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._database: sqlite3.Connection | None = None
        if path is not None and path.exists():
            self._open()

    def get(self, table: str, key: bytes) -> bytes | None:
        if self._database is None:
            return None
        row = self._database.execute("SELECT value FROM rows WHERE tab = ? AND key = ?", (table, key)).fetchone()
        return None if row is None else row[0]

    def scan(self, table: str, prefix: bytes) -> list[tuple[bytes, bytes]]:
        if self._database is None:
            return []
        rows = self._database.execute(
            "SELECT key, value FROM rows WHERE tab = ? AND key >= ? ORDER BY key", (table, prefix)
        )
        return list(itertools.takewhile(lambda row: row[0].startswith(prefix), rows))

    def apply(self, changes: Iterable[Change]) -> None:
        """All or, with StorageRefused, none."""
        puts = []
        deletes = []
        last = {(table, key): value for table, key, value in changes}
        for (table, key), value in last.items():
            if value is None:
                deletes.append((table, key))
            else:
                puts.append((table, key, value))
        if self._database is None:
            if not puts:
                return
            self._open()
        assert self._database is not None
        import sqlite3

        try:
            with self._database:
                self._database.executemany("INSERT OR REPLACE INTO rows VALUES (?, ?, ?)", puts)
                self._database.executemany("DELETE FROM rows WHERE tab = ? AND key = ?", deletes)
        except sqlite3.OperationalError as error:
            raise StorageRefused(f"{self._path or 'the file for finished rows'} can not be written: {error}") from error

    def after(self, key: Key | None, most: int) -> list[Row]:
        """Rows in the order of table and key."""
        if self._database is None:
            return []
        query = "SELECT tab, key, value FROM rows WHERE (tab, key) > (?, ?) ORDER BY tab, key LIMIT ?"
        return self._database.execute(query, (*(key or ("", b"")), most)).fetchall()

    def counts(self) -> dict[str, int]:
        if self._database is None:
            return {}
        return dict(self._database.execute("SELECT tab, count(*) FROM rows GROUP BY tab"))

    def sync(self) -> None:
        """What was applied is durable in the file itself after this."""
        if self._database is not None and self._path is not None:
            self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def clear(self) -> None:
        if self._database is not None:
            with self._database:
                self._database.execute("DELETE FROM rows")

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    def _open(self) -> None:
        import sqlite3

        try:
            self._database = sqlite3.connect("" if self._path is None else self._path)
            self._database.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            self._database.execute(f"PRAGMA journal_mode = {'MEMORY' if self._path is None else 'WAL'}")
            self._database.execute(f"PRAGMA synchronous = {'OFF' if self._path is None else 'FULL'}")
            self._database.execute(
                "CREATE TABLE IF NOT EXISTS rows (tab TEXT, key BLOB, value BLOB, PRIMARY KEY (tab, key)) WITHOUT ROWID"
            )
        except sqlite3.OperationalError as error:
            self.close()
            raise StorageRefused(f"{self._path} can not be opened: {error}") from error
        except sqlite3.DatabaseError as error:
            self.close()
            raise StorageDamaged(
                f"{self._path} is damaged: {error}. Remove the folder to let this server join again."
            ) from error


def on_disk(changes: Sequence[Change], tables: frozenset[str]) -> list[Change]:
    return [change for change in changes if change[0] in tables]
