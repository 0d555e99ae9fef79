"""What a node must do, as `node.NodeState` decides it.

Frozen values in the imperative, carried out in order by the daemon's shell or by a simulator.
"""

from __future__ import annotations

import enum

import msgspec

from weft.engine.state.events import Process
from weft.engine.wire.kinds import ErrorCode as ErrorCode
from weft.engine.wire.messages import BindJob, CreateGroup, Message


class Fault(msgspec.Struct, frozen=True):
    """An error of the engine's own, before it is encoded as an error value."""

    code: int
    """An `ErrorCode`."""
    text: str


class Instruction(msgspec.Struct, frozen=True):
    """Base of all instructions."""


class ForkWorker(Instruction, frozen=True):
    """Reserve a slot, answer SlotReserved (or SlotsExhausted), and have the zygote fork into it."""

    ticket: int
    bind: BindJob | None = None
    """What it is bound to from its birth; None for a worker that is told later."""


class KillWorker(Instruction, frozen=True):
    """End the process at once; ProcessDied follows."""

    process: Process


class LimitMemory(Instruction, frozen=True):
    """Hold the worker to so many bytes, where the machine grants that; 0: to nothing any more."""

    process: Process
    declared_bytes: int


class Tell(Instruction, frozen=True):
    """Base of what a process is told by a record of its ring (`node/outgoing.py` encodes it)."""

    process: Process


class GrantLease(Tell, frozen=True):
    """The worker is that process's, for tasks of the shape, until it gives the lease back."""

    lease: int
    shape: int
    worker: Process
    pid: int


class RevokeLease(Tell, frozen=True):
    """Others wait: it is to give the lease back when it can."""

    lease: int


class RefuseShape(Tell, frozen=True):
    """Whatever waits in that shape fails, now and later; `only_now`: what waits now."""

    shape: int
    fault: Fault
    only_now: bool = False


class RefuseNear(Tell, frozen=True):
    """That node has inputs of what waits in that shape, and cannot run it; `for_good`, or is not there."""

    shape: int
    node: int
    for_good: bool


class TellDeath(Tell, frozen=True):
    """Of a process that it had to do with."""

    dead: Process
    reason: str
    memory_peak: int | None = None
    """What it held at most, in bytes, when it was stopped for memory."""


class CreateActor(Tell, frozen=True):
    """The task that makes the worker an actor, as its creator wrote it."""

    record: bytes


class TellActorUp(Tell, frozen=True):
    actor: bytes
    worker: Process
    incarnation: int


class TellActorDown(Tell, frozen=True):
    actor: bytes
    is_dead: bool
    """Else it restarts."""
    cause: Fault | bytes
    """Bytes: an error value, as the constructor raised it."""


class KeepPromise(Tell, frozen=True):
    """The object that it has promised has the value None now."""

    promise: bytes


class BindWorker(Tell, frozen=True):
    """What it is bound to, before its first work."""

    binding: BindJob


class SendMessage(Tell, frozen=True):
    message: Message


class SendFunction(Instruction, frozen=True):
    """The FUNCTION record of that key, from the control store."""

    process: Process
    key: int


class RecordActor(Instruction, frozen=True):
    """Write the actor's row in the control store (an empty state: delete it)."""

    actor: bytes
    state: str
    row: dict[str, object]


class ReserveBundles(Instruction, frozen=True):
    """Ask another node to set these bundles aside; BundlesAnswered follows, when there is room if it `waits`."""

    node: int
    group: bytes
    bundles: dict[int, tuple[tuple[str, int], ...]]
    attempt: int
    waits: bool


class ReleaseBundles(Instruction, frozen=True):
    """Tell another node that these bundles are not wanted there after all."""

    node: int
    group: bytes
    bundles: list[int]


class AnswerBundles(Instruction, frozen=True):
    """Tell the head whether the bundles that it asked for are set aside."""

    group: bytes
    ok: bool
    attempt: int


class PublishGroup(Instruction, frozen=True):
    """Tell the other nodes what has become of a group."""

    spec: CreateGroup
    state: str
    nodes: list[int | None]


class EndJob(Instruction, frozen=True):
    """Nothing of the job is left: forget its functions and where its output went."""

    job: int


class Ending(enum.IntEnum):
    """Why a node ends: the exit status of its daemon."""

    ASKED = 0
    FAILED = 1
    WITH_CLUSTER = 3
    """The whole cluster has ended."""
    LEFT_BEHIND = 4
    """The cluster goes on without it: it was cut off, taken for dead, or another has become the head in its place."""


class StopNode(Instruction, frozen=True):
    """The node ends: everything is killed. An empty `error` means that it was asked to."""

    error: str = ""
    ending: Ending = Ending.FAILED
    """Where there is an error."""
