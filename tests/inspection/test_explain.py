"""`weft.explain` says why an object is not there, or what it is."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

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


def test_a_failed_task_is_told_with_its_error() -> None:
    ref = add.remote(1, "x")  # type: ignore[arg-type]
    weft.wait([ref])
    assert "TypeError" in weft.explain(ref)


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
