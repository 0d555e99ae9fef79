"""The object table in the control store: who owns what, what it takes to make it, and who has inherited it.

Runs in the daemon's thread. A row is written for every object that has left its node, by its owner's node, behind what
happens: an object that lives for less than `SAVE_S` is never written. Its key begins with the owner's name, so what a
dead node owned is found by a prefix. That an object has an heir is one row more, written only where there is none: the
first who claims it after its owner's death is the heir.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import msgspec

from weft.engine.wire.link_messages import GlobalProcess, LeftRow, LeftShape
from weft.net.loop import Loop
from weft.store.served_store import Store
from weft.store.state.chain_layout import shard_of
from weft.store.state.chain_rows import Delete, Key, Put, Write
from weft.store.tables import FUNCTIONS, HEIRS, OBJECTS

SAVE_S = 1.0
AGAIN_S = 0.5
"""After the store could not be reached."""
BATCH = 2048
_OWNER = struct.Struct(">III")
encode = msgspec.msgpack.Encoder().encode


class ObjectRow(msgspec.Struct, frozen=True, array_like=True):
    """What the store knows of an object."""

    row: LeftRow
    shape: LeftShape | None = None


class HeirRow(msgspec.Struct, frozen=True, array_like=True):
    heir: GlobalProcess
    claim: int
    """Of the claims of that node: whether an answer that never came was for this very one."""


decode_row = msgspec.msgpack.Decoder(ObjectRow).decode
decode_heir = msgspec.msgpack.Decoder(HeirRow).decode
Owned = tuple[GlobalProcess, bytes]
"""An object, by its owner and its id."""


def key_of(owned: Owned) -> bytes:
    return _OWNER.pack(*owned[0]) + owned[1]


def owned_of(key: bytes) -> Owned:
    node, slot, generation = _OWNER.unpack_from(key)
    return (node, slot, generation), key[_OWNER.size :]


def _prefix(node: int) -> bytes:
    """Of the keys of all that its processes own."""
    return node.to_bytes(4, "big")


class Directory:
    """One node's access."""

    def __init__(self, loop: Loop, store: Store | None, need_store: Callable[[], None]) -> None:
        """`need_store`: called before rows are read or claimed, as there may be no server yet."""
        self._loop = loop
        self._store = store
        self._need_store = need_store
        self._unsaved: dict[Owned, ObjectRow] = {}
        self._saved: dict[Owned, int] = {}
        """With the function of each, 0 for none."""
        self._gone: list[Write] = []
        self._before: dict[Owned, tuple[GlobalProcess, ...]] = {}
        """Whose it was before a process of this node inherited it: there are rows of heirs under these names."""
        self._is_saving = False
        self._last_claim = 0
        self._is_closed = False

    # ---- rows of this node's objects ----

    def save(self, row: LeftRow, shape: LeftShape | None) -> None:
        """Soon, unless it is gone by then."""
        if self._store is not None:
            self._unsaved[row.owner, row.id] = ObjectRow(row, shape)
            self._save_later()

    def named(self) -> set[int]:
        """Functions that rows of this node's objects name."""
        return {one.row.function for one in self._unsaved.values()}.union(self._saved.values())

    def forget(self, owned: Owned) -> None:
        """The object is gone."""
        self._unsaved.pop(owned, None)
        if owned in self._saved:
            del self._saved[owned]
            self._delete(OBJECTS, [owned])
        if owned in self._before:
            self._delete(HEIRS, [(owner, owned[1]) for owner in self._before.pop(owned)])

    def _delete(self, table: str, rows: Iterable[Owned]) -> None:
        self._gone += [Delete(table, key_of(owned)) for owned in rows]
        self._save_later()

    def forget_owner(self, owner: GlobalProcess) -> None:
        """It is dead, and its estate is settled. What it had inherited is gone unless it has an heir in turn."""
        inherited = [owned for owned in self._before if owned[0] == owner]

        def found(passed_on: Collection[Owned]) -> None:
            for owned in passed_on:
                self._before.pop(owned, None)
            for owned in [owned for owned in (*self._unsaved, *self._saved, *self._before) if owned[0] == owner]:
                self.forget(owned)

        self.heirs(inherited, found)

    def forget_node(self, node: int) -> None:
        """It is dead, and its estate is settled."""
        self.scan(OBJECTS, lambda rows, _: self._delete(OBJECTS, [owned_of(key) for key, _ in rows]), _prefix(node))
        self.scan(HEIRS, lambda rows, _: self._forget_heirs(node, rows))

    def _forget_heirs(self, node: int, rows: list[tuple[bytes, bytes]]) -> None:
        """What the dead node's processes had inherited and nobody has inherited from them."""
        heirs = {owned_of(key): decode_heir(value).heir for key, value in rows}
        for first, heir in heirs.items():
            while (further := heirs.get((heir, first[1]))) is not None:
                heir = further
            if heir[0] == node:
                self._delete(HEIRS, [first])

    def before(self, owned: Owned) -> tuple[GlobalProcess, ...]:
        return self._before.get(owned, ())

    def inherited(self, owned: Owned, before: tuple[GlobalProcess, ...]) -> None:
        """By a process of this node."""
        self._before[owned] = before

    def forget_inherited(self, owner: GlobalProcess) -> None:
        """It is dead, and no other node knew it: nothing that it had inherited has rows in the store."""
        for owned in [owned for owned in self._before if owned[0] == owner]:
            del self._before[owned]

    def _save_later(self) -> None:
        if not self._is_saving:
            self._is_saving = True
            self._loop.call_later(SAVE_S, self._save)

    def _save(self) -> None:
        """What is old enough; a row that is renewed meanwhile goes with the next ones."""
        self._is_saving = False
        unsaved, self._unsaved = self._unsaved, {}
        gone, self._gone = self._gone, []
        batch: list[Write] = [Put(OBJECTS, key_of(owned), encode(row)) for owned, row in unsaved.items()]
        batch += gone
        self._saved.update({owned: one.row.function for owned, one in unsaved.items()})
        for at in range(0, len(batch), BATCH):
            self.write(batch[at : at + BATCH])

    def write(self, batch: list[Write]) -> None:
        """A store that cannot be reached for longer than a call waits is lost to this node, and others have the row."""
        if self._store is not None and not self._is_closed:
            self._store.write(batch, lambda _, error: None)

    def add(self, rows: Collection[ObjectRow], then: Callable[[], None]) -> None:
        """Rows of another node's objects, unless they are there."""
        if self._store is None or not rows:
            then()
            return
        left = len(rows)

        def done(_: Any, error: str) -> None:
            nonlocal left
            left -= 1
            if not left:
                then()

        for one in rows:
            key = key_of((one.row.owner, one.row.id))
            self._store.write([Put(OBJECTS, key, encode(one), if_absent=True)], done)

    def scan(self, table: str, then: Callable[[list[tuple[bytes, bytes]], str], None], prefix: bytes = b"") -> None:
        """Rows of a table, or an error; none where no server of the store runs beside this daemon."""
        if self._store is None or self._is_closed or not self._store.address:
            then([], "")
        else:
            self._store.scan(table, lambda rows, error: then(rows or [], error), prefix)

    # ---- rows of the dead ----

    def read(self, wanted: Collection[Owned], then: Callable[[dict[Owned, ObjectRow]], None]) -> None:
        asked = list(wanted)

        def done(values: list[bytes | None]) -> None:
            found = zip(asked, values, strict=True)
            then({owned: decode_row(value) for owned, value in found if value is not None})

        self._read([(OBJECTS, key_of(owned)) for owned in asked], done)

    def function(self, key: int, then: Callable[[bytes], None]) -> None:
        self._read([(FUNCTIONS, key.to_bytes(8, "little"))], lambda values: then(values[0] or b""))

    def heirs(self, wanted: Collection[Owned], then: Callable[[dict[Owned, GlobalProcess]], None]) -> None:
        self.claims_of(wanted, lambda found: then({owned: row.heir for owned, row in found.items()}))

    def claim(
        self,
        wanted: Collection[Owned],
        heir: GlobalProcess,
        then: Callable[[set[Owned], dict[Owned, GlobalProcess]], None],
    ) -> None:
        """`then` is called with those that the heir has now, and with who has the others."""
        if self._store is None:
            then(set(wanted), {})
            return
        self._last_claim += 1
        _Claim(self, list(wanted), HeirRow(heir, self._last_claim), then).go_on()

    def close(self) -> None:
        self._is_closed = True

    # ---- calls that are made until they are answered ----

    def attempt(self, batch: list[Write], then: Callable[[bool], None]) -> None:
        assert self._store is not None

        def done(held: Any, error: str) -> None:
            if not error:
                then(bool(held))
            elif not self._is_closed:
                self._loop.call_later(AGAIN_S, lambda: self.attempt(batch, then))

        self._need_store()
        self._store.write(batch, done)

    def _read(self, keys: list[Key], then: Callable[[list[bytes | None]], None]) -> None:
        if self._store is None or not keys:
            then([None] * len(keys))
            return

        def done(values: Any, error: str) -> None:
            if not error:
                then(values)
            elif not self._is_closed:
                self._loop.call_later(AGAIN_S, lambda: self._read(keys, then))

        self._need_store()
        self._store.read(keys, done)

    def claims_of(self, wanted: Collection[Owned], then: Callable[[Mapping[Owned, HeirRow]], None]) -> None:
        asked = list(wanted)

        def done(values: list[bytes | None]) -> None:
            then({owned: decode_heir(value) for owned, value in zip(asked, values, strict=True) if value is not None})

        self._read([(HEIRS, key_of(owned)) for owned in asked], done)

    @property
    def shards(self) -> int:
        return 1 if self._store is None else self._store.shards


