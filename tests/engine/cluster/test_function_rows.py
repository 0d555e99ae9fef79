"""Functions in the control store go with their last use."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from weft.engine.cluster.directory import ObjectRow, encode
from weft.engine.cluster.function_rows import FunctionRows, key_of
from weft.engine.node.functions import FunctionTable
from weft.engine.node.operations import Operations
from weft.engine.wire.link_messages import LeftRow
from weft.store.state.chain_rows import Delete
from weft.store.tables import FUNCTIONS, OBJECTS, MemoryTables

FUNCTION = 7
RECORD = key_of(FUNCTION) + b"code"


class Node:
    """One daemon, as far as functions go, with a store that all share."""

    def __init__(self, world: World, number: int) -> None:
        self.operations = Operations()
        self.functions = FunctionTable(MemoryTables())
        self.loop = SimpleNamespace(call_later=lambda _, call: world.later.append(call))
        self.named: set[int] = set()
        self.known: dict[int, bytes] = {}
        directory = SimpleNamespace(write=world.write, scan=world.scan, named=lambda: self.named)
        parts = SimpleNamespace(
            loop=self.loop,
            operations=self.operations,
            functions=self.functions,
            nodes=SimpleNamespace(ask_node=world.ask),
            heading=SimpleNamespace(is_serving=True),
            names=SimpleNamespace(number=number),
            members=SimpleNamespace(links=[one for one in (0, 1) if one != number], is_head=number == 0),
            keeping=SimpleNamespace(write=world.keep, forget_functions=world.forgotten.extend),
        )
        made: Any = FunctionRows(parts, directory, lambda: (), self.known)  # type: ignore[arg-type]
        self.rows: FunctionRows = made

    def uses(self) -> None:
        """A process of a job there lends what the function makes."""
        self.functions.keep(1, RECORD)
        self.rows.write(FUNCTION, RECORD)


class World:
    """A head and another node."""

    def __init__(self) -> None:
        self.stored: dict[str, dict[bytes, bytes]] = {FUNCTIONS: {}, OBJECTS: {}}
        self.later: list[Callable[[], None]] = []
        self.forgotten: list[int] = []
        self.before_delete: Callable[[], None] = lambda: None
        self.nodes = [Node(self, number) for number in (0, 1)]

    def write(self, batch: list[Any]) -> None:
        for one in batch:
            self.stored[one.table].setdefault(one.key, one.value)

    def keep(self, batch: list[Any], then: Callable[[], None]) -> None:
        self.before_delete()
        for one in batch:
            assert isinstance(one, Delete)
            self.stored[one.table].pop(one.key)
        then()

    def scan(self, table: str, then: Callable[..., None]) -> None:
        then(list(self.stored[table].items()), "")

    def ask(self, node: int, method: str, params: dict[str, Any]) -> Any:
        return self.nodes[node].operations.perform(method, params)

    def look(self) -> None:
        self.nodes[0].rows.look_later()
        while self.later:
            self.later.pop(0)()

    @property
    def functions(self) -> list[bytes]:
        return list(self.stored[FUNCTIONS])


@pytest.fixture
def world() -> World:
    made = World()
    made.nodes[1].uses()
    return made


def test_a_function_stays_while_a_job_has_it_and_goes_with_it(world: World) -> None:
    world.look()
    assert world.functions == [key_of(FUNCTION)]
    world.nodes[1].functions.end_job(1)
    world.nodes[0].known[FUNCTION] = RECORD
    world.look()
    assert world.functions == []
    assert world.forgotten == [FUNCTION] and not world.nodes[0].known


def test_a_function_that_a_row_of_a_node_names_stays(world: World) -> None:
    world.nodes[1].functions.end_job(1)
    world.nodes[1].named.add(FUNCTION)
    world.look()
    assert world.functions == [key_of(FUNCTION)]


def test_a_function_that_a_row_in_the_store_names_stays(world: World) -> None:
    world.nodes[1].functions.end_job(1)
    row = LeftRow(bytes(16), (5, 1, 1), FUNCTION, 0, [], None, b"", ())
    world.stored[OBJECTS][b"of a dead node"] = encode(ObjectRow(row))
    world.look()
    assert world.functions == [key_of(FUNCTION)]


def test_a_function_of_something_kept_stays_until_that_goes(world: World) -> None:
    world.nodes[1].functions.end_job(1)
    world.nodes[0].functions.keep(-1, RECORD)
    world.look()
    assert world.functions == [key_of(FUNCTION)]
    world.nodes[0].functions.drop(-1, FUNCTION)
    world.look()
    assert world.functions == []


def test_a_function_that_is_used_again_while_it_is_removed_is_written_again(world: World) -> None:
    world.nodes[1].functions.end_job(1)
    world.before_delete = world.nodes[1].uses
    world.look()
    assert world.functions == [key_of(FUNCTION)]


def test_a_head_that_dies_while_it_removes_a_function_leaves_it_to_who_uses_it(world: World) -> None:
    world.nodes[1].functions.end_job(1)
    assert world.ask(1, "functions_unused", {"functions": [FUNCTION]}) is not None
    world.nodes[1].uses()
    world.stored[FUNCTIONS].clear()
    world.nodes[1].rows.head_changed()
    assert world.functions == [key_of(FUNCTION)]
