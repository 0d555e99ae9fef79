"""What a node keeps of its past: stretches, their bound, searches; and the same of a session that runs."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

import weft
from waiting import comes_true
from weft.engine.cluster.client import Client
from weft.net.loop import Loop
from weft.observe import node_past, past_runs
from weft.observe.node_past import MOST_FUNCTIONS, MOST_MINUTES, MOST_STRETCHES, FunctionSums, NodePast

Row = tuple[bytes, int, int, int, int, int]


class FakePort:
    """Each time it is asked a function has run once more, and an event in ten was missed."""

    def __init__(self, functions: list[Row] | None = None) -> None:
        self.functions = [(b"f", 1, 0, 0, 5, 5)] if functions is None else functions
        self.searched_by = ""

    def take_recorded(self) -> tuple[int, int, int, int, list[Row]]:
        return 9, 1, 2, 0, self.functions

    def find_runs(self, *wanted: Any) -> bytes:
        self.searched_by = threading.current_thread().name
        if wanted[2] == b"raises":
            raise MemoryError("the search")
        return b"found" if wanted[2] == b"f" else b""

    def statistics(self) -> dict[str, int]:
        return {"used_bytes": 7}

    def tallies(self) -> list[int]:
        return [0] * 10


class Clock:
    """Nothing is called by itself; time passes by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(node_past.time, "time", lambda: self.now)

    def call_later(self, delay_s: float, call: Callable[[], None]) -> None:
        pass

    def watch(self, fd: int, callback: Callable[[], None]) -> None:
        raise AssertionError

    def unwatch(self, fd: int) -> None:
        raise AssertionError


def kept_for(clock: Clock, stretches: int, port: FakePort | None = None) -> NodePast:
    past = NodePast(clock, port or FakePort(), clock.now)
    for _ in range(stretches):
        clock.now += node_past.STRETCH_S
        past.take()
    return past


def test_nothing_is_lost_where_old_stretches_become_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    stretches = MOST_STRETCHES + 600
    found = kept_for(Clock(monkeypatch), stretches).since(0)
    assert len(found) < MOST_STRETCHES + 120
    assert sum(one.functions["f"].runs for one in found) == stretches
    assert sum(one.recorded for one in found) == 9 * stretches and sum(one.missed for one in found) == stretches
    assert all(a.time_s == b.from_s for a, b in pairwise(found)), "no gap, and nothing twice"


def test_what_is_kept_is_bounded_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    found = kept_for(Clock(monkeypatch), MOST_STRETCHES + 8 * MOST_MINUTES).since(0)
    assert len(found) == MOST_STRETCHES + MOST_MINUTES


def test_of_many_functions_those_that_took_longest_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    many: list[Row] = [(f"f{n}".encode(), 2, 1, 0, n, n) for n in range(MOST_FUNCTIONS + 50)]
    (found,) = kept_for(Clock(monkeypatch), 1, FakePort(many)).since(0)
    assert len(found.functions) == MOST_FUNCTIONS
    assert found.functions[""] == FunctionSums(102, 51, 0, sum(range(51)), 50)
    assert found.functions[f"f{MOST_FUNCTIONS + 49}"].runs == 2


def test_who_asks_is_told_up_to_the_present(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    past = kept_for(clock, 3)
    clock.now += 4
    assert [one.time_s for one in past.since(1020.0)] == [1030.0, 1034.0]


def test_a_search_does_not_hold_the_loop_up() -> None:
    loop, port, found = Loop(), FakePort(), list[bytes | Exception]()
    past = NodePast(loop, port, time.time())
    past.find({"name": "f"}, found.append)
    assert found == []
    while not found:
        loop.run_once(1.0)
    assert found == [b"found"] and port.searched_by == "weft-past"
    past.find({"name": "raises"}, found.append)
    while len(found) < 2:
        loop.run_once(1.0)
    assert isinstance(found[1], MemoryError), "who asked is told, and not that nothing ran"
    loop.close()


@weft.remote
def steady(number: int) -> int:
    return number


@weft.remote(max_retries=0)
def fails_at(number: int, bad: int) -> None:
    if number % bad == 0:
        raise ValueError(number)


def ran(client: Client, name: str) -> dict[str, Any]:
    rows = {row["name"]: row for row in past_runs.ended(client, 600)["rows"]}
    found: dict[str, Any] = rows.get(name, {})
    return found


@pytest.mark.usefixtures("shared_weft_session")
def test_every_run_of_a_quiet_program_is_counted_and_found_again() -> None:
    client = Client(weft.init(ignore_reinit_error=True)["address"])
    weft.get([steady.remote(number) for number in range(100)])
    weft.wait([fails_at.remote(number, 5) for number in range(20)], num_returns=20)
    comes_true(lambda: ran(client, "steady").get("runs") == 100 and ran(client, "fails_at").get("runs") == 20)
    assert ran(client, "fails_at")["failed"] == 4 and ran(client, "steady")["failed"] == 0
    failed = past_runs.single_runs(client, 600, "", "failed", 100)
    assert [row["name"] for row in failed] == ["fails_at"] * 4 and {row["outcome"] for row in failed} == {"failed"}
    longest = past_runs.single_runs(client, 600, "steady", "longest", 10)
    assert len(longest) == 10 and longest == sorted(longest, key=lambda row: -row["seconds"])
    assert longest[0]["seconds"] == pytest.approx(ran(client, "steady")["longest_s"])
    assert len(past_runs.single_runs(client, 600, "steady", "newest", 1000)) == 100
    assert past_runs.single_runs(client, 600, "steady", "newest", 0) == []


@pytest.mark.usefixtures("shared_weft_session")
def test_the_command_line_shows_the_past() -> None:
    address = weft.init(ignore_reinit_error=True)["address"]
    client = Client(address)
    weft.get([steady.remote(number) for number in range(10)])
    comes_true(lambda: ran(client, "steady").get("runs", 0) >= 10)

    def weft_past(*words: str) -> str:
        command = [sys.executable, "-m", "weft.cli", "past", "--address", address, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout

    assert "steady" in weft_past() and "are counted" in weft_past("--last", "5m")
    rows = json.loads(weft_past("steady", "--json", "--limit", "3"))
    assert len(rows) == 3 and {row["outcome"] for row in rows} == {"ok"}
    assert "No such run is kept." in weft_past("no_such_function")
    refused = subprocess.run(
        [sys.executable, "-m", "weft.cli", "past", "--last", "soon"], capture_output=True, text=True, timeout=120
    )
    assert refused.returncode == 2 and "as 10m" in refused.stderr
