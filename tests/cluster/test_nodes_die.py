"""Nodes that end, are killed, or come later."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from clusters import THERE, TwoNodes

import weft
from waiting import wait_until
from weft.cluster_utils import Cluster
from weft.engine.cluster.client import Client
from weft.engine.process.session import rpc
from weft.exceptions import ActorUnschedulableError, TaskUnschedulableError
from weft.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from weft.util.state import list_workers

STOPS_ITSELF = """
import os, signal, sys, weft
weft.init(address=sys.argv[1])

@weft.remote(resources={"there": 1})
def pid() -> int:
    return os.getpid()

ref = pid.remote()
os.kill(os.getpid(), signal.SIGSTOP)
print(weft.get(ref, timeout=40))
"""


@weft.remote
class Resident:
    def node_id(self) -> str:
        return weft.get_runtime_context().get_node_id()


def test_tasks_and_actors_of_a_killed_node_go_on_elsewhere(two_nodes: TwoNodes, tmp_path: Path) -> None:
    begun = tmp_path / "begun"

    @weft.remote(max_retries=2, num_cpus=2)
    def slow() -> str:
        """Its first attempt ends only with its node."""
        if not begun.exists():
            begun.touch()
            time.sleep(60)
        return weft.get_runtime_context().get_node_id()

    actor = Resident.options(max_restarts=1, max_task_retries=1, **THERE).remote()
    assert weft.get(actor.node_id.remote()) == two_nodes.other.node_id
    running = slow.remote()
    wait_until(begun.exists)
    third = two_nodes.cluster.add_node(num_cpus=2, resources={"there": 1})
    two_nodes.cluster.remove_node(two_nodes.other, allow_graceful=False)
    assert weft.get(actor.node_id.remote(), timeout=60) == third.node_id
    assert weft.get(running, timeout=60) == third.node_id
    alive = {node["NodeID"]: node["Alive"] for node in weft.nodes()}
    assert alive[two_nodes.other.node_id] is False
    assert sum(alive.values()) == 2


def test_a_task_runs_elsewhere_when_the_worker_that_it_was_promised_dies_before_it_is_sent(two_nodes: TwoNodes) -> None:
    """Nothing was sent to that worker, of another node, so nobody tells of its death: who sends must find it dead."""
    command = [sys.executable, "-c", STOPS_ITSELF, two_nodes.cluster.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as driver:
        try:
            wait_until(lambda: psutil.Process(driver.pid).status() == psutil.STATUS_STOPPED)
            job = next(row["job_id"] for row in list_workers() if row["pid"] == driver.pid)

            def promised() -> list[int]:
                """Asked of all nodes, so what they had said of deaths before has arrived."""
                rows = [row for row in list_workers() if row["job_id"] == job and row["state"] == "leased"]
                return [row["pid"] for row in rows]

            wait_until(promised)
            (worker,) = promised()
            os.kill(worker, signal.SIGKILL)
            wait_until(lambda: worker not in promised())
        finally:
            driver.send_signal(signal.SIGCONT)
        assert driver.stdout is not None
        assert int(driver.stdout.read()) != worker


def test_objects_of_a_killed_node_are_lost_but_copies_stay(two_nodes: TwoNodes) -> None:
    @weft.remote(max_retries=0)
    def make() -> Any:
        return np.ones(300_000)

    lost, read = make.options(**THERE).remote(), make.options(**THERE).remote()
    assert weft.get(read).sum() == 300_000
    weft.wait([lost], fetch_local=False)
    two_nodes.cluster.remove_node(two_nodes.other, allow_graceful=False)
    assert weft.get(read).sum() == 300_000
    with pytest.raises(weft.exceptions.ObjectLostError):
        weft.get(lost, timeout=60)


def test_an_actor_without_restarts_dies_with_its_node(two_nodes: TwoNodes) -> None:
    actor = Resident.options(**THERE).remote()
    weft.get(actor.node_id.remote())
    two_nodes.cluster.remove_node(two_nodes.other)
    with pytest.raises(weft.exceptions.ActorDiedError):
        weft.get(actor.node_id.remote(), timeout=60)


def test_work_waits_for_a_node_that_can_hold_it(two_nodes: TwoNodes) -> None:
    @weft.remote(resources={"later": 1})
    def late() -> str:
        return weft.get_runtime_context().get_node_id()

    waiting = late.remote()
    actor = Resident.options(resources={"later": 1}).remote()
    assert weft.wait([waiting], timeout=0.5)[0] == []
    node = two_nodes.cluster.add_node(num_cpus=1, resources={"later": 2})
    assert weft.get(waiting, timeout=60) == node.node_id
    assert weft.get(actor.node_id.remote(), timeout=60) == node.node_id


def test_a_driver_may_be_attached_to_any_node_that_is_left(two_nodes: TwoNodes) -> None:
    weft.shutdown()
    weft.init(address="auto")
    assert len([node for node in weft.nodes() if node["Alive"]]) == 2


def test_the_jobs_of_a_driver_end_with_it_on_every_node(two_nodes: TwoNodes) -> None:
    Resident.options(**THERE, name="attached").remote()
    detached = Resident.options(**THERE, name="detached", lifetime="detached", namespace="kept").remote()
    weft.get(detached.node_id.remote())
    weft.shutdown()
    weft.init(address=two_nodes.cluster.address, namespace="kept")
    assert weft.get(weft.get_actor("detached").node_id.remote(), timeout=60) == two_nodes.other.node_id
    wait_until(lambda: weft.available_resources()["there"] == 9)
    weft.kill(weft.get_actor("detached"))


def test_nodes_end_with_their_head() -> None:
    cluster = Cluster(initialize_head=True)
    node = cluster.add_node()
    assert cluster.head_node is not None
    cluster.remove_node(cluster.head_node, allow_graceful=False)
    wait_until(lambda: not node.is_alive())
    assert "the head of the cluster is gone" in node.log()
    cluster.shutdown()


def test_objects_that_do_not_fit_are_spilled_on_the_way() -> None:
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 64 << 20})
    try:
        cluster.add_node(num_cpus=1, resources={"there": 1}, object_store_memory=64 << 20)
        weft.init(address=cluster.address)

        @weft.remote(resources={"there": 1})
        def make(value: int) -> Any:
            return np.full(20 << 20, value, dtype=np.uint8)

        refs = [make.remote(value) for value in range(6)]
        for _ in range(2):
            assert [int(weft.get(ref)[-1]) for ref in refs] == list(range(6))
    finally:
        weft.shutdown()
        cluster.shutdown()


def test_the_last_words_of_every_node_are_printed() -> None:
    script = """if True:
        import sys, weft
        weft.init(address=sys.argv[1])
        @weft.remote(resources={"there": 1})
        def speak():
            print("last words")
        weft.get(speak.remote())
    """
    cluster = Cluster(initialize_head=True)
    try:
        cluster.add_node(resources={"there": 1})
        said = subprocess.run(
            [sys.executable, "-c", script, cluster.address], capture_output=True, text=True, timeout=30
        )
        assert "last words" in said.stdout + said.stderr, said
    finally:
        cluster.shutdown()


def test_all_nodes_but_the_head_may_be_asked_to_end_at_once_and_what_the_head_keeps_stays_safe() -> None:
    cluster = Cluster(initialize_head=True)
    try:
        others = [cluster.add_node() for _ in range(4)]
        weft.init(address=cluster.address)
        assert cluster.head_node is not None
        head = Client(cluster.head_node.local_address)
        wait_until(lambda: head.ask("head")["store"]["servers"] == 5)
        for node in others:
            os.kill(node.pid, signal.SIGTERM)
        for node in others:
            cluster.remove_node(node)
        assert rpc.request("kv_put", key=b"key", value=b"value") is True
        assert head.ask("head")["store"]["servers"] == 1
    finally:
        weft.shutdown()
        cluster.shutdown()


def test_a_cluster_can_be_built_twice() -> None:
    for _ in range(2):
        cluster = Cluster()
        assert cluster.address == ""
        head = cluster.add_node(num_cpus=1)
        others = [cluster.add_node(num_cpus=1) for _ in range(2)]
        cluster.wait_for_nodes()
        assert cluster.head_node is head
        assert list(cluster.worker_nodes) == others
        cluster.remove_node(others[0])
        cluster.wait_for_nodes()
        assert cluster.list_all_nodes() == [head, others[1]]
        cluster.shutdown()
        assert cluster.list_all_nodes() == []


def test_without_a_node_here_there_is_a_clear_error() -> None:
    with pytest.raises(ConnectionError, match=r"no node of the cluster 127\.0\.0\.1:1 runs on this machine"):
        weft.init(address="127.0.0.1:1")


def test_without_an_address_the_cluster_of_this_process_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WEFT_ADDRESS", raising=False)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    cluster = Cluster(initialize_head=True)
    try:
        assert weft.init()["address"] == cluster.address
        weft.shutdown()
        assert weft.init(address="local", num_cpus=1)["address"] != cluster.address
        weft.shutdown()
        assert weft.init(num_cpus=1)["address"] != cluster.address
    finally:
        weft.shutdown()
        cluster.shutdown()
    assert weft.init(num_cpus=1)["address"] != cluster.address
    weft.shutdown()


def test_wait_ends_when_the_bytes_can_never_come(two_nodes: TwoNodes) -> None:
    @weft.remote(max_retries=0, **THERE)
    def make_once() -> Any:
        return np.ones(300_000)

    made = make_once.remote()
    weft.wait([made], fetch_local=False)
    two_nodes.cluster.remove_node(two_nodes.other, allow_graceful=False)
    assert weft.wait([made], timeout=30) == ([made], [])
    with pytest.raises(weft.exceptions.ObjectLostError):
        weft.get(made, timeout=30)


def test_what_waits_for_one_node_alone_fails_when_that_is_gone(two_nodes: TwoNodes, tmp_path: Path) -> None:
    """It waits behind something else there, or for the node itself."""
    begun = tmp_path / "begun"

    @weft.remote(max_retries=0, **THERE)
    def hold() -> None:
        begun.touch()
        time.sleep(60)

    @weft.remote(max_retries=-1, num_cpus=2)
    def late() -> str:
        return "ran"

    there = NodeAffinitySchedulingStrategy(two_nodes.other.node_id, soft=False)
    holding = hold.options(num_cpus=2).remote()
    wait_until(begun.exists)
    waiting = late.options(scheduling_strategy=there).remote()
    actor = Resident.options(num_cpus=2, scheduling_strategy=there).remote()
    called = actor.node_id.remote()
    assert weft.wait([waiting, called], timeout=1)[0] == []
    two_nodes.cluster.remove_node(two_nodes.other, allow_graceful=False)
    with pytest.raises(TaskUnschedulableError, match=r"bound to is not alive"):
        weft.get(waiting, timeout=60)
    with pytest.raises(ActorUnschedulableError, match=r"bound to is not alive"):
        weft.get(called, timeout=60)
    del holding
