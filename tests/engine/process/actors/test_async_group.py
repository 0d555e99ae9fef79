"""The loop of an async actor's calls alone, without a process of its own."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar
from queue import Queue
from typing import Any

from weft.engine.process.actors.async_group import AsyncGroup

PATIENCE_S = 30.0


class Call:
    """As much of a call as a group looks at."""

    name = "method"
    streams = False
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}  # noqa: RUF012
    task = (b"task", b"job", "method")
    is_cancelled = False
    has_begun = False

    async def method(self) -> str:
        return "answered"


class CancelledWhenSeen(Call):
    """Its caller gives it up in the moment in which it is looked at."""

    def __init__(self, group: AsyncGroup) -> None:
        self._group = group
        self._was_seen = False

    @property
    def is_cancelled(self) -> bool:  # type: ignore[override]
        if self._was_seen:
            return True
        self._was_seen = True
        given: Any = self
        self._group.cancel(given)
        return False


class Calls:
    is_leaving = False

    def __init__(self) -> None:
        self.answers: Queue[tuple[Call, object]] = Queue()

    def ended(self, call: Call, value: object, error: BaseException | None) -> None:
        self.answers.put((call, "cancelled" if call.is_cancelled else value))


def test_a_call_that_is_cancelled_between_its_start_and_its_first_step_is_answered() -> None:
    calls: Any = Calls()
    group = AsyncGroup("test", 10, calls)
    try:
        cancelled: Any = CancelledWhenSeen(group)
        group.submit(cancelled)
        assert calls.answers.get(timeout=PATIENCE_S) == (cancelled, "cancelled")
        other: Any = Call()
        group.submit(other)
        assert calls.answers.get(timeout=PATIENCE_S) == (other, "answered")
    finally:
        group.stop()
        group._thread.join(PATIENCE_S)
    assert calls.answers.empty(), "each is answered once"


class Noting(Call):
    """Notes what it finds around it, before it awaits something and after."""

    def __init__(self, name: str, notes: list[Any], seen: ContextVar[str], loop_turns: int) -> None:
        self.task = (b"task", b"job", name)
        self._notes = notes
        self._seen = seen
        self._loop_turns = loop_turns

    async def method(self) -> str:
        task = asyncio.current_task()
        assert task is not None
        self._notes.append((task.get_name(), self._seen.get()))
        self._seen.set(task.get_name())
        for _ in range(self._loop_turns):
            await asyncio.sleep(0)
            assert asyncio.current_task() is task and self._seen.get() == task.get_name()
        return task.get_name()


def test_a_calls_first_step_has_a_task_and_a_context_of_its_own() -> None:
    calls: Any = Calls()
    group = AsyncGroup("test", 10, calls)
    notes: list[Any] = []
    seen = ContextVar("seen", default="nothing")
    try:
        given: list[Any] = [Noting(f"call {i}", notes, seen, i % 3) for i in range(9)]
        for call in given:
            group.submit(call)
        ended = [calls.answers.get(timeout=PATIENCE_S) for _ in given]
    finally:
        group.stop()
    assert notes == [(f"call {i}", "nothing") for i in range(9)]
    assert {(call.task[2], value) for call, value in ended} == {(f"call {i}", f"call {i}") for i in range(9)}


def test_of_a_group_with_a_limit_no_more_calls_begin_and_all_end_in_order() -> None:
    calls: Any = Calls()
    group = AsyncGroup("test", 1, calls)
    notes: list[Any] = []
    seen = ContextVar("seen", default="nothing")
    try:
        given: list[Any] = [Noting(f"call {i}", notes, seen, i % 2) for i in range(250)]
        for call in given:
            group.submit(call)
        ended = [calls.answers.get(timeout=PATIENCE_S)[0] for _ in given]
    finally:
        group.stop()
    assert ended == given


def test_a_loop_with_many_calls_looks_after_what_else_is_due() -> None:
    """A call that is submitted by each call before it, for ever, leaves room for a callback."""
    calls: Any = Calls()
    group = AsyncGroup("test", 10, calls)

    class Endless(Call):
        async def method(self) -> str:
            if not was_called.is_set():
                following: Any = Endless()
                group.submit(following)
            return "answered"

    was_called = threading.Event()
    try:
        first: Any = Endless()
        group.submit(first)
        calls.answers.get(timeout=PATIENCE_S)
        group._loop.call_soon_threadsafe(was_called.set)
        assert was_called.wait(PATIENCE_S)
    finally:
        group.stop()


def test_what_a_destructor_schedules_while_a_calls_task_is_made_is_not_lost() -> None:
    calls: Any = Calls()
    group = AsyncGroup("test", 10, calls)
    was_called = threading.Event()
    group._starting = group._answer(Noting("call", [], ContextVar("seen"), 0))  # type: ignore[arg-type]
    try:
        group._loop.call_soon_threadsafe(lambda: group._keep_step(was_called.set))
        assert was_called.wait(PATIENCE_S)
    finally:
        group._starting.close()
        group.stop()


def test_a_task_factory_of_the_actors_own_makes_the_tasks_of_its_calls() -> None:
    calls: Any = Calls()
    group = AsyncGroup("test", 10, calls)
    made: list[str] = []

    def factory(loop: Any, coroutine: Any, **given: Any) -> Any:
        made.append("task")
        return asyncio.Task(coroutine, loop=loop, **given)

    try:
        group._loop.call_soon_threadsafe(group._loop.set_task_factory, factory)
        call: Any = Noting("call", [], ContextVar("seen", default="nothing"), 1)
        group.submit(call)
        assert calls.answers.get(timeout=PATIENCE_S) == (call, "call")
    finally:
        group.stop()
    assert made == ["task"]
