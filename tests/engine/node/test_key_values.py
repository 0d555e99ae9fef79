"""Keys and values: what a request that comes twice is answered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.engine.node.key_values import KEPT_S, KeyValues
from weft.engine.node.methods import Asker
from weft.store.tables import KV, KV_DONE, MemoryTables, Put

ONE, OTHER = (3, 1), (4, 1)


class Head:
    """One that keeps keys and values, with a clock of its own."""

    def __init__(self, is_in_cluster: bool = True) -> None:
        self.tables = MemoryTables()
        self.later: list[tuple[float, Callable[[], None]]] = []
        self.kept = KeyValues(self.tables, lambda delay_s, call: self.later.append((delay_s, call)))
        if is_in_cluster:
            self.kept.name_of = lambda process: (7, *process)

    def make(self, process: tuple[int, int], number: int, value: bytes = b"value") -> Any:
        return self.kept.put(Asker(process, number), b"k", value, overwrite=False)

    def delete(self, process: tuple[int, int], number: int) -> Any:
        return self.kept.delete(Asker(process, number), b"k")

    def followed(self) -> Head:
        """The next head, with all rows of this one."""
        other = Head()
        for table in (KV_DONE, KV):
            other.tables.write([Put(table, key, row) for key, row in self.tables.scan(table)])
        return other


def test_who_made_a_key_is_told_so_again_and_nobody_else_is() -> None:
    head = Head()
    assert head.make(ONE, 1) is True
    again = head.followed()
    assert again.make(OTHER, 1) is False and again.make(ONE, 2) is False
    assert again.make(ONE, 1, b"twice") is True
    assert again.kept.get(Asker(ONE, 9), b"k") == b"value", "it was not made a second time"


def test_a_key_that_was_deleted_meanwhile_is_not_made_again() -> None:
    head = Head()
    assert head.make(ONE, 1) and head.delete(OTHER, 1)
    again = head.followed()
    assert again.make(ONE, 1) is True and again.delete(OTHER, 1) is True
    assert again.kept.get(Asker(ONE, 9), b"k") is None
    assert again.delete(OTHER, 2) is False


def test_what_was_done_is_forgotten_when_nobody_can_ask_again() -> None:
    head = Head().followed()
    head.make(ONE, 1)
    head.delete(ONE, 2)
    for delay_s, call in list(head.later):
        assert delay_s == KEPT_S
        call()
    assert head.tables.scan(KV_DONE) == []


def test_a_node_of_its_own_writes_nothing_down() -> None:
    head = Head(is_in_cluster=False)
    assert head.make(ONE, 1) is True and head.make(ONE, 1) is False
    assert head.delete(ONE, 2) is True and head.delete(ONE, 3) is False
    assert head.tables.scan(KV_DONE) == []
