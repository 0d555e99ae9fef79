"""Inheritance: what a dead process or a dead node owned passes to those that still refer to it.

Pure: no I/O, no clock. There is one protocol for both deaths. An *estate* is a dead process, or all processes of a dead
node. Its *executor* is the node of the dead process, which has its ledger, or the acting head when a node is dead. The
executor asks every node to inherit (`Settlements`). Each node then does the same (`Inheritances`):

1. Ask the processes here which objects of the dead they refer to.
2. Claim each of these objects, and what it needs, for one of them: the heir. The directory grants a claim to the first
   who makes it and answers the others with the heir's name. On one node the directory is a dict, in a cluster the
   control store.
3. Have heirs adopt what they have won; tell the others who the heir is, so that they count themselves in there.
4. Wait until all that other nodes had sent before is here (a fence), and ask again. When nobody names anything new, say
   so to the executor.

When all nodes have said so the estate is settled. Only then heirs let go of what nobody else counted on.

Invariants:
    INH-1  an object of an estate has at most one heir, however often nodes, executors and heirs die in between.
    INH-2  an estate is settled once each node that lives has done its part.
    INH-3  what was given to an heir that dies before it has confirmed is claimed anew.
    INH-4  a row that nobody refers to, and that no claimed row needs, passes to nobody.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias

import msgspec

from weft.engine.state.events import Process

Estate: TypeAlias = tuple[int, int, int]
"""(node, slot, generation) of the dead process; of slot 0: all processes of that node."""


# ---- what a node does ----


class Ask(msgspec.Struct, frozen=True):
    """Have this process say which objects of the estate's dead it refers to."""

    process: Process
    number: int
    round: int


class Claim(msgspec.Struct, frozen=True):
    """Ask the directory for these objects, and for what they need; `claimed` answers."""

    number: int
    heir: Process
    ids: tuple[bytes, ...]


class Adopt(msgspec.Struct, frozen=True):
    """Have the heir own these; `adopted` answers."""

    number: int
    heir: Process
    ids: tuple[bytes, ...]


class Tell(msgspec.Struct, frozen=True):
    """Tell a process who owns an object that it refers to, or that it is lost."""

    process: Process
    id: bytes
    owner: Process | None


class Fence(msgspec.Struct, frozen=True):
    """Wait until all that other nodes have sent until now is here; `fenced` answers."""

    number: int


class Done(msgspec.Struct, frozen=True):
    """This node has done its part."""

    number: int


Instruction: TypeAlias = Ask | Claim | Adopt | Tell | Fence | Done


class Part(msgspec.Struct):
    """One node's part in one estate."""

    number: int
    estate: Estate
    is_shared: bool
    """Other nodes may refer to its objects."""
    is_late: bool = False
    """Only for one ref that came when the estate was settled."""
    round: int = 0
    waits_for: set[Process] = msgspec.field(default_factory=set)
    named: dict[bytes, dict[Process, None]] = msgspec.field(default_factory=dict)
    """In this round, and not known before."""
    dead_owners: dict[bytes, Process] = msgspec.field(default_factory=dict)
    """Of which of the dead it was, as those say who name it."""
    claiming: tuple[bytes, ...] = ()
    is_claiming: bool = False
    owners: dict[bytes, Process] = msgspec.field(default_factory=dict)
    inherited: set[bytes] = msgspec.field(default_factory=set)
    """What has passed on, whatever became of its heir since."""
    lost: set[bytes] = msgspec.field(default_factory=set)
    """What the directory knows nothing of."""
    told: set[tuple[Process, bytes]] = msgspec.field(default_factory=set)
    unconfirmed: dict[Process, tuple[bytes, ...]] = msgspec.field(default_factory=dict)
    """What heirs of this node have been given and not confirmed."""
    heirs: set[Process] = msgspec.field(default_factory=set)
    """Of this node."""
    is_unsure: bool = False
    """Another round is needed, whatever this one brings."""
    is_done: bool = False


