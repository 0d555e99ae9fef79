"""Which functions the control store has: written once per cluster, by content, removed with their last use.

Runs in the daemon's thread. A node writes a function before the first row that names it. When a job is over, or what
was kept is not any more, the head looks for functions that nothing uses: it asks all nodes, then reads the rows of
objects.

    FUN-1  a function that the row of an object, of an actor or of a kept object names has a row, or soon has one.

A node that has said that it does not use a function may use it in the next moment. It writes it then, and once more
when the head says that it was removed, or when there is another head.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from weft.engine.cluster.directory import Directory, decode_row
from weft.engine.cluster.parts import Parts
from weft.engine.node.operations import Outcome
from weft.store.state.chain_rows import Delete, Put
from weft.store.tables import FUNCTIONS, OBJECTS

LOOK_S = 12.0
"""So long after the end of a job: rows of the dead stay for less."""
_KEY_BYTES = 8


def key_of(function: int) -> bytes:
    return function.to_bytes(_KEY_BYTES, "little")


class FunctionRows:
    """One daemon's side of it, and the head's."""

    def __init__(
        self,
        parts: Parts,
        directory: Directory,
        named: Callable[[], Iterable[int]],
        known: dict[int, bytes],
    ) -> None:
        """`named`: functions of rows that this node has of others' objects; `known`: what came with these."""
        self._parts = parts
        self._directory = directory
        self._named = named
        self._known = known
        self._written: set[int] = set()
        self._leaving: dict[int, bytes] = {}
        """Those that this node does not use, the head knows; empty, or its record where it is used again."""
        self._is_looking = False
        parts.operations.offer("functions_unused", self._functions_unused)
        parts.operations.offer("functions_gone", self._functions_gone)

    # ---- any node ----

    def write(self, function: int, record: bytes) -> None:
        """A row is about to name it."""
        if function in self._written:
            return
        self._written.add(function)
        if function in self._leaving:
            self._leaving[function] = record
        self._directory.write([Put(FUNCTIONS, key_of(function), record, if_absent=True)])

    def head_changed(self) -> None:
        """The one before may have removed what it had asked for, and have told nobody."""
        leaving, self._leaving = self._leaving, {}
        for function, record in leaving.items():
            if record:
                self._directory.write([Put(FUNCTIONS, key_of(function), record, if_absent=True)])

    def _functions_unused(self, params: dict[str, Any]) -> list[int]:
        unused = self._unused(params["functions"])
        for function in unused:
            self._written.discard(function)
            self._leaving[function] = b""
        return unused

    def _unused(self, functions: Iterable[int]) -> list[int]:
        used = {*self._named(), *self._directory.named()}
        return [one for one in functions if one not in used and self._parts.functions.find(one) is None]

    def _functions_gone(self, params: dict[str, Any]) -> None:
        for function in params["functions"]:
            if record := self._leaving.pop(function, b""):
                self._directory.write([Put(FUNCTIONS, key_of(function), record, if_absent=True)])
            else:
                self._known.pop(function, None)

    # ---- the head ----

    def look_later(self) -> None:
        """Something that may have used functions is over."""
        if not self._is_looking and self._parts.members.is_head:
            self._is_looking = True
            self._parts.loop.call_later(LOOK_S, self._look)

    def _look(self) -> None:
        self._is_looking = False
        if self._parts.heading.is_serving:
            self._directory.scan(FUNCTIONS, lambda rows, _: self._ask([int.from_bytes(k, "little") for k, _ in rows]))

    def _ask(self, functions: list[int]) -> None:
        unused = self._unused(functions)
        if not unused:
            return
        nodes = [self._parts.names.number, *self._parts.members.links]
        waiting, left, has_failed = len(nodes), set(unused), False

        def answered(outcome: Outcome) -> None:
            nonlocal waiting, has_failed
            waiting -= 1
            has_failed = has_failed or bool(outcome.error)
            left.intersection_update(outcome.value or ())
            if not waiting and not has_failed and left:
                self._directory.scan(OBJECTS, lambda rows, error: None if error else self._remove(left, rows))

        for node in nodes:
            self._parts.nodes.ask_node(node, "functions_unused", {"functions": unused}).then(answered)

    def _remove(self, functions: set[int], rows: list[tuple[bytes, bytes]]) -> None:
        """Whatever came between is seen here, or written again by the node that knows of it."""
        named = {decode_row(value).row.function for _, value in rows}
        gone = self._unused(functions - named)
        nodes = [self._parts.names.number, *self._parts.members.links]
        self._parts.keeping.forget_functions(gone)

        def removed() -> None:
            for node in nodes:
                self._parts.nodes.ask_node(node, "functions_gone", {"functions": gone})

        if gone and self._parts.heading.is_serving:
            self._parts.keeping.write([Delete(FUNCTIONS, key_of(function)) for function in gone], removed)
