"""Tasks, objects and actors over two nodes that stay alive."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clusters import THERE, TwoNodes

import weft
from waiting import comes_true, meet, wait_until
from weft.engine.process.session import rpc
from weft.util.scheduling_strategies import NodeAffinitySchedulingStrategy

BIG = 300_000


@weft.remote
def node_id() -> str:
    return weft.get_runtime_context().get_node_id()


@weft.remote
def make(count: int, value: float = 1.0) -> Any:
    return np.full(count, value)


@weft.remote
def total(array: Any) -> float:
    return float(array.sum())


@weft.remote
class Counter:
    def __init__(self, start: Any = 0) -> None:
        self.value = int(np.sum(start))

    def add(self, count: int = 1) -> int:
        self.value += count
        return self.value

    def node_id(self) -> str:
        return weft.get_runtime_context().get_node_id()

    def statistics(self) -> dict[str, Any]:
        return rpc.request("statistics")


@weft.remote
def statistics() -> dict[str, Any]:
    return rpc.request("statistics")


def test_a_task_runs_where_its_resources_are(shared_two_nodes: TwoNodes) -> None:
    assert weft.get(node_id.options(**THERE).remote()) == shared_two_nodes.other.node_id
    assert weft.get(node_id.options(resources={"node:__internal_head__": 0.1}).remote()) == (
        shared_two_nodes.cluster.head_node.node_id
    )


@weft.remote(max_retries=0)
def arrive(folder: Path) -> str:
    """Ends when it has run on two nodes."""
    here: str = weft.get_runtime_context().get_node_id()
    meet(folder, here, 2)
    return here


def test_tasks_spill_over_to_the_other_node(shared_two_nodes: TwoNodes, tmp_path: Path) -> None:
    assert len(set(weft.get([arrive.remote(tmp_path) for _ in range(6)], timeout=50))) == 2


def test_nested_tasks_cross_back(shared_two_nodes: TwoNodes) -> None:
    @weft.remote
    def outer() -> list[str]:
        here = node_id.options(resources={"node:__internal_head__": 0.1})
        return weft.get([here.remote(), node_id.options(**THERE).remote()])

    head = shared_two_nodes.cluster.head_node.node_id
    assert weft.get(outer.options(**THERE).remote()) == [head, shared_two_nodes.other.node_id]


def test_large_results_and_arguments_are_pulled(shared_two_nodes: TwoNodes) -> None:
    made = make.options(**THERE).remote(BIG, 2.0)
    assert weft.get(made).sum() == 2.0 * BIG
    assert weft.get(total.options(**THERE).remote(made)) == 2.0 * BIG
    assert weft.get(total.remote(made)) == 2.0 * BIG
    assert weft.get(total.options(**THERE).remote(weft.put(np.ones(BIG)))) == BIG


def test_an_object_made_there_is_not_moved_for_a_task_there(shared_two_nodes: TwoNodes) -> None:
    drop_the_rest()
    made = make.options(**THERE).remote(BIG)
    assert weft.get(total.options(**THERE).remote(made)) == BIG
    assert used_bytes() == 0


def test_refs_inside_values_are_borrowed_across_nodes(shared_two_nodes: TwoNodes) -> None:
    @weft.remote
    def make_refs() -> list[Any]:
        return [weft.put(np.ones(BIG)), weft.put("small")]

    @weft.remote
    def read(refs: list[Any]) -> list[Any]:
        return [float(weft.get(refs[0]).sum()), weft.get(refs[1])]

    big, small = weft.get(make_refs.options(**THERE).remote())
    assert weft.get(big).sum() == BIG
    assert weft.get(small) == "small"
    assert weft.get(read.options(**THERE).remote([big, small])) == [BIG, "small"]
    own = weft.put(np.ones(BIG))
    assert weft.get(read.options(**THERE).remote([own, weft.put("mine")])) == [BIG, "mine"]


def test_a_task_waits_for_an_argument_that_the_other_node_is_making(shared_two_nodes: TwoNodes) -> None:
    @weft.remote
    def slow() -> Any:
        time.sleep(0.3)
        return np.ones(BIG)

    @weft.remote
    def outer(refs: list[Any]) -> float:
        return weft.get(total.options(**THERE).remote(refs[0]))

    made_here = slow.options(resources={"node:__internal_head__": 0.1}).remote()
    assert weft.get(outer.options(**THERE).remote([made_here])) == BIG


def test_a_generator_streams_across_nodes(shared_two_nodes: TwoNodes) -> None:
    @weft.remote
    def produce() -> Any:
        for index in range(6):
            yield np.full(BIG if index % 2 else 10, index)

    items = [int(weft.get(ref)[0]) for ref in produce.options(**THERE).remote()]
    assert items == list(range(6))


def test_errors_come_back(shared_two_nodes: TwoNodes) -> None:
    @weft.remote
    def fail() -> None:
        raise KeyError("there")

    with pytest.raises(KeyError, match="there"):
        weft.get(fail.options(**THERE).remote())


def test_a_task_there_is_cancelled(shared_two_nodes: TwoNodes, tmp_path: Path) -> None:
    started = tmp_path / "started"

    @weft.remote
    def forever() -> None:
        started.touch()
        while True:
            time.sleep(0.01)

    ref = forever.options(**THERE).remote()
    wait_until(started.exists)
    weft.cancel(ref)
    with pytest.raises(weft.exceptions.TaskCancelledError):
        weft.get(ref, timeout=60)


def test_actors_there_keep_the_order_of_calls(shared_two_nodes: TwoNodes) -> None:
    actor = Counter.options(**THERE).remote(5)
    assert weft.get([actor.add.remote() for _ in range(100)]) == list(range(6, 106))
    assert weft.get(actor.node_id.remote()) == shared_two_nodes.other.node_id


def test_an_actors_large_argument_is_pulled(shared_two_nodes: TwoNodes) -> None:
    actor = Counter.options(**THERE).remote(weft.put(np.ones(BIG, dtype=np.int64)))
    assert weft.get(actor.add.remote(0)) == BIG


def test_a_named_actor_is_found_from_every_node(shared_two_nodes: TwoNodes) -> None:
    @weft.remote
    def add_by_name() -> int:
        return weft.get(weft.get_actor("shared counter").add.remote(10))

    there = Counter.options(name="shared counter", **THERE).remote()
    assert weft.get(add_by_name.remote()) == 10
    assert weft.get(add_by_name.options(**THERE).remote()) == 20
    with pytest.raises(weft.exceptions.ActorAlreadyExistsError):
        Counter.options(name="shared counter").remote()
    assert weft.get(there.add.remote(0)) == 20


def test_an_actor_created_there_may_live_here(shared_two_nodes: TwoNodes) -> None:
    @weft.remote
    def create() -> Any:
        return Counter.options(resources={"node:__internal_head__": 0.1}, num_cpus=0).remote(3)

    actor = weft.get(create.options(**THERE).remote())
    assert weft.get(actor.add.remote()) == 4
    assert weft.get(actor.node_id.remote()) == shared_two_nodes.cluster.head_node.node_id


def test_handles_travel(shared_two_nodes: TwoNodes) -> None:
    @weft.remote
    def use(actor: Any) -> int:
        return weft.get(actor.add.remote(7))

    actor = Counter.options(**THERE).remote()
    assert weft.get(use.remote(actor)) == 7
    assert weft.get(use.options(**THERE).remote(actor)) == 14


def test_an_actor_there_ends_with_its_last_handle(shared_two_nodes: TwoNodes) -> None:
    probe = Counter.options(num_cpus=0, **THERE).remote()
    actor = Counter.options(num_cpus=0, **THERE).remote()
    weft.get(actor.add.remote())
    assert comes_true(lambda: weft.available_resources()["there"] == 8), "what tests before had leased is back"
    del actor
    assert comes_true(lambda: weft.available_resources()["there"] == 9)
    del probe
    assert comes_true(lambda: weft.available_resources()["there"] == 10)


def test_a_killed_actor_there_is_dead_to_all(shared_two_nodes: TwoNodes) -> None:
    actor = Counter.options(**THERE).remote()
    weft.get(actor.add.remote())
    weft.kill(actor)
    with pytest.raises(weft.exceptions.ActorDiedError):
        weft.get(actor.add.remote(), timeout=60)


def test_what_was_pulled_is_freed_on_both_nodes(shared_two_nodes: TwoNodes) -> None:
    there = Counter.options(num_cpus=0, **THERE).remote()

    def used() -> tuple[int, int]:
        return rpc.request("statistics")["used_bytes"], weft.get(there.statistics.remote())["used_bytes"]

    weft.get(total.options(**THERE).remote(weft.put(np.ones(10))))
    assert comes_true(lambda: sum(used()) < 4 << 20), used()
    before = used()
    refs = [make.options(**THERE).remote(BIG) for _ in range(4)] + [weft.put(np.ones(BIG)) for _ in range(4)]
    assert weft.get([total.options(**THERE).remote(ref) for ref in refs]) == [BIG] * 8
    assert sum(weft.get(total.remote(ref)) for ref in refs) == 8 * BIG
    assert sum(used()) > sum(before)
    del refs
    assert comes_true(lambda: used() <= before), (used(), before)
    weft.kill(there)


def test_spread_reaches_both_nodes(shared_two_nodes: TwoNodes, tmp_path: Path) -> None:
    spread = arrive.options(num_cpus=0.25, scheduling_strategy="SPREAD")
    assert len(set(weft.get([spread.remote(tmp_path) for _ in range(4)], timeout=50))) == 2


def test_affinity_and_labels_choose_the_node(shared_two_nodes: TwoNodes) -> None:
    strategies = weft.util.scheduling_strategies
    for node in (shared_two_nodes.other, shared_two_nodes.cluster.head_node):
        bound = strategies.NodeAffinitySchedulingStrategy(node.node_id, soft=False)
        assert weft.get(node_id.options(scheduling_strategy=bound).remote()) == node.node_id
        actor = Counter.options(scheduling_strategy=bound, num_cpus=0).remote()
        assert weft.get(actor.node_id.remote()) == node.node_id
    gone = strategies.NodeAffinitySchedulingStrategy("ab" * 16, soft=False)
    with pytest.raises(weft.exceptions.TaskUnschedulableError):
        weft.get(node_id.options(scheduling_strategy=gone).remote(), timeout=60)
    soft = strategies.NodeAffinitySchedulingStrategy("ab" * 16, soft=True)
    assert weft.get(node_id.options(scheduling_strategy=soft).remote(), timeout=60)


def test_the_cluster_shows_all_its_nodes(shared_two_nodes: TwoNodes) -> None:
    nodes = {node["NodeID"]: node for node in weft.nodes()}
    assert set(nodes) == {node.node_id for node in shared_two_nodes.cluster.list_all_nodes()}
    assert weft.cluster_resources()["CPU"] == 3
    assert comes_true(lambda: weft.available_resources().get("CPU") == 3)


def test_output_of_the_other_node_reaches_the_driver(
    shared_two_nodes: TwoNodes, capfd: pytest.CaptureFixture[str]
) -> None:
    @weft.remote
    def speak() -> None:
        print("hello from there")

    weft.get(speak.options(**THERE).remote())
    seen: list[str] = []

    def has_come() -> bool:
        seen.append("".join(capfd.readouterr()))
        return "hello from there" in "".join(seen)

    assert comes_true(has_come)


def test_a_worker_there_that_dies_is_tried_again(shared_two_nodes: TwoNodes, tmp_path: Any) -> None:
    mark = tmp_path / "died"

    @weft.remote(max_retries=1)
    def die_once() -> str:
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), 9)
        return "again"

    @weft.remote(max_retries=0)
    def die() -> None:
        os.kill(os.getpid(), 9)

    assert weft.get(die_once.options(**THERE).remote(), timeout=60) == "again"
    with pytest.raises(weft.exceptions.WorkerCrashedError):
        weft.get(die.options(**THERE).remote(), timeout=60)


def test_an_actor_there_restarts(shared_two_nodes: TwoNodes) -> None:
    @weft.remote(max_restarts=1, max_task_retries=1, **THERE)
    class Fragile:
        def pid(self) -> int:
            return os.getpid()

    actor = Fragile.remote()
    first = weft.get(actor.pid.remote())
    os.kill(first, 9)
    assert weft.get(actor.pid.remote(), timeout=60) != first


def test_listings_cover_every_node(shared_two_nodes: TwoNodes) -> None:
    from weft.util.state import list_actors, list_nodes, list_objects, list_workers

    nodes = {row.node_id for row in list_nodes(filters=[("state", "=", "ALIVE")])}
    assert len(nodes) == 2
    assert {row.node_id for row in list_workers(limit=1000)} == nodes
    assert [row.pid for row in list_workers(limit=1000) if row.worker_type == "DRIVER"] == [os.getpid()]
    there = Counter.options(**THERE).remote()
    weft.get(there.add.remote())
    assert there._actor_id.hex() in [row.actor_id for row in list_actors(limit=1000)]
    kept = make.remote(BIG)
    weft.wait([kept])
    assert [row.pid for row in list_objects(limit=1000) if row.object_id == kept.hex()] == [os.getpid()]


@weft.remote
def own_id(path: str) -> str:
    """Once the file is there."""
    while not os.path.exists(path):
        time.sleep(0.01)
    return weft.get_runtime_context().get_worker_id()


def test_a_worker_of_another_node_has_one_id_for_all(shared_two_nodes: TwoNodes, tmp_path: Path) -> None:
    from weft.util.state import list_tasks, list_workers

    gate = tmp_path / "gate"
    ref = own_id.options(name="there", **THERE).remote(str(gate))

    def workers() -> list[str]:
        return [row.worker_id for row in list_tasks(filters=[("name", "=", "there"), ("state", "=", "RUNNING")])]

    assert comes_true(lambda: bool(workers()))
    (known,) = workers()
    gate.touch()
    assert weft.get(ref) == known
    assert known in [row.worker_id for row in list_workers(limit=1000)]


@weft.remote
class Gatekeeper:
    def __init__(self, path: str) -> None:
        self.path = path

    def where(self) -> tuple[str, int]:
        return weft.get_runtime_context().get_node_id(), os.getpid()

    def wait(self) -> None:
        wait_until(lambda: os.path.exists(self.path))


@weft.remote
def at_gate(folder: str) -> tuple[str, int]:
    """Once the gate is there; the folder shows that it runs."""
    Path(folder, "runs").touch()
    wait_until(lambda: os.path.exists(Path(folder, "gate")))
    return weft.get_runtime_context().get_node_id(), os.getpid()


@pytest.mark.parametrize("is_far", [True, False])
def test_a_task_is_listed_and_explained_where_it_runs(
    shared_two_nodes: TwoNodes, tmp_path: Path, capsys: pytest.CaptureFixture[str], is_far: bool
) -> None:
    from weft.cli.main import main
    from weft.util.state import list_tasks

    name, own = f"gate of {is_far}", weft.get_runtime_context().get_node_id()
    here = {"scheduling_strategy": NodeAffinitySchedulingStrategy(own, soft=False)}
    ref = at_gate.options(name=name, **(THERE if is_far else here)).remote(str(tmp_path))
    wait_until(lambda: (tmp_path / "runs").exists())
    (row,) = list_tasks(filters=[("name", "=", name)])
    story = weft.explain(ref)
    assert main(["explain", row.task_id, "--address", shared_two_nodes.cluster.address]) == 0
    told = capsys.readouterr().out
    assert main(["list", "tasks", "--address", shared_two_nodes.cluster.address]) == 0
    (line,) = [one for one in capsys.readouterr().out.splitlines() if name in one]
    (tmp_path / "gate").touch()
    node, pid = weft.get(ref)
    assert (node == own) is not is_far
    assert (row.node_id, row.worker_pid) == (node, pid)
    assert (row.owner_node_id, row.pid) == (own, os.getpid())
    assert f"in the worker pid={pid}{f' of node {node[:8]}' if is_far else ''}" in story
    assert f"in the worker {pid} of node {node[:8]}" in told
    assert str(pid) in line.split() and node[:12] in line.split()


def test_a_task_that_waits_has_no_node_yet(shared_two_nodes: TwoNodes) -> None:
    from weft.util.state import list_tasks

    ref = node_id.options(name="waits for ever", resources={"there": 11}).remote()
    (row,) = list_tasks(filters=[("name", "=", "waits for ever")])
    assert (row.node_id, row.worker_pid, row.worker_id) == (None, None, None)
    assert row.owner_node_id == weft.get_runtime_context().get_node_id()
    weft.cancel(ref)


def test_an_actor_elsewhere_and_its_calls_are_listed_where_they_run(
    shared_two_nodes: TwoNodes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from weft.cli.main import main
    from weft.util.state import get_actor, list_tasks

    gate = tmp_path / "gate"
    actor = Gatekeeper.options(**THERE).remote(str(gate))
    node, pid = weft.get(actor.where.remote())
    call = actor.wait.remote()
    row = get_actor(actor._actor_id.hex())
    asked_there = weft.get(rows_of_actors.options(**THERE).remote())
    (called,) = list_tasks(filters=[("actor_id", "=", row.actor_id)])
    story = weft.explain(call)
    assert main(["list", "actors", "--address", shared_two_nodes.cluster.address]) == 0
    (line,) = [one for one in capsys.readouterr().out.splitlines() if row.actor_id[:12] in one]
    gate.touch()
    weft.get(call)
    assert (row.node_id, row.pid) == (node, pid)
    assert asked_there[row.actor_id] == (node, pid)
    assert (called.node_id, called.worker_pid) == (node, pid)
    assert f"ALIVE in process {pid} of node {node[:8]}" in story
    assert str(pid) in line.split() and node[:12] in line.split()


@weft.remote
def rows_of_actors() -> dict[str, tuple[str, int]]:
    from weft.util.state import list_actors

    return {row.actor_id: (row.node_id, row.pid) for row in list_actors(limit=1000)}


@weft.remote
class Lender:
    def lend(self) -> tuple[int, list[Any]]:
        return os.getpid(), [make.options(name="lent", num_cpus=0).remote(BIG)]

    def hold(self, refs: list[Any]) -> int:
        self.refs = refs
        return os.getpid()


def test_the_store_tells_of_an_object_and_its_task_whoever_owns_it(
    shared_two_nodes: TwoNodes, capsys: pytest.CaptureFixture[str]
) -> None:
    from weft.cli.main import main

    def stored(what: str, key: str, id: str) -> list[dict[str, Any]]:
        assert main(["list", what, "--all", "--json", "--address", shared_two_nodes.cluster.address]) == 0
        return [row for row in json.loads(capsys.readouterr().out) if row[key] == id]

    def owner() -> int | None:
        return next((row["pid"] for row in stored("objects", "object_id", lent.hex())), None)

    lender, holder = Lender.options(**THERE).remote(), Lender.options(**THERE).remote()
    pid, (lent,) = weft.get(lender.lend.remote())
    heirs = (os.getpid(), weft.get(holder.hold.remote([lent])))
    wait_until(lambda: owner() == pid)
    (row,) = stored("objects", "object_id", lent.hex())
    (made,) = stored("tasks", "task_id", row["task_id"])
    assert (made["name"], made["results"], made["required_resources"]) == ("lent", [lent.hex()], {})
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: owner() in heirs)  # one of them owns it and lends it to the other, on another node
    (inherited,) = stored("objects", "object_id", lent.hex())
    assert inherited["object_size"] == row["object_size"] > 8 * BIG and inherited["task_id"] == row["task_id"]
    assert weft.get(lent).sum() == BIG


def used_bytes() -> int:
    return int(rpc.request("statistics")["used_bytes"])


def drop_the_rest() -> None:
    """What tests before this one have dropped may go late: when its owner's death is settled."""
    wait_until(lambda: used_bytes() == 0)


