"""Which nodes there are, as one node knows it: joining, the table, links, silence, death.

Pure: no I/O, no clock (each event comes with the time). The head keeps the table and numbers the others as they
come; the node that began the cluster is number 0 and its first head, who takes over from it keeps its own number, and
one that starts a cluster again has a number that no node has had. A new node joins at the head (any other node names it
the head's address), which sends it the whole table once its row is kept, and links itself to those that came before it.
A node is dead to another when the link between them breaks, or when for `SILENCE_S` nothing was heard from it that was
due. The head hears each node, and each node the head, at every beat. Of many others a node that idles tells
`HEARD_BEATS` at a beat, in turn, so that more of them cost it no more. Between two such nodes the kernels watch the
connection; who *misses* the head, for `MISSED_S`, asks all others to speak, and from then on their silence counts, from
the moment at which the head fell silent. The head's opinion is everybody's: it tells the others, and they let go of
that node too; whoever hears of a node's death tells that node before it closes the link, so that one that lives ends by
itself. The head's own silence costs all of them, so after `HEAD_SILENCE_S` it is *doubted*:
another may take over, but the link stays, and a head that is heard again is followed as before. Two nodes that lost
only the link between them are linked again by the younger one, as long as the head has both for alive. Whoever loses
the link to the head knocks at its port: a machine that says that nobody listens there makes its death certain, and a
head that answers, and was not silent, has let go of this node, which ends. Where the head's end of the link was closed,
one of the two comes soon, and nobody takes over before. A head that ends says so, which is as certain. What follows is
`headship`'s affair. A cluster as a whole ends when its head says that the user wants it, and for nothing else.

A head decides who is dead only while it has its lease (`may_decide`): another may have won meanwhile, and be the one
that it takes for lost. What it loses before it has the lease back waits; who is deposed never says it. A table of an
earlier epoch than the latest that this node knows of is not read.

A node that is *cut off* (for `CUT_OFF_S` it has heard neither the head nor half of the nodes) ends before the others
give it up: what they then start again does not run twice. Time in which this node itself stood still is nobody's
silence.

A link is known by a number that the shell gives it.

Invariants (`MembershipState.check`):
    MEM-1  at most one link to a node is in use, and each that is in use is open.
    MEM-2  a node is in once, after it has tried every node that the head named to it, or for `JOIN_WAIT_S`.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Collection, Sequence

import msgspec

from weft.engine.state.instructions import Ending
from weft.engine.wire.link_messages import (
    AnyMessage,
    Ask,
    Call,
    HeadAt,
    JoinCluster,
    Leaving,
    Member,
    Members,
    PeerHello,
)

BEAT_S = 1.0
SILENCE_S = 10.0
HEAD_SILENCE_S = 6.0
CUT_OFF_S = 7.0
"""Less than `SILENCE_S` by more than two beats, one of each side."""
RECENT_S = 5.0
"""What a node has said of itself counts for so long, once it is due."""
MISSED_S = 3.0
"""Of the head's silence, before the others are asked to speak: they have time to before this node counts as cut off."""
SEVERED_S = 4.0
"""So long nothing had come over a connection that the kernel has found dead (`pulse.DEAD_S`)."""
HEARD_BEATS = 3
"""Of other nodes that idle, at each beat of one that hears the head."""
SELDOM_BEATS = 3
"""Nodes that are no more than so many beats apart are due at each, as far as silence is concerned."""
JOIN_WAIT_S = 1.0
"""So long a new node waits for links to nodes that may stand still; they are made when they answer."""
AGAIN_S = 2.0
"""After so long a node to which the link was lost is tried again."""
JOIN_TRIES = 30
"""A head to which very many come at once lets some in and closes on the others, who come again, not all at once."""
CLOSED = "the other node closed"
"""How the reason begins when a link ended with no word from the other side."""
MOST_GUESTS = 512
"""Links that have not said which node they are, as those of clients; when more come, the oldest go."""
LAST_NUMBER = (1 << 18) - 2
"""No number is given twice, and the names of processes on links have 18 bits for one (`native/link_names.hpp`)."""
ENTRY = -1
"""Stands for the node at which this one joins, until that has said who it is."""
KNOCK_S = 2.0
"""A head that has closed a link answers a knock within so long, or its machine does."""
REFUSED = "Connection refused"
"""In the reason when a machine says that nobody listens there."""


