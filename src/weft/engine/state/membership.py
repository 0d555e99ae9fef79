"""Which nodes there are, as one node knows it: joining, the table, links, silence, death.

Pure: no I/O, no clock (each event comes with the time). The head keeps the table and numbers the others as they
come; the node that began the cluster is number 0 and its first head, who takes over from it keeps its own number, and
one that starts a cluster again has a number that no node has had. A new node joins at the head (any other node names it
the head's address), which sends it the whole table once its row is kept, and links itself to those that came before it.
A node is dead to another when the link between them breaks, or when for `SILENCE_S` nothing was heard from it that was
due (`hearing`). The head's opinion is everybody's: it tells the others, and they let go of that node too; whoever hears
of a node's death tells that node before it closes the link, so that one that lives ends by itself. The head's own
silence costs all of them, so after `HEAD_SILENCE_S` it is *doubted* (`lost_head`). Two nodes that lost only the link
between them are linked again by the younger one, as long as the head has both for alive. Whoever loses the link to the
head knocks at its port, and ends when it has let go of this node. Where the head's end of the link was closed, an
answer comes soon, and nobody takes over before. A head that ends says so, which is as certain. What follows is
`headship`'s affair. A cluster as a whole ends when its head says that the user wants it, and for nothing else.

A head decides who is dead only while it has its lease (`may_decide`): another may have won meanwhile, and be the one
that it takes for lost. What it loses before it has the lease back waits; who is deposed never says it. A table of an
earlier epoch than the latest that this node knows of is not read.

A node that is *cut off* (for `CUT_OFF_S` it has heard neither the head nor half of the nodes) ends before the others
give it up: what they then start again does not run twice. A link is known by a number that the shell gives it.

Invariant (`MembershipState.check`):
    MEM-1  at most one link to a node is in use, and each that is in use is open.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence

import msgspec

from weft.engine.state import membership_instructions as do
from weft.engine.state.hearing import HEAD_SILENCE_S, RECENT_S, Hearing, Link
from weft.engine.state.instructions import Ending
from weft.engine.state.joining import ENTRY, Joining
from weft.engine.state.lost_head import LostHead
from weft.engine.wire import link_messages as lm
from weft.engine.wire.link_messages import Fault

AGAIN_S = 2.0
"""After so long a node to which the link was lost is tried again."""
MOST_GUESTS = 512
"""Links that have not said which node they are, as those of clients; when more come, the oldest go."""
LAST_NUMBER = (1 << 18) - 2
"""No number is given twice, and the names of processes on links have 18 bits for one (`native/link_names.hpp`)."""


class MembershipState:
    """One node's copy of the table and its links."""

    def __init__(self, own: lm.Member, head: str) -> None:
        self.own = own
        self.head: int | None = None if head else own.number
        """The number of the acting head; None before this node has joined, and while there is none."""
        self.epoch = 1
        """Of that head, or of the one that was lost."""
        self.members: dict[int, lm.Member] = {own.number: own} if not head else {}
        self.joining = Joining(head)
        self.most_guests = MOST_GUESTS
        """Less where there are few descriptors."""
        self._hearing = Hearing()
        self._links, self._in_use, self._silent = self._hearing.links, self._hearing.in_use, self._hearing.silent
        self.lost = LostHead(self._silent)
        self._again_at: dict[int, float] = {}
        """When to try a node again to which the link was lost, and which is not dead to the head."""
        self._admitting: dict[int, int] = {}
        """On the head: the links of new nodes whose rows are being kept."""
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
        return self.head is not None and not self.lost.is_doubted

    @property
    def misses_head(self) -> bool:
        """Whether all others are to say something at each beat."""
        return not self.is_head and self._hearing.missed_from < math.inf

    def started(self) -> list[do.Instruction]:
        return self.joining.begin()

    # ---- links ----

    def link_accepted(self, link: int, now: float) -> list[do.Instruction]:
        """Somebody has connected; whoever has waited longest to say who it is is likely no node of ours."""
        guests = [number for number, known in self._links.items() if not known.is_peer]
        self._links[link] = Link(None, now)
        if len(guests) >= self.most_guests:
            return [do.Close(guests[0], f"refused: {self.most_guests} others came after it")]
        return []

    def link_ready(self, link: int, number: int, now: float) -> list[do.Instruction]:
        """A link that this node asked for can be trusted."""
        self._links[link] = Link(number, now)
        if number == ENTRY:
            return [do.Send(link, lm.JoinCluster(self.own))]
        if self.lost.is_knocked_at(number):
            answer, is_asked_again = self.lost.knock_answered(link)
            if is_asked_again:
                self._again_at[number] = now + AGAIN_S
            return [answer]
        out: list[do.Instruction] = [do.Send(link, lm.PeerHello(self.own.number))]
        self._use(link, number, now, out)
        return out

    def connect_failed(self, number: int, reason: str, now: float, fault: Fault = Fault.OTHER) -> list[do.Instruction]:
        if number == ENTRY:
            return self.joining.entry_failed(self.own.node_id, reason, now, fault)
        if self.lost.is_knocked_at(number):
            answer, is_asked_again = self.lost.knock_failed(reason, fault)
            if is_asked_again:
                self._again_at[number] = now
            return [answer]
        out: list[do.Instruction] = []
        member = self.members.get(number)
        if number in self._sought or (member is not None and member.is_alive):
            self._again_at[number] = now + AGAIN_S
        if number in self._sought and fault is Fault.REFUSED:
            out.append(do.HeadLost(reason, True, is_winner=True))
        return out + self.joining.settled(number)

    def link_closed(self, link: int, reason: str, now: float, fault: Fault = Fault.OTHER) -> list[do.Instruction]:
        known = self._links.pop(link, None)
        if known is None:
            return []
        if not known.is_peer:
            return self.connect_failed(ENTRY, reason, now, fault) if known.number == ENTRY else []
        assert known.number is not None
        if self._in_use.get(known.number) != link:
            return []
        del self._in_use[known.number]
        return self._node_gone(known.number, reason, now)

    def _use(self, link: int, number: int, now: float, out: list[do.Instruction]) -> None:
        known = self._links[link]
        known.number, known.is_peer, known.last_heard = number, True, now
        before = self._in_use.pop(number, None)
        if before is not None:  # it has not noticed yet that the old one is broken, but the other end has
            out += self._node_gone(number, "it has made another link", now)
            out.append(do.Close(before, "another link took its place"))
        self._in_use[number] = link
        self._silent.discard(number)
        self._again_at.pop(number, None)
        out.append(do.Use(link, number))
        if (member := self.members.get(number)) is not None:
            out.append(do.Linked(member))
        out += self.joining.settled(number)

    def received(self, link: int, message: lm.LinkMessage, now: float) -> list[do.Instruction]:
        known = self._links.get(link)
        if known is None:
            return []
        known.last_heard = now
        out: list[do.Instruction] = []
        if known.is_peer and known.number == self.head:
            self._hearing.missed_from = math.inf
            if self.lost.is_doubted:
                self.lost.is_doubted = False
                out.append(do.HeadFound())
        if isinstance(message, lm.Members):
            self._table_came(link, known, message, now, out)
        elif known.is_peer:
            if isinstance(message, lm.Leaving) and known.number == self.head and message.ends_cluster:
                out.append(do.Lost(f"the cluster ends: {message.why}", Ending.WITH_CLUSTER))
            elif isinstance(message, lm.Leaving):
                self.lost.has_resigned = known.number == self.head
                out.append(do.Close(link, message.why))
            else:
                out.append(do.Deliver(link, message))
        elif isinstance(message, lm.PeerHello):
            self._greeted(link, message.number, now, out)
        elif isinstance(message, lm.JoinCluster):
            self._asked_to_admit(link, message.member, out)
        elif isinstance(message, lm.HeadAt) and known.number == ENTRY:
            known.number = None
            out += [do.Close(link, ""), *self.joining.sent_on(message.address)]
        elif isinstance(message, lm.Ask | lm.Call):
            out.append(do.Deliver(link, message))
        else:
            out.append(do.Close(link, f"a {type(message).__name__} is no first message"))
        return out

    def _greeted(self, link: int, number: int, now: float, out: list[do.Instruction]) -> None:
        member = self.members.get(number)
        if member is not None and not member.is_alive:
            out += self._send_away(link, member, f"refused: node {number} is dead: {member.death}")
        elif self.is_head and (number in self._in_use or number in self._missing):
            out.append(do.Close(link, f"refused: node {number} has a link"))  # that one is broken if it was lost there
        else:
            self._use(link, number, now, out)

    # ---- the table ----

    def _asked_to_admit(self, link: int, member: lm.Member, out: list[do.Instruction]) -> None:
        if self.is_head and max(self.members) >= LAST_NUMBER:
            out.append(do.Close(link, f"refused: the cluster has had {LAST_NUMBER + 1} nodes, and no number is left"))
        elif self.is_head:
            number = max(self.members) + 1
            row = self.members[number] = msgspec.structs.replace(member, number=number)
            self._admitting[number] = link
            out.append(do.Keep(row))
        elif self.head is not None and self.head in self.members:
            out.append(do.Send(link, lm.HeadAt(self.members[self.head].address)))
        else:
            out.append(do.Close(link, "a node cannot join while the cluster has no head"))

    def kept(self, number: int, now: float) -> list[do.Instruction]:
        """The row of a new node is safe: its number is its own, whoever is the head."""
        out: list[do.Instruction] = []
        link = self._admitting.pop(number, None)
        if link is None and number in self._in_use:
            return out  # it was never gone
        if link is None or link not in self._links or not self.is_head:
            self._bury(number, "it left before it was in", out)
            return out
        out.append(do.Send(link, lm.Members(number, list(self.members.values()), self.own.number, self.epoch)))
        self._publish(self.members[number], out)
        self._use(link, number, now, out)
        return out

    def let_go(self, number: int, reason: str) -> list[do.Instruction]:
        """On the head: that node is to end, though it lives. It is told so: else it would take the head for dead."""
        row = msgspec.structs.replace(self.members[number], is_alive=False, death=reason)
        return self._send_away(self._in_use[number], row, reason)

    def _send_away(self, link: int, row: lm.Member, reason: str) -> list[do.Instruction]:
        """A node that is dead to the head, and may live all the same, is told so: it ends by itself then."""
        head = self.own.number if self.head is None else self.head
        return [do.Send(link, lm.Members(row.number, [row], head, self.epoch)), do.Close(link, reason)]

    def _bury(self, number: int, reason: str, out: list[do.Instruction]) -> None:
        """On the head: that node is dead, for all."""
        member = self.members.get(number)
        if member is not None and member.is_alive:
            row = self.members[number] = msgspec.structs.replace(member, is_alive=False, death=reason)
            self._again_at.pop(number, None)
            self._silent.discard(number)
            out.append(do.Keep(row))
            self._publish(row, out)

    # ---- another head ----

    def head_is(self, number: int, epoch: int) -> list[do.Instruction]:
        """That node is the head from now on."""
        out: list[do.Instruction] = []
        self._leave_old_head(number, out)
        self.head, self.epoch = number, epoch
        return out

    def won_by(self, number: int, address: str, epoch: int) -> list[do.Instruction]:
        """The control store says who has won. One that is not linked is asked: it may have taken this node for dead
        with nobody to tell it, and each would take over from the other again and again."""
        self.fence = max(self.fence, epoch)
        if self.hears_head or number in self._sought:
            return []
        for other in self._sought.keys() - self.members.keys():
            self._again_at.pop(other, None)
        self._sought = {number: address} if address and number != self.own.number else {}
        return [do.Connect(number, address)] if self._sought and number not in self._in_use else []

    def _leave_old_head(self, new: int, out: list[do.Instruction]) -> None:
        """Another has taken over: the head that is doubted, or was deposed, is as good as dead."""
        if self.head is not None and self.head != new:
            self.lost.number = self.head
            if (link := self._in_use.pop(self.head, None)) is not None:
                reason = "another node has taken over as the cluster's head"
                out += [do.NodeGone(self.head, reason), do.Close(link, reason)]
        knocked = self.lost.followed()
        for number in (*self._sought, *(() if knocked is None else (knocked,))):
            self._again_at.pop(number, None)
        self._sought = {}

    def took_over(self, rows: Sequence[lm.Member], epoch: int) -> list[do.Instruction]:
        """This node is the head now; the rows are those of the control store. Who is not linked to it is dead, and who
        is lives: the head before may have lost the others, and written so, when it was itself that was cut off."""
        out: list[do.Instruction] = []
        self._leave_old_head(self.own.number, out)
        self.head, self.epoch = self.own.number, epoch
        before, self.members = self.members, {**{row.number: row for row in rows}, self.own.number: self.own}
        for number, row in list(self.members.items()):
            if number in self._in_use and not row.is_alive:
                self.members[number] = msgspec.structs.replace(row, is_alive=True, death="")
                out.append(do.Keep(self.members[number]))
            elif number != self.own.number and number not in self._in_use:
                self._bury(number, "it was lost together with the cluster's head", out)
        self._link_known(before, out)
        table = list(self.members.values())
        for number, link in self._in_use.items():
            out.append(do.Send(link, lm.Members(number, table, self.own.number, self.epoch)))
        return out

    def _link_known(self, before: dict[int, lm.Member], out: list[do.Instruction]) -> None:
        """Nodes that have linked themselves to this one before it knew of them: who they are is known now."""
        for number in self._in_use:
            member = self.members.get(number)
            if number not in before and member is not None and member.is_alive:
                out.append(do.Linked(member))

    def _publish(self, row: lm.Member, out: list[do.Instruction]) -> None:
        for number, link in self._in_use.items():
            out.append(do.Send(link, lm.Members(number, [row], self.own.number, self.epoch)))

    def _table_came(self, link: int, known: Link, message: lm.Members, now: float, out: list[do.Instruction]) -> None:
        if self.is_head or known.number not in (ENTRY, self.head):
            mine = next((row for row in message.members if row.number == self.own.number), None)
            if known.is_peer and mine is not None and not mine.is_alive and message.epoch >= self.epoch:
                if not self.is_head:  # which hears of a later one by its own way
                    out.append(do.Lost(f"the head of the cluster takes this node for dead: {mine.death}"))
            else:
                out.append(do.Close(link, "only the head keeps the table"))
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
            self.joining.admitted((message.head, *(m.number for m in older)), now)
            self._use(link, message.head, now, out)
            out += [do.Connect(member.number, member.address) for member in older]
            return
        if not (own := self.members[self.own.number]).is_alive:
            out.append(do.Lost(f"the head of the cluster takes this node for dead: {own.death}"))
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

    def _node_gone(self, number: int, reason: str, now: float) -> list[do.Instruction]:
        out: list[do.Instruction] = []
        member = self.members.get(number)
        if self.is_head and not self.may_decide(now):
            self._missing[number] = reason
            return out
        if self.is_head:
            self._bury(number, reason, out)
        elif number == self.head and self.joining.is_over and member is not None:
            self.head = None
            self._hearing.missed_from = min(self._hearing.missed_from, now)
            return self.lost.lose(number, member.address, reason, now)
        elif number == self.head:
            return [do.Lost(f"the head of the cluster is gone: {reason}", Ending.WITH_CLUSTER)]
        elif number in self._sought:
            return [do.NodeGone(number, reason), do.Connect(number, self._sought[number])]
        elif member is not None and member.is_alive and number < self.own.number:
            self._again_at[number] = now + AGAIN_S
        return [*out, do.NodeGone(number, reason)]

    # ---- time ----

    def beat(self, now: float, severed: Collection[int] = ()) -> list[do.Instruction]:
        """To be called each `BEAT_S`: silent nodes are given up, lost ones tried again. `severed`: nodes to which there
        is a link but no connection now."""
        self._hearing.forgive_own_stall(now)
        self._hearing.note_what_is_due(now, severed, self.head if self.joining.is_over and not self.is_head else None)
        out: list[do.Instruction] = []
        decides = not self.is_head or self.may_decide(now)
        if not decides:
            self._hearing.undecided_at = now
        else:
            missing, self._missing = self._missing, {}
            for number, reason in missing.items():
                out += self._node_gone(number, reason, now)
        for number, link in self._in_use.items():
            silent_s = self._hearing.silent_s(number, now, self.head, self.is_head)
            if decides and (reason := self._hearing.given_up_for(number, silent_s, now, self.head)):
                self._silent.add(number)
                out += self.let_go(number, reason) if self.is_head else [do.Close(link, reason)]
            elif silent_s > HEAD_SILENCE_S and number == self.head and self.joining.is_over and self.hears_head:
                self.lost.doubt(number)
                out.append(do.HeadLost(f"nothing was heard from it for {HEAD_SILENCE_S:g} s", False))
        out += self.joining.beat(now)
        for number, when in list(self._again_at.items()):
            if now >= when:
                self._again_at[number] = now + AGAIN_S
                out.append(do.Connect(number, self._sought.get(number) or self.members[number].address))
        return out

    def is_cut_off(self, now: float) -> bool:
        """Whether at least half of the nodes, this one counted, have fallen silent."""
        return self._hearing.is_alone(now, self.head, self.is_head)

    def heard(self, now: float, within_s: float = RECENT_S) -> list[int]:
        """The nodes that are linked and from which something came lately, or is not due yet."""
        return self._hearing.heard(now, within_s, self.head, self.is_head)

    def check(self) -> None:
        """Assert the invariants."""
        for number, link in self._in_use.items():
            known = self._links.get(link)
            assert known is not None and known.is_peer and known.number == number, f"MEM-1: node {number}"
        self.joining.check()
