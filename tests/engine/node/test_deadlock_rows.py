"""What a daemon tells of itself in a round that looks for deadlocks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from weft.engine.node.deadlocks import Deadlocks
from weft.engine.state.deadlock import Waiting, stuck
from weft.engine.state.workers import Place


def rows(actors: int, busy: int) -> list[Waiting]:
    """Of a node with so many actors that run, and so many processes that can be asked."""
    workers = [SimpleNamespace(place=Place.ACTOR, process=(slot, 1)) for slot in range(actors)]
    state: Any = SimpleNamespace(
        actors=SimpleNamespace(by_id={}, of_worker=lambda process: None),
        demands=SimpleNamespace(by_key={}),
        workers=workers,
    )
    nodes: Any = SimpleNamespace(
        cluster=None, node_id="node", busy_processes=lambda: [(slot, 1) for slot in range(busy)]
    )
    nothing: Any = SimpleNamespace(offer=lambda name, operation: None)
    return list(Deadlocks(nothing, state, nothing, nodes, nothing)._own_rows())


@pytest.mark.parametrize("count", [10, 100, 1_000])
def test_what_is_told_of_actors_grows_with_their_number_and_not_with_its_square(count: int) -> None:
    assert sum(len(row.on) for row in rows(count, count)) <= 2 * count


def test_what_an_actor_holds_comes_back_if_any_process_goes_on() -> None:
    told = {row.key: row for row in rows(2, 2)}
    kept = {"kept:node/0.1", "kept:node/1.1"}
    assert kept <= told.keys()
    assert not stuck(told) & kept, "nobody has said that the processes wait"
    both = {key: Waiting(key, ("wait:never",)) for key in ("process:node/0.1", "process:node/1.1")}
    never = {"wait:never": Waiting("wait:never", ())}
    assert stuck({**told, **both, **never}) >= kept
    one = {"process:node/0.1": both["process:node/0.1"]}
    assert not stuck({**told, **one, **never}) & kept
