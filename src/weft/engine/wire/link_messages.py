"""What node daemons say to each other over a link. MessagePack arrays, tagged; never a pickle.

A process is (node number, slot, generation), an object (node number, entry, generation, bytes), each in the segment of
its own node. Slot 0 is a node's daemon.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, TypeAlias

import msgspec

from weft.engine.wire.messages import CreateGroup, DriverHello, Happening

GlobalProcess: TypeAlias = tuple[int, int, int]
GlobalObject: TypeAlias = tuple[int, int, int, int]


class Fault(Enum):
    """Whose doing the end of a link is, beside the words for people."""

    OTHER = 0
    CLOSED = 1
    """The other node has closed it."""
    REFUSED = 2
    """The other machine says that nobody listens there."""


class LinkMessage(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """Base of all."""


class Member(msgspec.Struct, array_like=True, frozen=True):
    """A row of the node table."""

    number: int
    node_id: str
    address: str
    """Where its daemon listens for other nodes: host:port."""
    local_address: str
    """Where drivers of its machine find it."""
    total: dict[str, float]
    labels: dict[str, str]
    is_alive: bool = True
    death: str = ""
    hostname: str = ""


class LeftRow(msgspec.Struct, array_like=True, frozen=True):
    """What the owner of an object leaves, so that another can own it: a row of its ledger, in the link's names."""

    id: bytes
    owner: GlobalProcess
    function: int
    """The key of the function that makes it, where that may have to be run; or 0."""
    shape: int
    """Of that task, as its owner numbered it."""
    needs: list[bytes]
    arena: GlobalObject | None
    body: bytes
    before: tuple[GlobalProcess, ...] = ()
    """Whose it was, one after another, until its owner inherited it."""


class LeftShape(msgspec.Struct, array_like=True, frozen=True):
    """What a task of a row needs to run."""

    owner: GlobalProcess
    number: int
    amounts: list[tuple[str, int]]
    runtime_env: str
    refusal: str
    strategy: dict[str, str | int | bool]


# ---- membership ------------------------------------------------------------------------------------


class JoinCluster(LinkMessage, frozen=True):
    """A new node to the head; the head gives it its number."""

    member: Member


class Members(LinkMessage, frozen=True):
    """The head to every node: the rows that changed; to a new node, all. `you` is the receiver's number."""

    you: int
    members: list[Member]
    head: int = 0
    """The sender's number."""
    epoch: int = 1


class HeadAt(LinkMessage, frozen=True):
    """To one that would join at a node that is not the head."""

    address: str


class HeadIs(LinkMessage, frozen=True):
    """The sender has taken over and asks every node for what the head must know; Registered ends the answer."""

    epoch: int


class Hosted(LinkMessage, frozen=True):
    """Workers of the sender that the head before has made actors of: (slot, generation, pid, actor, incarnation, ok).

    `ok`: the constructor has run."""

    actors: list[tuple[int, int, int, bytes, int, bool]]
    bundles: dict[bytes, list[int]]
    """By placement group: what is set aside for it."""


class Registered(LinkMessage, frozen=True):
    """All that the new head must know of the sender has been sent."""

    epoch: int
    store: str = ""
    """Where its server of the control store listens."""


class ActorHere(LinkMessage, frozen=True):
    """The head to a node: the creation of this actor follows, for that worker of yours."""

    slot: int
    generation: int
    actor: bytes
    incarnation: int


class Mark(LinkMessage, frozen=True):
    """To the head: tell when all that was sent before is safe in the control store. Marked answers."""

    number: int


class Marked(LinkMessage, frozen=True):
    number: int


class StartStore(LinkMessage, frozen=True):
    """The head to a node: start a server of the control store that joins those. StoreUp answers."""

    seeds: list[str]
    url: str
    """Where it keeps its rows; empty: in its memory."""
    shards: int
    """Of how many the store is made."""


class StoreAt(LinkMessage, frozen=True):
    """The head to a node without a server of the control store: where its servers listen."""

    seeds: list[str]
    shards: int