class Inheritances:
    """All estates that a node has a part in."""

    def __init__(self) -> None:
        self._parts: dict[int, Part] = {}
        self._numbers = itertools.count(1)

    @property
    def is_busy(self) -> bool:
        """Whether something may still be told."""
        return bool(self._parts)

    def part(self, number: int) -> Part | None:
        return self._parts.get(number)

    def of(self, estate: Estate) -> Part | None:
        return next((part for part in self._parts.values() if part.estate == estate and not part.is_late), None)

    def of_node(self, node: int) -> list[Part]:
        """Of all its estates."""
        return [part for part in self._parts.values() if part.estate[0] == node and not part.is_late]

    def opened(self, estate: Estate, is_shared: bool, everybody: Iterable[Process]) -> list[Instruction]:
        """This node is to inherit."""
        part = Part(next(self._numbers), estate, is_shared)
        self._parts[part.number] = part
        return self._ask(part, everybody)

    def came_late(self, estate: Estate, process: Process, identity: bytes) -> list[Instruction]:
        """A process refers to an object of an estate that is settled, and has no heir."""
        part = Part(next(self._numbers), estate, is_shared=True, is_late=True, named={identity: {process: None}})
        self._parts[part.number] = part
        return self._all_named(part)

    def ended(self, part: Part) -> None:
        """It is settled, or there is nothing to settle."""
        self._parts.pop(part.number, None)

    def named(self, process: Process, number: int, round_: int, ids: Iterable[bytes]) -> list[Instruction]:
        """A process has answered."""
        part = self._parts.get(number)
        if part is None or part.round != round_ or process not in part.waits_for:
            return []
        for named in ids:
            is_known = named in part.lost or (process, named) in part.told or part.owners.get(named) == process
            if not is_known:
                part.named.setdefault(named, {})[process] = None
        part.waits_for.discard(process)
        return self._all_named(part)

    def claimed(self, number: int, heir: Process, won: Collection[bytes], lost: Iterable[bytes]) -> list[Instruction]:
        """The directory's answer: what the heir has won, and what it needs and nobody can give it. `others_own` follows
        for the rest."""
        part = self._parts.get(number)
        if part is None or not won:
            return []
        part.owners.update(dict.fromkeys(won, heir))
        part.inherited.update(won)
        part.unconfirmed[heir] = tuple(won)
        part.heirs.add(heir)
        return [Adopt(number, heir, tuple(won)), *(Tell(heir, identity, None) for identity in lost)]

    def others_own(self, number: int, heir: Process, owners: Mapping[bytes, Process]) -> list[Instruction]:
        """What the heir did not win belongs to these, who have adopted it by now."""
        part = self._parts.get(number)
        if part is None:
            return []
        part.owners.update(owners)
        part.inherited.update(owners)
        part.lost.update(identity for identity in part.claiming if identity not in part.owners)
        part.is_claiming = False
        # What a row needs is named by nobody, and its heir refers to it; it may have dropped what it was told before.
        needed = [Tell(heir, identity, owner) for identity, owner in owners.items() if identity not in part.named]
        return needed + self._tell(part) + self._round_over(part)

    def claimed_for_the_dead(self, number: int) -> list[Instruction]:
        """The heir died while it was claimed for. Whoever names these objects next is its heir in turn."""
        part = self._parts.get(number)
        if part is None:
            return []
        part.is_claiming, part.is_unsure = False, True
        return self._round_over(part)

    def adopted(self, process: Process, number: int) -> list[Instruction]:
        """The heir owns what it was given: now others may count themselves in."""
        part = self._parts.get(number)
        if part is None or part.unconfirmed.pop(process, None) is None:
            return []
        return self._tell(part) + self._round_over(part)

    def fenced(self, number: int, everybody: Iterable[Process]) -> list[Instruction]:
        part = self._parts.get(number)
        return [] if part is None or part.is_done else self._ask(part, everybody)

    def died(self, process: Process) -> tuple[list[Part], list[Instruction]]:
        """A process of this node is dead: where it was to own something and had not confirmed it (INH-3), and how the
        others go on. What it owned is claimed anew by who names it."""
        out: list[Instruction] = []
        heir_of = []
        for part in list(self._parts.values()):
            for namers in part.named.values():
                namers.pop(process, None)
            if process in part.waits_for:
                part.waits_for.discard(process)
                out += self._all_named(part)
            part.owners = {identity: owner for identity, owner in part.owners.items() if owner != process}
            if (given := part.unconfirmed.pop(process, None)) is not None:
                heir_of.append(part)
                part.is_unsure = True
                part.inherited.difference_update(given)
                out += self._round_over(part)
        return heir_of, out

    # ---- inside ----

    def _ask(self, part: Part, everybody: Iterable[Process]) -> list[Instruction]:
        part.round += 1
        part.named, part.is_unsure = {}, False
        part.waits_for = set(everybody)
        if not part.waits_for:
            return self._round_over(part)
        return [Ask(process, part.number, part.round) for process in sorted(part.waits_for)]

    def _all_named(self, part: Part) -> list[Instruction]:
        if part.waits_for:
            return []
        new = [identity for identity, namers in part.named.items() if identity not in part.owners and namers]
        if not new:
            return self._tell(part) + self._round_over(part)
        counts = Counter(process for identity in new for process in part.named[identity])
        heir = max(counts, key=lambda process: (counts[process], (-process[0], process[1])))
        part.claiming, part.is_claiming = tuple(new), True
        return [Claim(part.number, heir, part.claiming)]

    def _tell(self, part: Part) -> list[Instruction]:
        out: list[Instruction] = []
        for identity, namers in part.named.items():
            owner = part.owners.get(identity)
            for process in namers:
                if owner is None or owner in part.unconfirmed:
                    continue
                if owner != process and (process, identity) not in part.told:
                    part.told.add((process, identity))
                    out.append(Tell(process, identity, owner))
        return out

    def _round_over(self, part: Part) -> list[Instruction]:
        """Two rounds at least, and the last one has brought nothing."""
        if part.is_done or part.waits_for or part.is_claiming or part.unconfirmed:
            return []
        if not part.is_late and (part.round == 1 or part.named or part.is_unsure):
            part.named = {}
            return [Fence(part.number)]
        part.is_done = True
        return [Done(part.number)]


