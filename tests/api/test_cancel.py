"""Tasks and calls that are not wanted any more."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import weft
from waiting import wait_until
from weft import _native
from weft.engine.process.calls import current
from weft.engine.process.session import context_state
from weft.exceptions import TaskCancelledError, WorkerCrashedError

pytestmark = pytest.mark.usefixtures("shared_weft_session")


@weft.remote
class Starting:
    """Says when something has started."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    async def say(self) -> None:
        self.event.set()

    async def wait(self) -> None:
        await self.event.wait()


@weft.remote
def sleep(starting: Any) -> str:
    weft.get(starting.say.remote())
    time.sleep(1000)
    return "slept"


@weft.remote
def echo(x: Any) -> Any:
    return x


def test_a_sleeping_task_is_interrupted() -> None:
    starting = Starting.remote()
    ref = sleep.remote(starting)
    weft.get(starting.wait.remote())
    weft.cancel(ref)
    with pytest.raises(TaskCancelledError):
        weft.get(ref, timeout=30)
    assert weft.get(echo.remote(1)) == 1


def test_a_task_that_waits_in_get_is_interrupted_and_with_it_what_it_waits_for() -> None:
    @weft.remote
    def outer(starting: Any) -> Any:
        return weft.get(sleep.remote(starting))

    starting = Starting.remote()
    ref = outer.remote(starting)
    weft.get(starting.wait.remote())
    weft.cancel(ref)
    with pytest.raises(TaskCancelledError):
        weft.get(ref, timeout=30)


def test_a_task_is_not_interrupted_in_the_middle_of_an_import(tmp_path: Path) -> None:
    (tmp_path / "slowly_imported.py").write_text(
        "import os, time\n"
        "from weft import _native\n"
        "open(f'{os.path.dirname(__file__)}/begun', 'a').write('x')\n"
        "told = 0\n"
        "while told < 10:\n"
        "    told += _native.is_cancelled()\n"
        "    time.sleep(0.01)\n"
    )

    @weft.remote(max_retries=0)
    def imports() -> int:
        sys.path.insert(0, str(tmp_path))
        try:
            import slowly_imported  # type: ignore[import-not-found]

            time.sleep(1000)
            return len(slowly_imported.__dict__)
        finally:
            sys.path.remove(str(tmp_path))
            (tmp_path / "loaded").write_text(str("slowly_imported" in sys.modules))

    ref = imports.remote()
    while not (tmp_path / "begun").exists():
        weft.wait([ref], timeout=0.01)
    weft.cancel(ref)
    with pytest.raises(TaskCancelledError):
        weft.get(ref)
    assert (tmp_path / "loaded").read_text() == "True"
    assert (tmp_path / "begun").read_text() == "x"


def test_a_signal_that_is_lost_before_a_blocking_call_is_sent_again() -> None:
    """As one that comes after the interpreter has looked for signals, and before the system call."""

    @weft.remote(max_retries=0)
    def loses(starting: Any) -> None:
        weft.get(starting.say.remote())
        handler = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        wait_until(_native.is_cancelled)
        signal.signal(signal.SIGUSR1, handler)
        time.sleep(1000)

    starting = Starting.remote()
    ref = loses.remote(starting)
    weft.get(starting.wait.remote())
    weft.cancel(ref)
    with pytest.raises(TaskCancelledError):
        weft.get(ref, timeout=30)


def test_an_interrupt_that_a_destructor_has_swallowed_is_raised_again() -> None:
    class Slow:
        def __del__(self) -> None:
            time.sleep(1000)

    @weft.remote(max_retries=0)
    def swallows(starting: Any) -> None:
        weft.get(starting.say.remote())
        slow = Slow()
        del slow
        time.sleep(1000)

    starting = Starting.remote()
    ref = swallows.remote(starting)
    weft.get(starting.wait.remote())
    weft.cancel(ref)
    with pytest.raises(TaskCancelledError):
        weft.get(ref, timeout=30)


def test_a_task_that_catches_the_interrupt_can_tidy_up_undisturbed(tmp_path: Path) -> None:
    @weft.remote(max_retries=0)
    def tidies(starting: Any) -> None:
        try:
            weft.get(starting.say.remote())
            time.sleep(1000)
        finally:
            for _ in range(100):  # longer than it takes until the signal comes again
                time.sleep(0.001)
            (tmp_path / "tidied").touch()

    starting = Starting.remote()
    ref = tidies.remote(starting)
    weft.get(starting.wait.remote())
    weft.cancel(ref)
    with pytest.raises(TaskCancelledError):
        weft.get(ref, timeout=30)
    assert (tmp_path / "tidied").exists()


