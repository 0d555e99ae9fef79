"""Async and threaded actors, and concurrency groups."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import wait_until

import weft
from weft.exceptions import ActorDiedError, RayActorError

pytestmark = pytest.mark.usefixtures("shared_weft_session")


@weft.remote
class Batcher:
    """Answers all callers once enough have called."""

    def __init__(self, size: int) -> None:
        self.size, self.batch, self.full = size, [], asyncio.Event()  # type: ignore[var-annotated]

    async def add(self, x: int) -> list[int]:
        self.batch.append(x)
        if len(self.batch) == self.size:
            self.full.set()
        await self.full.wait()
        return sorted(self.batch)


def test_coroutine_methods_run_at_the_same_time() -> None:
    batcher = Batcher.remote(3)
    assert weft.get([batcher.add.remote(i) for i in range(3)]) == [[0, 1, 2]] * 3


def test_many_coroutines_can_wait_at_once() -> None:
    batcher = Batcher.remote(500)
    assert len(weft.get([batcher.add.remote(i) for i in range(500)])[0]) == 500


def test_max_concurrency_limits_coroutines() -> None:
    @weft.remote
    class Recorder:
        def __init__(self) -> None:
            self.history: list[str] = []

        async def work(self) -> None:
            self.history.append("started")
            await asyncio.sleep(0)
            self.history.append("ended")

        def read(self) -> list[str]:
            return self.history

    recorder = Recorder.options(max_concurrency=1).remote()
    weft.get([recorder.work.remote() for _ in range(10)])
    assert weft.get(recorder.read.remote()) == ["started", "ended"] * 10


def test_plain_methods_of_an_async_actor_run_on_the_loops_thread() -> None:
    @weft.remote
    class Mixed:
        def __init__(self) -> None:
            self.made = threading.get_ident()

        def plain(self) -> int:
            return threading.get_ident()

        async def coroutine(self) -> Any:
            return threading.get_ident(), self.made

    mixed = Mixed.remote()
    plain, (coroutine, made) = weft.get([mixed.plain.remote(), mixed.coroutine.remote()])
    assert plain == coroutine == made


def test_a_coroutine_may_submit_and_await_tasks() -> None:
    @weft.remote
    def square(x: int) -> int:
        return x * x

    @weft.remote
    class Sum:
        async def of(self, count: int) -> int:
            one = await square.remote(1)
            rest = await asyncio.gather(*[square.remote(i) for i in range(2, count)])
            return one + sum(rest)

    adder = Sum.remote()
    assert weft.get([adder.of.remote(n) for n in (4, 5, 6)]) == [14, 30, 55]


def test_a_coroutines_exception_comes_back() -> None:
    @weft.remote
    class Failing:
        async def fail(self) -> None:
            raise KeyError("on purpose")

    with pytest.raises(KeyError, match="on purpose"):
        weft.get(Failing.remote().fail.remote())


def test_each_coroutine_knows_its_own_task() -> None:
    @weft.remote
    class Who:
        async def name(self) -> Any:
            before = weft.get_runtime_context().get_task_id()
            await asyncio.sleep(0)
            return before == weft.get_runtime_context().get_task_id(), before

    who = Who.remote()
    answers = weft.get([who.name.remote() for _ in range(5)])
    assert all(same for same, _ in answers)
    assert len({task for _, task in answers}) == 5


def test_argument_names_of_the_engine_do_not_collide() -> None:
    @weft.remote
    class Names:
        async def both(self, call: str, method: str, task: str) -> str:
            return call + method + task

    assert weft.get(Names.remote().both.remote(call="a", method="b", task="c")) == "abc"


def test_a_threaded_actor_runs_its_limit_of_calls_at_once() -> None:
    @weft.remote(max_concurrency=3)
    class Meeting:
        def __init__(self) -> None:
            self.barrier = threading.Barrier(3, timeout=30)

        def join(self) -> int:
            return self.barrier.wait()

    meeting = Meeting.remote()
    assert sorted(weft.get([meeting.join.remote() for _ in range(3)])) == [0, 1, 2]
    assert sorted(weft.get([meeting.join.remote() for _ in range(3)])) == [0, 1, 2]


def test_threads_of_an_actor_may_submit_tasks() -> None:
    @weft.remote
    def square(x: int) -> int:
        return x * x

    @weft.remote(max_concurrency=4)
    class Threads:
        def total(self, n: int) -> int:
            return sum(weft.get([square.remote(i) for i in range(n)]))

    threads = Threads.remote()
    assert weft.get([threads.total.remote(4) for _ in range(8)]) == [14] * 8


def test_a_waiting_argument_does_not_hold_others_up_in_a_threaded_actor() -> None:
    @weft.remote(max_concurrency=2)
    class Echo:
        def echo(self, x: Any) -> Any:
            return x

    batcher = Batcher.remote(2)
    echo = Echo.remote()
    late = echo.echo.remote(batcher.add.remote(1))
    assert weft.get(echo.echo.remote(2), timeout=30) == 2
    weft.get(batcher.add.remote(2))
    assert weft.get(late) == [1, 2]


def test_groups_have_threads_of_their_own() -> None:
    @weft.remote(concurrency_groups={"io": 1, "compute": 1})
    class Grouped:
        def __init__(self) -> None:
            self.open = threading.Event()

        @weft.method(concurrency_group="io")
        def block(self) -> int:
            self.open.wait()
            return threading.get_ident()

        @weft.method(concurrency_group="compute")
        def release(self) -> int:
            self.open.set()
            return threading.get_ident()

        def plain(self) -> int:
            return threading.get_ident()

    grouped = Grouped.remote()
    blocked = grouped.block.remote()
    assert weft.wait([blocked], timeout=0)[0] == []
    threads = weft.get([grouped.plain.remote(), grouped.release.remote(), blocked])
    assert len(set(threads)) == 3
    assert weft.get(grouped.plain.options(concurrency_group="io").remote()) == threads[2]
    with pytest.raises(ValueError, match="concurrency_group must be one of"):
        weft.get(grouped.plain.options(concurrency_group="nowhere").remote())


def test_a_blocked_group_of_an_async_actor_does_not_block_the_others() -> None:
    @weft.remote(concurrency_groups={"slow": 1})
    class Grouped:
        def __init__(self) -> None:
            self.open = threading.Event()

        @weft.method(concurrency_group="slow")
        async def block(self) -> None:
            self.open.wait()

        async def release(self) -> str:
            self.open.set()
            return "ok"

    grouped = Grouped.remote()
    blocked = grouped.block.remote()
    assert weft.get(grouped.release.remote(), timeout=30) == "ok"
    assert weft.get(blocked) is None


def test_an_async_actor_that_leaves_answers_what_is_under_way() -> None:
    @weft.remote
    class Leaver:
        def __init__(self) -> None:
            self.event = asyncio.Event()

        async def wait_then_fail(self) -> None:
            await self.event.wait()
            raise ValueError("application error")

        async def leave(self) -> None:
            self.event.set()
            weft.actor.exit_actor()

    leaver = Leaver.remote()
    waiting = leaver.wait_then_fail.remote()
    leaving = leaver.leave.remote()
    with pytest.raises(ValueError, match="application error"):
        weft.get(waiting)
    with pytest.raises(ActorDiedError, match="INTENDED_USER_EXIT"):
        weft.get(leaving)
    with pytest.raises(RayActorError):
        weft.get(leaver.leave.remote())


@pytest.mark.parametrize("is_async", [True, False])
def test_calls_that_have_not_begun_fail_when_the_actor_leaves(is_async: bool, tmp_path: Path) -> None:
    go = tmp_path / "go"

    class Plain:
        def leave(self) -> None:
            wait_until(go.exists)
            weft.actor.exit_actor()

        def work(self) -> int:
            return 1

    class Async:
        async def leave(self) -> None:
            while not go.exists():
                await asyncio.sleep(0.001)
            weft.actor.exit_actor()

        async def work(self) -> int:
            return 1

    leaver = weft.remote(max_concurrency=2)(Async if is_async else Plain).remote()
    refs = [leaver.leave.remote(), leaver.leave.remote(), *(leaver.work.remote() for _ in range(3))]
    go.touch()
    for ref in refs:
        with pytest.raises(RayActorError):
            weft.get(ref)


def test_an_async_actor_may_leave_from_a_task_of_its_own() -> None:
    @weft.remote
    class Leaver:
        async def start(self) -> None:
            self.task = asyncio.get_running_loop().create_task(self.leave())

        async def leave(self) -> None:
            weft.actor.exit_actor()

    leaver = Leaver.remote()
    weft.get(leaver.start.remote())

    def ask_until_it_is_gone() -> None:
        while True:
            weft.get(leaver.__ray_ready__.remote())

    with pytest.raises(RayActorError):
        ask_until_it_is_gone()


class ReadWhenFileIsThere:
    """An argument that its reader waits for."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __setstate__(self, state: dict[str, Path]) -> None:
        self.__dict__.update(state)
        wait_until(self.path.exists)


