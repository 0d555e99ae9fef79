"""`max_calls`: a worker runs a function so many times, then a fresh one takes its place, and nothing is lost by it."""

from __future__ import annotations

import os
from collections import Counter
from types import ModuleType

import pytest

from waiting import wait_until


def _is_running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_worker_runs_it_so_many_times_and_ends(weft_session: ModuleType) -> None:
    @weft_session.remote(max_calls=3, max_retries=0)
    def pid() -> int:
        return os.getpid()

    calls = Counter(weft_session.get([pid.remote() for _ in range(30)]))
    assert sum(calls.values()) == 30
    assert max(calls.values()) <= 3
    spent = [process for process, count in calls.items() if count == 3]
    assert spent
    wait_until(lambda: not any(map(_is_running, spent)))


def test_one_call_after_the_other_finds_a_worker(weft_session: ModuleType) -> None:
    @weft_session.remote(max_calls=1, max_retries=0)
    def pid() -> int:
        return os.getpid()

    assert len({weft_session.get(pid.remote()) for _ in range(8)}) == 8


def test_tasks_that_were_sent_to_it_go_back(weft_session: ModuleType) -> None:
    """Thousands of short tasks lie in the queue of a worker that ends: none is lost, none counts as a failure."""

    @weft_session.remote(max_calls=1, max_retries=0)
    def last() -> int:
        return os.getpid()

    @weft_session.remote(max_retries=0)
    def short(i: int) -> int:
        return i

    others = [short.remote(i) for i in range(2_000)]
    ends = [last.remote() for _ in range(5)]
    others += [short.remote(i) for i in range(2_000, 4_000)]
    assert weft_session.get(others) == list(range(4_000))
    assert len(set(weft_session.get(ends))) == 5


def test_what_it_owns_and_what_it_streams_stay(weft_session: ModuleType) -> None:
    @weft_session.remote(max_calls=1, max_retries=0)
    def keeps() -> list[object]:
        return [weft_session.put("kept"), os.getpid()]

    @weft_session.remote(max_calls=1, max_retries=0)
    def counts() -> object:
        yield from range(500)

    inner, process = weft_session.get(keeps.remote())
    assert weft_session.get(list(counts.remote())) == list(range(500))
    wait_until(lambda: not _is_running(process))
    assert weft_session.get(inner) == "kept"


def test_an_error_in_the_last_call_is_told(weft_session: ModuleType) -> None:
    @weft_session.remote(max_calls=1, max_retries=0)
    def fails() -> None:
        raise ValueError("told")

    for _ in range(3):
        with pytest.raises(ValueError, match="told"):
            weft_session.get(fails.remote())
