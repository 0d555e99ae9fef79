"""Has all nodes inherit what the dead have left: as the node of a dead process, or as the head when a node is dead.

Runs in the daemon's thread. `state.inheritance.Settlements` decides; `cluster.inheritance` does each node's part.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from weft.engine.cluster.parts import Parts
from weft.engine.cluster.transport import NodeLink
from weft.engine.state import inheritance as inh
from weft.engine.state.inheritance import Estate, Settlements
from weft.engine.wire import link_messages as lm

DOUBT_S = 1.0
DOUBTS = 12
"""So often the head looks whether a node that another takes for dead is so, before it lets one of the two go. Longer
than it takes to notice a node's silence."""


class Share(Protocol):
    """This node's part in what an executor orders: `cluster.inheritance` is it."""

    def is_settled(self, estate: Estate) -> bool: ...
    def lost_asked(self, node: int) -> None: ...
    def inherit(self, estate: Estate) -> None: ...
    def settle(self, estate: Estate) -> None: ...


class Executor:
    """One daemon's."""

    def __init__(self, parts: Parts, part: Share) -> None:
        self._parts = parts
        self._part = part
        self.settlements = Settlements()
        self._found: set[tuple[int, int]] = set()
        """Nodes that had lost each other and are linked again, as the first one says; of a head."""

    def _nodes(self) -> list[int]:
        return [self._parts.names.number, *self._parts.members.links]

    def process_died(self, estate: Estate, has_left: bool) -> None:
        """A process of this node that others know."""
        self._carry(self.settlements.process_died(estate, self._nodes()) if has_left else [inh.Settle(estate)])

    def node_gone(self, node: int) -> None:
        self._found = {pair for pair in self._found if node not in pair}
        self._carry(self.settlements.node_gone(node, self._nodes()))

    # ---- of nodes, as the head ----

    def lost_came(self, link: NodeLink, message: lm.NodeLost) -> None:
        self._found.discard((link.peer, message.node))
        self.node_lost(link.peer, message.node, message.has_rows)

    def found_again(self, link: NodeLink, message: lm.FoundAgain) -> None:
        """They had lost each other for so long that what they had of each other is given up; but both live on."""
        self._found.add((link.peer, message.node))

    def node_lost(self, by: int, node: int, has_rows: bool, doubts: int = DOUBTS) -> None:
        heading, links, number = self._parts.heading, self._parts.members.links, self._parts.names.number
        if not heading.is_serving:
            if heading.is_head:
                heading.hold(lambda: self.node_lost(by, node, has_rows))
            return
        estate = (node, 0, 0)
        # Who took over may have lost a node before, or been lost by one, and is linked to it again.
        if node in links or node == number:  # this node has not noticed yet; or only a link is lost
            if (by, node) in self._found or number in (by, node):
                self.send(by, lm.EstateSettled(estate))
                return
            if doubts:
                self._parts.loop.call_later(DOUBT_S, lambda: self.node_lost(by, node, has_rows, doubts - 1))
                return
            if by in links:
                self._part_two(by, node)
            if node in links:  # it is the other one that goes
                return
        if self._part.is_settled(estate):
            self.send(by, lm.EstateSettled(estate))
        else:
            self._carry(self.settlements.node_lost(by, estate, has_rows, self._nodes()))

    def _part_two(self, one: int, other: int) -> None:
        """Two nodes that live have lost each other: one goes, so that what the other had of it passes on.

        The one without drivers, which would end with it; else the younger one."""
        names, jobs = self._parts.names, self._parts.state.jobs.values()
        has_drivers = {names.to_global(job.driver)[0] for job in jobs if job.is_driver_alive}
        goes = max(one, other, key=lambda node: (node not in has_drivers, node))
        stays = one + other - goes
        self._parts.members.let_go(goes, f"it has lost node {stays}, and one of the two had to go")

    # ---- orders and answers ----

    def inherited_came(self, link: NodeLink, message: lm.Inherited) -> None:
        self._carry(self.settlements.inherited(link.peer, message.estate))

    def _carry(self, orders: list[inh.Order]) -> None:
        for one in orders:
            if isinstance(one, inh.AskLost):
                for node in one.nodes:
                    self.send(node, lm.AskLost(one.estate[0]))
            elif isinstance(one, inh.Inherit):
                for node in one.nodes:
                    self.send(node, lm.Inherit(one.estate))
            else:
                for node in self._nodes():
                    self.send(node, lm.EstateSettled(one.estate))

    def send(self, node: int, message: lm.AskLost | lm.Inherit | lm.Inherited | lm.EstateSettled) -> None:
        """To this node, too."""
        if node != self._parts.names.number:
            self._parts.members.send(node, message)
        elif isinstance(message, lm.AskLost):
            self._part.lost_asked(message.node)
        elif isinstance(message, lm.Inherit):
            self._part.inherit(message.estate)
        elif isinstance(message, lm.Inherited):
            self._carry(self.settlements.inherited(node, message.estate))
        else:
            self._part.settle(message.estate)


class LostNodes:
    """Nodes that are dead to this one: the head is told of each, and again when there is another head."""

    def __init__(self, parts: Parts, executor: Executor, has_rows: Callable[[int], bool]) -> None:
        """`has_rows`: whether this node has rows of that one's objects."""
        self._parts = parts
        self._executor = executor
        self._has_rows = has_rows
        self.unsettled: dict[int, None] = {}
        """Those whose estates are not settled."""
        self._told: set[int] = set()
        """Those of which the head was told since they were linked."""

    def linked(self, node: int) -> None:
        self._told.discard(node)
        if node in self.unsettled:
            self._tell_found(node)

    def gone(self, node: int) -> None:
        self.unsettled[node] = None
        if node not in self._told:  # else the death of one of its processes was noticed first
            self.tell(node)

    def asked(self, node: int) -> None:
        """By the head, to which that node is dead. Who has not noticed it yet tells when it does; who has may have told
        nobody, because it was about to join."""
        if node not in self._parts.members.links:
            self.tell(node)

    def tell_again(self) -> None:
        """There is another head. What was found again while there was none, nobody was told of."""
        for node in list(self.unsettled):
            self.tell(node)
            if node in self._parts.members.links:
                self._tell_found(node)

    def tell(self, node: int) -> None:
        self._told.add(node)
        has_rows = self._has_rows(node)
        if self._parts.members.is_head:
            self._executor.node_lost(self._parts.names.number, node, has_rows)
        elif (head := self._parts.members.head) is not None:
            self._parts.members.send(head, lm.NodeLost(node, has_rows))

    def _tell_found(self, node: int) -> None:
        if not self._parts.members.is_head and (head := self._parts.members.head) is not None:
            self._parts.members.send(head, lm.FoundAgain(node))
