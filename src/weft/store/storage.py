"""What a replica of the control store needs of its storage, and what no storage takes.

A storage holds the rows of one shard. It is used by one thread and answers at once. `tests/contract/` has the suite
that every form must pass.

Invariants:
    STO-1  entries are applied as a whole and in order, or not at all (StorageRefused); nothing applied is lost by that.
    STO-2  `applied` is the number of the last entry whose changes are in the rows; -1 while rows are being copied in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from weft.store.state.chain_messages import Entry, WriteRequest
from weft.store.state.chain_requests import SESSIONS
from weft.store.state.chain_rows import Key, Put, Row, Write
from weft.store.tables import DISK_TABLES, TABLES

LARGEST_KEY = 4 << 10
LARGEST_VALUE = 64 << 20
LARGEST_BATCH = 128 << 20
"""It goes through the chain in one piece."""
LARGEST_ANSWER = 240 << 20
"""A link takes messages of 256 MiB."""
PIECE_BYTES = 1 << 20
"""About what is copied to a joining replica at once."""


class StorageRefused(Exception):
    """It cannot be stored now (a full disk, a server that does not answer); nothing has changed, try later."""


class StorageDamaged(Exception):
    """What is stored is not what was written; says where and, of a folder, what to do."""


class Storage(Protocol):
    """The rows of one shard."""

    @property
    def applied(self) -> int: ...

    def get(self, table: str, key: bytes) -> bytes | None: ...

    def read(self, keys: Sequence[Key]) -> list[bytes | None]: ...

    def scan(self, table: str, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """By key."""

    def apply(self, entries: Sequence[Entry]) -> None:
        """The first must follow on `applied`. Raises StorageRefused."""

    def rows_after(self, after: Key | None) -> tuple[list[Row], Key | None]:
        """Rows in the order of table and key, about PIECE_BYTES of them, and where to go on; None: that was all.

        Rows that are written meanwhile may be missing."""

    def load(self, rows: Sequence[Row], is_first: bool, applied: int | None) -> None:
        """Rows copied from another replica; `applied` with the last of them. Raises StorageRefused."""

    def tick(self) -> None:
        """What is to be done now and then."""

    def statistics(self) -> dict[str, int]:
        """Rows by table."""

    def clear(self) -> None:
        """Remove all of it, for good."""

    def close(self) -> None: ...


def check_request(request: WriteRequest) -> None:
    """ValueError for what no storage takes."""
    for batch in request.batches:
        check_batch(batch)


def check_batch(batch: Sequence[Write]) -> None:
    """ValueError for what no storage takes."""
    for one in batch:
        _check_write(one)
    size = sum(len(one.key) + (len(one.value) if isinstance(one, Put) else 0) for one in batch)
    if size > LARGEST_BATCH:
        raise ValueError(
            f"a batch of {size:,} bytes is too large: at most {LARGEST_BATCH:,} are written as a whole; write fewer "
            "rows at once"
        )


def _check_write(one: Write) -> None:
    check_key(one.table, one.key)
    if isinstance(one, Put) and len(one.value) > LARGEST_VALUE:
        raise ValueError(
            f"a value of {len(one.value):,} bytes for {one.key[:40]!r} in {one.table!r} is too large: at most "
            f"{LARGEST_VALUE:,} fit in a row; put() it and store the ref"
        )


def check_key(table: str, key: bytes) -> None:
    if table not in TABLES:
        raise ValueError(f"there is no table {table[:40]!r}; there are {', '.join(sorted(TABLES))}")
    if len(key) > LARGEST_KEY:
        raise ValueError(f"a key of {len(key):,} bytes in {table!r} is too long: at most {LARGEST_KEY:,} are allowed")


def check_answer(size: int) -> None:
    """ValueError where rows of so many bytes do not fit in one answer."""
    if size > LARGEST_ANSWER:
        raise ValueError(
            f"rows of {size:,} bytes do not fit in one answer, of at most {LARGEST_ANSWER:,}: ask for fewer keys, or "
            "scan a longer prefix"
        )


__all__ = [
    "DISK_TABLES",
    "SESSIONS",
    "Storage",
    "StorageDamaged",
    "StorageRefused",
    "check_answer",
    "check_batch",
    "check_key",
    "check_request",
]
