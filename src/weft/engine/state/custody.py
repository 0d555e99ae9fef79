"""Custody: what a dead process had lent passes to one that still refers to it.

Pure: no I/O, no clock. An owner's ledger (`native/ledger.hpp`) outlives it. Every process of the node is asked twice
which of the dead one's objects it refers to: what was on its way to somebody when he answered first has reached him by
the time he answers again, so after two rounds a ref that nobody named does not exist. One of those who named something
takes everything over and tells the others; then the death is settled.

Invariants:
    CST-1  a row that nobody refers to, and that no row which somebody refers to needs, is released.
    CST-2  a custody ends: each answer that it waits for comes, or its sender dies.
    CST-3  if the adopter dies before it has confirmed, its own custody takes over what it was given.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from weft.engine.state.events import Process

ROUNDS = 2


class NeedingRow(Protocol):
    """What `needed_rows` looks at."""

    @property
    def id(self) -> bytes: ...
    @property
    def needs(self) -> Sequence[bytes]: ...


AnyRow = TypeVar("AnyRow", bound=NeedingRow)


@dataclass(frozen=True)
class Row:
    """One object that a process had lent, or that such an object needs."""

    id: bytes
    owner: Process
    is_lent: bool
    function: int
    """The key of the function that makes it; 0 when its value is known."""
    shape: int
    """Of its task, as its owner numbered it."""
    needs: tuple[bytes, ...]
    arena: tuple[int, int, int] | None
    """Its entry in the arena, generation and bytes, if it lies there."""
    body: bytes


@dataclass(frozen=True)
class Ask:
    """Say which objects of these dead you refer to."""

    process: Process
    custody: int
    round: int
    dead: tuple[Process, ...]


@dataclass(frozen=True)
class Adopt:
    """Own these from now on; `claims` says who else refers to which."""

    process: Process
    custody: int
    rows: tuple[Row, ...]
    claims: dict[bytes, tuple[Process, ...]]


@dataclass(frozen=True)
class Settle:
    """Tell everybody that nothing more will move from these dead; free what was not adopted."""

    dead: tuple[Process, ...]
    released: tuple[Row, ...]
    adopter: Process | None = None
    moved: tuple[bytes, ...] = ()
    """What the adopter owns now."""


@dataclass(frozen=True)
class Told:
    """All processes have said which objects of the dead of an estate (`state.estates`) they refer to."""

    collection: int
    claims: dict[bytes, tuple[Process, ...]]


Instruction = Ask | Adopt | Settle | Told


@dataclass
class _Custody:
    number: int
    dead: tuple[Process, ...]
    rows: dict[bytes, Row]
    round: int = 0
    waits_for: set[Process] = field(default_factory=set)
    claims: dict[bytes, dict[Process, None]] = field(default_factory=dict)
    adopter: Process | None = None
    is_collection: bool = False
    """It only asks; who adopts is decided elsewhere."""


class Custodian:
    """All custodies of a node."""

    def __init__(self) -> None:
        self._open: dict[int, _Custody] = {}
        self._numbers = itertools.count(1)

    def is_open(self, dead: Process) -> bool:
        """Whether its objects may still move."""
        return any(dead in custody.dead and not custody.is_collection for custody in self._open.values())

    def died(self, process: Process, rows: Iterable[Row], others: Iterable[Process]) -> list[Instruction]:
        """A process is dead; `others` are all that live on this node."""
        everybody = list(others)
        dead, inherited, out = self.left(process, rows, everybody)
        if not inherited:
            out.append(Settle(dead, ()))
            return out
        custody = _Custody(next(self._numbers), dead, inherited)
        self._open[custody.number] = custody
        self._go_on(custody, everybody, out)
        return out

    def collect(self, dead: Iterable[Process], others: Iterable[Process]) -> tuple[int, list[Instruction]]:
        """Ask everybody once which objects of these dead he refers to; `Told` of that number answers."""
        custody = _Custody(next(self._numbers), tuple(dead), {}, round=ROUNDS - 1, is_collection=True)
        self._open[custody.number] = custody
        out: list[Instruction] = []
        self._go_on(custody, others, out)
        return custody.number, out

    def left(
        self, process: Process, rows: Iterable[Row], everybody: list[Process]
    ) -> tuple[tuple[Process, ...], dict[bytes, Row], list[Instruction]]:
        """A process is dead: it and those whose objects it was about to adopt; all that is to pass on from them."""
        inherited: dict[bytes, Row] = {}
        dead: tuple[Process, ...] = (process,)
        out: list[Instruction] = []
        for custody in list(self._open.values()):
            if custody.adopter == process:
                del self._open[custody.number]
                inherited.update(custody.rows)
                dead += custody.dead
                continue
            for claimants in custody.claims.values():
                claimants.pop(process, None)
            if process in custody.waits_for:
                custody.waits_for.discard(process)
                self._go_on(custody, everybody, out)
        inherited.update({row.id: row for row in rows})
        return dead, inherited, out

    def named(
        self, process: Process, number: int, round_: int, ids: Iterable[bytes], others: Iterable[Process]
    ) -> list[Instruction]:
        """A process has answered."""
        custody = self._open.get(number)
        out: list[Instruction] = []
        if custody is None or custody.round != round_ or process not in custody.waits_for:
            return out
        for named in ids:
            custody.claims.setdefault(named, {})[process] = None
        custody.waits_for.discard(process)
        self._go_on(custody, others, out)
        return out

    def adopted(self, process: Process, number: int) -> list[Instruction]:
        """The adopter has taken everything over."""
        custody = self._open.get(number)
        if custody is None or custody.adopter != process:
            return []
        del self._open[number]
        kept = {row.id for row in needed_rows(custody.claims, custody.rows)}
        released = tuple(row for row in custody.rows.values() if row.id not in kept)
        return [Settle(custody.dead, released, process, tuple(kept))]

    def _go_on(self, custody: _Custody, others: Iterable[Process], out: list[Instruction]) -> None:
        if custody.waits_for or custody.adopter is not None:
            return
        living = [process for process in others if process not in custody.dead]
        if custody.round < ROUNDS and living:
            custody.round += 1
            custody.waits_for = set(living)
            out.extend(Ask(process, custody.number, custody.round, custody.dead) for process in living)
            return
        if custody.is_collection:
            del self._open[custody.number]
            found = {named: tuple(claimants) for named, claimants in custody.claims.items() if claimants}
            out.append(Told(custody.number, found))
            return
        claims = {
            named: tuple(claimants)
            for named, claimants in custody.claims.items()
            if named in custody.rows and claimants
        }
        if not claims:
            del self._open[custody.number]
            out.append(Settle(custody.dead, tuple(custody.rows.values())))
            return
        counts: dict[Process, int] = {}
        for claimants in claims.values():
            for process in claimants:
                counts[process] = counts.get(process, 0) + 1
        custody.adopter = max(counts, key=lambda process: (counts[process], -process[0]))
        custody.claims = {named: dict.fromkeys(claimants) for named, claimants in claims.items()}
        out.append(Adopt(custody.adopter, custody.number, tuple(needed_rows(custody.claims, custody.rows)), claims))


def needed_rows(claimed: Iterable[bytes], rows: Mapping[bytes, AnyRow]) -> list[AnyRow]:
    """The rows that somebody refers to, and all that these need."""
    found: dict[bytes, AnyRow] = {}
    missing = list(claimed)
    while missing:
        row = rows.get(missing.pop())
        if row is not None and row.id not in found:
            found[row.id] = row
            missing.extend(row.needs)
    return list(found.values())
