"""Where an object that many nodes want is pulled from: a tree while it spreads, stripes once it has spread."""

from __future__ import annotations

import random

import pytest

from weft.engine.state.copies import BRANCHES, STRIPES, Copies


def test_the_origin_serves_a_few_and_sends_the_others_to_those() -> None:
    copies = Copies(0)
    parents = {node: copies.asked(node) for node in range(1, 15)}
    served = [source for sources in parents.values() for source in sources]
    assert all(len(sources) == 1 for sources in parents.values())
    assert max(served.count(node) for node in range(15)) == BRANCHES
    depth = {0: 0}
    for node in sorted(parents):
        depth[node] = depth[parents[node][0]] + 1
    assert max(depth.values()) == 3, "14 nodes fit into three levels of a tree with two branches"


def test_a_pull_is_striped_over_those_that_have_it_all() -> None:
    copies = Copies(0)
    for node in range(1, 7):
        copies.asked(node)
        copies.ended(node, ok=True)
    sources = copies.asked(9)
    assert len(sources) == len(set(sources)) == STRIPES
    assert 9 not in sources


def test_a_node_that_gave_up_or_died_is_no_source() -> None:
    copies = Copies(0)
    for node in (1, 2, 3, 4):
        copies.asked(node)
    copies.ended(1, ok=False)
    copies.node_gone(2)
    assert copies.asked(5) == [0]
    assert copies.holders() == [0]


def test_a_source_that_failed_is_not_named_again() -> None:
    copies = Copies(0)
    copies.asked(1)
    copies.ended(1, ok=True)
    assert 1 not in copies.asked(2, without=[1])
    assert copies.asked(2, without=[0, 1]) == [0], "there is nobody else: the origin decides what becomes of it"


@pytest.mark.parametrize("seed", range(20))
def test_nobody_ever_waits_in_a_circle(seed: int) -> None:
    choose = random.Random(seed)
    copies = Copies(0)
    parents: dict[int, list[int]] = {}
    whole = {0}
    for _ in range(300):
        node = choose.randrange(1, 20)
        what = choose.random()
        if node not in parents or what < 0.5:
            without = choose.sample(range(20), choose.randrange(3))
            if node in whole:  # what it had sent out already comes to its end
                parents = without_parent(parents, node)
            parents[node] = copies.asked(node, without)
            whole.discard(node)
        elif what < 0.8:
            copies.ended(node, ok=True)
            whole.add(node)
        else:
            copies.node_gone(node)
            whole.discard(node)
            del parents[node]
            parents = without_parent(parents, node)  # those ask again
        for start in parents:
            check_ends(start, parents, whole, ())


def without_parent(parents: dict[int, list[int]], gone: int) -> dict[int, list[int]]:
    return {node: [source for source in sources if source != gone] for node, sources in parents.items()}


def check_ends(node: int, parents: dict[int, list[int]], whole: set[int], path: tuple[int, ...]) -> None:
    assert node not in path, f"node {node} waits for itself: {path}"
    if node not in whole:
        for source in parents.get(node, []):
            check_ends(source, parents, whole, (*path, node))
