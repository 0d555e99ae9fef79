"""Rows of objects that have left their node: how they travel, where they are kept, how they are read again.

Runs in the daemon's thread. While an owner lives, every node that has a borrower of an object of its gets a copy of the
object's row, before the ref: what it takes to own it, in the link's names, so that it stays true when processes and
nodes come and go.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from weft.engine.cluster.directory import Directory, ObjectRow, Owned, decode_row, encode
from weft.engine.cluster.function_rows import FunctionRows
from weft.engine.cluster.parts import Parts
from weft.engine.cluster.transport import NodeLink
from weft.engine.node.inheritance import Bequest, Row, needed_rows
from weft.engine.node.kept_objects import KeptRow
from weft.engine.node.operations import Outcome
from weft.engine.state.events import Process
from weft.engine.state.inheritance import Estate
from weft.engine.state.leasing import Shape
from weft.engine.wire import kinds
from weft.engine.wire import link_messages as lm
from weft.engine.wire.link_messages import GlobalObject, GlobalProcess, LeftRow, LeftShape

if TYPE_CHECKING:
    from weft.store.served_store import Store

_ID_BYTES = 16


class RowsLeft(msgspec.Struct):
    """What a node has of its own dead."""

    rows: list[ObjectRow] = []
    functions: dict[int, bytes] = {}


class LeftRows:
    """One daemon's: what its processes have lent, and what came from other nodes."""

    def __init__(self, parts: Parts, store: Store | None) -> None:
        self._parts = parts
        self._port = parts.port
        self._here = parts.here
        self.directory: Directory = Directory(parts.loop, store, parts.heading.servers.need)
        self.rows: dict[bytes, ObjectRow] = {}
        """Of other nodes' objects that have borrowers here, or that were read from the store."""
        self._functions: dict[int, bytes] = {}
        self.functions = FunctionRows(parts, self.directory, self._functions_named, self._functions)
        self._shapes: dict[tuple[GlobalProcess, int], LeftShape] = {}
        """Of rows that came, and that went."""
        self._made_shapes: dict[tuple[GlobalProcess, int], Shape] = {}
        self._sent: set[tuple[int, Process, str, int]] = set()
        """(node, process, "function" or "shape", which): what has gone there."""
        parts.operations.offer("rows_left", self.rows_left)

    @property
    def number(self) -> int:
        return self._parts.names.number

    # ---- what is here ----

    def __contains__(self, identity: object) -> bool:
        return identity in self._here.rows or identity in self.rows

    def needs(self, identity: bytes) -> Iterable[bytes]:
        here = self._here.rows.get(identity)
        return here.needs if here is not None else self.rows[identity].row.needs

    def of(self, estate: Estate) -> list[ObjectRow]:
        """Those that the dead of an estate have sent here."""
        return [one for one in self.rows.values() if is_in(one.row.owner, estate)]

    def forget(self, estate: Estate) -> None:
        """Rows of the dead; those that heirs have sent meanwhile have other owners."""
        for one in self.of(estate):
            del self.rows[one.row.id]
        self._shapes = {key: shape for key, shape in self._shapes.items() if not is_in(key[0], estate)}
        self._made_shapes = {key: shape for key, shape in self._made_shapes.items() if not is_in(key[0], estate)}

    def process_died(self, process: Process) -> None:
        """Of this node."""
        self._sent = {sent for sent in self._sent if sent[1] != process}

    def node_gone(self, node: int) -> None:
        """What it has been sent it has to be sent again."""
        self._sent = {sent for sent in self._sent if sent[0] != node}

    def bequest(self, identity: bytes, heir: Process) -> Bequest | None:
        """A row of another node's object, for an heir of this one."""
        known = self.rows.get(identity)
        if known is None:
            return None
        row, left = known.row, known.shape
        if row.arena is not None:
            self._have_here(row.arena, heir)
        body, processes, _ = self._port.row_from_link(row.body, row.owner)
        if processes:
            for process in processes:
                self._parts.names.to_local(process)
            body, _, _ = self._port.row_from_link(row.body, row.owner)
        if left is None or not row.function:
            return Bequest(identity, b"", None, body)
        amounts = tuple((name, amount) for name, amount in left.amounts)
        made = Shape(amounts, left.runtime_env, left.refusal, left.strategy)
        shape = self._made_shapes.setdefault((left.owner, left.number), made)
        return Bequest(identity, self._functions.get(row.function, b""), shape, body)

    def _have_here(self, name: GlobalObject, heir: Process) -> None:
        """A name of this node's for an object of which a process of it will be the owner."""
        objects = self._parts.objects
        entry = objects.to_local(name, heir)
        objects.own(entry)
        known = objects.imports.get(entry)
        if known is not None and known.origin[0] not in self._parts.members.links:
            self._parts.homes.seek([entry])

    # ---- rows that travel ----

    def takes(self, process: Process, kind: int, payload: bytes) -> bool:
        """A record of a process of this node."""
        if kind == kinds.WITHDRAW:
            nodes = struct.unpack(f"<{(len(payload) - _ID_BYTES) // 4}I", payload[_ID_BYTES:])
            if kinds.STORE_NODE in nodes:
                self._parts.kept.withdraw((self.number, *process), payload[:_ID_BYTES])
            self.directory.forget(((self.number, *process), payload[:_ID_BYTES]))
            for node in nodes:
                self._parts.members.send(node, lm.Withdraw(*process, payload[:_ID_BYTES]))
            return True
        count, _ = kinds.DEPOSIT_BODY.unpack_from(payload)
        nodes = struct.unpack_from(f"<{count}I", payload, kinds.DEPOSIT_BODY.size)
        at = kinds.DEPOSIT_BODY.size + 4 * count
        identity, function, shape, needs, entry, generation, size, in_arena, _ = kinds.ROW_HEAD.unpack_from(payload, at)
        at += kinds.ROW_HEAD.size
        end = at + needs * _ID_BYTES
        needed = tuple(payload[i : i + _ID_BYTES] for i in range(at, end, _ID_BYTES))
        arena = (entry, generation, size) if in_arena else None
        left = self._to_link(Row(identity, process, function, None, shape, needed, arena, payload[end:]))
        left_shape, record = None, b""
        if function:
            left_shape = self._shape_left(process, shape)
            record = self._parts.functions.find(function) or b""
        if record:
            self.functions.write(function, record)
        self.directory.save(left, left_shape)
        for node in nodes:
            if node == kinds.STORE_NODE:
                row = KeptRow(left.owner, left.needs, function, encode(ObjectRow(left, left_shape)))
                self._parts.kept.keep(identity, row, record)
            else:
                self._deposit(node, process, left, left_shape, record)
        return True

    def _to_link(self, row: Row) -> LeftRow:
        arena: GlobalObject | None = None
        if row.arena is not None:
            known = self._parts.objects.imports.get(row.arena[:2])
            arena = (self.number, *row.arena) if known is None else known.origin
        owner = self._parts.names.to_global(row.owner)
        body = self._port.row_to_link(row.body)
        before = self.directory.before((owner, row.id))
        return LeftRow(row.id, owner, row.function, row.shape_number, list(row.needs), arena, body, before)

    def _shape_left(self, process: Process, number: int) -> LeftShape | None:
        """The same object for the same shape."""
        owner = (self.number, *process)
        left = self._shapes.get((owner, number))
        if left is None and (shape := self._parts.state.shapes.of(process, number)) is not None:
            left = self._shapes[owner, number] = _left_shape(owner, number, shape)
        return left

    def _deposit(self, node: int, process: Process, row: LeftRow, shape: LeftShape | None, record: bytes) -> None:
        function_sent = (node, process, "function", row.function)
        shape_sent = (node, process, "shape", row.shape)
        if function_sent in self._sent:
            record = b""
        if shape_sent in self._sent:
            shape = None
        if self._parts.members.send(node, lm.Deposit(row, record, shape)):
            if record:
                self._sent.add(function_sent)
            if shape is not None:
                self._sent.add(shape_sent)

    def deposit_came(self, link: NodeLink, message: lm.Deposit) -> None:
        row, shape = message.row, message.shape
        if row.owner[0] != link.peer:
            raise ValueError(f"a deposit of node {row.owner[0]} came from node {link.peer}")
        self._parts.names.to_local(row.owner)  # so that this node hears of its death
        if message.function:
            self._functions[row.function] = message.function
        if shape is not None:
            self._shapes[shape.owner, shape.number] = shape
        self.rows[row.id] = ObjectRow(row, self._shapes.get((row.owner, row.shape)))

    def withdraw_came(self, link: NodeLink, message: lm.Withdraw) -> None:
        known = self.rows.get(message.id)
        if known is not None and known.row.owner == (link.peer, message.slot, message.generation):
            del self.rows[message.id]

    def _functions_named(self) -> Iterable[int]:
        yield from (one.row.function for one in self.rows.values())
        yield from (row.function for row in self._here.rows.values())

    # ---- rows that are read ----

    def read(self, missing: set[Owned], then: Callable[[], None]) -> None:
        """From the store, and what they need. Chains are walked."""

        def came(found: dict[Owned, ObjectRow]) -> None:
            needed: set[Owned] = set()
            for (owner, _), one in found.items():
                self.rows[one.row.id] = one
                needed |= {(owner, need) for need in one.row.needs if need not in self}
            functions = {one.row.function for one in found.values() if one.row.function not in (0, *self._functions)}
            self._read_functions(functions, lambda: self.read(needed, then) if needed else then())

        def read(found: dict[Owned, ObjectRow]) -> None:
            self._ask_nodes_for(missing - found.keys(), lambda more: kept({**found, **more}))

        def kept(found: dict[Owned, ObjectRow]) -> None:
            self._ask_kept(missing - found.keys(), lambda more: came({**found, **more}))

        self.directory.read(missing, read)

    def _ask_nodes_for(self, missing: set[Owned], then: Callable[[dict[Owned, ObjectRow]], None]) -> None:
        """A ref that was passed on when its owner was dead, or about to die, and that is too young for the store: the
        owner's node has the row until the estate is settled; if that is dead, so has the node of who passed it on."""
        links = self._parts.members.links
        asked: dict[int, list[bytes]] = {}
        for owner, identity in missing:
            for node in (owner[0],) if owner[0] in links else links:
                asked.setdefault(node, []).append(identity)
        found: dict[Owned, ObjectRow] = {}
        waiting = len(asked)

        def came(outcome: Outcome) -> None:
            nonlocal waiting
            waiting -= 1
            left = msgspec.convert(outcome.value or {}, RowsLeft)
            self._functions.update(left.functions)
            found.update({(one.row.owner, one.row.id): one for one in left.rows})
            if waiting <= 0:
                then(found)

        if not asked:
            then(found)
        for node, ids in asked.items():
            self._parts.nodes.ask_node(node, "rows_left", {"ids": ids}).then(came)

    def _ask_kept(self, missing: set[Owned], then: Callable[[dict[Owned, ObjectRow]], None]) -> None:
        """What outlives all processes; it may have had other owners since it was named."""
        names = {identity: owner for owner, identity in missing}

        def came(outcome: Outcome) -> None:
            found: dict[Owned, ObjectRow] = {}
            for row, function in outcome.value or ():
                one = decode_row(row)
                found[names.get(one.row.id, one.row.owner), one.row.id] = one
                if function:
                    self._functions[one.row.function] = function
            then(found)

        if names:
            self._parts.operations.perform("rows_kept", {"ids": list(names)}).then(came)
        else:
            then({})

    def rows_left(self, params: dict[str, Any]) -> Any:
        """What dead processes have left here, of these and what they need: those of this node, and of dead nodes."""
        left = RowsLeft()
        ids = [bytes(identity) for identity in params["ids"]]
        far = {identity: one.row for identity, one in self.rows.items()}
        for identity, known in needed_rows(ids, far).items():
            left.rows.append(self.rows[identity])
            if known.function in self._functions:
                left.functions[known.function] = self._functions[known.function]
        for row in needed_rows(ids, self._here.rows).values():
            made = self._to_link(row)
            shape = None if row.shape is None else _left_shape(made.owner, row.shape_number, row.shape)
            left.rows.append(ObjectRow(made, shape))
            if row.function and (record := self._parts.functions.find(row.function)) is not None:
                left.functions[row.function] = record
        return msgspec.to_builtins(left, builtin_types=(bytes,))

    def _read_functions(self, keys: set[int], then: Callable[[], None]) -> None:
        if not keys:
            then()
            return
        key = keys.pop()

        def came(record: bytes) -> None:
            if record:
                self._functions[key] = record
            self._read_functions(keys, then)

        self.directory.function(key, came)


def is_in(owner: GlobalProcess, estate: Estate) -> bool:
    """Whether what it owned is part of that."""
    return owner[0] == estate[0] if estate[1] == 0 else owner == estate


def _left_shape(owner: GlobalProcess, number: int, shape: Shape) -> LeftShape:
    amounts, strategy = list(shape.amounts), dict(shape.strategy)
    return LeftShape(owner, number, amounts, shape.runtime_env, shape.refusal, strategy)
