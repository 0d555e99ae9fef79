"""One server's part in deciding the configuration: votes, proposals, leases. Pure: no I/O, no clock.

Configuration n+1 is chosen by a majority of the council that configuration n names: single-decree Paxos, one instance a
number, so the council may change in any way between numbers. A lease lets a server serve reads as a tail: while a
majority has granted it, no configuration that cuts this tail out is chosen, unless its death is certain.

Invariants:
    COU-1  for each number one configuration at most is ever chosen.
    COU-2  a member grants no lease between its vote for a configuration and its knowing the outcome.
    COU-3  a member votes for no configuration that cuts out a tail which may hold a lease and may live.
    COU-4  a lease that has kept a configuration from being chosen is not renewed until that is settled or given up.
    COU-5  after a change of the council its members take every tail for a lease holder, for as long as a lease lasts.
    COU-6  what is proposed counts only on servers that have answered this very proposal (LAY-4, LAY-5).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence, Set
from typing import TypeAlias

from weft.store.state.chain_events import Instruction, KeepVotes, Send
from weft.store.state.chain_layout import Configuration
from weft.store.state.chain_messages import (
    Accept,
    Accepted,
    AskConfiguration,
    AskLease,
    AskPresence,
    Ballot,
    Decided,
    Denied,
    GrantLease,
    Prepare,
    Present,
    Promise,
)

Propose: TypeAlias = Callable[[frozenset[str], Set[str] | None], tuple[Configuration, list[str]] | None]
"""By the servers that those who vote hear, and those that have answered (None: as if all had). Gives the value, and the
servers that are gone for certain."""
LEASE_S = 2.0
HOLDER_SHARE = 0.8
"""Of a lease, that its holder uses: the rest is for clocks that run differently."""


def cut_tails(now: Configuration, value: Configuration) -> set[str]:
    """The servers that are some chain's tail now and have lost that place in `value`."""
    return {
        chain.tail.server
        for shard, chain in enumerate(now.chains)
        if shard >= len(value.chains) or chain.tail not in value.chains[shard].members
    }


