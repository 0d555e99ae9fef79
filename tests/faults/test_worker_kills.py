"""A worker that dies at a chosen point: nothing is lost but what it held, and its memory comes back."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from waiting import comes_true
from weft.exceptions import ActorDiedError, ActorUnavailableError, OwnerDiedError, WorkerCrashedError

SIZE = 10 << 20


def used_bytes() -> int:
    from weft.engine.process.session import rpc

    return int(rpc.request("statistics")["used_bytes"])


def is_first(folder: Path, name: str = "attempts") -> bool:
    """Whether nobody has asked before, in whatever process."""
    try:
        (folder / name).mkdir()
    except FileExistsError:
        return False
    return True


def announce(folder: Path) -> None:
    """Say which process this is, then wait for the end."""
    (folder / f"{os.getpid()}.pid").touch()
    while True:
        signal.pause()


def announced(folder: Path) -> int:
    """The pid of who announced itself."""
    assert comes_true(lambda: bool(list(folder.glob("*.pid"))))
    return int(next(folder.glob("*.pid")).stem)


# ---- tasks -----------------------------------------------------------------------------------------


def test_an_actor_that_a_second_attempt_creates_is_new_and_answers(weft_session: ModuleType, tmp_path: Path) -> None:
    @weft_session.remote
    def task() -> int:
        child = counter_class(weft_session).remote()
        count: int = weft_session.get(child.add.remote())
        if is_first(tmp_path):
            announce(tmp_path)
        return count

    ref = task.remote()
    os.kill(announced(tmp_path), signal.SIGKILL)
    assert weft_session.get(ref, timeout=60) == 1


def test_a_task_whose_worker_is_killed_is_run_again(weft_session: ModuleType, tmp_path: Path) -> None:
    @weft_session.remote
    def task() -> str:
        if is_first(tmp_path):
            announce(tmp_path)
        return "second attempt"

    ref = task.remote()
    os.kill(announced(tmp_path), signal.SIGKILL)
    assert weft_session.get(ref, timeout=60) == "second attempt"


def test_a_task_without_retries_fails_with_the_story(weft_session: ModuleType, tmp_path: Path) -> None:
    @weft_session.remote(max_retries=0)
    def unlucky() -> None:
        announce(tmp_path)

    ref = unlucky.remote()
    pid = announced(tmp_path)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(WorkerCrashedError, match=rf"unlucky.*SIGKILL.*{pid}"):
        weft_session.get(ref, timeout=60)


def test_retries_come_to_an_end(weft_session: ModuleType, tmp_path: Path) -> None:
    @weft_session.remote(max_retries=2)
    def suicidal() -> None:
        (tmp_path / str(os.getpid())).touch()
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(WorkerCrashedError):
        weft_session.get(suicidal.remote(), timeout=60)
    assert len(list(tmp_path.iterdir())) == 3


def exit_3() -> None:
    os._exit(3)


def read_null() -> None:
    ctypes.string_at(0)


def abort() -> None:
    os.abort()


@pytest.mark.parametrize(
    ("end", "story"),
    [(exit_3, "status 3"), (read_null, "SIGSEGV"), (abort, "SIGABRT")],
    ids=["exit", "segfault", "abort"],
)
def test_a_worker_that_ends_itself_is_named(weft_session: ModuleType, end: Any, story: str) -> None:
    @weft_session.remote(max_retries=0)
    def task() -> None:
        end()

    @weft_session.remote
    def other(x: int) -> int:
        return x

    with pytest.raises(WorkerCrashedError, match=story):
        weft_session.get(task.remote(), timeout=60)
    assert weft_session.get([other.remote(i) for i in range(20)], timeout=60) == list(range(20))


def test_no_task_queued_at_a_killed_worker_is_lost(weft_session: ModuleType, tmp_path: Path) -> None:
    @weft_session.remote
    def quick(x: int) -> int:
        if x % 500 == 250 and is_first(tmp_path, str(x)):
            os.kill(os.getpid(), signal.SIGKILL)
        return 2 * x

    assert weft_session.get([quick.remote(x) for x in range(3000)], timeout=100) == [2 * x for x in range(3000)]


def test_no_queued_task_is_charged_for_the_death_that_another_caused(weft_session: ModuleType, tmp_path: Path) -> None:
    """Only what had been started may have lost an attempt: max_retries=0 of the others does no harm."""

    @weft_session.remote(max_retries=0)
    def quick(x: int) -> int:
        return x

    @weft_session.remote(max_retries=0)
    def deadly() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    weft_session.get([quick.remote(x) for x in range(1000)], timeout=60)
    refs = [deadly.remote() if x == 5 else quick.remote(x) for x in range(1000)]
    doomed = refs.pop(5)
    with pytest.raises(WorkerCrashedError):
        weft_session.get(doomed, timeout=60)
    lost = 0
    for ref in refs:
        try:
            weft_session.get(ref, timeout=60)
        except WorkerCrashedError:
            lost += 1
    assert lost == 0


def test_a_nested_task_survives_the_death_of_its_parents_worker(weft_session: ModuleType, tmp_path: Path) -> None:
    @weft_session.remote
    def child(x: int) -> int:
        return x + 1

    @weft_session.remote
    def parent() -> int:
        refs = [child.remote(x) for x in range(10)]
        if is_first(tmp_path):
            os.kill(os.getpid(), signal.SIGKILL)
        return sum(weft_session.get(refs))

    assert weft_session.get(parent.remote(), timeout=60) == 55


# ---- large results ---------------------------------------------------------------------------------


class Bomb:
    """Kills the process that pickles it, the first time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> Any:
        if is_first(self.folder):
            os.kill(os.getpid(), signal.SIGKILL)
        return str, ("defused",)


