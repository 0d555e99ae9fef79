"""The head is killed: jobs on the other nodes go on, another node takes its duties over, and nothing that was
acknowledged is lost."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import weft
from waiting import children_named, those, wait_until
from weft.cluster_utils import Cluster, ClusterNode
from weft.engine.cluster.client import Client
from weft.engine.process.session import rpc
from weft.exceptions import ActorDiedError
from weft.net import endpoint
from weft.store.state.chain_layout import shard_of
from weft.util.placement_group import placement_group, remove_placement_group
from weft.util.state import list_cluster_events

ON_HEAD = {"resources": {"first": 1}}
AWAY = {"resources": {"away": 1}}


class HeadAndOthers:
    """A head and others; the driver is attached to the last of these, and the store's servers are up."""

    def __init__(self, others: int = 2, **of_head: Any) -> None:
        given = {"num_cpus": 1, "resources": {"first": 4}, **of_head}
        self.cluster = Cluster(initialize_head=True, head_node_args=given)
        self.others: list[ClusterNode] = []
        try:
            for _ in range(others):
                self.others.append(self.cluster.add_node(num_cpus=2, resources={"away": 4}))
            weft.init(address=self.others[-1].local_address)
            self.wait_for_stores()
        except BaseException:
            self.close()
            raise

    @property
    def head(self) -> ClusterNode:
        assert self.cluster.head_node is not None
        return self.cluster.head_node

    def stores(self) -> list[int]:
        """The processes of the control store."""
        daemons = [node.pid for node in self.cluster.list_all_nodes() if node.is_alive()]
        return [store.pid for daemon in daemons for store in children_named(daemon, "weft-control")]

    def wait_for_stores(self) -> None:
        """Until each node has a server and a write is in all of them: then any one of the nodes may die."""
        wait_until(lambda: len(self.stores()) == len(self.cluster.list_all_nodes()))
        wait_until(lambda: self.head_status()["store"]["replicas"] >= min(3, 1 + len(self.others)))

    def head_status(self) -> Any:
        return Client(self.others[-1].local_address).ask("head")

    def kill_head(self) -> None:
        self.cluster.remove_node(self.head, allow_graceful=False)

    def close(self) -> None:
        weft.shutdown()
        self.cluster.shutdown()


@pytest.fixture
def nodes() -> Iterator[HeadAndOthers]:
    made = HeadAndOthers()
    try:
        yield made
    finally:
        made.close()


@weft.remote
class Counter:
    def __init__(self) -> None:
        self.count = 0

    def add(self) -> int:
        self.count += 1
        return self.count

    def node_id(self) -> str:
        return weft.get_runtime_context().get_node_id()


@weft.remote
def double(number: int) -> int:
    return 2 * number


