"""The cluster's chronicle: what happened to its nodes, heads, drivers, actors and workers, for who asks afterwards.

Runs in the daemon's thread. The head keeps it, or a node alone, in the table `events`; with other nodes that table is
in the control store too, so who takes over goes on with it. The other nodes pass on to the head what they have to tell,
and keep it while there is none. Only the last `MOST` are kept.
"""

from __future__ import annotations

import bisect
import itertools
import struct
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from weft.engine.wire.messages import Happening
from weft.store.tables import EVENTS, Delete, MemoryTables, Put

MOST = 1_000
INFO, WARNING, ERROR = "INFO", "WARNING", "ERROR"
NODE, HEAD, DRIVER, ACTOR, WORKER = "NODE", "HEAD", "DRIVER", "ACTOR", "WORKER"
_KEY = struct.Struct(">QI")
"""When, and a number that tells those of one moment apart."""
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Happening).decode


class Chronicle:
    """One daemon's part of it."""

    def __init__(
        self,
        tables: MemoryTables,
        node_id: str,
        pass_on: Callable[[Happening], bool | None],
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """`pass_on`: to the head; True when it went there, False when this daemon keeps it, None while nobody does."""
        self._now_ns = now_ns
        self._tables = tables
        self._node_id = node_id
        self._pass_on = pass_on
        self._numbers = itertools.count()
        self._keys: list[bytes] = []
        self._untold: deque[Happening] = deque(maxlen=MOST)
        tables.subscribe(EVENTS, b"", self._changed)

    def note(self, source: str, subject: str, text: str, severity: str = INFO) -> None:
        """`subject`: the id of what it happened to."""
        self.came(Happening(self._now_ns(), severity, source, subject, self._node_id, text))

    def came(self, one: Happening) -> None:
        """From here, or from another node."""
        was_sent = self._pass_on(one)
        if was_sent is None:
            self._untold.append(one)
        elif not was_sent:
            key = _KEY.pack(one.time_ns, next(self._numbers) & 0xFFFFFFFF)
            oldest = self._keys[: max(0, len(self._keys) + 1 - MOST)]
            self._tables.write([Put(EVENTS, key, _encode(one)), *(Delete(EVENTS, old) for old in oldest)])

    def head_is_there(self) -> None:
        """Tell it what happened while there was none."""
        untold, self._untold = self._untold, deque(maxlen=MOST)
        for one in untold:
            self.came(one)

    def rows(self, offset: int, limit: int) -> list[dict[str, Any]]:
        """The latest first."""
        found = []
        for key in self._keys[::-1][offset : offset + limit]:
            row = self._tables.get(EVENTS, key)
            assert row is not None
            one = _decode(row)
            found.append(
                {
                    "event_id": key.hex(),
                    "time_s": one.time_ns / 1e9,
                    "severity": one.severity,
                    "source_type": one.source,
                    "subject_id": one.subject,
                    "node_id": one.node_id,
                    "message": one.text,
                }
            )
        return found

    def _changed(self, table: str, key: bytes, value: bytes | None) -> None:
        at = bisect.bisect_left(self._keys, key)
        is_there = at < len(self._keys) and self._keys[at] == key
        if value is None and is_there:
            del self._keys[at]
        elif value is not None and not is_there:
            self._keys.insert(at, key)
