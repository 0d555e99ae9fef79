"""Which nodes there are, as one node knows it: joining, the table, links, silence, death.

Pure: no I/O, no clock (each event comes with the time). The head has number 0, keeps the table and numbers the others
as they come. A new node joins at the head, which sends it the whole table, and links itself to those that came before
it. A node is dead to another when the link between them breaks, or when nothing was heard from it for `SILENCE_S`; the
head's opinion is everybody's: it tells the others, and they let go of that node too. Two nodes that lost only the link
between them are linked again by the younger one, as long as the head has both for alive. A node whose head is dead
ends.

A link is known by a number that the shell gives it.

Invariants (`MembershipState.check`):
    MEM-1  at most one link to a node is in use, and each that is in use is open.
    MEM-2  a node is in once, after it has tried every node that the head named to it.
"""

from __future__ import annotations

import zlib

import msgspec

from weft.engine.wire.link_messages import AnyMessage, Ask, Call, JoinCluster, Leaving, Member, Members, PeerHello

BEAT_S = 1.0
SILENCE_S = 15.0
AGAIN_S = 2.0
"""After so long a node to which the link was lost is tried again."""
JOIN_TRIES = 30
"""A head to which very many come at once lets some in and closes on the others, who come again, not all at once."""
CLOSED = "the other node closed"
"""How the reason begins when a link ended with no word from the other side."""
UNKNOWN_GUESTS = 256
"""Links that have not said who they are; when more come, the oldest go."""
HEAD = 0


class Instruction(msgspec.Struct, frozen=True):
    """What the shell must do, in order."""


class Connect(Instruction, frozen=True):
    """Make a link to that node; `link_ready` or `connect_failed` follows."""

    number: int
    address: str


class Send(Instruction, frozen=True):
    link: int
    message: AnyMessage


class Close(Instruction, frozen=True):
    """`link_closed` follows."""

    link: int
    reason: str


class Use(Instruction, frozen=True):
    """From now on the link is the one to that node."""

    link: int
    number: int


class Joined(Instruction, frozen=True):
    """This node has its number, and links to all that were there before it."""


class Linked(Instruction, frozen=True):
    member: Member


class Deliver(Instruction, frozen=True):
    """A message that is not about membership."""

    link: int
    message: AnyMessage


class NodeGone(Instruction, frozen=True):
    """Its link is no longer in use; what was on it is dead to this node."""

    number: int
    reason: str


class Lost(Instruction, frozen=True):
    """The head is gone, or does not want this node: it ends."""

    reason: str


class _Link:
    __slots__ = ("is_peer", "last_heard", "number")

    def __init__(self, number: int | None, now: float) -> None:
        self.number = number
        """Of the node at the other end; None until it has said so."""
        self.is_peer = False
        self.last_heard = now


