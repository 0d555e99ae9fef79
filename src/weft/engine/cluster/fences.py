"""Waiting for other nodes: until all that they have sent is here, and until an heir there has what it has claimed.

Runs in the daemon's thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from weft.engine.cluster.transport import NodeLink
from weft.engine.state.events import Process
from weft.engine.wire import link_messages as lm

if TYPE_CHECKING:
    from weft.engine.cluster.shell import ClusterShell
    from weft.engine.node.daemon import NodeDaemon


class Fences:
    """One daemon's."""

    def __init__(self, daemon: NodeDaemon, shell: ClusterShell) -> None:
        self._loop = daemon.loop
        self._here = daemon.inheritance
        self._shell = shell
        self._fences: dict[int, tuple[set[int], int]] = {}
        self._asked: dict[int, tuple[int, Callable[[], None]]] = {}
        """Questions whether an heir on another node is ready: that node, and what follows."""

    def node_gone(self, node: int) -> None:
        for number, (nodes, _) in list(self._fences.items()):
            if node in nodes:
                self._answered(number, node)
        for number in [number for number, (asked, _) in self._asked.items() if asked == node]:
            self._asked.pop(number)[1]()

    def fence(self, part: int) -> None:
        """Once all that other nodes have sent until now is here."""
        nodes = set(self._shell.members.links)
        if not nodes:
            self._loop.call_later(0, lambda: self._here.fenced(part))
            return
        number = self._shell.next_ping()
        self._fences[number] = (nodes, part)
        self._shell.members.broadcast(lm.Ping(number))

    def answered(self, link: NodeLink, number: int) -> bool:
        """Whether that ping was one of these."""
        if number in self._asked:
            self._asked.pop(number)[1]()
            return True
        return number in self._fences and self._answered(number, link.peer)

    def _answered(self, number: int, node: int) -> bool:
        nodes, part = self._fences[number]
        nodes.discard(node)
        if not nodes:
            del self._fences[number]
            self._here.fenced(part)
        return True

    def when_ready(self, owners: set[Process], then: Callable[[], None]) -> None:
        """Once those of other nodes have adopted what they have claimed: their nodes know."""
        far = [name for name in map(self._shell.names.to_global, owners) if name[0] != self._shell.names.number]
        waiting = len(far)

        def ready() -> None:
            nonlocal waiting
            waiting -= 1
            if waiting <= 0:
                then()

        if not far:
            then()
        for node, slot, generation in far:
            number = self._shell.next_ping()
            self._asked[number] = (node, ready)
            if not self._shell.members.send(node, lm.AskReady(number, slot, generation)):
                self._asked.pop(number)[1]()

    def ready_asked(self, link: NodeLink, message: lm.AskReady) -> None:
        process = (message.slot, message.generation)
        self._here.when_ready(process, lambda: link.send(lm.Pong(message.number)))
