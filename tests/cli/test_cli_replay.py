"""`weft replay`: a failed task again, in the foreground."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft


@weft.remote
def divides(values: Any, by: int, *, note: str = "") -> float:
    values = np.asarray(values) * 1.0
    if by == 0:
        raise ZeroDivisionError(f"{note}: {values.sum():g} by {by}")
    return float(values.sum() / by)


@weft.remote
def makes(count: int) -> Any:
    return np.ones(count)


@weft.remote
def looks(path: str) -> str:
    """Fails as long as the file is not there."""
    with open(path) as file:
        return file.read()


def replay(task: str, *arguments: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    address = weft.init(ignore_reinit_error=True)["address"]
    command = [sys.executable, "-m", "weft.cli", "replay", "--address", address, task, *arguments]
    return subprocess.run(command, input=typed, capture_output=True, text=True, timeout=60)


def failed(ref: Any) -> str:
    with pytest.raises(Exception):  # noqa: B017, PT011
        weft.get(ref)
    return str(ref.hex()[:24])


@pytest.fixture(scope="module", autouse=True)
def session(shared_weft_session: Any) -> None:
    """One for all."""


def test_the_task_fails_again_with_the_same_arguments_and_traceback() -> None:
    told = replay(failed(divides.remote([1, 2, 3], 0, note="sum")))
    assert told.returncode == 1
    assert "weft: replays divides" in told.stdout
    assert "ZeroDivisionError: sum: 6 by 0" in told.stderr and "in divides" in told.stderr


def test_arguments_that_were_results_of_tasks_are_recorded_too() -> None:
    told = replay(failed(divides.remote(makes.remote(1000), 0, note="ones")))
    assert "ZeroDivisionError: ones: 1000 by 0" in told.stderr


def test_a_task_that_returns_this_time_says_so(tmp_path: Path) -> None:
    task = failed(looks.remote(str(tmp_path / "late")))
    (tmp_path / "late").write_text("here now")
    told = replay(task)
    assert told.returncode == 0 and "it returned 'here now' this time" in told.stdout


def test_a_debugger_stops_where_it_raised_or_at_its_first_line() -> None:
    task = failed(divides.remote([4], 0))
    assert "4.0" in replay(task, "--debugger", "pdb", typed="p values[0]\nq\n").stdout
    assert "divides()" in replay(task, "--break", typed="p by\nc\n").stdout


def test_what_is_too_large_or_never_failed_can_not_be_replayed() -> None:
    large = failed(divides.remote(np.zeros(1 << 20), 0))
    ref = makes.remote(1)
    weft.get(ref)
    for task in (large, ref.hex()[:24]):
        told = replay(task)
        assert told.returncode == 1 and "no inputs of a failed task" in told.stderr


def test_refs_inside_arguments_are_neither_recorded_nor_counted_twice() -> None:
    inner = weft.put(np.zeros(1 << 16))
    task = failed(divides.remote([inner], 0))
    assert "no inputs of a failed task" in replay(task).stderr
    assert weft.get(inner).nbytes == 8 << 16
