"""Nodes that are dead to this one: the head is told of each, and again when there is another head.

Runs in the daemon's thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from weft.engine.cluster.executor import Executor
from weft.engine.wire import link_messages as lm

if TYPE_CHECKING:
    from weft.engine.cluster.shell import ClusterShell


class LostNodes:
    """One daemon's."""

    def __init__(self, shell: ClusterShell, executor: Executor, has_rows: Callable[[int], bool]) -> None:
        """`has_rows`: whether this node has rows of that one's objects."""
        self._shell = shell
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
        if node not in self._shell.members.links:
            self.tell(node)

    def tell_again(self) -> None:
        """There is another head. What was found again while there was none, nobody was told of."""
        for node in list(self.unsettled):
            self.tell(node)
            if node in self._shell.members.links:
                self._tell_found(node)

    def tell(self, node: int) -> None:
        self._told.add(node)
        has_rows = self._has_rows(node)
        if self._shell.is_head:
            self._executor.node_lost(self._shell.names.number, node, has_rows)
        elif (head := self._shell.members.head) is not None:
            self._shell.members.send(head, lm.NodeLost(node, has_rows))

    def _tell_found(self, node: int) -> None:
        if not self._shell.is_head and (head := self._shell.members.head) is not None:
            self._shell.members.send(head, lm.FoundAgain(node))