class SlowToPickle(Exception):
    """Its worker is asked to stop while it writes its answer down."""

    def __reduce__(self) -> Any:
        wait_until(_native.is_cancelled)
        for _ in range(100):
            time.sleep(0.001)
        return SlowToPickle, ()


def test_a_task_that_has_failed_is_not_interrupted_in_its_answer() -> None:
    @weft.remote(max_retries=0)
    def fails(starting: Any) -> None:
        weft.get(starting.say.remote())
        raise SlowToPickle

    starting = Starting.remote()
    ref = fails.remote(starting)
    weft.get(starting.wait.remote())
    weft.cancel(ref)
    with pytest.raises((SlowToPickle, TaskCancelledError)):
        weft.get(ref, timeout=30)


def _cancelled_in_between(started: Path) -> None:
    started.touch()
    wait_until(_native.is_cancelled)


class Arriving:
    """An argument that is not read before its call is cancelled."""

    def __init__(self, started: Path) -> None:
        self.started = started

    def __reduce__(self) -> Any:
        return _cancelled_in_between, (self.started,)


@pytest.mark.parametrize("concurrency", [1, 2])
def test_a_call_that_is_cancelled_while_its_arguments_are_read_does_not_run(concurrency: int, tmp_path: Path) -> None:
    @weft.remote
    class Loop:
        async def sleep(self, _: Any) -> None:
            await asyncio.sleep(1000)

    actor, started = Loop.options(max_concurrency=concurrency).remote(), tmp_path / "started"
    ref = actor.sleep.remote(Arriving(started))
    wait_until(started.exists)
    weft.cancel(ref)
    with pytest.raises(TaskCancelledError):
        weft.get(ref, timeout=30)


def test_a_child_that_is_submitted_after_the_cancel_is_cancelled_too(tmp_path: Path) -> None:
    (tmp_path / "late_parent.py").write_text(
        "import os, time, weft\n"
        "from waiting import wait_until\n"
        "from weft import _native\n"
        "@weft.remote\n"
        "def child():\n"
        "    time.sleep(1000)\n"
        "open(f'{os.path.dirname(__file__)}/started', 'w').close()\n"
        "wait_until(_native.is_cancelled)\n"
        "weft.get(weft.get_actor('late_keeper').keep.remote([child.remote()]))\n"
    )

    @weft.remote
    class Keeper:
        def keep(self, refs: list[Any]) -> None:
            self.refs = refs

        def kept(self) -> list[Any]:
            return self.refs

    @weft.remote(max_retries=0)
    def parent() -> None:
        sys.path.insert(0, str(tmp_path))
        try:
            import late_parent  # type: ignore[import-not-found]

            assert late_parent
            time.sleep(1000)
        finally:
            sys.path.remove(str(tmp_path))

    keeper = Keeper.options(name="late_keeper").remote()
    ref = parent.remote()
    wait_until((tmp_path / "started").exists)
    weft.cancel(ref)
    with pytest.raises(TaskCancelledError):
        weft.get(ref, timeout=30)
    [child] = weft.get(keeper.kept.remote())
    with pytest.raises(TaskCancelledError):
        weft.get(child, timeout=30)


def test_a_child_that_a_coroutine_submits_after_the_cancel_is_cancelled_too(tmp_path: Path) -> None:
    @weft.remote
    class Parent:
        def __init__(self) -> None:
            self.children: list[Any] = []

        async def work(self, started: Path) -> None:
            started.touch()  # the loop stands still until the child is submitted
            task = current.on_loop.get()
            assert task
            wait_until(lambda: context_state.state.calls.is_cancelled(task[0]))
            self.children.append(sleep.remote(Starting.remote()))
            await self.children[0]

        async def kept(self) -> list[Any]:
            return self.children

    parent = Parent.remote()
    ref = parent.work.remote(tmp_path / "started")
    wait_until((tmp_path / "started").exists)
    weft.cancel(ref)
    with pytest.raises(TaskCancelledError):
        weft.get(ref, timeout=30)
    [child] = weft.get(parent.kept.remote())
    with pytest.raises(TaskCancelledError):
        weft.get(child, timeout=30)


