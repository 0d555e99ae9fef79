"""Values of another node: how they come."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from clusters import THERE, TwoNodes

import weft
from waiting import wait_until
from weft.util.scheduling_strategies import NodeAffinitySchedulingStrategy


@weft.remote
def make(count: int, value: float) -> Any:
    return np.full(count, value)


@weft.remote
def sum_up(*arrays: Any) -> float:
    return sum(float(array[0]) for array in arrays)


def test_several_large_values_of_another_node_come_at_the_same_time(two_nodes: TwoNodes) -> None:
    """A round trip for all of them, not one for each."""
    refs = [make.options(**THERE).remote(1_000_000, value) for value in range(8)]
    weft.wait(refs, num_returns=8, fetch_local=False)
    assert [array[-1] for array in weft.get(refs)] == list(range(8))

    here = NodeAffinitySchedulingStrategy(weft.get_runtime_context().get_node_id(), soft=False)
    more = [make.options(**THERE).remote(1_000_000, value) for value in range(8)]
    weft.wait(more, num_returns=8, fetch_local=False)
    assert weft.get(sum_up.options(scheduling_strategy=here).remote(*more)) == 28.0

    def receptions() -> list[tuple[float, float]]:
        events = [event for event in weft.timeline() if event["name"] == "receive from a node"]
        return sorted((event["ts"], event["ts"] + event["dur"]) for event in events)

    wait_until(lambda: len(receptions()) == 16)
    for batch in (receptions()[:8], receptions()[8:]):
        overlapping = [ends > next_begins for (_, ends), (next_begins, _) in itertools.pairwise(batch)]
        assert any(overlapping), batch
