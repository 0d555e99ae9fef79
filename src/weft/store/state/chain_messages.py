"""What the control store's servers and clients say to each other. MessagePack arrays, tagged; never a pickle.

A change is (table, key, new value or None for deleted). Entries are the effects of requests, numbered without gaps in
each shard.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from weft.store.state.chain_layout import Configuration, Place
from weft.store.state.chain_rows import Change, Key, Row, Write

Ballot: TypeAlias = tuple[int, str]


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """What one request did."""

    seq: int
    changes: Sequence[Change]


class StoreMessage(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """Base of all."""


# ---- clients and replicas --------------------------------------------------------------------------


class WriteRequest(StoreMessage, frozen=True):
    """A client to a head. Batches are applied in order, each as a whole; the number rises with each request."""

    shard: int
    client: str
    number: int
    batches: Sequence[Sequence[Write]]


class WriteReply(StoreMessage, frozen=True):
    """Committed. For each batch whether its conditions held."""

    shard: int
    number: int
    outcomes: list[bool]


class WriteRefused(StoreMessage, frozen=True):
    """Nothing of it was done, and trying again is of no use."""

    shard: int
    number: int
    reason: str


class ReadRequest(StoreMessage, frozen=True):
    """A client to a tail: rows by key, or with `table` set all rows of it whose key begins with `prefix`."""

    shard: int
    number: int
    keys: Sequence[Key]
    table: str = ""
    prefix: bytes = b""


class ReadReply(StoreMessage, frozen=True):
    shard: int
    number: int
    values: list[bytes | None]
    rows: list[tuple[bytes, bytes]] = []


class ReadRefused(StoreMessage, frozen=True):
    """Trying again is of no use."""

    shard: int
    number: int
    reason: str


class NotServing(StoreMessage, frozen=True):
    """Not here, or not now: look at the configuration and try again."""

    shard: int
    number: int
    is_write: bool


class Subscribe(StoreMessage, frozen=True):
    """A client to a tail. `since` is the sequence number up to which it knows the shard; -1: from now on."""

    shard: int
    subscription: int
    table: str
    prefix: bytes
    since: int


class Unsubscribe(StoreMessage, frozen=True):
    shard: int
    subscription: int


class Changes(StoreMessage, frozen=True):
    """Everything for a subscription after `since`, through `through`."""

    shard: int
    subscription: int
    since: int
    through: int
    changes: list[tuple[int, bytes, bytes | None]]
    """(seq, key, new value)."""


class AllRows(StoreMessage, frozen=True):
    """The subscriber has been away too long to be told what changed: this is what there is."""

    shard: int
    subscription: int
    through: int
    rows: list[tuple[bytes, bytes]]


# ---- between replicas ------------------------------------------------------------------------------


class Forward(StoreMessage, frozen=True):
    """To the successor. `base` is what the sender had when it adopted this version of the chain."""

    shard: int
    version: int
    base: int
    entries: Sequence[Entry]


class Acknowledge(StoreMessage, frozen=True):
    """To the predecessor: the tail has all of it."""

    shard: int
    version: int
    through: int


class Position(StoreMessage, frozen=True):
    """To the predecessor (from one that joins: to the tail): how far this replica is; -1: it has nothing."""

    shard: int
    version: int
    place: Place
    applied: int
    resend: bool
    """Whether what follows is to be sent (again)."""


class TooFarBehind(StoreMessage, frozen=True):
    """To one whose position is older than what is kept: copy the rows instead."""

    shard: int
    version: int


class PullRows(StoreMessage, frozen=True):
    """Rows after that one, please; None: from the first on."""

    shard: int
    version: int
    place: Place
    after: Key | None


class RowsPiece(StoreMessage, frozen=True):
    """A piece of the rows, in the order of table and key."""

    shard: int
    version: int
    after: Key | None
    next: Key | None
    """Where the next piece begins; None: this is the last."""
    at: int
    """What the sender had applied when it read them."""
    rows: list[Row]


# ---- the configuration -----------------------------------------------------------------------------


class Hello(StoreMessage, frozen=True):
    """The first on every connection: a server's name (with its address) or a client's."""

    name: str
    address: str = ""
    """Empty for a client."""


class Decided(StoreMessage, frozen=True):
    """The newest configuration that the sender knows."""

    configuration: Configuration


class AskConfiguration(StoreMessage, frozen=True):
    """The sender knows this one; a newer one is wanted."""

    number: int


class Pulse(StoreMessage, frozen=True):
    """Says nothing, and is sent back: the other side lives. Links take it, and no machine sees it."""


class Enlist(StoreMessage, frozen=True):
    """A server wants to take part."""

    server: str
    address: str


class Prepare(StoreMessage, frozen=True):
    """For the configuration of this number."""

    number: int
    ballot: Ballot


class Promise(StoreMessage, frozen=True):
    number: int
    ballot: Ballot
    accepted_ballot: Ballot | None
    accepted: Configuration | None
    hears: Sequence[str] = ()
    """The servers that the voter is connected to."""


class AskPresence(StoreMessage, frozen=True):
    """To one that does not vote: the configuration of this number may count on it, if it answers."""

    number: int
    ballot: Ballot


class Present(StoreMessage, frozen=True):
    """The sender is there, and means to stay."""

    ballot: Ballot


class Accept(StoreMessage, frozen=True):
    """`certain` are the servers whose death is certain."""

    number: int
    ballot: Ballot
    value: Configuration
    certain: list[str]


class Accepted(StoreMessage, frozen=True):
    number: int
    ballot: Ballot


class Denied(StoreMessage, frozen=True):
    """A higher ballot was promised, or a lease has not run out (then `ballot` is the denied one)."""

    number: int
    denied: Ballot
    ballot: Ballot


class AskLease(StoreMessage, frozen=True):
    """A tail to the council of configuration `number`."""

    number: int
    asked_at: float
    """By the sender's clock; comes back with the grant."""


class GrantLease(StoreMessage, frozen=True):
    number: int
    asked_at: float


CAUGHT_UP, COMPLETE, FAILED = "caught up", "complete", "failed"


class Wish(StoreMessage, frozen=True):
    """To the council: what has become of a replica. CAUGHT_UP: it may be promoted; COMPLETE; FAILED."""

    shard: int
    place: Place
    what: str


class Resign(StoreMessage, frozen=True):
    """To all servers: the sender serves no reads any more, and ends once a configuration does without it."""


AnyMessage: TypeAlias = (
    WriteRequest
    | WriteReply
    | WriteRefused
    | ReadRequest
    | ReadReply
    | ReadRefused
    | NotServing
    | Subscribe
    | Unsubscribe
    | Changes
    | AllRows
    | Forward
    | Acknowledge
    | Position
    | TooFarBehind
    | PullRows
    | RowsPiece
    | Hello
    | Decided
    | AskConfiguration
    | Pulse
    | Enlist
    | Prepare
    | Promise
    | AskPresence
    | Present
    | Accept
    | Accepted
    | Denied
    | AskLease
    | GrantLease
    | Wish
    | Resign
)
encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(AnyMessage).decode