def test_what_a_coroutine_has_submitted_is_cancelled_with_it_and_other_calls_of_its_actor_go_on() -> None:
    @weft.remote
    class Parent:
        def __init__(self) -> None:
            self.children: list[Any] = []

        async def work(self, starting: Any) -> None:
            self.children.append(sleep.remote(starting))
            await self.children[-1]

        async def kept(self) -> list[Any]:
            return self.children

    parent = Parent.options(num_cpus=0).remote()
    first, second = Starting.remote(), Starting.remote()
    cancelled, other = parent.work.remote(first), parent.work.remote(second)
    weft.get([first.wait.remote(), second.wait.remote()])
    weft.cancel(cancelled)
    children = weft.get(parent.kept.remote())
    with pytest.raises(TaskCancelledError):
        weft.get(cancelled, timeout=30)
    with pytest.raises(TaskCancelledError):
        weft.get(children[0], timeout=30)
    assert weft.wait([children[1], other], timeout=0)[0] == []
    weft.cancel(other)
    with pytest.raises(TaskCancelledError):
        weft.get(children[1], timeout=30)


def test_force_ends_the_worker() -> None:
    starting = Starting.remote()
    ref = sleep.options(max_retries=0).remote(starting)
    weft.get(starting.wait.remote())
    weft.cancel(ref, force=True)
    with pytest.raises((TaskCancelledError, WorkerCrashedError)):
        weft.get(ref, timeout=30)


def test_a_task_that_has_not_started_does_not() -> None:
    starting = Starting.remote()
    first = sleep.options(num_cpus=2).remote(starting)
    weft.get(starting.wait.remote())
    second = echo.options(num_cpus=2).remote(1)
    weft.cancel(second)
    with pytest.raises(TaskCancelledError):
        weft.get(second, timeout=30)
    weft.cancel(first)


def test_what_depends_on_a_cancelled_task_fails_with_it() -> None:
    starting = Starting.remote()
    ref = sleep.remote(starting)
    dependent = echo.remote(ref)
    weft.get(starting.wait.remote())
    weft.cancel(ref)
    with pytest.raises(TaskCancelledError):
        weft.get(dependent, timeout=30)


def test_what_is_done_stays_done() -> None:
    ref = echo.remote(1)
    assert weft.get(ref) == 1
    weft.cancel(ref)
    assert weft.get(ref) == 1


def test_a_coroutine_is_cancelled_and_can_tidy_up() -> None:
    @weft.remote
    class Sleeper:
        def __init__(self) -> None:
            self.tidied = False
            self.started = asyncio.Event()

        async def sleep(self) -> None:
            self.started.set()
            try:
                await asyncio.sleep(1000)
            finally:
                self.tidied = True

        async def wait_for_start(self) -> None:
            await self.started.wait()

        async def is_tidy(self) -> bool:
            return self.tidied

    sleeper = Sleeper.remote()
    ref = sleeper.sleep.remote()
    weft.get(sleeper.wait_for_start.remote())
    weft.cancel(ref)
    with pytest.raises(TaskCancelledError):
        weft.get(ref, timeout=30)
    assert weft.get(sleeper.is_tidy.remote())


def test_many_coroutines_can_be_cancelled() -> None:
    @weft.remote
    class Sleeper:
        async def sleep(self) -> None:
            await asyncio.sleep(1000)

    sleeper = Sleeper.options(max_concurrency=50).remote()
    refs = [sleeper.sleep.remote() for _ in range(200)]
    for ref in reversed(refs):
        weft.cancel(ref)
    for ref in refs:
        with pytest.raises(TaskCancelledError):
            weft.get(ref, timeout=30)


def test_a_threads_call_can_look_whether_it_was_cancelled() -> None:
    @weft.remote(max_concurrency=2)
    class Worker:
        def work(self, starting: Any) -> str:
            weft.get(starting.say.remote())
            while not weft.get_runtime_context().is_canceled():
                time.sleep(0.001)
            return "left early"

        def ping(self) -> str:
            return "pong"

    starting, worker = Starting.remote(), Worker.remote()
    ref = worker.work.remote(starting)
    weft.get(starting.wait.remote())
    weft.cancel(ref)
    with pytest.raises(TaskCancelledError):
        weft.get(ref, timeout=30)
    assert weft.get(worker.ping.remote()) == "pong"


def test_a_cancelled_call_whose_actor_dies_before_it_stops_was_cancelled() -> None:
    @weft.remote(max_restarts=1, max_task_retries=-1, max_concurrency=2)
    class Stubborn:
        def work(self, starting: Any) -> None:
            weft.get(starting.say.remote())
            signal.pause()

        def leave(self) -> None:
            os._exit(1)

    starting, stubborn = Starting.remote(), Stubborn.remote()
    ref = stubborn.work.remote(starting)
    weft.get(starting.wait.remote())
    weft.cancel(ref)
    stubborn.leave.options(max_task_retries=0).remote()
    with pytest.raises(TaskCancelledError):
        weft.get(ref, timeout=30)


