"""What travels of an actor: its class, and all that its worker must know about running it. Pure.

The node daemon needs other things (`messages.ActorSpec`) and never unpickles this one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from weft.engine.process.actors.checkpoints import CheckpointPolicy


@dataclass
class ActorDefinition:
    """An actor's class and how its calls are run."""

    cls: type
    description: Any
    """The handle's `ActorDescription`, so that the actor can make a handle to itself."""
    is_async: bool = False
    max_concurrency: int = 1
    groups: dict[str, int] = field(default_factory=dict)
    group_of: dict[str, str] = field(default_factory=dict)
    """The concurrency group of each method that names one."""
    name: str = ""
    namespace: str = ""
    checkpoint: CheckpointPolicy | None = None
    """When the state is kept, of an actor whose calls are recorded."""

    @property
    def is_concurrent(self) -> bool:
        """Whether its calls run beside the worker's main thread."""
        return self.is_async or self.max_concurrency > 1 or bool(self.groups) or self.checkpoint is not None
