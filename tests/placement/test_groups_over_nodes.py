"""Placement groups over real nodes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import weft
from waiting import meet, wait_until
from weft.cluster_utils import Cluster
from weft.exceptions import ActorPlacementGroupRemoved, TaskPlacementGroupRemoved
from weft.util.placement_group import placement_group, placement_group_table, remove_placement_group
from weft.util.scheduling_strategies import PlacementGroupSchedulingStrategy


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A head with one CPU and a node with two."""
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    made.add_node(num_cpus=2)
    weft.init(address=made.address)
    try:
        yield made
    finally:
        weft.shutdown()
        made.shutdown()


@weft.remote(max_retries=0)
def where() -> str:
    return weft.get_runtime_context().get_node_id()


@weft.remote(max_retries=0)
def meet_there(folder: Path, then_s: float = 0) -> str:
    """Ends when it has run on two nodes, and some seconds later."""
    here: str = weft.get_runtime_context().get_node_id()
    meet(folder, here, 2)
    time.sleep(then_s)
    return here


@weft.remote(num_cpus=1)
class Actor:
    def where(self, seconds: float = 0) -> str:
        time.sleep(seconds)
        return weft.get_runtime_context().get_node_id()


def in_bundle(group: object, index: int = -1) -> dict[str, object]:
    return {"scheduling_strategy": PlacementGroupSchedulingStrategy(group, index)}


def test_tasks_and_actors_run_on_the_nodes_of_their_bundles(cluster: Cluster) -> None:
    group = placement_group([{"CPU": 1}, {"CPU": 1}], strategy="STRICT_SPREAD")
    assert group.wait(10)
    nodes = list(placement_group_table(group)["bundles_to_node_id"].values())
    assert set(nodes) == {node.node_id for node in cluster.list_all_nodes()}
    assert [weft.get(where.options(**in_bundle(group, index)).remote(), timeout=60) for index in (0, 1)] == nodes
    actors = [Actor.options(**in_bundle(group, index)).remote() for index in (0, 1)]
    assert weft.get([actor.where.remote() for actor in actors], timeout=60) == nodes


def test_any_bundle_means_all_nodes_of_the_group(cluster: Cluster, tmp_path: Path) -> None:
    group = placement_group([{"CPU": 1}, {"CPU": 1}], strategy="STRICT_SPREAD")
    refs = [meet_there.options(**in_bundle(group)).remote(tmp_path) for _ in range(4)]
    assert len(set(weft.get(refs, timeout=50))) == 2


def test_removing_ends_what_runs_on_every_node(cluster: Cluster, tmp_path: Path) -> None:
    group = placement_group([{"CPU": 1}, {"CPU": 1}], strategy="STRICT_SPREAD")
    assert group.wait(10)
    tasks = [meet_there.options(**in_bundle(group, index)).remote(tmp_path, 100) for index in (0, 1)]
    wait_until(lambda: len(os.listdir(tmp_path)) == 2)
    remove_placement_group(group)
    for task in tasks:
        with pytest.raises(TaskPlacementGroupRemoved):
            weft.get(task, timeout=60)
    group = placement_group([{"CPU": 2}])
    actor = Actor.options(**in_bundle(group)).remote()
    weft.get(actor.where.remote(), timeout=60)
    call = actor.where.remote(100)
    remove_placement_group(group)
    with pytest.raises(ActorPlacementGroupRemoved):
        weft.get(call, timeout=60)
    wait_until(lambda: weft.available_resources().get("CPU") == 3)


def test_a_group_waits_for_nodes_and_moves_when_one_dies(cluster: Cluster) -> None:
    group = placement_group([{"CPU": 1}] * 3, strategy="STRICT_SPREAD")
    assert not group.wait(0.2)
    added = cluster.add_node(num_cpus=1)
    assert group.wait(10)
    cluster.remove_node(added)
    wait_until(lambda: placement_group_table(group)["state"] == "RESCHEDULING")
    cluster.add_node(num_cpus=1)
    assert weft.get(group.ready(), timeout=60) == group


def test_a_worker_of_another_node_makes_and_removes_groups(cluster: Cluster) -> None:
    @weft.remote(num_cpus=2)
    def elsewhere() -> str:
        group = placement_group([{"CPU": 1}], name="made there")
        assert group.wait(10)
        found = weft.get(where.options(**in_bundle(group)).remote(), timeout=60)
        remove_placement_group(group)
        assert not group.wait(1)
        return found

    assert weft.get(elsewhere.remote(), timeout=30) == weft.get_runtime_context().get_node_id()