def test_a_result_half_written_is_written_again(weft_session: ModuleType, tmp_path: Path) -> None:
    """The first of two results is in the arena already when the worker dies over the second."""

    @weft_session.remote(num_returns=2)
    def task() -> Any:
        return np.full(SIZE, 3, dtype=np.uint8), Bomb(tmp_path)

    large, small = task.remote()
    assert weft_session.get(small, timeout=60) == "defused"
    assert int(weft_session.get(large, timeout=60).sum(dtype=np.int64)) == 3 * SIZE
    del large, small
    assert comes_true(lambda: used_bytes() == 0), used_bytes()


def test_a_worker_killed_while_it_copies_a_large_result_leaves_no_memory(
    weft_session: ModuleType, tmp_path: Path
) -> None:
    """SIGALRM ends the process wherever it is: the alarm is set to go off during the copy of 64 MB."""

    @weft_session.remote(max_retries=-1)
    def task(number: int) -> Any:
        value = np.full(64 << 20, number, dtype=np.uint8)
        if is_first(tmp_path, str(number)):
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, 0.001 + 0.002 * number)
        return value

    for number in range(12):
        ref = task.remote(number)
        array = weft_session.get(ref, timeout=60)
        assert array[0] == array[-1] == number
        del array, ref
    # An alarm that came late has killed a worker between tasks.
    assert comes_true(lambda: used_bytes() == 0), used_bytes()


# ---- actors ----------------------------------------------------------------------------------------


def counter_class(weft: ModuleType, **options: Any) -> Any:
    class Counter:
        def __init__(self) -> None:
            self.count = 0

        def add(self) -> int:
            self.count += 1
            return self.count

        def pid(self) -> int:
            return os.getpid()

        def linger(self, folder: Path) -> str:
            if is_first(folder):
                announce(folder)
            return "second attempt"

    return weft.remote(**options)(Counter) if options else weft.remote(Counter)


def test_a_killed_actor_stays_dead(weft_session: ModuleType) -> None:
    counter = counter_class(weft_session).remote()
    os.kill(weft_session.get(counter.pid.remote(), timeout=60), signal.SIGKILL)
    with pytest.raises(ActorDiedError):
        weft_session.get([counter.add.remote() for _ in range(10)], timeout=60)
    with pytest.raises(ActorDiedError, match="SIGKILL") as caught:
        weft_session.get(counter.add.remote(), timeout=60)
    assert caught.value.actor_id == counter._actor_id.hex()


def test_an_actor_with_restarts_starts_anew_until_they_are_used_up(weft_session: ModuleType) -> None:
    counter = counter_class(weft_session, max_restarts=2, max_task_retries=-1).remote()
    pids = []
    for _ in range(3):
        assert weft_session.get(counter.add.remote(), timeout=60) == 1
        pids.append(weft_session.get(counter.pid.remote(), timeout=60))
        os.kill(pids[-1], signal.SIGKILL)
        comes_true(lambda: not Path(f"/proc/{pids[-1]}").exists())
    assert len(set(pids)) == 3
    with pytest.raises(ActorDiedError):
        weft_session.get(counter.add.remote(), timeout=60)


def test_what_a_restarted_actor_creates_in_its_constructor_is_new_and_answers(weft_session: ModuleType) -> None:
    @weft_session.remote(max_restarts=1, max_task_retries=1)
    class Parent:
        def __init__(self) -> None:
            self.child = counter_class(weft_session).remote()

        def pids(self) -> tuple[int, int]:
            return os.getpid(), weft_session.get(self.child.pid.remote())

    parent = Parent.remote()
    own, child = weft_session.get(parent.pids.remote(), timeout=60)
    os.kill(own, signal.SIGKILL)
    assert comes_true(lambda: not Path(f"/proc/{own}").exists())
    later = weft_session.get(parent.pids.remote(), timeout=60)
    assert later[0] != own
    assert later[1] != child


def test_a_call_under_way_is_retried_on_the_restarted_actor(weft_session: ModuleType, tmp_path: Path) -> None:
    counter = counter_class(weft_session, max_restarts=1, max_task_retries=1).remote()
    ref = counter.linger.remote(tmp_path)
    behind = [counter.add.remote() for _ in range(5)]
    os.kill(announced(tmp_path), signal.SIGKILL)
    assert weft_session.get(ref, timeout=60) == "second attempt"
    assert weft_session.get(behind, timeout=60) == [1, 2, 3, 4, 5]


