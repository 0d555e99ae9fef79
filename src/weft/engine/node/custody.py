"""Carries out what `state.custody` decides: asks processes, hands a dead one's objects to their adopter.

Runs in the daemon's thread.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from weft import _native
from weft.engine.node.functions import FunctionTable
from weft.engine.state import custody
from weft.engine.state.custody import Adopt, Ask, Custodian, Row, Settle, Told
from weft.engine.state.events import Process
from weft.engine.state.node import NodeState, Shape
from weft.engine.wire import kinds

if TYPE_CHECKING:
    from weft.engine.cluster.estates import EstatesShell

_ASK = struct.Struct("<QII")
_ANSWER = struct.Struct("<QII")
_ADOPT = struct.Struct("<QII")
_ADOPTED_ROW = struct.Struct("<16sIIII")
_NUMBER = struct.Struct("<Q")
_PAIR = struct.Struct("<II")
_FOUND = struct.Struct("<16sIIII")
_ID_BYTES = 16
MOVES_KEPT = 1 << 16
"""So many moved objects are remembered, for refs that name a dead owner and arrive late."""
_FAR_ADOPTIONS = 1 << 32
"""Adoptions that another node has decided on are numbered from here on."""
FIRST_SHAPE = 4096
"""Shapes that a process gets with what it adopts are numbered from here on; its own are far below."""


class CustodyShell:
    """One daemon's."""

    def __init__(
        self,
        port: _native.NodePort,
        functions: FunctionTable,
        living: Callable[[], Iterable[Process]],
        state: NodeState,
    ) -> None:
        self._port = port
        self._functions = functions
        self._living = living
        """All drivers and workers of this node."""
        self._node = state
        self._state = Custodian()
        self._shapes: dict[tuple[Process, int], Shape] = {}
        """Of the dead, as far as their tasks may be run again."""
        self._last_shape = FIRST_SHAPE
        self._moved: dict[bytes, Process] = {}
        self._dying: set[Process] = set()
        """Marked dead, and their custody is about to begin, or is decided elsewhere: who asks now hears of its end."""
        self.estates: EstatesShell | None = None
        """In a cluster: what passes on between nodes."""
        self._collections: dict[int, Callable[[dict[bytes, tuple[Process, ...]]], None]] = {}
        self._adoptions: dict[int, tuple[Process, Callable[[bool], None]]] = {}
        """Of estates: the adopter, and whom to tell whether it has confirmed."""
        self._last_adoption = 0

    @property
    def unsettled(self) -> frozenset[Process]:
        """The dead of which it is not known yet what passes on; who wants something of theirs waits."""
        return frozenset(self._dying)

    def take(self, process: Process) -> list[Row]:
        """What a dead process had lent; before its slot is marked dead. `died` must follow."""
        self._dying.add(process)
        rows = []
        for found in self._port.take_ledger(*process):
            identity, is_lent, function, shape, needs, arena, body = found
            rows.append(Row(identity, process, is_lent, function, shape, tuple(needs), arena, body))
            if function and (known := self._node.shape_of(process, shape)) is not None:
                self._shapes[process, shape] = known
        return rows

    def died(self, process: Process, rows: list[Row]) -> None:
        """After everybody was told of the death."""
        for number in [number for number, (adopter, _) in self._adoptions.items() if adopter == process]:
            self._adoptions.pop(number)[1](False)
        if self.estates is None or not self.estates.decides(process):
            self._dying.discard(process)
            self._carry(self._state.died(process, rows, self._living()))
            return
        dead, left, out = self._state.left(process, rows, list(self._living()))
        self._dying.update(dead)
        self._carry(out)
        self.estates.left(process, dead, list(left.values()))

    def answered(self, process: Process, payload: bytes) -> None:
        number, round_, _ = _ANSWER.unpack_from(payload)
        ids = [payload[at : at + _ID_BYTES] for at in range(_ANSWER.size, len(payload), _ID_BYTES)]
        self._carry(self._state.named(process, number, round_, ids, self._living()))

    def adopted(self, process: Process, payload: bytes) -> None:
        (number,) = _NUMBER.unpack(payload)
        if number in self._adoptions:
            self._adoptions.pop(number)[1](True)
        else:
            self._carry(self._state.adopted(process, number))

    # ---- estates: what another node may decide over ----

    def collect(self, dead: Iterable[Process], then: Callable[[dict[bytes, tuple[Process, ...]]], None]) -> None:
        """Which objects of these dead the processes of this node refer to."""
        number, out = self._state.collect(dead, self._living())
        self._collections[number] = then
        self._carry(out)

    def shape_of(self, process: Process, number: int) -> Shape | None:
        """What a process, living or just dead, calls by that number."""
        return self._shapes.get((process, number)) or self._node.shape_of(process, number)

    def give(
        self,
        adopter: Process,
        rows: Iterable[tuple[bytes, tuple[Process, ...], Shape | None, bytes]],
        functions: Iterable[bytes],
        then: Callable[[bool], None],
    ) -> None:
        """Have a process of this node own these: (id, who else refers to it, shape, body); `then` hears if it did."""
        if adopter not in set(self._living()):
            then(False)
            return
        self._last_adoption += 1
        number = _FAR_ADOPTIONS + self._last_adoption
        self._adoptions[number] = (adopter, then)
        listed, records = list(rows), list(functions)
        shapes: dict[int, int] = {}
        parts = [_ADOPT.pack(number, len(listed), len(records))]
        for record in records:
            parts += [_PAIR.pack(len(record), 0), record]
        for identity, claimants, shape, body in listed:
            if shape is not None and id(shape) not in shapes:
                self._last_shape += 1
                shapes[id(shape)] = self._last_shape
                self._node.give_shape(adopter, self._last_shape, shape)
            named = 0 if shape is None else shapes[id(shape)]
            parts += [_ADOPTED_ROW.pack(identity, len(claimants), len(body), named, 0), _processes(claimants), body]
        self._port.send(*adopter, kinds.ADOPT, b"".join(parts))

    def settle_estate(self, dead: tuple[Process, ...], adopter: Process | None, moved: Iterable[bytes]) -> None:
        """Nothing more will move from these; of `moved` the adopter is the owner now."""
        self._dying.difference_update(dead)
        self._settle(Settle(dead, (), adopter, tuple(moved)), may_have_moved=True)

    def owner_of(self, identity: bytes) -> Process | None:
        """Who has taken it over."""
        return self._moved.get(identity)

    def asked(self, process: Process, payload: bytes) -> None:
        """Something of that dead process is wanted. Before it is settled there is no answer: then it is asked again."""
        dead: Process = kinds.PROCESS_BODY.unpack_from(payload)
        identity = payload[kinds.PROCESS_BODY.size :]
        if dead in self._dying or self._state.is_open(dead):
            return
        owner = self._moved.get(identity)
        is_found = owner is not None and owner != dead and self._port.is_alive(*owner)
        if not is_found and self.estates is not None and self.estates.ask_home(process, dead, identity):
            return
        self.answer(process, identity, owner if is_found else None)

    def answer(self, process: Process, identity: bytes, owner: Process | None) -> None:
        is_found = owner is not None
        answer = _FOUND.pack(identity, int(is_found), 0, *(owner if owner is not None else (0, 0)))
        self._port.send(*process, kinds.ORPHAN_ANSWERED, answer)

    def _carry(self, instructions: list[custody.Instruction]) -> None:
        for one in instructions:
            if isinstance(one, Ask):
                body = _ASK.pack(one.custody, one.round, len(one.dead)) + _processes(one.dead)
                self._port.send(*one.process, kinds.FIND_ORPHANS, body)
            elif isinstance(one, Adopt):
                self._port.send(*one.process, kinds.ADOPT, self._adoption(one))
            elif isinstance(one, Told):
                self._collections.pop(one.collection)(one.claims)
            else:
                self._settle(one)

    def _adoption(self, one: Adopt) -> bytes:
        shapes: dict[tuple[Process, int], int] = {}
        functions: dict[int, bytes] = {}
        for row in one.rows:
            if row.function and (record := self._functions.find(row.function)) is not None:
                functions[row.function] = record
            if row.function and (row.owner, row.shape) not in shapes:
                self._last_shape += 1
                shapes[row.owner, row.shape] = self._last_shape
                self._node.give_shape(one.process, self._last_shape, self._shapes[row.owner, row.shape])
        parts = [_ADOPT.pack(one.custody, len(one.rows), len(functions))]
        for record in functions.values():
            parts += [_PAIR.pack(len(record), 0), record]
        for row in one.rows:
            claimants = one.claims.get(row.id, ())
            shape = shapes.get((row.owner, row.shape), 0)
            parts.append(_ADOPTED_ROW.pack(row.id, len(claimants), len(row.body), shape, 0))
            parts += [_processes(claimants), row.body]
        return b"".join(parts)

    def _settle(self, one: Settle, may_have_moved: bool = False) -> None:
        for row in one.released:
            if row.arena is not None and self._port.exists(*row.arena[:2]):
                self._port.remove(*row.arena[:2])
        for key in [key for key in self._shapes if key[0] in one.dead]:
            del self._shapes[key]
        if one.adopter is not None:
            self._moved.update(dict.fromkeys(one.moved, one.adopter))
            for oldest in list(self._moved)[: max(0, len(self._moved) - MOVES_KEPT)]:
                del self._moved[oldest]
        body = _PAIR.pack(len(one.dead), int(bool(one.moved) or may_have_moved)) + _processes(one.dead)
        for process in self._living():
            self._port.send(*process, kinds.SETTLED, body)


def _processes(processes: Iterable[Process]) -> bytes:
    return b"".join(kinds.PROCESS_BODY.pack(*process) for process in processes)
