"""The control store's tables: what it can be asked, and the form of it that lives in the head's own memory.

Tables are named; keys and values are bytes. Writes come in batches that are applied as a whole and in order, and each
subscriber hears of a batch once it is applied. A sharded, replicated store keeps these words and answers later.

Invariants (`MemoryTables`):
    TAB-1  a batch whose condition fails changes nothing and tells nobody.
    TAB-2  subscribers hear of a key's changes in the order in which they were made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeAlias

from weft.store.state.chain_rows import Delete, Key, Put, Write

__all__ = ["ControlStore", "Delete", "Key", "Listener", "MemoryTables", "Put", "Write"]

FUNCTIONS = "functions"
ACTORS = "actors"
NODES = "nodes"
JOBS = "jobs"
KV = "kv"
KV_DONE = "kv_done"
"""Which requests have made or deleted a key lately; see `node/key_values`."""
OBJECTS = "objects"
HEIRS = "heirs"
"""Who has inherited an object from its dead owner; see `engine/cluster/directory`."""
KEPT = "kept"
"""Rows of objects that outlive all processes; see `engine/node/kept_objects`."""
OBJECT_NAMES = "object_names"
GROUPS = "groups"
EVENTS = "events"
ACTOR_LOGS = "actor_logs"
HEADS = "heads"
"""Who has won which epoch; see `engine/state/headship`."""
TABLES = frozenset(
    (
        FUNCTIONS,
        ACTORS,
        NODES,
        JOBS,
        KV,
        KV_DONE,
        OBJECTS,
        HEIRS,
        KEPT,
        OBJECT_NAMES,
        GROUPS,
        EVENTS,
        ACTOR_LOGS,
        HEADS,
    )
)
DISK_TABLES = frozenset((EVENTS,))
"""Rows that are seldom read again: a storage keeps them on disk, not in memory."""

Listener: TypeAlias = Callable[[str, bytes, bytes | None], None]
"""Called with (table, key, new value or None for deleted)."""


class ControlStore(Protocol):
    """What every form of the control store can do."""

    def read(self, keys: Sequence[Key]) -> list[bytes | None]:
        """The rows of these keys, None where there is none."""

    def write(self, batch: Sequence[Write]) -> bool:
        """Apply them all, or none (False) when a row that must be absent is there."""

    def scan(self, table: str, prefix: bytes = b"") -> list[tuple[bytes, bytes]]:
        """All rows whose key begins so, by key."""

    def subscribe(self, table: str, prefix: bytes, listener: Listener) -> Callable[[], None]:
        """Hear of every change to such keys from now on; what is returned ends it."""


class MemoryTables:
    """Tables in this process's memory; used by the daemon's one thread."""

    def __init__(self) -> None:
        self._tables: dict[str, dict[bytes, bytes]] = {}
        self._listeners: dict[int, tuple[str, bytes, Listener]] = {}
        self._last_listener = 0

    def read(self, keys: Sequence[Key]) -> list[bytes | None]:
        return [self._tables.get(table, {}).get(key) for table, key in keys]

    def get(self, table: str, key: bytes) -> bytes | None:
        return self._tables.get(table, {}).get(key)

    def write(self, batch: Sequence[Write]) -> bool:
        if any(isinstance(one, Put) and one.if_absent and self.get(one.table, one.key) is not None for one in batch):
            return False
        for one in batch:
            rows = self._tables.setdefault(one.table, {})
            if isinstance(one, Put):
                rows[one.key] = one.value
            else:
                rows.pop(one.key, None)
        self._tell(batch)
        return True

    def put(self, table: str, key: bytes, value: bytes, if_absent: bool = False) -> bool:
        return self.write([Put(table, key, value, if_absent)])

    def delete(self, table: str, *keys: bytes) -> None:
        self.write([Delete(table, key) for key in keys])

    def scan(self, table: str, prefix: bytes = b"") -> list[tuple[bytes, bytes]]:
        return sorted((key, value) for key, value in self._tables.get(table, {}).items() if key.startswith(prefix))

    def subscribe(self, table: str, prefix: bytes, listener: Listener) -> Callable[[], None]:
        self._last_listener += 1
        number = self._last_listener
        self._listeners[number] = (table, prefix, listener)
        return lambda: self._listeners.pop(number, None) and None

    def statistics(self) -> dict[str, int]:
        """Rows by table."""
        return {table: len(rows) for table, rows in self._tables.items()}

    def _tell(self, batch: Iterable[Write]) -> None:
        if self._listeners:
            for one in batch:
                for table, prefix, listener in list(self._listeners.values()):
                    if table == one.table and one.key.startswith(prefix):
                        listener(one.table, one.key, one.value if isinstance(one, Put) else None)
