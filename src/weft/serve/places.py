"""Where a replica's actor is to be: on a node that has few of them, or in a placement group of its own.

Runs on the controller's loop.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import weft
from weft.serve.pending import needs
from weft.serve.running import Running
from weft.util.placement_group import get_placement_group, placement_group, remove_placement_group
from weft.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

LOOK_S = 0.5


async def find(running: Running, replica: str, name: str) -> Any:
    """A scheduling strategy, or None where any place will do. Waits while every node has as many replicas as it may;
    what it returns is of no use when the replica is not wanted any more."""
    config, record = running.state.config, running.state.replicas[replica]
    if config.placement_group_bundles:
        record.has_group = True
        bundles = [dict(one) for one in config.placement_group_bundles]
        group = await asyncio.to_thread(
            placement_group, bundles, config.placement_group_strategy, name, lifetime="detached"
        )
        return PlacementGroupSchedulingStrategy(group, 0, placement_group_capture_child_tasks=True)
    if config.max_replicas_per_node is None:
        return None
    while running.state.replicas.get(replica) is record:
        nodes = [one for one in await asyncio.to_thread(weft.nodes) if one["Alive"]]
        taken = [one.node for one in running.state.replicas.values() if one.node]
        node = choose(nodes, taken, config.max_replicas_per_node, needs(config.actor_options))
        if node is not None:
            record.node = node
            running.unplaced.discard(replica)
            return NodeAffinitySchedulingStrategy(node, soft=False)
        running.unplaced.add(replica)
        running.state.message = f"every node has {config.max_replicas_per_node} of its replicas, or cannot hold one"
        await asyncio.sleep(LOOK_S)
    running.unplaced.discard(replica)
    return None


def choose(
    nodes: Iterable[Mapping[str, Any]], taken: Iterable[str], most: int, needed: Mapping[str, float]
) -> str | None:
    """The node that has the fewest, of those that could hold one more.

    >>> a, b = ({"NodeID": one, "Resources": {"CPU": 4}} for one in "ab")
    >>> choose([a, b], ["a"], 2, {"CPU": 1}), choose([a, b], ["a", "b"], 1, {}), choose([a], [], 1, {"GPU": 1})
    ('b', None, None)
    """
    counts = Counter(taken)
    fitting = [
        one["NodeID"]
        for one in nodes
        if counts[one["NodeID"]] < most
        and all(one["Resources"].get(name, 0) >= amount for name, amount in needed.items())
    ]
    return min(fitting, key=lambda node: counts[node], default=None)


def give_up(name: str) -> None:
    """The placement group of a replica that has ended."""
    try:
        group = get_placement_group(name)
    except ValueError:  # it was given up already
        return
    remove_placement_group(group)
