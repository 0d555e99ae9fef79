"""From records of the ring to events of the state. Pure: bytes in, an event out.

What is not the state's affair (requests, functions, spilling) is left to the daemon and gives None.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import msgspec

from weft.engine.state import events as ev
from weft.engine.state.events import Process
from weft.engine.wire import kinds
from weft.engine.wire.messages import (
    ActorSpec,
    CreateGroup,
    DefineShape,
    DriverHello,
    KillActor,
    RemoveGroup,
    Request,
    WatchGroup,
)

MALFORMED = (ValueError, struct.error, msgspec.MsgspecError)
"""What a record that makes no sense raises."""
_LENGTH = struct.Struct("<I")
_messages = msgspec.msgpack.Decoder(
    DefineShape | DriverHello | KillActor | CreateGroup | RemoveGroup | WatchGroup | Request
)
_specs = msgspec.msgpack.Decoder(ActorSpec)


def decode(process: Process, kind: int, payload: bytes) -> ev.Event | Request | None:
    """The event in a record, a Request, or None; ValueError (or its kin) when the record is malformed."""
    decoder = _DECODERS.get(kind)
    return decoder(process, payload) if decoder is not None else None


def _control(process: Process, payload: bytes) -> ev.Event | Request | None:
    message = _messages.decode(payload)
    if isinstance(message, Request):
        return message
    if isinstance(message, DefineShape):
        return ev.ShapeDefined(process, message)
    if isinstance(message, DriverHello):
        return ev.DriverGreeted(process, message)
    if isinstance(message, CreateGroup):
        return ev.GroupRequested(process, message)
    if isinstance(message, RemoveGroup):
        return ev.GroupRemovalRequested(process, message.group)
    if isinstance(message, WatchGroup):
        return ev.GroupWatched(process, message.group)
    return ev.ActorKillRequested(process, message.actor, message.no_restart)


def _lease_request(process: Process, payload: bytes) -> ev.Event:
    shape, wanted = kinds.LEASE_REQUEST_BODY.unpack_from(payload)
    near: dict[int, int] = {}
    for (node,) in kinds.NODE_BODY.iter_unpack(payload[kinds.LEASE_REQUEST_BODY.size :]):
        near[node] = near.get(node, 0) + 1
    return ev.LeaseRequested(process, shape, wanted & ~kinds.PATIENT, bool(wanted & kinds.PATIENT), near)


def _lease_return(process: Process, payload: bytes) -> ev.Event:
    return ev.LeaseReturned(process, kinds.LEASE_BODY.unpack(payload)[0])


def _create_actor(process: Process, payload: bytes) -> ev.Event:
    (length,) = _LENGTH.unpack_from(payload)
    spec = _specs.decode(payload[4 : 4 + length])
    return ev.ActorRequested(process, spec, payload[4 + length :])


def _actor_watch(process: Process, payload: bytes) -> ev.Event:
    """The actor's id and its owner; slot 0 (the daemon's) when the owner is not known."""
    actor, slot, generation = kinds.ACTOR_WATCH_BODY.unpack(payload)
    return ev.ActorWatched(process, actor, (slot, generation) if slot else None)


def _actor_created(process: Process, payload: bytes) -> ev.Event:
    actor, ok, _ = kinds.ACTOR_STATE_BODY.unpack_from(payload)
    return ev.ActorCreated(process, actor, bool(ok), payload[kinds.ACTOR_STATE_BODY.size :])


_DECODERS: dict[int, Callable[[Process, bytes], ev.Event | Request | None]] = {
    kinds.CONTROL: _control,
    kinds.LEASE_REQUEST: _lease_request,
    kinds.LEASE_RETURN: _lease_return,
    kinds.BLOCKED: lambda process, _: ev.WorkerBlocked(process),
    kinds.UNBLOCKED: lambda process, _: ev.WorkerUnblocked(process),
    kinds.RETIRES: lambda process, _: ev.WorkerRetired(process),
    kinds.LENDS_OBJECTS: lambda process, payload: ev.WorkerLent(process, _LENGTH.unpack(payload)[0] != 0),
    kinds.CREATE_ACTOR: _create_actor,
    kinds.ACTOR_WATCH: _actor_watch,
    kinds.ACTOR_DROP: lambda process, payload: ev.ActorDropped(process, payload[:16]),
    kinds.ACTOR_CREATED: _actor_created,
}
