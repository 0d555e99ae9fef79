"""A node's part in keeping copies of what was put with `replicas=` (`state.replicas` decides).

Runs in the daemon's thread. A copy is an import whose bytes are fetched at once, and kept as long as the object is.
"""

from __future__ import annotations

from collections.abc import Iterable

from weft.engine.cluster.membership import Membership
from weft.engine.cluster.objects import DAEMON, Entry, Objects
from weft.engine.cluster.transport import NodeLink
from weft.engine.state.node import NodeState
from weft.engine.state.replicas import AskCopy, Replicas
from weft.engine.wire import link_messages as lm
from weft.net.loop import Loop

LOOK_S = 1.0
"""After this node has become an object's origin, others have told of their copies; and while some are missing."""


class ReplicasShell:
    """One daemon's."""

    def __init__(self, loop: Loop, node: NodeState, members: Membership, objects: Objects) -> None:
        self._loop = loop
        self._node = node
        self._members = members
        self._objects = objects
        self._state = Replicas()
        self._is_looking = False
        objects.on_adopted = self._took_over
        objects.on_gone = self._state.freed

    def begin(self, entry: Entry, size: int, replicas: int, node_ids: Iterable[str]) -> None:
        """A process of this node has put it, and these nodes have fetched it."""
        if entry in self._objects.imports:
            return  # what comes from a file is read again
        numbers = {member.node_id: member.number for member in self._members.alive()}
        holders = [numbers[node_id] for node_id in node_ids if numbers.get(node_id) in self._members.links]
        self._carry(self._state.begun(entry, size, replicas, holders))

    def keep_came(self, link: NodeLink, message: lm.Keep) -> None:
        try:
            entry = self._objects.to_local(message.name, DAEMON)
        except RuntimeError:  # the object table is full: another node may have room
            link.send(lm.Kept(*message.name[1:3], False, False))
            return

        def fetched(ok: bool) -> None:
            if ok:
                self._state.held(entry, message.name[3], message.replicas)
            known = self._objects.imports.get(entry)
            link.send(lm.Kept(*message.name[1:3], ok, known is not None and known.is_owned))

        if entry in self._objects.imports:
            self._objects.fetch(entry, fetched)

    def kept_came(self, link: NodeLink, message: lm.Kept) -> None:
        entry = (message.entry, message.generation)
        if message.is_owner:
            self._objects.inherited(entry)
        self._carry(self._state.told(entry, link.peer, message.has_copy, message.is_owner, self._others()))

    def node_gone(self, node: int) -> None:
        self._carry(self._state.node_gone(node, self._others()))

    def node_came(self) -> None:
        self._carry(self._state.looked(self._others()))

    def _took_over(self, entry: Entry) -> None:
        if entry in self._state:
            self._state.took_over(entry)
            self._look_later()

    def _others(self) -> list[int]:
        """The nodes that may be asked for a copy."""
        cluster, links = self._node.cluster, self._members.links
        views = [] if cluster is None else cluster.nodes.values()
        return [view.number for view in views if view.number in links and not view.is_draining]

    def _carry(self, asked: list[AskCopy]) -> None:
        for one in asked:
            name = (self._objects.number, *one.entry, one.size)
            self._members.send(one.node, lm.Keep(name, one.replicas))
        self._look_later()

    def _look_later(self) -> None:
        if not self._is_looking and self._state.is_short():
            self._is_looking = True
            self._loop.call_later(LOOK_S, self._look)

    def _look(self) -> None:
        self._is_looking = False
        self._carry(self._state.looked(self._others()))