def test_the_children_of_many_calls_are_cancelled_with_them() -> None:
    @weft.remote(num_cpus=0)
    class Child:
        async def sleep(self) -> None:
            await asyncio.sleep(1000)

    @weft.remote(num_cpus=0, max_concurrency=21)
    class Parent:
        def __init__(self, child: Any) -> None:
            self.child = child
            self.refs: dict[int, weft.ObjectRef[None]] = {}

        def work(self, number: int) -> None:
            self.refs[number] = self.child.sleep.remote()
            weft.get(self.refs[number])

        def children(self, count: int) -> list[weft.ObjectRef[None]]:
            wait_until(lambda: len(self.refs) == count)
            return [self.refs[number] for number in range(count)]

    parent = Parent.remote(Child.remote())
    calls = [parent.work.remote(number) for number in range(20)]
    children = weft.get(parent.children.remote(20))
    for call in calls[::2]:
        weft.cancel(call)
    for child in children[::2]:
        with pytest.raises(TaskCancelledError):
            weft.get(child, timeout=30)
    assert weft.wait(children[1::2], timeout=0)[0] == []


def test_only_refs_can_be_cancelled() -> None:
    with pytest.raises(TypeError, match="only supported for object refs"):
        weft.cancel(3)  # type: ignore[arg-type]


def test_a_borrower_can_cancel_the_owners_task() -> None:
    @weft.remote
    def start(starting: weft.ActorHandle) -> list[weft.ObjectRef[None]]:
        return [sleep.remote(starting)]

    starting = Starting.remote()
    (inner,) = weft.get(start.remote(starting))
    weft.get(starting.wait.remote())
    weft.cancel(inner)
    with pytest.raises(TaskCancelledError):
        weft.get(inner, timeout=30)


@weft.remote
class Order:
    """Notes in which order its calls ran; holds them up until it is told."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def hold(self, gate: Any) -> None:
        weft.get(gate.wait.remote())

    def note(self, number: int, _: Any = None) -> int:
        self.seen.append(number)
        return number

    def numbers(self) -> list[int]:
        return self.seen


@pytest.mark.parametrize("waits_for_an_argument", [False, True])
def test_of_calls_in_an_actors_queue_every_other_one_is_cancelled_and_the_rest_run_in_order(
    waits_for_an_argument: bool,
) -> None:
    gate, actor = Starting.remote(), Order.remote()
    held = actor.hold.remote(gate)
    argument = echo.remote(0) if not waits_for_an_argument else after.remote(gate)
    refs = [actor.note.remote(number, argument) for number in range(200)]
    for ref in reversed(refs[1::2]):
        weft.cancel(ref)
    weft.get(gate.say.remote())
    assert weft.get(held) is None
    assert weft.get(refs[::2]) == list(range(0, 200, 2))
    for ref in refs[1::2]:
        with pytest.raises(TaskCancelledError):
            weft.get(ref)
    assert weft.get(actor.numbers.remote()) == list(range(0, 200, 2))


@weft.remote
def after(gate: Any) -> None:
    weft.get(gate.wait.remote())


@weft.remote(num_cpus=2, max_retries=0)
def occupy(started: Path, door: Path) -> None:
    """Without get(): who waits there lends its CPUs."""
    started.write_bytes(b"")  # waits for a reader
    door.read_bytes()  # waits for a writer


@pytest.mark.parametrize("waits_for_an_argument", [False, True])
def test_of_queued_tasks_every_other_one_is_cancelled_and_the_rest_run(
    waits_for_an_argument: bool, tmp_path: Path
) -> None:
    started, door = tmp_path / "started", tmp_path / "door"
    os.mkfifo(started)
    os.mkfifo(door)
    busy = occupy.remote(started, door)
    started.read_bytes()
    argument = busy if waits_for_an_argument else None
    refs = [pair.remote(number, argument) for number in range(200)]
    for ref in reversed(refs[1::2]):
        weft.cancel(ref)
    door.write_bytes(b"")
    assert weft.get(refs[::2]) == list(range(0, 200, 2))
    for ref in refs[1::2]:
        with pytest.raises(TaskCancelledError):
            weft.get(ref)


@weft.remote
def pair(number: int, _: Any) -> int:
    return number
