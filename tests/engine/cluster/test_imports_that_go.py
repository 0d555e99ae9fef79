"""Objects of other nodes that go while somebody here waits for their bytes."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from weft import _native
from weft.engine.cluster.objects import DAEMON, Objects
from weft.engine.wire import kinds
from weft.engine.wire.kinds import ErrorCode

HERE, THERE, ELSEWHERE = 1, 2, 3
LARGE, SMALL = (THERE, 7, 1, 2 << 20), (THERE, 8, 1, 70_000)


class Port:
    """The native port; what it sends to processes is kept."""

    def __init__(self) -> None:
        self.native = _native.NodePort(1 << 20)
        self.native.set_node(HERE)
        self.sent: list[tuple[tuple[int, int], int, bytes]] = []
        self.on_send: Callable[[], object] = lambda: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.native, name)

    def send(self, slot: int, generation: int, kind: int, payload: bytes) -> bool:
        self.sent.append(((slot, generation), kind, payload))
        self.on_send()
        return True


def objects_of(port: Port, later: list[Any]) -> Objects:
    loop: Any = SimpleNamespace(call_later=lambda delay_s, call: later.append(call), now=lambda: 0.0)
    spilling: Any = SimpleNamespace(make_room=lambda wanted, then: None, trouble="")
    native: Any = port
    return Objects(native, loop, spilling, HERE, lambda node, message: True, lambda node: None)


def test_who_waits_in_line_for_an_object_that_is_removed_meanwhile_hears_that_it_is_lost() -> None:
    """Its node has died, say, while the line stood still for want of memory. Else it would wait for ever."""
    port, later = Port(), list[Any]()
    objects = objects_of(port, later)
    reader = port.reserve_slot()
    large, small = (objects.to_local(name, DAEMON) for name in (LARGE, SMALL))
    for entry in (large, small):
        assert objects.restore(reader, kinds.PROCESS_BODY.pack(*entry))
    assert objects.pulls.is_pulled(small) and not objects.pulls.has_arrivals()
    port.remove(*small)
    for call in list(later):  # the sweep
        call()
    [(process, kind, payload)] = port.sent
    assert (process, kind, payload[:16]) == (reader, kinds.RESTORED, kinds.RESTORED_BODY.pack(*small, 0, 0))
    assert payload[16:].startswith(_native.error_value(ErrorCode.OBJECT_LOST, ""))
    del port.native  # its segment goes with it


def test_who_waits_while_copies_are_sought_reads_the_one_that_another_node_has_found() -> None:
    """The node of the dead owner may be faster than that of its heir, which then has nothing left to decide."""
    port, sought = Port(), list[Any]()
    objects = objects_of(port, [])
    owner = port.reserve_slot()
    entry = objects.to_local(SMALL, owner)
    objects.node_gone(THERE, sought.extend)
    assert sought == [entry]
    objects.imports[entry].is_sought = True
    assert objects.restore(owner, kinds.PROCESS_BODY.pack(*entry)) and not objects.pulls.is_pulled(entry)
    objects.rewire(SMALL[:3], (ELSEWHERE, 3, 1, 70_000))
    assert objects.pulls.is_pulled(entry) and not objects.imports[entry].is_sought
    del port.native


def test_all_that_is_lost_has_gone_before_a_reader_hears_of_one() -> None:
    """He has the generator that made them run again, for those that he finds lost by then."""
    port, sought = Port(), list[Any]()
    objects = objects_of(port, [])
    owner = port.reserve_slot()
    entries = [objects.to_local((THERE, item, 1, 70_000), owner) for item in range(7, 11)]
    objects.node_gone(THERE, sought.extend)
    assert sought == entries
    for entry in entries:
        objects.imports[entry].is_sought = True
    assert objects.restore(owner, kinds.PROCESS_BODY.pack(*entries[0]))
    left: list[list[bool]] = []
    port.on_send = lambda: left.append([port.exists(*entry) for entry in entries])
    objects.lost(entries)
    [(process, kind, payload)] = port.sent
    assert (process, kind, payload[:16]) == (owner, kinds.RESTORED, kinds.RESTORED_BODY.pack(*entries[0], 0, 0))
    assert left == [[False] * 4]
    del port.native
