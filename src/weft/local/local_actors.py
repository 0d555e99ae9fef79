"""The actors of a local session.

A serial actor's calls run on the caller's thread, before `.remote()` returns, one at a time. An async or threaded actor
has the threads that it would have in a worker (`concurrency`), so that its calls can wait for each other.

1. LOC-1: every ref that a call has returned gets a value or an error, also when its actor dies.
2. LOC-2: an actor's threads end with it; one that is stuck in the user's code is left behind as a daemon thread.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from weft import _native
from weft.engine.process.actors import actor_instance
from weft.engine.process.actors.call import bound_method
from weft.engine.process.calls import errors
from weft.engine.process.calls.errors import ActorExit
from weft.engine.process.session.context_state import ProcessState
from weft.engine.process.worker import lifecycle
from weft.engine.wire import kinds
from weft.engine.wire.kinds import ErrorCode
from weft.ids import ActorID
from weft.local.local_calls import LocalCalls, PendingCall
from weft.local.local_tasks import Run, check_runtime_env, copied, keep_error, value_of, worker_for

if TYPE_CHECKING:
    from weft._native import ObjectRef
    from weft.engine.process.actors.actor_definition import ActorDefinition
    from weft.engine.process.actors.actor_description import MethodDescription
    from weft.engine.process.options.call_options import ActorOptions


class LocalActor:
    """One actor over all its incarnations."""

    def __init__(self, actor: bytes, definition: ActorDefinition, options: ActorOptions) -> None:
        self.id = actor
        self.definition = definition
        self.options = options
        self.restarts = 0
        self.death = b""
        """The error value that every call gets from now on."""
        self.calls: LocalCalls | None = None
        self._lock = threading.RLock()
        self._is_dropped = False
        self._worker = ProcessState()
        self._creation: tuple[list[Any], dict[str, Any]] = ([], {})

    def create(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Run the constructor; what it raises is the actor's death."""
        name = f"{self.definition.cls.__name__}.__init__"
        self._creation = (
            [copied(value, f"args[{index}]", name) for index, value in enumerate(args)],
            {key: copied(value, f"kwargs[{key!r}]", name) for key, value in kwargs.items()},
        )
        self._start(name)

    def _start(self, name: str) -> None:
        self._worker = replace(
            worker_for(self.options),
            actor_id=self.id,
            actor_definition=self.definition,
            namespace=self.definition.namespace,
        )
        actor_instance.add_special_methods(self.definition.cls)
        run = Run(name, self._worker, 0, ())
        run._task = self.id
        args, kwargs = self._creation
        if self.definition.is_concurrent:
            self.calls = self._worker.calls = LocalCalls(self.definition, self, self._worker)
        try:
            taken, named = [value_of(value) for value in args], {key: value_of(value) for key, value in kwargs.items()}
            with run.entered():
                make = self.definition.cls if self.calls is None else self.calls.construct
                self._worker.actor_instance = make(*taken, **named)
            if self.calls is not None:
                self.calls.instance = self._worker.actor_instance
        except BaseException as error:
            self.end(run.error_value(error))

    # ---- calls ----

    def call(self, name: str, method: MethodDescription, shown: str, args: Any, kwargs: Any) -> Any:
        """Its refs, as `.remote()` gives them."""
        if self.death:
            return _failed(method.num_returns, self.death)
        if self.calls is not None:
            return PendingCall.start(self, name, method, shown, args, kwargs)
        instance = self._worker.actor_instance
        run = SerialCall(self, shown, self.retries(method), errors.retry_types(method.retry_types))
        with self._lock:
            return run.submit(bound_method(instance, name), args, kwargs, method.num_returns, method.writable_args)

    def retries(self, method: MethodDescription) -> int:
        wanted = method.max_task_retries
        count = self.options.max_task_retries if wanted is None else wanted
        return count if method.retry_exceptions else 0

    # ---- ends ----

    def kill(self, no_restart: bool) -> None:
        text = f"actor {self.definition.cls.__name__} ({self.id.hex()[:8]}) was killed by weft.kill()"
        limit = self.options.max_restarts
        if no_restart or (limit != -1 and self.restarts >= limit):
            self.end(_native.error_value(ErrorCode.ACTOR_DIED, text))
            return
        self._stop(_native.error_value(ErrorCode.ACTOR_UNAVAILABLE, text))
        self.restarts += 1
        self._start(f"{self.definition.cls.__name__}.__init__")

    def leave(self, error: SystemExit) -> None:
        """Its own code ends it."""
        if isinstance(error, ActorExit) or lifecycle.is_orderly(error):
            lifecycle.run_shutdown_hook(self._worker.actor_instance)
        self.end(_native.error_value(ErrorCode.ACTOR_DIED, lifecycle.EXIT_TEXT))

    def dropped(self) -> None:
        """The last handle is gone: calls under way are finished first."""
        gone = _native.error_value(ErrorCode.ACTOR_DIED, "all handles to the actor are gone")
        if self.calls is None:
            lifecycle.run_shutdown_hook(self._worker.actor_instance)
            self.end(gone)
        else:
            self.calls.when_idle(lambda: self.end(gone))

    def end(self, death: bytes) -> None:
        """It is dead from now on; its name is free."""
        if self.death:
            return
        self.death = death
        self._stop(death)
        self._creation = ([], {})
        if _native.is_attached():
            _native.send(kinds.ACTOR_CREATED, kinds.ACTOR_STATE_BODY.pack(self.id, 0, 0) + death)

    def _stop(self, why: bytes) -> None:
        calls, self.calls = self.calls, None
        if calls is not None:
            calls.stop(why)
        self._worker.actor_instance = self._worker.calls = None