class StoreUp(LinkMessage, frozen=True):
    address: str


class PeerHello(LinkMessage, frozen=True):
    """The first message between two nodes that are in."""

    number: int


class Report(LinkMessage, frozen=True):
    """What a node has free now (in 1/10,000), and how many demands wait there. Also its heartbeat."""

    available: dict[str, int]
    queued: int
    is_draining: bool = False
    hears_head: bool = True
    """Whether it has a link to the acting head and hears it, or is it, or is about to be."""
    has_store: bool = False
    """Whether it has a server of the control store, and so could become the head."""
    asks: bool = False
    """It misses the head: whoever hears this is to say how it stands there."""


class Leaving(LinkMessage, frozen=True):
    """The node ends, whatever the reason. A head that says so acts no more, and another node may take its place at
    once."""

    why: str = "it was asked to end"
    ends_cluster: bool = False
    """The user has asked the whole cluster to end. The head says it, and nobody else is believed."""


class Ask(LinkMessage, frozen=True):
    """A client (no node) asks: "nodes"."""

    what: str


class Answer(LinkMessage, frozen=True):
    members: list[Member]
    available: list[tuple[int, dict[str, int]]]
    cluster: str = ""
    """The address by which the cluster goes."""


class Call(LinkMessage, frozen=True):
    """A node or a client asks for an operation (`node.operations`). CallAnswer answers."""

    number: int
    method: str
    params: dict[str, Any]


class CallAnswer(LinkMessage, frozen=True):
    number: int
    value: Any
    error: str = ""
    error_kind: str = ""


# ---- processes -------------------------------------------------------------------------------------


class WatchProcess(LinkMessage, frozen=True):
    """The sender has made a proxy for this process: tell it of its death."""

    slot: int
    generation: int


class ProcessGone(LinkMessage, frozen=True):
    slot: int
    generation: int
    reason: str
    status: int
    memory_peak: int | None = None
    """What it held at most, in bytes, when it was stopped for memory."""


class KillProcess(LinkMessage, frozen=True):
    """End a worker of yours at once."""

    slot: int
    generation: int


class JobInfo(LinkMessage, frozen=True):
    """A job whose work comes to the receiver; once, before all that names it."""

    job: int
    driver: GlobalProcess
    pid: int
    hello: DriverHello | None


class Guest(LinkMessage, frozen=True):
    """A process that will ask the receiver's daemon for something, and the job it belongs to."""

    slot: int
    generation: int
    job: int


class WantPlace(LinkMessage, frozen=True):
    """The head wants a worker for an actor; a LEASE_GRANT with this number answers. `wanted` 0: no longer."""

    number: int
    job: int
    need: list[tuple[str, int]]
    hold: list[tuple[str, int]]
    runtime_env: str
    wanted: int
    strategy: dict[str, str | int | bool] = {}


class Ping(LinkMessage, frozen=True):
    """Answered by Pong once all that was sent before it has been handled."""

    number: int


class Pong(LinkMessage, frozen=True):
    number: int


class Happened(LinkMessage, frozen=True):
    """To the head, for the cluster's chronicle."""

    what: Happening


# ---- placement groups: the head places them ---------------------------------------------------------


class AskBundles(LinkMessage, frozen=True):
    """The head to a node: set these bundles aside, all or none. BundlesSet answers, with `waits` when there is room."""

    group: bytes
    bundles: dict[int, list[tuple[str, int]]]
    attempt: int
    waits: bool


class BundlesSet(LinkMessage, frozen=True):
    group: bytes
    ok: bool
    attempt: int


class DropBundles(LinkMessage, frozen=True):
    """The head to a node: these bundles are not wanted there after all."""

    group: bytes
    bundles: list[int]


class GroupNews(LinkMessage, frozen=True):
    """The head to every node: what has become of a group, and on which nodes its bundles are."""

    spec: CreateGroup
    state: str
    nodes: list[int | None]


