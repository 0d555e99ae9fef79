"""Calls of the concurrent actors of a local session: `concurrency` runs them as in a worker, this answers them."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from weft import _native
from weft._native import ObjectRef
from weft.engine.process.actors.actor_description import MethodDescription
from weft.engine.process.actors.concurrency import DEFAULT_GROUP, ConcurrentCalls
from weft.engine.process.calls import current, errors, generator
from weft.engine.process.session import context_state
from weft.engine.process.session.context_state import ProcessState
from weft.engine.wire.kinds import ErrorCode
from weft.local import local_tasks
from weft.local.local_streams import PushedGenerator, Stream

if TYPE_CHECKING:
    from weft.engine.process.actors.actor_definition import ActorDefinition
    from weft.local.local_actors import LocalActor


class LocalCalls(ConcurrentCalls):
    """The groups of one actor, in the driver's process."""

    def __init__(self, definition: ActorDefinition, actor: LocalActor, worker: ProcessState) -> None:
        super().__init__(definition)
        self._actor = actor
        self._worker = worker
        self._pending: dict[bytes, PendingCall] = {}
        """By each of their refs."""

    def construct(self, *args: Any, **kwargs: Any) -> Any:
        def make(*args: Any, **kwargs: Any) -> Any:
            with context_state.inside(self._worker):
                return self._definition.cls(*args, **kwargs)

        return self._groups[DEFAULT_GROUP].construct(make, args, kwargs)

    def _method(self, name: str) -> Any:
        """Of the class, bound, and inside the actor's own context."""
        known = self._methods.get(name)
        if known is None:
            known = self._methods[name] = within(super()._method(name), self._worker)
        return known

    def leave(self, error: SystemExit) -> None:
        self._leaving = True
        self.when_idle(lambda: self._actor.leave(error))

    def opened(self, call: PendingCall) -> None:
        for ref in call.refs:
            self._pending[ref.binary()] = call

    def answered(self, call: PendingCall) -> None:
        for ref in call.refs:
            self._pending.pop(ref.binary(), None)

    def cancel_ref(self, ref: bytes) -> bool:
        """Whether the ref is of a call that is under way here."""
        call = self._pending.get(ref)
        if call is not None:
            self.cancel(call.current[0])
        return call is not None

    def stop(self, why: bytes) -> None:
        """Answer what is open and end the threads."""
        for call in list(self._pending.values()):
            call.give_up(why)
        for group in self._groups.values():
            group.stop()


