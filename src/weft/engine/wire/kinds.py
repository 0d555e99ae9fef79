"""The kinds of records that the node daemon reads and writes; `native/wire.hpp` holds the same numbers.

All integers are little-endian. `actor` is 16 bytes. A process is a slot (u32) and a generation (u32).
"""

from __future__ import annotations

import enum
import struct

CONTROL = 1
"""Either way: one message of `messages.py`."""
BIND_JOB = 2
"""Daemon to worker, before its first lease is granted: messages.BindJob."""
LEASE_REQUEST = 3
"""To the daemon: u32 shape, u32 wanted, then u32 nodes that have large inputs of what waits, one for each task.

So many more leases are wanted now; the newest counts. Between daemons `wanted` may have PATIENT in it: who asks has
some on its own node and takes none away from others."""
PATIENT = 1 << 31
LEASE_GRANT = 4
"""From the daemon: u64 lease, u32 shape, u32 slot, u32 generation of the worker, u32 zero."""
LEASE_RETURN = 5
"""To the daemon: u64 lease."""
LEASE_REVOKE = 6
"""From the daemon: u64 lease. Return it as soon as what was pushed is done."""
SHAPE_REFUSED = 7
"""From the daemon: u32 shape, u32 zero, then an error value (see `_native.error_value`)."""
PEER_DIED = 8
"""From the daemon: u32 slot, u32 generation, u32 DeathCause, u32 zero, u64 bytes that it held at most
when it was stopped for memory, then the reason as UTF-8 text, for a person."""
PEER_DETACHED = 9
"""To the daemon: u32 slot, u32 generation. This process holds no ring with that dead process any more."""
BLOCKED = 10
"""To the daemon: the worker's task waits in get or wait and lends its CPUs."""
UNBLOCKED = 11
"""To the daemon: it goes on."""
CREATE_ACTOR = 12
"""To the daemon: u32 n, n bytes of messages.ActorSpec, then the creation's TASK record."""
ACTOR_UP = 13
"""From the daemon: actor, u32 slot, u32 generation, u32 incarnation, u32 zero."""
ACTOR_DOWN = 14
"""From the daemon: actor, u32 state (0 restarting, 1 dead), u32 zero, then an error value."""
ACTOR_WATCH = 15
"""To the daemon: actor, u32 slot, u32 generation of its owner. Tell me when it is up or down, and now."""
ACTOR_DROP = 16
"""To the daemon: actor. No handle is left: let it finish its queue, then end it."""
ACTOR_CREATED = 17
"""Actor's worker to the daemon: actor, u32 ok, u32 zero, then an error value when not ok."""
FUNCTION = 18
"""To the daemon or a worker: u64 key, then the pickled function or class. Sent before its first use."""
TASK = 19
"""A task record; the daemon passes an actor's creation record to its worker unread."""
NEED_SPACE = 20
"""To the daemon: u64 bytes. The arena is full: spill something, then answer SPACE."""
SPACE = 21
"""From the daemon: u64 bytes freed (0: none could be), then text naming the largest holders."""
RESTORE = 22
"""To the daemon: u32 entry, u32 generation. A spilled object is wanted."""
RESTORED = 23
"""From the daemon: u32 entry, u32 generation, u32 ok, u32 zero, then text or an error value when not ok."""

LENDS_OBJECTS = 24
"""To the daemon: u32 1 when other processes refer to objects of this idle worker (it must be kept), else 0."""
PROMISE_KEPT = 25
"""From the daemon: an object's id. A promise of the receiver's that the daemon was told of has the value None now."""

FIND_ORPHANS = 26
"""From the daemon: u64 number, u32 round, u32 n, n processes. Which objects of these dead do you refer to?"""
ORPHANS = 27
"""To the daemon: u64 number, u32 round, u32 zero, then for each its id, u32 slot and u32 generation of its owner."""
ADOPT = 28
"""From the daemon: own these from now on, or without rows: let those go that were given under that number
(`node/inheritance.py` writes it, `native/inheritance.cpp` reads it)."""
ADOPTED = 29
"""To the daemon: u64 number. They are owned here, and who refers to them will hear of it."""
SETTLED = 30
"""From the daemon: u32 n, u32 moved, n dead processes. Unless something has moved, all of theirs is lost; else ask."""
ORPHAN_ASKED = 31
"""To the daemon: u32 slot, u32 generation, object id. That dead process owned what is wanted here."""
ORPHAN_ANSWERED = 32
"""From the daemon, once that is known: object id, u32 found, u32 zero, u32 slot, u32 generation of its new owner."""

