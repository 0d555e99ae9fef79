"""Objects of a node that is to leave: the owner's node takes them over, and all others are told where they are.

Runs in the daemons' threads. The leaving node asks every node that knows an object; the one that has the object's
owner pulls the bytes (if they are not there yet), makes the object its own and says so; then every node learns the new
origin. An object whose owner is a process of the leaving node cannot be taken over: it is gone with its owner.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.engine.cluster.objects import Entry, Objects
from weft.engine.cluster.transport import NodeLink
from weft.engine.wire import link_messages as lm


class Handover:
    """One node's part: it leaves, or takes over."""

    def __init__(
        self,
        objects: Objects,
        send: Callable[[int, lm.LinkMessage], bool],
        broadcast: Callable[[lm.LinkMessage], None],
    ) -> None:
        self._objects = objects
        self._send = send
        self._broadcast = broadcast
        self._asked: dict[Entry, set[int]] = {}
        """Of the leaving node: who has not answered yet."""
        self._settled: set[Entry] = set()

    def ask(self) -> None:
        """Have everything taken over that others know; may be called again, for what is new."""
        for entry, nodes in list(self._objects.exports.items()):
            if nodes and entry not in self._asked and entry not in self._settled:
                self._asked[entry] = {node for node in nodes if self._send(node, lm.TakeOver(*entry))}

    @property
    def waits_for(self) -> int:
        """How many objects are on their way, or have not been asked about."""
        exports = {entry for entry, nodes in self._objects.exports.items() if nodes}
        return len(exports - self._settled)

    def taken(self, link: NodeLink, message: lm.TakenOver) -> None:
        """An answer to the leaving node. Everybody is told before it leaves: the link keeps the order."""
        entry = (message.entry, message.generation)
        if message.origin is not None:
            self._broadcast(lm.Moved(*entry, message.origin))
            self._settle(entry)
        elif (asked := self._asked.get(entry)) is not None:
            asked.discard(link.peer)
            if not asked:
                self._settle(entry)  # nobody can have it

    def node_gone(self, node: int) -> None:
        for entry, asked in list(self._asked.items()):
            asked.discard(node)
            if not asked:
                self._settle(entry)

    def _settle(self, entry: Entry) -> None:
        self._asked.pop(entry, None)
        self._settled.add(entry)

    # ---- of the others ----

    def asked(self, link: NodeLink, message: lm.TakeOver) -> None:
        node, theirs = link.peer, (message.entry, message.generation)
        entry = self._objects.import_of((node, *theirs))
        if entry is None or not self._objects.imports[entry].is_owned:
            self._send(node, lm.TakenOver(*theirs, None))
            return

        def came(ok: bool) -> None:
            if ok and entry in self._objects.imports:
                self._send(node, lm.TakenOver(*theirs, self._objects.adopt(entry)))
            else:
                self._send(node, lm.TakenOver(*theirs, None))

        self._objects.fetch(entry, came)

    def moved(self, link: NodeLink, message: lm.Moved) -> None:
        self._objects.rewire((link.peer, message.entry, message.generation), message.origin)
