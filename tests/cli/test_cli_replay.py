"""`weft replay`: a failed task again, in the foreground."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft.engine.cluster.client import Client


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


@weft.remote
def sums(refs: list[Any]) -> float:
    return sum(float(weft.get(ref).sum()) for ref in refs) / divides_by_nothing(refs)


def divides_by_nothing(refs: list[Any]) -> int:
    raise ZeroDivisionError(f"{sum(weft.get(ref).sum() for ref in refs):g}")


@weft.remote
def nests(value: int) -> Any:
    return weft.get(divides.remote([value], 0, note="nested"))


@weft.remote
def counts_down(start: int) -> Any:
    while True:
        yield 1 / start
        start -= 1


@weft.remote(num_cpus=0)
class Account:
    def __init__(self, start: Any) -> None:
        self.sum = start + 0

    def add(self, amount: int) -> None:
        self.sum += amount

    def takes(self, amount: int) -> None:
        if amount > self.sum:
            raise ValueError(f"{self.sum} is less than {amount}")
        self.sum -= amount


@weft.remote(num_cpus=0)
class AsyncAccount:
    async def fails(self, amount: int) -> None:
        raise ValueError(f"awaited {amount}")


@weft.remote(num_cpus=0)
class Holder:
    def __init__(self) -> None:
        self.lock = threading.Lock()

    def fails(self) -> None:
        raise ValueError("with a lock")


def replay(task: str, *arguments: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    address = weft.init(ignore_reinit_error=True)["address"]
    command = [sys.executable, "-m", "weft.cli", "replay", "--address", address, task, *arguments]
    return subprocess.run(command, input=typed, capture_output=True, text=True, timeout=280)


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


def test_large_arguments_are_recorded_too() -> None:
    told = replay(failed(divides.remote(np.ones(1 << 20), 0, note="large")))
    assert "ZeroDivisionError: large: 1.04858e+06 by 0" in told.stderr


def test_what_never_failed_or_can_not_be_pickled_says_so() -> None:
    ref = makes.remote(1)
    weft.get(ref)
    assert "it may not have failed" in replay(ref.hex()[:24]).stderr
    assert "at least four letters" in replay("").stderr
    holder = Holder.remote()
    told = replay(failed(holder.fails.remote()))
    assert told.returncode == 1 and "cannot be pickled" in told.stderr and "lock" in told.stderr


def test_refs_inside_arguments_have_their_values_and_are_not_counted_twice() -> None:
    inner = weft.put(np.ones(1 << 16))
    task = failed(sums.remote([inner, makes.remote(3)]))
    assert "ZeroDivisionError: 65539" in replay(task).stderr
    assert weft.get(inner).nbytes == 8 << 16


def test_what_the_task_submits_runs_in_the_foreground_too() -> None:
    told = replay(failed(nests.remote(4)))
    assert "ZeroDivisionError: nested: 4 by 0" in told.stderr and "in nests" in told.stderr


def test_a_generator_is_run_to_where_it_failed() -> None:
    refs = counts_down.remote(2)
    with pytest.raises(ZeroDivisionError):
        [weft.get(ref) for ref in refs]
    (row,) = [row for row in failures() if row["name"] == "counts_down"]
    assert "in counts_down" in replay(row["task_id"]).stderr


def test_a_failing_call_begins_with_the_state_of_its_actor() -> None:
    account = Account.remote(5)
    weft.get(account.add.remote(7))
    told = replay(failed(account.takes.remote(20)))
    assert told.returncode == 1 and "ValueError: 12 is less than 20" in told.stderr
    assert "begins with the state" in told.stdout


def test_calls_of_concurrent_actors_and_constructors_are_recorded_too() -> None:
    account = AsyncAccount.remote()
    assert "ValueError: awaited 3" in replay(failed(account.fails.remote(3))).stderr
    broken = Account.remote("x")
    with pytest.raises(weft.exceptions.ActorDiedError):
        weft.get(broken.add.remote(1))
    (row,) = [row for row in failures() if row["name"] == "Account.__init__"]
    told = replay(row["task_id"])
    assert "replays Account" in told.stdout and "TypeError" in told.stderr


def failures() -> list[dict[str, Any]]:
    client = Client(weft.init(ignore_reinit_error=True)["address"], None)
    return [row for node in client.ask("errors") for row in node["errors"]]


EXACT = """
import subprocess, sys, weft
context = weft.init(num_cpus=1)

