"""What has happened to a node, as `node.NodeState` hears it.

Frozen values in the past tense. The daemon's shell makes them from records, sockets and exit statuses; a
simulator makes them from its script. No behaviour lives here.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from weft.engine.state.resources import Amounts
from weft.engine.wire.messages import ActorSpec, CreateGroup, DefineShape, DriverHello

Process: TypeAlias = tuple[int, int]
"""A process of the segment: (slot, generation)."""


class Event(msgspec.Struct, frozen=True):
    """Base of all events."""


# ---- processes -------------------------------------------------------------------------------------


class NodeStarted(Event, frozen=True):
    """The first event: the pool of workers may be filled."""


class DriverJoined(Event, frozen=True):
    process: Process
    job: int
    pid: int
    founder: bool = False
    """It started this node; the node ends with it."""


class DriverGreeted(Event, frozen=True):
    """Its first message came: from now on its functions can be run."""

    process: Process
    hello: DriverHello


class SlotReserved(Event, frozen=True):
    """A ForkWorker was carried out as far as naming the slot; the process may still be on its way."""

    ticket: int
    process: Process


class SlotsExhausted(Event, frozen=True):
    """A ForkWorker could not be carried out: every process slot is in use."""

    ticket: int
    text: str = ""
    """For the users whose work waits for one."""


class SlotReleased(Event, frozen=True):
    """A dead process's slot can be used again."""


class WorkerForked(Event, frozen=True):
    process: Process
    pid: int


class ProcessDied(Event, frozen=True):
    """A driver or worker is gone; everything that it had published has been handled before."""

    process: Process
    reason: str
    """For a person: "killed by SIGKILL (pid 123)"."""
    peers: tuple[Process, ...] = ()
    """The processes that shared a ring with it."""
    status: int = -9
    """Its exit status, the negative signal number when a signal ended it."""
    memory_peak: int | None = None
    """What it held at most, in bytes, when it was stopped for memory; None when it ended otherwise."""


class Ticked(Event, frozen=True):
    """About a second has passed. Only needed while `NodeState.wants_ticks`."""


# ---- leases ----------------------------------------------------------------------------------------


class ShapeDefined(Event, frozen=True):
    process: Process
    definition: DefineShape


class LeaseRequested(Event, frozen=True):
    process: Process
    shape: int
    wanted: int
    is_patient: bool = False
    """Of another node's process: it has leases there, so nobody's of this node is asked back for it."""
    near: dict[int, int] = {}
    """How many of them would rather be on which node: their large inputs are there."""


class LeaseReturned(Event, frozen=True):
    process: Process
    lease: int


class WorkerBlocked(Event, frozen=True):
    process: Process


class WorkerUnblocked(Event, frozen=True):
    process: Process


class WorkerRetired(Event, frozen=True):
    """It has run as many calls of a function as it may: it takes no further task, and can be ended."""

    process: Process


class WorkerLent(Event, frozen=True):
    """Whether other processes refer to objects that this worker owns: it must not be ended then."""

    process: Process
    lends: bool


# ---- actors ----------------------------------------------------------------------------------------


class ActorRequested(Event, frozen=True):
    process: Process
    spec: ActorSpec
    record: bytes
    """The creation's TASK record, unread."""


class ActorNameClaimed(Event, frozen=True):
    """A name is set aside for an actor whose creation will follow."""

    process: Process
    actor: bytes
    name: str
    namespace: str
    handle: bytes


class ActorCreated(Event, frozen=True):
    """Its constructor has run. Also from a creator whose actor fails before its creation could be sent (not ok)."""

    process: Process
    actor: bytes
    ok: bool
    error: bytes


class ActorWatched(Event, frozen=True):
    process: Process
    actor: bytes
    owner: Process | None = None
    """Its creator, when the watcher knows it."""


class ActorDropped(Event, frozen=True):
    process: Process
    actor: bytes


class ActorKillRequested(Event, frozen=True):
    process: Process
    actor: bytes
    no_restart: bool


# ---- placement groups ------------------------------------------------------------------------------


class GroupRequested(Event, frozen=True):
    process: Process
    spec: CreateGroup


