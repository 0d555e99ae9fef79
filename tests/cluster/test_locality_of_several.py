"""Of several nodes that have room, the one that has the bytes is asked for a worker."""

from __future__ import annotations

import numpy

import weft
from weft.cluster_utils import Cluster


@weft.remote(num_cpus=0)
def make() -> numpy.ndarray:
    return numpy.ones(1 << 20)


@weft.remote
def where(array: numpy.ndarray) -> str:
    return weft.get_runtime_context().get_node_id()


def test_each_of_several_nodes_runs_what_reads_its_objects() -> None:
    """The driver's node has no CPUs, so that both others are equally good but for the bytes."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    try:
        nodes = [cluster.add_node(num_cpus=2, resources={f"n{number}": 10}) for number in range(2)]
        cluster.wait_for_nodes()
        weft.init(address=cluster.address)
        for number in (0, 1, 1, 0, 1, 0):
            large = make.options(resources={f"n{number}": 1}).remote()
            weft.wait([large], fetch_local=False)
            assert weft.get(where.remote(large), timeout=60) == nodes[number].node_id
    finally:
        weft.shutdown()
        cluster.shutdown()