def beats_apart(links: int) -> int:
    """How many beats there are between two reports to the same idle node."""
    return max(1, math.ceil(links / HEARD_BEATS))


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


class Keep(Instruction, frozen=True):
    """On the head: write the row to the control store. `kept` follows for one that is alive."""

    member: Member


class HeadLost(Instruction, frozen=True):
    """The head is dead to this node; certainly, when its machine has said so."""

    reason: str
    is_certain: bool


class HeadFound(Instruction, frozen=True):
    """The head that was doubted is heard again."""


class Lost(Instruction, frozen=True):
    """The head does not want this node, or the user has asked the cluster to end: the node ends."""

    reason: str
    ending: Ending = Ending.LEFT_BEHIND


class _Link:
    __slots__ = ("is_peer", "last_heard", "number", "severed_from")

    def __init__(self, number: int | None, now: float) -> None:
        self.number = number
        """Of the node at the other end; None until it has said so."""
        self.is_peer = False
        self.last_heard = now
        self.severed_from = math.inf
        """Since when it has had no connection."""


class MembershipState:
    """One node's copy of the table and its links."""

    def __init__(self, own: Member, head: str) -> None:
        self.own = own
        self._entry = head
        """Where it joins; empty when this node begins the cluster."""
        self.head: int | None = None if head else own.number
        """The number of the acting head; None before this node has joined, and while there is none."""
        self.epoch = 1
        """Of that head, or of the one that was lost."""
        self.members: dict[int, Member] = {own.number: own} if not head else {}
        self.has_joined = False
        self.most_guests = MOST_GUESTS
        """Less where there are few descriptors."""
        self._links: dict[int, _Link] = {}
        self._in_use: dict[int, int] = {}
        """The link of each node."""
        self._awaited: set[int] | None = None
        """Nodes that must be linked before this one is in; None until the table came."""
        self._again_at: dict[int, float] = {}
        """When to try a node again to which the link was lost, and which is not dead to the head."""
        self._tries = 0
        """To join."""
        self._admitting: dict[int, int] = {}
        """On the head: the links of new nodes whose rows are being kept."""
        self.lost_head: int | None = None
        """The head that was lost, or is doubted."""
        self._is_doubted = False
        """Nothing has been heard of the head for long; its link is still there."""
        self._missed_from = math.inf
        """Since when the head is missed, and so all others are due."""
        self._loss = ""
        """Why."""
        self._has_resigned = False
        """The head has said that it ends."""
        self._knocking: int | None = None
        """The head that was lost, while its machine is asked whether it still listens."""
        self._answers_until = -math.inf
        """So long the head that was lost may still say that it lives."""
        self._joins_at = math.inf
        """Then it is in, whoever has not answered."""
        self._silent: set[int] = set()
        """Nodes whose links were given up for silence, and which are not known to be dead."""
        self._beat_at: float | None = None
        self.may_decide: Callable[[float], bool] = lambda now: True
        """On the head: whether it has its lease at that time."""
        self.fence = 0
        """The latest epoch that some node is known to have won."""
        self._sought: dict[int, str] = {}
        """Where the node is that is said to have won, until this one has a head."""
        self._missing: dict[int, str] = {}
        """On the head: nodes whose links it lost while it had no lease, and why."""

    @property
    def is_head(self) -> bool:
        return self.head is not None and self.head == self.own.number

    @property
    def hears_head(self) -> bool:
        return self.head is not None and not self._is_doubted

    @property
    def misses_head(self) -> bool:
        """Whether all others are to say something at each beat."""
        return not self.is_head and self._missed_from < math.inf

    def started(self) -> list[Instruction]:
        if not self.is_head:
            return [Connect(ENTRY, self._entry)]
        self.has_joined = True
        return [Joined()]

    # ---- links ----

    def link_accepted(self, link: int, now: float) -> list[Instruction]:
        """Somebody has connected; whoever has waited longest to say who it is is likely no node of ours."""
        guests = [number for number, known in self._links.items() if not known.is_peer]
        self._links[link] = _Link(None, now)
        if len(guests) >= self.most_guests:
            return [Close(guests[0], f"refused: {self.most_guests} others came after it")]
        return []

    def link_ready(self, link: int, number: int, now: float) -> list[Instruction]:
        """A link that this node asked for can be trusted."""
        self._links[link] = _Link(number, now)
        if number == ENTRY:
            return [Send(link, JoinCluster(self.own))]
        if number == self._knocking and number in self._silent:
            self._again_at[number] = now + AGAIN_S  # it may still die
            return [Close(link, "it was only asked whether it lives: this node has given it up for its silence")]
        if number == self._knocking:
            return [Lost(f"the head of the cluster has let go of this node: their link was lost ({self._loss})")]
        out: list[Instruction] = [Send(link, PeerHello(self.own.number))]
        self._use(link, number, now, out)
        return out

    def connect_failed(self, number: int, reason: str, now: float) -> list[Instruction]:
        if number == ENTRY:
            self._tries += 1
            if reason.startswith(CLOSED) and self._tries < JOIN_TRIES:
                spread = zlib.crc32(f"{self.own.node_id}{self._tries}".encode()) % 1000 / 500
                self._again_at[ENTRY] = now + spread
                return []
            return [Lost(f"the cluster at {self._entry} cannot be joined: {reason}", Ending.FAILED)]
        if number == self._knocking:
            if REFUSED in reason:
                self._silent.discard(number)
                self._answers_until = -math.inf
            else:  # one that is just being killed may still accept: it is asked again
                self._again_at[number] = now
            return [HeadLost(reason, REFUSED in reason)]
        out: list[Instruction] = []
        member = self.members.get(number)
        if number in self._sought or (member is not None and member.is_alive):
            self._again_at[number] = now + AGAIN_S
        self._settle_join(number, out)
        return out

    def link_closed(self, link: int, reason: str, now: float) -> list[Instruction]:
        known = self._links.pop(link, None)
        if known is None:
            return []
        if not known.is_peer:
            return self.connect_failed(ENTRY, reason, now) if known.number == ENTRY else []
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
        self._silent.discard(number)
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
        if known.is_peer and known.number == self.head:
            self._missed_from = math.inf
            if self._is_doubted:
                self._is_doubted = False
                out.append(HeadFound())
        if isinstance(message, Members):
            self._table_came(link, known, message, now, out)
        elif known.is_peer:
            if isinstance(message, Leaving) and known.number == self.head and message.ends_cluster:
                out.append(Lost(f"the cluster ends: {message.why}", Ending.WITH_CLUSTER))
            elif isinstance(message, Leaving):
                self._has_resigned = known.number == self.head
                out.append(Close(link, message.why))
            else:
                out.append(Deliver(link, message))
        elif isinstance(message, PeerHello):
            self._greeted(link, message.number, now, out)
        elif isinstance(message, JoinCluster):
            self._asked_to_admit(link, message.member, out)
        elif isinstance(message, HeadAt) and known.number == ENTRY:
            self._sent_on(link, known, message.address, out)
        elif isinstance(message, Ask | Call):
            out.append(Deliver(link, message))
        else:
            out.append(Close(link, f"a {type(message).__name__} is no first message"))
        return out

    def _greeted(self, link: int, number: int, now: float, out: list[Instruction]) -> None:
        member = self.members.get(number)
        if member is not None and not member.is_alive:
            out += self._send_away(link, member, f"refused: node {number} is dead: {member.death}")
        elif self.is_head and (number in self._in_use or number in self._missing):
            out.append(Close(link, f"refused: node {number} has a link"))  # that one is broken if it was lost there
        else:
            self._use(link, number, now, out)

    # ---- the table ----

    def _asked_to_admit(self, link: int, member: Member, out: list[Instruction]) -> None:
        if self.is_head and max(self.members) >= LAST_NUMBER:
            out.append(Close(link, f"refused: the cluster has had {LAST_NUMBER + 1} nodes, and no number is left"))
        elif self.is_head:
            number = max(self.members) + 1
            row = self.members[number] = msgspec.structs.replace(member, number=number)
            self._admitting[number] = link
            out.append(Keep(row))
        elif self.head is not None and self.head in self.members:
            out.append(Send(link, HeadAt(self.members[self.head].address)))
        else:
            out.append(Close(link, "a node cannot join while the cluster has no head"))

    def kept(self, number: int, now: float) -> list[Instruction]:
        """The row of a new node is safe: its number is its own, whoever is the head."""
        out: list[Instruction] = []
        link = self._admitting.pop(number, None)
        if link is None and number in self._in_use:
            return out  # it was never gone
        if link is None or link not in self._links or not self.is_head:
            self._bury(number, "it left before it was in", out)
            return out
        out.append(Send(link, Members(number, list(self.members.values()), self.own.number, self.epoch)))
        self._publish(self.members[number], out)
        self._use(link, number, now, out)
        return out

    def _sent_on(self, link: int, known: _Link, address: str, out: list[Instruction]) -> None:
        """The node that was asked is not the head."""
        known.number = None
        self._tries += 1
        out.append(Close(link, ""))
        if self._tries < JOIN_TRIES:
            self._entry = address
            out.append(Connect(ENTRY, address))
        else:
            text = f"the cluster's head cannot be found: {JOIN_TRIES} nodes in a row have named another"
            out.append(Lost(text, Ending.FAILED))

    def let_go(self, number: int, reason: str) -> list[Instruction]:
        """On the head: that node is to end, though it lives. It is told so: else it would take the head for dead."""
        row = msgspec.structs.replace(self.members[number], is_alive=False, death=reason)
        return self._send_away(self._in_use[number], row, reason)

    def _send_away(self, link: int, row: Member, reason: str) -> list[Instruction]:
        """A node that is dead to the head, and may live all the same, is told so: it ends by itself then."""
        head = self.own.number if self.head is None else self.head
        return [Send(link, Members(row.number, [row], head, self.epoch)), Close(link, reason)]

    def _bury(self, number: int, reason: str, out: list[Instruction]) -> None:
        """On the head: that node is dead, for all."""
        member = self.members.get(number)
        if member is not None and member.is_alive:
            row = self.members[number] = msgspec.structs.replace(member, is_alive=False, death=reason)
            self._again_at.pop(number, None)
            self._silent.discard(number)
            out.append(Keep(row))
            self._publish(row, out)

    # ---- another head ----

    def head_is(self, number: int, epoch: int) -> list[Instruction]:
        """That node is the head from now on."""
        out: list[Instruction] = []
        self._leave_old_head(number, out)
        self.head, self.epoch = number, epoch
        return out

    def won_by(self, number: int, address: str, epoch: int) -> list[Instruction]:
        """The control store says who has won. One that is not linked is asked: it may have taken this node for dead
        with nobody to tell it, and each would take over from the other again and again."""
        self.fence = max(self.fence, epoch)
        if self.hears_head or number == self.own.number or number in self._in_use or number in self._sought:
            return []
        if not address:
            return []
        self._sought = {number: address}
        return [Connect(number, address)]

    def _leave_old_head(self, new: int, out: list[Instruction]) -> None:
        """Another has taken over: the head that is doubted, or was deposed, is as good as dead."""
        if self.head is not None and self.head != new:
            self.lost_head = self.head
            if (link := self._in_use.pop(self.head, None)) is not None:
                reason = "another node has taken over as the cluster's head"
                out += [NodeGone(self.head, reason), Close(link, reason)]
        self._is_doubted = False
        self._end_knocking()
        for number in self._sought:
            self._again_at.pop(number, None)
        self._sought = {}

    def _end_knocking(self) -> None:
        if self._knocking is not None:
            self._again_at.pop(self._knocking, None)
            self._knocking = None
            self._answers_until = -math.inf

    def took_over(self, rows: Sequence[Member], epoch: int) -> list[Instruction]:
        """This node is the head now; the rows are those of the control store. Who is not linked to it is dead, and who
        is lives: the head before may have lost the others, and written so, when it was itself that was cut off."""
        out: list[Instruction] = []
        self._leave_old_head(self.own.number, out)
        self.head, self.epoch = self.own.number, epoch
        before, self.members = self.members, {**{row.number: row for row in rows}, self.own.number: self.own}
        for number, row in list(self.members.items()):
            if number in self._in_use and not row.is_alive:
                self.members[number] = msgspec.structs.replace(row, is_alive=True, death="")
                out.append(Keep(self.members[number]))
            elif number != self.own.number and number not in self._in_use:
                self._bury(number, "it was lost together with the cluster's head", out)
        self._link_known(before, out)
        table = list(self.members.values())
        for number, link in self._in_use.items():
            out.append(Send(link, Members(number, table, self.own.number, self.epoch)))
        return out

    def _link_known(self, before: dict[int, Member], out: list[Instruction]) -> None:
        """Nodes that have linked themselves to this one before it knew of them: who they are is known now."""
        for number in self._in_use:
            member = self.members.get(number)
            if number not in before and member is not None and member.is_alive:
                out.append(Linked(member))

    def _publish(self, row: Member, out: list[Instruction]) -> None:
        for number, link in self._in_use.items():
            out.append(Send(link, Members(number, [row], self.own.number, self.epoch)))

    def _table_came(self, link: int, known: _Link, message: Members, now: float, out: list[Instruction]) -> None:
        if self.is_head or known.number not in (ENTRY, self.head):
            own = next((row for row in message.members if row.number == self.own.number), None)
            if known.is_peer and own is not None and not own.is_alive and message.epoch >= self.epoch:
                if not self.is_head:  # which hears of a later one by its own way
                    out.append(Lost(f"the head of the cluster takes this node for dead: {own.death}"))
            else:
                out.append(Close(link, "only the head keeps the table"))
            return
        if message.epoch < self.fence:
            return
        before = self.members
        self.members = {**before, **{member.number: member for member in message.members}}
        if not known.is_peer:
            self.own = self.members[message.you]
            self.head, self.epoch = message.head, message.epoch
            others = [m for m in self.members.values() if m.is_alive and m.number not in (message.head, message.you)]
            older = [member for member in others if member.number < message.you]
            self._awaited = {m.number for m in older} | {message.head}
            self._joins_at = now + JOIN_WAIT_S
            self._use(link, message.head, now, out)
            out += [Connect(member.number, member.address) for member in older]
            return
        if not self.members[self.own.number].is_alive:
            out.append(Lost(f"the head of the cluster takes this node for dead: {self.members[self.own.number].death}"))
            return
        self._link_known(before, out)
        for member in message.members:
            number = member.number
            was = before.get(number)
            if member.is_alive and was is not None and not was.is_alive and number not in self._in_use:
                if number < self.own.number:  # it was dead to the head before, and lives for this one
                    self._again_at.setdefault(number, now)
            elif not member.is_alive:
                self._again_at.pop(number, None)
                self._silent.discard(number)
                if number in self._in_use:
                    reason = member.death or "the head took it for dead"
                    out += self._send_away(self._in_use[number], member, reason)

    def _node_gone(self, number: int, reason: str, now: float) -> list[Instruction]:
        out: list[Instruction] = []
        member = self.members.get(number)
        if self.is_head and not self.may_decide(now):
            self._missing[number] = reason
            return out
        if self.is_head:
            self._bury(number, reason, out)
        elif number == self.head and self.has_joined and member is not None:
            if self._is_doubted:
                self._silent.add(number)
            self.head, self.lost_head, self._loss, self._is_doubted = None, number, reason, False
            self._missed_from = min(self._missed_from, now)
            if self._has_resigned:
                self._has_resigned = False
                return [NodeGone(number, reason), HeadLost(reason, True)]
            self._knocking = number
            self._answers_until = -math.inf if number in self._silent else now + KNOCK_S
            return [NodeGone(number, reason), HeadLost(reason, False), Connect(number, member.address)]
        elif number == self.head:
            return [Lost(f"the head of the cluster is gone: {reason}", Ending.WITH_CLUSTER)]
        elif number in self._sought or (member is not None and member.is_alive and number < self.own.number):
            self._again_at[number] = now + AGAIN_S
        return [*out, NodeGone(number, reason)]

    # ---- time ----

    def beat(self, now: float, severed: Collection[int] = ()) -> list[Instruction]:
        """To be called each `BEAT_S`: silent nodes are given up, lost ones tried again. `severed`: nodes to which there
        is a link but no connection now."""
        self._forgive_own_stall(now)
        self._note_what_is_due(now, severed)
        out: list[Instruction] = []
        decides = not self.is_head or self.may_decide(now)
        if decides:
            missing, self._missing = self._missing, {}
            for number, reason in missing.items():
                out += self._node_gone(number, reason, now)
        for number, link in self._in_use.items():
            silent_s = self._silent_s(number, now)
            reason = f"nothing was heard from it for {SILENCE_S:g} s"
            if silent_s > SILENCE_S and decides:
                self._silent.add(number)
                out += self.let_go(number, reason) if self.is_head else [Close(link, reason)]
            elif silent_s > HEAD_SILENCE_S and number == self.head and self.has_joined and not self._is_doubted:
                self._is_doubted = True
                self.lost_head = number
                out.append(HeadLost(f"nothing was heard from it for {HEAD_SILENCE_S:g} s", False))
        if self._awaited and not self.has_joined and now >= self._joins_at:
            self._awaited.clear()
            self.has_joined = True
            out.append(Joined())
        for number, when in list(self._again_at.items()):
            if now >= when:
                self._again_at[number] = now + AGAIN_S
                if number == ENTRY:
                    del self._again_at[number]
                address = self._sought.get(number) or self.members[number].address if number != ENTRY else self._entry
                out.append(Connect(number, address))
        return out

    def _forgive_own_stall(self, now: float) -> None:
        stood_still_s = 0.0 if self._beat_at is None else now - self._beat_at - 2 * BEAT_S
        self._beat_at = now
        if stood_still_s > 0:
            for link in self._links.values():
                link.last_heard = min(now, link.last_heard + stood_still_s + BEAT_S)
            if self._missed_from < math.inf:
                self._missed_from = min(now, self._missed_from + stood_still_s + BEAT_S)

    def _note_what_is_due(self, now: float, severed: Collection[int]) -> None:
        for number, link in self._in_use.items():
            known = self._links[link]
            known.severed_from = min(known.severed_from, now - SEVERED_S) if number in severed else math.inf
        if not self.is_head and self.has_joined and self.head in self._in_use:
            heard_at = self._links[self._in_use[self.head]].last_heard
            self._missed_from = heard_at if now - heard_at >= MISSED_S else math.inf

    def _silent_s(self, number: int, now: float) -> float:
        """For how long nothing was heard from a node that was to say something; negative when it was not to."""
        known = self._links[self._in_use[number]]
        apart = beats_apart(len(self._in_use))
        if number == self.head or apart <= SELDOM_BEATS:
            due = -math.inf
        elif self.is_head:  # its nodes speak to it at each beat since it took over
            due = self._missed_from if self._missed_from < math.inf else -math.inf
        else:  # two turns of its own, should what watches the connection miss its end
            due = min(self._missed_from, known.severed_from, known.last_heard + 2 * apart * BEAT_S)
        return now - max(known.last_heard, due)

    def is_cut_off(self, now: float) -> bool:
        """Whether at least half of the nodes, this one counted, have fallen silent."""
        heard = len(self.heard(now, CUT_OFF_S))
        silent = len(self._in_use) - heard + len(self._silent - self._in_use.keys())
        return silent > heard

    def head_may_answer(self, now: float) -> bool:
        """Whether the head that was lost has closed the link, and has not been asked for long whether it lives."""
        return now < self._answers_until

    def heard(self, now: float, within_s: float = RECENT_S) -> list[int]:
        """The nodes that are linked and from which something came lately, or is not due yet."""
        return [number for number in self._in_use if self._silent_s(number, now) <= within_s]

    def check(self) -> None:
        """Assert the invariants."""
        for number, link in self._in_use.items():
            known = self._links.get(link)
            assert known is not None and known.is_peer and known.number == number, f"MEM-1: node {number}"
        assert not self.has_joined or self.is_head or not self._awaited, f"MEM-2: {self._awaited} are awaited"
