"""Waiting until other nodes have handled all that they were sent before.

Runs in the daemon's thread. Links keep the order of what they carry, so the answer to a ping says that all before it
has been handled there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from weft.engine.cluster.membership import Membership
from weft.engine.cluster.transport import NodeLink
from weft.engine.wire import link_messages as lm


class Pings:
    """Those of one daemon that were not answered yet."""

    def __init__(self, members: Membership) -> None:
        self._members = members
        self._last = 0
        self._asked: dict[int, tuple[set[int], Callable[[], None]]] = {}
        """By number: the nodes that have not answered, and what follows."""

    def ask(
        self,
        nodes: Iterable[int],
        then: Callable[[], None],
        question: Callable[[int], lm.LinkMessage] = lm.Ping,
    ) -> int:
        """`then`, once all of them have answered or are gone. The number of it."""
        self._last += 1
        number = self._last
        asked = set(nodes)
        self._asked[number] = (asked, then)
        for node in list(asked):
            if not self._members.send(node, question(number)):
                self._has_answered(number, node)
        return number

    def answered(self, link: NodeLink, message: lm.Pong) -> None:
        if message.number in self._asked:
            self._has_answered(message.number, link.peer)

    def node_gone(self, node: int) -> None:
        for number in [number for number, (nodes, _) in self._asked.items() if node in nodes]:
            if number in self._asked:
                self._has_answered(number, node)

    def give_up(self, number: int) -> None:
        """Who has not answered is not waited for any longer."""
        if number in self._asked:
            self._asked.pop(number)[1]()

    def _has_answered(self, number: int, node: int) -> None:
        nodes, then = self._asked[number]
        nodes.discard(node)
        if not nodes:
            del self._asked[number]
            then()
