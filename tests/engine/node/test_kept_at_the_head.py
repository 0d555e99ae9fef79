"""What outlives all processes, at the head: what a request that comes twice is answered, and when."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from weft.engine.node.kept_objects import KeptObjects, KeptRow
from weft.engine.node.key_values import KeyValues
from weft.engine.node.methods import Asker
from weft.engine.node.operations import Operations, Outcome
from weft.store.tables import KEPT, KV_DONE, OBJECT_NAMES, MemoryTables, Put

ONE, OTHER = (3, 1), (4, 1)
IDENTITY = bytes(range(16))


class Head:
    """The head of a cluster; what is to happen when its rows are safe waits in `unsafe`."""

    def __init__(self) -> None:
        self.tables = MemoryTables()
        self.operations = Operations()
        self.unsafe: list[Callable[[], None]] = []
        values = KeyValues(self.tables, lambda delay_s, call: None)
        values.name_of = lambda process: (7, *process)
        keeping = SimpleNamespace(when_kept=self.unsafe.append, folder_path=None)
        cluster = SimpleNamespace(keeping=keeping, names=SimpleNamespace(number=7), members=SimpleNamespace(links={}))
        given: list[Any] = [
            SimpleNamespace(call_later=lambda delay_s, call: None),
            SimpleNamespace(is_alive=lambda *process: True),
            self.tables,
            SimpleNamespace(),
            self.operations,
            SimpleNamespace(cluster=cluster),
            SimpleNamespace(keep_for=lambda path: None),
            values.once,
            lambda identity: None,
        ]
        self._asked = KeptObjects(*given).requests()

    def name(self, process: tuple[int, int], number: int, identity: bytes = IDENTITY) -> None:
        self._asked["name_object"](Asker(process, number), "name", "", identity)

    def named(self) -> Any:
        return self._asked["named_object"](Asker(ONE, 99), "name", "")

    def delete(self, process: tuple[int, int], number: int) -> None:
        self._asked["delete_object"](Asker(process, number), "name", "")

    def followed(self) -> Head:
        """The next head, with all rows of this one."""
        other = Head()
        for table in (KV_DONE, KEPT, OBJECT_NAMES):
            other.tables.write([Put(table, key, row) for key, row in self.tables.scan(table)])
        return other


def test_a_name_that_is_given_again_at_the_next_head_is_the_same_one() -> None:
    head = Head()
    head.name(ONE, 1)
    again = head.followed()
    again.name(ONE, 1)
    assert again.named() == IDENTITY
    for process, number in ((ONE, 2), (OTHER, 1)):
        with pytest.raises(ValueError, match="already taken"):
            again.name(process, number, bytes(16))


def test_a_name_that_is_freed_again_at_the_next_head_was_freed_once() -> None:
    head = Head()
    head.name(ONE, 1)
    head.delete(OTHER, 1)
    again = head.followed()
    again.delete(OTHER, 1)
    again.name(ONE, 1)
    with pytest.raises(ValueError, match="no object has the name"):
        again.named()
    with pytest.raises(ValueError, match="no object has the name"):
        again.delete(OTHER, 2)


def test_a_row_is_taken_over_once_it_is_safe() -> None:
    """Whoever told it tells the next head again until then."""
    head = Head()
    row = msgspec.msgpack.encode(KeptRow((7, *ONE)))
    told: list[object] = []
    head.operations.perform("keep_row", {"id": IDENTITY, "row": row, "function": b""}).then(told.append)
    assert told == []
    for safe in head.unsafe:
        safe()
    assert told == [Outcome()]
