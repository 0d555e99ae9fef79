"""Connections that carry nothing, though nobody has closed them: they are noticed, and work goes on over others."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

import weft
from waiting import children_named, wait_until
from weft.cluster_utils import Cluster, ClusterNode
from weft.engine.cluster.client import Client
from weft.engine.process.session import rpc
from weft.net import endpoint
from weft.testing.cutting import silence, silence_between


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[ClusterNode]]:
    """The head and two others; the driver is attached to the last, and the store's rows are on all three."""
    monkeypatch.setenv(endpoint.VARIABLE, "0")
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        others = [cluster.add_node(num_cpus=1, resources={"away": 1}) for _ in range(2)]
        weft.init(address=others[-1].local_address)
        wait_until(lambda: Client(others[-1].local_address).ask("head")["store"]["replicas"] == 3)
        assert cluster.head_node is not None
        yield [cluster.head_node, *others]
    finally:
        weft.shutdown()
        cluster.shutdown()


@weft.remote
class Counter:
    def __init__(self) -> None:
        self.count = 0

    def add(self) -> int:
        self.count += 1
        return self.count


def store_of(node: ClusterNode) -> int:
    (found,) = children_named(node.pid, "weft-control")
    return found.pid


def test_a_connection_that_is_silenced_carries_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = socket.create_connection(listener.getsockname())
        other, _ = listener.accept()
        with one, other:
            silence(other.fileno())
            one.send(b"lost")
            other.settimeout(0.2)
            with pytest.raises(TimeoutError):
                other.recv(10)


def test_names_and_keys_go_on_when_the_heads_connections_to_the_store_go_dead(nodes: list[ClusterNode]) -> None:
    rpc.request("kv_put", key=b"key", value=b"before")
    assert sum(silence_between(nodes[0].pid, store_of(node)) for node in nodes) >= 3
    rpc.request("kv_put", key=b"key", value=b"after")
    assert rpc.request("kv_get", key=b"key") == b"after"
    named = Counter.options(name="named", num_cpus=0).remote()
    assert weft.get(named.add.remote(), timeout=60) == 1
    assert all(node.is_alive() for node in nodes)
    assert Client(nodes[-1].local_address).ask("head")["epoch"] == 1, "its lease is renewed over other connections"


def test_calls_go_on_when_the_connections_between_all_nodes_go_dead(nodes: list[ClusterNode]) -> None:
    counters = [Counter.options(resources={"away": 0.1}, num_cpus=0).remote() for _ in range(4)]
    assert weft.get([counter.add.remote() for counter in counters], timeout=60) == [1] * 4
    for node in nodes:
        for other in nodes:
            if node.pid < other.pid:
                assert silence_between(node.pid, other.pid) == 1
    assert weft.get([counter.add.remote() for counter in counters], timeout=60) == [2] * 4, "each is done once"
    assert weft.get(Counter.options(num_cpus=0).remote().add.remote(), timeout=60) == 1
    assert all(node.is_alive() for node in nodes)
    assert Client(nodes[-1].local_address).ask("head")["epoch"] == 1