# ---- objects ---------------------------------------------------------------------------------------


class Imported(LinkMessage, frozen=True):
    """The sender has an import of this object of yours: tell it when the object is gone."""

    entry: int
    generation: int


class Keep(LinkMessage, frozen=True):
    """Fetch this object of the sender's node and keep it: there shall be so many copies. `Kept` follows."""

    name: GlobalObject
    replicas: int


class Kept(LinkMessage, frozen=True):
    """Whether the sender has a copy of this object of yours, and the object's owner."""

    entry: int
    generation: int
    has_copy: bool
    is_owner: bool


class Gone(LinkMessage, frozen=True):
    """An object of the sender's node exists no more."""

    entry: int
    generation: int


class Free(LinkMessage, frozen=True):
    """The owner, on the sender's node, has no use for this object of yours any more."""

    entry: int
    generation: int


class TakeOver(LinkMessage, frozen=True):
    """The sender is to leave: if the owner of this object of its is on your node, become its origin."""

    entry: int
    generation: int


class TakenOver(LinkMessage, frozen=True):
    """The receiver's object has that origin now, on the sender's node; None: it has no owner there, or did not come."""

    entry: int
    generation: int
    origin: GlobalObject | None


class Moved(LinkMessage, frozen=True):
    """An object of the sender's has another origin from now on."""

    entry: int
    generation: int
    origin: GlobalObject


class FindObject(LinkMessage, frozen=True):
    """To the object's node: where can I pull it from? Not from those `without`. Sources or PullFailed answers."""

    transfer: int
    entry: int
    generation: int
    without: list[int]


class Sources(LinkMessage, frozen=True):
    """Pull it from these nodes, from each a part."""

    transfer: int
    nodes: list[int]


class Pull(LinkMessage, frozen=True):
    """Send these bytes of an object of `node`, in chunks that carry the transfer's number."""

    transfer: int
    node: int
    entry: int
    generation: int
    begin: int
    end: int


class Copied(LinkMessage, frozen=True):
    """The sender has a copy of this object of yours now, or has given up pulling it."""

    entry: int
    generation: int
    ok: bool


class PullFailed(LinkMessage, frozen=True):
    transfer: int
    reason: str
    """Empty: the sender has the object no more. Else it has, and cannot send it."""


# ---- what passes on from the dead -------------------------------------------------------------------


class Deposit(LinkMessage, frozen=True):
    """A process of the sender's node has lent this object to one of the receiver's."""

    row: LeftRow
    function: bytes = b""
    """The FUNCTION record, once for each function, process and receiver."""
    shape: LeftShape | None = None


class Withdraw(LinkMessage, frozen=True):
    """The object of that process of the sender's node is gone."""

    slot: int
    generation: int
    id: bytes


class NodeLost(LinkMessage, frozen=True):
    """To the head: that node is dead to the sender."""

    node: int
    has_rows: bool
    """Whether it has rows of that node's objects."""


class AskLost(LinkMessage, frozen=True):
    """Of the head: that node is dead. NodeLost answers, where it was not sent."""

    node: int


class FoundAgain(LinkMessage, frozen=True):
    """To the head, after NodeLost: there is a link to that node again."""

    node: int


class Rehomed(LinkMessage, frozen=True):
    """Of the owners' node to all: which copies of a dead node's objects are the objects now: (old, new) names."""

    homes: list[tuple[tuple[int, int, int], GlobalObject]]


class Inherit(LinkMessage, frozen=True):
    """The executor of an estate to all nodes: claim what your processes refer to. Inherited answers."""

    estate: GlobalProcess


class Inherited(LinkMessage, frozen=True):
    """All that the sender's processes referred to has an owner."""

    estate: GlobalProcess


class AskReady(LinkMessage, frozen=True):
    """To an heir's node: Pong answers once that process owns all that it has claimed."""

    number: int
    slot: int
    generation: int


class EstateSettled(LinkMessage, frozen=True):
    """The executor to all: every node has done its part."""

    estate: GlobalProcess