class _Claim:
    """All of it in one write for each shard, which is granted as a whole or not at all; what others have is left out of
    the next attempt."""

    def __init__(
        self,
        directory: Directory,
        wanted: list[Owned],
        row: HeirRow,
        then: Callable[[set[Owned], dict[Owned, GlobalProcess]], None],
    ) -> None:
        self._directory = directory
        self._left = wanted
        self._row = row
        self._then = then
        self._won: set[Owned] = set()
        self._owners: dict[Owned, GlobalProcess] = {}

    def go_on(self) -> None:
        if not self._left:
            self._then(self._won, self._owners)
            return
        parts: dict[int, list[Owned]] = {}
        for owned in self._left:
            parts.setdefault(shard_of(key_of(owned), self._directory.shards), []).append(owned)
        waiting = len(parts)
        refused: list[Owned] = []

        def answered(part: list[Owned], is_granted: bool) -> None:
            nonlocal waiting
            waiting -= 1
            if is_granted:
                self._won.update(part)
            else:
                refused.extend(part)
            if not waiting:
                self._directory.claims_of(refused, lambda found: self._read(refused, found))

        value = encode(self._row)
        for part in parts.values():
            batch: list[Write] = [Put(HEIRS, key_of(owned), value, if_absent=True) for owned in part]
            self._directory.attempt(batch, lambda is_granted, part=part: answered(part, is_granted))  # type: ignore[misc]

    def _read(self, refused: list[Owned], found: Mapping[Owned, HeirRow]) -> None:
        for owned, row in found.items():
            if row == self._row:  # its answer was lost
                self._won.add(owned)
            else:
                self._owners[owned] = row.heir
        self._left = [owned for owned in refused if owned not in found]
        self.go_on()