def test_wait_brings_the_bytes_here_unless_it_is_told_not_to(shared_two_nodes: TwoNodes) -> None:
    drop_the_rest()
    made = make.options(**THERE).remote(BIG)
    assert weft.wait([made], fetch_local=False) == ([made], [])
    assert used_bytes() == 0
    assert weft.wait([made]) == ([made], [])
    assert used_bytes() >= 8 * BIG
    assert weft.get(made).sum() == BIG


def test_wait_without_time_starts_to_bring_the_bytes(shared_two_nodes: TwoNodes) -> None:
    drop_the_rest()
    made = make.options(**THERE).remote(BIG)
    weft.wait([made], fetch_local=False)
    assert used_bytes() == 0
    assert comes_true(lambda: weft.wait([made], timeout=0)[0] == [made])
    assert used_bytes() >= 8 * BIG


def test_wait_counts_what_is_not_here_yet_as_not_ready(shared_two_nodes: TwoNodes) -> None:
    here, there = weft.put(np.ones(BIG)), make.options(**THERE).remote(BIG)
    weft.wait([there], fetch_local=False)
    daemon = shared_two_nodes.other.pid
    os.kill(daemon, signal.SIGSTOP)
    try:
        assert weft.wait([there, here], num_returns=2, timeout=0.1) == ([here], [there])
        assert weft.wait([there, here], num_returns=1) == ([here], [there])
        assert weft.wait([there, here], num_returns=2, timeout=0.1, fetch_local=False) == ([there, here], [])
    finally:
        os.kill(daemon, signal.SIGCONT)
    assert weft.wait([there, here], num_returns=2) == ([there, here], [])
