"""`breakpoint()` in a task, and `weft debug` at it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from typing import Any
from unittest.mock import Mock

import pytest

import weft
from weft.net import credentials
from weft.replay import debugging


@weft.remote
def stops(secret: int) -> int:
    breakpoint()
    return secret


@weft.remote
class Stopping:
    def stops(self, secret: int) -> int:
        breakpoint()
        return secret


def debug(*arguments: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    address = weft.init(ignore_reinit_error=True)["address"]
    command = [sys.executable, "-m", "weft.cli", "debug", "--address", address, *arguments]
    return subprocess.run(command, input=typed, capture_output=True, text=True, timeout=280)


def waiting(count: int = 1) -> list[dict[str, Any]]:
    deadline = time.monotonic() + 30
    tick = threading.Event()
    while len(rows := json.loads(debug("--json").stdout)) != count:
        assert time.monotonic() < deadline, rows
        tick.wait(0.1)
    found: list[dict[str, Any]] = rows
    return found


@pytest.mark.usefixtures("weft_session")
def test_a_task_can_be_looked_into_and_changed_and_goes_on() -> None:
    ref = stops.remote(42)
    (row,) = waiting()
    assert row["name"] == "stops" and "test_debug.py:" in row["place"]
    assert "stops" in debug("--list").stdout
    told = debug(row["task_id"][:10], typed="p secret * 2\nsecret = 7\ncontinue\n")
    assert told.returncode == 0 and "84" in told.stdout and "the task goes on" in told.stdout
    assert weft.get(ref) == 7
    assert waiting(0) == []


@pytest.mark.usefixtures("weft_session")
def test_what_a_task_shows_draws_nothing_on_the_terminal() -> None:
    ref = stops.remote(42)
    waiting()
    told = debug(typed="print(chr(27) + ']0;title' + chr(7) + chr(27) + '[31mred \u00fc')\ncontinue\n")
    assert "?]0;title?\x1b[31mred \u00fc" in told.stdout
    assert weft.get(ref) == 42


@pytest.mark.usefixtures("weft_session")
@pytest.mark.parametrize("typed", ["quit\n", ""])
def test_leaving_in_any_way_lets_the_actor_go_on(typed: str) -> None:
    actor = Stopping.remote()
    first = actor.stops.remote(1)
    waiting()
    debug(typed=typed)
    assert weft.get(first) == 1


@pytest.mark.usefixtures("weft_session")
def test_a_breakpoint_goes_with_its_worker() -> None:
    actor = Stopping.options(max_restarts=0).remote()
    ref = actor.stops.remote(1)
    waiting()
    weft.kill(actor)
    with pytest.raises(weft.exceptions.ActorDiedError):
        weft.get(ref)
    waiting(0)
    told = debug()
    assert told.returncode == 1 and "no task waits at a breakpoint" in told.stderr


def test_strangers_that_knock_keep_no_task_at_its_breakpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them counted as the first, so that one an hour kept the task for ever."""

    class Knocked:
        waits: list[float]

        def __init__(self) -> None:
            self.waits = []

        def settimeout(self, wait_s: float) -> None:
            self.waits.append(wait_s)

        def accept(self) -> tuple[Any, str]:
            now.append(now[-1] + 0.4)
            return ours, ""

    now = [100.0]
    ours, theirs = socket.socketpair()
    listener = Knocked()
    monkeypatch.setattr(debugging.time, "monotonic", lambda: now[-1])
    monkeypatch.setattr(credentials, "peer_pid", Mock(side_effect=PermissionError))
    with ours, theirs, pytest.raises(TimeoutError):
        debugging._accept(listener, 101.0)  # type: ignore[arg-type]
    assert listener.waits == pytest.approx([1.0, 0.6, 0.2])


@pytest.mark.skipif("PYTHONBREAKPOINT" in os.environ, reason="another debugger is chosen")
def test_another_debugger_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONBREAKPOINT", "0")
    weft.init(num_cpus=1)
    try:
        assert weft.get(stops.remote(3)) == 3
    finally:
        weft.shutdown()
