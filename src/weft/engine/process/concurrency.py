"""Runs the calls of an actor that takes several at once: on threads, or as coroutines of an event loop.

Each concurrency group has its own limit and its own thread or threads; methods that name no group share the default
one. An actor with any `async def` method is an async actor: a group is then one event loop, plain methods run on
that loop's thread too, and one call at a time runs between two awaits. Otherwise a group is a pool of threads.

1. CON-1: of one group, at most its limit of calls are under way; the others wait in the order they came.
2. CON-2: every call ends with exactly one `finish`, `fail` or `cancelled`.
3. CON-3: in the code that runs for a call, `current.task()` is that call, and its children have ids of their own.

`start` runs on the worker's main thread, `cancel` on the callback thread, everything else on the groups' threads.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from weft import _native
from weft.engine.process import context_state, current, lifecycle
from weft.engine.process.actor_description import SYSTEM_GROUP
from weft.engine.process.errors import ActorExit

if TYPE_CHECKING:
    from weft.engine.process.actor_instance import ActorDefinition

DEFAULT_GROUP = "_default"
ROOM_POLL_S = 0.001
"""How often a generator that is a window ahead of its consumer looks whether it may go on."""


_MOST_EARLY_CANCELS = 10_000
_EACH_ONCE = 32


class Call:
    """One call: what to run, and the native call to answer."""

    __slots__ = ("args", "group", "is_cancelled", "kwargs", "method", "name", "native", "streams", "task", "thread")

    def __init__(
        self,
        native: Any,
        name: str,
        method: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        task: current.Task | None,
    ) -> None:
        self.native = native
        self.name = name
        self.method = method
        self.args = args
        self.kwargs = kwargs
        self.streams: bool = native.streams()
        self.is_cancelled = False
        self.task = task or _native.current_task()
        self.group: Any = None
        self.thread = 0
        """That runs it; 0 while it waits for one."""


class ConcurrentCalls:
    """All groups of one actor, and its calls that are not answered."""

    def __init__(self, definition: ActorDefinition) -> None:
        self.instance: Any = None
        self._definition = definition
        self._lock = threading.Lock()
        self._open: dict[bytes, Call] = {}
        """By task id: waiting in a group or under way."""
        self.history: Any = None
        """Of the calls, where they are recorded (`call_history`)."""
        self._early_cancels: dict[bytes, bool] = {}
        self._idle_callback: Callable[[], Any] | None = None
        self._leaving = False
        self._methods: dict[str, Any] = {}
        make: Any = ThreadGroup
        if definition.is_async:
            from weft.engine.process.async_group import AsyncGroup

            make = AsyncGroup
        self._make = make
        limits = {DEFAULT_GROUP: definition.max_concurrency, **definition.groups}
        self._groups: dict[str, Any] = {name: make(name, limit, self) for name, limit in limits.items()}
        if definition.checkpoint is not None:
            from weft.engine.process.recorded_calls import RecordedGroup

            self._groups[DEFAULT_GROUP] = RecordedGroup(definition, self)

    def construct(self, *args: Any, **kwargs: Any) -> Any:
        """Make the instance where its calls will run, and wait for it."""
        return self._groups[DEFAULT_GROUP].construct(self._definition.cls, args, kwargs)

    def start(
        self,
        native: Any,
        method: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        task: current.Task | None = None,
    ) -> None:
        """`method` is the name, or `name:group` when the caller chose the group; `task` is None for the core's."""
        name, _, chosen = method.partition(":")
        try:
            if self._leaving:
                raise ActorExit(lifecycle.EXIT_TEXT)
            group = self._group(chosen or self._definition.group_of.get(name, DEFAULT_GROUP))
            call = Call(native, name, self._method(name), args, kwargs, task)
            call.group = group
        except BaseException as error:
            native.fail(error)
            return
        with self._lock:
            self._open[call.task[0]] = call
            call.is_cancelled = self._early_cancels.pop(call.task[0], False)
        if self.history is not None:
            self.history.begin(call.task[0], name, args, kwargs, self.instance)
        group.submit(call)

    def _method(self, name: str) -> Any:
        """Of the class, bound; an attribute of the instance with the same name does not hide it."""
        method = self._methods.get(name)
        if method is None:
            cls = type(self.instance)
            found: Any = next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)
            method = found.__get__(self.instance, cls) if hasattr(found, "__get__") else getattr(self.instance, name)
            self._methods[name] = method
        return method

    def _group(self, name: str) -> Any:
        group = self._groups.get(name)
        if group is None and name == SYSTEM_GROUP:
            group = self._groups[SYSTEM_GROUP] = self._make(SYSTEM_GROUP, 1, self)
        if group is None:
            known = [known for known in self._groups if not known.startswith("_")]
            raise ValueError(f"concurrency_group must be one of {known}, but got {name!r}")
        return group

    def ended(self, call: Call, value: object, error: BaseException | None) -> None:
        """Answer the call (CON-2), then see whether somebody waits for the actor to be idle."""
        if isinstance(error, SystemExit):
            self.leave(error)
        if call.is_cancelled:
            call.native.cancelled()
        elif error is None:
            call.native.finish(value)
        else:
            if context_state.state.is_worker:
                from weft.engine.process import failures

                failures.keep_inputs(call.name, call.args, call.kwargs)
            call.native.fail(error)
        with self._lock:
            self._open.pop(call.task[0], None)
            callback = self._idle_callback if not self._open else None
        if callback is not None:
            callback()

    def waiting_on(self, waiting: Collection[int]) -> list[tuple[bytes, list[int]]]:
        """The calls that can not go on before one of these threads does, each with those it depends on."""
        with self._lock:
            calls = list(self._open.values())
        found = [(call.task[0], call.group.hindered_by(call, waiting)) for call in calls]
        return [(task, threads) for task, threads in found if threads]

    def cancel(self, task: bytes) -> None:
        """A caller gave the call up: what waits is not started, a coroutine is cancelled, a thread can look."""
        with self._lock:
            call = self._open.get(task)
            if call is None:  # its start is on its way on the main thread, or it was answered a moment ago
                self._early_cancels[task] = True
                if len(self._early_cancels) > _MOST_EARLY_CANCELS:
                    del self._early_cancels[next(iter(self._early_cancels))]
                return
        call.is_cancelled = True
        for group in list(self._groups.values()):
            group.cancel(call)

    def is_cancelled(self, task: bytes) -> bool:
        call = self._open.get(task)
        return call is not None and call.is_cancelled

    def leave(self, error: SystemExit) -> None:
        """Code of the actor wants the process to end: for an orderly end, after every call is answered."""
        if not lifecycle.is_orderly(error):
            lifecycle.leave(error)
            return
        self._leaving = True
        self.when_idle(lifecycle.leave_for_good)

    def when_idle(self, callback: Callable[[], Any]) -> None:
        """Run it once every call is answered."""
        with self._lock:
            self._idle_callback = callback
            idle = not self._open
        if idle:
            callback()


