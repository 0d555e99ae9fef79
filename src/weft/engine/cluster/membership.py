"""Which nodes there are, and a link to each: carries out what `state.membership` decides.

Runs in the daemon's thread.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Protocol

from weft.engine.cluster.complaints import Complaints
from weft.engine.cluster.transport import NodeLink, Transport
from weft.engine.node.loop import Loop
from weft.engine.state import membership as do
from weft.engine.state.membership import BEAT_S, CLOSED, HEAD, MembershipState
from weft.engine.wire import link_messages as lm
from weft.engine.wire.link import Records
from weft.engine.wire.link_messages import Member

__all__ = ["HEAD", "Membership"]


class Chunks(Protocol):
    """Where the bytes of objects go."""

    def chunk_target(self, transfer: int, offset: int, size: int) -> memoryview | None: ...
    def chunk_came(self, transfer: int, offset: int) -> None: ...


class Membership:
    """This node's links and its copy of the table."""

    def __init__(
        self,
        loop: Loop,
        transport: Transport,
        state: MembershipState,
        on_joined: Callable[[], None],
        on_linked: Callable[[Member], None],
        on_message: Callable[[NodeLink, lm.AnyMessage], None],
        on_records: Callable[[NodeLink, memoryview], None],
        on_gone: Callable[[int, str], None],
        on_lost: Callable[[str], None],
        records_of: Callable[[int], Records],
        chunks: Chunks,
    ) -> None:
        self._loop = loop
        self._transport = transport
        self.state = state
        self._on_joined = on_joined
        self._on_linked = on_linked
        self._on_message = on_message
        self._on_records = on_records
        self._on_gone = on_gone
        self._on_lost = on_lost
        self._records_of = records_of
        """Where the records for a node come from."""
        self._chunks = chunks
        self.links: dict[int, NodeLink] = {}
        self._open: dict[int, NodeLink] = {}
        """All links, by the numbers that `state` knows them by."""
        self._numbers: dict[NodeLink, int] = {}
        self._connecting: dict[NodeLink, int] = {}
        """Links that are on their way, and the node at the other end."""
        self._last_link = itertools.count(1)
        self.leaves_because = ""
        """Told to the others when this node ends; empty: it was asked to."""
        self._is_closed = False
        self._complaints = Complaints(loop)

    @property
    def own(self) -> Member:
        return self.state.own

    @property
    def members(self) -> dict[int, Member]:
        return self.state.members

    @property
    def head(self) -> int:
        """The number of the node that keeps the cluster's tables."""
        return HEAD

    @property
    def is_head(self) -> bool:
        return self.state.is_head

    def start(self) -> None:
        self._loop.call_later(BEAT_S, self._beat)
        self._carry_out(self.state.started())

    def send(self, node: int, message: lm.AnyMessage) -> bool:
        link = self.links.get(node)
        if link is None:
            return False
        link.send(message)
        return True

    def broadcast(self, message: lm.AnyMessage) -> None:
        for link in list(self.links.values()):
            link.send(message)

    def drop_chunks(self, transfer: int) -> None:
        """Nothing of that transfer may be written to memory any more."""
        for link in self.links.values():
            link.drop_chunk(transfer)

    def alive(self) -> Iterator[Member]:
        return (member for member in self.members.values() if member.is_alive)

    def close(self) -> None:
        self._is_closed = True
        self.broadcast(lm.Leaving(self.leaves_because) if self.leaves_because else lm.Leaving())
        self._transport.close()
        for link in [*self._open.values(), *self._connecting]:
            link.close("this node ends")

    # ---- what becomes of links ----

    def accepted(self, link: NodeLink) -> None:
        self._carry_out(self.state.link_accepted(self._number(link), self._loop.now()))

    def ready(self, link: NodeLink) -> None:
        if link not in self._connecting:
            return  # it was accepted; its first message says who is at the other end
        node = self._connecting.pop(link)
        self._carry_out(self.state.link_ready(self._number(link), node, self._loop.now()))

    def received(self, link: NodeLink, message: lm.AnyMessage) -> None:
        self._carry_out(self.state.received(self._numbers[link], message, self._loop.now()))

    def records_came(self, link: NodeLink, batch: memoryview) -> None:
        if self.links.get(link.peer) is link:
            self._on_records(link, batch)
        else:
            link.close("records came before it was known who sends them")

    def chunk_target(self, link: NodeLink, transfer: int, offset: int, size: int) -> memoryview | None:
        return self._chunks.chunk_target(transfer, offset, size) if self.links.get(link.peer) is link else None

    def chunk_came(self, link: NodeLink, transfer: int, offset: int, size: int) -> None:
        self._chunks.chunk_came(transfer, offset)

    def closed(self, link: NodeLink, reason: str) -> None:
        node = self._connecting.pop(link, None)
        number = self._numbers.pop(link, 0)
        self._open.pop(number, None)
        if self.links.get(link.peer) is link:
            del self.links[link.peer]
        elif reason and not self._is_closed and not reason.startswith(CLOSED):
            self._complaints.say(reason)
        if self._is_closed:
            return
        if node is not None:
            self._carry_out(self.state.connect_failed(node, reason, self._loop.now()))
        else:
            self._carry_out(self.state.link_closed(number, reason, self._loop.now()))

    def _number(self, link: NodeLink) -> int:
        number = self._numbers[link] = next(self._last_link)
        self._open[number] = link
        return number

    # ---- carrying out ----

    def _carry_out(self, instructions: list[do.Instruction]) -> None:
        for one in instructions:
            if isinstance(one, do.Deliver):
                if (link := self._open.get(one.link)) is not None:
                    self._on_message(link, one.message)
            elif isinstance(one, do.Send):
                if (link := self._open.get(one.link)) is not None:
                    link.send(one.message)
            elif isinstance(one, do.Close):
                if (link := self._open.get(one.link)) is not None:
                    link.close(one.reason)
            elif isinstance(one, do.Use):
                link = self.links[one.number] = self._open[one.link]
                link.peer = one.number
                link.records = self._records_of(one.number)
            elif isinstance(one, do.Connect):
                self._connect(one)
            elif isinstance(one, do.Linked):
                self._on_linked(one.member)
            elif isinstance(one, do.NodeGone):
                self.links.pop(one.number, None)
                self._on_gone(one.number, one.reason)
            elif isinstance(one, do.Joined):
                self._on_joined()
            elif isinstance(one, do.Lost):
                # Not in the middle of what led here.
                self._loop.call_later(0, functools.partial(self._on_lost, one.reason))

    def _connect(self, one: do.Connect) -> None:
        try:
            link = self._transport.connect(one.address)
        except OSError as error:
            self._carry_out(self.state.connect_failed(one.number, error.strerror or str(error), self._loop.now()))
        else:
            link.peer = one.number
            self._connecting[link] = one.number

    def _beat(self) -> None:
        if not self._is_closed:
            self._carry_out(self.state.beat(self._loop.now()))
            self._loop.call_later(BEAT_S, self._beat)
