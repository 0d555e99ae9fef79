"""The actor inside its worker: how the instance is made, which calls run at once."""

from __future__ import annotations

import contextlib
from typing import Any

from weft.engine.process.actors.actor_definition import ActorDefinition
from weft.engine.process.session import context_state
from weft.engine.process.telling import tracing


def create(definition: ActorDefinition, args: tuple[Any, ...], kwargs: dict[str, Any], actor: bytes) -> Any:
    """(the instance, what runs its calls or None). What the constructor raises is the actor's death."""
    state = context_state.state
    state.actor_id, state.actor_definition = actor, definition
    if definition.namespace:
        state.namespace = definition.namespace
    add_special_methods(definition.cls)
    if definition.description.is_traced:
        tracing.trace_methods(definition.cls, definition.description.methods)
    calls = None
    if definition.is_concurrent:
        from weft.engine.process.actors.concurrency import ConcurrentCalls

        calls = ConcurrentCalls(definition)
    if state.records_calls:
        from weft.replay import call_history

        state.history = call_history.start(definition, args, kwargs)
        if calls is not None:
            calls.history = state.history
    make = definition.cls if calls is None else calls.construct
    state.actor_instance = make(*args, **kwargs)
    if calls is not None:
        calls.instance = state.actor_instance
    return state.actor_instance, calls


# ---- methods that every actor has ------------------------------------------------------------------


def _ready(self: Any) -> bool:
    """Answers once the actor is made."""
    return True


def _call(self: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
    """Run a function of the caller's with the actor as its first argument."""
    return function(self, *args, **kwargs)


def _terminate(self: Any) -> None:
    """Ends the actor after the calls before this one."""
    from weft.engine.process.worker.lifecycle import exit_actor

    exit_actor()


SPECIAL_METHODS = {"__ray_ready__": _ready, "__ray_call__": _call, "__ray_terminate__": _terminate}


def add_special_methods(cls: type) -> None:
    """Put them on the class, in this worker only; on a class that takes no attributes they stay missing."""
    for name, function in SPECIAL_METHODS.items():
        if not hasattr(cls, name):
            with contextlib.suppress(TypeError):
                setattr(cls, name, function)
