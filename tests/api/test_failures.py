"""What a task's or a process's failure looks like to the caller."""

from __future__ import annotations

import os
import pickle
import signal
import sys
from typing import Any

import pytest

import weft
from weft.exceptions import ActorDiedError, RayTaskError, TaskError, WorkerCrashedError

pytestmark = pytest.mark.usefixtures("shared_weft_session")


class LocalError(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def test_a_tasks_exception_is_raised_as_its_own_type() -> None:
    @weft.remote
    def fail() -> None:
        raise LocalError(7)

    with pytest.raises(LocalError) as caught:
        weft.get(fail.remote())
    assert isinstance(caught.value, RayTaskError)
    assert caught.value.code == 7
    text = str(caught.value)
    assert "weft::fail()" in text
    assert "raise LocalError(7)" in text
    assert "in fail" in text


def test_the_causes_of_a_tasks_exception_are_kept() -> None:
    @weft.remote
    def fail() -> None:
        try:
            {}["key"]
        except KeyError as error:
            raise RuntimeError("outer") from error

    with pytest.raises(RuntimeError, match="outer") as caught:
        weft.get(fail.remote())
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_failed_argument_fails_the_task_that_needs_it() -> None:
    @weft.remote
    def fail() -> None:
        raise ValueError("first")

    @weft.remote
    def use(x: Any) -> None: ...

    with pytest.raises(ValueError, match="first") as caught:
        weft.get(use.options(name="last").remote(use.remote(fail.remote())))
    assert isinstance(caught.value, TaskError)
    story = [line for line in str(caught.value).splitlines() if "::" in line]
    assert [line.partition("::")[2].partition("(")[0] for line in story] == ["last", "use", "fail"]


def test_the_story_of_a_long_chain_stays_short() -> None:
    @weft.remote
    def fail() -> None:
        raise ValueError("first")

    @weft.remote
    def use(x: Any) -> None: ...

    ref = fail.remote()
    for number in range(200):
        ref = use.options(name=f"use{number}").remote(ref)
    with pytest.raises(ValueError, match="first") as caught:
        weft.get(ref)
    text = str(caught.value)
    assert "use199" in text and "use14" in text and "::fail" in text and "use100" not in text
    assert len(text) < 10_000


def test_an_error_passes_through_nested_tasks() -> None:
    @weft.remote
    def inner() -> None:
        raise ZeroDivisionError("inner")

    @weft.remote
    def outer() -> Any:
        return weft.get(inner.remote())

    with pytest.raises(ZeroDivisionError) as caught:
        weft.get(outer.remote())
    assert isinstance(caught.value, TaskError)
    assert "weft::outer()" in str(caught.value)
    assert "weft::inner()" in str(caught.value)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_failure_ends_a_get_even_if_another_task_never_ends(is_first: bool) -> None:
    @weft.remote
    class Sleeper:
        def sleep(self) -> None:
            signal.pause()

    @weft.remote
    def fail() -> None:
        raise ValueError

    sleeper = Sleeper.remote()
    refs = [sleeper.sleep.remote(), fail.remote()]
    with pytest.raises(ValueError):  # noqa: PT011
        weft.get(refs[::-1] if is_first else refs)
    weft.kill(sleeper)


@pytest.mark.parametrize("way", ["os._exit", "SIGKILL", "segfault", "sys.exit"])
def test_a_worker_that_ends_is_an_error_and_harms_nobody_else(way: str) -> None:
    @weft.remote(max_retries=0)
    def die() -> None:
        if way == "os._exit":
            os._exit(3)
        elif way == "SIGKILL":
            os.kill(os.getpid(), signal.SIGKILL)
        elif way == "segfault":
            os.kill(os.getpid(), signal.SIGSEGV)
        else:
            sys.exit("enough")

    @weft.remote
    def live() -> int:
        return 1

    with pytest.raises(WorkerCrashedError):
        weft.get(die.remote())
    assert weft.get([live.remote() for _ in range(10)]) == [1] * 10


def test_a_task_whose_argument_died_with_its_worker_is_named_and_keeps_the_causes_class() -> None:
    @weft.remote
    class Doomed:
        def end(self) -> None:
            os._exit(1)

    @weft.remote
    def needs(value: object) -> None: ...

    doomed = Doomed.remote()
    with pytest.raises(ActorDiedError) as caught:
        weft.get(needs.remote(needs.remote(doomed.end.remote())))
    error: Any = caught.value
    assert isinstance(error, TaskError) and str(error).count("::needs()") == 2
    assert error.actor_id == doomed._actor_id.hex() == pickle.loads(pickle.dumps(error)).actor_id


def test_a_crashed_task_is_tried_again(tmp_path: Any) -> None:
    @weft.remote(max_retries=2)
    def die_once(path: str) -> str:
        try:
            os.mkdir(path)
        except FileExistsError:
            return "second"
        os._exit(1)

    assert weft.get(die_once.remote(str(tmp_path / "tried"))) == "second"


def test_an_unpicklable_exception_still_tells_its_story() -> None:
    @weft.remote
    def fail() -> None:
        import threading

        error = ValueError("holds a lock")
        error.lock = threading.Lock()  # type: ignore[attr-defined]
        raise error

    with pytest.raises(TaskError, match="holds a lock"):
        weft.get(fail.remote())


def test_a_request_that_no_node_can_fulfil_says_so() -> None:
    @weft.remote(resources={"unobtainium": 1})
    def never() -> None: ...

    with pytest.raises(weft.exceptions.WeftError, match="unobtainium"):
        weft.get(never.remote(), timeout=30)


def test_an_interrupt_ends_a_get() -> None:
    @weft.remote
    class Sleeper:
        def sleep(self) -> None:
            signal.pause()

    sleeper = Sleeper.remote()
    ref = sleeper.sleep.remote()
    before = signal.signal(signal.SIGALRM, lambda *args: signal.raise_signal(signal.SIGINT))
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        with pytest.raises(KeyboardInterrupt):
            weft.get(ref)
    finally:
        signal.signal(signal.SIGALRM, before)
        weft.kill(sleeper)