class Council:
    """The votes and proposals of one server, whether or not it is a member now."""

    def __init__(self, server: str, lease_s: float = LEASE_S) -> None:
        self.server = server
        self.lease_s = lease_s
        self.configuration: Configuration | None = None
        self.promised: Ballot | None = None
        self.accepted_ballot: Ballot | None = None
        self.accepted: Configuration | None = None
        self._leases: dict[str, float] = {}
        """When the lease of each server that was granted one ends."""
        self._disputed: dict[str, float] = {}
        """Whose leases are not renewed until then (COU-4)."""
        self._careful_until = 0.0
        self._grants: dict[str, float] = {}
        """When each member was asked for the lease that it has granted this server."""
        self._informed: set[str] = set()
        """Members that have granted one by the present configuration, and so know it."""
        self._round = 0
        self._ballot: Ballot | None = None
        """Of the proposal that is under way."""
        self._value: Propose | None = None
        self._promises: dict[str, Promise] = {}
        self._asked: set[str] = set()
        """Who may answer."""
        self._answered: set[str] = set()
        self._proposed: Configuration | None = None
        self._accepts: set[str] = set()

    @property
    def is_member(self) -> bool:
        return self.configuration is not None and self.server in self.configuration.council

    @property
    def is_proposing(self) -> bool:
        return self._ballot is not None

    @property
    def is_unfinished(self) -> bool:
        """Whether a vote was given whose outcome is not known: someone should propose again."""
        return self.accepted is not None

    def restore(self, promised: Ballot | None, accepted_ballot: Ballot | None, accepted: Configuration | None) -> None:
        """The votes that were kept before a restart."""
        self.promised, self.accepted_ballot, self.accepted = promised, accepted_ballot, accepted

    def learn(self, configuration: Configuration, now: float) -> bool:
        """A decided configuration; whether it is news."""
        before = self.configuration
        if before is not None and before.number >= configuration.number:
            return False
        self.configuration = configuration
        self.promised = self.accepted_ballot = self.accepted = None
        self._ballot = None
        self._disputed = {}
        self._informed = set()
        if before is None or set(before.council) != set(configuration.council):
            self._careful_until = now + self.lease_s
            self._grants = {}
        return True

    # ---- votes ----

    def vote(self, sender: str, message: Prepare | Accept, now: float, hears: Sequence[str] = ()) -> list[Instruction]:
        current = self.configuration
        if current is None or message.number > current.number + 1:
            return [Send(sender, AskConfiguration(0 if current is None else current.number))]
        if message.number <= current.number:
            return [Send(sender, Decided(current))]
        if not self.is_member:
            return []
        if self.promised is not None and message.ballot < self.promised:
            return [Send(sender, Denied(message.number, message.ballot, self.promised))]
        if isinstance(message, Prepare):
            self.promised = message.ballot
            promise = Promise(message.number, message.ballot, self.accepted_ballot, self.accepted, hears)
            return [self._kept(), Send(sender, promise)]
        tails = cut_tails(current, message.value) - set(message.certain)
        if self._may_be_read_from(tails, now):
            self._disputed |= dict.fromkeys(tails, now + 2 * self.lease_s)
            return [Send(sender, Denied(message.number, message.ballot, message.ballot))]
        self.promised = self.accepted_ballot = message.ballot
        self.accepted = message.value
        return [self._kept(), Send(sender, Accepted(message.number, message.ballot))]

    def _kept(self) -> KeepVotes:
        return KeepVotes(self.promised, self.accepted_ballot, self.accepted)

    def _may_be_read_from(self, tails: set[str], now: float) -> bool:
        if not tails:
            return False
        return now < self._careful_until or any(self._leases.get(tail, 0.0) > now for tail in tails)

    # ---- proposals ----

    def propose(self, value: Propose, living: Collection[str]) -> list[Instruction]:
        """Begin. `value` says what to propose, should it be free to choose; the `living` should answer, whether or not
        they vote."""
        assert self.configuration is not None
        self._round = max(self._round, self.promised[0] if self.promised is not None else 0) + 1
        self._ballot = (self._round, self.server)
        self._value = value
        self._promises = {}
        self._asked = set(living)
        self._answered = set()
        self._proposed = None
        self._accepts = set()
        number = self.configuration.number + 1
        prepare, ask = Prepare(number, self._ballot), AskPresence(number, self._ballot)
        voters = self.configuration.council
        return [
            *(Send(member, prepare) for member in voters),
            *(Send(other, ask) for other in sorted(self._asked.difference(voters))),
        ]

    def give_up(self) -> None:
        """Of the proposal that is under way, so that another can begin."""
        self._ballot = None

    def promise_came(self, sender: str, message: Promise) -> list[Instruction]:
        current = self.configuration
        if current is None or message.ballot != self._ballot or message.number != current.number + 1 or self._proposed:
            return []
        self._promises[sender] = message
        self._answered.add(sender)
        return self._ask_to_accept(is_last_try=False)

    def present_came(self, sender: str, message: Present) -> list[Instruction]:
        if message.ballot != self._ballot or self._proposed:
            return []
        self._answered.add(sender)
        return self._ask_to_accept(is_last_try=False)

    def settle(self) -> list[Instruction]:
        """Who has not answered by now is not counted on."""
        return [] if self._ballot is None or self._proposed else self._ask_to_accept(is_last_try=True)

    def _ask_to_accept(self, is_last_try: bool) -> list[Instruction]:
        """As soon as the answers allow what would be proposed if all answered; at last what they do allow."""
        current, ballot = self.configuration, self._ballot
        assert current is not None and ballot is not None and self._value is not None
        if len(self._promises) < current.majority:
            return []
        heard = frozenset(
            name for one, promise in self._promises.items() if one != self.server for name in promise.hears
        )
        wanted, possible = self._value(heard, None), self._value(heard, self._answered)
        bound = self._maybe_chosen(current)
        if (bound or possible != wanted) and not is_last_try and not self._answered >= self._asked:
            return []
        self._proposed = bound or (None if possible is None else possible[0])
        if self._proposed is None:
            self._ballot = None
            return []
        accept = Accept(current.number + 1, ballot, self._proposed, [] if wanted is None else wanted[1])
        return [Send(member, accept) for member in current.council]

    def _maybe_chosen(self, current: Configuration) -> Configuration | None:
        """What must be proposed again: a majority may have voted for it, as far as the promises tell.

        Each tells its member's last vote. If something is chosen, all later votes are for it, so with those that have
        not promised its votes are a majority. A value that cannot be chosen any more is left alone: since it was
        proposed those that it counts on may have died (COU-6)."""
        votes = [one for one in self._promises.values() if one.accepted_ballot is not None]
        unknown = len(current.council) - len(self._promises)
        for vote in sorted(votes, key=lambda one: one.accepted_ballot or (0, ""), reverse=True):
            if sum(one.accepted == vote.accepted for one in votes) + unknown >= current.majority:
                return vote.accepted
        return None

    def accepted_came(self, sender: str, message: Accepted) -> Configuration | None:
        """The configuration that is chosen by this vote."""
        current = self.configuration
        if current is None or message.ballot != self._ballot or message.number != current.number + 1:
            return None
        self._accepts.add(sender)
        return self._proposed if len(self._accepts) == current.majority else None

    def denied_came(self, message: Denied) -> None:
        self._round = max(self._round, message.ballot[0])
        if message.denied == self._ballot:
            self._ballot = None

    # ---- leases ----

    def ask_lease(self, now: float) -> list[Instruction]:
        current = self.configuration
        if current is None:
            return []
        return [Send(member, AskLease(current.number, now)) for member in current.council]

    def lease_asked(self, sender: str, message: AskLease, now: float) -> list[Instruction]:
        current = self.configuration
        if current is None or message.number > current.number:
            return [Send(sender, AskConfiguration(0 if current is None else current.number))]
        if message.number < current.number:
            return [Send(sender, Decided(current))]
        if not self.is_member or self.accepted is not None or self._disputed.get(sender, 0.0) > now:
            return []
        self._leases[sender] = now + self.lease_s
        return [Send(sender, GrantLease(message.number, message.asked_at))]

    def lease_granted(self, sender: str, message: GrantLease) -> None:
        current = self.configuration
        if current is not None and message.number == current.number and sender in current.council:
            self._grants[sender] = max(self._grants.get(sender, message.asked_at), message.asked_at)
            self._informed.add(sender)

    @property
    def is_known_to_majority(self) -> bool:
        """Whether so many of its own council know the present configuration that it cannot be lost any more."""
        return self.configuration is not None and len(self._informed) >= self.configuration.majority

    def has_lease(self, now: float) -> bool:
        current = self.configuration
        if current is None:
            return False
        ends = sorted((asked + self.lease_s * HOLDER_SHARE for asked in self._grants.values()), reverse=True)
        return len(ends) >= current.majority and ends[current.majority - 1] > now
