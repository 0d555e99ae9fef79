"""Brings what workers of all nodes have written to a driver before it is answered.

Runs in the daemon's thread.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.engine.cluster.membership import Membership
from weft.engine.cluster.pings import Pings
from weft.engine.state.events import Process
from weft.engine.wire.messages import Message, Reply
from weft.net.loop import Loop

FLUSH_S = 1.0
"""A node that takes longer to pass its workers' output on is not waited for."""


class Flushing:
    """On behalf of the drivers that wait."""

    def __init__(
        self,
        loop: Loop,
        flush: Callable[[], None],
        send: Callable[[Process, Message], None],
        members: Membership,
        pings: Pings,
    ) -> None:
        self._loop = loop
        self._flush = flush
        self._send = send
        self._members = members
        self._pings = pings

    def begin(self, process: Process, request: int) -> bool:
        """False when there are no other nodes, and so nothing to wait for."""
        nodes = list(self._members.links)
        if not nodes:
            return False
        self._flush()
        number = self._pings.ask(nodes, lambda: self._send(process, Reply(request)))
        self._loop.call_later(FLUSH_S, lambda: self._pings.give_up(number))
        return True
