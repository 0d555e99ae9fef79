"""One object for many nodes: it spreads as a tree, in place of sources that die, and within each node's memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy
import pytest

import weft
from weft.cluster_utils import Cluster

NODES = 4
MIB = 1 << 20


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "object_store_memory": 256 * MIB})
    try:
        for number in range(NODES):
            made.add_node(num_cpus=1, resources={f"n{number}": 10}, object_store_memory=128 * MIB)
        weft.init(address=made.address)
        yield made
    finally:
        weft.shutdown()
        made.shutdown()


@weft.remote(max_retries=0)
def check_sum(array: numpy.ndarray) -> int:
    return int(array.sum())


def on(number: int) -> dict[str, dict[str, int]]:
    return {"resources": {f"n{number}": 1}}


def test_an_object_reaches_every_node_whole(cluster: Cluster) -> None:
    array = numpy.arange(40 * MIB // 8)
    expected = int(array.sum())
    for _ in range(3):
        ref = weft.put(array)
        sums = weft.get([check_sum.options(**on(n % NODES)).remote(ref) for n in range(2 * NODES)], timeout=60)
        assert sums == [expected] * 2 * NODES


def test_more_objects_than_fit_are_pulled_one_after_another(cluster: Cluster) -> None:
    arrays = [numpy.full(30 * MIB // 8, value) for value in range(7)]
    refs = [weft.put(array) for array in arrays]
    sums = weft.get([check_sum.options(**on(0)).remote(ref) for ref in refs], timeout=60)
    assert sums == [int(array.sum()) for array in arrays]


def test_an_object_that_can_never_fit_is_an_error_that_says_so(cluster: Cluster) -> None:
    ref = weft.put(numpy.ones(150 * MIB // 8))
    with pytest.raises(weft.exceptions.WeftError, match="there is no room for its"):
        weft.get(check_sum.options(**on(1)).remote(ref), timeout=60)
    assert weft.get(check_sum.options(**on(1)).remote(weft.put(numpy.ones(5 * MIB // 8))), timeout=60) == 5 * MIB // 8


def test_nodes_that_die_while_an_object_spreads_keep_it_from_nobody_else(cluster: Cluster) -> None:
    array = numpy.arange(60 * MIB // 8)
    ref = weft.put(array)
    refs = [check_sum.options(**on(number)).remote(ref) for number in range(NODES)]
    first, *_ = cluster.worker_nodes  # most likely one that passes it on
    cluster.remove_node(first, allow_graceful=False)
    assert weft.get(refs[1:], timeout=60) == [int(array.sum())] * (NODES - 1)