def test_a_call_begins_though_the_next_ones_arguments_are_still_being_read(tmp_path: Path) -> None:
    @weft.remote
    class Opener:
        async def open(self, path: Path) -> None:
            path.touch()

        async def take(self, argument: ReadWhenFileIsThere) -> bool:
            return argument.path.exists()

    opener = Opener.remote()
    weft.get(opener.open.remote(tmp_path / "first"))
    path = tmp_path / "second"
    opened, taken = opener.open.remote(path), opener.take.remote(ReadWhenFileIsThere(path))
    assert weft.get([opened, taken]) == [None, True]


def test_a_constructor_may_start_tasks_on_the_loop() -> None:
    @weft.remote
    class Background:
        def __init__(self) -> None:
            self.done = asyncio.Event()
            self.task = asyncio.get_running_loop().create_task(self.work())

        async def work(self) -> None:
            self.done.set()

        async def wait(self) -> str:
            await self.done.wait()
            return "done"

    assert weft.get(Background.remote().wait.remote()) == "done"


def test_a_failing_constructor_of_an_async_actor_is_its_death() -> None:
    @weft.remote
    class Broken:
        def __init__(self) -> None:
            raise ValueError("bad start")

        async def ping(self) -> None: ...

    with pytest.raises(ActorDiedError, match="bad start"):
        weft.get(Broken.remote().ping.remote())


