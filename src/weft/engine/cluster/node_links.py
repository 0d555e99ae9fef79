"""The links of one node: those in use, by the node at the other end, and all, by the numbers that `state.membership`
knows them by. Tells that machine what becomes of them.

Runs in the daemon's thread.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Protocol

from weft.engine.cluster.transport import NodeLink, Transport
from weft.engine.state.membership import MembershipState
from weft.engine.state.membership_instructions import Instruction
from weft.engine.wire import link_messages as lm
from weft.engine.wire.link import Records
from weft.engine.wire.link_messages import Fault
from weft.net.failure_log import FailureLog
from weft.net.loop import Loop


class Chunks(Protocol):
    """Where the bytes of objects go."""

    def chunk_target(self, transfer: int, offset: int, size: int) -> memoryview | None: ...
    def chunk_came(self, transfer: int, offset: int) -> None: ...
    def resumed(self, node: int) -> None: ...


class NodeLinks:
    """One node's."""

    def __init__(
        self,
        loop: Loop,
        transport: Transport,
        state: MembershipState,
        carry_out: Callable[[list[Instruction]], None],
        records_came: Callable[[NodeLink, memoryview], None],
        chunks: Chunks,
    ) -> None:
        self._loop = loop
        self._transport = transport
        self._state = state
        self._carry_out = carry_out
        self._records_came = records_came
        self._chunks = chunks
        self.in_use: dict[int, NodeLink] = {}
        self._open: dict[int, NodeLink] = {}
        self._numbers: dict[NodeLink, int] = {}
        self._connecting: dict[NodeLink, int] = {}
        """Links that are on their way, and the node at the other end."""
        self._last_link = itertools.count(1)
        self._is_closed = False
        self._failures = FailureLog(loop)

    def find(self, number: int) -> NodeLink | None:
        return self._open.get(number)

    def connect(self, node: int, address: str) -> tuple[str, Fault]:
        """Why it cannot be; empty when the link is on its way."""
        try:
            link = self._transport.connect(address)
        except OSError as error:
            fault = Fault.REFUSED if isinstance(error, ConnectionRefusedError) else Fault.OTHER
            return error.strerror or str(error), fault
        link.peer = node
        self._connecting[link] = node
        return "", Fault.OTHER

    def use(self, number: int, node: int, records: Records) -> None:
        link = self.in_use[node] = self._open[number]
        link.peer = node
        link.records = records

    def drop_chunks(self, transfer: int) -> None:
        """Nothing of that transfer may be written to memory any more."""
        for link in self.in_use.values():
            link.drop_chunk(transfer)

    def close(self, reason: str) -> None:
        self._is_closed = True
        for link in [*self._open.values(), *self._connecting]:
            link.close(reason)

    # ---- what becomes of them ----

    def accepted(self, link: NodeLink) -> None:
        self._carry_out(self._state.link_accepted(self._number(link), self._loop.now()))

    def ready(self, link: NodeLink) -> None:
        if link not in self._connecting:
            return  # it was accepted; its first message says who is at the other end
        node = self._connecting.pop(link)
        self._carry_out(self._state.link_ready(self._number(link), node, self._loop.now()))

    def received(self, link: NodeLink, message: lm.LinkMessage) -> None:
        self._carry_out(self._state.received(self._numbers[link], message, self._loop.now()))

    def records_came(self, link: NodeLink, batch: memoryview) -> None:
        if self.in_use.get(link.peer) is link:
            self._records_came(link, batch)
        else:
            link.close("records came before it was known who sends them")

    def chunk_target(self, link: NodeLink, transfer: int, offset: int, size: int) -> memoryview | None:
        return self._chunks.chunk_target(transfer, offset, size) if self.in_use.get(link.peer) is link else None

    def chunk_came(self, link: NodeLink, transfer: int, offset: int, size: int) -> None:
        self._chunks.chunk_came(transfer, offset)

    def resumed(self, link: NodeLink) -> None:
        if self.in_use.get(link.peer) is link:
            self._chunks.resumed(link.peer)

    def closed(self, link: NodeLink, reason: str) -> None:
        node = self._connecting.pop(link, None)
        number = self._numbers.pop(link, 0)
        self._open.pop(number, None)
        if self.in_use.get(link.peer) is link:
            del self.in_use[link.peer]
        elif reason and not (self._is_closed or link.fault is Fault.CLOSED or self._is_knock(node)):
            self._failures.say(reason)
        if self._is_closed:
            return
        if node is not None:
            self._carry_out(self._state.connect_failed(node, reason, self._loop.now(), link.fault))
        else:
            self._carry_out(self._state.link_closed(number, reason, self._loop.now(), link.fault))

    def _is_knock(self, node: int | None) -> bool:
        """Whether that link was to find out if a head that was lost still listens."""
        return node is not None and node == self._state.lost.number

    def _number(self, link: NodeLink) -> int:
        number = self._numbers[link] = next(self._last_link)
        self._open[number] = link
        return number
