"""The cluster that most tests use."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from weft.cluster_utils import Cluster, ClusterNode

THERE = {"resources": {"there": 1}}
"""Options of work that only the second node can hold."""
SIZE = 300_000
"""Numbers in an array that is too large to go with a record."""


@weft.remote
def make(value: int) -> Any:
    return np.full(SIZE, value)


@weft.remote
def double(array: Any) -> Any:
    return array * 2


class TwoNodes:
    """A head with one CPU, to which the driver is attached, and a node with two and ten of the resource "there"."""

    def __init__(self) -> None:
        self.cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
        try:
            self.other: ClusterNode = self.cluster.add_node(num_cpus=2, resources={"there": 10})
            weft.init(address=self.cluster.address)
        except BaseException:
            self.cluster.shutdown()
            raise

    def close(self) -> None:
        logs = {node: node.log() for node in self.cluster.list_all_nodes()}
        weft.shutdown()
        self.cluster.shutdown()
        assert not any(logs.values()), logs
