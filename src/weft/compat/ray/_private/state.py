"""`ray._private.state` of Ray 2.60: what there is in the cluster."""

from __future__ import annotations

from typing import Any

import weft
from weft import available_resources, cluster_resources, nodes, timeline
from weft.engine.cluster.client import Client
from weft.engine.process.session.session import context
from weft.util import placement_group_table as _table
from weft.util.placement_group import PlacementGroup

__all__ = [
    "available_resources",
    "available_resources_per_node",
    "cluster_resources",
    "nodes",
    "state",
    "timeline",
    "total_resources_per_node",
]


def available_resources_per_node() -> dict[str, dict[str, float]]:
    """What is free on each living node, by its id."""
    return {node["node_id"]: node["available"] for node in _living()}


def total_resources_per_node() -> dict[str, dict[str, float]]:
    """What each living node has, by its id."""
    return {node["node_id"]: node["total"] for node in _living()}


def _living() -> list[dict[str, Any]]:
    weft.nodes()  # attaches, where nothing has yet
    status: dict[str, Any] = Client(context()["address"]).ask("status")
    return [node for node in status["nodes"] if node["state"] != "dead"]


class _State:
    """`state.state`, an object of the same names."""

    available_resources = staticmethod(available_resources)
    available_resources_per_node = staticmethod(available_resources_per_node)
    cluster_resources = staticmethod(cluster_resources)
    node_table = staticmethod(nodes)
    total_resources_per_node = staticmethod(total_resources_per_node)

    def placement_group_table(self, placement_group_id: Any = None) -> dict[str, Any]:
        """Of one group by its id, or of all."""
        return _table() if placement_group_id is None else _table(PlacementGroup(placement_group_id))


state = _State()