class MembershipState:
    """One node's copy of the table and its links."""

    def __init__(self, own: Member, head: str) -> None:
        self.own = own
        self._head = head
        """Its address; empty when this node is the head."""
        self.members: dict[int, Member] = {HEAD: own} if not head else {}
        self.has_joined = False
        self._links: dict[int, _Link] = {}
        self._in_use: dict[int, int] = {}
        """The link of each node."""
        self._awaited: set[int] | None = None
        """Nodes that must be linked before this one is in; None until the table came."""
        self._again_at: dict[int, float] = {}
        """When to try a node again to which the link was lost, and which is not dead to the head."""
        self._tries = 0
        """To join."""

    @property
    def is_head(self) -> bool:
        return not self._head

    def started(self) -> list[Instruction]:
        if not self.is_head:
            return [Connect(HEAD, self._head)]
        self.has_joined = True
        return [Joined()]

    # ---- links ----

    def link_accepted(self, link: int, now: float) -> list[Instruction]:
        """Somebody has connected; whoever has waited longest to say who it is is likely no node of ours."""
        strangers = [number for number, known in self._links.items() if not known.is_peer]
        self._links[link] = _Link(None, now)
        if len(strangers) >= UNKNOWN_GUESTS:
            return [Close(strangers[0], f"refused: {UNKNOWN_GUESTS} others came after it")]
        return []

    def link_ready(self, link: int, number: int, now: float) -> list[Instruction]:
        """A link that this node asked for can be trusted."""
        self._links[link] = _Link(number, now)
        if number == HEAD:
            return [Send(link, JoinCluster(self.own))]
        out: list[Instruction] = [Send(link, PeerHello(self.own.number))]
        self._use(link, number, now, out)
        return out

    def connect_failed(self, number: int, reason: str, now: float) -> list[Instruction]:
        if number == HEAD:
            self._tries += 1
            if reason.startswith(CLOSED) and self._tries < JOIN_TRIES:
                spread = zlib.crc32(f"{self.own.node_id}{self._tries}".encode()) % 1000 / 500
                self._again_at[HEAD] = now + spread
                return []
            return [Lost(f"the cluster at {self._head} can not be joined: {reason}")]
        out: list[Instruction] = []
        member = self.members.get(number)
        if member is not None and member.is_alive:
            self._again_at[number] = now + AGAIN_S
        self._settle_join(number, out)
        return out

    def link_closed(self, link: int, reason: str, now: float) -> list[Instruction]:
        known = self._links.pop(link, None)
        if known is None:
            return []
        if not known.is_peer:
            return self.connect_failed(HEAD, reason, now) if known.number == HEAD and not self.has_joined else []
        assert known.number is not None
        if self._in_use.get(known.number) != link:
            return []
        del self._in_use[known.number]
        return self._node_gone(known.number, reason, now)

    def _use(self, link: int, number: int, now: float, out: list[Instruction]) -> None:
        known = self._links[link]
        known.number, known.is_peer, known.last_heard = number, True, now
        before = self._in_use.pop(number, None)
        if before is not None:  # it has not noticed yet that the old one is broken, but the other end has
            out += self._node_gone(number, "it has made another link", now)
            out.append(Close(before, "another link took its place"))
        self._in_use[number] = link
        self._again_at.pop(number, None)
        out.append(Use(link, number))
        if (member := self.members.get(number)) is not None:
            out.append(Linked(member))
        self._settle_join(number, out)

    def _settle_join(self, number: int, out: list[Instruction]) -> None:
        if self._awaited is not None and not self.has_joined:
            self._awaited.discard(number)
            if not self._awaited:
                self.has_joined = True
                out.append(Joined())

    def received(self, link: int, message: AnyMessage, now: float) -> list[Instruction]:
        known = self._links.get(link)
        if known is None:
            return []
        known.last_heard = now
        out: list[Instruction] = []
        if isinstance(message, Members):
            self._table_came(link, known, message, now, out)
        elif known.is_peer:
            if isinstance(message, Leaving):
                out.append(Close(link, message.why))
            else:
                out.append(Deliver(link, message))
        elif isinstance(message, PeerHello) and not self.is_head:
            self._greeted(link, message.number, now, out)
        elif isinstance(message, JoinCluster) and self.is_head:
            self._admit(link, message.member, now, out)
        elif isinstance(message, Ask | Call):
            out.append(Deliver(link, message))
        else:
            out.append(Close(link, f"a {type(message).__name__} is no first message"))
        return out

    def _greeted(self, link: int, number: int, now: float, out: list[Instruction]) -> None:
        member = self.members.get(number)
        if member is not None and not member.is_alive:
            out.append(Close(link, f"refused: node {number} is dead: {member.death}"))
        else:
            self._use(link, number, now, out)

    # ---- the table ----

    def _admit(self, link: int, member: Member, now: float, out: list[Instruction]) -> None:
        number = max(self.members) + 1
        row = self.members[number] = msgspec.structs.replace(member, number=number)
        out.append(Send(link, Members(number, list(self.members.values()))))
        self._publish(row, out)
        self._use(link, number, now, out)

    def _publish(self, row: Member, out: list[Instruction]) -> None:
        for number, link in self._in_use.items():
            out.append(Send(link, Members(number, [row])))

    def _table_came(self, link: int, known: _Link, message: Members, now: float, out: list[Instruction]) -> None:
        if self.is_head or known.number != HEAD:
            out.append(Close(link, "only the head keeps the table"))
            return
        before = self.members
        self.members = {**before, **{member.number: member for member in message.members}}
        if not known.is_peer:
            self.own = self.members[message.you]
            older = [m for m in self.members.values() if m.is_alive and HEAD < m.number < message.you]
            self._awaited = {m.number for m in older} | {HEAD}
            self._use(link, HEAD, now, out)
            out += [Connect(member.number, member.address) for member in older]
            return
        for member in message.members:
            number = member.number
            if member.is_alive and number in self._in_use and number not in before:
                out.append(Linked(member))
            elif not member.is_alive:
                self._again_at.pop(number, None)
                if number in self._in_use:
                    out.append(Close(self._in_use[number], member.death or "the head took it for dead"))

    def _node_gone(self, number: int, reason: str, now: float) -> list[Instruction]:
        if number == HEAD and not self.is_head:
            return [Lost(f"the head of the cluster is gone: {reason}")]
        out: list[Instruction] = []
        member = self.members.get(number)
        if self.is_head and member is not None:
            row = self.members[number] = msgspec.structs.replace(member, is_alive=False, death=reason)
            self._publish(row, out)
        elif member is not None and member.is_alive and number < self.own.number:
            self._again_at[number] = now + AGAIN_S
        return [*out, NodeGone(number, reason)]

    # ---- time ----

    def beat(self, now: float) -> list[Instruction]:
        """To be called each `BEAT_S`: silent nodes are given up, lost ones tried again."""
        out: list[Instruction] = [
            Close(link, f"nothing was heard from it for {SILENCE_S:g} s")
            for link in self._in_use.values()
            if now - self._links[link].last_heard > SILENCE_S
        ]
        for number, when in list(self._again_at.items()):
            if now >= when:
                self._again_at[number] = now + AGAIN_S
                if number == HEAD:
                    del self._again_at[number]
                address = self._head if number == HEAD else self.members[number].address
                out.append(Connect(number, address))
        return out

    def check(self) -> None:
        """Assert the invariants."""
        for number, link in self._in_use.items():
            known = self._links.get(link)
            assert known is not None and known.is_peer and known.number == number, f"MEM-1: node {number}"
        assert not self.has_joined or self.is_head or not self._awaited, f"MEM-2: {self._awaited} are awaited"
