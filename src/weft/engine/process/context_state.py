"""What this process knows about itself: its job, its node, the actor that it is. Plain data that others read.

Filled by `session` in a driver and by `host` in a worker; emptied at shutdown. No engine calls but the current task.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any


@dataclass
class ProcessState:
    """One attached process. All fields are empty while it is not attached."""

    is_worker: bool = False
    job: int = 0
    node_id: str = ""
    address: str = ""
    namespace: str = ""
    slot: int = 0
    generation: int = 0
    driver_pid: int = 0
    num_cpus: float = 0.0
    gpu_ids: list[int] = field(default_factory=list)
    runtime_env: str = ""
    placement_group: str = ""
    """The id (hexadecimal) of the group that this worker's tasks are in."""
    captures_child_tasks: bool = False
    modules: dict[str, str] = field(default_factory=dict)
    """The module of each function that this worker has loaded, by the function's name."""
    actor_id: bytes = b""
    actor_instance: Any = None
    actor_definition: Any = None
    calls: Any = None
    """What runs the actor's calls when it takes several at once (`concurrency.ConcurrentCalls`)."""


state = ProcessState()


def reset(**fields: Any) -> ProcessState:
    """Forget the last session; `state` stays the same object."""
    fresh = ProcessState(**fields)
    state.__dict__.update(fresh.__dict__)
    return state


def node_ip() -> str:
    """The address that others know this machine by. One machine for now, so loopback."""
    return os.environ.get("WEFT_NODE_IP", "127.0.0.1")


def current_attempt() -> int:
    from weft.engine.process import current

    try:
        return current.task()[1]
    except Exception:  # a thread of the user's that runs no task
        return 0


def current_actor_hex() -> str:
    return state.actor_id.hex()


def current_actor_repr() -> str:
    if state.actor_instance is None:
        return ""
    try:
        return repr(state.actor_instance)
    except Exception:
        return f"<{type(state.actor_instance).__name__}>"
