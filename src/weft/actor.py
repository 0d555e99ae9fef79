"""Actors' types, and how an actor ends itself; Ray's `ray.actor`."""

from __future__ import annotations

from weft.engine.process.actor_class import ActorClass, ActorClassInheritanceException
from weft.engine.process.actor_description import method
from weft.engine.process.actor_handle import ActorHandle, ActorMethod, typed
from weft.engine.process.checkpoints import CheckpointPolicy
from weft.engine.process.lifecycle import exit_actor

__all__ = [
    "ActorClass",
    "ActorClassInheritanceException",
    "ActorHandle",
    "ActorMethod",
    "CheckpointPolicy",
    "exit_actor",
    "method",
    "typed",
]
