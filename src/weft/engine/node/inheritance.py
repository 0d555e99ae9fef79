"""A node's part in what passes on from the dead: carries out what `state.inheritance` decides.

Runs in the daemon's thread. An owner's ledger (`native/ledger.hpp`) outlives it. On a node of its own all is here: the
ledger has the rows, and the directory is a dict. In a cluster `cluster.inheritance` has the rows of other nodes'
objects, the directory in the control store, and the executor's orders.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

import msgspec

from weft import _native
from weft.engine.node.functions import FunctionTable
from weft.engine.state import inheritance as inh
from weft.engine.state.events import Process
from weft.engine.state.inheritance import Estate, Inheritances, Part
from weft.engine.state.leasing import Shape
from weft.engine.state.node import NodeState
from weft.engine.wire import kinds

HEIRS_KEPT = 1 << 16
"""So many objects that have passed on are remembered, for refs that name a dead owner and arrive late."""
NOBODY: Process = (0, 0)
"""The owner of what an heir needs, until it is told who that is."""
THIS_NODE = 0
"""The number of a node that is in no cluster."""


class NeedingRow(Protocol):
    """What `needed_rows` looks at."""

    @property
    def id(self) -> bytes: ...
    @property
    def needs(self) -> Sequence[bytes]: ...


AnyRow = TypeVar("AnyRow", bound=NeedingRow)


def needed_rows(wanted: Iterable[bytes], rows: Mapping[bytes, AnyRow]) -> dict[bytes, AnyRow]:
    """These rows, and all that they need. Chains are walked, not recursed into."""
    found: dict[bytes, AnyRow] = {}
    missing = list(wanted)
    while missing:
        row = rows.get(missing.pop())
        if row is not None and row.id not in found:
            found[row.id] = row
            missing.extend(row.needs)
    return found


class Row(msgspec.Struct, frozen=True):
    """One object that a dead process of this node had lent, or that such an object needs."""

    id: bytes
    owner: Process
    function: int
    """The key of the function that makes it; 0 when its value is known."""
    shape: Shape | None
    """What its task needs to run."""
    shape_number: int
    """As its owner numbered it."""
    needs: tuple[bytes, ...]
    arena: tuple[int, int, int] | None
    """Its entry in the arena, generation and bytes, if it lies there."""
    body: bytes


class Bequest(msgspec.Struct, frozen=True):
    """A row as its heir is given it."""

    id: bytes
    function: bytes
    """The FUNCTION record; empty where nothing is to be run."""
    shape: Shape | None
    body: bytes


class Claims(Protocol):
    """Who owns what the dead of the cluster have left."""

    def claim(self, part: Part, heir: Process, ids: Iterable[bytes]) -> None: ...
    def look_up(self, process: Process, dead: Process, identity: bytes) -> None: ...


class Fences(Protocol):
    def fence(self, part: int) -> None: ...
    def when_ready(self, owners: set[Process], then: Callable[[], None]) -> None: ...


class FunctionRows(Protocol):
    def look_later(self) -> None: ...


class Directory(Protocol):
    def scan(self, table: str, then: Callable[[list[tuple[bytes, bytes]], str], None]) -> None: ...


class Left(Protocol):
    """Rows of other nodes' objects."""

    @property
    def directory(self) -> Directory: ...
    @property
    def functions(self) -> FunctionRows: ...
    def bequest(self, identity: bytes, heir: Process) -> Bequest | None: ...


class FarInheritance(Protocol):
    """What passes on between nodes, in a cluster: `cluster.inheritance` is it."""

    @property
    def number(self) -> int: ...
    @property
    def claims(self) -> Claims: ...
    @property
    def fences(self) -> Fences: ...
    @property
    def left(self) -> Left: ...
    def is_far(self, process: Process) -> bool: ...
    def is_known(self, process: Process) -> bool: ...
    def is_buried(self, name: tuple[int, int, int]) -> bool: ...
    def far_dies(self, process: Process) -> None: ...
    def far_died(self, process: Process) -> None: ...
    def died(self, estate: Estate, has_left: bool) -> None: ...
    def settled_here(self, process: Process) -> None: ...
    def passed_on_here(self, identity: bytes, owner: Process, heir: Process) -> None: ...
    def has_heir(self, entry: tuple[int, int]) -> None: ...
    def part_done(self, part: Part) -> None: ...
    def dead_of(self, estate: Estate) -> list[Process]: ...