class ThreadGroup:
    """Up to `limit` threads, kept so that thread-local data lasts.

    The longest idle one takes the next call. A small group first uses each of its threads once, so that as many
    calls as the limit allows run on as many threads; a large one starts a thread only when all are busy."""

    def __init__(self, name: str, limit: int, calls: ConcurrentCalls) -> None:
        self._name = name
        self._limit = limit
        self._calls = calls
        self._lock = threading.Lock()
        self._threads = 0
        self._busy: set[int] = set()
        """The threads that run a call now."""
        self._idle: deque[SimpleQueue[Call | None]] = deque()
        """Each idle thread's own queue."""
        self._waiting: deque[Call] = deque()
        self._is_stopped = False

    def construct(self, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return cls(*args, **kwargs)

    def submit(self, call: Call) -> None:
        with self._lock:
            may_start = self._threads < self._limit
            if self._idle and not (may_start and self._limit <= _EACH_ONCE):
                self._idle.popleft().put(call)
            elif may_start:
                self._threads += 1
                name = f"weft-{self._name.strip('_')}-{self._threads}"
                threading.Thread(target=self._run, args=(call,), name=name, daemon=True).start()
            else:
                self._waiting.append(call)

    def cancel(self, call: Call) -> None:
        """Its thread sees the mark before it starts the call, or after."""

    def hindered_by(self, call: Call, waiting: Collection[int]) -> list[int]:
        """The threads of which one must go on before the call can; none when it can by itself."""
        if call.thread:
            return [call.thread] if call.thread in waiting else []
        with self._lock:
            busy = list(self._busy)
            is_full = call in self._waiting and self._threads == self._limit == len(busy)
        return busy if is_full and all(thread in waiting for thread in busy) else []

    def stop(self) -> None:
        """End the threads, each after the call that it runs."""
        with self._lock:
            self._is_stopped = True
            self._waiting.clear()
            idle, self._idle = self._idle, deque()
        for thread in idle:
            thread.put(None)

    def _run(self, first: Call) -> None:
        mine: SimpleQueue[Call | None] = SimpleQueue()
        call: Call | None = first
        del first
        while call is not None:
            _native.set_current_task(call.task[0], call.task[2])
            call.thread = threading.get_ident()
            self._busy.add(call.thread)
            run_here(call, self._calls)
            with self._lock:
                self._busy.discard(call.thread)
                following = self._waiting.popleft() if self._waiting else None
                if following is None and not self._is_stopped:
                    self._idle.append(mine)
                elif following is None:
                    return
            del call  # or its arguments live until the next one
            call = mine.get() if following is None else following
            del following


def run_here(call: Call, calls: ConcurrentCalls) -> None:
    """Run a plain method on this thread."""
    value: Any = None
    try:
        if not call.is_cancelled:
            value = call.method(*call.args, **call.kwargs)
            if call.streams:
                stream_here(call, value)
                value = None
    except BaseException as error:
        calls.ended(call, None, error)
    else:
        calls.ended(call, value, None)


def stream_here(call: Call, items: Iterable[Any]) -> None:
    """Send a generator's items as the consumer takes them; close it when nobody reads on."""
    for item in items:
        room = call.native.item(item)
        while room == 0 and not call.is_cancelled:
            time.sleep(ROOM_POLL_S)
            room = call.native.room()
        if room < 0 or call.is_cancelled:
            close = getattr(items, "close", None)
            if close is not None:
                close()
            return