class SerialCall(Run):
    """A call on the caller's thread."""

    def __init__(self, actor: LocalActor, name: str, retries: int, retry_types: tuple[type, ...]) -> None:
        super().__init__(name, actor._worker, retries, retry_types)
        self._actor = actor

    def error_value(self, error: BaseException) -> bytes:
        value = super().error_value(error)
        if isinstance(error, SystemExit):
            with self.entered():
                self._actor.leave(error)
        return value


class LocalActors:
    """All actors of the session."""

    def __init__(self) -> None:
        self._by_id: dict[bytes, LocalActor] = {}

    def create(
        self, actor: bytes, definition: ActorDefinition, options: ActorOptions, args: Any, kwargs: dict[str, Any]
    ) -> None:
        check_runtime_env(options.runtime_env, f"actor {definition.cls.__name__}")
        made = LocalActor(actor, definition, options)
        self._by_id[actor] = made
        made.create(args, kwargs)

    def call(self, actor: bytes, name: str, method: MethodDescription, shown: str, args: Any, kwargs: Any) -> Any:
        known = self._by_id.get(actor)
        if known is None:
            text = f"actor {ActorID(actor).hex()[:8]} is of another session, or was never created"
            return _failed(method.num_returns, _native.error_value(ErrorCode.ACTOR_DIED, text))
        return known.call(name, method, shown, args, kwargs)

    def kill(self, actor: bytes, no_restart: bool) -> None:
        if (known := self._by_id.get(actor)) is not None:
            known.kill(no_restart)

    def cancel(self, ref: bytes, force: bool) -> None:
        for actor in list(self._by_id.values()):
            if actor.calls is not None and actor.calls.cancel_ref(ref):
                if force:
                    raise ValueError("force=True is not supported for actor tasks: end the actor with weft.kill()")
                return

    def dropped(self, actor: bytes) -> None:
        known = self._by_id.get(actor)
        if known is not None and not known.options.detached:
            known.dropped()

    def restarts_of(self, actor: bytes) -> int:
        known = self._by_id.get(actor)
        return 0 if known is None else known.restarts

    def close(self) -> None:
        """End every thread; nothing is attached any more."""
        for actor in self._by_id.values():
            actor.end(b"S\x02the session ended")
        self._by_id.clear()


def _failed(num_returns: int | str, error: bytes) -> Any:
    count = 1 if isinstance(num_returns, str) else num_returns
    refs: list[ObjectRef[Any]] = [_native.promise() for _ in range(max(1, count))]
    keep_error(refs, error)
    if isinstance(num_returns, str):
        from weft.local.local_streams import PulledGenerator

        return PulledGenerator(refs[0], Run("", ProcessState(), 0, ()), None)
    return refs[0] if count == 1 else refs if count else None