@weft.remote(max_retries=1)
def die_once(folder: str) -> str:
    try:
        os.close(os.open(f"{folder}/died", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return "done"
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


def test_the_new_head_goes_on_with_the_chronicle_of_the_old_one(nodes: HeadAndOthers, tmp_path: Path) -> None:
    assert weft.get(die_once.options(**AWAY).remote(str(tmp_path)), timeout=30) == "done"
    wait_until(lambda: any("a worker of job" in row.message for row in list_cluster_events()))
    old = nodes.head.node_id
    nodes.kill_head()
    wait_until(lambda: any("took over as head" in row.message for row in list_cluster_events()))
    told = list_cluster_events()[::-1]
    joined = [row.subject_id for row in told if row.message.endswith("joined")]
    assert joined[-2:] == [node.node_id for node in nodes.others], "told by the head that is dead"
    assert any(row.source_type == "WORKER" and "a worker of job" in row.message for row in told)
    assert any(row.subject_id == old and "is gone" in row.message and row.severity == "WARNING" for row in told)
    assert [row.time_s for row in told] == sorted(row.time_s for row in told)


def test_tasks_and_actors_of_a_running_job_go_on_while_the_head_is_killed(nodes: HeadAndOthers) -> None:
    counters = [Counter.options(**AWAY).remote() for _ in range(3)]
    weft.get([counter.add.remote() for counter in counters])
    killer = threading.Thread(target=nodes.kill_head)
    totals = [1] * 3
    for turn in range(40):
        if turn == 5:
            killer.start()
        assert weft.get([double.remote(n) for n in range(200)], timeout=30) == [2 * n for n in range(200)]
        totals = weft.get([counter.add.remote() for counter in counters], timeout=30)
    killer.join()
    assert totals == [41] * 3, "no call was lost, none was done twice"
    later = Counter.options(**AWAY).remote()
    assert weft.get(later.add.remote(), timeout=30) == 1
    assert sum(node["Alive"] for node in weft.nodes()) == 2


def test_names_keys_and_groups_that_were_acknowledged_are_there_afterwards(nodes: HeadAndOthers) -> None:
    named = Counter.options(name="named", **AWAY).remote()
    detached = Counter.options(name="detached", lifetime="detached", **AWAY).remote()
    assert weft.get([named.add.remote(), detached.add.remote()]) == [1, 1]
    for number in range(50):
        rpc.request("kv_put", key=b"k%d" % number, value=b"v%d" % number)
    group = placement_group([{"CPU": 1}], name="group")
    weft.get(group.ready(), timeout=30)
    nodes.kill_head()
    for number in range(50):
        assert rpc.request("kv_get", key=b"k%d" % number) == b"v%d" % number
    assert weft.get(weft.get_actor("named").add.remote(), timeout=30) == 2
    assert weft.get(weft.get_actor("detached").add.remote(), timeout=30) == 2
    with pytest.raises(ValueError, match="already taken"):
        Counter.options(name="named").remote()
    assert weft.util.get_placement_group("group").id == group.id
    remove_placement_group(group)


def test_keys_written_while_the_head_dies_are_made_once_and_are_there_afterwards(nodes: HeadAndOthers) -> None:
    killer = threading.Thread(target=nodes.kill_head)
    for number in range(300):
        key = b"%d" % number
        assert rpc.request("kv_put", key=key, value=key, overwrite=False) is True, "it may have been asked for twice"
        assert rpc.request("kv_put", key=key, value=b"late", overwrite=False) is False
        if number % 2:
            assert rpc.request("kv_del", key=key) is True
        if number == 100:
            killer.start()
    killer.join()
    found = [rpc.request("kv_get", key=b"%d" % number) for number in range(300)]
    assert found == [None if number % 2 else b"%d" % number for number in range(300)]


def test_an_actor_of_the_head_node_restarts_elsewhere_and_one_that_may_not_dies(nodes: HeadAndOthers) -> None:
    restarts = Counter.options(max_restarts=1, max_task_retries=2, resources={"first": 2}).remote()
    dies = Counter.options(resources={"first": 2}).remote()
    assert weft.get([restarts.node_id.remote(), dies.node_id.remote()]) == [nodes.head.node_id] * 2
    big = nodes.cluster.add_node(num_cpus=1, resources={"first": 2})
    nodes.kill_head()
    assert weft.get(restarts.node_id.remote(), timeout=30) == big.node_id
    with pytest.raises(ActorDiedError, match="died"):
        weft.get(dies.add.remote(), timeout=30)


def test_what_is_begun_while_there_is_no_head_waits_for_the_next(nodes: HeadAndOthers) -> None:
    os.kill(nodes.head.pid, signal.SIGSTOP)
    try:
        made = Counter.options(**AWAY).remote()
        call = made.add.remote()
    finally:
        os.kill(nodes.head.pid, signal.SIGKILL)
    assert weft.get(call, timeout=30) == 1


def test_a_node_that_came_just_before_the_head_died_follows_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no server of the store, and nobody has told it yet who has one."""
    monkeypatch.setenv(endpoint.VARIABLE, "0")
    nodes = HeadAndOthers(others=4)
    try:
        stopped = [psutil.Process(other.pid) for other in nodes.others]
        for process in stopped:
            process.suspend()
        last = nodes.cluster.add_node(num_cpus=1, resources={"last": 1})
        port = int(nodes.cluster.address.rpartition(":")[2])
        nodes.kill_head()
        lines = psutil.Process(last.pid).net_connections
        wait_until(lambda: not any(line.raddr and line.raddr.port == port for line in lines()))
        for process in stopped:
            process.resume()
        counter = Counter.options(resources={"last": 1}).remote()
        assert weft.get(counter.node_id.remote(), timeout=60) == last.node_id
    finally:
        nodes.close()


def test_the_next_head_can_be_lost_too() -> None:
    nodes = HeadAndOthers(4)
    try:
        here = weft.get_runtime_context().get_node_id()
        counter = Counter.options(label_selector={"ray.io/node_id": here}).remote()
        assert weft.get(counter.add.remote()) == 1
        wait_until(lambda: nodes.head_status()["store"]["servers"] == 5)
        nodes.kill_head()
        wait_until(lambda: nodes.head_status()["epoch"] == 2)
        acting = nodes.head_status()["node_id"]
        second = next(node for node in nodes.others if node.node_id == acting)
        assert acting != here, "those that came first come first"
        # What the first one had is elsewhere: two of three replicas may not die at once.
        wait_until(lambda: nodes.head_status()["store"]["servers"] == 4)
        wait_until(lambda: nodes.head_status()["store"]["replicas"] >= 3)
        nodes.cluster.remove_node(second, allow_graceful=False)
        assert weft.get(Counter.options(**AWAY).remote().add.remote(), timeout=30) == 1
        assert weft.get(counter.add.remote(), timeout=30) == 2
    finally:
        nodes.close()


def test_the_rows_of_all_shards_outlive_the_head_however_many_there_are() -> None:
    nodes = HeadAndOthers(shards=9)
    try:
        keys = [b"key%d" % number for number in range(40)]
        assert {shard_of(key, 9) for key in keys} == set(range(9))
        for key in keys:
            rpc.request("kv_put", key=key, value=key)
        nodes.kill_head()
        assert [rpc.request("kv_get", key=key) for key in keys] == keys
        head = nodes.head_status()
        assert (head["epoch"], head["store"]["shards"]) == (2, 9)
    finally:
        nodes.close()


def test_nodes_join_and_the_status_is_told_by_any_node_after_the_head_died(nodes: HeadAndOthers) -> None:
    nodes.kill_head()
    late = nodes.cluster.add_node(num_cpus=1, resources={"late": 1})
    assert weft.get(Counter.options(resources={"late": 1}).remote().node_id.remote(), timeout=30) == late.node_id
    for node in nodes.cluster.list_all_nodes():
        status = Client(node.local_address).ask("status")
        assert [row["state"] for row in status["nodes"]].count("alive") == 3


def test_a_submitted_job_goes_on_and_is_known_to_the_next_head(nodes: HeadAndOthers, tmp_path: Path) -> None:
    client = Client(nodes.others[-1].local_address)
    go = tmp_path / "go"
    program = f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)"
    (tmp_path / "program.py").write_text(program)
    row = {"away": 1.0}
    job = client.ask("job_submit", entrypoint=f"{sys.executable} {tmp_path}/program.py", resources=row)
    wait_until(lambda: client.ask("job_info", id=job)["status"] == "RUNNING")
    nodes.kill_head()
    wait_until(lambda: client.ask("job_info", id=job)["status"] == "RUNNING")
    go.touch()
    wait_until(lambda: client.ask("job_info", id=job)["status"] == "SUCCEEDED")


def test_a_server_of_the_store_that_is_killed_is_started_again(nodes: HeadAndOthers) -> None:
    rpc.request("kv_put", key=b"key", value=b"value")
    [victim] = [store.pid for store in children_named(nodes.others[0].pid, "weft-control")]
    os.kill(victim, signal.SIGKILL)
    rpc.request("kv_put", key=b"other", value=b"value")
    wait_until(lambda: len(nodes.stores()) == 3 and victim not in nodes.stores())


def test_of_two_nodes_the_other_goes_on_alone_and_a_third_may_come() -> None:
    nodes = HeadAndOthers(1)
    try:
        detached = Counter.options(name="detached", lifetime="detached", **AWAY).remote()
        assert weft.get(detached.add.remote(), timeout=30) == 1
        rpc.request("kv_put", key=b"key", value=b"value")
        nodes.kill_head()
        assert rpc.request("kv_get", key=b"key") == b"value"
        assert weft.get(weft.get_actor("detached").add.remote(), timeout=30) == 2
        late = nodes.cluster.add_node(num_cpus=1, resources={"late": 1})
        assert weft.get(Counter.options(resources={"late": 1}).remote().node_id.remote(), timeout=30) == late.node_id
    finally:
        nodes.close()


def test_a_node_that_lost_its_head_before_it_had_a_copy_of_the_store_ends() -> None:
    cluster = Cluster(initialize_head=True)
    try:
        other = cluster.add_node()
        os.kill(cluster.list_all_nodes()[0].pid, signal.SIGKILL)
        wait_until(lambda: not other.is_alive())
        assert "head" in other.log()
    finally:
        cluster.shutdown()


@pytest.mark.parametrize("others", [1, 2])
def test_a_head_that_is_asked_to_end_hands_over_and_nothing_that_was_told_it_is_lost(others: int) -> None:
    nodes = HeadAndOthers(others)
    try:
        counter = Counter.options(name="counter", **AWAY).remote()
        assert weft.get(counter.add.remote(), timeout=30) == 1
        rpc.request("kv_put", key=b"key", value=b"value")
        late = Counter.options(name="late", **AWAY).remote()
        nodes.cluster.remove_node(nodes.head, allow_graceful=True)
        assert rpc.request("kv_get", key=b"key") == b"value"
        assert weft.get([counter.add.remote(), late.add.remote()], timeout=30) == [2, 1]
        status = Client(nodes.others[-1].local_address).ask("status")
        assert sorted(row["state"] for row in status["nodes"]) == ["alive"] * others + ["dead"]
        assert any("asked to end" in str(row) for row in status["nodes"]), status["nodes"]
    finally:
        nodes.close()


def test_a_head_is_drained_its_actors_move_and_another_node_follows_it(nodes: HeadAndOthers) -> None:
    mover = Counter.options(max_restarts=-1, max_task_retries=-1, resources={"first": 1}).remote()
    assert weft.get(mover.node_id.remote(), timeout=30) == nodes.head.node_id
    heir = nodes.cluster.add_node(num_cpus=1, resources={"first": 1})
    client, head = Client(nodes.others[-1].local_address), nodes.head
    client.ask("drain", node=head.node_id, deadline_s=30.0)
    wait_until(lambda: client.ask("drain_state", node=head.node_id)["state"] == "dead")
    assert client.ask("drain_state", node=head.node_id)["why"] == "it was drained"
    wait_until(lambda: not head.is_alive())
    assert head.log() == ""
    assert weft.get(mover.node_id.remote(), timeout=30) == heir.node_id
    assert nodes.head_status()["epoch"] == 2


def test_a_cluster_that_is_asked_to_end_ends_on_all_nodes() -> None:
    cluster = Cluster(initialize_head=True)
    try:
        nodes = [*cluster.list_all_nodes(), *(cluster.add_node() for _ in range(2))]
        assert Client(nodes[-1].local_address).ask("end_cluster")["nodes"] == 3
        wait_until(lambda: not any(node.is_alive() for node in nodes))
    finally:
        cluster.shutdown()


def test_a_cluster_leaves_no_process_of_its_store() -> None:
    cluster = Cluster(initialize_head=True)
    others = [cluster.add_node() for _ in range(2)]
    daemons = [node.pid for node in cluster.list_all_nodes()]

    def found() -> list[psutil.Process]:
        return [store for daemon in daemons for store in children_named(daemon, "weft-control")]

    wait_until(lambda: len(found()) == 3)
    stores = found()
    others[0].kill(allow_graceful=False)
    cluster.shutdown()
    wait_until(lambda: not those(stores, lambda one: one.is_running() and one.status() != psutil.STATUS_ZOMBIE))
