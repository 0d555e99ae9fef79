"""A fork of a driver or a worker: it has no attachment, touches nothing that is its parent's, and answers nothing."""

from __future__ import annotations

import gc
import multiprocessing
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import weft
from waiting import comes_true

MIB = 1 << 20


def in_fork(act: Callable[[], object]) -> tuple[int, str]:
    """The exit status of a fork that does it, and what it gives or raises, as text."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            text = str(act())
            status = 0
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        finally:
            os.write(write, text.encode()[:4096])
            os._exit(status)
    os.close(write)
    with os.fdopen(read, "rb") as told:
        text = told.read().decode()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), text


def run(program: str) -> subprocess.CompletedProcess[str]:
    """A driver of its own, which ends well."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture
def small_arena() -> Iterator[ModuleType]:
    weft.init(num_cpus=2, object_store_memory=64 * MIB)
    yield weft
    weft.shutdown()


# ---- forks of a driver ---------------------------------------------------------------------------------


def test_a_fork_that_drops_an_array_leaves_its_parents_as_it_was(small_arena: ModuleType) -> None:
    array = weft.get(weft.put(np.ones(20 * MIB, np.uint8)))

    def drop() -> None:
        nonlocal array
        del array
        gc.collect()

    assert in_fork(drop)[0] == 0
    for number in range(2, 12):
        del_soon = weft.put(np.full(20 * MIB, number, np.uint8))
        del del_soon
    assert (array == 1).all()


def test_a_fork_reads_the_arrays_of_its_parent(small_arena: ModuleType) -> None:
    array = weft.get(weft.put(np.arange(MIB)))
    assert in_fork(lambda: array.sum()) == (0, str(array.sum()))


def test_a_fork_that_drops_all_it_has_leaves_refs_actors_and_streams_to_its_parent(weft_session: ModuleType) -> None:
    @weft.remote
    class Counter:
        def __init__(self) -> None:
            self.count = 0

        def next(self) -> int:
            self.count += 1
            return self.count

    @weft.remote(num_returns="streaming")
    def count() -> Iterator[int]:
        yield from range(100)

    @weft.remote
    def double(number: int) -> int:
        return 2 * number

    held: dict[str, Any] = {
        "small": weft.put(1),
        "large": weft.put(np.ones(MIB)),
        "actor": Counter.remote(),
        "stream": count.remote(),
        "double": double,
        "result": double.remote(2),
    }
    assert weft.get(held["actor"].next.remote()) == 1
    assert weft.get(next(held["stream"])) == 0
    held["inner"] = weft.put([held["small"]])

    def drop() -> None:
        held.clear()
        gc.collect()

    assert in_fork(drop)[0] == 0
    assert weft.get(held["small"]) == 1
    assert weft.get(held["large"]).sum() == MIB
    assert weft.get(held["result"]) == 4
    assert weft.get(weft.get(held["inner"])) == [1]
    assert weft.get(held["actor"].next.remote()) == 2
    assert [weft.get(item) for item in held["stream"]] == list(range(1, 100))
    assert weft.get(held["double"].remote(4)) == 8


def test_what_a_fork_calls_says_that_it_is_one_and_what_to_do(weft_session: ModuleType) -> None:
    @weft.remote
    class Actor:
        def call(self) -> int:
            return 1

    @weft.remote
    def one() -> int:
        return 1

    actor, ref = Actor.remote(), weft.put(1)
    assert weft.get([actor.call.remote(), one.remote()]) == [1, 1]
    for act in (
        lambda: weft.get(ref),
        lambda: weft.get([ref]),
        lambda: weft.put(1),
        lambda: weft.wait([ref]),
        lambda: one.remote(),
        lambda: actor.call.remote(),
        lambda: Actor.remote(),
        lambda: weft.kill(actor),
        lambda: weft.cancel(ref),
        lambda: weft.nodes(),
    ):
        status, text = in_fork(act)
        assert status == 1, text
        assert text.startswith("RuntimeError: this process is a fork"), text
        assert "weft.init()" in text
    assert in_fork(weft.shutdown)[0] == 0
    assert in_fork(weft.is_initialized) == (0, "False")
    assert weft.get([ref, actor.call.remote(), one.remote()]) == [1, 1, 1]


@pytest.mark.parametrize("also", ["1", "numpy.ones(1 << 20)", "weft.put(1)"])
def test_a_fork_in_the_midst_of_a_call_ends_that_call_in_the_child(also: str) -> None:
    program = f"""
    import os, weft, numpy
    weft.init(num_cpus=1)
    class Forks:
        child = None
        def __reduce__(self):
            if Forks.child is None:
                Forks.child = os.fork()
            return (int, (7,))
    also = {also}
    try:
        ref = weft.put([also, Forks()])
    except RuntimeError as error:
        assert "this process is a fork" in str(error)
        os._exit(9)
    assert weft.get(ref)[1] == 7
    print(os.waitstatus_to_exitcode(os.waitpid(Forks.child, 0)[1]))
    """
    assert run(program).stdout == "9\n"


def test_a_fork_waits_for_no_lock_that_another_thread_held(weft_session: ModuleType) -> None:
    stop = threading.Event()

    def churn() -> None:
        while not stop.is_set():
            weft.get([weft.put(np.ones(70_000)), weft.put(1)])

    threads = [threading.Thread(target=churn) for _ in range(4)]
    gc.collect()
    gc.freeze()  # what other tests have left in this process is not gone through in every fork
    for thread in threads:
        thread.start()
    try:
        for _ in range(30):
            held = [weft.put(np.ones(70_000)), weft.put(2)]
            arrays = weft.get(held)

            def drop(held: list[Any] = held, arrays: list[Any] = arrays) -> None:
                held.clear()
                arrays.clear()
                gc.collect()

            pid = os.fork()
            if pid == 0:
                drop()
                os._exit(0)
            ended: list[tuple[int, int]] = []
            assert comes_true(lambda pid=pid, ended=ended: ended.append(os.waitpid(pid, os.WNOHANG)) or ended[-1][0])
            assert ended[-1][1] == 0
            assert (arrays[0] == 1).all()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        gc.unfreeze()


