"""What a process must not heap up over a long life: functions, classes and actors that nobody can call any more."""

from __future__ import annotations

import gc
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

import weft
from waiting import comes_true
from weft import _native

ROUNDS = 600
KEPT = 200
"""More than may wait for a sweep in a process that has little else."""


def made(number: int) -> Callable[[], tuple[int, int, int]]:
    def short_lived() -> tuple[int, int, int]:
        """The number; functions of this kind that the worker has, seldom counted; definitions that it was sent."""
        loaded = 0
        if number % 50 == 0:
            named = (one.__name__ for one in gc.get_objects() if isinstance(one, FunctionType))
            loaded = sum(name == "short_lived" for name in named)
        return number, loaded, _native.statistics()["definitions"]

    return short_lived


def test_functions_that_nobody_can_call_again_are_forgotten_by_their_submitter_and_its_workers(
    weft_session: ModuleType,
) -> None:
    for at in range(ROUNDS):
        number, loaded, definitions = weft.get(weft.remote(made(at)).remote())
        assert number == at
        assert loaded < KEPT
        assert definitions < KEPT
        assert _native.statistics()["functions"] < KEPT


def test_functions_that_are_given_up_at_once_still_run(weft_session: ModuleType) -> None:
    later = weft.remote(lambda: "there")
    refs = [weft.remote(lambda word, at=at: (word, at)).remote(later.remote()) for at in range(ROUNDS)]
    assert weft.get(refs) == [("there", at) for at in range(ROUNDS)]
    assert comes_true(lambda: _native.statistics()["pending_tasks"] == 0)
    again = [weft.remote(lambda word, at=at: (word, at)).remote("again") for at in range(ROUNDS)]
    assert weft.get(again) == [("again", at) for at in range(ROUNDS)]


def test_a_function_that_was_forgotten_is_sent_again_when_it_comes_back(
    weft_session: ModuleType,
) -> None:
    for _ in range(3):
        assert weft.get(weft.remote(made(-1)).remote())[0] == -1
        for number in range(KEPT):
            weft.get(weft.remote(made(number)).remote())


def test_options_that_are_made_up_for_each_call_are_forgotten(weft_session: ModuleType) -> None:
    double = weft.remote(lambda value: 2 * value)
    calls = [double.options(name=f"double {number}") for number in range(2 * ROUNDS)]
    assert weft.get([call.remote(4) for call in calls[:4] + calls[-4:]]) == [8] * 8
    assert len(double._variants) < ROUNDS


def test_classes_and_actors_that_nobody_can_call_again_are_forgotten(weft_session: ModuleType) -> None:
    def live_and_die(number: int) -> None:
        class Mayfly:
            def number(self) -> int:
                return number

        fly: Any = weft.remote(Mayfly).options(num_cpus=0).remote()
        assert weft.get(fly.number.remote()) == number

    gc.collect()
    before = _native.statistics()
    for number in range(130):
        live_and_die(number)
    gc.collect()  # a class is in cycles of its own
    live_and_die(130)
    assert comes_true(lambda: _native.statistics()["actors"] < before["actors"] + 110)
    assert _native.statistics()["functions"] < before["functions"] + 110
