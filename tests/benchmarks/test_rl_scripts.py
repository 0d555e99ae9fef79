"""The scripts that measure weft.rl: how they share out cores, keep what they found, and count runs that fell short."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "benchmarks" / "rl"


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ModuleType]]:
    """The modules by name; they import each other by their bare names."""
    monkeypatch.setattr(sys, "path", [str(SCRIPTS), *sys.path])
    names = ("side_by_side", "peers")
    yield {name: importlib.import_module(name) for name in names}
    for name in names:
        del sys.modules[name]


def test_each_task_has_cores_that_no_other_has_at_that_time(scripts: dict[str, ModuleType]) -> None:
    both_run = threading.Barrier(2, timeout=60)
    used: list[str] = []

    def work(task: int, cores: str) -> None:
        used.append(cores)
        both_run.wait()

    scripts["side_by_side"].on_own_cores(range(4), 2, [3, 4, 5, 6], work)
    assert sorted(used) == ["3,4", "3,4", "5,6", "5,6"]


def test_a_task_that_fails_does_not_stop_the_others_and_is_raised(scripts: dict[str, ModuleType]) -> None:
    done: list[int] = []

    def work(task: int, cores: str) -> None:
        if task == 0:
            raise ValueError("task 0")
        done.append(task)

    with pytest.raises(ValueError, match="task 0"):
        scripts["side_by_side"].on_own_cores(range(3), 1, [0], work)
    assert done == [1, 2]


def test_cores_that_the_process_may_not_use_are_refused(scripts: dict[str, ModuleType]) -> None:
    cores_of = scripts["side_by_side"].cores_of
    mine = sorted(os.sched_getaffinity(0))
    assert cores_of(",".join(map(str, mine))) == mine
    with pytest.raises(argparse.ArgumentTypeError, match="100000"):
        cores_of("100000")


def test_two_that_add_to_a_file_at_once_lose_nothing(scripts: dict[str, ModuleType], tmp_path: Path) -> None:
    path = tmp_path / "found" / "all.json"

    def add(first: int) -> None:
        for number in range(first, first + 50):
            scripts["side_by_side"].change(path, lambda kept, number=number: [*(kept or []), number])

    adding = [threading.Thread(target=add, args=(first,)) for first in (0, 50)]
    for thread in adding:
        thread.start()
    for thread in adding:
        thread.join()
    assert sorted(json.loads(path.read_text())) == list(range(100))
    assert os.listdir(path.parent) == ["all.json"]


def runs(*seconds: float, reached: bool = True) -> dict[str, Any]:
    return {str(i): {"seconds": s, "steps": 100, "reached": reached} for i, s in enumerate(seconds)}


def test_a_peer_that_missed_the_bar_is_a_lower_bound(
    scripts: dict[str, ModuleType], capsys: pytest.CaptureFixture[str]
) -> None:
    scripts["peers"].report("ppo-cartpole", {"weft": runs(1, 2, 3), "sb3": runs(20, 20, 20, reached=False)})
    assert "sb3 over 20.0 s to the bar: over 10.0x" in capsys.readouterr().out


def test_a_run_of_ours_that_missed_the_bar_counts_as_endless(
    scripts: dict[str, ModuleType], capsys: pytest.CaptureFixture[str]
) -> None:
    scripts["peers"].report("ppo-cartpole", {"weft": runs(1, 2, 3, reached=False), "sb3": runs(20, 20, 20)})
    assert "weft inf s, sb3 20.0 s to the bar: 0.0x" in capsys.readouterr().out
