"""Tasks and calls that are not wanted any more."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import weft
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
