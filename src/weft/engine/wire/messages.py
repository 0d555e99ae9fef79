"""What a process and its node daemon say to each other, beside the native records of the hot path.

Every message is a msgspec struct in MessagePack, tagged with its class name, carried in a CONTROL record of
the ring between the two. The native record kinds are listed in `kinds.py` beside this file.
"""

from __future__ import annotations

import msgspec


class Message(msgspec.Struct, tag=True, omit_defaults=True):
    """Base of all control messages; the tag is the class name."""


# ---- a process to its node daemon ------------------------------------------------------------------


class DefineShape(Message):
    """What a lease must hold: sent once before the first lease request that names `shape`."""

    shape: int
    resources: dict[str, float]
    """Amounts by name: "CPU", "GPU", "memory" and custom ones. Zero amounts are left out."""
    runtime_env: str = ""
    """The runtime environment as canonical JSON, or empty."""
    strategy: dict[str, str | int | bool] = {}
    """The scheduling strategy, {"kind": "default"} when empty."""
    name: str = ""
    """Of the function that needs it, for messages to people."""
    is_memory_soft: bool = False
    """Where no node has that much memory, all that the largest one has is enough."""


class Happening(msgspec.Struct, frozen=True, array_like=True):
    """A line of the cluster's chronicle (`node/chronicle`)."""

    time_ns: int
    severity: str
    source: str
    subject: str
    """The id of what it happened to."""
    node_id: str
    """Where it was seen."""
    text: str


class DriverHello(Message):
    """A driver's first message: what its workers need to run its functions."""

    pid: int
    sys_path: list[str]
    cwd: str
    environment: dict[str, str]
    namespace: str
    log_to_driver: bool = True
    runtime_env: str = ""


class ActorSpec(Message):
    """All that the daemon must know of an actor; travels in front of its creation record."""

    actor: bytes
    class_name: str
    class_key: int
    resources: dict[str, float]
    """Held while the actor lives."""
    placement_resources: dict[str, float]
    """Needed to place it (Ray asks for one CPU to place an actor that then holds none)."""
    name: str = ""
    namespace: str = ""
    detached: bool = False
    max_restarts: int = 0
    max_task_retries: int = 0
    max_concurrency: int = 1
    runtime_env: str = ""
    strategy: dict[str, str | int | bool] = {}
    handle: bytes = b""
    """The pickled handle, for get_actor()."""
    get_if_exists: bool = False


class KillActor(Message):
    actor: bytes
    no_restart: bool = True


class CreateGroup(Message):
    """A placement group: bundles of resources to be set aside, and how they may be spread over nodes."""

    group: bytes
    bundles: list[dict[str, float]]
    strategy: str = "PACK"
    name: str = ""
    namespace: str = ""
    detached: bool = False
    labels: list[dict[str, str]] = []
    """For each bundle what the labels of its node must be; empty for no wish."""
    same_label: str = ""
    """All bundles go to nodes that have the same value of this label."""
    promise: bytes = b""
    """An object of the creator's. It may be kept (PROMISE_KEPT) in place of the first GroupChanged to the creator."""


class RemoveGroup(Message):
    group: bytes


class WatchGroup(Message):
    """Answered by GroupChanged, now if the group is placed or removed, and whenever that changes."""

    group: bytes


class Request(Message):
    """A question that wants one Reply; `method` is a name in `engine/node/requests.py`."""

    id: int
    method: str
    params: dict[str, object] = {}


# ---- the node daemon to a process ------------------------------------------------------------------


class Reply(Message):
    id: int
    value: object = None
    error: str = ""
    """Empty, or a message for a person."""
    error_kind: str = ""
    """The name of the exception class in weft.exceptions or builtins to raise."""


class Home(msgspec.Struct, frozen=True, array_like=True):
    """The node that a process is on."""

    node_id: str = ""
    ip: str = "127.0.0.1"
    """The address that other machines know it by; loopback's where there can be none."""


class BindJob(Message):
    """A worker's first message: the job whose functions it will run (a BIND_JOB record carries it)."""

    job: int
    driver_pid: int
    sys_path: list[str]
    cwd: str
    environment: dict[str, str]
    namespace: str
    num_cpus: float = 1
    gpu_ids: list[int] = []
    runtime_env: str = ""
    placement_group: str = ""
    """The id (hexadecimal) of the placement group that its work is in."""
    captures: bool = False
    """Whether what its work submits is in that group too."""
    home: Home = Home()


class GroupChanged(Message):
    """To its creator and its watchers, but not to who removed it."""

    group: bytes
    state: str
    """As in placement_group_table: "CREATED", "RESCHEDULING", "REMOVED"."""


class LogLines(Message):
    """Output of a worker, for the driver of its job."""

    pid: int
    stream: str
    """"stdout" or "stderr"."""
    lines: list[tuple[str, str]]
    """(task or actor name, text without the newline)."""


class Warn(Message):
    """Something that a person should know; a driver prints it once."""

    text: str


class Tell(Message):
    """Answer with the request `told`: at most `limit` rows of what this process knows."""

    number: int
    what: str
    """"tasks", "objects", "stacks"; "metrics" has no rows: the process sends its metrics before it answers."""
    limit: int


class TellWaits(Message):
    """Answer with the request `waits_told`: what waits long here, and why these objects are not there."""

    number: int
    you: str
    """What the process is called in the cluster."""
    objects: list[bytes] = []


class BreakWait(Message):
    """That long wait is part of a deadlock: it ends in a DeadlockError."""

    number: int
    cycle: list[str]


class ExitProcess(Message):
    """A worker must end: now, or when the calls it has been sent are done."""

    reason: str
    drain: bool = False
