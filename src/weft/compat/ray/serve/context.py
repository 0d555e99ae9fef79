"""`ray.serve.get_replica_context` of Ray 2.60."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import weft.serve
from weft.engine.process.session.context_state import state


@dataclass(frozen=True)
class ReplicaID:
    unique_id: str
    deployment: str
    app_name: str

    def to_full_id_str(self) -> str:
        return f"{self.app_name}#{self.deployment}#{self.unique_id}"


@dataclass(frozen=True)
class ReplicaContext:
    """Which replica runs the code that asks."""

    replica_id: ReplicaID
    servable_object: Any = None

    @property
    def app_name(self) -> str:
        return self.replica_id.app_name

    @property
    def deployment(self) -> str:
        return self.replica_id.deployment

    @property
    def replica_tag(self) -> str:
        return self.replica_id.unique_id


def get_replica_context() -> ReplicaContext:
    """RuntimeError outside of a replica."""
    found = weft.serve.get_replica_context()
    replica = state.actor_instance
    code = getattr(replica, "code", None) or getattr(replica, "_code", None)
    return ReplicaContext(ReplicaID(found.replica, found.deployment, found.app), getattr(code, "instance", None))
