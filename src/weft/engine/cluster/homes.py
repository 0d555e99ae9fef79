"""Where the bytes of an object are from now on, when the node that had them is dead: the node of its owner decides.

Runs in the daemon's thread. If that node has a copy, the copy is the object. Else it asks all nodes for one, and makes
that of the lowest number the object. Where there is none the object is lost, and its owner makes it again.
An owner that is dead has an heir, so one node decides, whoever dies: HOM-1. Readers wait until it has: HOM-2.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from weft.engine.cluster.membership import Membership
from weft.engine.cluster.objects import Entry, Objects, Origin
from weft.engine.node.nodes import Nodes
from weft.engine.node.operations import Operations, Outcome, gather
from weft.engine.wire import link_messages as lm
from weft.engine.wire.link_messages import GlobalObject
from weft.net.loop import Loop

ANSWER_S = 2.0
"""A node that takes longer to answer has no copy."""


class Homes:
    """One daemon's."""

    def __init__(self, loop: Loop, operations: Operations, nodes: Nodes, members: Membership, objects: Objects) -> None:
        self._loop = loop
        self._nodes = nodes
        self._members = members
        self._objects = objects
        self._undecided: dict[Entry, None] = {}
        operations.offer("copies_here", self._copies_here)

    def seek(self, entries: Iterable[Entry]) -> None:
        """Imports whose owner is a process of this node, and whose origin is dead."""
        for entry in entries:
            if not self._undecided:
                self._loop.call_later(0, self._decide)
            self._objects.imports[entry].is_sought = True
            self._undecided[entry] = None

    def _decide(self) -> None:
        undecided, self._undecided = self._undecided, {}
        links = self._members.links
        sought: dict[Origin, Entry] = {}
        for entry in undecided:
            known = self._objects.imports.get(entry)
            if known is not None and known.origin[0] in links:  # that node is back
                self._objects.found(entry)
            elif known is not None:
                sought[known.origin[:3]] = entry
        if not self._take(sought):
            return
        asked = {node: self._nodes.ask_node(node, "copies_here", {"names": [*sought]}, ANSWER_S) for node in links}
        gather(asked).then(lambda outcome: self._came(sought, outcome.value))

    def _take(self, sought: dict[Origin, Entry]) -> bool:
        """What is here; whether something else is left in `sought`."""
        here = []
        for origin, entry in list(sought.items()):
            known = self._objects.imports.get(entry)
            if known is None or known.origin[:3] != origin:
                del sought[origin]
            elif known.has_bytes:
                del sought[origin]
                here.append((origin, self._objects.adopt(entry)))
        if here:
            self._members.broadcast(lm.Rehomed(here))
        return bool(sought)

    def _came(self, sought: dict[Origin, Entry], answers: dict[int, Outcome]) -> None:
        homes: dict[Origin, GlobalObject] = {}
        for node in sorted(answers.keys() & self._members.links.keys()):
            for origin, copy in answers[node].value or ():
                homes.setdefault(tuple(origin), tuple(copy))
        self._take(sought)
        found = [(origin, homes[origin]) for origin in sought if origin in homes]
        if found:
            self._members.broadcast(lm.Rehomed(found))
            self.rehome(found)
        for entry in [entry for origin, entry in sought.items() if origin in homes]:
            self._objects.found(entry)
        self._objects.lost(entry for origin, entry in sought.items() if origin not in homes)

    def _copies_here(self, params: dict[str, Any]) -> list[tuple[Origin, GlobalObject]]:
        found = []
        for name in params["names"]:
            entry = self._objects.import_of(tuple(name))
            if entry is not None and (known := self._objects.imports[entry]).has_bytes:
                found.append((known.origin[:3], (self._objects.number, *entry, known.origin[3])))
        return found

    def home_of(self, entry: Entry) -> str:
        """The id of the node that its bytes come from; empty for this one, and for one that is gone."""
        known = self._objects.imports.get(entry)
        member = None if known is None else self._members.members.get(known.origin[0])
        return "" if member is None else member.node_id

    def rehome(self, homes: Iterable[tuple[Origin, GlobalObject]]) -> None:
        """Objects of dead nodes, by their old names: what they are called now."""
        for old, new in homes:
            if new[0] != self._objects.number:
                self._objects.rewire(old, new)
            elif new[1:3] in self._objects.imports:
                self._objects.adopt(new[1:3])
