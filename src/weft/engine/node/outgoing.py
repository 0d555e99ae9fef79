"""From what the state has processes told to records of their rings: the other direction of `intake`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from weft import _native
from weft.engine.state import instructions as do
from weft.engine.state.asking import Ask, AskLeases
from weft.engine.wire import kinds
from weft.engine.wire.kinds import DeathCause

_message = msgspec.msgpack.Encoder().encode


def encode(one: do.Tell) -> tuple[int, bytes]:
    """The record's kind and body."""
    kind, body = _ENCODERS[type(one)]
    return kind, body(one)


def encode_ask(ask: Ask) -> tuple[int, bytes]:
    """The same for what one daemon says to another in a process's name."""
    if isinstance(ask, AskLeases):
        wanted = ask.wanted | kinds.PATIENT if ask.is_patient else ask.wanted
        return kinds.LEASE_REQUEST, kinds.LEASE_REQUEST_BODY.pack(ask.shape, wanted)
    return kinds.CONTROL, _message(ask)


def _death(one: do.TellDeath) -> bytes:
    cause = DeathCause.ENDED if one.memory_peak is None else DeathCause.STOPPED_FOR_MEMORY
    return kinds.PEER_DIED_BODY.pack(*one.dead, cause, one.memory_peak or 0) + one.reason.encode()


def _error(cause: do.Fault | bytes) -> bytes:
    return cause if isinstance(cause, bytes) else _native.error_value(cause.code, cause.text)


def _error_of_actor(one: do.TellActorDown) -> bytes:
    """With the actor's id behind the text, for the exception's `actor_id`."""
    return _error(one.cause) + (b"" if isinstance(one.cause, bytes) else b"\0" + one.actor.hex().encode())


_ENCODERS: dict[type[do.Tell], tuple[int, Callable[[Any], bytes]]] = {
    do.GrantLease: (
        kinds.LEASE_GRANT,
        lambda one: kinds.LEASE_GRANT_BODY.pack(one.lease, one.shape, *one.worker, one.pid),
    ),
    do.RevokeLease: (kinds.LEASE_REVOKE, lambda one: kinds.LEASE_BODY.pack(one.lease)),
    do.RefuseShape: (
        kinds.SHAPE_REFUSED,
        lambda one: kinds.SHAPE_REFUSED_BODY.pack(one.shape, one.only_now) + _error(one.fault),
    ),
    do.RefuseNear: (kinds.NOT_NEAR, lambda one: kinds.NOT_NEAR_BODY.pack(one.shape, one.node, one.for_good)),
    do.TellDeath: (kinds.PEER_DIED, _death),
    do.CreateActor: (kinds.TASK, lambda one: one.record),
    do.TellActorUp: (
        kinds.ACTOR_UP,
        lambda one: kinds.ACTOR_UP_BODY.pack(one.actor, *one.worker, one.incarnation, 0),
    ),
    do.TellActorDown: (
        kinds.ACTOR_DOWN,
        lambda one: kinds.ACTOR_STATE_BODY.pack(one.actor, one.is_dead, 0) + _error_of_actor(one),
    ),
    do.KeepPromise: (kinds.PROMISE_KEPT, lambda one: one.promise),
    do.BindWorker: (kinds.BIND_JOB, lambda one: _message(one.binding)),
    do.SendMessage: (kinds.CONTROL, lambda one: _message(one.message)),
}
KINDS = tuple(_ENCODERS)
"""The instructions that become records."""
