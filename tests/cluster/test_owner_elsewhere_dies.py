"""The owner of an object, a process of another node, dies, or its node does: who still refers to it goes on."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clusters import SIZE, THERE, TwoNodes, double, make

import weft
from waiting import wait_until
from weft import _native
from weft.cluster_utils import Cluster
from weft.util.scheduling_strategies import NodeAffinitySchedulingStrategy


@weft.remote
def wait_for_file(folder: str) -> int:
    Path(folder, f"started-{os.getpid()}-{time.monotonic_ns()}").touch()
    while not Path(folder, "go").exists():
        time.sleep(0.01)
    return 5


@weft.remote
def make_on_demand(folder: str) -> Any:
    while not Path(folder, "go").exists():
        time.sleep(0.01)
    return np.full(SIZE, 4)


@weft.remote(num_cpus=0)
def nest(where: dict[str, Any]) -> list[Any]:
    """Its worker owns what is in it."""
    return [make.options(**where).remote(1), weft.put("inner")]


@weft.remote
class Owner:
    """A process of its own, which owns what it makes."""

    def pid(self) -> int:
        return os.getpid()

    def put(self, value: Any) -> list[Any]:
        return [weft.put(value)]

    def put_nested(self) -> list[Any]:
        return [weft.put([weft.put("inner"), weft.put([weft.put("innermost")])])]

    def submit(self, folder: str, retries: int = 3) -> list[Any]:
        return [wait_for_file.options(max_retries=retries).remote(folder)]

    def hand_out(self, keeper: Any, count: int) -> None:
        weft.get(keeper.keep.remote([weft.put(number) for number in range(count)]))

    def call(self, actor: Any, folder: str) -> list[Any]:
        return [actor.answer.remote(folder)]

    def begin(self, folder: str) -> list[Any]:
        return [make_on_demand.remote(folder)]

    def make(self, where: dict[str, Any]) -> list[Any]:
        ref = double.options(**where).remote(double.options(**where).remote(make.options(**where).remote(1)))
        weft.wait([ref], fetch_local=False)
        return [ref]

    def pass_on(self, where: dict[str, Any], keeper: Any) -> None:
        self.made = make.options(**where).remote(1)
        weft.wait([self.made], fetch_local=False)
        weft.get(keeper.keep.remote([self.made]))

    def nest(self, where: dict[str, Any]) -> list[Any]:
        self.outer = nest.options(**where).remote(where)
        weft.wait([self.outer], fetch_local=False)
        return [self.outer]

    def double_nested(self, where: dict[str, Any]) -> list[Any]:
        self.inner = weft.get(nest.options(**where).remote(where))[0]
        self.doubled = double.options(**where).remote(self.inner)
        weft.wait([self.doubled], fetch_local=False)
        return [self.doubled]


@weft.remote(num_cpus=0)
class Slow:
    """Answers when it is let."""

    def __init__(self) -> None:
        self.calls = 0

    def answer(self, folder: str) -> int:
        self.calls += 1
        Path(folder, "started").touch()
        while not Path(folder, "go").exists():
            time.sleep(0.01)
        return self.calls

    def count(self) -> int:
        return self.calls


@weft.remote
class Keeper:
    def __init__(self) -> None:
        self.kept: list[Any] = []

    def keep(self, refs: list[Any]) -> None:
        self.kept = refs

    def read(self) -> Any:
        return weft.get(self.kept[0], timeout=60)

    def lend(self) -> list[Any]:
        return self.kept

    def give(self) -> list[Any]:
        return [self.kept.pop()]


def lose_node(nodes: TwoNodes) -> None:
    """Another one takes its place."""
    nodes.cluster.add_node(num_cpus=2, resources={"there": 9})
    nodes.cluster.remove_node(nodes.other, allow_graceful=False)


def deposits_settle(owner: Any) -> None:
    """What the owner has told its node has reached the others: a call to it and back goes the same ways."""
    weft.get(owner.pid.remote())


def test_a_small_value_outlives_its_owners_node(two_nodes: TwoNodes) -> None:
    owner = Owner.options(**THERE).remote()
    [ref] = weft.get(owner.put.remote("kept"))
    lose_node(two_nodes)
    assert weft.get(ref, timeout=30) == "kept"


def test_refs_inside_a_value_outlive_their_owners_node(two_nodes: TwoNodes) -> None:
    owner = Owner.options(**THERE).remote()
    [ref] = weft.get(owner.put_nested.remote())
    lose_node(two_nodes)
    inner, outer = weft.get(ref, timeout=30)
    assert weft.get(inner, timeout=30) == "inner"
    assert weft.get(weft.get(outer, timeout=30), timeout=30) == ["innermost"]


def test_refs_that_a_neighbour_owns_outlive_the_node_of_both(two_nodes: TwoNodes) -> None:
    owner = Owner.options(**THERE).remote()
    [ref] = weft.get(owner.nest.remote(THERE))
    deposits_settle(owner)
    lose_node(two_nodes)
    large, small = weft.get(ref, timeout=30)
    assert weft.get(small, timeout=30) == "inner"
    assert weft.get(large, timeout=30).sum() == SIZE


def test_an_argument_that_a_neighbour_owns_outlives_the_node_of_both(two_nodes: TwoNodes) -> None:
    owner = Owner.options(**THERE).remote()
    [ref] = weft.get(owner.double_nested.remote(THERE))
    deposits_settle(owner)
    lose_node(two_nodes)
    assert weft.get(ref, timeout=30).sum() == 2 * SIZE


def test_a_task_that_was_not_done_is_run_by_another(two_nodes: TwoNodes, tmp_path: Path) -> None:
    owner = Owner.options(**THERE).remote()
    [ref] = weft.get(owner.submit.remote(str(tmp_path)))
    wait_until(lambda: list(tmp_path.glob("started-*")))
    lose_node(two_nodes)
    (tmp_path / "go").touch()
    assert weft.get(ref, timeout=30) == 5


@pytest.mark.parametrize("loses_node", [True, False])
def test_a_call_that_was_not_answered_is_made_again_by_another(
    two_nodes: TwoNodes, tmp_path: Path, loses_node: bool
) -> None:
    actor = Slow.options(max_restarts=1, max_task_retries=-1).remote()
    owner = Owner.options(**THERE).remote()
    [ref] = weft.get(owner.call.remote(actor, str(tmp_path)))
    pid = weft.get(owner.pid.remote())
    wait_until((tmp_path / "started").exists)
    if loses_node:
        lose_node(two_nodes)
    else:
        os.kill(pid, signal.SIGKILL)
    (tmp_path / "go").touch()
    assert weft.get(ref, timeout=30) in (1, 2)


def pending_call_of_a_lost_node(actor: Any, two_nodes: TwoNodes, folder: Path) -> Any:
    """A ref to a call that had begun when the node of its caller died; it may end now."""
    owner = Owner.options(**THERE).remote()
    [ref] = weft.get(owner.call.remote(actor, str(folder)))
    weft.get(owner.pid.remote())
    wait_until((folder / "started").exists)
    lose_node(two_nodes)
    (folder / "go").touch()
    return ref


def test_a_call_that_is_made_again_by_another_takes_effect_once_where_that_counts(
    two_nodes: TwoNodes, tmp_path: Path
) -> None:
    actor = Slow.options(checkpoint=1).remote()
    ref = pending_call_of_a_lost_node(actor, two_nodes, tmp_path)
    assert weft.get(ref, timeout=30) == 1
    assert weft.get(actor.count.remote(), timeout=30) == 1


def test_a_call_that_may_not_be_made_twice_is_told_lost(two_nodes: TwoNodes, tmp_path: Path) -> None:
    ref = pending_call_of_a_lost_node(Slow.remote(), two_nodes, tmp_path)
    with pytest.raises(weft.exceptions.OwnerDiedError, match="max_task_retries=0"):
        weft.get(ref, timeout=30)


def test_a_task_that_may_not_run_twice_is_told_lost(two_nodes: TwoNodes, tmp_path: Path) -> None:
    owner = Owner.options(**THERE).remote()
    [ref] = weft.get(owner.submit.remote(str(tmp_path), 0))
    wait_until(lambda: list(tmp_path.glob("started-*")))
    lose_node(two_nodes)
    with pytest.raises(weft.exceptions.OwnerDiedError, match="max_retries=0"):
        weft.get(ref, timeout=30)


def test_a_large_value_is_made_again_from_the_lineage_that_its_owner_left(two_nodes: TwoNodes) -> None:
    owner = Owner.options(**THERE).remote()
    [ref] = weft.get(owner.make.remote({}))
    lose_node(two_nodes)
    assert weft.get(ref, timeout=30).sum() == 4 * SIZE
    assert _native.statistics()["tasks_rebuilt"] <= 3


def test_a_large_value_that_came_after_it_was_lent_is_made_again(two_nodes: TwoNodes, tmp_path: Path) -> None:
    owner = Owner.options(**THERE).remote()
    [ref] = weft.get(owner.begin.remote(str(tmp_path)))
    (tmp_path / "go").touch()
    weft.wait([ref], fetch_local=False)
    lose_node(two_nodes)
    assert weft.get(ref, timeout=30).sum() == 4 * SIZE


def test_a_large_value_of_put_is_lost_with_its_only_copy(two_nodes: TwoNodes) -> None:
    owner = Owner.options(**THERE).remote()
    [ref] = weft.get(owner.put.remote(np.ones(SIZE)))
    lose_node(two_nodes)
    with pytest.raises(weft.exceptions.ObjectLostError, match=r"put\(\)"):
        weft.get(ref, timeout=30)


def test_a_copy_elsewhere_keeps_a_value_of_put(two_nodes: TwoNodes) -> None:
    owner = Owner.options(**THERE).remote()
    [ref] = weft.get(owner.put.remote(np.ones(SIZE)))
    assert weft.get(ref).sum() == SIZE
    lose_node(two_nodes)
    assert weft.get(ref, timeout=30).sum() == SIZE
    keeper = Keeper.options(**THERE).remote()
    weft.get(keeper.keep.remote([ref]))
    assert weft.get(keeper.read.remote(), timeout=30).sum() == SIZE


def test_an_owner_that_dies_alone_leaves_its_objects_to_another_node(two_nodes: TwoNodes) -> None:
    owner = Owner.options(**THERE).remote()
    pid = weft.get(owner.pid.remote())
    [small] = weft.get(owner.put.remote("kept"))
    [large] = weft.get(owner.put.remote(np.ones(SIZE)))
    os.kill(pid, signal.SIGKILL)
    assert weft.get(small, timeout=30) == "kept"
    assert weft.get(large, timeout=30).sum() == SIZE
    lent = Keeper.remote()
    weft.get(lent.keep.remote([small]))
    assert weft.get(lent.read.remote(), timeout=30) == "kept"


def test_a_value_on_another_node_stays_when_its_owners_neighbour_inherits_it(two_nodes: TwoNodes) -> None:
    """That node hears of the owner's death, and is not to free what has an heir."""
    here = {"scheduling_strategy": NodeAffinitySchedulingStrategy(weft.get_runtime_context().get_node_id(), False)}
    for _ in range(20):
        owner, heir = Owner.options(**THERE).remote(), Keeper.options(**THERE).remote()
        pid = weft.get(owner.pid.remote())
        weft.get(owner.pass_on.remote(here, heir))
        os.kill(pid, signal.SIGKILL)
        for _ in range(2):
            assert weft.get(heir.read.remote(), timeout=60).sum() == SIZE
        weft.kill(heir)


