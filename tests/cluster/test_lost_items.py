"""Items of generators that were on a node that died come back, made again by their generator."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clusters import SIZE, THERE, TwoNodes
from test_lineage import lose_node, total, total_of

import weft
from waiting import wait_until
from weft import _native

STREAM: dict[str, Any] = {"num_returns": "streaming", "max_retries": -1, **THERE}


@weft.remote
def count(to: int) -> Iterator[Any]:
    for value in range(1, to + 1):
        yield np.full(SIZE, value)


def sums(refs: list[Any]) -> list[int]:
    return [int(weft.get(ref, timeout=30).sum()) // SIZE for ref in refs]


def made(generator: Any) -> list[Any]:
    """All its refs, once they are there; no value is brought here."""
    refs = list(generator)
    weft.wait(refs, num_returns=len(refs), fetch_local=False)
    return refs


def test_lost_items_are_made_again_by_their_generator(two_nodes: TwoNodes) -> None:
    refs = made(count.options(**STREAM).remote(4))
    lose_node(two_nodes)
    assert sums(refs) == [1, 2, 3, 4]
    assert _native.statistics()["tasks_rebuilt"] == 1
    del refs
    wait_until(lambda: _native.statistics()["lineage_tasks"] == 0)


def test_items_that_were_not_taken_yet_come_too(two_nodes: TwoNodes) -> None:
    generator = count.options(**STREAM).remote(4)
    weft.wait([generator.completed()], fetch_local=False)
    lose_node(two_nodes)
    assert sums(list(generator)) == [1, 2, 3, 4]


def test_a_stream_whose_node_dies_goes_on_and_its_lost_items_come_again(two_nodes: TwoNodes) -> None:
    generator = count.options(_generator_backpressure_num_objects=2, **STREAM).remote(6)
    first = [next(generator), next(generator)]
    lose_node(two_nodes)
    assert sums(first) == [1, 2]
    assert sums(list(generator)) == [3, 4, 5, 6]
    assert sums(first) == [1, 2]


def test_a_generator_that_was_closed_early_makes_what_was_taken_again(two_nodes: TwoNodes) -> None:
    generator = count.options(_generator_backpressure_num_objects=1, **STREAM).remote(1000)
    kept = [next(generator), next(generator)]
    generator.close()
    weft.wait([generator.completed()], fetch_local=False)
    lose_node(two_nodes)
    assert sums(kept) == [1, 2]


def test_other_processes_that_have_a_lost_items_ref_get_it(two_nodes: TwoNodes) -> None:
    refs = made(count.options(**STREAM).remote(3))
    lose_node(two_nodes)
    there = {"num_cpus": 1, **THERE}
    asked = [total.remote(refs[0]), total.options(**there).remote(refs[1]), total_of.options(**there).remote([refs[2]])]
    assert weft.get(asked, timeout=30) == [SIZE, 2 * SIZE, 3 * SIZE]


def test_the_error_names_the_task_the_item_and_why_it_may_not_run_again(two_nodes: TwoNodes) -> None:
    refs = made(count.options(**{**STREAM, "max_retries": 0}).remote(2))
    lose_node(two_nodes)
    with pytest.raises(weft.exceptions.ObjectLostError, match=r"item 1 of generator .*count.*max_retries=0"):
        weft.get(refs[1], timeout=30)
    with pytest.raises(weft.exceptions.ObjectLostError, match=r"item 0 of generator .*count.*max_retries=0"):
        weft.get(total.remote(refs[0]), timeout=30)


@weft.remote(num_cpus=0)
class Counter:
    def count(self, to: int) -> Iterator[Any]:
        for value in range(1, to + 1):
            yield np.full(SIZE, value)


@pytest.mark.parametrize("concurrency", [1, 4])
def test_items_of_a_method_are_made_again_by_the_actors_next_incarnation(two_nodes: TwoNodes, concurrency: int) -> None:
    options: dict[str, Any] = {"max_restarts": -1, "max_task_retries": -1, "max_concurrency": concurrency, **THERE}
    counter = Counter.options(**options).remote()
    refs = made(counter.count.options(num_returns="streaming").remote(3))
    lose_node(two_nodes)
    assert sums(refs) == [1, 2, 3]


class Endless:
    @weft.method(num_returns="streaming", _generator_backpressure_num_objects=1)
    def run(self) -> Iterator[Any]:
        yield np.full(SIZE, 1)
        signal.pause()


def test_an_item_that_is_lost_with_its_actor_says_that_the_actor_died(two_nodes: TwoNodes) -> None:
    endless = weft.remote(Endless).options(max_task_retries=-1, **THERE).remote()
    taken = next(endless.run.remote())
    lose_node(two_nodes)
    with pytest.raises(
        weft.exceptions.ActorDiedError, match=r"item 0 of generator task Endless\.run: its bytes are gone"
    ):
        weft.get(taken, timeout=60)


def test_items_whose_lineage_is_on_disk_are_made_again(two_nodes: TwoNodes) -> None:
    _native.limit_lineage(1, 1 << 30)
    refs = made(count.options(**STREAM).remote(3))
    wait_until(lambda: _native.statistics()["lineage_tasks"] == 0)
    lose_node(two_nodes)
    assert sums(refs) == [1, 2, 3]
    del refs
    wait_until(lambda: _native.statistics()["lineage_disk_bytes"] == 0)


@weft.remote
class Taker:
    """Owns the items that it takes."""

    def take(self, to: int) -> list[Any]:
        return made(count.options(**STREAM).remote(to))

    def pid(self) -> int:
        return os.getpid()


def test_who_takes_over_a_dead_takers_items_makes_them_again(two_nodes: TwoNodes) -> None:
    taker = Taker.options(**THERE).remote()
    refs = weft.get(taker.take.remote(3))
    lose_node(two_nodes)  # the items' owner, their bytes and their generator are gone
    assert sums(refs) == [1, 2, 3]


@weft.remote
def count_and_tell(folder: str, to: int) -> Iterator[Any]:
    for value in range(1, to + 1):
        Path(folder, f"{value}-{os.getpid()}").touch()
        while value == 3 and Path(folder, "hold").exists():
            time.sleep(0.01)
        yield np.full(SIZE, value)


def test_a_worker_that_is_killed_while_it_makes_items_again_is_followed_by_another(
    two_nodes: TwoNodes, tmp_path: Path
) -> None:
    refs = made(count_and_tell.options(**STREAM).remote(str(tmp_path), 4))[2:]
    [first] = {path.name.partition("-")[2] for path in tmp_path.iterdir()}
    (tmp_path / "hold").touch()
    lose_node(two_nodes)
    result = total.remote(refs[0])
    wait_until(lambda: len(list(tmp_path.glob("3-*"))) == 2)
    [second] = {path.name.partition("-")[2] for path in tmp_path.glob("3-*")} - {first}
    os.kill(int(second), signal.SIGKILL)
    (tmp_path / "hold").unlink()
    assert weft.get(result, timeout=30) == 3 * SIZE
    assert len(list(tmp_path.glob("3-*"))) == 3
    assert sums(refs) == [3, 4]
