"""Nodes in network namespaces: what crosses between them is encrypted, may be slow, and may stop."""

from __future__ import annotations

from collections.abc import Iterator

import numpy
import pytest

import weft
from weft.cluster_utils import Cluster
from weft.testing.network import Network, is_available

pytestmark = pytest.mark.skipif(not is_available(), reason="namespaces and bridges need root and iproute2")
MIB = 1 << 20
FAR = {"resources": {"far": 1}}


@pytest.fixture
def network() -> Iterator[Network]:
    with Network() as made:
        yield made


@pytest.fixture
def cluster(network: Network) -> Iterator[Cluster]:
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "host": network.address})
    try:
        made.add_node(num_cpus=1, resources={"far": 10}, place=network.add_place())
        weft.init(address=made.address)
        yield made
    finally:
        weft.shutdown()
        made.shutdown()


@weft.remote(max_retries=0)
def double(array: numpy.ndarray) -> numpy.ndarray:
    return array * 2


@weft.remote
class Counter:
    def __init__(self) -> None:
        self.count = 0

    def add(self) -> int:
        self.count += 1
        return self.count


def test_tasks_actors_and_objects_cross_an_encrypted_network(cluster: Cluster, network: Network) -> None:
    assert cluster.head_node is not None and len(cluster.head_node.fingerprint) == 64
    assert {node["NodeManagerAddress"] for node in weft.nodes()} == {network.address, network.places[0].address}
    array = numpy.arange(20 * MIB // 8)
    assert (weft.get(double.options(**FAR).remote(array), timeout=60) == array * 2).all()
    counter = Counter.options(**FAR).remote()
    assert weft.get([counter.add.remote() for _ in range(1000)], timeout=60) == list(range(1, 1001))
    network.places[0].delay(2)  # where this kernel can
    assert weft.get(double.options(**FAR).remote(1), timeout=60) == 2


def test_three_nodes_reach_each_other_and_pass_an_object_on(cluster: Cluster, network: Network) -> None:
    cluster.add_node(num_cpus=1, resources={"farther": 10}, place=network.add_place())
    made = double.options(**FAR).remote(numpy.ones(8 * MIB // 8))
    again = double.options(resources={"farther": 1}).remote(made)
    assert weft.get(again, timeout=60).sum() == 4 * MIB


def test_a_large_object_on_a_slow_line_does_not_keep_small_ones_waiting(cluster: Cluster, network: Network) -> None:
    counter = Counter.options(**FAR, num_cpus=0).remote()
    weft.get(counter.add.remote(), timeout=60)
    network.places[0].slow_down(80_000_000)
    large = double.options(**FAR).remote(weft.put(numpy.ones(20 * MIB // 8)))
    calls = 0
    while not weft.wait([large], timeout=0, fetch_local=False)[0]:
        weft.get(counter.add.remote(), timeout=60)
        calls += 1
    assert calls >= 5, "calls waited until the whole object had passed"


def test_a_node_that_is_cut_off_is_dead_to_the_others(cluster: Cluster, network: Network) -> None:
    ref = double.options(**FAR).remote(1)
    weft.get(ref, timeout=60)
    counter = Counter.options(**FAR, num_cpus=0).remote()
    weft.get(counter.add.remote(), timeout=60)
    network.places[0].cut()
    with pytest.raises(weft.exceptions.ActorDiedError, match="nothing was heard from it"):
        weft.get(counter.add.remote(), timeout=60)
    assert [node["Alive"] for node in weft.nodes()] == [True, False]


def test_a_wrong_fingerprint_keeps_a_node_out(network: Network) -> None:
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "host": network.address})
    try:
        assert cluster.head_node is not None
        cluster.head_node.fingerprint = "00" * 32
        with pytest.raises(RuntimeError, match="it is another node"):
            cluster.add_node(num_cpus=1, place=network.add_place())
    finally:
        cluster.shutdown()
