"""Which nodes there are: carries out what `state.membership` decides. What becomes of links is told by `node_links`.

Runs in the daemon's thread.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Protocol

from weft.engine.cluster.node_links import Chunks, NodeLinks
from weft.engine.cluster.transport import NodeLink, Transport
from weft.engine.state import membership_instructions as do
from weft.engine.state.hearing import BEAT_S, SELDOM_BEATS, beats_apart
from weft.engine.state.instructions import Ending
from weft.engine.state.membership import MembershipState
from weft.engine.wire import link_messages as lm
from weft.engine.wire.link import Records
from weft.engine.wire.link_messages import Member
from weft.net.endpoint import most_strangers
from weft.net.loop import Loop


class Owner(Protocol):
    """Who is told what becomes of the nodes."""

    def joined(self) -> None: ...
    def linked(self, member: Member) -> None: ...
    def received(self, link: NodeLink, message: lm.LinkMessage) -> None: ...
    def records_came(self, link: NodeLink, batch: memoryview) -> None: ...
    def node_gone(self, number: int, reason: str) -> None: ...
    def head_lost(self, reason: str, is_certain: bool, is_winner: bool) -> None: ...
    def head_found(self) -> None: ...
    def lost(self, reason: str, ending: Ending) -> None: ...
    def keep_member(self, member: Member, then: Callable[[], None]) -> None: ...
    def records_of(self, number: int) -> Records:
        """Where the records for a node come from."""


class Membership:
    """This node's links and its copy of the table."""

    def __init__(self, loop: Loop, transport: Transport, state: MembershipState, owner: Owner, chunks: Chunks) -> None:
        self._loop = loop
        self._transport = transport
        self.state = state
        self._owner = owner
        self.node_links = NodeLinks(loop, transport, state, self._carry_out, owner.records_came, chunks)
        self.links = self.node_links.in_use
        self._beats = 0
        self.leaves_because = ""
        """Told to the others when this node ends; empty: it was asked to."""
        self.ends_cluster = False
        """On the head: the user wants all nodes to end."""
        self._is_closed = False
        state.most_guests = 2 * most_strangers()  # half of them may be strangers, whom the transport sends away

    @property
    def own(self) -> Member:
        return self.state.own

    @property
    def members(self) -> dict[int, Member]:
        return self.state.members

    @property
    def head(self) -> int | None:
        """The number of the node that keeps the cluster's tables, while there is one."""
        return self.state.head

    @property
    def epoch(self) -> int:
        return self.state.epoch

    @property
    def lost_head(self) -> int | None:
        """The head that was lost last."""
        return self.state.lost.number

    @property
    def is_cut_off(self) -> bool:
        """Whether it hears so few that it had better end."""
        return self.state.is_cut_off(self._loop.now())

    @property
    def head_may_answer(self) -> bool:
        """Whether it is not known yet if the head that was lost is dead."""
        return self.state.lost.may_answer(self._loop.now())

    def heard(self) -> list[int]:
        """The nodes that are linked and from which something came lately."""
        return self.state.heard(self._loop.now())

    @property
    def hears_head(self) -> bool:
        return self.state.hears_head

    @property
    def misses_head(self) -> bool:
        return self.state.misses_head

    def head_is(self, number: int, epoch: int) -> None:
        self._carry_out(self.state.head_is(number, epoch))

    def won_by(self, number: int, address: str, epoch: int) -> None:
        self._carry_out(self.state.won_by(number, address, epoch))

    def took_over(self, rows: list[Member], epoch: int) -> None:
        self._carry_out(self.state.took_over(rows, epoch))

    @property
    def is_head(self) -> bool:
        return self.state.is_head

    def start(self) -> None:
        self._loop.call_later(BEAT_S, self._beat)
        self._carry_out(self.state.started())

    def send(self, node: int, message: lm.LinkMessage) -> bool:
        link = self.links.get(node)
        if link is None:
            return False
        link.send(message)
        return True

    def let_go(self, number: int, reason: str) -> None:
        """On the head: have that node end."""
        self._carry_out(self.state.let_go(number, reason))

    def broadcast(self, message: lm.LinkMessage) -> None:
        for link in list(self.links.values()):
            link.send(message)

    def alive(self) -> Iterator[Member]:
        return (member for member in self.members.values() if member.is_alive)

    def close(self) -> None:
        self._is_closed = True
        self.broadcast(lm.Leaving(self.leaves_because or lm.Leaving().why, self.ends_cluster))
        self._transport.close()
        self.node_links.close("this node ends")

    # ---- carrying out ----

    def _carry_out(self, instructions: list[do.Instruction]) -> None:
        for one in instructions:
            if isinstance(one, do.Deliver):
                if (link := self.node_links.find(one.link)) is not None:
                    self._owner.received(link, one.message)
            elif isinstance(one, do.Send):
                if (link := self.node_links.find(one.link)) is not None:
                    link.send(one.message)
            elif isinstance(one, do.Close):
                if (link := self.node_links.find(one.link)) is not None:
                    link.close(one.reason)
            elif isinstance(one, do.Use):
                self.node_links.use(one.link, one.number, self._owner.records_of(one.number))
            elif isinstance(one, do.Connect):
                error, fault = self.node_links.connect(one.number, one.address)
                if error:
                    self._carry_out(self.state.connect_failed(one.number, error, self._loop.now(), fault))
            elif isinstance(one, do.Linked):
                self.links[one.member.number].address = one.member.address
                self._owner.linked(one.member)
            elif isinstance(one, do.NodeGone):
                self.links.pop(one.number, None)
                self._owner.node_gone(one.number, one.reason)
            elif isinstance(one, do.Joined):
                self._owner.joined()
            elif isinstance(one, do.Lost):
                # Not in the middle of what led here.
                self._loop.call_later(0, functools.partial(self._owner.lost, one.reason, one.ending))
            elif isinstance(one, do.HeadLost):
                self._owner.head_lost(one.reason, one.is_certain, one.is_winner)
            elif isinstance(one, do.HeadFound):
                self._owner.head_found()
            elif isinstance(one, do.Keep):
                self._owner.keep_member(one.member, functools.partial(self._kept, one.member))

    def _kept(self, member: Member) -> None:
        if member.is_alive and not self._is_closed:
            self._carry_out(self.state.kept(member.number, self._loop.now()))

    def _beat(self) -> None:
        if not self._is_closed:
            self._beats += 1
            # What comes of a node in turn comes within `SELDOM_BEATS` of these pulses.
            apart = -(-beats_apart(len(self.links)) // SELDOM_BEATS)
            is_due = self.is_head or self.misses_head
            for number, link in list(self.links.items()):
                if is_due or number == self.head or (number + self._beats) % apart == 0:
                    link.pulse()
            severed = {number for number, link in self.links.items() if link.is_severed}
            self._carry_out(self.state.beat(self._loop.now(), severed))
            self._loop.call_later(BEAT_S, self._beat)
