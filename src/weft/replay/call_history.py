"""The calls of an actor since it was made, kept in its own process so that a failing one can be replayed exactly.

Kept where WEFT_RECORD_CALLS is set: each call then costs a pickle of its arguments. When the calls have grown beyond
`MOST_BYTES`, the state of the actor takes their place, if it can be pickled. Without the variable only the state that
an actor has when a call fails is recorded, at that moment.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import cloudpickle

from weft.engine.process.actors.recorded_calls import save_state
from weft.engine.process.calls import calls_made, current
from weft.engine.process.session import context_state
from weft.replay import recorded_inputs

if TYPE_CHECKING:
    from weft.engine.process.actors.actor_definition import ActorDefinition

MOST_BYTES = 64 << 20


def start(definition: ActorDefinition, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallHistory:
    """Of the actor that is about to be made here. A concurrent one notes its calls itself."""
    history = CallHistory(definition.cls, args, kwargs)
    if not definition.is_concurrent:
        history.wrap(definition.cls, definition.description.methods)
    return history


class CallHistory:
    """Of one actor."""

    def __init__(self, cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._lock = threading.Lock()
        self._inside = threading.local()
        self._bytes = 0
        self._calls: list[tuple[bytes, bytes]] = []
        """(task, call)."""
        self._made: bytes | None = None
        self._state: bytes | None = None
        self._gap = ""
        """Why something is missing since; the next call begins with the state."""
        self._answers: dict[bytes, bytes] = {}
        """What actors answered to those calls, by task (`calls_made`)."""
        self._creation = current.task()[0]
        self.cls = cloudpickle.dumps(cls)
        """As it is before its methods are wrapped."""
        try:
            self._made = recorded_inputs.dumps((args, kwargs))
        except recorded_inputs.CannotRecord as error:
            self._gap = str(error)

    def wrap(self, cls: type, names: Iterable[str]) -> None:
        """Note each call of these methods, in this process only; not those that the actor makes of its own."""
        for name in names:
            found = next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)
            if callable(found) and not name.startswith("__"):
                setattr(cls, name, self._noted(name, found))

    def _noted(self, name: str, function: Any) -> Any:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            instance = context_state.state.actor_instance
            if instance is None or getattr(self._inside, "is_set", False):
                return function(*args, **kwargs)
            self._inside.is_set = True
            try:
                self.begin(current.task()[0], name, args[1:], kwargs, instance)
                return function(*args, **kwargs)
            finally:
                self._inside.is_set = False
                self.keep_answers(current.task()[0])

        return call

    def begin(self, task: bytes, method: str, args: tuple[Any, ...], kwargs: dict[str, Any], instance: Any) -> None:
        """A call is about to run."""
        if not self._calls:
            self.keep_answers(self._creation)
        with self._lock:
            if self._gap or self._bytes > MOST_BYTES:
                self._begin_with_state(instance)
            if self._gap:
                return
            try:
                packed = recorded_inputs.dumps((method, args, kwargs))
            except recorded_inputs.CannotRecord as error:
                self._gap = f"{method}: {error}"
                return
            self._calls.append((task, packed))
            self._bytes += len(packed)

    def _begin_with_state(self, instance: Any) -> None:
        self._calls, self._bytes, self._made, self._answers = [], 0, None, {}
        try:
            self._state, self._gap = recorded_inputs.dumps(save_state(instance)), ""
        except recorded_inputs.CannotRecord as error:
            self._state, self._gap = None, str(error)

    def keep_answers(self, task: bytes) -> None:
        """Of a task that has ended, unless they cannot be recorded: then the replay says so where it needs them."""
        notes = calls_made.take(task)
        if notes is None:
            return
        with contextlib.suppress(recorded_inputs.CannotRecord):
            packed = recorded_inputs.dumps(notes)
            with self._lock:
                self._answers[task] = packed
                self._bytes += len(packed)

    def answers(self, task: bytes) -> tuple[bytes, bytes, list[bytes]]:
        """What actors answered to it, to the constructor, and to each of the calls before it."""
        with self._lock:
            found = self._answers.get
            before = list(itertools.takewhile(lambda noted: noted != task, (noted for noted, _ in self._calls)))
            return found(task, b""), found(self._creation, b""), [found(noted, b"") for noted in before]

    def until(self, task: bytes) -> tuple[bytes | None, bytes | None, list[bytes]] | None:
        """(how it was made, or its state; the calls before that task), or None where something is missing."""
        with self._lock:
            at = [index for index, (noted, _) in enumerate(self._calls) if noted == task]
            if self._gap or not at or (self._made is None and self._state is None):
                return None
            return self._made, self._state, [call for _, call in self._calls[: at[-1]]]
