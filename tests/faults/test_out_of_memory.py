"""A worker that takes too much memory is stopped, and only that one. The node is given little: nobody else suffers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import weft
from weft.cluster_utils import Cluster
from weft.exceptions import ActorDiedError, OutOfMemoryError

LIMIT = 300 << 20
TOO_MUCH = 400 << 20


@pytest.fixture(autouse=True)
def _small_node(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("WEFT_MEMORY_LIMIT", str(LIMIT))
    weft.init(num_cpus=3)
    yield
    weft.shutdown()


def fill(bytes_: int) -> Any:
    """Touched, held until the process is stopped."""
    data = bytearray()
    while len(data) < bytes_:
        data += b"x" * (16 << 20)
        time.sleep(0.01)
    while len(data) >= TOO_MUCH:
        time.sleep(0.1)
    return data


def test_the_offender_is_stopped_with_its_peak_and_the_others_live() -> None:
    @weft.remote(max_retries=0)
    def greedy() -> int:
        return len(fill(TOO_MUCH))

    @weft.remote(num_cpus=1)
    class Bystander:
        def count(self) -> int:
            self.value: int = getattr(self, "value", 0) + 1
            return self.value

    bystander = Bystander.remote()
    assert weft.get(bystander.count.remote()) == 1
    with pytest.raises(OutOfMemoryError, match=r"greedy .*stopped for memory: pid \d+ held \d+ MiB \(peak \d+ MiB\)"):
        weft.get(greedy.remote())
    assert weft.get(bystander.count.remote()) == 2


def test_the_submitter_on_another_node_hears_why_the_worker_was_stopped() -> None:
    weft.shutdown()

    @weft.remote(max_retries=0, resources={"there": 1})
    def greedy() -> int:
        return len(fill(TOO_MUCH))

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        cluster.add_node(num_cpus=1, resources={"there": 1})
        weft.init(address=cluster.address)
        with pytest.raises(OutOfMemoryError, match=r"greedy .*stopped for memory: pid \d+ held"):
            weft.get(greedy.remote())
    finally:
        weft.shutdown()
        cluster.shutdown()


def test_a_task_that_may_be_retried_is(tmp_path: Path) -> None:
    mark = tmp_path / "mark"

    @weft.remote(max_retries=1)
    def greedy_once() -> str:
        if mark.exists():
            return "second"
        mark.touch()
        fill(TOO_MUCH)
        return "first"

    assert weft.get(greedy_once.remote()) == "second"


def test_a_task_that_is_tried_again_has_as_much_memory_set_aside_as_it_took(tmp_path: Path) -> None:
    mark = tmp_path / "mark"

    @weft.remote(max_retries=1)
    def greedy_once() -> float:
        if mark.exists():
            return weft.cluster_resources()["memory"] - weft.available_resources()["memory"]
        mark.touch()
        fill(TOO_MUCH)
        return -1.0

    assert weft.get(greedy_once.remote()) >= LIMIT


def test_no_more_memory_is_asked_for_than_the_node_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weft.shutdown()
    monkeypatch.setenv("WEFT_MEMORY_LIMIT", str(LIMIT))
    weft.init(num_cpus=1, resources={"memory": 200 << 20})
    mark = tmp_path / "mark"

    @weft.remote(max_retries=1)
    def greedy_once() -> float:
        if mark.exists():
            return weft.available_resources().get("memory", 0.0)
        mark.touch()
        fill(TOO_MUCH)
        return -1.0

    assert weft.get(greedy_once.remote()) == 0.0


def test_an_actor_says_why_it_died() -> None:
    @weft.remote
    class Greedy:
        def fill(self) -> int:
            return len(fill(TOO_MUCH))

    with pytest.raises(ActorDiedError, match="stopped for memory: pid"):
        weft.get(Greedy.remote().fill.remote())


def test_a_limit_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    weft.shutdown()
    monkeypatch.setenv("WEFT_MEMORY_LIMIT", "much")
    with pytest.raises(RuntimeError, match="WEFT_MEMORY_LIMIT must be a positive number of bytes, but got 'much'"):
        weft.init(num_cpus=1)