DEPOSIT = 33
"""To the daemon: u32 n, u32 zero, n node numbers, RowHead, ids that it needs, body. Those nodes get a copy of it."""
WITHDRAW = 34
"""To the daemon: object id, then u32 numbers of the nodes that have a copy of its row. The object is gone."""
NOT_NEAR = 35
"""From the daemon: u32 shape, u32 node, u32 for_good. That node has inputs of what waits, and cannot run it."""
RETIRES = 36
"""To the daemon: this worker runs no task but the one that runs now, and hands all others back until it is ended."""
SPARE_RINGS = 37
"""From the daemon, natively: no shared ring is free. Give back those that were not written to since the last time."""

KEEP = 77
"""Between processes: object id, u32 1, u32 zero. What outlives all processes names it: it stays, and its row is kept.
From the daemon with 0: no more."""
DEPOSIT_THERE = 78
"""Between processes: object id, u32 node, u32 zero. A row that was sent there names it: send a copy of its own."""
STORE_NODE = (1 << 20) - 2
"""Stands for the control store among the nodes of a DEPOSIT or WITHDRAW."""

ADOPTED_SHAPES = 1 << 31
"""A process numbers its own shapes from 1 on; those that it gets with what it adopts are numbered by the daemon, from
here on."""


class DeathCause(enum.IntEnum):
    """Why a process ended, as far as somebody acts on it."""

    ENDED = 0
    STOPPED_FOR_MEMORY = 1


class Role(enum.Flag):
    """What a process is to the daemon that it speaks to."""

    DRIVER = enum.auto()
    WORKER = enum.auto()
    FAR = enum.auto()
    """A process of another node, of whatever kind."""
    LOCAL = DRIVER | WORKER
    ANY = LOCAL | FAR


SAYERS = {
    CONTROL: Role.ANY,
    LEASE_REQUEST: Role.ANY,
    LEASE_RETURN: Role.ANY,
    PEER_DETACHED: Role.LOCAL,
    BLOCKED: Role.WORKER,
    UNBLOCKED: Role.WORKER,
    CREATE_ACTOR: Role.ANY,
    ACTOR_WATCH: Role.ANY,
    ACTOR_DROP: Role.ANY,
    ACTOR_CREATED: Role.ANY,
    FUNCTION: Role.ANY,
    NEED_SPACE: Role.LOCAL,
    RESTORE: Role.LOCAL,
    LENDS_OBJECTS: Role.WORKER,
    ORPHANS: Role.LOCAL,
    ADOPTED: Role.LOCAL,
    ORPHAN_ASKED: Role.LOCAL,
    DEPOSIT: Role.LOCAL,
    WITHDRAW: Role.LOCAL,
    RETIRES: Role.WORKER,
}
"""Who may say what to a daemon; nobody says anything else. `native/record_check.hpp` has the same for the others. Of a
lease, an inheritance or an actor, the state knows whose it is."""


def check_sender(role: Role, kind: int) -> None:
    """ValueError when it is not for that sender to say."""
    if role not in SAYERS.get(kind, Role(0)):
        raise ValueError(f"it is not for {(role.name or 'nobody').lower()} processes to say to a daemon")


ROW_HEAD = struct.Struct("<16sQIIIIQII")
"""Id, function, shape, needs, the arena's entry and generation, bytes, whether it lies there, zero."""
LEASE_REQUEST_BODY = struct.Struct("<II")
NEAR_BODY = struct.Struct("<I")
NOT_NEAR_BODY = struct.Struct("<III")
LEASE_GRANT_BODY = struct.Struct("<QIIII")
LEASE_BODY = struct.Struct("<Q")
PROCESS_BODY = struct.Struct("<II")
PEER_DIED_BODY = struct.Struct("<III4xQ")
ACTOR_UP_BODY = struct.Struct("<16sIIII")
ACTOR_STATE_BODY = struct.Struct("<16sII")
SPACE_BODY = struct.Struct("<QQ")
"""Of NEED_SPACE: bytes, the request's number. Of SPACE: bytes that were freed, that number, then why there are none."""
KEEP_BODY = struct.Struct("<16sII")
RESTORED_BODY = struct.Struct("<IIII")
