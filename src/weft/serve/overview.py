"""What a controller tells of what it runs: to routers, to the dashboard's page, to who asks for the status. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.serve.board import Described
from weft.serve.running import CanaryApplication, Running, RunningApplication
from weft.serve.state import ReplicaState
from weft.serve.table import Table

CANARY = "@canary"
Deployments = Mapping[str, Running]
"""By key, APP:DEPLOYMENT; canaries under APP:DEPLOYMENT@canary."""


def table_of(deployments: Deployments, canaries: Mapping[str, CanaryApplication], key: str) -> Table:
    """Where requests for a deployment go, its canary's replicas too."""
    running = deployments.get(key)
    if running is None:
        return Table(0, {}, frozenset(), frozenset(), 0, 0, False, is_gone=True)
    canary = deployments.get(key + CANARY)
    routed = canary.routed if canary is not None else {}
    both = [running, canary] if canary is not None else [running]
    share = canaries.get(key.partition(":")[0])
    config = running.state.config
    return Table(
        running.state.revision,
        {**running.routed, **routed},
        frozenset(name for one in both for name in one.state.draining),
        frozenset(name for one in both for name in one.drained) | frozenset(running.drained_canaries),
        config.max_ongoing_requests,
        config.max_queued_requests,
        config.retry_on_death,
        {name: record.node for one in both for name, record in one.state.replicas.items()},
        frozenset(routed),
        share.share if share is not None and routed else 0.0,
    )


def described(applications: Mapping[str, RunningApplication], deployments: Deployments) -> Described:
    """By application: its route, and its deployments by name, canaries too."""
    found = {}
    for one in applications.values():
        names = [*one.deployments, *(f"{name}{CANARY}" for name in one.deployments)]
        running = {name: deployments.get(f"{one.name}:{name}") for name in names}
        found[one.name] = (one.route_prefix, {name: of for name, of in running.items() if of is not None})
    return found


def status_of(application: RunningApplication, deployments: Deployments) -> dict[str, Any]:
    found = {}
    of_canary = [f"{name}{CANARY}" for name in application.deployments]
    for name in (*application.deployments, *of_canary):
        running = deployments.get(f"{application.name}:{name}")
        if running is None:
            continue
        state = running.state
        counts = {one.value: 0 for one in ReplicaState}
        for record in state.replicas.values():
            counts[record.state.value] += 1
        found[name] = {
            "status": state.status.value,
            "message": state.message,
            "replicas": {word: count for word, count in counts.items() if count},
            "target": state.target,
            "ongoing": state.ongoing,
        }
    return {"route_prefix": application.route_prefix, "deployments": found, "verdict": application.verdict}
