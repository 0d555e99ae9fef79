"""Nodes in network namespaces: what crosses between them is encrypted, may be slow, and may stop."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from typing import Any

import numpy
import psutil
import pytest

import weft
from waiting import wait_until
from weft.cluster_utils import Cluster, ClusterNode
from weft.engine.cluster import executor, launch
from weft.engine.cluster.client import Client
from weft.engine.wire import link_messages as lm
from weft.testing.network import Network, is_available

MIB = 1 << 20
FAR = {"resources": {"far": 1}}


@pytest.fixture(scope="module")
def _needs_namespaces() -> None:
    """Not asked when the module is imported: a worker in a namespace imports it, too, and would try to make a network
    there, with the addresses of the one that it is in."""
    if not is_available():
        pytest.skip("namespaces and bridges need root and iproute2")


@pytest.fixture
def network(_needs_namespaces: None) -> Iterator[Network]:
    with Network() as made:
        yield made


@pytest.fixture
def cluster(network: Network) -> Iterator[Cluster]:
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "host": network.address})
    try:
        made.add_node(num_cpus=1, resources={"far": 10}, place=network.add_place())
        weft.init(address=made.address)
        yield made
    finally:
        for node in made.list_all_nodes():  # shown when the test fails
            print(f"{node}, its daemon's status {node._running.process.poll()}: {node.log()}")
        weft.shutdown()
        made.shutdown()


def wait_for_s(seconds: float) -> None:
    """Until the nodes have had so long: what they have noticed cannot be asked from outside their network."""
    until = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() > until)


@weft.remote(max_retries=0)
def double(array: numpy.ndarray) -> numpy.ndarray:
    return array * 2


@weft.remote
class Counter:
    def __init__(self) -> None:
        self.count = 0

    def add(self) -> int:
        self.count += 1
        return self.count

    def lend(self) -> list[weft.ObjectRef[int]]:
        return [weft.put(self.count)]


@weft.remote
class Mover:
    def pid(self) -> int:
        return os.getpid()


@weft.remote
def whereabouts() -> tuple[str, str]:
    return weft.util.get_node_ip_address(), weft.get_runtime_context().get_node_id()


@weft.remote(max_retries=0)
def breaks() -> None:
    raise ValueError("on purpose")


def test_each_machine_is_known_by_its_own_address(cluster: Cluster, network: Network) -> None:
    nodes = {node["NodeID"]: node["NodeManagerAddress"] for node in weft.nodes()}
    assert len(set(nodes.values())) == 2
    here, there = weft.get([whereabouts.remote(), whereabouts.options(**FAR).remote()])
    assert here == (network.address, weft.get_runtime_context().get_node_id())
    assert there[0] != network.address and nodes[there[1]] == there[0]
    assert weft.util.get_node_ip_address() == network.address
    with pytest.raises(ValueError, match="on purpose") as caught:
        weft.get(breaks.options(**FAR).remote())
    assert f"ip={there[0]}" in str(caught.value)
    workers = weft.util.state.list_workers()
    assert {worker["ip"] for worker in workers} == set(nodes.values())


def test_tasks_actors_and_objects_cross_an_encrypted_network(cluster: Cluster, network: Network) -> None:
    assert cluster.head_node is not None and len(cluster.head_node.fingerprint) == 64
    assert {node["NodeManagerAddress"] for node in weft.nodes()} == {network.address, network.places[0].address}
    array = numpy.arange(20 * MIB // 8)
    assert (weft.get(double.options(**FAR).remote(array), timeout=60) == array * 2).all()
    counter = Counter.options(**FAR).remote()
    assert weft.get([counter.add.remote() for _ in range(1000)], timeout=60) == list(range(1, 1001))
    network.places[0].delay(2)  # where this kernel can
    assert weft.get(double.options(**FAR).remote(1), timeout=60) == 2


def test_three_nodes_reach_each_other_and_pass_an_object_on(cluster: Cluster, network: Network) -> None:
    cluster.add_node(num_cpus=1, resources={"farther": 10}, place=network.add_place())
    made = double.options(**FAR).remote(numpy.ones(8 * MIB // 8))
    again = double.options(resources={"farther": 1}).remote(made)
    assert weft.get(again, timeout=60).sum() == 4 * MIB


def test_a_large_object_on_a_slow_line_does_not_keep_small_ones_waiting(cluster: Cluster, network: Network) -> None:
    counter = Counter.options(**FAR, num_cpus=0).remote()
    weft.get(counter.add.remote(), timeout=60)
    network.places[0].slow_down(80_000_000)
    large = double.options(**FAR).remote(weft.put(numpy.ones(20 * MIB // 8)))
    calls = 0
    while not weft.wait([large], timeout=0, fetch_local=False)[0]:
        weft.get(counter.add.remote(), timeout=60)
        calls += 1
    assert calls >= 5, "calls waited until the whole object had passed"


def test_a_node_that_is_cut_off_is_dead_to_the_others(cluster: Cluster, network: Network) -> None:
    ref = double.options(**FAR).remote(1)
    weft.get(ref, timeout=60)
    counter = Counter.options(**FAR, num_cpus=0).remote()
    weft.get(counter.add.remote(), timeout=60)
    network.places[0].cut()
    with pytest.raises(weft.exceptions.ActorDiedError, match="nothing was heard from it"):
        weft.get(counter.add.remote(), timeout=60)
    assert [node["Alive"] for node in weft.nodes()] == [True, False]


@weft.remote
class Caller:
    def __init__(self, counter: object) -> None:
        self.counter = counter

    def add(self) -> int:
        return weft.get(self.counter.add.remote())

    def read(self, lent: list[weft.ObjectRef[int]]) -> int:
        return weft.get(lent[0])


def test_calls_end_when_only_the_link_to_the_actors_node_breaks_and_go_on_later(
    cluster: Cluster, network: Network
) -> None:
    cluster.add_node(num_cpus=1, resources={"farther": 10}, place=network.add_place())
    counter = Counter.options(**FAR, num_cpus=0).remote()
    caller = Caller.options(resources={"farther": 1}, num_cpus=0, max_concurrency=2).remote(counter)
    assert weft.get(caller.add.remote(), timeout=60) == 1
    here, there = network.places
    lent = weft.get(counter.lend.remote(), timeout=60)
    here.lose(there)
    reading = caller.read.remote(lent)  # its owner is out of reach
    with pytest.raises(weft.exceptions.ActorUnavailableError, match="link to the actor's node broke"):
        weft.get(caller.add.remote(), timeout=60)
    assert weft.get(counter.add.remote(), timeout=60) >= 2, "the driver's node reaches it"
    here.find(there)  # the other side may not have noticed yet
    answer = None
    while answer is None:
        with contextlib.suppress(weft.exceptions.ActorUnavailableError):
            answer = weft.get(caller.add.remote(), timeout=60)
    with contextlib.suppress(weft.exceptions.ObjectLostError):
        assert weft.get(reading, timeout=60) == 1
    wait_for_s(executor.DOUBTS * executor.DOUBT_S)
    assert weft.get(caller.add.remote(), timeout=60) > answer
    assert all(node["Alive"] for node in weft.nodes())


def test_the_head_lets_one_of_two_nodes_go_that_have_lost_each_other(cluster: Cluster, network: Network) -> None:
    """What the other one wanted of it passes on, as from any dead node; nobody waits for ever."""
    goes = cluster.add_node(num_cpus=1, resources={"farther": 10}, place=network.add_place())
    counter = Counter.options(resources={"farther": 1}, num_cpus=0, max_restarts=0).remote()
    caller = Caller.options(**FAR, num_cpus=0, max_concurrency=2).remote(counter)
    assert weft.get(caller.add.remote(), timeout=60) == 1
    lent = weft.get(counter.lend.remote(), timeout=60)
    here, there = network.places
    here.lose(there)
    reading, calling = caller.read.remote(lent), caller.add.remote()  # what both need is out of reach
    with pytest.raises(weft.exceptions.ActorUnavailableError, match="link to the actor's node broke"):
        weft.get(calling, timeout=60)
    wait_until(lambda: not goes.is_alive(), timeout_s=60)  # the younger one, and no driver is attached to it
    assert "takes this node for dead: it has lost node 1, and one of the two had to go" in goes.log()
    assert weft.get(reading, timeout=60) == 1, "its owner's node is dead, and the driver has a ref"
    with pytest.raises(weft.exceptions.ActorDiedError):
        weft.get(caller.add.remote(), timeout=60)
    assert sorted(node["Alive"] for node in weft.nodes()) == [False, True, True]


def test_another_node_takes_over_from_a_head_on_an_encrypted_network(network: Network) -> None:
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "host": network.address})
    try:
        others = [cluster.add_node(num_cpus=1, place=network.add_place()) for _ in range(2)]

        def head(asked: ClusterNode) -> Any:
            question = lm.Call(1, "head", {})
            answer = launch.exchange(asked.node_address, cluster._token, question, timeout_s=30)
            assert isinstance(answer, lm.CallAnswer) and not answer.error, answer
            return answer.value

        assert cluster.head_node is not None
        wait_until(lambda: head(others[1])["store"]["replicas"] == 3)
        cluster.remove_node(cluster.head_node, allow_graceful=False)
        assert head(others[1])["epoch"] == 2
        late = cluster.add_node(num_cpus=1, place=network.add_place())
        assert head(late)["node_id"] in {node.node_id for node in others}
    finally:
        cluster.shutdown()


def test_an_actor_that_is_cut_off_has_ended_when_it_starts_again_elsewhere(cluster: Cluster, network: Network) -> None:
    """For this the node that is cut off ends before the others give it up."""
    mover = Mover.options(**FAR, num_cpus=0, max_restarts=1, max_task_retries=1).remote()
    first = weft.get(mover.pid.remote(), timeout=60)
    cluster.add_node(num_cpus=1, resources={"far": 10}, place=network.add_place())
    network.places[0].cut()
    second = weft.get(mover.pid.remote(), timeout=60)
    assert second != first and not psutil.pid_exists(first)
    cut_off = next(iter(cluster.worker_nodes))
    wait_until(lambda: not cut_off.is_alive())
    assert "cut off" in cut_off.log()


def test_a_head_that_falls_silent_is_followed_and_ends(network: Network) -> None:
    cluster = Cluster()
    try:
        head = cluster.add_node(num_cpus=1, place=network.add_place())
        near = cluster.add_node(num_cpus=1, resources={"near": 1}, host=network.address)
        cluster.add_node(num_cpus=1, place=network.add_place())
        weft.init(address=near.local_address)
        wait_until(lambda: Client(near.local_address).ask("head")["store"]["replicas"] == 3)
        network.places[0].cut()
        counter = Counter.options(resources={"near": 1}, num_cpus=0).remote()
        assert weft.get(counter.add.remote(), timeout=60) == 1
        assert Client(near.local_address).ask("head")["epoch"] == 2
        wait_until(lambda: not head.is_alive())
        assert "cut off" in head.log()
    finally:
        weft.shutdown()
        cluster.shutdown()


def test_a_wrong_fingerprint_keeps_a_node_out(network: Network) -> None:
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "host": network.address})
    try:
        assert cluster.head_node is not None
        cluster.head_node.fingerprint = "00" * 32
        with pytest.raises(RuntimeError, match="it is another node"):
            cluster.add_node(num_cpus=1, place=network.add_place())
    finally:
        cluster.shutdown()
