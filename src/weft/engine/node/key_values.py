"""Keys and values of programs (`kv_put` and its kin), kept by a node of its own or by a cluster's head.

Runs in the daemon's thread. A request may come twice: a node that had no answer when the head died asks the next one
again. Whether a key was made, or was there to be deleted, must then be answered as if it came once. So who did it is
written to a row beside the key's, in the same shard and before it, and forgotten after `KEPT_S`: nobody asks then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from weft.engine.node.methods import Asker
from weft.engine.state.events import Process
from weft.store.tables import KV, KV_DONE, Delete, MemoryTables, Put, Write

KEPT_S = 120.0
"""Longer than a request waits for its answer."""
GlobalProcess: TypeAlias = tuple[int, int, int]
Done: TypeAlias = tuple[GlobalProcess, int]
"""Who asked, and the number of the request."""
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Done]).decode


class KeyValues:
    """The rows of two tables."""

    def __init__(self, tables: MemoryTables, call_later: Callable[[float, Callable[[], None]], object]) -> None:
        self._tables = tables
        self._call_later = call_later
        self.name_of: Callable[[Process], GlobalProcess] | None = None
        """By which all nodes know a process; None where there is no cluster and no request comes twice."""
        tables.subscribe(KV_DONE, b"", self._forget_later)

    def get(self, asker: Asker, key: Any, namespace: str = "") -> bytes | None:
        return self._tables.get(KV, _key(key, namespace))

    def keys(self, asker: Asker, prefix: Any = b"", namespace: str = "") -> list[bytes]:
        whole = _key(prefix, namespace)
        skip = len(whole) - len(_as_bytes(prefix))
        return [key[skip:] for key, _ in self._tables.scan(KV, whole)]

    def put(self, asker: Asker, key: Any, value: bytes, overwrite: bool = True, namespace: str = "") -> bool:
        """Whether it was written: not when it exists and `overwrite` is false."""
        whole = _key(key, namespace)
        if overwrite:
            return self._tables.put(KV, whole, value)
        return self.once(asker, whole, Put(KV, whole, value), is_due=self._tables.get(KV, whole) is None)

    def delete(self, asker: Asker, key: Any, namespace: str = "") -> bool:
        """Whether there was something to delete."""
        whole = _key(key, namespace)
        return self.once(asker, whole, Delete(KV, whole), is_due=self._tables.get(KV, whole) is not None)

    def once(self, asker: Asker, key: bytes, change: Write, is_due: bool) -> bool:
        """Make a change that is due, of that key in any table. Whether this request has made it, now or before."""
        if self.name_of is None:
            return is_due and self._tables.write([change])
        done, row = (self.name_of(asker.process), asker.number), self._tables.get(KV_DONE, key)
        known = [] if row is None else _decode(row)
        if done in known:
            return True
        return is_due and self._tables.write([Put(KV_DONE, key, _encode([*known, done])), change])

    def _forget_later(self, table: str, key: bytes, row: bytes | None) -> None:
        if row is not None:
            self._call_later(KEPT_S, lambda: self._forget(key, _decode(row)))

    def _forget(self, key: bytes, old: list[Done]) -> None:
        row = self._tables.get(KV_DONE, key)
        if row is not None:
            left = [done for done in _decode(row) if done not in old]
            self._tables.write([Put(KV_DONE, key, _encode(left)) if left else Delete(KV_DONE, key)])


def _key(key: str | bytes, namespace: str) -> bytes:
    return namespace.encode() + b"\0" + _as_bytes(key)


def _as_bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value
