"""Who has how much of an object that many nodes want, and from whom the next one takes it.

Pure; runs where the object was made. The first few that ask are served by the origin itself. Those that come while it
is busy are sent to a node that has the object, or is receiving it and passes on what it has: so a hot object spreads as
a tree. When several nodes have all of it, a pull is striped over them.

COP-1  A node that is still receiving is a source only for nodes that asked after it: nobody waits in a circle.

>>> copies = Copies(origin=0)
>>> [copies.asked(node) for node in (1, 2, 3)]
[[0], [0], [1]]
>>> copies.ended(1, ok=True)
>>> copies.asked(4)
[1, 0]
"""

from __future__ import annotations

import itertools
from collections.abc import Collection

BRANCHES = 2
"""Nodes that one node serves at a time, as long as there are others to send them to."""
STRIPES = 4


class _Copy:
    """One node's copy, whole or on its way."""

    __slots__ = ("is_whole", "order", "serves", "sources")

    def __init__(self, order: int, is_whole: bool) -> None:
        self.order = order
        self.is_whole = is_whole
        self.serves = 0
        """Pulls under way that were sent to it."""
        self.sources: list[int] = []
        """Where its own pull comes from."""


class Copies:
    """All copies of one object."""

    def __init__(self, origin: int) -> None:
        self.origin = origin
        self._orders = itertools.count(1)
        self._copies: dict[int, _Copy] = {origin: _Copy(0, True)}

    def asked(self, node: int, without: Collection[int] = ()) -> list[int]:
        """Where the node is to pull it from, each a part where there are several; not from those `without`."""
        copy = self._copies.get(node)
        if copy is None or copy.is_whole:  # it had one, and has it no more; whom it serves it serves to the end
            copy = self._copies[node] = _Copy(next(self._orders), False)
        self._release(copy)
        copy.sources = self._choose(node, copy, without)
        for source in copy.sources:
            self._copies[source].serves += 1
        return copy.sources

    def ended(self, node: int, ok: bool) -> None:
        """Its pull is over: it has all of it, or has given up."""
        if node == self.origin or (copy := self._copies.get(node)) is None:
            return
        self._release(copy)
        copy.is_whole = ok
        if not ok:
            del self._copies[node]

    def node_gone(self, node: int) -> None:
        self.ended(node, ok=False)

    def holders(self) -> list[int]:
        """The nodes that have all of it."""
        return [node for node, copy in self._copies.items() if copy.is_whole]

    def _choose(self, node: int, copy: _Copy, without: Collection[int]) -> list[int]:
        others = {
            number: other
            for number, other in self._copies.items()
            if number != node and (other.is_whole or other.order < copy.order) and number not in without
        }
        if not others:  # whoever was told to be left out may be all there is
            return [self.origin]
        whole = [number for number, other in others.items() if other.is_whole and other.serves < BRANCHES]
        if whole:
            whole.sort(key=lambda number: (others[number].serves, number == self.origin, others[number].order))
            return whole[:STRIPES]
        return [min(others, key=lambda number: (others[number].serves // BRANCHES, others[number].order))]

    def _release(self, copy: _Copy) -> None:
        for source in copy.sources:
            if (other := self._copies.get(source)) is not None:
                other.serves -= 1
        copy.sources = []
