"""Waiting for other nodes: until all that they have sent is here, and until an heir there has what it has claimed.

Runs in the daemon's thread.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from weft.engine.cluster.membership import Membership
from weft.engine.cluster.names import Names
from weft.engine.cluster.pings import Pings
from weft.engine.cluster.transport import NodeLink
from weft.engine.node.inheritance import InheritanceShell
from weft.engine.state.events import Process
from weft.engine.wire import link_messages as lm
from weft.net.loop import Loop


class Fences:
    """One daemon's."""

    def __init__(self, loop: Loop, here: InheritanceShell, members: Membership, names: Names, pings: Pings) -> None:
        self._loop = loop
        self._here = here
        self._members = members
        self._names = names
        self._pings = pings

    def fence(self, part: int) -> None:
        """Once all that other nodes have sent until now is here."""
        if nodes := list(self._members.links):
            self._pings.ask(nodes, lambda: self._here.fenced(part))
        else:
            self._loop.call_later(0, lambda: self._here.fenced(part))

    def when_ready(self, owners: set[Process], then: Callable[[], None]) -> None:
        """Once those of other nodes have adopted what they have claimed: their nodes know."""
        far = [name for name in map(self._names.to_global, owners) if name[0] != self._names.number]
        waiting = len(far)

        def ready() -> None:
            nonlocal waiting
            waiting -= 1
            if waiting <= 0:
                then()

        if not far:
            then()
        for node, slot, generation in far:
            self._pings.ask([node], ready, functools.partial(_ask_ready, slot, generation))

    def ready_asked(self, link: NodeLink, message: lm.AskReady) -> None:
        process = (message.slot, message.generation)
        self._here.when_ready(process, lambda: link.send(lm.Pong(message.number)))


def _ask_ready(slot: int, generation: int, number: int) -> lm.AskReady:
    return lm.AskReady(number, slot, generation)
