"""What this process knows about itself: its job, its node, the actor that it is. Plain data that others read.

Filled by `session` in a driver and by `host` in a worker; emptied at shutdown. No engine calls but the current task.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any


@dataclass
class ProcessState:
    """One attached process. All fields are empty while it is not attached."""

    is_worker: bool = False
    job: int = 0
    node_id: str = ""
    node_ip: str = "127.0.0.1"
    """The address that other machines know its machine by."""
    address: str = ""
    namespace: str = ""
    slot: int = 0
    generation: int = 0
    driver_pid: int = 0
    num_cpus: float = 0.0
    gpu_ids: list[Any] = field(default_factory=list)
    runtime_env: str = ""
    placement_group: str = ""
    """The id (hexadecimal) of the group that this worker's tasks are in."""
    captures_child_tasks: bool = False
    modules: dict[str, str] = field(default_factory=dict)
    """The module of each function that this worker has loaded, by the function's name."""
    actor_id: bytes = b""
    actor_instance: Any = None
    actor_definition: Any = None
    records_calls: bool = False
    """Whether WEFT_RECORD_CALLS is set for this worker's job."""
    history: Any = None
    """The calls that the actor has run (`call_history.CallHistory`), where they are recorded."""
    held: dict[str, float] | None = None
    """What its task or actor holds, where that is known without asking the node."""
    local: Any = None
    """What runs tasks in this very process (`weft.local.local_node.LocalNode`); None in an ordinary session."""
    calls: Any = None
    """What runs the actor's calls when it takes several at once (`concurrency.ConcurrentCalls`)."""


state = ProcessState()
_task: ContextVar[ProcessState | None] = ContextVar("weft_process", default=None)
"""In local mode: the worker that the running task would be in."""


def here() -> ProcessState:
    """Of the running task: the process's own, or in local mode the one that stands for its worker."""
    return _task.get() or state


@contextlib.contextmanager
def inside(worker: ProcessState) -> Iterator[None]:
    """What runs in it sees `worker` as its process."""
    token = _task.set(worker)
    try:
        yield
    finally:
        _task.reset(token)


def reset(**fields: Any) -> ProcessState:
    """Forget the last session; `state` stays the same object."""
    fresh = ProcessState(**fields)
    state.__dict__.update(fresh.__dict__)
    return state


def current_attempt() -> int:
    from weft.engine.process.calls import current

    try:
        return current.task()[1]
    except Exception:  # a thread of the user's that runs no task
        return 0


def current_actor_hex() -> str:
    return here().actor_id.hex()


def current_actor_repr() -> str:
    if here().actor_instance is None:
        return ""
    try:
        return repr(here().actor_instance)
    except Exception:
        return f"<{type(here().actor_instance).__name__}>"
