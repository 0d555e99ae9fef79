"""Nodes that leave without loss."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from waiting import comes_true
from weft.cluster_utils import Cluster, ClusterNode
from weft.engine.cluster.client import Client
from weft.exceptions import ActorDiedError
from weft.job_submission import JobSubmissionClient
from weft.util.placement_group import placement_group, placement_group_table, remove_placement_group

BIG = 300_000


class Drained:
    """A head with the driver, a node that stays, and one that is to be drained; both have "work"."""

    def __init__(self) -> None:
        self.cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
        self.leaving = self.cluster.add_node(num_cpus=2, resources={"work": 2, "leaving": 2})
        weft.init(address=self.cluster.address)
        self.client = Client(self.cluster.address)

    def add(self, **options: Any) -> ClusterNode:
        return self.cluster.add_node(**({"num_cpus": 2, "resources": {"work": 2, "staying": 2}} | options))

    def begin(self, deadline_s: float = 30.0) -> None:
        self.client.ask("drain", node=self.leaving.node_id, deadline_s=deadline_s)

    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = self.client.ask("drain_state", node=self.leaving.node_id)
        return found

    def until_left(self) -> str:
        assert comes_true(lambda: self.state()["state"] == "dead", 40), self.state()
        assert comes_true(lambda: not self.leaving.is_alive())
        return str(self.state()["why"])


@pytest.fixture
def nodes() -> Iterator[Drained]:
    nodes = Drained()
    try:
        yield nodes
    finally:
        weft.shutdown()
        logs = [node.log() for node in nodes.cluster.list_all_nodes()]
        nodes.cluster.shutdown()
    assert not any(logs), "".join(logs)


@weft.remote
def where() -> str:
    return weft.get_runtime_context().get_node_id()


@weft.remote
def make(ran: str) -> Any:
    with open(ran, "a") as file:
        file.write("x")
    return np.arange(BIG)


@weft.remote
def total(array: Any) -> int:
    return int(array.sum())


@weft.remote
class Counter:
    def __init__(self) -> None:
        self.count = 0

    def add(self) -> int:
        self.count += 1
        return self.count

    def where(self) -> str:
        return weft.get_runtime_context().get_node_id()


def test_an_idle_node_leaves_at_once(nodes: Drained) -> None:
    nodes.begin()
    assert nodes.until_left() == "it was drained"
    assert [node["Alive"] for node in weft.nodes()] == [True, False]


def test_a_running_task_may_finish_and_new_ones_go_elsewhere(nodes: Drained, tmp_path: Path) -> None:
    nodes.add()
    go = tmp_path / "go"

    @weft.remote(resources={"leaving": 1})
    def slow() -> str:
        while not go.exists():
            time.sleep(0.01)
        return weft.get_runtime_context().get_node_id()

    ref = slow.remote()
    assert comes_true(lambda: weft.cluster_resources()["leaving"] - weft.available_resources().get("leaving", 0) == 1)
    nodes.begin()
    assert comes_true(lambda: any("task runs" in text for text in nodes.state()["holds"])), nodes.state()
    placed = weft.get([where.options(resources={"work": 1}).remote() for _ in range(8)], timeout=30)
    assert nodes.leaving.node_id not in placed
    go.touch()
    assert weft.get(ref, timeout=30) == nodes.leaving.node_id
    nodes.until_left()


def test_objects_outlive_the_node_that_made_them(nodes: Drained, tmp_path: Path) -> None:
    nodes.add()
    ran = tmp_path / "ran"
    refs = [make.options(resources={"leaving": 1}).remote(str(ran)) for _ in range(4)]
    weft.wait(refs, num_returns=4, fetch_local=False)
    known_elsewhere = weft.get(total.options(resources={"staying": 1}).remote(refs[0]))
    nodes.begin()
    nodes.until_left()
    assert [int(weft.get(ref, timeout=30).sum()) for ref in refs] == [known_elsewhere] * 4
    on_third_node = [total.options(resources={"staying": 1}).remote(ref) for ref in refs]
    assert weft.get(on_third_node, timeout=30) == [known_elsewhere] * 4
    assert ran.read_text() == "xxxx", "they were not made again"


def test_an_object_that_a_third_node_borrows_is_found_at_its_new_place(nodes: Drained, tmp_path: Path) -> None:
    nodes.add()

    @weft.remote(resources={"staying": 1})
    class Keeper:
        def keep(self, refs: list[Any]) -> None:
            self.ref = refs[0]

        def read(self) -> int:
            return int(weft.get(self.ref).sum())

    keeper = Keeper.remote()
    ran = tmp_path / "ran"
    ref = make.options(resources={"leaving": 1}).remote(str(ran))
    weft.get(keeper.keep.remote([ref]))
    nodes.begin()
    nodes.until_left()
    assert weft.get(keeper.read.remote(), timeout=30) == sum(range(BIG))
    assert ran.read_text() == "x"


def test_an_actor_that_may_restart_moves_and_loses_no_restart(nodes: Drained) -> None:
    actor = Counter.options(max_restarts=1, max_task_retries=-1, resources={"work": 1}).remote()
    assert weft.get(actor.where.remote()) == nodes.leaving.node_id
    staying = nodes.add()
    nodes.begin()
    nodes.until_left()
    assert weft.get(actor.where.remote(), timeout=30) == staying.node_id
    assert weft.get(actor.add.remote()) == 1
    weft.kill(actor, no_restart=False)
    assert weft.get(actor.add.remote(), timeout=30) == 1, "the one restart that it has was still there"
    weft.kill(actor, no_restart=False)
    with pytest.raises(ActorDiedError, match="1 of 1 restarts were used"):
        weft.get(actor.add.remote(), timeout=30)


def test_an_actor_waits_for_a_node_that_can_take_it(nodes: Drained) -> None:
    actor = Counter.options(max_restarts=-1, max_task_retries=-1, resources={"work": 1}).remote()
    assert weft.get(actor.add.remote()) == 1
    nodes.begin()
    assert comes_true(lambda: any("actor lives" in text for text in nodes.state()["holds"]))
    assert weft.get(actor.add.remote(), timeout=30) == 2
    staying = nodes.add()
    nodes.until_left()
    assert weft.get(actor.where.remote(), timeout=30) == staying.node_id


def test_an_actor_that_can_not_move_is_waited_for_until_the_deadline(nodes: Drained) -> None:
    actor = Counter.options(resources={"work": 1}).remote()
    weft.get(actor.add.remote())
    nodes.add()
    nodes.begin(deadline_s=1.0)
    assert weft.get(actor.add.remote(), timeout=30) == 2
    assert "at its deadline, though 1 actor lives" in nodes.until_left()
    with pytest.raises(ActorDiedError, match="it was drained"):
        weft.get(actor.add.remote(), timeout=30)


def test_a_placement_group_finds_another_place(nodes: Drained) -> None:
    group = placement_group([{"work": 1}], strategy="PACK")
    weft.get(group.ready(), timeout=30)
    staying = nodes.add()
    nodes.begin()
    nodes.until_left()
    assert comes_true(lambda: placement_group_table(group)["state"] == "CREATED")
    assert placement_group_table(group)["bundles_to_node_id"][0] == staying.node_id
    remove_placement_group(group)


def test_a_submitted_job_is_waited_for(nodes: Drained) -> None:
    jobs = JobSubmissionClient(nodes.cluster.address)
    job = jobs.submit_job(entrypoint="echo ready; sleep 1000", node_id=nodes.leaving.node_id)
    assert comes_true(lambda: "ready\n" in jobs.get_job_logs(job))
    nodes.begin()
    assert comes_true(lambda: "1 submitted job runs" in nodes.state()["holds"])
    jobs.stop_job(job)
    nodes.until_left()


def test_the_command_waits_and_says_what_for(nodes: Drained) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "weft.cli", "drain", *arguments, "--address", nodes.cluster.address]
        return subprocess.run(command, capture_output=True, text=True, timeout=280)

    unknown = run("nonsense")
    assert (unknown.returncode, "no living node is called 'nonsense'" in unknown.stderr) == (1, True)
    done = run(nodes.leaving.node_id[:8], "--reason", "the machine is needed", "--deadline", "30")
    assert done.returncode == 0, done.stderr
    assert "has left: it was drained (the machine is needed)" in done.stdout


def test_a_head_that_nobody_can_follow_is_not_drained() -> None:
    cluster = Cluster(initialize_head=True)
    try:
        assert cluster.head_node is not None
        with pytest.raises(ValueError, match="the head cannot be drained: no other node could take over"):
            Client(cluster.head_node.local_address).ask("drain", node=cluster.head_node.node_id)
    finally:
        cluster.shutdown()


def test_nodes_join_and_leave_while_work_goes_on(nodes: Drained) -> None:
    """No task is lost or refused, whoever comes and goes."""

    @weft.remote(resources={"work": 1}, max_retries=0)
    def square(x: int) -> int:
        time.sleep(0.01)
        return x * x

    refs = [square.remote(i) for i in range(60)]
    nodes.add()
    refs += [square.remote(i) for i in range(60, 120)]
    nodes.begin()
    refs += [square.remote(i) for i in range(120, 180)]
    assert weft.get(refs, timeout=60) == [i * i for i in range(180)]
    nodes.until_left()