def within(method: Any, worker: ProcessState) -> Any:
    """The method, seeing `worker` as its process: it stays a coroutine function or a generator if it was one."""
    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def run_coroutine(*args: Any, **kwargs: Any) -> Any:
            with context_state.inside(worker):
                return await method(*args, **kwargs)

        return run_coroutine
    if inspect.isasyncgenfunction(method):

        @functools.wraps(method)
        async def run_generator(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            with context_state.inside(worker):
                async for item in method(*args, **kwargs):
                    yield item

        return run_generator

    @functools.wraps(method)
    def run(*args: Any, **kwargs: Any) -> Any:
        with context_state.inside(worker):
            made = method(*args, **kwargs)
            return _inside(made, worker) if inspect.isgenerator(made) else made

    return run


def _inside(items: Any, worker: ProcessState) -> Any:
    with context_state.inside(worker):
        yield from items


class PendingCall:
    """One call that is under way; what `concurrency` takes for the native core's."""

    def __init__(
        self, actor: LocalActor, method: MethodDescription, shown: str, again: tuple[str, list[Any], dict[str, Any]]
    ) -> None:
        returns = method.num_returns
        self._actor = actor
        self._calls = actor.calls
        self._count = 1 if isinstance(returns, str) else returns
        self.refs: list[ObjectRef[Any]] = [_native.promise() for _ in range(max(1, self._count))]
        task = self.refs[0].binary()[:12] + bytes(4)
        self.current: current.Task = (task, 0, shown, actor.id)
        self.stream = Stream(generator.window(method.backpressure)) if isinstance(returns, str) else None
        self._retries_left = actor.retries(method)
        self._retry_types = errors.retry_types(method.retry_types) or (Exception,)
        self._again = again
        self._writable = method.writable_args
        self._lock = threading.Lock()
        self._is_answered = False

    @classmethod
    def start(
        cls, actor: LocalActor, name: str, method: MethodDescription, shown: str, args: Any, kwargs: dict[str, Any]
    ) -> Any:
        """Its refs, as `.remote()` gives them."""
        sent = [local_tasks.copied(value, f"args[{index}]", shown) for index, value in enumerate(args)]
        named = {key: local_tasks.copied(value, f"kwargs[{key!r}]", shown) for key, value in kwargs.items()}
        target = f"{name}:{method.concurrency_group}" if method.concurrency_group else name
        call = cls(actor, method, shown, (target, sent, named))
        call._begin()
        if call.stream is not None:
            return PushedGenerator(call.refs[0], call.stream)
        return call.refs[0] if call._count == 1 else call.refs if call._count else None

    def _begin(self) -> None:
        assert self._calls is not None
        self._calls.opened(self)
        target, args, kwargs = self._again
        waits_for = next((value for value in [*args, *kwargs.values()] if _is_pending(value)), None)
        if waits_for is not None:
            _native.on_ready(waits_for, self._begin)
            return
        try:
            taken = tuple(local_tasks.value_of(value, self._writable) for value in args)
            named = {key: local_tasks.value_of(value, self._writable) for key, value in kwargs.items()}
        except Exception as error:
            self.give_up(errors.dependency_value(self.current[2], error))
            return
        self._calls.start(self, target, taken, named, self.current)

    # ---- what `concurrency` calls ----

    def streams(self) -> bool:
        return self.stream is not None

    def item(self, value: Any) -> int:
        assert self.stream is not None
        return self.stream.add(_native.put_result(value))

    def room(self) -> int:
        assert self.stream is not None
        return self.stream.room()

    def finish(self, value: Any) -> None:
        try:
            if self._close():
                local_tasks.keep(self.refs, value, 0 if self.stream is not None else self._count, self.current[2])
                self._end_stream(None)
        except Exception as error:
            local_tasks.keep_error(self.refs, self._value_of(error))

    def fail(self, error: BaseException) -> None:
        if self._retries_left and isinstance(error, self._retry_types) and isinstance(error, Exception):
            self._retries_left -= 1
            task, attempt, name, actor = self.current
            self.current = (task, attempt + 1, name, actor)
            self._begin()
            return
        value = self._value_of(error)
        if self._close():
            if self.stream is None:
                local_tasks.keep_error(self.refs, value)
            else:
                self._end_stream(value)

    def cancelled(self) -> None:
        self.give_up(_native.error_value(ErrorCode.CANCELLED, f"task {self.current[2]} was cancelled while it ran"))

    def cancel_children(self) -> None:
        """They were run when they were submitted."""

    # ---- ends ----

    def give_up(self, error: bytes) -> None:
        """It will not be answered by the actor's code."""
        if self._close():
            local_tasks.keep_error(self.refs, error)
            if self.stream is not None:
                self.stream.add(self.refs[0])
                self.stream.end()

    def _close(self) -> bool:
        """Whether it was open."""
        with self._lock:
            was_open, self._is_answered = not self._is_answered, True
        if was_open and self._calls is not None:
            self._calls.answered(self)
        return was_open

    def _end_stream(self, error: bytes | None) -> None:
        if self.stream is None:
            return
        if error is not None:
            self.stream.add(_native.put_error(error))
            local_tasks.keep(self.refs, None, 0, self.current[2])
        self.stream.end()

    def _value_of(self, error: BaseException) -> bytes:
        with context_state.inside(self._actor._worker):
            return local_tasks.error_value(error, self.current[2], self._actor._worker)


def _is_pending(value: Any) -> bool:
    return isinstance(value, ObjectRef) and not value.is_ready()
