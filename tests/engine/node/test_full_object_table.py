"""Records of another node whose objects have no place in the object table: who waits for them hears so."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from weft import _native, exceptions
from weft.engine.cluster.names import Names
from weft.engine.cluster.objects import Objects
from weft.engine.cluster.records import IncomingRecords
from weft.engine.cluster.replicas import ReplicasShell
from weft.engine.process.calls.errors import load_error
from weft.engine.wire import link_messages as lm

HERE, THERE = 1, 2
SENDER = (5, 50)
OBJECTS = [(THERE, 7, 1, 70_000), (THERE, 8, 1, 80_000)]
REPLY, VALUE = 64, 69


class FullPort:
    """The native port, but that its object table has one entry left."""

    def __init__(self) -> None:
        self.native = _native.NodePort(1 << 20)
        self.native.set_node(HERE)
        self.left = 1
        self.refusals: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.native, name)

    def import_object(self, size: int, slot: int, generation: int) -> tuple[int, int]:
        if not self.left:
            raise RuntimeError("the object table of this node is full")
        self.left -= 1
        return self.native.import_object(size, slot, generation)

    def deliver(self, node: int, batch: bytes, at: int, refusal: bytes) -> Any:
        if refusal:
            self.refusals.append(refusal)
        return self.native.deliver(node, batch, at, refusal)


class Node:
    def __init__(self) -> None:
        self.port = FullPort()
        self.process = self.port.reserve_slot()
        self.sent: list[tuple[int, lm.LinkMessage]] = []
        loop: Any = SimpleNamespace(call_later=lambda delay_s, call: None)
        port: Any = self.port
        self.objects = Objects(port, loop, SimpleNamespace(), HERE, self._send, lambda node: None)  # type: ignore[arg-type]
        self.names = Names(port, HERE, lambda name: None)
        self.records = IncomingRecords(port, loop, self.names, self.objects, lambda *record: None)

    def _send(self, node: int, message: lm.LinkMessage) -> bool:
        self.sent.append((node, message))
        return True

    def comes(self, kind: int, payload: bytes) -> None:
        head = struct.pack("<IHHIIII", len(payload), kind, 0, *SENDER, *self.process)
        self.records.deliver(THERE, head + payload, lambda *record: None)


def in_arena(name: tuple[int, int, int, int]) -> bytes:
    """A PackedValue with an object in the link's names: the node beside the size (`link_names.hpp`)."""
    node, entry, generation, size = name
    return struct.pack("<IIQ", 2, 0, 16) + struct.pack("<IIQ", entry, generation, node << 44 | size)


@pytest.fixture
def node() -> Iterator[Node]:
    node = Node()
    yield node
    del node.port.native  # its segment goes with it


def test_an_answer_whose_object_has_no_place_is_an_error_and_the_object_is_freed_where_it_is(node: Node) -> None:
    node.comes(REPLY, struct.pack("<QIIII", 99, 0, 0, 2, 0) + b"".join(map(in_arena, OBJECTS)))
    [refusal] = node.port.refusals
    error = load_error(refusal)
    assert isinstance(error, exceptions.ObjectStoreFullError)
    assert "80000 bytes" in str(error) and "object_store_memory" in str(error)
    assert node.sent == [(THERE, lm.Imported(7, 1)), (THERE, lm.Free(8, 1))]


def test_a_value_whose_object_has_no_place_is_an_error_and_the_object_stays_its_owners(node: Node) -> None:
    node.port.left = 0
    node.comes(VALUE, bytes(16) + in_arena(OBJECTS[0]))
    assert len(node.port.refusals) == 1
    assert not node.sent


def test_what_comes_after_a_record_without_place_has_its_own_chance(node: Node) -> None:
    node.port.left = 0
    node.comes(VALUE, bytes(16) + in_arena(OBJECTS[0]))
    node.port.left = 1
    node.comes(VALUE, bytes(16) + in_arena(OBJECTS[1]))
    assert len(node.port.refusals) == 1
    assert node.sent == [(THERE, lm.Imported(8, 1))]


def test_a_node_without_place_for_a_copy_says_so_to_who_asked_for_it(node: Node) -> None:
    node.port.left = 0
    answers: list[lm.LinkMessage] = []
    link: Any = SimpleNamespace(peer=THERE, send=answers.append)
    loop, state, members = cast(Any, (None, None, None))
    ReplicasShell(loop, state, members, node.objects).keep_came(link, lm.Keep(OBJECTS[0], 2))
    assert answers == [lm.Kept(7, 1, False, False)]
