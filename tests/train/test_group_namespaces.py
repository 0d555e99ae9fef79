"""Members in network namespaces of their own: what they exchange crosses a network, and a cable can be cut."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from group_members import MemberActor, error_of

import weft
from weft import train
from weft.testing import Cluster
from weft.testing.network import Network, is_available


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    """Two places, each with a node and a CPU; the head has none."""
    if not is_available():
        pytest.skip("namespaces and bridges need root and iproute2")
    with Network() as made:
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "host": made.address})
        try:
            for number in range(2):
                cluster.add_node(num_cpus=1, resources={f"place{number}": 1}, place=made.add_place())
            weft.init(address=cluster.address)
            yield made
        finally:
            weft.shutdown()
            cluster.shutdown()


def members(**options: Any) -> list[Any]:
    meeting = train.Meeting(2)
    made = [MemberActor.options(resources={f"place{rank}": 0.1}).remote(meeting, rank, options) for rank in range(2)]
    weft.get([one.join.remote() for one in made], timeout=60)
    return made


def test_sums_cross_the_network_to_the_last_bit(network: Network) -> None:
    def work(group: train.Group, length: int) -> Any:
        return group.all_reduce(np.random.default_rng(group.rank).normal(size=length))

    actors = members()
    for length in (3, 1_000_000):
        first, second = (np.random.default_rng(rank).normal(size=length) for rank in range(2))
        for result in weft.get([one.run.remote(work, length) for one in actors], timeout=60):
            np.testing.assert_array_equal(result, first + second)


def test_a_cable_that_is_cut_ends_the_operation_with_an_error(network: Network) -> None:
    def work(group: train.Group) -> None:
        while True:
            group.all_reduce(np.ones(100_000))

    refs = [one.run.remote(work) for one in members(timeout_s=2.0)]
    network.places[1].cut()
    try:
        error = error_of(refs[0])
        assert isinstance(error, train.GroupError) and "all_reduce" in str(error), error
    finally:
        network.places[1].mend()