class GroupRemovalRequested(Event, frozen=True):
    process: Process
    group: bytes


class GroupWatched(Event, frozen=True):
    """It wants to be told what becomes of the group."""

    process: Process
    group: bytes


# ---- other nodes: their processes have slots here, too ----------------------------------------------


class JobLearnt(Event, frozen=True):
    """Work of a job whose driver is on another node will come."""

    driver: Process
    job: int
    pid: int
    hello: DriverHello | None


class GuestJoined(Event, frozen=True):
    """A process of another node will ask for leases, actors or answers here."""

    process: Process
    job: int


class ServedElsewhere(Event, frozen=True):
    """Another node gave this process a lease of its shape."""

    process: Process
    shape: int


class PlaceWanted(Event, frozen=True):
    """The node that keeps the actors wants a worker for one of them; `wanted` 0: no longer."""

    process: Process
    number: int
    job: int
    need: Amounts
    hold: Amounts
    runtime_env: str
    wanted: int
    strategy: dict[str, str | int | bool] = {}


class ActorPlacedElsewhere(Event, frozen=True):
    """Another node's worker has been sent the actor's creation."""

    actor: bytes
    worker: Process
    pid: int


class NodesChanged(Event, frozen=True):
    """The view of the cluster has changed: what could not be placed may be now."""


class NodeLeft(Event, frozen=True):
    """A node of the cluster is dead, and the bundles that were set aside there."""

    node: int


class DrainBegun(Event, frozen=True):
    """This node is to leave: it grants nothing from now on."""


class ActorsToMove(Event, frozen=True):
    """To the head: these workers are on a node that is being drained; those that are actors and can move, must."""

    workers: tuple[Process, ...]


class BundlesAnswered(Event, frozen=True):
    """To the head: whether a node has set a group's bundles aside."""

    node: int
    group: bytes
    ok: bool
    attempt: int


class BundlesAsked(Event, frozen=True):
    """From the head: bundles are to be set aside here, now or (`waits`) when there is room."""

    group: bytes
    bundles: dict[int, Amounts]
    attempt: int
    waits: bool


class BundlesDropped(Event, frozen=True):
    """From the head: they are not wanted here after all."""

    group: bytes
    bundles: list[int]


class GroupLearnt(Event, frozen=True):
    """From the head: what has become of a group, and where its bundles are."""

    spec: CreateGroup
    state: str
    nodes: list[int | None]


class HeadChanged(Event, frozen=True):
    """Another node acts as head: what the daemon `old` (its proxy) held here for actors, `new` holds."""

    old: Process
    new: Process
    hosted: frozenset[Process]
    """The workers here that are actors: others that it holds were to be some, and never will."""


class FoundActor(msgspec.Struct, frozen=True):
    """A worker that the head before has made an actor of."""

    worker: Process
    pid: int
    incarnation: int
    is_created: bool
    """Its constructor has run."""


class RestoredActor(msgspec.Struct, frozen=True):
    """An actor as the control store has it."""

    spec: ActorSpec
    record: bytes
    owner: Process
    job: int
    stage: str
    incarnation: int = 0
    moves: int = 0
    cause: tuple[int, str] | bytes | None = None
    """Of its death: code and text, or the error of its constructor."""


class RestoredGroup(msgspec.Struct, frozen=True):
    """A placement group as the control store has it."""

    spec: CreateGroup
    state: str
    creator: Process
    job: int
    actor: bytes


class TookOver(Event, frozen=True):
    """This node acts as head from now on, with what the control store and the living nodes know."""

    epoch: int
    old: Process | None
    """The daemon (its proxy) that was the head."""
    actors: list[RestoredActor]
    aliases: dict[bytes, bytes]
    found: dict[bytes, FoundActor]
    groups: list[RestoredGroup]
    bundles: dict[bytes, dict[int, int]]
    """By group and bundle: the node that has set it aside."""
    is_restart: bool = False
    """The whole cluster had ended, and is started again: detached actors begin anew, whatever restarts they have."""


class HeadReady(Event, frozen=True):
    """After TookOver: all that the nodes had told the head before has been told again."""