def test_a_call_under_way_without_retries_fails_though_the_actor_restarts(
    weft_session: ModuleType, tmp_path: Path
) -> None:
    counter = counter_class(weft_session, max_restarts=1).remote()
    ref = counter.linger.remote(tmp_path)
    os.kill(announced(tmp_path), signal.SIGKILL)
    with pytest.raises(ActorDiedError.__mro__[1]):  # ActorError: it died, or is not available now
        weft_session.get(ref, timeout=60)
    again = counter.linger.options(max_task_retries=-1).remote(tmp_path)
    assert weft_session.get(again, timeout=60) == "second attempt"


def test_a_call_without_retries_does_not_wait_for_a_restart_that_takes_long(weft_session: ModuleType) -> None:
    @weft_session.remote(num_cpus=0)
    class Gate:
        def __init__(self) -> None:
            self.opened, self.visits = asyncio.Event(), 0

        async def enter(self) -> None:
            self.visits += 1
            if self.visits > 1:
                await self.opened.wait()

        async def open(self) -> None:
            self.opened.set()

    @weft_session.remote(max_restarts=-1)
    class Slow:
        def __init__(self, gate: Any) -> None:
            weft_session.get(gate.enter.remote())

        def pid(self) -> int:
            return os.getpid()

    gate = Gate.remote()
    slow = Slow.remote(gate)
    pid = weft_session.get(slow.pid.remote(), timeout=60)
    os.kill(pid, signal.SIGKILL)
    for _ in range(3):  # the first may still have been sent to the dead process, the others never are
        with pytest.raises(ActorUnavailableError, match=r"is restarting \(1 of any number\)"):
            weft_session.get(slow.pid.remote(), timeout=60)
    patient = slow.pid.options(max_task_retries=-1).remote()
    weft_session.get(gate.open.remote())
    assert weft_session.get(patient, timeout=60) != pid


# ---- owners and borrowers --------------------------------------------------------------------------


def keeper_class(weft: ModuleType) -> Any:
    @weft.remote
    class Keeper:
        def __init__(self) -> None:
            self.kept: list[Any] = []

        def keep(self, refs: list[Any]) -> int:
            self.kept.extend(refs)
            return os.getpid()

        def make(self, count: int) -> list[Any]:
            return [weft.put(np.full(SIZE, number, dtype=np.uint8)) for number in range(count)]

        def pid(self) -> int:
            return os.getpid()

    return Keeper


def test_what_a_dead_borrower_held_is_freed(weft_session: ModuleType) -> None:
    keeper = keeper_class(weft_session).remote()
    ref = weft_session.put(np.ones(SIZE, dtype=np.uint8))
    pid = weft_session.get(keeper.keep.remote([ref]), timeout=60)
    del ref
    assert used_bytes() >= SIZE
    os.kill(pid, signal.SIGKILL)
    assert comes_true(lambda: used_bytes() == 0), used_bytes()


def test_a_dead_owners_objects_stay_readable_and_their_memory_comes_back(weft_session: ModuleType) -> None:
    keeper = keeper_class(weft_session).remote()
    first, second = weft_session.get(keeper.make.remote(2), timeout=60)
    pid = weft_session.get(keeper.pid.remote(), timeout=60)
    array = weft_session.get(first, timeout=60)
    os.kill(pid, signal.SIGKILL)
    comes_true(lambda: not Path(f"/proc/{pid}").exists())
    assert weft_session.get(second, timeout=60).shape == array.shape
    assert int(array.sum()) == 0, "a view outlives the owner"
    del array, first, second
    assert comes_true(lambda: used_bytes() == 0), used_bytes()


def test_a_borrower_that_waits_for_a_dead_owner_is_told(weft_session: ModuleType, tmp_path: Path) -> None:
    @weft_session.remote
    def never() -> None:
        while True:
            time.sleep(3600)

    @weft_session.remote
    class Owner:
        def start(self) -> list[Any]:
            return [never.options(num_cpus=0, max_retries=0).remote()]

        def pid(self) -> int:
            return os.getpid()

    owner = Owner.remote()
    [ref] = weft_session.get(owner.start.remote(), timeout=60)

    @weft_session.remote(num_cpus=0)
    def wait_for(refs: list[Any]) -> str:
        (tmp_path / "waits.pid").touch()
        try:
            weft_session.get(refs[0])
        except OwnerDiedError:
            return "told"
        return "not told"

    told = wait_for.remote([ref])
    assert comes_true(lambda: (tmp_path / "waits.pid").exists())
    os.kill(weft_session.get(owner.pid.remote(), timeout=60), signal.SIGKILL)
    assert weft_session.get(told, timeout=60) == "told"
    with pytest.raises(OwnerDiedError):
        weft_session.get(ref, timeout=60)
