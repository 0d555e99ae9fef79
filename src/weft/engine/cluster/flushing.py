"""Brings what workers of all nodes have written to a driver before it is answered.

Runs in the daemon's thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from weft.engine.cluster.transport import NodeLink
from weft.engine.state.events import Process
from weft.engine.wire import link_messages as lm
from weft.engine.wire.messages import Message, Reply
from weft.net.loop import Loop, Timer

if TYPE_CHECKING:
    from weft.engine.cluster.shell import ClusterShell

FLUSH_S = 1.0
"""A node that takes longer to pass its workers' output on is not waited for."""


class _Flush:
    """A driver that waits for the output of all nodes."""

    def __init__(self, process: Process, request: int, nodes: set[int], timer: Timer) -> None:
        self.process = process
        self.request = request
        self.nodes = nodes
        self.timer = timer


class Flushing:
    """The drivers that wait."""

    def __init__(
        self, loop: Loop, flush: Callable[[], None], send: Callable[[Process, Message], None], shell: ClusterShell
    ) -> None:
        self._loop = loop
        self._flush = flush
        self._send = send
        self._shell = shell
        self._flushes: dict[int, _Flush] = {}

    def begin(self, process: Process, request: int) -> bool:
        """False when there are no other nodes, and so nothing to wait for."""
        nodes = set(self._shell.members.links)
        if not nodes:
            return False
        self._flush()
        number = self._shell.next_ping()
        timer = self._loop.call_later(FLUSH_S, lambda: self._end(number))
        self._flushes[number] = _Flush(process, request, nodes, timer)
        self._shell.members.broadcast(lm.Ping(number))
        return True

    def answered(self, link: NodeLink, number: int) -> bool:
        """Whether that was the number of a flush."""
        if (flush := self._flushes.get(number)) is None:
            return False
        flush.nodes.discard(link.peer)
        if not flush.nodes:
            self._end(number)
        return True

    def _end(self, number: int) -> None:
        if (flush := self._flushes.pop(number, None)) is not None:
            flush.timer.cancel()
            self._send(flush.process, Reply(flush.request))
