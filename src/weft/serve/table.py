"""What the controller tells routers of one deployment. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Table:
    revision: int
    replicas: dict[str, Any]
    """Actor handles by the replica's name."""
    draining: frozenset[str]
    drained: frozenset[str]
    """Replicas that ended after they had answered all they took, lately."""
    max_ongoing_requests: int
    max_queued_requests: int
    retry_on_death: bool
    nodes: Mapping[str, str] = field(default_factory=dict)
    """The node of each replica."""
    canaries: frozenset[str] = frozenset()
    """Those of the replicas that run the new version that is tried out."""
    canary_share: float = 0.0
    """How many of the requests they get, from 0 to 1."""
    is_gone: bool = False

    def knows_end_of(self, replica: str) -> bool:
        return replica not in self.replicas and replica not in self.draining
