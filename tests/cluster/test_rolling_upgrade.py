"""Every node of a cluster is drained and started again, one after another, the head included, while work goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

import weft
from waiting import wait_until
from weft.cluster_utils import Cluster, ClusterNode
from weft.engine.cluster.client import Client

WORK = {"num_cpus": 2, "resources": {"work": 10}}
PARTS, LETTERS, ROWS = 4, 8, 20_000


@weft.remote(checkpoint=20, num_cpus=0, resources={"work": 1})
class Counter:
    """Exact."""

    def __init__(self) -> None:
        self.value = 0

    def add(self) -> int:
        self.value += 1
        return self.value


@weft.remote(num_returns=PARTS)
def count_letters(seed: int) -> list[Any]:
    """Of a text of its own: how often each letter comes, a part of the letters for each reducer; large enough to be
    objects of their node."""
    letters = np.random.default_rng(seed).integers(0, LETTERS, ROWS)
    return [np.tile(np.bincount(letters, minlength=LETTERS)[part::PARTS], 5_000) for part in range(PARTS)]


@weft.remote
def add_up(*counts: Any) -> Any:
    return sum(counts)[: LETTERS // PARTS]


class Working:
    """A thread that does the same again and again, and checks what comes of it."""

    def __init__(self, once: Callable[[int], None]) -> None:
        self.rounds = 0
        self.error: BaseException | None = None
        self._is_over = threading.Event()
        self._once = once
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._is_over.is_set():
                self._once(self.rounds)
                self.rounds += 1
        except BaseException as error:
            self.error = error

    def goes_on(self) -> None:
        """Returns after some more rounds."""
        until = self.rounds + 2
        wait_until(lambda: self.rounds >= until or self.error is not None)
        assert self.error is None, self.error

    def end(self) -> None:
        self._is_over.set()
        self._thread.join()
        assert self.error is None, self.error


def test_nodes_are_upgraded_one_by_one_while_work_goes_on() -> None:
    cluster = Cluster(initialize_head=True, head_node_args=WORK)
    working: list[Working] = []
    try:
        nodes = [cluster.head_node, cluster.add_node(**WORK), cluster.add_node(**WORK)]
        drivers = cluster.add_node(num_cpus=0)
        weft.init(address=drivers.local_address)
        client = Client(drivers.local_address)
        wait_until(lambda: client.ask("head")["store"]["replicas"] >= 3)
        counters = [Counter.options(max_restarts=-1).remote() for _ in range(3)]

        def count(number: int) -> None:
            values = weft.get([counter.add.remote() for counter in counters], timeout=60)
            assert values == [number + 1] * 3

        def map_and_reduce(number: int) -> None:
            seeds = range(number * 6, number * 6 + 6)
            mapped = [count_letters.remote(seed) for seed in seeds]
            reduced = weft.get([add_up.remote(*(parts[one] for parts in mapped)) for one in range(PARTS)], timeout=60)
            texts = [np.random.default_rng(seed).integers(0, LETTERS, ROWS) for seed in seeds]
            expected = sum(np.bincount(text, minlength=LETTERS) for text in texts)
            assert all((reduced[one] == expected[one::PARTS]).all() for one in range(PARTS))

        working = [Working(count), Working(map_and_reduce)]
        for node in [*nodes[1:], nodes[0]]:  # the head last
            assert node is not None
            upgrade(cluster, client, node)
            for one in working:
                one.goes_on()
        assert client.ask("head")["epoch"] == 2
        alive = [row["node_id"] for row in client.ask("status")["nodes"] if row["state"] == "alive"]
        assert len(alive) == 4 and not {node.node_id for node in nodes if node is not None} & set(alive)
    finally:
        try:
            for one in working:
                one.end()
        finally:
            weft.shutdown()
            cluster.shutdown()


def upgrade(cluster: Cluster, client: Client, node: ClusterNode) -> None:
    client.ask("drain", node=node.node_id, deadline_s=60.0, reason="upgrade")
    wait_until(lambda: not node.is_alive())
    assert client.ask("drain_state", node=node.node_id)["why"] == "it was drained (upgrade)"
    cluster.remove_node(node)
    cluster.add_node(**WORK)
