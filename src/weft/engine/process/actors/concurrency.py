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
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from weft import _native
from weft.engine.process.actors.actor_description import SYSTEM_GROUP
from weft.engine.process.actors.call import Call, bound_method
from weft.engine.process.actors.thread_group import ThreadGroup
from weft.engine.process.calls import current
from weft.engine.process.calls.errors import ActorExit
from weft.engine.process.session import context_state
from weft.engine.process.worker import lifecycle

if TYPE_CHECKING:
    from weft.engine.process.actors.actor_definition import ActorDefinition

DEFAULT_GROUP = "_default"

_MOST_EARLY_CANCELS = 10_000


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
        self.is_leaving = False
        """Its code has asked for the end: what has not begun fails, what runs is finished."""
        self._methods: dict[str, Any] = {}
        self._routes: dict[str, tuple[str, Any, Any]] = {}
        """By the method as it is asked for: its name, its group, what to call."""
        make: Any = ThreadGroup
        if definition.is_async:
            from weft.engine.process.actors.async_group import AsyncGroup

            make = AsyncGroup
        self._make = make
        limits = {DEFAULT_GROUP: definition.max_concurrency, **definition.groups}
        self._groups: dict[str, Any] = {name: make(name, limit, self) for name, limit in limits.items()}
        if definition.checkpoint is not None:
            from weft.engine.process.actors.recorded_calls import RecordedGroup

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
        try:
            if self.is_leaving:
                raise ActorExit(lifecycle.EXIT_TEXT)
            name, group, function = self._routes.get(method) or self._route(method)
            call = Call(native, name, function, args, kwargs, task)
            call.group = group
        except BaseException as error:
            native.fail(error)
            return
        self._open[call.task[0]] = call
        if self._early_cancels:  # looked at after the call can be found: partner of `cancel`
            call.is_cancelled = self._early_cancels.pop(call.task[0], call.is_cancelled)
        if self.history is not None:
            self.history.begin(call.task[0], name, args, kwargs, self.instance)
        group.submit(call)

    def _route(self, method: str) -> tuple[str, Any, Any]:
        name, _, chosen = method.partition(":")
        group = self._group(chosen or self._definition.group_of.get(name, DEFAULT_GROUP))
        found = self._routes[method] = name, group, self._method(name)
        return found

    def _method(self, name: str) -> Any:
        method = self._methods.get(name)
        if method is None:
            method = self._methods[name] = bound_method(self.instance, name)
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
        if _native.is_fork():
            lifecycle.end_fork(error)
        if call.has_resigned and not isinstance(error, SystemExit):  # it caught what exit_actor() raised
            error = ActorExit(lifecycle.EXIT_TEXT)
        if isinstance(error, SystemExit):
            self.leave(error)
        if call.is_cancelled:
            call.native.cancelled()
        elif error is None:
            call.native.finish(value)
        else:
            if context_state.state.is_worker:
                from weft.engine.process.telling import failures

                failures.keep_inputs(call.name, call.args, call.kwargs)
            call.native.fail(error)
        self._open.pop(call.task[0], None)
        if self._idle_callback is not None:  # looked at after the call is gone: partner of `when_idle`
            self._tell_idle()

    def _tell_idle(self) -> None:
        """Once, whoever sees it first."""
        with self._lock:
            callback = None if self._open else self._idle_callback
            if callback is not None:
                self._idle_callback = None
        if callback is not None:
            callback()

    def waiting_on(self, waiting: Collection[int]) -> list[tuple[bytes, list[int]]]:
        """The calls that cannot go on before one of these threads does, each with those it depends on."""
        calls = list(self._open.values())
        found = [(call.task[0], call.group.hindered_by(call, waiting)) for call in calls]
        return [(task, threads) for task, threads in found if threads]

    def cancel(self, task: bytes) -> None:
        """A caller gave the call up: what waits is not started, a coroutine is cancelled, a thread can look."""
        self._early_cancels[task] = True  # its start may be on its way on the main thread: partner of `start`
        call = self._open.get(task)
        if call is None:  # or it was answered a moment ago
            if len(self._early_cancels) > _MOST_EARLY_CANCELS:
                self._early_cancels.pop(next(iter(self._early_cancels)), None)
            return
        self._early_cancels.pop(task, None)
        call.is_cancelled = True
        call.group.cancel(call)

    def is_cancelled(self, task: bytes) -> bool:
        call = self._open.get(task)
        return call is not None and call.is_cancelled

    def resign(self, task: bytes) -> None:
        """This call is its actor's last, also if its code catches what `exit_actor()` raises."""
        if (call := self._open.get(task)) is not None:
            call.has_resigned = True

    def leave(self, error: SystemExit) -> None:
        """Code of the actor wants the process to end: for an orderly end, after every call that has begun."""
        if _native.is_fork() or not lifecycle.is_orderly(error):
            lifecycle.leave(error)
            return
        self.is_leaving = True
        self.when_idle(lifecycle.leave_for_good)

    def when_idle(self, callback: Callable[[], Any]) -> None:
        """Run it once every call is answered."""
        self._idle_callback = callback
        if not self._open:
            self._tell_idle()
