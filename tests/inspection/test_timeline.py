"""`weft.timeline` against a running session."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import weft
from weft.inspection.timeline import record


@weft.remote
def double(x: int) -> int:
    return 2 * x


@weft.remote
def fails() -> None:
    raise ValueError("no")


@weft.remote
class Counter:
    def add(self, amount: int) -> int:
        return amount

    def pid(self) -> int:
        return os.getpid()


def named(made: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [row for row in made["traceEvents"] if row["name"] == name]


@pytest.mark.usefixtures("weft_session")
def test_a_file_shows_tasks_calls_puts_waits_and_arrows_between_them(tmp_path: Path) -> None:
    counter = Counter.remote()
    assert weft.get(double.options(name="twice").remote(double.remote(1))) == 4
    assert weft.get(counter.add.remote(3)) == 3
    weft.put(np.zeros(1 << 20))
    with pytest.raises(ValueError, match="no"):
        weft.get(fails.remote())
    weft.timeline(tmp_path / "trace.json")
    made = json.loads((tmp_path / "trace.json").read_text())

    (ran,) = named(made, "twice")
    (call,) = named(made, "Counter.add")
    assert (ran["cat"], ran["args"]["status"], call["cat"]) == ("task", "ok", "actor call")
    assert [row["args"]["status"] for row in named(made, "fails")] == ["failed"]
    assert named(made, "put")[0]["args"]["bytes"] >= 8 << 20
    assert named(made, "wait")
    arrows = {(row["name"], row["ph"]) for row in made["traceEvents"] if row["ph"] in "sf"}
    assert arrows == {("submit", "s"), ("submit", "f"), ("result", "s"), ("result", "f")}
    titles = [row["args"]["name"] for row in named(made, "process_name")]
    assert any(title.startswith(f"driver (pid {os.getpid()}") for title in titles)
    assert any(title.startswith("actor Counter") for title in titles)
    assert made["otherData"]["dropped"] == 0


@pytest.mark.usefixtures("weft_session")
def test_the_events_of_a_worker_that_died_are_still_there() -> None:
    counter = Counter.remote()
    worker = psutil.Process(weft.get(counter.pid.remote()))
    weft.get(counter.add.remote(1))
    weft.kill(counter)
    assert not psutil.wait_procs([worker], timeout=30)[1]
    assert named(record(), "Counter.add")


@pytest.mark.usefixtures("weft_session")
def test_many_tasks_leave_bounded_events_and_an_exact_count_of_the_rest() -> None:
    before = record()["otherData"]
    total = 30_000
    for _ in range(total // 1000):
        weft.get([double.remote(1) for _ in range(1000)])
    after = record()["otherData"]
    assert after["events"] <= 8192 * 5
    recorded = after["events"] + after["dropped"] - before["events"] - before["dropped"]
    assert recorded >= 2 * total  # each was submitted and ran, and some were waited for
    assert recorded <= 3 * total


CODE = """
import weft
from weft.inspection.timeline import record
weft.init(num_cpus=1)
weft.get(weft.remote(lambda: 1).remote())
print(record()["otherData"]["events"])
"""


def test_nothing_is_recorded_where_the_variable_says_so() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", CODE],
        env={**os.environ, "WEFT_EVENTS": "0"},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert (ended.stdout, ended.stderr) == ("0\n", "")


def test_without_a_session_of_processes_the_timeline_says_so() -> None:
    weft.init(local_mode=True)
    try:
        with pytest.raises(RuntimeError, match="local_mode records nothing"):
            weft.timeline()
    finally:
        weft.shutdown()