def test_a_task_of_an_owner_that_dies_alone_is_run_again(two_nodes: TwoNodes, tmp_path: Path) -> None:
    owner = Owner.options(**THERE).remote()
    pid = weft.get(owner.pid.remote())
    [ref] = weft.get(owner.submit.remote(str(tmp_path)))
    wait_until(lambda: list(tmp_path.glob("started-*")))
    os.kill(pid, signal.SIGKILL)
    (tmp_path / "go").touch()
    assert weft.get(ref, timeout=30) == 5


def test_nothing_is_left_of_what_moved_when_it_is_dropped(two_nodes: TwoNodes) -> None:
    owner = Owner.options(**THERE).remote()
    pid = weft.get(owner.pid.remote())
    before = _native.statistics()
    refs = [weft.get(owner.put.remote(np.ones(SIZE)))[0] for _ in range(3)]
    os.kill(pid, signal.SIGKILL)
    assert all(value.sum() == SIZE for value in weft.get(refs, timeout=30))
    del refs

    def is_empty() -> bool:
        now = _native.statistics()
        return now["objects_owned"] <= before["objects_owned"] and now["objects_borrowed"] <= before["objects_borrowed"]

    wait_until(is_empty)


@pytest.fixture
def three_nodes() -> Any:
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "resources": {"a": 1}})
    nodes = [cluster.add_node(num_cpus=2, resources={name: 9}) for name in ("b", "c")]
    weft.init(address=cluster.address)
    try:
        yield cluster, *nodes
    finally:
        weft.shutdown()
        cluster.shutdown()


