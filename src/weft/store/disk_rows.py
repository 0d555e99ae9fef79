"""Rows that are not kept in memory: finished lineage and events, in an SQLite file.

Without a path the file has no name and goes with the process. SQLite is imported at the first such row.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.store.state.chain_rows import Change, Key, Row
from weft.store.storage import StorageDamaged, StorageRefused

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
        rows = self._select("SELECT value FROM rows WHERE tab = ? AND key = ?", (table, key))
        return rows[0][0] if rows else None

    def scan(self, table: str, prefix: bytes) -> list[tuple[bytes, bytes]]:
        query = "SELECT key, value FROM rows WHERE tab = ? AND key >= ? ORDER BY key"
        return self._select(query, (table, prefix), lambda row: row[0].startswith(prefix))

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
        with self._checked("written") as database, database:
            database.executemany("INSERT OR REPLACE INTO rows VALUES (?, ?, ?)", puts)
            database.executemany("DELETE FROM rows WHERE tab = ? AND key = ?", deletes)

    def after(self, key: Key | None, most: int) -> list[Row]:
        """Rows in the order of table and key."""
        query = "SELECT tab, key, value FROM rows WHERE (tab, key) > (?, ?) ORDER BY tab, key LIMIT ?"
        return self._select(query, (*(key or ("", b"")), most))

    def counts(self) -> dict[str, int]:
        return dict(self._select("SELECT tab, count(*) FROM rows GROUP BY tab"))

    def sync(self) -> None:
        """What was applied is durable in the file itself after this."""
        if self._database is not None and self._path is not None:
            with self._checked("written") as database:
                database.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def clear(self) -> None:
        if self._database is not None:
            with self._checked("written") as database, database:
                database.execute("DELETE FROM rows")

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    def _select(
        self, query: str, values: Sequence[object] = (), while_true: Callable[[Any], bool] = lambda row: True
    ) -> list[Any]:
        if self._database is None:
            return []
        with self._checked("read") as database:
            return list(itertools.takewhile(while_true, database.execute(query, values)))

    @contextlib.contextmanager
    def _checked(self, what: str) -> Iterator[sqlite3.Connection]:
        """Its errors are the storage's: a full disk is one that passes, a damaged file is not."""
        import sqlite3

        assert self._database is not None
        try:
            yield self._database
        except sqlite3.OperationalError as error:
            raise StorageRefused(f"{self._path or 'the file for finished rows'} cannot be {what}: {error}") from error
        except sqlite3.DatabaseError as error:
            raise StorageDamaged(
                f"{self._path} is damaged: {error}. Remove the folder to let this server join again."
            ) from error

    def _open(self) -> None:
        import sqlite3

        try:
            # Threads may take turns: a head's folder is read by one and written by another.
            self._database = sqlite3.connect("" if self._path is None else self._path, check_same_thread=False)
        except sqlite3.OperationalError as error:
            raise StorageRefused(f"{self._path} cannot be opened: {error}") from error
        try:
            with self._checked("opened") as database:
                database.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
                database.execute(f"PRAGMA journal_mode = {'MEMORY' if self._path is None else 'WAL'}")
                database.execute(f"PRAGMA synchronous = {'OFF' if self._path is None else 'FULL'}")
                database.execute(
                    "CREATE TABLE IF NOT EXISTS rows"
                    " (tab TEXT, key BLOB, value BLOB, PRIMARY KEY (tab, key)) WITHOUT ROWID"
                )
        except (StorageRefused, StorageDamaged):
            self.close()
            raise


def on_disk(changes: Sequence[Change], tables: frozenset[str]) -> list[Change]:
    return [change for change in changes if change[0] in tables]