def test_a_call_in_the_engines_own_group_runs_beside_those_of_a_serial_actor() -> None:
    @weft.remote
    class Serial:
        def __init__(self) -> None:
            self.released = threading.Event()

        def block(self) -> str:
            self.released.wait()
            return "blocked"

        def release(self) -> str:
            self.released.set()
            return "released"

    serial = Serial.remote()
    blocked = serial.block.options(concurrency_group="_ray_system").remote()
    assert weft.get([serial.release.remote(), blocked], timeout=60) == ["released", "blocked"]
    with pytest.raises(ValueError, match=r"must be one of \[\], the groups of Serial, but got 'io'. Declare groups"):
        serial.block.options(concurrency_group="io")


def test_a_constructor_may_be_a_coroutine() -> None:
    @weft.remote
    class Opens:
        async def __init__(self, value: int) -> None:
            await asyncio.sleep(0)
            if value < 0:
                raise ValueError("negative")
            self.value = value + await one.remote()

        def get(self) -> int:
            return self.value

    @weft.remote(num_cpus=0)
    def one() -> int:
        return 1

    assert weft.get(Opens.remote(41).get.remote()) == 42
    with pytest.raises(weft.exceptions.ActorDiedError, match="negative"):
        weft.get(Opens.remote(-1).get.remote())
