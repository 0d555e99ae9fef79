"""The cluster as the node daemon tells it: nodes, resources, what this worker holds."""

from __future__ import annotations

from typing import Any

from weft.engine.process.session import rpc
from weft.engine.process.session.attached import ensure
from weft.engine.process.session.context_state import here, state


def nodes() -> list[dict[str, Any]]:
    """One entry per node, living or dead: NodeID, Alive, NodeManagerAddress, Resources, Labels...

    >>> weft.nodes()[0]["Alive"]
    True
    """
    ensure()
    found: list[dict[str, Any]] = rpc.request("nodes")
    return found


def cluster_resources() -> dict[str, float]:
    """All that the living nodes have.

    >>> sorted(weft.cluster_resources())
    ['CPU', 'memory', 'node:...', 'object_store_memory']
    """
    ensure()
    found: dict[str, float] = rpc.request("cluster_resources")
    return found


def available_resources() -> dict[str, float]:
    """What is not held now; a resource that is used up is left out.

    >>> weft.available_resources().get("CPU", 0) <= weft.cluster_resources()["CPU"]
    True
    """
    ensure()
    found: dict[str, float] = rpc.request("available_resources")
    return {name: amount for name, amount in found.items() if amount}


def own_node_id() -> str:
    """Of the node that this process is on."""
    ensure()
    return state.node_id


def assigned_resources() -> dict[str, float]:
    """What this worker's task or actor holds; empty in a driver."""
    worker = here()
    if worker.held is not None:
        return dict(worker.held)
    if not worker.is_worker:
        return {}
    found: dict[str, float] = rpc.request("assigned_resources")
    return found


def actor_restarts(actor: bytes) -> int:
    """How often the actor was restarted."""
    if state.local is not None:
        return int(state.local.restarts_of(actor))
    found: dict[str, Any] = rpc.request("actor_info", actor=actor) or {}
    return int(found.get("restarts", 0))
