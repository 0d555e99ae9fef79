"""Work goes to where its large inputs are, if there is room; small inputs, or a full node, change nothing."""

from __future__ import annotations

import numpy
from clusters import THERE, TwoNodes

import weft
from weft.util.scheduling_strategies import NodeAffinitySchedulingStrategy

MIB = 1 << 20


@weft.remote(num_cpus=0)
def make(size: int) -> numpy.ndarray:
    return numpy.ones(size // 8)


@weft.remote
def where(*inputs: numpy.ndarray) -> str:
    return weft.get_runtime_context().get_node_id()


@weft.remote
class Blocker:
    def ready(self) -> None: ...


def test_a_task_runs_where_its_large_inputs_are(shared_two_nodes: TwoNodes) -> None:
    here = weft.get_runtime_context().get_node_id()
    large = make.options(**THERE).remote(8 * MIB)
    weft.wait([large], fetch_local=False)
    assert weft.get(where.remote(), timeout=30) == here
    assert weft.get(where.remote(large), timeout=30) == shared_two_nodes.other.node_id


def test_many_tasks_follow_their_inputs(shared_two_nodes: TwoNodes) -> None:
    far = [make.options(**THERE).remote(2 * MIB) for _ in range(10)]
    weft.wait(far, num_returns=10, fetch_local=False)
    places = weft.get([where.remote(ref) for ref in far], timeout=60)
    assert places.count(shared_two_nodes.other.node_id) > len(far) // 2


def test_a_full_node_does_not_keep_its_objects_readers_waiting(shared_two_nodes: TwoNodes) -> None:
    here = weft.get_runtime_context().get_node_id()
    large = make.options(**THERE).remote(8 * MIB)
    weft.wait([large], fetch_local=False)
    on_it = NodeAffinitySchedulingStrategy(shared_two_nodes.other.node_id, soft=False)
    blockers = [Blocker.options(num_cpus=1, scheduling_strategy=on_it).remote() for _ in range(2)]
    weft.get([blocker.ready.remote() for blocker in blockers], timeout=30)
    try:
        assert weft.get(where.remote(large), timeout=30) == here
    finally:
        for blocker in blockers:
            weft.kill(blocker)


def test_a_task_that_can_not_follow_its_inputs_runs_where_it_must(shared_two_nodes: TwoNodes) -> None:
    """Its kind's worker there is free, and holds the CPU that another one would need."""
    here = weft.get_runtime_context().get_node_id()
    large = make.options(**THERE).remote(8 * MIB)
    weft.wait([large], fetch_local=False)
    must = where.options(scheduling_strategy=NodeAffinitySchedulingStrategy(here, soft=False))
    for _ in range(3):
        assert weft.get(must.remote(), timeout=30) == here
        assert weft.get(must.remote(large), timeout=30) == here
