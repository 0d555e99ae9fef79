"""One server of the control store: its replicas, its part in the council, whom it takes for dead. Pure.

    server.handle(event) -> list[Instruction]

The shell (`store/server_shell.py`) keeps a connection to every server of the configuration and feeds what comes; a
simulator does the same over a network of its own. Nothing else is needed: each instruction says what is to be done, and
storage instructions are answered at once (see `chain_events`).
"""

from __future__ import annotations

import itertools
from collections.abc import Set

import msgspec

from weft.store.state.chain import NOTHING, Replica
from weft.store.state.chain_events import (
    ApplyFailed,
    DropShard,
    EntriesApplied,
    Event,
    Instruction,
    KeepConfiguration,
    OpenShard,
    PeerConnected,
    PeerLost,
    Received,
    ResignAsked,
    RoundEnded,
    RowsRead,
    Send,
    Ticked,
    WishFor,
    WriteDecided,
    WriteRejected,
)
from weft.store.state.chain_findings import Findings
from weft.store.state.chain_layout import Chain, Configuration, Place, next_configuration
from weft.store.state.chain_messages import (
    Accept,
    Accepted,
    AnyMessage,
    AskConfiguration,
    AskLease,
    AskPresence,
    Decided,
    Denied,
    Enlist,
    GrantLease,
    Hello,
    NotServing,
    Prepare,
    Present,
    Promise,
    ReadRequest,
    Resign,
    Subscribe,
    Unsubscribe,
    Wish,
    WriteRequest,
)
from weft.store.state.chain_settings import ServerSettings

LEAP = 1 << 20
"""A lone survivor's numbers are ahead of all that the dead can have decided without its knowing."""
_SHARD_EVENTS = (WriteDecided, WriteRejected, EntriesApplied, ApplyFailed, RowsRead)
_OF_CLIENTS = (WriteRequest, ReadRequest, Subscribe, Unsubscribe)
RENEWALS = 3
"""How often a lease is renewed while it lasts."""


def _neighbours(configuration: Configuration, server: str) -> set[str]:
    """Those before and after it in some chain."""
    found: set[str] = set()
    for chain in configuration.chains:
        names = [place.server for place in chain.places()]
        for one, other in itertools.pairwise(names):
            if server in (one, other):
                found |= {one, other}
    return found