# ---- what the executor does ----


class AskLost(msgspec.Struct, frozen=True):
    """Have these nodes say whether they have rows of the dead node: some may not have noticed, or never knew it."""

    estate: Estate
    nodes: tuple[int, ...]


class Inherit(msgspec.Struct, frozen=True):
    """Have these nodes do their part."""

    estate: Estate
    nodes: tuple[int, ...]


class Settle(msgspec.Struct, frozen=True):
    """Tell all nodes that they have."""

    estate: Estate


Order: TypeAlias = AskLost | Inherit | Settle


class _Open(msgspec.Struct):
    waits_for: set[int]
    has_rows: bool = False
    """A node without any has no process that refers to its objects."""
    is_known: bool = False
    """To be dead, by all: nodes inherit."""


class Settlements:
    """All estates that this node executes."""

    def __init__(self) -> None:
        self._open: dict[Estate, _Open] = {}

    def is_open(self, estate: Estate) -> bool:
        return estate in self._open

    def process_died(self, estate: Estate, nodes: Iterable[int]) -> list[Order]:
        """A process of this very node."""
        self._open[estate] = one = _Open(set(nodes), is_known=True)
        return [Inherit(estate, tuple(sorted(one.waits_for)))]

    def node_lost(self, node: int, estate: Estate, has_rows: bool, nodes: Collection[int]) -> list[Order]:
        """A node has noticed that another is dead. It has rows of its objects, or none."""
        one = self._open.get(estate)
        out: list[Order] = []
        if one is None:
            one = self._open[estate] = _Open(set(nodes))
            out.append(AskLost(estate, tuple(sorted(one.waits_for - {node}))))
        if one.is_known:  # it asks anew, or came late
            return [Inherit(estate, (node,))]
        one.has_rows |= has_rows
        one.waits_for.discard(node)
        return out + self._go_on(estate, one, nodes)

    def inherited(self, node: int, estate: Estate) -> list[Order]:
        """A node has done its part."""
        one = self._open.get(estate)
        if one is None or not one.is_known:
            return []
        one.waits_for.discard(node)
        return self._go_on(estate, one, ())

    def node_gone(self, node: int, nodes: Collection[int]) -> list[Order]:
        """`nodes`: those that are left."""
        out: list[Order] = []
        for estate, one in list(self._open.items()):
            if node in one.waits_for:
                one.waits_for.discard(node)
                out += self._go_on(estate, one, nodes)
        return out

    def _go_on(self, estate: Estate, one: _Open, nodes: Collection[int]) -> list[Order]:
        if one.waits_for:
            return []
        if not one.is_known and one.has_rows:
            one.is_known, one.waits_for = True, set(nodes)
            return [Inherit(estate, tuple(sorted(nodes)))]
        del self._open[estate]
        return [Settle(estate)]
