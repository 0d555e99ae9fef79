"""A cluster whose control store keeps its rows in Redis."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters import wait_until

import weft
from weft.cluster_utils import Cluster
from weft.engine.cluster.client import Client
from weft.engine.process import rpc

sys.path.append(str(Path(__file__).parents[1] / "contract"))
from redis_servers import RedisServer

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    made = RedisServer(tmp_path / "redis")
    made.start()
    try:
        yield made
    finally:
        made.stop()


def test_the_head_dies_and_what_it_kept_is_in_redis_until_the_cluster_ends(server: RedisServer) -> None:
    import redis

    rows = redis.Redis(unix_socket_path=str(server.socket))
    cluster = Cluster(initialize_head=True, head_node_args={"store": server.url})
    try:
        others = [cluster.add_node() for _ in range(2)]
        weft.init(address=others[1].local_address)
        client = Client(others[1].local_address)
        wait_until(lambda: client.ask("head")["store"]["replicas"] == 3)
        rpc.request("kv_put", key=b"key", value=b"value")
        wait_until(lambda: any(name.endswith(b":rows:kv") for name in rows.scan_iter("weft:*")))
        assert cluster.head_node is not None
        cluster.remove_node(cluster.head_node, allow_graceful=False)
        assert rpc.request("kv_get", key=b"key") == b"value"
        assert client.ask("head")["epoch"] == 2
    finally:
        weft.shutdown()
        cluster.shutdown()
    left = {name.split(b":")[1] for name in rows.scan_iter("weft:*")}
    assert len(left) <= 1, "only a server that was killed leaves its rows"