def test_one_process_of_all_nodes_takes_over_and_the_task_runs_once_more(three_nodes: Any, tmp_path: Path) -> None:
    cluster, dies, _ = three_nodes
    owner = Owner.options(resources={"b": 1}).remote()
    keeper = Keeper.options(resources={"c": 1}).remote()
    [ref] = weft.get(owner.submit.remote(str(tmp_path)))
    wait_until(lambda: list(tmp_path.glob("started-*")))
    weft.get(keeper.keep.remote([ref]))
    deposits_settle(owner)
    cluster.remove_node(dies, allow_graceful=False)
    wait_until(lambda: len(list(tmp_path.glob("started-*"))) == 2)
    (tmp_path / "go").touch()
    assert weft.get(ref, timeout=30) == 5
    assert weft.get(keeper.read.remote(), timeout=30) == 5
    assert len(list(tmp_path.glob("started-*"))) == 2


def test_a_copy_on_a_third_node_keeps_a_value_of_put(three_nodes: Any) -> None:
    cluster, dies, _ = three_nodes
    owner = Owner.options(resources={"b": 1}).remote()
    keeper = Keeper.options(resources={"c": 1}).remote()
    [ref] = weft.get(owner.put.remote(np.ones(SIZE)))
    weft.get(keeper.keep.remote([ref]))
    assert weft.get(keeper.read.remote()).sum() == SIZE
    cluster.remove_node(dies, allow_graceful=False)
    assert weft.get(ref, timeout=30).sum() == SIZE


