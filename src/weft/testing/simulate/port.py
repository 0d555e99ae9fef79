"""The daemon's end of a segment without memory: slots, records, proxies, batches; see `_native.NodePort`.

A batch is a list of records in the link's names; the native core has the same as bytes.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec

from weft.engine.wire import kinds
from weft.engine.wire.link_messages import GlobalProcess

if TYPE_CHECKING:
    from weft.testing.simulate.node import SimNode

Name = tuple[int, int]
NOBODY = -1
_PROCESS_AT = {kinds.LEASE_GRANT: 12, kinds.ACTOR_UP: 16, kinds.ACTOR_WATCH: 16}
"""Where a record names a process; the model's other records name none."""
_NAME = struct.Struct("<II")


class FarRecord(msgspec.Struct, frozen=True):
    """One record between two nodes."""

    sender: Name
    to: Name
    kind: int
    payload: bytes
    names: GlobalProcess | None = None


class SimPort:
    """The slots of one node."""

    def __init__(self, node: SimNode) -> None:
        self._node = node
        self._number = NOBODY
        self._last_slot = 0
        self._used: set[Name] = set()
        self.reserved = 0
        """Slots so far, those that were used again counted again."""
        self.most_used = 0
        self.most_known = 0
        """Of this node and of others, at one time."""
        self.inbox: deque[tuple[int, int, int, bytes]] = deque()
        self._far: dict[Name, GlobalProcess] = {}
        """Whom proxies stand for, the dead included."""
        self._living: dict[GlobalProcess, Name] = {}
        self._batches: dict[int, list[FarRecord]] = {}
        self._refused: set[Name] = set()
        self._is_draining = False

    def reserve_slot(self) -> Name:
        """For a process of this node. RuntimeError when all are taken."""
        if self.is_full:
            raise RuntimeError(f"weft: this node has no room for another process: {len(self._used)} are attached")
        self._used.add(name := self._new_name())
        self.reserved += 1
        self.most_used = max(self.most_used, len(self._used))
        return name

    def _new_name(self) -> Name:
        """A process of another node has no more than that: a name, and no slot."""
        self._last_slot += 1
        return (self._last_slot, 1)

    def release_slot(self, slot: int, generation: int) -> bool:
        self._used.discard((slot, generation))
        return True

    @property
    def used(self) -> int:
        """Slots that are taken, by the living and by the dead whose peers have not let go."""
        return len(self._used)

    @property
    def is_full(self) -> bool:
        """Whether no other process can be attached."""
        return len(self._used) >= self._node.machine.processes

    # ---- names ----

    def set_node(self, number: int) -> None:
        self._number = number

    def add_proxy(self, node: int, far_slot: int, far_generation: int) -> Name:
        name = (node, far_slot, far_generation)
        proxy = self._living[name] = self._new_name()
        self._far[proxy] = name
        self.most_known = max(self.most_known, len(self._living) + len(self._used))
        return proxy

    def is_proxy(self, slot: int) -> bool:
        return (slot, 1) in self._far

    def far_name(self, slot: int, generation: int) -> GlobalProcess:
        if slot == 0:
            return (NOBODY, slot, generation)
        return self._far.get((slot, generation), (self._number, slot, generation))

    def take_ledger(self, slot: int, generation: int) -> list[Any]:
        process = self._node.processes.get((slot, generation))
        return [] if process is None else process.holding.ledger()

    def take_objects(self, slot: int, generation: int) -> list[tuple[int, int]]:
        return []

    def is_alive(self, slot: int, generation: int) -> bool:
        name = self._far.get((slot, generation))
        if name is not None:
            return self._living.get(name) == (slot, generation)
        return slot == 0 or (slot, generation) in self._node.processes

    def to_link(self, kind: int, payload: bytes) -> bytes:
        return msgspec.msgpack.encode([FarRecord((0, 1), (0, 1), kind, payload)])

    def row_to_link(self, body: bytes) -> bytes:
        return body

    def row_from_link(self, body: bytes, dead: GlobalProcess) -> tuple[bytes, list[GlobalProcess], list[object]]:
        return body, [], []

    def mark_dead(self, slot: int, generation: int) -> list[Name]:
        process = self._node.processes.pop((slot, generation), None)
        if process is not None:
            process.is_dead = True
            self._refused.discard((slot, generation))
            return []
        self._living.pop(self.far_name(slot, generation), None)
        return self._node.talkers_of((slot, generation))

    def refuse_records(self, slot: int, generation: int) -> None:
        self._refused.add((slot, generation))

    # ---- records ----

    def send(self, slot: int, generation: int, kind: int, payload: bytes) -> None:
        far = self._far.get((slot, generation))
        if far is None:
            self._hand_over((slot, generation), kind, payload)
            return
        if far in self._living and kind != kinds.PEER_DIED:
            self.pass_on(far[0], (0, 1), far[1:], kind, payload)
        if not self._is_draining:  # the daemon's own bell rings
            self._is_draining = True
            self._node.cluster.clock.after(0.0, self._drain)

    def _hand_over(self, to: Name, kind: int, payload: bytes) -> None:
        if (process := self._node.processes.get(to)) is not None:
            self._node.cluster.clock.after(self._node.cluster.costs.ring_s, process.record_came, kind, payload)

    def _drain(self) -> None:
        self._is_draining = False
        if self._node.is_up:
            self._node.daemon.rings.drain()

    def drain(self) -> list[tuple[int, int, int, bytes]]:
        records, self.inbox = list(self.inbox), deque()
        return records

    # ---- between nodes ----

    def pass_on(self, node: int, sender: Name, to: Name, kind: int, payload: bytes) -> None:
        names = None
        if (at := _PROCESS_AT.get(kind)) is not None:
            names = self.far_name(*_NAME.unpack_from(payload, at))
        self._batches.setdefault(node, []).append(FarRecord(sender, to, kind, payload, names))

    def nodes_with_output(self) -> list[int]:
        return list(self._batches)

    def take_batch(self, node: int) -> Any:
        return self._batches.pop(node, [])

    def remove_link(self, node: int) -> None:
        self._batches.pop(node, None)

    def hold_link(self, node: int) -> None: ...

    release_link = hold_link

    def deliver(self, node: int, batch: list[FarRecord] | bytes, at: int, refusal: bytes = b"") -> tuple[int, Any]:
        """As the native core does it: one record, or what must be decided first. Its table of objects is never full."""
        if isinstance(batch, bytes):  # it was kept in the control store
            (kept,) = msgspec.msgpack.decode(batch, type=list[FarRecord])
            return len(batch), (kept.sender, kept.to, kept.kind, kept.payload)
        record = batch[at]
        to, payload = record.to, record.payload
        if to[0] != 0 and (to in self._refused or to not in self._node.processes):
            return at + 1, (None if at + 1 == len(batch) else self._skip(batch, at + 1))
        if record.names is not None and record.names[0] not in (NOBODY, self._number):
            if record.names not in self._living:
                return at, ([record.names], [], to, record.kind)
            payload = self._renamed(record, self._living[record.names])
        elif record.names is not None:
            payload = self._renamed(record, record.names[1:])
        return at + 1, (record.sender, to, record.kind, payload)

    def _skip(self, batch: list[FarRecord], at: int) -> Any:
        """The next stop after a record that is for nobody."""
        return ([], [], batch[at].to, batch[at].kind)

    def _renamed(self, record: FarRecord, process: Name) -> bytes:
        at = _PROCESS_AT[record.kind]
        return record.payload[:at] + _NAME.pack(*process) + record.payload[at + _NAME.size :]
