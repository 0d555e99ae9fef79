"""One replica of one shard: chain replication. Events in, instructions out; no I/O, no clock.

    replica.handle(event) -> list[Instruction]

Events and instructions are in `chain_events`, messages in `chain_messages`; `chain_server` gives each replica what
concerns it, and `chain_requests.decide` is what DecideWrite asks for. What goes to the neighbours is collected until
RoundEnded.

Writes enter at the head; an entry is committed when the tail has it; reads and subscriptions are the tail's. A replica
that joins copies the tail's rows in pieces, then follows it, and is promoted to be the tail.

Invariants:
    REP-1  entries are applied in order, without gaps; a replica has every entry that its successor has.
    REP-2  a write is answered only when the tail has it.
    REP-3  reads are served only by a complete tail: one that has all that any tail before it acknowledged.
    REP-4  messages of another version of the chain change nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from weft.store.state.chain_events import (
    ApplyEntries,
    ApplyFailed,
    DecideWrite,
    EntriesApplied,
    Event,
    Instruction,
    LoadRows,
    PeerConnected,
    PeerLost,
    ReadRows,
    Received,
    Report,
    RoundEnded,
    RowsRead,
    Send,
    ServeRead,
    Ticked,
    WishFor,
    WriteDecided,
    WriteRejected,
)
from weft.store.state.chain_layout import Chain, Place
from weft.store.state.chain_log import KEPT_ENTRIES, TICK_BYTES, EntryLog, Repeating, split
from weft.store.state.chain_messages import (
    CAUGHT_UP,
    COMPLETE,
    FAILED,
    Acknowledge,
    Entry,
    Forward,
    NotServing,
    Position,
    PullRows,
    ReadRequest,
    RowsPiece,
    Subscribe,
    TooFarBehind,
    Unsubscribe,
    WriteRefused,
    WriteReply,
    WriteRequest,
)
from weft.store.state.chain_publish import Publisher
from weft.store.state.chain_rows import Key

NOTHING = -1
"""What a replica has applied that has no usable state."""
CLOSE = 64
"""A joining replica that lacks no more entries can be promoted: writes wait for so few."""
FORWARD_ENTRIES = 1024
FORWARD_BYTES = 8 << 20
PIECE_TICKS = 8
"""So long a piece of the rows may take; it has a megabyte, or one row that is larger."""


class Replica:
    """One shard's rows on one server, as far as the chain is concerned."""

    def __init__(
        self,
        shard: int,
        place: Place,
        applied: int,
        is_restored: bool = False,
        kept_entries: int = KEPT_ENTRIES,
    ) -> None:
        """`is_restored`: its rows are from before a restart, and its neighbours must tell whether that is all."""
        self.shard = shard
        self.place = place
        self.chain: Chain | None = None
        self.log = EntryLog(applied, kept_entries)
        self.acked = applied
        """Committed, as far as is known here."""
        self.is_complete = applied != NOTHING and not is_restored
        self._is_restored = is_restored
        self.failure = ""
        """Why it cannot store what it is sent."""
        self.publisher = Publisher(shard)
        self._base = applied
        """What it had when it adopted this version."""
        self._needed: int | None = None
        """What the predecessor had, when it is known."""
        self._sent: int | None = None
        """The last entry sent to the successor; None until it has said where it is."""
        self._successor_at = NOTHING
        self._owes_forward = False
        self._told = NOTHING
        """The last position or acknowledgement sent to the predecessor."""
        self._forwarding, self._pulling = Repeating(), Repeating()
        self._pin: int | None = None
        """A joining replica copies rows: entries after this one are kept for it."""
        self._is_copying = False
        self._cursor: Key | None = None
        """The last row that was copied."""
        self._floor = NOTHING
        self._loading: RowsPiece | None = None
        self._applying: tuple[Entry, ...] = ()
        self._deciding: tuple[str, int] | None = None
        """(client, number) of the request that is being decided."""
        self._waiting: deque[tuple[int, str, int, list[bool]]] = deque()
        """(seq, client, number, outcomes) of writes to be answered when that entry is committed."""
        self._handlers: dict[type, Callable[[str, Any], list[Instruction]]] = {
            WriteRequest: self._write,
            ReadRequest: self._read,
            Subscribe: self._subscribe,
            Unsubscribe: self._unsubscribe,
            Forward: self._forward_came,
            Acknowledge: self._acknowledged,
            Position: self._position_came,
            TooFarBehind: self._start_copying,
            PullRows: self._pull_came,
            RowsPiece: self._piece_came,
        }

    # ---- who it is ----

    @property
    def applied(self) -> int:
        return self.log.last

    @property
    def is_joining(self) -> bool:
        return self.chain is not None and self.chain.joining == self.place

    @property
    def is_head(self) -> bool:
        return self.chain is not None and self.chain.head == self.place

    @property
    def is_tail(self) -> bool:
        return self.chain is not None and self.chain.tail == self.place

    @property
    def serves_reads(self) -> bool:
        return self.is_tail and self.is_complete

    @property
    def predecessor(self) -> Place | None:
        if self.chain is None or self.is_head:
            return None
        return self.chain.tail if self.is_joining else self.chain.members[self.chain.members.index(self.place) - 1]

    @property
    def successor(self) -> Place | None:
        """At the tail: the one that joins."""
        if self.chain is None or self.is_joining:
            return None
        if self.is_tail:
            return self.chain.joining
        return self.chain.members[self.chain.members.index(self.place) + 1]

    @property
    def is_busy(self) -> bool:
        """Whether something may have to be done again when time passes."""
        is_fresh = self.chain is not None and self.chain.fresh == self.place
        is_unheard = self._needed is None and self.predecessor is not None
        return self.acked < self.applied or not self.is_complete or is_fresh or self.successor_joins or is_unheard

    @property
    def successor_joins(self) -> bool:
        return self.is_tail and self.chain is not None and self.chain.joining is not None

    # ---- events ----

    def handle(self, event: Event) -> list[Instruction]:
        if isinstance(event, Received):
            return self._received(event)
        if isinstance(event, RoundEnded):
            return self._end_round()
        if isinstance(event, Ticked):
            return self._tick()
        if isinstance(event, WriteDecided):
            return self._decided(event)
        if isinstance(event, WriteRejected):
            return self._rejected(event)
        if isinstance(event, EntriesApplied):
            return self._applied_or_loaded()
        if isinstance(event, ApplyFailed):
            return self._failed(event.reason)
        if isinstance(event, RowsRead):
            return self._rows_read(event)
        if isinstance(event, PeerConnected):
            return self._say_position(resend=True) if self._is_from(event.peer, self.predecessor) else []
        if isinstance(event, PeerLost):
            self.publisher.client_gone(event.peer)
            return []
        raise TypeError(f"{type(event).__name__} is no event for a replica")

    def adopt(self, chain: Chain) -> list[Instruction]:
        """A newer version of the chain, which this replica is in."""
        self.chain = chain
        self._base = self.applied
        self._needed = None
        self._sent = None
        self._successor_at = NOTHING
        self._told = NOTHING
        self._pin = None
        self._is_copying = False
        if not self.is_tail:
            self.publisher.clear()
        if self._is_restored and self.is_head and self.is_tail:
            self.is_complete = True
        if self.predecessor is None and not self.is_complete and not self._is_restored:
            return [
                Report(f"shard {self.shard} has lost every complete replica: it serves nothing until one comes back")
            ]
        out = self._say_position(resend=True)
        if self.is_tail and self.is_complete:
            out += self._commit(self.applied)
        return out

    def leave(self) -> list[Instruction]:
        """This replica was cut out: whoever waits must ask elsewhere."""
        return [Send(client, NotServing(self.shard, number, True)) for _, client, number, _ in self._waiting]

    def _received(self, event: Received) -> list[Instruction]:
        message = event.message
        version = getattr(message, "version", None)
        if version is not None and self.chain is not None and version != self.chain.version:
            return []  # REP-4; the server sees to it that both learn the newer one
        return self._handlers[type(message)](event.sender, message)

    # ---- clients ----

    def _write(self, client: str, message: WriteRequest) -> list[Instruction]:
        if not self.is_head or not self.is_complete:
            return [Send(client, NotServing(self.shard, message.number, True))]
        self._deciding = (client, message.number)
        return [DecideWrite(self.shard, self.applied + 1, message)]

    def _decided(self, event: WriteDecided) -> list[Instruction]:
        assert self._deciding is not None
        (client, number), self._deciding = self._deciding, None
        if event.entry is not None:
            self.log.append(event.entry)
        self._waiting.append((self.applied, client, number, event.outcomes))
        return self._commit(self.applied if self.is_tail else self.acked)

    def _rejected(self, event: WriteRejected) -> list[Instruction]:
        assert self._deciding is not None
        (client, number), self._deciding = self._deciding, None
        out: list[Instruction] = [Send(client, WriteRefused(self.shard, number, event.reason))]
        if event.is_storage and self.chain is not None and len(self.chain.members) > 1:
            out += self._failed(event.reason)
        return out

    def _read(self, client: str, message: ReadRequest) -> list[Instruction]:
        if not self.serves_reads:
            return [Send(client, NotServing(self.shard, message.number, False))]
        return [ServeRead(client, message)]

    def _subscribe(self, client: str, message: Subscribe) -> list[Instruction]:
        return self.publisher.subscribe(client, message, self.log) if self.serves_reads else []

    def _unsubscribe(self, client: str, message: Unsubscribe) -> list[Instruction]:
        self.publisher.leave(client, message.subscription)
        return []

    def _commit(self, through: int) -> list[Instruction]:
        self.acked = max(self.acked, min(through, self.applied))
        out: list[Instruction] = []
        while self._waiting and self._waiting[0][0] <= self.acked:
            _, client, number, outcomes = self._waiting.popleft()
            out.append(Send(client, WriteReply(self.shard, number, outcomes)))
        return out

    # ---- entries from the predecessor ----

    def _forward_came(self, sender: str, message: Forward) -> list[Instruction]:
        if not self._is_from(sender, self.predecessor) or self.applied == NOTHING:
            return []
        self._needed = message.base
        fresh = [entry for entry in message.entries if entry.seq > self.applied]
        if not fresh:
            self._told = min(self._told, self.acked - 1)  # it may be sent again because the acknowledgement was lost
            return self._settle()
        if fresh[0].seq != self.applied + 1:
            return self._say_position(resend=True)
        self._applying = tuple(fresh)
        return [ApplyEntries(self.shard, self._applying)]

    def _applied_or_loaded(self) -> list[Instruction]:
        if self._loading is not None:
            return self._loaded()
        for entry in self._applying:
            self.log.append(entry)
        self._applying = ()
        self.failure = ""
        return self._settle()

    def _settle(self) -> list[Instruction]:
        """Whether it is complete now, and what that commits."""
        if not self.is_complete and not self.is_joining and self._needed is not None and self.applied >= self._needed:
            self.is_complete = True
        return [*self._say_complete(), *(self._commit(self.applied) if self.is_tail and self.is_complete else [])]

    def _say_complete(self) -> list[Instruction]:
        is_news = self.is_complete and self.chain is not None and self.chain.fresh == self.place
        return [WishFor(self.shard, self.place, COMPLETE)] if is_news else []

    def _failed(self, reason: str) -> list[Instruction]:
        """It cannot store what it must: the chain goes on without it."""
        self._applying = ()
        self._loading = None
        out: list[Instruction] = [WishFor(self.shard, self.place, FAILED)]
        if not self.failure:
            out.append(Report(f"the replica of shard {self.shard} cannot go on and asks to be cut out: {reason}"))
        self.failure = reason
        return out

    # ---- the successor ----

    def _acknowledged(self, sender: str, message: Acknowledge) -> list[Instruction]:
        if self.is_tail or not self._is_from(sender, self.successor):
            return []
        self._successor_at = max(self._successor_at, message.through)
        return self._commit(message.through)

    def _position_came(self, sender: str, message: Position) -> list[Instruction]:
        successor = self.successor
        if successor is None or message.place != successor:
            return []
        if self._is_restored and not self.is_complete and self.is_head:
            if message.applied > self.applied:
                return self._failed(f"it has come back with less than its successor has, {self.applied} entries")
            self.is_complete = message.applied != NOTHING
        if not self.is_complete:
            return []
        if message.applied == NOTHING or not self.log.has_after(message.applied):
            return [Send(sender, TooFarBehind(self.shard, self._version))]
        self._successor_at = max(self._successor_at, message.applied)
        if self._pin is not None:
            self._pin = max(self._pin, message.applied)
        if message.resend or self._sent is None:
            self._sent = min(message.applied, self.applied)
            self._owes_forward = True
        if self.successor_joins and message.applied >= self.applied - CLOSE:
            return [WishFor(self.shard, successor, CAUGHT_UP)]
        return []

    def _pull_came(self, sender: str, message: PullRows) -> list[Instruction]:
        if message.place != self.successor or not self.is_complete:
            return []
        if message.after is None and self._pin is None:
            self._pin = self.applied
        return [ReadRows(self.shard, sender, message.after)]

    def _rows_read(self, event: RowsRead) -> list[Instruction]:
        return [Send(event.to, RowsPiece(self.shard, self._version, event.after, event.next, self.applied, event.rows))]

    # ---- copying another replica's rows ----

    def _start_copying(self, sender: str, message: TooFarBehind) -> list[Instruction]:
        if not self._is_from(sender, self.predecessor):
            return []
        if self.is_complete:
            return [Report(f"shard {self.shard}: a complete replica was told that it is too far behind")]
        self.log.reset(NOTHING)
        self._is_copying = True
        self._cursor = None
        return self._pull()

    def _pull(self) -> list[Instruction]:
        assert self.predecessor is not None
        return [Send(self.predecessor.server, PullRows(self.shard, self._version, self.place, self._cursor))]

    def _piece_came(self, sender: str, message: RowsPiece) -> list[Instruction]:
        if not self._is_copying or message.after != self._cursor or not self._is_from(sender, self.predecessor):
            return []
        is_first = message.after is None
        if is_first:
            self._floor = message.at
        elif message.at < self._floor:  # asked for before the copying began anew, and late
            return []
        self._loading = message
        return [LoadRows(self.shard, message.rows, is_first, self._floor if message.next is None else None)]

    def _loaded(self) -> list[Instruction]:
        message, self._loading = self._loading, None
        assert message is not None
        if message.next is not None:
            self._cursor = message.next
            return self._pull()
        self._is_copying = False
        self.log.reset(self._floor)
        self.acked = self._floor
        return self._say_position(resend=True)

    # ---- what goes out together, and again ----

    def _end_round(self) -> list[Instruction]:
        out: list[Instruction] = []
        successor = self.successor
        if successor is not None and self._sent is not None and (self._sent < self.applied or self._owes_forward):
            entries = self.log.after(self._sent)
            for part in split(entries, FORWARD_ENTRIES, FORWARD_BYTES) or [[]]:
                out.append(Send(successor.server, Forward(self.shard, self._version, self._base, part)))
            self._sent = self.applied
            self._owes_forward = False
        predecessor = self.predecessor
        if predecessor is not None:
            if self.is_joining:
                if self.applied > self._told:
                    out += self._say_position(resend=False)
            elif self.is_complete and self.acked > self._told:
                self._told = self.acked
                out.append(Send(predecessor.server, Acknowledge(self.shard, self._version, self.acked)))
        if self.serves_reads and len(self.publisher):
            out += self.publisher.publish(self.log)
        self._trim()
        return out

    def _trim(self) -> None:
        through = self.acked if self._pin is None else min(self.acked, self._pin)
        oldest = self.publisher.oldest
        self.log.trim(through if oldest is None else min(through, oldest))

    def _tick(self) -> list[Instruction]:
        """Without progress for some time, say it again."""
        if self.failure and self.predecessor is not None:
            return self._failed(self.failure)
        out = self._say_complete()
        if self._is_copying:
            return self._pull() if self._pulling.is_due((self._version, self._cursor), PIECE_TICKS) else []
        if self.predecessor is not None and (self._needed is None or self.is_joining):
            out += self._say_position(resend=self._needed is None)
        behind = self._successor_at if self.is_tail else max(self.acked, self._successor_at)
        if self._sent is not None and behind < self.applied and self.log.has_after(behind):
            wait = 1 + self.log.bytes_after(behind) // TICK_BYTES
            if self._forwarding.is_due((self._version, self.acked, self._successor_at), wait):
                self._sent = behind
        return out + self._end_round()

    def _say_position(self, resend: bool) -> list[Instruction]:
        predecessor = self.predecessor
        if predecessor is None:
            return []
        if self.is_joining:
            self._told = self.applied
        position = Position(self.shard, self._version, self.place, self.applied, resend)
        return [Send(predecessor.server, position)]

    @property
    def _version(self) -> int:
        assert self.chain is not None
        return self.chain.version

    def _is_from(self, sender: str, place: Place | None) -> bool:
        return place is not None and place.server == sender
