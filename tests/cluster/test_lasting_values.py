"""Values that are put with replicas or durable outlive the node that they were put on."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from waiting import wait_until
from weft import _native
from weft.cluster_utils import Cluster, ClusterNode
from weft.engine.cluster.client import Client

SIZE = 300_000


@weft.remote
class Owner:
    def pid(self) -> int:
        return os.getpid()

    def put(self, value: Any, **how: Any) -> list[Any]:
        return [weft.put(value, **how)]


class ThreeNodes:
    """The driver's, one that dies, and a third."""

    def __init__(self, storage: Path) -> None:
        self.storage = storage
        where = {"storage": str(storage)}
        self.cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, **where})
        self.dies: ClusterNode = self.cluster.add_node(num_cpus=1, resources={"dies": 9}, **where)
        self.third: ClusterNode = self.cluster.add_node(num_cpus=1, **where)
        weft.init(address=self.cluster.address)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[ThreeNodes]:
    made = ThreeNodes(tmp_path)
    try:
        yield made
    finally:
        weft.shutdown()
        made.cluster.shutdown()


def folders(nodes: ThreeNodes) -> list[Path]:
    return list(nodes.storage.glob("weft-storage-*/*"))


def test_replicas_and_durable_values_outlive_their_node(nodes: ThreeNodes) -> None:
    owner = Owner.options(resources={"dies": 1}).remote()
    asked = [
        owner.put.remote(np.full(SIZE, 1), replicas=3),
        owner.put.remote(np.full(SIZE, 2), durable=True),
        owner.put.remote("small", replicas=2),
        owner.put.remote({"inner": [weft.put("nested")], "array": np.full(SIZE, 3)}, durable=True),
    ]
    first, second, third, fourth = [box[0] for box in weft.get(asked)]
    nodes.cluster.remove_node(nodes.dies, allow_graceful=False)
    assert weft.get(first, timeout=60).sum() == SIZE
    assert weft.get(second, timeout=60).sum() == 2 * SIZE
    assert weft.get(third, timeout=60) == "small"
    last = weft.get(fourth, timeout=60)
    assert last["array"].sum() == 3 * SIZE
    assert weft.get(last["inner"], timeout=60) == ["nested"]


def test_a_replica_is_freed_with_its_object(nodes: ThreeNodes) -> None:
    ref = weft.put(np.ones(SIZE), replicas=3)
    assert weft.get(ref).sum() == SIZE
    del ref
    wait_until(lambda: _native.statistics()["objects_owned"] == 0)


def holders(nodes: list[ClusterNode]) -> list[ClusterNode]:
    """The nodes that have a copy of the only array."""
    used = {node: Client(node.local_address).ask("node_report")["objects"]["used_bytes"] for node in nodes}
    return [node for node in nodes if used[node] >= 8 * SIZE]


def test_a_replica_that_is_lost_is_made_again(nodes: ThreeNodes) -> None:
    assert nodes.cluster.head_node is not None
    living = [nodes.cluster.head_node, nodes.dies, nodes.third]
    ref = weft.put(np.ones(SIZE), replicas=2)
    wait_until(lambda: len(holders(living)) == 2)
    (lost,) = (node for node in holders(living) if node is not nodes.cluster.head_node)
    living.remove(lost)
    nodes.cluster.remove_node(lost, allow_graceful=False)
    wait_until(lambda: holders(living) == living)
    living.append(nodes.cluster.add_node(num_cpus=1))
    nodes.cluster.remove_node(living.pop(1), allow_graceful=False)
    wait_until(lambda: holders(living) == living)
    del ref
    wait_until(lambda: holders(living) == [])