def test_what_was_adopted_survives_the_death_of_its_adopter(three_nodes: Any) -> None:
    cluster, dies, dies_next = three_nodes
    owner = Owner.options(resources={"b": 1}).remote()
    keeper = Keeper.options(resources={"c": 1}).remote()
    refs = weft.get([owner.put.remote(f"value {index}") for index in range(4)])
    weft.get(keeper.keep.remote([ref for [ref] in refs]))
    last = refs[-1][0]
    del refs
    cluster.remove_node(dies, allow_graceful=False)  # the keeper refers to the most, so it takes over
    assert weft.get(keeper.read.remote(), timeout=30) == "value 0"
    cluster.add_node(num_cpus=1)
    cluster.remove_node(dies_next, allow_graceful=False)
    assert weft.get(last, timeout=30) == "value 3"


def test_a_sole_ref_that_is_on_its_way_when_its_owners_node_dies_ends(three_nodes: Any) -> None:
    """From the third node to the driver's, which has never heard of these objects before."""
    cluster, dies, _ = three_nodes
    owner = Owner.options(resources={"b": 1}).remote()
    keeper = Keeper.options(resources={"c": 1}).remote()
    count = 200
    weft.get(owner.hand_out.remote(keeper, count))
    boxes = [keeper.give.remote() for _ in range(count // 2)]
    cluster.remove_node(dies, allow_graceful=False)
    boxes += [keeper.give.remote() for _ in range(count // 2)]
    found = []
    for [ref] in weft.get(boxes, timeout=30):
        with contextlib.suppress(weft.exceptions.ObjectLostError):  # of which OwnerDiedError is one
            found.append(weft.get(ref, timeout=30))
    print(f"{len(found)} of {count} came")
    assert found == sorted(set(found), reverse=True), "none is another's"