@pytest.mark.parametrize("end", ["pass", "sys.exit(0)", "raise ValueError('of the child')"])
def test_a_fork_of_the_driver_that_comes_to_its_end_ends_no_session(end: str) -> None:
    program = f"""
    import os, sys, weft
    weft.init(num_cpus=1)
    ref = weft.put([1])
    child = os.fork()
    if child == 0:
        {end}
    else:
        os.waitpid(child, 0)
        assert weft.get(ref) == [1]
        assert weft.get(weft.remote(lambda: 2).remote()) == 2
        print("the driver's end")
    """
    assert run(program).stdout == "the driver's end\n"


def test_processes_of_multiprocessing_that_are_forks_leave_the_session_alone(small_arena: ModuleType) -> None:
    array = weft.get(weft.put(np.ones(20 * MIB, np.uint8)))
    context = multiprocessing.get_context("fork")
    with context.Pool(2) as pool:
        assert pool.map(abs, [-1, -2, -3]) == [1, 2, 3]
    process = context.Process(target=gc.collect)
    process.start()
    process.join()
    assert process.exitcode == 0
    for number in range(2, 8):
        weft.put(np.full(20 * MIB, number, np.uint8))
    assert (array == 1).all()


# ---- forks of a worker ---------------------------------------------------------------------------------


def fork_and_return(end: str) -> tuple[int, int]:
    """(Who answers, how the fork ended.)"""
    pid = os.fork()
    if pid == 0:
        if end == "raises":
            raise ValueError("of the fork")
        if end == "exits":
            sys.exit(3)
        return os.getpid(), -1
    return os.getpid(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


class Serial:
    def pid(self) -> int:
        return os.getpid()

    def fork(self, end: str) -> tuple[int, int]:
        return fork_and_return(end)


class Async:
    async def pid(self) -> int:
        return os.getpid()

    async def fork(self, end: str) -> tuple[int, int]:
        return fork_and_return(end)


ENDS = {"returns": 1, "raises": 1, "exits": 3}


@pytest.mark.parametrize("end", ENDS)
def test_a_fork_of_a_task_never_answers_for_the_worker(shared_weft_session: ModuleType, end: str) -> None:
    @weft.remote(max_retries=0)
    def fork() -> tuple[int, int]:
        return fork_and_return(end)

    @weft.remote
    def who() -> int:
        return os.getpid()

    for _ in range(3):
        worker, status = weft.get(fork.remote(), timeout=60)
        assert status == ENDS[end]
        assert comes_true(lambda worker=worker: weft.get(who.remote(), timeout=60) == worker)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("kind", ["serial", "concurrent", "async"])
def test_a_fork_of_an_actors_call_never_answers_for_the_actor(
    shared_weft_session: ModuleType, kind: str, end: str
) -> None:
    cls: Any = weft.remote(Async if kind == "async" else Serial)
    actor = cls.options(max_concurrency=1 if kind == "serial" else 4).remote()
    pid = weft.get(actor.pid.remote())
    for _ in range(3):
        assert weft.get(actor.fork.remote(end), timeout=60) == (pid, ENDS[end])
    assert weft.get(actor.pid.remote(), timeout=60) == pid


def test_a_fork_of_a_streaming_task_sends_no_items(shared_weft_session: ModuleType) -> None:
    @weft.remote(num_returns="streaming", max_retries=0)
    def count() -> Iterator[int]:
        yield os.getpid()
        child = os.fork()
        yield os.getpid()
        yield os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    first, second, status = (weft.get(item, timeout=60) for item in count.remote())
    assert first == second
    assert status == 1


def test_a_fork_in_a_constructor_makes_no_second_actor(shared_weft_session: ModuleType) -> None:
    @weft.remote
    class Forks:
        def __init__(self) -> None:
            self.made = fork_and_return("returns")[1] if os.environ else -1
            self.pid = os.getpid()

        def tell(self) -> tuple[int, bool]:
            return self.made, self.pid == os.getpid()

    assert weft.get(Forks.remote().tell.remote(), timeout=60) == (1, True)


def test_the_end_of_a_workers_fork_is_told_to_the_user() -> None:
    program = """
    import os, weft
    weft.init(num_cpus=1)
    @weft.remote
    def forks():
        child = os.fork()
        if child:
            os.waitpid(child, 0)
        return child
    assert weft.get(forks.remote()) > 0
    """
    assert "a fork that forks made of its worker, returned from the task and was ended" in run(program).stderr


def test_in_a_fork_of_a_worker_calls_say_what_to_do(shared_weft_session: ModuleType) -> None:
    @weft.remote
    def forks() -> list[tuple[int, str]]:
        ref = weft.put(1)
        return [in_fork(act) for act in (lambda: weft.get(ref), lambda: weft.put(1), weft.init)]

    for status, text in weft.get(forks.remote()):
        assert status == 1, text
        assert text.startswith("RuntimeError: "), text
        assert "a fork of" in text
        assert "through a pipe" in text


def test_a_task_may_use_processes_of_multiprocessing_that_are_forks(shared_weft_session: ModuleType) -> None:
    @weft.remote
    def pooled(array: Any) -> list[int]:
        with multiprocessing.get_context("fork").Pool(2) as pool:
            return pool.map(abs, [int(-array[0]), -2])

    assert weft.get(pooled.remote(np.ones(MIB)), timeout=60) == [1, 2]
