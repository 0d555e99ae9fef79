"""What a controller holds of the applications and deployments that it runs, and what of it outlives its process."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from weft.serve.build import BuiltDeployment
from weft.serve.canaries import CanaryRule
from weft.serve.front_spread import FrontSpread
from weft.serve.http.messages import Kind
from weft.serve.state import DeploymentState

REMEMBERED_DRAINED = 1000


@dataclass
class Running:
    """A deployment's state with what only a shell can hold."""

    state: DeploymentState
    code: bytes = b""
    actors: dict[str, Any] = field(default_factory=dict)
    drained: deque[str] = field(default_factory=lambda: deque(maxlen=REMEMBERED_DRAINED))
    checked_s: dict[str, float] = field(default_factory=dict)
    starting_s: dict[str, float] = field(default_factory=dict)
    """Since when a replica waits for its actor, or was last looked after."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    drained_canaries: deque[str] = field(default_factory=lambda: deque(maxlen=REMEMBERED_DRAINED))
    """Of canaries that are gone."""
    seen_revision: int = -1
    unplaced: set[str] = field(default_factory=set)
    """Replicas for which no node has a place."""

    @property
    def routed(self) -> dict[str, Any]:
        return {name: self.actors[name] for name in self.state.routed if name in self.actors}


@dataclass(frozen=True)
class CanaryApplication:
    """A new version of an application that gets a share of the requests."""

    share: float
    route_prefix: str | None
    built: list[BuiltDeployment]
    rule: CanaryRule | None = None
    """By which it is promoted or ended, if that is not left to people."""


@dataclass
class RunningApplication:
    name: str
    route_prefix: str | None
    ingress: str
    deployments: list[str]
    kind: Kind
    verdict: str = ""
    """What became of its last canary, and why."""


def check_route(applications: Iterable[RunningApplication], app: str, route_prefix: str | None) -> None:
    """ValueError if another application answers there."""
    for other in applications:
        if route_prefix is not None and other.route_prefix == route_prefix and other.name != app:
            raise ValueError(f"route_prefix {route_prefix!r} is taken by application {other.name!r}")


@dataclass
class Snapshot:
    """What the vault keeps, beside the codes."""

    epoch: str
    states: dict[str, DeploymentState]
    drained: dict[str, list[str]]
    applications: dict[str, RunningApplication]
    canaries: dict[str, CanaryApplication]
    routes_revision: int
    fronts: dict[str, list[Any]]
    ports: dict[str, int]
    spread: FrontSpread | None = None
    wanted: list[Any] = field(default_factory=list)
