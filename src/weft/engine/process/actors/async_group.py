"""One event loop on one thread, running an async actor's calls; the asyncio half of `concurrency.py`.

Kept apart because asyncio takes as long to import as the rest of a worker does.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from collections import deque
from collections.abc import Callable, Collection
from concurrent.futures import Future
from contextvars import Context, copy_context
from functools import partial
from typing import TYPE_CHECKING, Any

from weft import _native
from weft.engine.process.actors.call import ROOM_POLL_S, Call, run_here
from weft.engine.process.calls import current
from weft.engine.process.calls.errors import ActorExit
from weft.engine.process.session import context_state
from weft.engine.process.worker import lifecycle

if TYPE_CHECKING:
    from weft.engine.process.actors.concurrency import ConcurrentCalls

_MOST_AT_ONCE = 100
"""So many calls begin before the loop looks after what else is due."""


class AsyncGroup:
    """At most `limit` coroutines at once on this group's own loop."""

    def __init__(self, name: str, limit: int, calls: ConcurrentCalls) -> None:
        self._limit = limit
        self._calls = calls
        self._incoming: deque[Call] = deque()
        """Those that were cancelled stay, answered, until their turn would come."""
        self._signalled = False
        self._is_stopped = False
        self._running: dict[Call, asyncio.Task[Any]] = {}
        self._is_async: dict[str, bool] = {}
        """By method name."""
        self._loop = asyncio.new_event_loop()
        self._can_step = hasattr(self._loop, "__dict__")
        """A loop of another make may be closed to `_start`."""
        self._starting: Any = None
        self._first_step: Callable[[], object] | None = None
        """Of the coroutine whose task is being made."""
        self._is_beginning = False
        self._bell = -1
        """Of a worker's group, an eventfd: rung by the main thread when that needs the GIL no longer."""
        if context_state.state.is_worker:
            _native.set_loop_variable(current.on_loop)
            self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            self._loop.add_reader(self._bell, self._rung)
        self._thread = threading.Thread(target=self._run, name=f"weft-{name.strip('_')}-loop", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the loop and its thread; what still runs on it is cancelled."""
        self._is_stopped = True
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        while not self._is_stopped:
            try:
                self._loop.run_forever()
            except SystemExit as error:  # of a task that the actor's own code has created; a call's is caught there
                self._calls.leave(error)
        for call in [call for call in self._running if not call.has_begun]:
            self._cancel(call)
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self._loop.close()

    def construct(self, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """On the loop's thread, inside the loop, so that the constructor may create tasks, and may be a coroutine."""
        task = _native.current_task()
        made: Future[Any] = Future()
        begun: list[asyncio.Task[None]] = []  # a loop alone does not keep its tasks alive

        def run() -> None:
            current.on_loop.set(task)
            if inspect.iscoroutinefunction(cls.__init__):
                begun.append(self._loop.create_task(run_coroutine()))
                return
            try:
                made.set_result(cls(*args, **kwargs))
            except BaseException as error:
                made.set_exception(error)

        async def run_coroutine() -> None:
            try:
                instance = cls.__new__(cls, *args, **kwargs)
                await instance.__init__(*args, **kwargs)
                made.set_result(instance)
            except BaseException as error:
                made.set_exception(error)

        self._loop.call_soon_threadsafe(run)
        return made.result()

    def submit(self, call: Call) -> None:
        """From the worker's main thread. The loop is woken once for all that comes before it looks."""
        self._incoming.append(call)
        if not self._signalled:
            self._signalled = True
            if self._bell < 0 or not _native.ring_when_idle(self._bell):
                self._loop.call_soon_threadsafe(self._begin)

    def hindered_by(self, call: Call, waiting: Collection[int]) -> list[int]:
        """The loop's thread, when it blocks in a wait: then nothing on it goes on."""
        thread = self._thread.ident or 0
        return [thread] if thread in waiting else []

    def cancel(self, call: Call) -> None:
        """From the callback thread."""
        self._loop.call_soon_threadsafe(self._cancel, call)

    def _cancel(self, call: Call) -> None:
        if call.has_begun:
            if (task := self._running.get(call)) is not None:
                call.native.cancel_children()
                task.cancel()
            return
        call.has_begun = True
        if (task := self._running.pop(call, None)) is not None:
            task.cancel()  # before its first step, so that it never sees it
        self._calls.ended(call, None, asyncio.CancelledError())
        self._begin()

    def _rung(self) -> None:
        try:
            os.eventfd_read(self._bell)
        except BlockingIOError:
            self._signalled = False  # a loop that was left in the middle says it twice
        self._begin()

    def _begin(self) -> None:
        self._signalled = False
        self._is_beginning = True
        try:
            for _ in range(_MOST_AT_ONCE):
                if not self._incoming or len(self._running) >= self._limit:
                    return
                self._begin_one(self._incoming.popleft())
        finally:
            self._is_beginning = False
            self._begin_soon()

    def _begin_soon(self) -> None:
        """If there is a call that may begin, and nobody is at it."""
        if not self._incoming or self._signalled or self._is_beginning or len(self._running) >= self._limit:
            return
        self._signalled = True
        self._loop.call_soon(self._begin)

    def _begin_one(self, call: Call) -> None:
        if call.has_begun:
            return
        if call.is_cancelled:
            call.has_begun = True
            self._calls.ended(call, None, None)
        elif self._is_coroutine(call):
            self._start(call)
        else:
            call.has_begun = True
            copy_context().run(_run_plain, call, self._calls)

    def _start(self, call: Call) -> None:
        """Make the call's task and take its first step here. By itself it would take it at the loop's next turn, which
        costs a system call and more time than most methods take that await nothing."""
        loop: Any = self._loop
        self._starting = coroutine = self._answer(call)
        is_stepped = self._can_step and loop.get_task_factory() is None
        if is_stepped:
            loop.call_soon = self._keep_step
        try:
            task = loop.create_task(coroutine, name=call.task[2])
        finally:
            if is_stepped:
                del loop.call_soon
        if not task.done():
            self._running[call] = task
        step, self._first_step = self._first_step, None
        if step is not None:
            step()

    def _keep_step(self, callback: Any, *args: Any, context: Context | None = None) -> Any:
        """In the place of the loop's `call_soon` while a task is made. What else calls it then, as a destructor may, is
        passed on."""
        task = getattr(callback, "__self__", None)
        if context is not None and isinstance(task, asyncio.Task) and task.get_coro() is self._starting:
            self._first_step = partial(context.run, callback)
            return None
        return type(self._loop).call_soon(self._loop, callback, *args, context=context)

    def _is_coroutine(self, call: Call) -> bool:
        known = self._is_async.get(call.name)
        if known is None:
            known = inspect.iscoroutinefunction(call.method) or inspect.isasyncgenfunction(call.method)
            self._is_async[call.name] = known
        return known

    async def _answer(self, call: Call) -> None:
        call.has_begun = True
        current.on_loop.set(call.task)
        value: object = None
        try:
            if self._calls.is_leaving:
                raise ActorExit(lifecycle.EXIT_TEXT)
            if call.streams:
                await _stream(call)
            else:
                value = await call.method(*call.args, **call.kwargs)
        except BaseException as error:
            self._calls.ended(call, None, error)
        else:
            self._calls.ended(call, value, None)
        self._running.pop(call, None)
        self._begin_soon()


async def _stream(call: Call) -> None:
    """Send an async generator's items as the consumer takes them; close it when nobody reads on."""
    items = call.method(*call.args, **call.kwargs)
    async for item in items:
        room = call.native.item(item)
        while room == 0:
            await asyncio.sleep(ROOM_POLL_S)
            room = call.native.room()
        if room < 0:
            await items.aclose()
            return


def _run_plain(call: Call, calls: ConcurrentCalls) -> None:
    current.on_loop.set(call.task)
    run_here(call, calls)
