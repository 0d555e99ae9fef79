"""What happens to the control store's machines, and what they want done.

Storage is answered at once: the event that follows `DecideWrite`, `ApplyEntries` or `LoadRows` is its answer, before
anything else happens to that machine. Times are seconds of the shell's own monotonic clock.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from weft.store.state.chain_layout import Configuration, Place
from weft.store.state.chain_messages import AnyMessage, Ballot, Entry, ReadRequest, WriteRequest
from weft.store.state.chain_rows import Key, Row


class Event(msgspec.Struct, frozen=True):
    """Base of all events."""


class Instruction(msgspec.Struct, frozen=True):
    """Base of all instructions."""


# ---- events ----------------------------------------------------------------------------------------


class Received(Event, frozen=True):
    """A message of another server, by its name, or of a client."""

    sender: str
    message: AnyMessage
    now: float


class Ticked(Event, frozen=True):
    """Some time has passed: what is late is done again."""

    now: float


class RoundEnded(Event, frozen=True):
    """All that had come has been handled: what was collected goes out together."""


class WriteDecided(Event, frozen=True):
    """Answers DecideWrite. No entry: the request had been done before, with these outcomes."""

    shard: int
    entry: Entry | None
    outcomes: list[bool]


class WriteRejected(Event, frozen=True):
    """Answers DecideWrite: nothing was done. `is_storage`: because the storage cannot take it."""

    shard: int
    reason: str
    is_storage: bool = False


class EntriesApplied(Event, frozen=True):
    """Answers ApplyEntries and LoadRows."""

    shard: int


class ApplyFailed(Event, frozen=True):
    """Answers ApplyEntries and LoadRows: nothing was done."""

    shard: int
    reason: str


class RowsRead(Event, frozen=True):
    """Answers ReadRows."""

    shard: int
    to: str
    after: Key | None
    next: Key | None
    rows: list[Row]


class PeerConnected(Event, frozen=True):
    """A server or client can be sent to, from now on without loss until PeerLost."""

    peer: str
    now: float


class PeerLost(Event, frozen=True):
    """A server or client cannot be reached. `is_certain`: its process has ended."""

    peer: str
    is_certain: bool
    now: float


class ResignAsked(Event, frozen=True):
    """This server is about to end, and never comes back under its name."""

    now: float


# ---- instructions ----------------------------------------------------------------------------------


class Send(Instruction, frozen=True):
    """To a server or client, by name; lost without a word when it cannot be reached."""

    to: str
    message: AnyMessage


class DecideWrite(Instruction, frozen=True):
    """Find out what the request does, apply that as entry `seq`, and say so (WriteDecided or WriteRejected)."""

    shard: int
    seq: int
    request: WriteRequest


class ApplyEntries(Instruction, frozen=True):
    shard: int
    entries: Sequence[Entry]


class LoadRows(Instruction, frozen=True):
    """Rows copied from another replica. With `is_first` what is there goes before; `applied` comes with the last."""

    shard: int
    rows: list[Row]
    is_first: bool
    applied: int | None


class ReadRows(Instruction, frozen=True):
    """Read a piece of all rows, in the order of table and key, after that one."""

    shard: int
    to: str
    after: Key | None


class ServeRead(Instruction, frozen=True):
    """Answer this read from storage."""

    to: str
    request: ReadRequest


class ServeAllRows(Instruction, frozen=True):
    """Send AllRows of this table and prefix."""

    to: str
    shard: int
    subscription: int
    table: str
    prefix: bytes
    through: int


class OpenShard(Instruction, frozen=True):
    """Have storage for this shard: empty (`is_new`), or as it is."""

    shard: int
    is_new: bool


class DropShard(Instruction, frozen=True):
    """This server's replica of the shard is no more."""

    shard: int


class WishFor(Instruction, frozen=True):
    """A replica to its server: the council should hear this of it, or of its successor (see messages.Wish)."""

    shard: int
    place: Place
    what: str


class KeepConfiguration(Instruction, frozen=True):
    """A newer one is known: keep it, and connect to its servers."""

    configuration: Configuration


class KeepVotes(Instruction, frozen=True):
    """What a member of the council has promised for the next configuration; durable before what follows is sent."""

    promised: Ballot | None
    accepted_ballot: Ballot | None
    accepted: Configuration | None


class Report(Instruction, frozen=True):
    """A line for the log."""

    text: str
