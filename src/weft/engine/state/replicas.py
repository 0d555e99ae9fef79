"""Objects of which there shall be several copies, as one node knows them that has one.

Pure: no I/O, no clock. The object's origin decides: when a node dies that had a copy, another node is asked for one.
Who has a copy knows how many there shall be. So when the origin dies, the node that takes its place goes on from there:
those that have a copy tell it so. The owner's node is among them wherever it can be, because the object must be there
for its owner when the origin dies.

Invariants:
    REP-1  no more copies are asked for than are missing, but for the owner's.
    REP-2  a node that could not make one is not asked again before something changes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from weft.engine.state.events import Process

Entry = Process
"""(entry, generation) of this node's object table."""


@dataclass(frozen=True)
class AskCopy:
    """Have that node fetch the object, keep it, and know how many copies there shall be."""

    node: int
    entry: Entry
    size: int
    replicas: int


@dataclass
class _Kept:
    size: int
    replicas: int
    is_origin: bool
    holders: set[int] = field(default_factory=set)
    """Other nodes that have a copy."""
    asked: set[int] = field(default_factory=set)
    refused: set[int] = field(default_factory=set)
    owner: int | None = None


class Replicas:
    """One node's."""

    def __init__(self) -> None:
        self._kept: dict[Entry, _Kept] = {}

    def __contains__(self, entry: Entry) -> bool:
        return entry in self._kept

    def __iter__(self) -> Iterator[Entry]:
        return iter(list(self._kept))

    def held(self, entry: Entry, size: int, replicas: int) -> None:
        """A copy has come here; its origin is elsewhere."""
        self._kept[entry] = _Kept(size, replicas, is_origin=False)

    def begun(self, entry: Entry, size: int, replicas: int, holders: Collection[int]) -> list[AskCopy]:
        """An object of this node; these have copies already, and are asked to know it."""
        one = self._kept[entry] = _Kept(size, replicas, is_origin=True)
        return self._ask(entry, one, holders)

    def took_over(self, entry: Entry) -> None:
        """This node is the object's origin from now on. `looked` follows, when others have told of their copies."""
        if (one := self._kept.get(entry)) is not None:
            one.is_origin = True

    def told(self, entry: Entry, node: int, has_copy: bool, is_owner: bool, nodes: Collection[int]) -> list[AskCopy]:
        """A node has a copy, or could not make one; or it says that the owner is there."""
        if (one := self._kept.get(entry)) is None:
            return []
        if is_owner:
            one.owner = node
        if has_copy:
            one.holders.add(node)
        elif node in one.asked:
            one.refused.add(node)
        one.asked.discard(node)
        return self._go_on(entry, one, nodes)

    def node_gone(self, node: int, nodes: Collection[int]) -> list[AskCopy]:
        for one in self._kept.values():
            one.holders.discard(node)
            one.asked.discard(node)
            if one.owner == node:
                one.owner = None
        return self.looked(nodes)

    def looked(self, nodes: Collection[int]) -> list[AskCopy]:
        """Something has changed, or time has passed: what is missing is asked for. `nodes`: the others that live."""
        out: list[AskCopy] = []
        for entry, one in self._kept.items():
            one.refused.clear()
            out += self._go_on(entry, one, nodes)
        return out

    def is_short(self) -> bool:
        """Whether an object of this node has fewer copies than it shall."""
        return any(one.is_origin and len(one.holders) < one.replicas - 1 for one in self._kept.values())

    def freed(self, entry: Entry) -> None:
        self._kept.pop(entry, None)

    def _go_on(self, entry: Entry, one: _Kept, nodes: Collection[int]) -> list[AskCopy]:
        if not one.is_origin:
            return []
        free = [node for node in nodes if node not in one.holders | one.asked | one.refused]
        chosen = [one.owner] if one.owner is not None and one.owner in free else []
        missing = one.replicas - 1 - len(one.holders) - len(one.asked) - len(chosen)
        others = sorted((node for node in free if node != one.owner), key=lambda node: ((node + entry[0]) % 7, node))
        return self._ask(entry, one, chosen + others[: max(0, missing)])

    def _ask(self, entry: Entry, one: _Kept, nodes: Collection[int]) -> list[AskCopy]:
        one.asked.update(nodes)
        return [AskCopy(node, entry, one.size, one.replicas) for node in nodes]
