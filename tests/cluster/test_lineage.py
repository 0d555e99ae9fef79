"""Objects that were on a node that died come back, made again by what made them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clusters import SIZE, THERE, TwoNodes, double, make

import weft
from waiting import wait_until
from weft import _native


@weft.remote
def total(array: Any) -> int:
    return int(array.sum())


@weft.remote
def total_of(refs: list[Any]) -> int:
    return int(weft.get(refs[0]).sum())


def lose_node(nodes: TwoNodes) -> None:
    """Another one takes its place."""
    nodes.cluster.add_node(num_cpus=2, resources={"there": 9})
    nodes.cluster.remove_node(nodes.other, allow_graceful=False)


def test_a_lost_object_is_made_again_when_it_is_read(two_nodes: TwoNodes) -> None:
    ref = make.options(**THERE).remote(3)
    weft.wait([ref], fetch_local=False)
    lose_node(two_nodes)
    assert weft.get(ref, timeout=30).sum() == 3 * SIZE
    assert _native.statistics()["tasks_rebuilt"] == 1
    assert weft.get(ref).sum() == 3 * SIZE


def test_a_chain_is_made_again_from_its_beginning(two_nodes: TwoNodes) -> None:
    ref = make.options(**THERE).remote(1)
    for _ in range(5):
        ref = double.options(**THERE).remote(ref)
    weft.wait([ref], fetch_local=False)
    lose_node(two_nodes)
    assert weft.get(ref, timeout=30).sum() == 32 * SIZE
    assert _native.statistics()["tasks_rebuilt"] == 6


def test_what_is_too_old_for_memory_is_made_again_from_disk(two_nodes: TwoNodes) -> None:
    _native.limit_lineage(1, 1 << 30)
    ref = make.options(**THERE).remote(1)
    for _ in range(5):
        ref = double.options(**THERE).remote(ref)
    weft.wait([ref], fetch_local=False)
    assert _native.statistics()["lineage_tasks"] == 0
    assert _native.statistics()["lineage_disk_bytes"] > 0
    lose_node(two_nodes)
    assert weft.get(ref, timeout=30).sum() == 32 * SIZE
    assert _native.statistics()["tasks_rebuilt"] == 6
    del ref
    assert _native.statistics()["lineage_disk_bytes"] == 0


def test_the_error_says_when_the_way_to_make_it_again_could_not_be_kept(
    two_nodes: TwoNodes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "is-not-there"))
    _native.limit_lineage(1, 1 << 30)
    ref = make.options(**THERE).remote(1)
    weft.wait([ref], fetch_local=False)
    monkeypatch.undo()
    lose_node(two_nodes)
    with pytest.raises(weft.exceptions.ObjectReconstructionFailedError, match="No such file or directory"):
        weft.get(ref, timeout=30)
    wait_until(lambda: "old lineage cannot be written to disk" in capfd.readouterr().err)


def test_a_value_of_put_that_was_dropped_is_still_there_for_what_was_made_of_it(two_nodes: TwoNodes) -> None:
    for limit in (64 << 20, 1):
        _native.limit_lineage(limit, 1 << 30)
        value = weft.put(np.full(SIZE, 3))
        ref = double.options(**THERE).remote(double.options(**THERE).remote(value))
        by_value = double.options(**THERE).remote(np.full(SIZE, 5))
        del value
        weft.wait([ref, by_value], num_returns=2, fetch_local=False)
        lose_node(two_nodes)
        two_nodes.other = next(iter(two_nodes.cluster.worker_nodes))
        assert weft.get(ref, timeout=30).sum() == 12 * SIZE
        assert weft.get(by_value, timeout=30).sum() == 10 * SIZE
        del ref, by_value
        assert _native.statistics()["lineage_input_bytes"] == 0


def test_a_task_that_needs_a_lost_object_waits_for_it(two_nodes: TwoNodes) -> None:
    ref = make.options(**THERE).remote(2)
    weft.wait([ref], fetch_local=False)
    lose_node(two_nodes)
    results = [total.remote(ref), total.options(**THERE).remote(ref), total_of.remote([ref])]
    assert weft.get(results, timeout=30) == [2 * SIZE] * 3
    assert _native.statistics()["tasks_rebuilt"] == 1


def test_what_may_not_run_twice_is_not_run_twice(two_nodes: TwoNodes) -> None:
    ref = make.options(max_retries=0, **THERE).remote(2)
    weft.wait([ref], fetch_local=False)
    lose_node(two_nodes)
    with pytest.raises(weft.exceptions.ObjectLostError, match="max_retries=0"):
        weft.get(ref, timeout=30)
    with pytest.raises(weft.exceptions.ObjectLostError, match="max_retries=0"):
        weft.get(total.remote(ref), timeout=30)


@weft.remote(num_cpus=0)
class Maker:
    def make(self, value: int) -> Any:
        return np.full(SIZE, value)


def test_what_a_method_returned_is_made_again_by_the_actors_next_incarnation(two_nodes: TwoNodes) -> None:
    maker = Maker.options(max_restarts=-1, max_task_retries=-1, **THERE).remote()
    ref = maker.make.remote(4)
    weft.wait([ref], fetch_local=False)
    lose_node(two_nodes)
    assert weft.get(ref, timeout=30).sum() == 4 * SIZE
    assert weft.get(total.remote(ref), timeout=30) == 4 * SIZE


def test_what_a_method_returned_is_lost_with_an_actor_that_is_gone_for_good(two_nodes: TwoNodes) -> None:
    maker = Maker.options(max_restarts=-1, max_task_retries=-1, **THERE).remote()
    ref = maker.make.remote(4)
    weft.wait([ref], fetch_local=False)
    weft.kill(maker)
    lose_node(two_nodes)
    with pytest.raises(weft.exceptions.ActorDiedError):
        weft.get(ref, timeout=30)


def test_lineage_goes_with_the_objects_it_is_for(two_nodes: TwoNodes) -> None:
    before = _native.statistics()
    ref = make.options(**THERE).remote(1)
    for _ in range(20):
        ref = double.remote(ref)
    weft.wait([ref], fetch_local=False)
    assert _native.statistics()["lineage_tasks"] == 21
    del ref
    assert _native.statistics()["lineage_tasks"] == 0
    assert _native.statistics()["objects_owned"] == before["objects_owned"]
