"""Estates: what passes on between nodes when a process, or a whole node, is dead.

Pure: no I/O, no clock. One node decides over an estate: the dead process's own, which has its ledger; or, when a whole
node is dead, the acting head, to which all others tell the rows that were deposited with them. It asks all nodes twice
which of their processes refer to what; before the second answer a node has read all that was on its way to it when the
first round ended. Then one process, of whatever node, takes over everything that anybody referred to.

Invariants:
    EST-1  an estate is settled once every node that it waits for has answered or died.
    EST-2  a row that nobody refers to, and that no row which somebody refers to needs, passes to nobody.
    EST-3  what was given to an adopter that dies before it has confirmed is given to another.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from weft.engine.state.custody import needed_rows
from weft.engine.wire.link_messages import GlobalObject, GlobalProcess, LeftRow

Estate: TypeAlias = GlobalProcess
"""The process that is dead; of slot 0: all processes of that node."""
Origin: TypeAlias = tuple[int, int, int]
ROUNDS = 2
SETTLED_KEPT = 256


@dataclass(frozen=True)
class AskRows:
    """Have the nodes tell what they have of it, if they have not: who joined lately had no link to the dead node, and
    does not notice its death."""

    nodes: tuple[int, ...]
    estate: Estate


@dataclass(frozen=True)
class AskNames:
    """Have the nodes say who refers to what."""

    nodes: tuple[int, ...]
    estate: Estate
    round: int


@dataclass(frozen=True)
class AdoptThere:
    """Have a process take these over; `claims` says who else refers to which, `homes` where objects are from now on."""

    adopter: GlobalProcess
    estate: Estate
    rows: tuple[LeftRow, ...]
    claims: dict[bytes, tuple[GlobalProcess, ...]]
    homes: tuple[tuple[Origin, GlobalObject], ...]


@dataclass(frozen=True)
class SettleEstate:
    """Tell all nodes that nothing more will move from it."""

    estate: Estate
    adopter: GlobalProcess | None = None
    moved: tuple[bytes, ...] = ()


Instruction: TypeAlias = AskRows | AskNames | AdoptThere | SettleEstate


@dataclass
class _Open:
    estate: Estate
    waits_for: set[int]
    rows: dict[bytes, LeftRow] = field(default_factory=dict)
    copies: dict[Origin, GlobalObject] = field(default_factory=dict)
    round: int = 0
    """0: the rows are being gathered."""
    claims: dict[bytes, dict[GlobalProcess, None]] = field(default_factory=dict)
    adopter: GlobalProcess | None = None


class Estates:
    """All that one node decides over."""

    def __init__(self) -> None:
        self._open: dict[Estate, _Open] = {}
        self._settled: dict[Estate, SettleEstate] = {}

    def is_open(self, estate: Estate) -> bool:
        return estate in self._open

    def settled(self, estate: Estate) -> SettleEstate | None:
        """How it ended, if it is one of the last."""
        return self._settled.get(estate)

    def opened(self, estate: Estate, rows: Iterable[LeftRow], nodes: Iterable[int]) -> list[Instruction]:
        """A process of this very node is dead; these rows are all."""
        one = self._open[estate] = _Open(estate, set(), {row.id: row for row in rows})
        return self._go_on(one, nodes)

    def rows_came(
        self,
        node: int,
        estate: Estate,
        rows: Iterable[LeftRow],
        copies: Iterable[tuple[Origin, GlobalObject]],
        nodes: Iterable[int],
    ) -> list[Instruction]:
        """What a node had of another that is dead: copies of rows, and of objects. `nodes` are all that live."""
        if estate in self._settled:
            return []
        everybody = list(nodes)
        out: list[Instruction] = []
        one = self._open.get(estate)
        if one is None:
            one = self._open[estate] = _Open(estate, set(everybody))
            out += [AskRows(tuple(other for other in everybody if other != node), estate)]
        if one.round or node not in one.waits_for:
            return out
        for row in rows:
            known = one.rows.get(row.id)
            if known is None or (known.is_pending and not row.is_pending):
                one.rows[row.id] = row
        one.copies.update(copies)
        one.waits_for.discard(node)
        return out if one.waits_for else self._go_on(one, everybody)

    def named(
        self,
        node: int,
        estate: Estate,
        round_: int,
        claims: dict[bytes, list[GlobalProcess]],
        nodes: Iterable[int],
    ) -> list[Instruction]:
        """A node has said which of its processes refer to what."""
        one = self._open.get(estate)
        if one is None or one.round != round_ or node not in one.waits_for:
            return []
        for identity, processes in claims.items():
            one.claims.setdefault(identity, {}).update(dict.fromkeys(processes))
        one.waits_for.discard(node)
        return [] if one.waits_for else self._go_on(one, nodes)

    def adopted(self, estate: Estate, adopter: GlobalProcess, ok: bool, nodes: Iterable[int]) -> list[Instruction]:
        """The adopter owns everything now; or it is dead, and had not confirmed."""
        one = self._open.get(estate)
        if one is None or one.adopter != adopter:
            return []
        if not ok:
            return self._ask_anew(one, nodes)
        return [self._settle(one, tuple(row.id for row in needed_rows(one.claims, one.rows)))]

    def node_gone(self, node: int, nodes: Iterable[int]) -> list[Instruction]:
        everybody = list(nodes)
        out: list[Instruction] = []
        for one in list(self._open.values()):
            for claimants in one.claims.values():
                for process in [process for process in claimants if process[0] == node]:
                    del claimants[process]
            one.copies = {old: new for old, new in one.copies.items() if new[0] != node}
            if one.adopter is not None and one.adopter[0] == node:
                out += self._ask_anew(one, everybody)
            elif node in one.waits_for:
                one.waits_for.discard(node)
                if not one.waits_for:
                    out += self._go_on(one, everybody)
        return out

    def _ask_anew(self, one: _Open, nodes: Iterable[int]) -> list[Instruction]:
        one.adopter, one.claims, one.round = None, {}, 0
        return self._go_on(one, nodes)

    def _go_on(self, one: _Open, nodes: Iterable[int]) -> list[Instruction]:
        if not one.rows:
            return [self._settle(one)]
        if one.round < ROUNDS:
            one.round += 1
            one.waits_for = set(nodes)
            return [AskNames(tuple(sorted(one.waits_for)), one.estate, one.round)]
        one.claims = {named: who for named, who in one.claims.items() if named in one.rows and who}
        if not one.claims:
            return [self._settle(one)]
        counts: dict[GlobalProcess, int] = {}
        for claimants in one.claims.values():
            for process in claimants:
                counts[process] = counts.get(process, 0) + 1
        one.adopter = max(counts, key=lambda process: (counts[process], process))
        rows = needed_rows(one.claims, one.rows)
        origins = [row.arena[:3] for row in rows if row.arena is not None]
        homes = tuple((origin, one.copies[origin]) for origin in origins if origin in one.copies)
        claims = {named: tuple(who) for named, who in one.claims.items()}
        return [AdoptThere(one.adopter, one.estate, tuple(rows), claims, homes)]

    def _settle(self, one: _Open, moved: tuple[bytes, ...] = ()) -> SettleEstate:
        del self._open[one.estate]
        settled = self._settled[one.estate] = SettleEstate(one.estate, one.adopter, moved)
        for oldest in list(self._settled)[: max(0, len(self._settled) - SETTLED_KEPT)]:
            del self._settled[oldest]
        return settled