@weft.remote
class Account:
    def __init__(self, start):
        self.sum = start
        self.add(0)
    def add(self, amount):
        self.sum += amount
        if amount < 0:
            raise ValueError("negative")
        return self.twice()
    def twice(self):
        return 2 * self.sum
    def spoil(self):
        self.sum *= 10
        raise KeyError(self.sum)

@weft.remote
class Async(Account.__wrapped__):
    async def slow(self):
        return self.sum

for kind in (Account, Async):
    account = kind.remote(1)
    for amount in (2, -1, 3):
        try:
            weft.get(account.add.remote(amount))
        except ValueError:
            pass
    ref = account.spoil.remote()
    try:
        weft.get(ref)
    except KeyError as error:
        print("first", error)
    command = [sys.executable, "-m", "weft.cli", "replay", "--address", context["address"], ref.hex()[:24]]
    ended = subprocess.run(command, capture_output=True, text=True)
    print(ended.stdout, ended.stderr.splitlines()[-1])
"""


ASKED = """
import subprocess, sys, weft
context = weft.init(num_cpus=2, namespace="n")

@weft.remote(num_cpus=0)
class Store:
    def __init__(self):
        self.count = 0
    def next(self):
        self.count += 1
        return self.count
    def refuses(self):
        raise KeyError("refused")
    def items(self):
        yield 1

@weft.remote(num_cpus=0)
class Asker:
    def __init__(self, store):
        self.store, self.seen = store, weft.get(store.next.remote())
    def asks(self):
        self.seen += weft.get(self.store.next.remote())
        return self.seen
    def fails(self):
        raise ValueError(f"seen {self.asks()}")

@weft.remote
def asks(store, name, way):
    found = [weft.get(store.next.remote()), weft.get(weft.get_actor(name).next.options(name="x").remote())]
    try:
        weft.get(store.refuses.remote())
    except KeyError as error:
        found.append('refused' in str(error))
    if way == "stream":
        store.items.remote()
    raise ValueError(f"found {found} {way}")

def replay(ref):
    try:
        weft.get(ref)
    except ValueError as error:
        print("first", str(error).splitlines()[-1])
    command = [sys.executable, "-m", "weft.cli", "replay", "--address", context["address"], ref.hex()[:24]]
    ended = subprocess.run(command, capture_output=True, text=True)
    print("again", ended.stderr.splitlines()[-1])

store = Store.options(name="kept").remote()
replay(asks.remote(store, "kept", "plain"))
replay(asks.remote(store, "kept", "stream"))
asker = Asker.remote(store)
weft.get(asker.asks.remote())
replay(asker.fails.remote())
assert weft.get(store.next.remote()) == 8, "a replay asks nobody"
"""


def asked(**variables: str) -> list[str]:
    ended = subprocess.run(
        [sys.executable, "-c", ASKED], env={**os.environ, **variables}, capture_output=True, text=True, timeout=280
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


def test_with_recorded_calls_actors_answer_in_a_replay_as_they_did() -> None:
    lines = asked(WEFT_RECORD_CALLS="1")
    first, again = [line.removeprefix("first ") for line in lines[::2]], [line[6:] for line in lines[1::2]]
    assert again[0] == first[0] and "found [1, 2, True] plain" in first[0]
    assert "Store.items cannot be called in a replay" in again[1] and "generators are not recorded" in again[1]
    assert again[2] == first[2] == "ValueError: seen 18"


def test_without_recorded_calls_a_handle_says_what_to_do() -> None:
    lines = asked()
    for line in lines[1::2]:
        assert "Store.next cannot be called in a replay" in line and "WEFT_RECORD_CALLS=1" in line


def test_with_recorded_calls_an_actor_is_run_from_its_beginning_to_the_failing_call() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", EXACT], env={**os.environ, "WEFT_RECORD_CALLS": "1"}, capture_output=True, text=True,
        timeout=280,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    _, *replays = ended.stdout.split("first ")
    assert len(replays) == 2
    for text in replays:
        assert text.rstrip().endswith("KeyError: 50")
        assert "call 2 of 3 before it, add, raised ValueError('negative')" in text
