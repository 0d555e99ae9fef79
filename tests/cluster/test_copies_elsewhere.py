"""Objects whose bytes were on a node that died, and of which another node has a copy."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft
from weft.cluster_utils import Cluster, ClusterNode

pytestmark = pytest.mark.timeout(120)
SIZE = 100_000


@weft.remote(num_cpus=0, max_retries=0)
def ones() -> Any:
    return np.ones(SIZE)


@weft.remote(num_cpus=0)
class Holder:
    def __init__(self) -> None:
        self.refs: list[Any] = []

    def pid(self) -> int:
        return os.getpid()

    def put(self) -> list[Any]:
        return [weft.put(np.ones(SIZE))]

    def make(self, node: str) -> list[Any]:
        return [ones.options(resources={node: 1}).remote()]

    def hold(self, refs: list[Any]) -> None:
        self.refs = refs

    def read(self) -> float:
        return float(weft.get(self.refs[0], timeout=60).sum())


def end(holder: Any) -> None:
    """The process alone."""
    os.kill(weft.get(holder.pid.remote()), signal.SIGKILL)
    with pytest.raises(weft.exceptions.ActorDiedError):
        weft.get(holder.pid.remote())


class Nodes:
    """The driver's, which is the head, and four others with a resource of their names."""

    def __init__(self) -> None:
        self.cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
        self.nodes: dict[str, ClusterNode] = {}
        for name in "abcd":
            self.nodes[name] = self.cluster.add_node(num_cpus=1, resources={name: 9})
        weft.init(address=self.cluster.address)

    def holder(self, name: str) -> Any:
        return Holder.options(resources={name: 1}).remote()

    def kill(self, name: str) -> None:
        self.cluster.remove_node(self.nodes[name], allow_graceful=False)


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    nodes = Nodes()
    try:
        yield nodes
    finally:
        weft.shutdown()
        nodes.cluster.shutdown()


@pytest.mark.parametrize("is_known", [True, False])
def test_what_its_owner_has_read_is_read_by_others_after_its_node_died(nodes: Nodes, is_known: bool) -> None:
    reader = nodes.holder("b")
    ref = ones.options(resources={"a": 1}).remote()
    if is_known:
        weft.get(reader.hold.remote([ref]))
    assert weft.get(ref).sum() == SIZE
    nodes.kill("a")
    if not is_known:
        weft.get(reader.hold.remote([ref]))
    assert weft.get(reader.read.remote(), timeout=60) == SIZE


def test_what_an_heir_has_read_is_read_by_others_when_owner_and_bytes_are_gone(nodes: Nodes) -> None:
    owner, heir, reader = nodes.holder("a"), nodes.holder("c"), nodes.holder("d")
    [ref] = weft.get(owner.make.remote("b"))
    weft.get([heir.hold.remote([ref]), reader.hold.remote([ref])])
    assert weft.get(heir.read.remote()) == SIZE
    del ref
    end(owner)
    nodes.kill("b")
    assert weft.get(heir.read.remote(), timeout=60) == SIZE
    assert weft.get(reader.read.remote(), timeout=60) == SIZE


def test_a_copy_anywhere_keeps_what_an_heir_has_never_read(nodes: Nodes) -> None:
    owner, heir, reader = nodes.holder("a"), nodes.holder("c"), nodes.holder("d")
    [ref] = weft.get(owner.put.remote())
    more = [ref, *(weft.get(owner.put.remote())[0] for _ in range(3))]
    weft.get([heir.hold.remote(more), reader.hold.remote([ref])])  # it refers to the most
    assert weft.get(reader.read.remote()) == SIZE
    del ref, more
    end(owner)
    nodes.kill("a")
    assert weft.get(heir.read.remote(), timeout=60) == SIZE
    assert weft.get(reader.read.remote(), timeout=60) == SIZE


def test_a_copy_anywhere_keeps_what_may_not_be_made_again(nodes: Nodes) -> None:
    owner, reader = nodes.holder("a"), nodes.holder("c")
    [ref] = weft.get(owner.make.remote("b"))
    weft.get([owner.hold.remote([ref]), reader.hold.remote([ref])])
    assert weft.get(reader.read.remote()) == SIZE
    nodes.kill("b")
    assert weft.get(ref, timeout=60).sum() == SIZE
    assert weft.get(owner.read.remote(), timeout=60) == SIZE