class StoreServer:
    """All of one server. It knows no configuration until it founds a store, is given one, or learns one."""

    def __init__(self, name: str, address: str, settings: ServerSettings | None = None) -> None:
        self.name = name
        self.address = address
        self.settings = settings or ServerSettings()
        self.council = self.settings.council(name, self.settings.lease_s)
        self.findings = Findings(name, self.settings.grace_s, self.settings.unfit_s, self.settings.settle_s)
        self.replicas: dict[int, Replica] = {}
        self.stored: dict[int, int] = {}
        """What storage had applied of each shard before a restart."""
        self._heard: set[str] = set()
        """Who is connected now."""
        self._wished_at: float | None = None
        self._proposed_at = float("-inf")
        self._asked_lease_at = float("-inf")
        self._told_at = float("-inf")
        """When it last said that it wants to be in, or out."""
        self._now = 0.0
        """What the last event that had a time said."""
        self._counted_on_for = 0
        """The number of a configuration that may count on this server, because it has answered."""
        self._answered_at = float("-inf")

    @property
    def configuration(self) -> Configuration | None:
        return self.council.configuration

    @property
    def is_busy(self) -> bool:
        """Whether the next tick should come soon."""
        return (
            self.council.is_proposing
            or self.council.is_unfinished
            or self._wished_at is not None
            or self.has_resigned
            or any(replica.is_busy for replica in self.replicas.values())
        )

    @property
    def has_resigned(self) -> bool:
        return self.name in self.findings.resigned

    @property
    def is_out(self) -> bool:
        """Whether it has resigned and may end: the others do without it and know that, none stays, or too few are left
        to decide.

        Who proposed the configuration without it may have told nobody else, or lost what it said to those that stay."""
        current = self.configuration
        if not self.has_resigned or current is None:
            return self.has_resigned
        dead = self.findings.certain
        if self.name not in current.servers:
            if self._counted_on_for > current.number:
                return False
            if self.council.is_known_to_majority:
                return True
            dead = dead | self.findings.long_lost(self._now)
        voters = [name for name in current.council if name not in dead]
        return self.findings.gone.issuperset(current.servers) or len(voters) < current.majority

    # ---- events ----

    def handle(self, event: Event) -> list[Instruction]:
        """What this server sends to itself is handled here, too."""
        out: list[Instruction] = []
        todo: list[Event] = [event]
        now = self._now = getattr(event, "now", self._now)
        while todo:
            for one in self._handle(todo.pop(0)):
                if isinstance(one, Send) and one.to == self.name:
                    todo.append(Received(self.name, one.message, now))
                elif isinstance(one, WishFor):
                    wish = Wish(one.shard, one.place, one.what)
                    todo.append(Received(self.name, wish, now))
                    out += self._to_council(wish)
                else:
                    out.append(one)
        return out

    def _handle(self, event: Event) -> list[Instruction]:
        if isinstance(event, Received):
            return self._received(event)
        if isinstance(event, _SHARD_EVENTS):
            replica = self.replicas.get(event.shard)
            return [] if replica is None else replica.handle(event)
        if isinstance(event, RoundEnded):
            return [one for replica in self.replicas.values() for one in replica.handle(event)]
        if isinstance(event, Ticked):
            return self._tick(event)
        if isinstance(event, PeerConnected):
            self.findings.connected(event.peer)
            self._heard.add(event.peer)
            return [one for replica in self.replicas.values() for one in replica.handle(event)]
        if isinstance(event, PeerLost):
            return self._peer_lost(event)
        if isinstance(event, ResignAsked):
            self.findings.resigned.add(self.name)
            return self._say_wish(event.now) + self._consider(event.now)
        raise TypeError(f"{type(event).__name__} is no event for a server")

    def found(self, configuration: Configuration, now: float) -> list[Instruction]:
        """Begin with this configuration: the first of a store, or the last that was known before a restart."""
        return self._learn(configuration, now)

    def _received(self, event: Received) -> list[Instruction]:
        sender, message, now = event.sender, event.message, event.now
        if (shard := getattr(message, "shard", None)) is not None and not isinstance(message, Wish):
            return self._to_replica(event, shard)
        if isinstance(message, Prepare | Accept):
            return self.council.vote(sender, message, now, sorted(self._heard))
        if isinstance(message, AskPresence):
            return self._presence_asked(sender, message, now)
        if isinstance(message, Promise | Present) and now - self._proposed_at > self.settings.patience_s:
            return []  # it stood still meanwhile, and whoever answered may be dead by now
        if isinstance(message, Promise):
            return self.council.promise_came(sender, message)
        if isinstance(message, Present):
            return self.council.present_came(sender, message)
        if isinstance(message, Accepted):
            chosen = self.council.accepted_came(sender, message)
            return [] if chosen is None else self._announce(chosen, now)
        if isinstance(message, Denied):
            self.council.denied_came(message)
            return []
        if isinstance(message, Decided):
            return self._learn(message.configuration, now)
        if isinstance(message, AskConfiguration):
            return self._tell(sender, message.number, now)
        if isinstance(message, AskLease):
            return self.council.lease_asked(sender, message, now)
        if isinstance(message, GrantLease):
            self.council.lease_granted(sender, message)
            return []
        return self._wish(sender, message, now)

    def _wish(self, sender: str, message: object, now: float) -> list[Instruction]:
        if isinstance(message, Enlist):
            self.findings.enlisted[message.server] = message.address
        elif isinstance(message, Resign):
            self.findings.resigned.add(sender)
        elif isinstance(message, Wish):
            current = self.configuration
            if current is None or not 0 <= message.shard < len(current.chains):
                return []
            self.findings.wish_came(message, now)
        elif isinstance(message, Hello):
            return self._tell(sender, 0, now)
        else:
            raise TypeError(f"a {type(message).__name__} of {sender} is no message for a server")
        return self._consider(now)

    def _to_replica(self, event: Received, shard: int) -> list[Instruction]:
        message, sender = event.message, event.sender
        replica = self.replicas.get(shard)
        current = self.configuration
        version = getattr(message, "version", None)
        if version is not None and current is not None and 0 <= shard < len(current.chains):
            known = current.chains[shard].version
            if version > known:
                return [Send(sender, AskConfiguration(current.number))]
            if version < known:
                return [Send(sender, Decided(current))]
        if isinstance(message, _OF_CLIENTS):
            needs_lease = isinstance(message, ReadRequest | Subscribe)
            if replica is None or (needs_lease and not self._may_serve_reads(event.now)):
                number = getattr(message, "number", None)
                return [] if number is None else [Send(sender, NotServing(shard, number, not needs_lease))]
        return [] if replica is None else replica.handle(event)

    def _may_serve_reads(self, now: float) -> bool:
        return not self.has_resigned and self.council.has_lease(now)

    # ---- the configuration ----

    def _presence_asked(self, sender: str, message: AskPresence, now: float) -> list[Instruction]:
        current = self.configuration
        if self.has_resigned and (current is None or self.name not in current.servers):
            return []
        self._counted_on_for, self._answered_at = max(self._counted_on_for, message.number), now
        return [Send(sender, Present(message.ballot))]

    def _tell(self, sender: str, number: int, now: float) -> list[Instruction]:
        current = self.configuration
        if current is None or current.number <= number:
            return []
        out: list[Instruction] = [Send(sender, Decided(current))]
        if sender in current.council and not self.council.has_lease(now):
            out.append(Send(sender, AskLease(current.number, now)))
        return out

    def _announce(self, chosen: Configuration, now: float) -> list[Instruction]:
        before = self.configuration
        names = {*chosen.servers, *(before.servers if before is not None else ())} - {self.name}
        out = self._learn(chosen, now)
        return [*out, *(Send(name, Decided(chosen)) for name in sorted(names))]

    def _learn(self, configuration: Configuration, now: float) -> list[Instruction]:
        before = self.configuration
        if not self.council.learn(configuration, now):
            return []
        self.findings.learned(before, configuration, now)
        known = configuration.servers if before is None else before.servers
        for name in configuration.servers.keys() - known.keys() - self._heard - {self.name}:
            self.findings.lost(name, now, False, True)  # it may have died before it was in, and is not lost again
        out: list[Instruction] = [KeepConfiguration(configuration)]
        for shard, chain in enumerate(configuration.chains):
            place = next((place for place in chain.places() if place.server == self.name), None)
            replica = self.replicas.get(shard)
            if replica is not None and replica.place != place:
                out += [*replica.leave(), DropShard(shard)]
                del self.replicas[shard]
                replica = None
            if place is None:
                continue
            if replica is None:
                replica = self._open(shard, place, chain.joining == place, configuration.number, out)
            if replica.chain is None or replica.chain.version < chain.version:
                out += replica.adopt(chain)
            else:
                replica.chain = chain
        self._wished_at = None
        self._proposed_at = float("-inf")
        self._asked_lease_at = now
        out += self.council.ask_lease(now)
        return out + self._consider(now)

    def _open(self, shard: int, place: Place, joins: bool, number: int, out: list[Instruction]) -> Replica:
        is_restored = shard in self.stored
        applied = self.stored.pop(shard, NOTHING if joins or number > 1 else 0)
        out.append(OpenShard(shard, not is_restored))
        replica = self.replicas[shard] = self.settings.replica(
            shard, place, applied, is_restored, self.settings.kept_entries
        )
        return replica

    # ---- proposals ----

    def _peer_lost(self, event: PeerLost) -> list[Instruction]:
        out = [one for replica in self.replicas.values() for one in replica.handle(event)]
        current = self.configuration
        self._heard.discard(event.peer)
        is_member = current is not None and event.peer in current.servers
        self.findings.lost(event.peer, event.now, event.is_certain, is_member)
        return out + self._consider(event.now)

    def _next(
        self, now: float, heard: Set[str] = frozenset(), answered: Set[str] | None = None
    ) -> tuple[Configuration, list[str]] | None:
        """`heard`: by the others who vote. Of these only such can be cut out that this server must pass entries to or
        take them from: two that lost only the link between them would otherwise cut each other out for ever."""
        current = self.configuration
        if current is None:
            return None
        wishes = self.findings.wishes(current, now)
        spared = heard - self.findings.gone - _neighbours(current, self.name)
        silent = set() if answered is None else {*current.servers, *wishes.enlisted} - answered
        wishes = msgspec.structs.replace(wishes, dead=wishes.dead - spared, silent=silent)
        following = next_configuration(current, wishes, self.settings.length)
        return None if following is None else (following, sorted(self.findings.gone & set(current.servers)))

    def _consider(self, now: float) -> list[Instruction]:
        """Propose when something should change and it is this server's turn."""
        current = self.configuration
        if current is None or not self.council.is_member or self.council.is_proposing:
            return self._survive(now)
        if self._next(now) is None and not self.council.is_unfinished:
            self._wished_at = None
            return []
        if self._wished_at is None:
            self._wished_at = now
        wishes = self.findings.wishes(current, now)
        dead = wishes.dead
        staying = [name for name in current.council if name not in dead]
        rank = staying.index(self.name) if self.name in staying else len(staying)
        patience = self.settings.patience_s
        turn = rank + self.council.is_unfinished  # whoever got the vote may be about to finish
        if now < max(self._wished_at + turn * patience, self._proposed_at + (1 + 2 * rank) * patience):
            return []
        self._proposed_at = now
        living = {*current.servers, *wishes.enlisted} - (dead - wishes.leaving)
        return self.council.propose(lambda heard, answered: self._next(now, heard, answered), living)

    def _survive(self, now: float) -> list[Instruction]:
        """Decide alone, where the council was one other server and that is certainly dead.

        A store of two servers has such a council. It cannot have cut out a tail that still holds its lease and is
        alive, and nothing was acknowledged that this tail does not have."""
        current = self.configuration
        if current is None or self.council.is_member or not self.findings.certain.issuperset(current.council):
            return []
        is_whole = all(
            chain.tail.server == self.name and chain.fresh is None and not self.replicas[shard].failure
            for shard, chain in enumerate(current.chains)
        )
        following = next_configuration(current, self.findings.wishes(current, now), self.settings.length)
        if len(current.council) != 1 or not is_whole or not self._may_serve_reads(now) or following is None:
            return []
        chains = tuple(Chain(one.version + LEAP, one.members, one.joining, one.fresh) for one in following.chains)
        alone = Configuration(following.number + LEAP, following.council, following.servers, chains)
        return self._announce(alone, now)

    def _to_council(self, message: Wish | Enlist) -> list[Instruction]:
        current = self.configuration
        return [] if current is None else [Send(name, message) for name in current.council if name != self.name]

    # ---- time ----

    def _tick(self, event: Ticked) -> list[Instruction]:
        now = event.now
        out: list[Instruction] = []
        for replica in self.replicas.values():
            if replica.is_busy or replica.failure:
                out += replica.handle(event)
        current = self.configuration
        if current is None:
            return out
        if now - self._asked_lease_at >= self.settings.lease_s * 0.8 / RENEWALS or (
            self.replicas and not self.council.has_lease(now)
        ):
            self._asked_lease_at = now
            out += self.council.ask_lease(now)
        if now - self._told_at >= self.settings.patience_s:
            out += self._say_wish(now)
        if self.council.is_proposing and now - self._proposed_at >= self.settings.patience_s / 2:
            out += self.council.settle()
        if self.council.is_proposing and now - self._proposed_at >= self.settings.patience_s:
            self.council.give_up()
        if now - self._answered_at >= self.settings.lease_s:
            self._counted_on_for = 0
        return out + self._consider(now)

    def _say_wish(self, now: float) -> list[Instruction]:
        """That it wants to be in, while it is not; or to be out, while it is in or may be."""
        current = self.configuration
        if current is None or self.is_out:
            return []
        if self.has_resigned:
            said: list[AnyMessage] = [Resign(), AskConfiguration(current.number)]
        elif current.servers.get(self.name) != self.address:
            said = [Enlist(self.name, self.address)]
        else:
            return []
        self._told_at = now
        return [Send(name, one) for name in current.servers for one in said]

    def statistics(self) -> dict[str, object]:
        current = self.configuration
        return {
            "configuration": 0 if current is None else current.number,
            "council": [] if current is None else list(current.council),
            "applied": {shard: replica.applied for shard, replica in self.replicas.items()},
            "heads": [shard for shard, replica in self.replicas.items() if replica.is_head],
            "tails": [shard for shard, replica in self.replicas.items() if replica.is_tail],
        }
