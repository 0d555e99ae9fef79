"""Actors with `checkpoint=`: whatever kills them, each call takes effect exactly once."""

from __future__ import annotations

import os
import signal
import threading
from types import ModuleType
from typing import Any

import pytest

import weft
from weft.actor import CheckpointPolicy
from weft.cluster_utils import Cluster
from weft.exceptions import ActorDiedError, ActorUnavailableError


@weft.remote(checkpoint=20, num_cpus=0)
class Counter:
    """Counts, and remembers who has counted in which order."""

    def __init__(self, start: int = 0) -> None:
        self.value = start
        self.calls: dict[str, list[int]] = {}

    def add(self, who: str, number: int) -> int:
        self.value += 1
        self.calls.setdefault(who, []).append(number)
        return self.value

    def add_and_die(self) -> int:
        self.value += 1
        os.kill(os.getpid(), signal.SIGKILL)
        return self.value

    def add_and_fail(self) -> None:
        self.value += 1
        raise ValueError("on purpose")

    def read(self) -> tuple[int, dict[str, list[int]]]:
        return self.value, self.calls

    def pid(self) -> int:
        return os.getpid()


@weft.remote(num_cpus=0)
def hammer(counter: Any, who: str, count: int) -> list[int]:
    answers: list[int] = []
    for first in range(0, count, 10):
        answers += weft.get([counter.add.remote(who, first + n) for n in range(10)])
    return answers


def test_a_hammered_counter_that_is_killed_again_and_again_ends_with_the_exact_count(weft_session: ModuleType) -> None:
    counter = Counter.remote()
    callers = [hammer.remote(counter, f"caller {n}", 200) for n in range(4)]
    mine: list[int] = []
    killed: list[int] = []
    for number in range(100):
        if number % 10 == 5:  # in the middle of the others' calls
            pid = weft.get(counter.pid.remote())
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)
        mine.append(weft.get(counter.add.remote("driver", number)))
    answers = weft.get(callers)
    value, calls = weft.get(counter.read.remote())
    assert value == 900
    assert calls["driver"] == list(range(100)), "one caller's calls take effect in its order"
    assert all(calls[f"caller {n}"] == list(range(200)) for n in range(4))
    assert sorted([*mine, *(one for some in answers for one in some)]) == list(range(1, 901)), "each has its own answer"
    assert len(set(killed)) == 10, "each of its processes was killed"


def test_the_state_is_that_before_the_kill_and_the_constructor_does_not_run_again(weft_session: ModuleType) -> None:
    counter = Counter.options(checkpoint=CheckpointPolicy(every_calls=3)).remote(100)
    for number in range(7):
        weft.get(counter.add.remote("a", number))
    before, pid = weft.get(counter.read.remote()), weft.get(counter.pid.remote())
    os.kill(pid, signal.SIGKILL)
    assert weft.get(counter.read.remote()) == before == (107, {"a": list(range(7))})
    assert weft.get(counter.pid.remote()) != pid


def test_a_call_that_died_in_the_middle_leaves_nothing_behind(weft_session: ModuleType) -> None:
    counter = Counter.options(max_task_retries=0).remote()
    weft.get(counter.add.remote("a", 0))
    with pytest.raises(ActorUnavailableError):
        weft.get(counter.add_and_die.remote())
    reader = counter.read.options(max_task_retries=-1)
    assert weft.get(reader.remote())[0] == 1


def test_retries_and_restarts_that_are_given_are_honoured(weft_session: ModuleType) -> None:
    counter = Counter.options(max_restarts=2, max_task_retries=1).remote()
    with pytest.raises((ActorUnavailableError, ActorDiedError)):
        weft.get(counter.add_and_die.remote())  # the call and its one retry: two deaths
    assert weft.get(counter.read.options(max_task_retries=-1).remote())[0] == 0
    with pytest.raises(ActorDiedError, match="2 of 2 restarts were used"):
        weft.get(counter.add_and_die.options(max_task_retries=-1).remote())


def test_a_call_that_raised_has_its_effect_and_its_error_once(weft_session: ModuleType) -> None:
    counter = Counter.remote()
    with pytest.raises(ValueError, match="on purpose"):
        weft.get(counter.add_and_fail.remote())
    os.kill(weft.get(counter.pid.remote()), signal.SIGKILL)
    assert weft.get(counter.read.remote())[0] == 1


def test_hooks_of_pickle_are_the_hooks_of_checkpoints(weft_session: ModuleType) -> None:
    @weft.remote(checkpoint=1, num_cpus=0)
    class Keeper:
        def __init__(self) -> None:
            self.lock = threading.Lock()
            self.words: list[str] = []

        def __getstate__(self) -> list[str]:
            return self.words

        def __setstate__(self, words: list[str]) -> None:
            self.lock = threading.Lock()
            self.words = words

        def say(self, word: str) -> list[str]:
            with self.lock:
                self.words.append(word)
                return self.words

        def pid(self) -> int:
            return os.getpid()

    keeper = Keeper.remote()
    weft.get(keeper.say.remote("one"))
    os.kill(weft.get(keeper.pid.remote()), signal.SIGKILL)
    assert weft.get(keeper.say.remote("two")) == ["one", "two"]


class PickledOnce:
    """Its copy cannot be pickled."""

    def __reduce__(self) -> Any:
        return _made_of_lock, ()


def _made_of_lock() -> Any:
    made = threading.Lock()
    return [made]


def test_what_can_not_be_kept_is_refused(weft_session: ModuleType) -> None:
    @weft.remote(checkpoint=1, num_cpus=0)
    class Locked:
        def __init__(self) -> None:
            self.lock = threading.Lock()

        def use(self) -> None: ...

    with pytest.raises(ActorDiedError, match="the state of Locked cannot be kept"):
        weft.get(Locked.remote().use.remote())
    counter = Counter.remote()
    with pytest.raises(TypeError, match=r"arguments of Counter\.add cannot be recorded"):
        weft.get(counter.add.remote(PickledOnce(), 0))
    assert weft.get(counter.read.remote())[0] == 0
    with pytest.raises(ValueError, match="one call at a time"):
        Counter.options(max_concurrency=2)
    with pytest.raises(ValueError, match="every_calls must be a positive integer, but got 0"):
        Counter.options(checkpoint=0)


def test_the_state_outlives_the_node() -> None:
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        first = cluster.add_node(num_cpus=1, resources={"there": 1})
        weft.init(address=cluster.address)
        counter = Counter.options(resources={"there": 1}).remote()
        assert weft.get([counter.add.remote("a", n) for n in range(50)]) == list(range(1, 51))
        cluster.remove_node(first, allow_graceful=False)
        cluster.add_node(num_cpus=1, resources={"there": 1})
        assert weft.get([counter.add.remote("a", n) for n in range(50, 60)]) == list(range(51, 61))
        assert weft.get(counter.read.remote()) == (60, {"a": list(range(60))})
    finally:
        weft.shutdown()
        cluster.shutdown()
