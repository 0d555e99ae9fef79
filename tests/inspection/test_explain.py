"""`weft.explain` says why an object is not there, or what it is."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from tests.waiting import wait_until

import weft

pytestmark = pytest.mark.usefixtures("weft_session")


@weft.remote
def wait_for(path: str) -> int:
    while not os.path.exists(path):
        pass
    return 1


@weft.remote
def add(a: int, b: int) -> int:
    return a + b


def test_a_ready_value_is_described_by_its_size_and_place() -> None:
    assert "6 bytes, kept inline" in weft.explain(weft.put("x"))
    assert "8.0 MiB in the node's arena" in weft.explain(weft.put(np.ones(1 << 20)))


def test_a_running_task_names_its_worker_and_those_behind_it_what_they_wait_for(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    running = [wait_for.remote(str(gate)) for _ in range(2)]
    sums = add.remote(running[0], 1)
    queued = wait_for.remote(str(gate))
    assert "waits for 1 of its arguments" in weft.explain(sums)
    story = weft.explain(queued)
    assert "waits for a worker" in story
    assert "it asks for 1 CPU; node " in story and "it has 0 CPU free, and 1 are wanted" in story
    assert "of 2 CPU" in story
    gate.touch()
    assert weft.get([sums, queued]) == [2, 1]
    assert "is ready" in weft.explain(sums)


def test_what_a_task_waits_for_is_followed_down_to_what_runs_and_where(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    last = add.remote(add.remote(wait_for.remote(str(gate)), 1), 1)
    story = ""

    def is_told() -> bool:
        nonlocal story
        story = weft.explain(last)
        return "in wait_for" in story

    wait_until(is_told)
    first, second, third, fourth = story.splitlines()
    assert first == "Task add waits for 1 of its arguments:"
    assert second.startswith("  ") and second.endswith(", of task add, which waits for:")
    assert third.startswith("    ") and ", of task wait_for, which runs in pid=" in third and f"at {__file__}:" in third
    assert fourth == "This process owns it; nobody borrows it."
    gate.touch()
    assert weft.get(last) == 3


def test_who_has_the_resources_that_a_task_waits_for_is_named(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    running = [wait_for.remote(str(gate)) for _ in range(2)]
    queued = add.remote(1, 2)
    wait_until(lambda: "Held by task wait_for × 2 (pid " in weft.explain(queued))
    gate.touch()
    assert weft.get([*running, queued]) == [1, 1, 3]


def test_a_failed_task_is_told_with_its_whole_error() -> None:
    @weft.remote
    def fails() -> None:
        raise ValueError("one line\nand another")

    ref = fails.remote()
    weft.wait([ref])
    story = weft.explain(ref)
    assert "ValueError: one line\nand another" in story and "_error_of" not in story


def test_a_call_that_waits_for_an_earlier_one_says_so(tmp_path: Path) -> None:
    @weft.remote
    class Slow:
        def work(self, path: str) -> None:
            while not os.path.exists(path):
                pass

    gate = tmp_path / "gate"
    actor = Slow.remote()
    weft.get(actor.__ray_ready__.remote())
    first, second = actor.work.remote(str(gate)), actor.work.remote(str(gate))
    story = weft.explain(second)
    assert "actor Slow" in story
    assert "1 earlier calls are unanswered" in story
    gate.touch()
    weft.get([first, second])


def test_only_refs_can_be_explained() -> None:
    with pytest.raises(TypeError, match="but got 3"):
        weft.explain(3)  # type: ignore[arg-type]
