"""Actors' types, and how an actor ends itself; Ray's `ray.actor`."""

from __future__ import annotations

from weft.engine.process.actors.actor_class import ActorClass, ActorClassInheritanceException
from weft.engine.process.actors.actor_description import method
from weft.engine.process.actors.actor_handle import ActorHandle, ActorMethod, typed
from weft.engine.process.actors.checkpoints import CheckpointPolicy
from weft.engine.process.worker.lifecycle import exit_actor

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
