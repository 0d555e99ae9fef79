"""A cluster whose control store keeps its rows in Redis."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import weft
from waiting import children_named, wait_until
from weft.cluster_utils import Cluster, ClusterNode
from weft.engine.cluster.client import Client
from weft.engine.process.session import rpc
from weft.store.redis_storage import EXPIRES_S
from weft.util.scheduling_strategies import NodeAffinitySchedulingStrategy

sys.path.append(str(Path(__file__).parents[1] / "contract"))
from redis_servers import RedisServer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    made = RedisServer(tmp_path / "redis")
    made.start()
    try:
        yield made
    finally:
        made.stop()


@contextlib.contextmanager
def three_nodes(server: RedisServer) -> Iterator[tuple[Cluster, list[ClusterNode], Client]]:
    """Each with a server of the store and a row in it; the driver and the client are at the last one."""
    cluster = Cluster(initialize_head=True, head_node_args={"store": server.url})
    try:
        others = [cluster.add_node() for _ in range(2)]
        weft.init(address=others[1].local_address)
        client = Client(others[1].local_address)
        wait_until(lambda: client.ask("head")["store"]["replicas"] == 3)
        rpc.request("kv_put", key=b"key", value=b"value")
        yield cluster, others, client
    finally:
        weft.shutdown()
        cluster.shutdown()


def test_the_head_dies_and_what_it_kept_is_in_redis_until_the_cluster_ends(server: RedisServer) -> None:
    import redis

    rows = redis.Redis(unix_socket_path=str(server.socket))
    with three_nodes(server) as (cluster, _, client):
        wait_until(lambda: any(name.endswith(b":rows:kv") for name in rows.scan_iter("weft:*")))
        assert cluster.head_node is not None
        cluster.remove_node(cluster.head_node, allow_graceful=False)
        assert rpc.request("kv_get", key=b"key") == b"value"
        assert client.ask("head")["epoch"] == 2
    left = list(rows.scan_iter("weft:*"))
    assert len({name.split(b":")[1] for name in left}) <= 1, "only a node that was killed leaves its rows"
    assert all(0 < rows.ttl(name) <= EXPIRES_S for name in left), "and they do not stay"


@weft.remote(num_cpus=0)
class Owner:
    """A process of its own, which owns what it puts."""

    def pid(self) -> int:
        return os.getpid()

    def put(self, count: int) -> list[Any]:
        return [weft.put(number) for number in range(count)]


@pytest.mark.parametrize("loses_node", [False, True])
def test_rows_of_objects_and_of_heirs_go_when_the_objects_are_gone(server: RedisServer, loses_node: bool) -> None:
    import redis

    rows = redis.Redis(unix_socket_path=str(server.socket))

    def servers(table: str) -> int:
        """That have rows of it; a server that is killed leaves its rows there."""
        return len({name.split(b":")[1] for name in rows.scan_iter(f"weft:*:rows:{table}")})

    with three_nodes(server) as (cluster, others, _):
        there = NodeAffinitySchedulingStrategy(others[0].node_id, soft=False)
        owner = Owner.options(scheduling_strategy=there).remote()
        pid = weft.get(owner.pid.remote())
        refs = weft.get(owner.put.remote(20))
        wait_until(lambda: servers("objects") == 3)
        if loses_node:
            cluster.remove_node(others[0], allow_graceful=False)
        else:
            os.kill(pid, signal.SIGKILL)
        assert weft.get(refs, timeout=30) == list(range(20))
        assert servers("heirs") >= 2
        del refs
        wait_until(lambda: servers("objects") <= loses_node and servers("heirs") == 0)
    rows.close()


def test_a_server_that_is_killed_or_robbed_is_replaced_and_its_rows_are_removed(server: RedisServer) -> None:
    import redis

    rows = redis.Redis(unix_socket_path=str(server.socket))

    def owners() -> set[bytes]:
        return {name.split(b":")[1] for name in rows.scan_iter("weft:*")}

    with three_nodes(server) as (_, others, client):
        wait_until(lambda: len(owners()) == 3)
        before = owners()
        (victim,) = children_named(others[0].pid, "weft-control")
        victim.kill()
        wait_until(lambda: len(owners()) == 3 and len(owners() & before) == 2)
        wait_until(lambda: client.ask("head")["store"]["replicas"] == 3)
        robbed = sorted(owners() & before)[0]
        rows.delete(*rows.scan_iter(b"weft:" + robbed + b":*"))
        for number in range(20):  # in all shards, so that it is noticed
            rpc.request("kv_put", key=b"key%d" % number, value=b"value")
        wait_until(lambda: robbed not in owners() and len(owners()) == 3)
        wait_until(lambda: client.ask("head")["store"]["replicas"] == 3)
        assert rpc.request("kv_get", key=b"key") == b"value"
    assert not owners()
    rows.close()
