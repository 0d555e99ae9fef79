"""Where a node stands: alone or in a cluster, its head or not, and how it sees itself among the others.

Pure: no I/O, no clock. The shell sets it when the node joins and when the head changes.
"""

from __future__ import annotations

from weft.engine.state.cluster import ClusterView, NodeView
from weft.engine.state.resources import ResourcePool
from weft.engine.wire.messages import Home


class Standing:
    """One node among others."""

    def __init__(self, resources: ResourcePool) -> None:
        self._resources = resources
        self.own = NodeView(0, "", {}, resources.total)
        """This node, as far as it is chosen by its id and labels."""
        self.cluster: ClusterView | None = None
        """The other nodes; None where there can be none."""
        self.is_head = True
        """Whether this node keeps the groups and actors of its cluster; alone it does."""
        self.waits_alone = False
        """Whether what it can never hold waits here though it is alone, as it would in a cluster, which may grow."""
        self.home = Home()
        """This node, for its workers."""

    @property
    def number(self) -> int:
        return self.cluster.own.number if self.cluster is not None else self.own.number

    @property
    def is_shared(self) -> bool:
        return self.cluster is not None and len(self.cluster.nodes) > 1

    @property
    def is_draining(self) -> bool:
        """Whether this node is to leave: it grants nothing any more."""
        return self.cluster is not None and self.cluster.own.is_draining

    def views(self) -> list[NodeView]:
        """All nodes that are known, this one as it is now."""
        own = self.own if self.cluster is None else self.cluster.own
        own.available = self._resources.available
        return [own] if self.cluster is None else list(self.cluster.nodes.values())

    def node_id(self, number: int | None) -> str:
        return next((node.node_id for node in self.views() if node.number == number), "")
