"""`weft.init(local_mode=True)`: the same API in one process, where a debugger sees everything."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import psutil
import pytest

from waiting import comes_true
from weft.exceptions import ActorDiedError, GetTimeoutError, TaskCancelledError, TaskError, WorkerCrashedError

calls: list[str] = []


@pytest.fixture
def weft() -> Iterator[ModuleType]:
    import weft

    calls.clear()
    weft.init(local_mode=True, num_cpus=2)
    try:
        yield weft
    finally:
        weft.shutdown()


# ---- tasks -----------------------------------------------------------------------------------------


def test_the_traceback_of_a_task_or_a_call_shows_the_users_lines_alone(weft: ModuleType) -> None:
    @weft.remote
    def fails() -> None:
        raise ValueError("of the task")

    @weft.remote
    class Failing:
        def fail(self) -> None:
            raise ValueError("of the call")

    for ref in (fails.remote(), Failing.remote().fail.remote()):
        with pytest.raises(TaskError) as caught:
            weft.get(ref)
        shown = str(caught.value)
        assert "test_local_mode.py" in shown
        assert f"{os.sep}weft{os.sep}local{os.sep}" not in shown


def test_a_task_has_run_when_remote_returns_in_this_process_and_on_this_thread(weft: ModuleType) -> None:
    @weft.remote
    def note() -> tuple[int, int]:
        calls.append("ran")
        return os.getpid(), threading.get_ident()

    before = set(psutil.Process().children(recursive=True))
    ref = note.remote()
    assert calls == ["ran"]
    assert weft.get(ref) == (os.getpid(), threading.get_ident())
    assert before.issuperset(psutil.Process().children(recursive=True))


def test_a_debugger_stops_in_the_task_at_the_line_that_submits_it(weft: ModuleType) -> None:
    seen: list[str] = []

    @weft.remote
    def inner(x: int) -> int:
        return x + 1

    @weft.remote
    def outer() -> int:
        return int(weft.get(inner.remote(1)))

    def trace(frame: Any, event: str, argument: Any) -> Any:
        if frame.f_code.co_name in ("inner", "outer") and event == "call":
            above, names = frame, []
            while above is not None:
                names.append(above.f_code.co_name)
                above = above.f_back
            seen.append(">".join(name for name in names if name in ("inner", "outer") or name.startswith("test_")))
        return None

    sys.settrace(trace)
    try:
        outer.remote()
    finally:
        sys.settrace(None)
    name = "test_a_debugger_stops_in_the_task_at_the_line_that_submits_it"
    assert seen == [f"outer>{name}", f"inner>outer>{name}"]


def test_an_exception_comes_back_at_get(weft: ModuleType) -> None:
    @weft.remote
    def fail() -> None:
        raise ValueError("7")

    @weft.remote
    def use(x: Any) -> None:
        calls.append("never")

    ref = fail.remote()
    with pytest.raises(ValueError, match="7") as caught:
        weft.get(ref)
    assert isinstance(caught.value, TaskError)
    with pytest.raises(ValueError, match=r"use\(\)[\s\S]*fail\(\)"):
        weft.get(use.remote(ref))
    assert calls == []


def test_ctrl_c_reaches_the_caller_and_sys_exit_does_not(weft: ModuleType) -> None:
    @weft.remote
    def interrupted() -> None:
        raise KeyboardInterrupt

    @weft.remote
    def leaves() -> None:
        sys.exit(3)

    with pytest.raises(KeyboardInterrupt):
        interrupted.remote()
    with pytest.raises(WorkerCrashedError, match=r"leaves ended its worker by sys.exit\(3\)"):
        weft.get(leaves.remote())


def test_arguments_and_results_are_copies_and_refs_are_values(weft: ModuleType) -> None:
    @weft.remote
    def grow(items: list[int], array: Any) -> tuple[list[int], bool]:
        items.append(4)
        return items, bool(array.flags.writeable)

    items = [1, 2]
    assert weft.get(grow.remote(weft.put(items), np.zeros(100_000))) == ([1, 2, 4], False)
    assert weft.get(grow.remote(items, np.zeros(100_000)))[0] == [1, 2, 4]
    assert items == [1, 2]


def test_what_cannot_be_pickled_is_named(weft: ModuleType) -> None:
    @weft.remote
    def take(x: Any) -> Any:
        return threading.Lock() if x == 1 else x

    with pytest.raises(TypeError, match=r"args\[0\]\['lock'\] of type _thread.lock of task take"):
        take.remote({"lock": threading.Lock()})
    with pytest.raises(TypeError, match=r"_thread.lock"):
        weft.get(take.remote(1))


def test_returns_retries_and_wrong_calls(weft: ModuleType) -> None:
    @weft.remote(num_returns=2)
    def pair(count: int) -> list[int]:
        return list(range(count))

    @weft.remote(max_retries=2, retry_exceptions=[ValueError])
    def third_time() -> int:
        calls.append("try")
        if len(calls) < 3:
            raise ValueError(len(calls))
        return int(weft.get_runtime_context().get_attempt_number())

    assert weft.get(pair.remote(2)) == [0, 1]
    with pytest.raises(ValueError, match="num_returns=2 but returned at least 3"):
        weft.get(pair.remote(5))
    assert weft.get(pair.options(num_returns=1).remote(3)) == [0, 1, 2]
    refs = weft.remote(num_returns=2)(lambda: [weft.put(1), weft.put(2)]).remote()
    assert weft.get(weft.get(refs)) == [1, 2]
    with pytest.raises(TypeError, match=r"put.*not allowed"):
        weft.put(refs[0])
    with pytest.warns(RuntimeWarning, match="only so many are taken"):
        assert weft.get(weft.remote(num_returns=2)(lambda: (i for i in range(3))).remote()) == [0, 1]
    assert pair.options(num_returns=0).remote(3) is None
    assert weft.get(third_time.remote()) == 2
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'count'"):
        pair.remote()


def test_get_put_and_wait_work_as_ever(weft: ModuleType) -> None:
    @weft.remote
    def same(x: int) -> int:
        return x

    refs = [same.remote(i) for i in range(5)]
    ready, rest = weft.wait(refs, num_returns=3)
    assert (len(ready), len(rest)) == (3, 2)
    assert weft.get(refs) == [0, 1, 2, 3, 4]
    assert [weft.get(ref) for ref in weft.get(weft.put(refs))] == [0, 1, 2, 3, 4]
    weft.cancel(refs[0])
    assert weft.get(refs[0]) == 0


# ---- actors ----------------------------------------------------------------------------------------


def test_a_serial_actor_runs_on_the_callers_thread(weft: ModuleType) -> None:
    @weft.remote
    class Counter:
        def __init__(self, start: int) -> None:
            self.value, self.thread = start, threading.get_ident()

        def add(self, amount: int = 1) -> int:
            assert threading.get_ident() == self.thread
            self.value += amount
            return self.value

        def fail(self) -> None:
            raise KeyError("k")

    counter = Counter.remote(10)
    assert weft.get([counter.add.remote(), counter.add.remote(5)]) == [11, 16]
    with pytest.raises(KeyError):
        weft.get(counter.fail.remote())

    @weft.remote
    def use(handle: Any) -> int:
        return int(weft.get(handle.add.remote()))

    assert weft.get(use.remote(counter)) == 17
    with pytest.raises(TypeError, match="unexpected keyword argument 'by'"):
        counter.add.remote(by=2)


def test_actors_die_as_they_do_elsewhere(weft: ModuleType) -> None:
    class Plain:
        def __init__(self, fails: bool = False) -> None:
            calls.append("made")
            if fails:
                raise ValueError("no")

        def ping(self) -> str:
            return "pong"

        def leave(self) -> None:
            from weft.actor import exit_actor

            exit_actor()

    actor_class = weft.remote(Plain)
    with pytest.raises(ActorDiedError, match="ValueError: no"):
        weft.get(actor_class.remote(True).ping.remote())
    gone = actor_class.options(name="gone").remote()
    assert weft.get(weft.get_actor("gone").ping.remote()) == "pong"
    weft.kill(gone)
    with pytest.raises(ActorDiedError, match="was killed"):
        weft.get(gone.ping.remote())
    with pytest.raises(ValueError, match="Failed to look up actor"):
        weft.get_actor("gone")
    leaver = actor_class.remote()
    with pytest.raises(ActorDiedError):
        weft.get(leaver.leave.remote())
    with pytest.raises(ActorDiedError, match="exit_actor"):
        weft.get(leaver.ping.remote())
    phoenix = actor_class.options(max_restarts=1).remote()
    calls.clear()
    weft.kill(phoenix, no_restart=False)
    assert calls == ["made"] and weft.get(phoenix.ping.remote()) == "pong"
    weft.kill(phoenix, no_restart=False)
    with pytest.raises(ActorDiedError):
        weft.get(phoenix.ping.remote())


def test_an_actor_ends_with_its_last_handle(weft: ModuleType) -> None:
    ended = threading.Event()

    class Dying:
        def ping(self) -> None: ...

        def __ray_shutdown__(self) -> None:
            ended.set()

    handle = weft.remote(Dying).options(name="short").remote()
    kept = weft.put([handle])
    del handle
    weft.get(weft.get(kept)[0].ping.remote())
    assert not ended.is_set()
    del kept
    assert ended.wait(30)


def test_why_a_shutdown_hook_failed_is_shown(weft: ModuleType, capfd: pytest.CaptureFixture[str]) -> None:
    class Dying:
        def ping(self) -> None: ...

        def __ray_shutdown__(self) -> None:
            raise RuntimeError("the hook's own mistake")

    handle = weft.remote(Dying).remote()
    weft.get(handle.ping.remote())
    del handle
    shown: list[str] = []

    def shown_so_far() -> str:
        shown.append(capfd.readouterr().err)
        return "".join(shown)

    assert comes_true(lambda: "the hook's own mistake" in shown_so_far())


def test_an_async_actors_calls_wait_for_each_other(weft: ModuleType) -> None:
    @weft.remote
    class Gate:
        def __init__(self) -> None:
            self.opened = asyncio.Event()

        async def enter(self, name: str) -> tuple[str, str]:
            await self.opened.wait()
            return name, weft.get_runtime_context().get_task_name()

        async def open(self) -> None:
            self.opened.set()

    gate = Gate.remote()
    waiting = [gate.enter.remote(str(i)) for i in range(3)]
    assert weft.wait(waiting, timeout=0)[0] == []
    with pytest.raises(GetTimeoutError):
        weft.get(waiting[0], timeout=0)
    weft.cancel(waiting[1])
    with pytest.raises(TaskCancelledError):
        weft.get(waiting[1], timeout=30)
    weft.get(gate.open.remote())
    assert weft.get([waiting[0], waiting[2]]) == [("0", "Gate.enter"), ("2", "Gate.enter")]

    async def gather() -> list[Any]:
        return list(await asyncio.gather(*(gate.enter.remote(str(i)) for i in range(50))))

    assert [name for name, _ in asyncio.run(gather())] == [str(i) for i in range(50)]


def test_a_threaded_actor_runs_as_many_calls_as_it_may(weft: ModuleType) -> None:
    @weft.remote(max_concurrency=3, concurrency_groups={"io": 1})
    class Meeting:
        def __init__(self) -> None:
            self.barrier = threading.Barrier(3)

        def attend(self) -> str:
            self.barrier.wait(30)
            return str(weft.get_runtime_context().get_actor_id())

        @weft.method(concurrency_group="io")
        def where(self) -> str:
            return threading.current_thread().name

        def fail(self) -> None:
            raise ValueError("threaded")

    meeting = Meeting.remote()
    ids = weft.get([meeting.attend.remote() for _ in range(3)])
    assert set(ids) == {meeting._actor_id.hex()}
    assert "io" in weft.get(meeting.where.remote())
    with pytest.raises(ValueError, match="threaded"):
        weft.get(meeting.fail.remote())


def test_the_calls_of_a_killed_concurrent_actor_are_answered(weft: ModuleType) -> None:
    @weft.remote
    class Forever:
        async def wait(self) -> None:
            await asyncio.sleep(1000)

    forever = Forever.remote()
    ref = forever.wait.remote()
    weft.kill(forever)
    with pytest.raises(ActorDiedError):
        weft.get(ref, timeout=30)


# ---- generators ------------------------------------------------------------------------------------


def test_a_generator_runs_as_far_as_it_is_asked_to(weft: ModuleType) -> None:
    @weft.remote
    def count(n: int) -> Iterator[int]:
        for i in range(n):
            calls.append(f"made {i}")
            yield i

    items = count.remote(10**9)
    assert calls == []
    assert [weft.get(next(items)) for _ in range(3)] == [0, 1, 2]
    assert calls == ["made 0", "made 1", "made 2"]
    items.close()
    assert list(items) == []
    done = count.remote(3)
    weft.get(done.completed())
    assert [weft.get(ref) for ref in done] == [0, 1, 2]
    of_refs = weft.remote(lambda: (weft.put(i) for i in range(2))).options(num_returns="streaming").remote()
    assert [weft.get(weft.get(ref)) for ref in of_refs] == [0, 1]
    cancelled = count.remote(3)
    next(cancelled)
    weft.cancel(cancelled)
    with pytest.raises(TaskCancelledError):
        weft.get(next(cancelled))


def test_generators_of_actors_stream_and_raise(weft: ModuleType) -> None:
    @weft.remote
    class Source:
        async def numbers(self, n: int) -> AsyncIterator[int]:
            for i in range(n):
                await asyncio.sleep(0)
                yield i
            raise ValueError("end")

    @weft.remote
    class Serial:
        def numbers(self, n: int) -> Iterator[int]:
            yield from range(n)
            raise ValueError("end")

        def refs(self, n: int) -> Iterator[Any]:
            yield from map(weft.put, range(n))

    assert weft.get(weft.get(list(Serial.remote().refs.remote(3)))) == [0, 1, 2]
    for actor in (Source.remote(), Serial.remote()):
        refs = list(actor.numbers.remote(300))
        assert weft.get(refs[:300]) == list(range(300)) and len(refs) == 301
        with pytest.raises(ValueError, match="end"):
            weft.get(refs[300])

    async def read() -> list[int]:
        return [await ref async for ref in Serial.remote().numbers.options().remote(5) if ref.is_ready()][:5]

    with pytest.raises(ValueError, match="end"):
        asyncio.run(read())


# ---- the rest --------------------------------------------------------------------------------------


def test_the_runtime_context_is_the_tasks_own(weft: ModuleType) -> None:
    @weft.remote(num_cpus=2, num_gpus=1)
    def look() -> tuple[Any, ...]:
        context = weft.get_runtime_context()
        return context.get_task_name(), context.get_assigned_resources(), weft.get_gpu_ids(), context.get_actor_id()

    @weft.remote
    class Actor:
        def look(self) -> tuple[Any, ...]:
            inner = weft.get(look.remote())
            context = weft.get_runtime_context()
            return inner[3], context.get_actor_id(), context.current_actor == me, context.get_task_name()

    me: Any = None
    assert weft.get(look.remote()) == ("look", {"CPU": 2.0, "GPU": 1.0}, [0], None)
    actor = me = Actor.remote()
    assert weft.get(actor.look.remote()) == (None, actor._actor_id.hex(), True, "Actor.look")
    context = weft.get_runtime_context()
    assert context.get_task_name() is None and context.get_actor_id() is None
    assert weft.nodes()[0]["Alive"] and weft.cluster_resources()["CPU"] == 2


def test_placement_groups_are_placed_and_removed(weft: ModuleType) -> None:
    from weft.util import placement_group, remove_placement_group
    from weft.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    group = placement_group([{"CPU": 1}])
    assert group.wait(30)
    weft.get(group.ready())

    @weft.remote
    def where() -> str | None:
        return weft.get_runtime_context().get_placement_group_id()

    strategy = PlacementGroupSchedulingStrategy(group)
    assert weft.get(where.options(scheduling_strategy=strategy).remote()) == group.id.hex()
    remove_placement_group(group)
    assert weft.available_resources()["CPU"] == 2


def test_the_utilities_run_too(weft: ModuleType) -> None:
    from weft.util import ActorPool, Executor
    from weft.util.multiprocessing import Pool
    from weft.util.queue import Empty, Queue

    @weft.remote
    class Doubler:
        def double(self, x: int) -> int:
            return 2 * x

    pool = ActorPool([Doubler.remote() for _ in range(2)])
    assert list(pool.map(lambda actor, x: actor.double.remote(x), range(4))) == [0, 2, 4, 6]
    queue: Any = Queue(maxsize=2)
    queue.put(1)
    assert queue.get() == 1
    with pytest.raises(Empty):
        queue.get(block=False)
    queue.shutdown()
    with Pool(2) as processes:
        assert processes.map(abs, range(-5, 5)) == [5, 4, 3, 2, 1, 0, 1, 2, 3, 4]
    with Executor() as executor:
        assert executor.submit(abs, -3).result() == 3
        assert list(executor.map(abs, [-1, -2])) == [1, 2]


def test_objects_that_do_not_fit_are_spilled_to_disk() -> None:
    import weft

    weft.init(local_mode=True, num_cpus=1, object_store_memory=64 << 20)
    try:
        refs = [weft.put(np.full(2 << 20, i)) for i in range(8)]  # 16 MiB each
        assert [int(weft.get(ref)[0]) for ref in refs] == list(range(8))
    finally:
        weft.shutdown()


def test_local_and_ordinary_sessions_follow_each_other_with_the_same_functions() -> None:
    import weft

    @weft.remote
    def pid() -> int:
        return os.getpid()

    @weft.remote
    class Actor:
        def pid(self) -> int:
            return os.getpid()

    for is_local in (True, False, True):
        weft.init(local_mode=is_local, num_cpus=1)
        try:
            found = weft.get([pid.remote(), Actor.remote().pid.remote()])
            assert (found[0] == found[1] == os.getpid()) if is_local else os.getpid() not in found
        finally:
            weft.shutdown()


def test_misuse_is_refused_and_an_environment_warned_about(weft: ModuleType) -> None:
    @weft.remote(runtime_env={"env_vars": {"A": "1"}})
    def task() -> None: ...

    with pytest.warns(UserWarning, match="runtime_env of task task is not applied"):
        task.remote()
    with pytest.raises(RuntimeError, match="already attached"):
        weft.init(local_mode=True)
    weft.shutdown()
    with pytest.raises(ValueError, match="leave address out"):
        weft.init(address="auto", local_mode=True)
    weft.init(local_mode=True)


def test_two_threads_take_turns_on_a_serial_actor(weft: ModuleType) -> None:
    @weft.remote
    class Serial:
        def __init__(self) -> None:
            self.inside = 0

        def enter(self) -> int:
            self.inside += 1
            time.sleep(0)
            seen, self.inside = self.inside, self.inside - 1
            return seen

    serial = Serial.remote()
    seen: list[int] = []
    threads = [
        threading.Thread(target=lambda: seen.extend(weft.get([serial.enter.remote() for _ in range(50)])))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [1] * 200
