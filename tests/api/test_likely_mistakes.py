"""The mistakes that people make most: each is told where it is made, with what happened and what to write instead."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

import weft
from weft.terminal.uncaught import note_next_step

pytestmark = pytest.mark.usefixtures("shared_weft_session")


@weft.remote
def add(a: int, b: int = 1) -> int:
    return a + b


@weft.remote(num_cpus=0)
class Counter:
    def __init__(self, start: int = 0) -> None:
        self.value = start

    def increase(self, amount: int) -> int:
        self.value += amount
        return self.value

    def fail(self) -> None:
        raise ValueError("the tank is empty")

    def die(self) -> None:
        os._exit(3)

    def wait_for_itself(self, me: Any) -> int:
        return weft.get(me.increase.remote(1))


def _dead_actor() -> Any:
    counter = Counter.remote()
    with pytest.raises(weft.exceptions.ActorDiedError):
        weft.get(counter.die.remote())
    return weft.get(counter.increase.remote(1))


def _taken_name() -> Any:
    held = Counter.options(name="taken").remote()
    return held, Counter.options(name="taken").remote()


def _waits_for_itself() -> Any:
    counter = Counter.remote()
    return weft.get(counter.wait_for_itself.remote(counter))


def _captured_lock() -> Any:
    lock = threading.Lock()
    return weft.remote(lambda: lock.locked()).remote()


def _plain(value: int) -> int:
    return value


class _Plain:
    def method(self) -> None: ...


HINTS: dict[str, tuple[Callable[[], Any], str]] = {
    "a plain function is called remotely": (lambda: _plain.remote(1), r"write @weft\.remote above it, or f = "),
    "a plain class is made remotely": (lambda: _Plain.remote(), r"write @weft\.remote above it"),
    "a method is called on its class": (
        lambda: _Plain.method.remote(),
        r"actor = _Plain\.remote\(\.\.\.\), then actor\.meth",
    ),
    "a value's attribute is asked of its ref": (lambda: add.remote(1).shape, r"write weft\.get\(ref\)\.shape"),
    "a keyword of get is misspelt": (
        lambda: weft.get([], timeouts=1),
        r"weft\.get\(\) has no 'timeouts': did you mean 'timeout'",
    ),
    "a keyword of wait is misspelt": (
        lambda: weft.wait([], num_return=1),
        r"did you mean 'num_returns'\? It has object_r",
    ),
    "another library's keyword of map": (lambda: weft.map(len, [], chunksize=3), "has no 'chunksize': write chunk="),
    "progress of get": (lambda: weft.get([], progress=True), "shown by itself"),
    "a keyword that nothing is like": (lambda: weft.put(1, qqq=2), r"has no 'qqq'; It has "),
}


TypeOrValue = (TypeError, ValueError)
MISTAKES: dict[str, tuple[Callable[[], Any], Any, list[str]]] = {
    "a remote function is called": (lambda: add(1), TypeError, ["cannot be called directly", r"add.remote\(\)"]),
    "so is one with options": (lambda: add.options(num_cpus=1)(1), TypeError, [r"options\(...\).remote\(...\)"]),
    "an actor class is called": (lambda: Counter(), TypeError, [r"Counter.remote\(\)"]),
    "a method is called": (lambda: Counter.remote().increase(1), TypeError, [r"increase.remote\(\)"]),
    "an argument is missing": (lambda: add.remote(), TypeError, [r"add\(\) missing 1 required", "'a'"]),
    "an argument is too much": (
        lambda: Counter.remote().increase.remote(1, 2),
        TypeError,
        [r"increase\(\)", "were given"],
    ),
    "a method is misspelt": (lambda: Counter.remote().increse, AttributeError, ["Counter", "Did you mean increase"]),
    "state is read from outside": (
        lambda: Counter.remote().value,
        AttributeError,
        ["no method 'value'", "It has increase, fail"],
    ),
    "an option is misspelt": (lambda: add.options(num_cpu=2), ValueError, ["num_cpu", r"Did you mean num_cpus\?"]),
    "an option has a wrong value": (lambda: add.options(num_cpus=-1), ValueError, ["num_cpus", "negative", "got -1"]),
    "a value is got that is no ref": (
        lambda: weft.get(5),
        ValueError,
        ["ObjectRef", "but got 5", "a value already", r"f.remote\(...\)"],
    ),
    "what map gives is got": (
        lambda: weft.get(weft.map(len, ["ab"])),
        ValueError,
        [r"list\(...\) of it, or a loop, takes the values"],
    ),
    "what map gives is indexed": (lambda: weft.map(len, ["ab"])[0], TypeError, [r"list\(...\) first"]),
    "a number is mapped over": (lambda: weft.map(len, 5), TypeError, [r"goes through items, such as a list", "is 5"]),
    "refs are got as two arguments": (
        lambda: weft.get(add.remote(1), add.remote(2)),
        TypeError,
        [r"one list: get\(\[a, b\]\)"],
    ),
    "a ref is formatted": (lambda: f"{add.remote(1):.2f}", TypeError, ["'.2f'", r"Use weft.get\(ref\)"]),
    "a ref is rounded": (lambda: round(add.remote(1)), TypeError, [r"round\(ref\)", r"Use weft.get\(ref\)"]),
    "lists of refs are nested": (lambda: weft.get([[add.remote(1)]]), ValueError, ["A list of lists: get each"]),
    "a call is not made": (lambda: weft.get(add.remote), ValueError, [r"not called: f.remote\(...\) gives a ref"]),
    "a function is got": (lambda: weft.get(add), ValueError, [r"not called: f.remote\(...\) gives a ref"]),
    "an actor is got": (lambda: weft.get(Counter.remote()), ValueError, [r"handle.method.remote\(...\)"]),
    "what wait gives is got": (
        lambda: weft.get(weft.wait([add.remote(1)])),
        ValueError,
        [r"ready, others = wait\(refs\)"],
    ),
    "a generator of refs is got": (
        lambda: weft.get(add.remote(i) for i in range(2)),
        ValueError,
        [r"get\(list\(refs\)\)"],
    ),
    "a dictionary of refs is got": (lambda: weft.get({"x": add.remote(1)}), ValueError, ["Get the values", "a list"]),
    "state is set from outside": (
        lambda: setattr(Counter.remote(), "value", 3),
        AttributeError,
        ["'value' cannot be set on a handle", "actor Counter", "Write a method"],
    ),
    "one ref is waited for": (lambda: weft.wait(add.remote(1)), TypeError, [r"wait\(\[ref\]\)"]),
    "a ref is put": (lambda: weft.put(add.remote(1)), TypeError, [r"put\(\[ref\]\)"]),
    "a ref is added to": (lambda: add.remote(1) + 1, TypeError, [r"ref \+ x", r"Use weft.get\(ref\)"]),
    "a ref is added": (lambda: 1 + add.remote(1), TypeError, [r"x \+ ref", r"Use weft.get\(ref\)"]),
    "a ref's length is asked": (lambda: len(add.remote(1)), TypeError, [r"len\(ref\)", r"Use weft.get\(ref\)"]),
    "a ref is looped over": (lambda: list(add.remote(1)), TypeError, ["a loop over a ref", r"Use weft.get\(ref\)"]),
    "a ref is a number": (lambda: float(add.remote(1)), TypeError, [r"float\(ref\)", r"Use weft.get\(ref\)"]),
    "a ref is an index": (lambda: [1, 2][add.remote(1)], TypeError, ["place of an int", r"Use weft.get\(ref\)"]),
    "a ref is put in order": (lambda: add.remote(1) < 2, TypeError, ["no order", r"Use weft.get\(ref\)"]),
    "a number is put in order with a ref": (lambda: add.remote(1) >= 2.0, TypeError, ["no order"]),
    "a ref is indexed": (lambda: add.remote(1)[0], TypeError, [r"ref\[...\]", r"Use weft.get\(ref\)"]),
    "remote is misspelt": (lambda: add.rmote(1), AttributeError, ["'rmote'", r"Did you mean remote\?"]),
    "another library's word": (lambda: add.delay(1), AttributeError, ["'delay'", r"Call f.remote\(...\)"]),
    "a name of the package is misspelt": (lambda: weft.inti, AttributeError, [r"Did you mean weft.init\?"]),
    "a name of a library is misspelt": (lambda: weft.tune.unifrom, AttributeError, ["Did you mean weft.tune.uniform"]),
    "a tool is misspelt": (lambda: weft.util.ActorPol, AttributeError, ["Did you mean weft.util.ActorPool"]),
    "a lock is an argument": (
        lambda: add.remote({"x": threading.Lock()}),
        TypeError,
        [r"args\[0\]", "lock", "task add", "Create it inside"],
    ),
    "a lock is captured": (_captured_lock, TypeError, ["lock", "captured by the remote function"]),
    "more CPUs than there are": (
        lambda: weft.get(add.options(num_cpus=64).remote(1)),
        weft.exceptions.TaskUnschedulableError,
        ["64 CPU is asked for, but the node has 2", "Ask for less"],
    ),
    "fewer values than promised": (
        lambda: weft.get(weft.remote(num_returns=2)(lambda: 1).remote()),
        TypeError,
        ["num_returns=2 but returned one value, of type int", "return a tuple of 2"],
    ),
    "a value larger than the store": (
        lambda: weft.put(np.zeros(int(weft.cluster_resources()["object_store_memory"]) // 8 + 2**20)),
        weft.exceptions.ObjectStoreFullError,
        ["larger than the whole store", "object_store_memory="],
    ),
    "it is initialised twice": (lambda: weft.init(), RuntimeError, ["already attached", "weft.shutdown"]),
    "an option of init is misspelt": (
        lambda: weft.init(num_cpu=1),
        RuntimeError,
        ["Unknown keyword argument", "Did you mean num_cpus"],
    ),
    "a name that nobody has": (lambda: weft.get_actor("nobody"), ValueError, ["'nobody'", "never created, has died"]),
    "a name that is taken": (_taken_name, ValueError, ["'taken' is already taken", "get_if_exists"]),
    "a dead actor is called": (
        _dead_actor,
        weft.exceptions.ActorDiedError,
        ["Counter", "exited with status 3", "max_restarts=0"],
    ),
    "an actor waits for itself": (_waits_for_itself, weft.exceptions.DeadlockError, ["wait"]),
    "a method raises": (
        lambda: weft.get(Counter.remote().fail.remote()),
        ValueError,
        [r"Counter.fail\(\)", "the tank is empty"],
    ),
    "patience is too short": (
        lambda: weft.get(weft.remote(time.sleep).remote(0.3), timeout=0.01),
        TimeoutError,
        ["1 of 1 objects", r"weft.explain\(ref\)"],
    ),
    "what is shared is written to": (
        lambda: weft.get(weft.put(np.zeros(100_000))).__setitem__(0, 1),
        ValueError,
        ["read-only"],
    ),
    "a task is killed as if it were an actor": (lambda: weft.kill(add.remote(1)), TypeOrValue, ["weft.cancel"]),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_likely_mistake_is_told_with_its_remedy(mistake: str) -> None:
    make, kind, said = MISTAKES[mistake]
    with pytest.raises(kind) as raised:
        make()
    for pattern in said:
        assert re.search(pattern, str(raised.value)), f"{pattern!r} is not in: {raised.value}"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="errors have notes from Python 3.11 on")
@pytest.mark.parametrize("mistake", HINTS)
def test_what_python_itself_refuses_is_told_with_its_remedy_at_a_terminal(mistake: str) -> None:
    make, said = HINTS[mistake]
    with pytest.raises((AttributeError, TypeError)) as raised:
        make()
    assert note_next_step(raised.value)
    assert re.search(said, raised.value.__notes__[-1]), raised.value.__notes__


def test_errors_that_have_nothing_to_do_with_weft_are_left_alone() -> None:
    def get(refs: Any) -> None: ...

    for make in (
        lambda: get([], timeouts=1),
        lambda: _plain.name,
        lambda: int("x"),
        lambda: [].remote,
        lambda: 1 + "x",
    ):  # type: ignore[operator]
        with pytest.raises((AttributeError, TypeError, ValueError)) as raised:
            make()
        assert not note_next_step(raised.value) and not hasattr(raised.value, "__notes__")


@pytest.mark.parametrize("value", [1, 2.5, True, "text"])
def test_a_ref_that_is_compared_with_a_value_says_to_take_its_own(value: object) -> None:
    ref = weft.put(value)
    with pytest.warns(UserWarning, match=r"never equal: use weft\.get\(ref\)"):
        assert ref != value
    with pytest.warns(UserWarning, match="never equal"):
        assert not value == ref  # noqa: SIM201
    assert ref != None and ref != (value,)  # noqa: E711


def test_refs_stay_hashable_true_equal_and_no_sequence_to_numpy() -> None:
    ref = weft.put(1)
    assert ref and ref == ref and ref != weft.put(1) and len({ref, ref}) == 1
    assert np.asarray([ref], dtype=object)[0] is ref
    assert not isinstance(ref, Iterable)
