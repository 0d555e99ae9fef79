"""A cluster of real nodes on one machine; also found as `weft.cluster_utils`."""

from __future__ import annotations

from weft.cluster_utils import Cluster, ClusterNode

__all__ = ["Cluster", "ClusterNode"]