class InheritanceShell:
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
        self.state = Inheritances()
        self.cluster: FarInheritance | None = None
        self.rows: dict[bytes, Row] = {}
        """What dead processes of this node have left, and what is not settled."""
        self.is_kept: Callable[[bytes], bool] = lambda identity: False
        """Whether something that outlives all processes names that object (`node.kept_objects`)."""
        self.find_named: Callable[[Collection[bytes], Callable[[Collection[bytes]], None]], None] = lambda ids, then: (
            then(())
        )
        """Calls back with those of these objects that something names, as the head knows it."""
        self._named: set[bytes] = set()
        """Which heirs must hold from the beginning: who had asked the owner before to do so may be gone."""
        self._last_shape = kinds.ADOPTED_SHAPES
        self._heirs: dict[bytes, Process] = {}
        self._early: list[tuple[Process, bytes]] = []
        """Who asked for what an heir needs, while something may still be told."""
        self._dying: set[Process] = set()
        """Marked dead, and not settled: who wants something of theirs waits."""
        self._claiming: Counter[Process] = Counter()
        """Claims that are being made for a process, or that it has won and not confirmed."""
        self._when_ready: dict[Process, list[Callable[[], None]]] = {}
        self._estates: dict[Estate, tuple[Process, ...]] = {}
        """Of this node's own dead: those whose objects are in it."""

    @property
    def unsettled(self) -> frozenset[Process]:
        return frozenset(self._dying)

    # ---- deaths ----

    def take(self, process: Process) -> list[Row]:
        """What a dead process had lent; before its slot is marked dead. `died` must follow."""
        self._dying.add(process)
        if self.cluster is not None and self.cluster.is_far(process):
            self.cluster.far_dies(process)
            return []
        rows = []
        for found in self._port.take_ledger(*process):
            identity, _, function, number, needs, arena, body = found
            shape = self._node.shapes.of(process, number) if function else None
            rows.append(Row(identity, process, function, shape, number, tuple(needs), arena, body))
        return rows

    def died(self, process: Process, rows: list[Row]) -> None:
        """After everybody was told of the death."""
        heir_of, out = self.state.died(process)
        del self._claiming[process]
        self._ready(process)
        if self.cluster is not None and self.cluster.is_far(process):
            self.cluster.far_died(process)
            return
        self.rows.update({row.id: row for row in rows})
        estate = (THIS_NODE if self.cluster is None else self.cluster.number, *process)
        is_shared = any(part.is_shared for part in heir_of)
        if self.cluster is not None and (self.cluster.is_known(process) or is_shared):
            self._estates[estate] = (process,)
            self._carry(out)
            self.cluster.died(estate, bool(rows) or is_shared)
        elif heir_of:  # what it leaves is settled together with what it was to own
            self._estates[heir_of[0].estate] += (process,)
            self._carry(out)
        else:
            self._estates[estate] = (process,)
            self._carry(out)
            if rows:
                self._carry(self.state.opened(estate, False, self._living()))
            else:
                self.settle(Part(0, estate, is_shared=False), ())

    def inherit(self, estate: Estate) -> None:
        """The executor's order."""
        self._carry(self.state.opened(estate, True, self._living()))

    def settle(self, part: Part, dead: Iterable[Process]) -> None:
        """Nothing more will move from these dead, unless a ref to it comes late."""
        self.state.ended(part)
        gone = tuple(dict.fromkeys((*dead, *self._estates.pop(part.estate, ()))))
        self._dying.difference_update(gone)
        if self.cluster is not None and not part.is_shared:
            for process in gone:
                self.cluster.settled_here(process)
        is_late = {identity for identity in part.inherited if part.is_late}
        may_be_found = part.is_shared or bool(part.inherited)
        for row in [row for row in self.rows.values() if row.owner in gone or row.id in is_late]:
            is_inherited = row.id in part.inherited
            if self.is_kept(row.id) and not is_inherited:
                may_be_found = True  # who reads it next is its heir, and may have a ref by now
                continue
            del self.rows[row.id]
            if not part.is_shared and not is_inherited and not self._has_heir(row.id):
                self._free(row)
        body = kinds.SETTLED_BODY.pack(len(gone), int(may_be_found)) + _processes(gone)
        let_go = kinds.ADOPT_BODY.pack(part.number, 0, 0)
        for process in self._living():
            if process in part.heirs:
                self._port.send(*process, kinds.ADOPT, let_go)
            if gone:
                self._port.send(*process, kinds.SETTLED, body)
        if self._early and not self.state.is_busy:
            early, self._early = self._early, []
            for process, payload in early:
                self.asked(process, payload)

    def _has_heir(self, identity: bytes) -> bool:
        """That lives, through whatever estate."""
        heir = self._heirs.get(identity)
        return heir is not None and self._port.is_alive(*heir)

    def forget_left(self, identity: bytes) -> None:
        """Nothing names it any more, and its owner is dead."""
        if (row := self.rows.get(identity)) is not None and row.owner not in self._dying:
            del self.rows[identity]
            self._free(row)

    def _free(self, row: Row) -> None:
        if row.arena is not None and self._port.exists(*row.arena[:2]):
            self._port.remove(*row.arena[:2])

    # ---- records of processes ----

    def answered(self, process: Process, payload: bytes) -> None:
        number, round_, _ = kinds.ORPHANS_BODY.unpack_from(payload)
        part = self.state.part(number)
        if part is None:
            return
        ids = []
        for identity, *owner in kinds.NAMED_BODY.iter_unpack(payload[kinds.ORPHANS_BODY.size :]):
            ids.append(identity)
            part.dead_owners[identity] = (owner[0], owner[1])
        self._carry(self.state.named(process, number, round_, ids))

    def adopted(self, process: Process, payload: bytes) -> None:
        self._claim_over(process)
        self._carry(self.state.adopted(process, kinds.NUMBER_BODY.unpack(payload)[0]))

    def ask_again(self, process: Process, dead: Process, identity: bytes) -> None:
        """Its node has not answered."""
        self.asked(process, kinds.ORPHAN_ASKED_BODY.pack(*dead, identity))

    def asked(self, process: Process, payload: bytes) -> None:
        """Something of that dead process is wanted. Before it is settled there is no answer: then it is asked again."""
        *who, identity = kinds.ORPHAN_ASKED_BODY.unpack(payload)
        dead: Process = (who[0], who[1])
        if dead == NOBODY and self.state.is_busy:
            self._early.append((process, payload))
            return
        if dead in self._dying:
            return
        owner = self._heirs.get(identity)
        if owner in self._dying or (owner is not None and owner not in (dead, process) and self._port.is_alive(*owner)):
            self.when_ready(owner, lambda: self.answer(process, identity, owner))  # of a dead one it asks in turn
        elif self.cluster is not None:
            self.cluster.claims.look_up(process, dead, identity)
        elif identity in self.rows:
            self.came_late((THIS_NODE, *dead), process, dead, identity)
        else:
            self.answer(process, identity, None)

    def last_heir(self, identity: bytes) -> Process | None:
        """Who was the last to inherit it; that one may be dead as well."""
        return self._heirs.get(identity)

    def answer(self, process: Process, identity: bytes, owner: Process | None) -> None:
        answer = kinds.ORPHAN_ANSWERED_BODY.pack(identity, owner is not None, 0, *(owner or NOBODY))
        self._port.send(*process, kinds.ORPHAN_ANSWERED, answer)

    def came_late(self, estate: Estate, process: Process, dead: Process, identity: bytes) -> None:
        """Nobody has inherited it, and here is a ref to it."""
        out = self.state.came_late(estate, process, identity)
        for one in out:
            if isinstance(one, inh.Claim) and (part := self.state.part(one.number)) is not None:
                part.dead_owners[identity] = dead
        self._carry(out)

    # ---- decisions ----

    def claimed(
        self,
        number: int,
        heir: Process,
        won: Collection[bytes],
        owners: Mapping[bytes, Process],
        lost: Collection[bytes] = (),
    ) -> None:
        """The directory's answer to a claim; see `Inheritances.claimed`."""
        self.find_named(won, lambda named: self._claimed(number, heir, won, owners, lost, named))

    def _claimed(
        self,
        number: int,
        heir: Process,
        won: Collection[bytes],
        owners: Mapping[bytes, Process],
        lost: Collection[bytes],
        named: Collection[bytes],
    ) -> None:
        self._named.update(named)
        if heir not in set(self._living()):
            self._carry(self.state.claimed_for_the_dead(number))
            return
        for identity, owner in (*owners.items(), *((identity, heir) for identity in won)):
            self._heirs.pop(identity, None)
            self._heirs[identity] = owner
        for oldest in list(self._heirs)[: max(0, len(self._heirs) - HEIRS_KEPT)]:
            del self._heirs[oldest]
        self._carry(self.state.claimed(number, heir, won, lost))
        if not won:
            self._claim_over(heir)
        busy = set(owners.values())
        if self.cluster is not None:
            self.cluster.fences.when_ready(busy, lambda: self._others_own(number, heir, owners))
        else:
            self._others_own(number, heir, owners)

    def _others_own(self, number: int, heir: Process, owners: Mapping[bytes, Process]) -> None:
        self._when_all_ready(set(owners.values()), lambda: self._carry(self.state.others_own(number, heir, owners)))

    def _when_all_ready(self, processes: Collection[Process], call: Callable[[], None]) -> None:
        busy = next((process for process in processes if self._claiming[process]), None)
        if busy is None:
            call()
        else:
            self.when_ready(busy, lambda: self._when_all_ready(processes, call))

    def when_ready(self, process: Process, call: Callable[[], None]) -> None:
        """Once all that a process of this node has inherited until now is its own: who counts himself in earlier
        would be a stranger to it."""
        if self._claiming[process]:
            self._when_ready.setdefault(process, []).append(call)
        else:
            call()

    def _claim_over(self, process: Process) -> None:
        self._claiming[process] -= 1
        if self._claiming[process] <= 0:
            del self._claiming[process]
            self._ready(process)

    def _ready(self, process: Process) -> None:
        for call in self._when_ready.pop(process, ()):
            call()

    def fenced(self, number: int) -> None:
        self._carry(self.state.fenced(number, self._living()))

    def _carry(self, instructions: list[inh.Instruction]) -> None:
        for one in instructions:
            if isinstance(one, inh.Ask):
                self._ask(one)
            elif isinstance(one, inh.Claim):
                self._claim(one)
            elif isinstance(one, inh.Adopt):
                self._adopt(one)
            elif isinstance(one, inh.Tell):
                self.answer(one.process, one.id, one.owner)
            elif (part := self.state.part(one.number)) is not None:
                self._go_on(part, isinstance(one, inh.Fence))

    def _go_on(self, part: Part, is_fence: bool) -> None:
        if part.is_shared and self.cluster is not None:
            if is_fence:
                self.cluster.fences.fence(part.number)
            else:
                self.cluster.part_done(part)
        elif is_fence:
            self.fenced(part.number)
        else:
            self.settle(part, ())

    def _ask(self, one: inh.Ask) -> None:
        if (part := self.state.part(one.number)) is None:
            return
        dead = self._estates.get(part.estate, ())
        if part.is_shared and self.cluster is not None:
            dead = tuple(dict.fromkeys((*dead, *self.cluster.dead_of(part.estate))))
        body = kinds.FIND_ORPHANS_BODY.pack(one.number, one.round, len(dead)) + _processes(dead)
        self._port.send(*one.process, kinds.FIND_ORPHANS, body)

    def _claim(self, one: inh.Claim) -> None:
        if (part := self.state.part(one.number)) is None:
            return
        self._claiming[one.heir] += 1
        if part.is_shared and self.cluster is not None:
            self.cluster.claims.claim(part, one.heir, one.ids)
            return
        wanted = needed_rows(one.ids, self.rows)
        known = {identity: self._heirs[identity] for identity in wanted if identity in self._heirs}
        owners = {identity: owner for identity, owner in known.items() if self._port.is_alive(*owner)}
        won = [identity for identity in wanted if identity not in owners]
        if self.cluster is not None:
            for identity in won:
                self.cluster.passed_on_here(identity, wanted[identity].owner, one.heir)
        self.claimed(one.number, one.heir, won, owners)

    def _adopt(self, one: inh.Adopt) -> None:
        bequests = [made for identity in one.ids if (made := self._bequest(identity, one.heir)) is not None]
        shapes: dict[int, int] = {}
        functions = dict.fromkeys(made.function for made in bequests if made.function)
        parts = [kinds.ADOPT_BODY.pack(one.number, len(bequests), len(functions))]
        for record in functions:
            parts += [kinds.SIZE_BODY.pack(len(record), 0), record]
        for made in bequests:
            if made.shape is not None and id(made.shape) not in shapes:
                self._last_shape += 1
                shapes[id(made.shape)] = self._last_shape
                self._node.shapes.give(one.heir, self._last_shape, made.shape)
            number = 0 if made.shape is None else shapes[id(made.shape)]
            parts += [made.id, kinds.SIZE_BODY.pack(len(made.body), number), made.body]
        parts += self._named.intersection(one.ids)
        self._named.difference_update(one.ids)
        if bequests:
            self._port.send(*one.heir, kinds.ADOPT, b"".join(parts))
        else:
            self.adopted(one.heir, kinds.NUMBER_BODY.pack(one.number))

    def _bequest(self, identity: bytes, heir: Process) -> Bequest | None:
        row = self.rows.get(identity)
        if row is None:
            return None if self.cluster is None else self.cluster.left.bequest(identity, heir)
        if self.cluster is not None and row.arena is not None:
            self.cluster.has_heir(row.arena[:2])
        function = (self._functions.find(row.function) or b"") if row.function else b""
        return Bequest(row.id, function, row.shape, row.body)


def _processes(processes: Iterable[Process]) -> bytes:
    return b"".join(kinds.PROCESS_BODY.pack(*process) for process in processes)