def test_replicas_are_made_again_by_whoever_takes_over(nodes: ThreeNodes) -> None:
    assert nodes.cluster.head_node is not None
    living = [nodes.cluster.head_node, nodes.dies, nodes.third, nodes.cluster.add_node(num_cpus=1)]
    owner = Owner.options(resources={"dies": 1}).remote()
    (ref,) = weft.get(owner.put.remote(np.full(SIZE, 7.0), replicas=2))
    wait_until(lambda: len(holders(living)) == 2)
    living.remove(nodes.dies)
    nodes.cluster.remove_node(nodes.dies, allow_graceful=False)
    wait_until(lambda: len(holders(living)) == 2)
    assert nodes.cluster.head_node in holders(living), "the driver owns it now"
    (second,) = (node for node in holders(living) if node is not nodes.cluster.head_node)
    living.remove(second)
    nodes.cluster.remove_node(second, allow_graceful=False)
    wait_until(lambda: holders(living) == living)
    assert weft.get(weft.remote(np.sum).remote(ref), timeout=60) == 7 * SIZE
    assert weft.get(ref, timeout=60).sum() == 7 * SIZE


def test_more_replicas_than_nodes_are_refused_with_a_reason(nodes: ThreeNodes) -> None:
    with pytest.raises(ValueError, match=r"replicas=4 needs 4 living nodes, but the cluster has 3 nodes.*durable=True"):
        weft.put(1, replicas=4)
    with pytest.raises(ValueError, match="replicas must be at least 1, the value itself, but got 0"):
        weft.put(1, replicas=0)
    with pytest.raises(TypeError, match="replicas must be a whole number, but got 'two'"):
        weft.put(1, replicas="two")  # type: ignore[arg-type]


def test_the_storage_folder_outlives_killed_nodes_and_goes_with_the_cluster(nodes: ThreeNodes) -> None:
    ref = weft.put("kept", durable=True)
    [folder] = folders(nodes)
    assert weft.get(ref) == "kept"
    nodes.cluster.remove_node(nodes.dies, allow_graceful=False)
    assert any(folder.glob("value-*"))
    weft.shutdown()
    nodes.cluster.shutdown()
    assert folders(nodes) == []


def test_a_durable_value_that_can_not_be_written_says_why(nodes: ThreeNodes) -> None:
    weft.put(1, durable=True)
    [folder] = folders(nodes)
    moved = folder.rename(folder.with_name("moved"))
    try:
        with pytest.raises(FileNotFoundError, match="weft-storage"):
            weft.put(2, durable=True)
    finally:
        moved.rename(folder)


def test_the_file_of_a_durable_value_goes_with_its_last_ref(tmp_path: Path) -> None:
    def files() -> list[Path]:
        return [path for path in tmp_path.rglob("value-*") if path.is_file()]

    weft.init(num_cpus=1, storage=str(tmp_path))
    try:
        kept, dropped = weft.put(np.full(SIZE, 1), durable=True), weft.put(np.full(SIZE, 2), durable=True)
        assert len(files()) == 2
        holder = weft.put([dropped])
        del dropped
        assert len(files()) == 2
        del holder
        wait_until(lambda: len(files()) == 1)
        assert weft.get(kept).sum() == SIZE
    finally:
        weft.shutdown()


def test_a_durable_value_of_one_node_needs_no_cluster(tmp_path: Path) -> None:
    weft.init(num_cpus=1, storage=str(tmp_path))
    try:
        ref = weft.put(np.ones(SIZE), durable=True)
        assert weft.get(ref).sum() == SIZE
        with pytest.raises(ValueError, match="the cluster has 1 node"):
            weft.put(1, replicas=2)
    finally:
        weft.shutdown()
    assert list(tmp_path.glob("weft-storage-*/*")) == []


def test_what_a_killed_cluster_has_left_is_removed_by_the_next(tmp_path: Path) -> None:
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "storage": str(tmp_path)})
    weft.init(address=cluster.address)
    kept = weft.put(1, durable=True)  # its file would go with it
    assert cluster.head_node is not None
    [left] = tmp_path.glob("weft-storage-*/*")
    os.kill(cluster.head_node.pid, signal.SIGKILL)
    weft.shutdown()
    cluster.shutdown()
    assert left.exists(), kept
    weft.init(num_cpus=1, storage=str(tmp_path))
    try:
        weft.put(1, durable=True)
        assert not left.exists()
    finally:
        weft.shutdown()
