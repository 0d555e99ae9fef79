"""The records that the node daemon reads and writes: their kinds, who may say them, what they begin with.

Made by native/schema/generate.py of native/schema/records.py: change that, and run `make records`.
Integers are little-endian. A body has the fields that its kind names, or that it shares with others.
"""

from __future__ import annotations

import enum
import struct

CONTROL = 1
"""Either way. One message of `messages.py`."""
BIND_JOB = 2
"""From the daemon. To a worker, before its first lease is granted: messages.BindJob."""
LEASE_REQUEST = 3
"""To the daemon (shape u32, wanted u32). So many more leases are wanted now; the newest counts. Then u32 nodes that
have large inputs of what waits, one for each task. Between daemons `wanted` may have PATIENT in it: who asks has some
on its own node and takes none away from others."""
LEASE_GRANT = 4
"""From the daemon (lease u64, shape u32, worker process, pid u32). That worker runs tasks of the shape until the lease
is returned."""
LEASE_RETURN = 5
"""To the daemon (lease u64). It is not needed any more."""
LEASE_REVOKE = 6
"""From the daemon (lease u64). Return it as soon as what was pushed is done."""
SHAPE_REFUSED = 7
"""From the daemon (shape u32, only_now u32). What waits for that shape fails with the error value that follows; 0: what
comes later does, too."""
PEER_DIED = 8
"""From the daemon (dead process, cause DeathCause, peak_bytes u64). Why, what it held at most when it was stopped for
memory, then the reason as UTF-8 text, for a person."""
PEER_DETACHED = 9
"""To the daemon (slot u32, generation u32). This process holds no ring with that dead process any more."""
BLOCKED = 10
"""To the daemon. The worker's task waits in get or wait and lends its CPUs."""
UNBLOCKED = 11
"""To the daemon. It goes on."""
CREATE_ACTOR = 12
"""To the daemon. u32 n, n bytes of messages.ActorSpec, then the creation's TASK record."""
ACTOR_UP = 13
"""From the daemon (actor id, worker process, incarnation u32, zero u32). The actor is there."""
ACTOR_DOWN = 14
"""From the daemon (actor id, state u32, zero u32). State 0: it is being restarted, 1: it is dead. Then an error
value."""
ACTOR_WATCH = 15
"""To the daemon (actor id, owner process). Tell me when it is up or down, and now. Its owner; slot 0 where that is not
known."""
ACTOR_DROP = 16
"""To the daemon. The actor's id. No handle is left: let it finish its queue, then end it."""
ACTOR_CREATED = 17
"""To the daemon (actor id, state u32, zero u32). By the actor's worker. State 1: it lives, 0: it does not; then an
error value."""
FUNCTION = 18
"""Either way (key u64). Then the pickled function or class. Sent before its first use."""
TASK = 19
"""Between processes. The daemon says creations of actors, which it passes on unread, and nobody else does."""
NEED_SPACE = 20
"""To the daemon (bytes u64, number u64). The arena is full: spill something, then answer SPACE."""
SPACE = 21
"""From the daemon (bytes u64, number u64). 0 bytes: none could be freed; then text that names the largest holders."""
RESTORE = 22
"""To the daemon (entry u32, generation u32). A spilled object is wanted."""
RESTORED = 23
"""From the daemon (entry u32, generation u32, ok u32, zero u32). When it is not there again: then text or an error
value."""
LENDS_OBJECTS = 24
"""To the daemon (lends u32). 1: other processes refer to objects of this idle worker, so that it must be kept."""
PROMISE_KEPT = 25
"""From the daemon (promise id). A promise of the receiver's that the daemon was told of has the value None now."""
FIND_ORPHANS = 26
"""From the daemon (number u64, round u32, dead u32). Which objects of these dead do you refer to?"""
ORPHANS = 27
"""To the daemon (number u64, round u32, zero u32). The answer: an object and its owner for each (NAMED)."""
ADOPT = 28
"""From the daemon (number u64, rows u32, functions u32). Own these from now on. Without rows: let those go that were
given under that number. Of each function its SIZE and its FUNCTION record, of each row an id, its SIZE and its body;
then the ids of those that something lasting names."""
ADOPTED = 29
"""To the daemon (number u64). They are owned here, and who refers to them will hear of it."""
SETTLED = 30
"""From the daemon (dead u32, has_moved u32). Unless something has moved, all that these dead owned is lost; else
ask."""
ORPHAN_ASKED = 31
"""To the daemon (dead process, object id). That dead process owned what is wanted here."""
ORPHAN_ANSWERED = 32
"""From the daemon (object id, is_found u32, zero u32, owner process). Whether somebody has inherited it, and who."""
DEPOSIT = 33
"""To the daemon (nodes u32, zero u32). Then the nodes' numbers, ROW_HEAD, ids that it needs, the row's body. Those
nodes get a copy of it."""
WITHDRAW = 34
"""To the daemon (object id). The object is gone. Then u32 numbers of the nodes that have a copy of its row."""
NOT_NEAR = 35
"""From the daemon (shape u32, node u32, for_good u32). That node has inputs of what waits, and cannot run it."""
RETIRES = 36
"""To the daemon. This worker runs no task but the one that runs now, and hands all others back until it is ended."""
SPARE_RINGS = 37
"""From the daemon. By the native core: no shared ring is free. Give back those that were not written to since the last
time."""
DEVICE_LOST = 38
"""To the daemon (entry u32, generation u32). An object of another node names memory of a device that is gone: nobody
can read it, wherever it is."""
KEEP = 77
"""Between processes (object id, is_kept u32, zero u32). 1: what outlives all processes names it, so it stays and its
row is kept; from a daemon 0: no more."""
REPLY, HANDBACK, BORROW_ADD, BORROW_RELEASE, WANT, VALUE, CANCEL = 64, 65, 66, 67, 68, 69, 70
STREAM_ITEM, STREAM_CREDIT, ACQUAINT, CANCEL_OBJECT, MOVED, FORGET_FUNCTION, DEPOSIT_THERE = 71, 72, 73, 74, 75, 76, 78
"""Between drivers and workers only; a daemon passes them on."""

PATIENT = 0x80000000
"""In LEASE_REQUEST."""
STORE_NODE = 0xFFFFE
"""Stands for the control store among the nodes of a DEPOSIT or WITHDRAW."""
ADOPTED_SHAPES = 0x80000000
"""A process numbers its own shapes from 1 on; those that it gets with what it adopts are numbered by the daemon, from
here on."""
WAITS_LONG = 0xFFFE
"""The kind of the event in a process that a wait has lasted for a second."""
LINEAGE_FORGOTTEN = 0xFFFD
"""The kind of the event that tells, in words, that lineage had to be forgotten."""
WANTS_MEMORY = 0xFFFC
"""The kind of the event that tells of a task whose worker was stopped for memory: the body of that name. It waits for
retry_in()."""


class DeathCause(enum.IntEnum):
    """Why a process ended, as far as somebody acts on it."""

    ENDED = 0
    STOPPED_FOR_MEMORY = 1


class ErrorCode(enum.IntEnum):
    """Of an error value of the engine's own: b'S', the code, the text."""

    WORKER_CRASHED = 1
    ACTOR_DIED = 2
    OWNER_DIED = 3
    OBJECT_LOST = 4
    CANCELLED = 5
    NODE_LOST = 6
    ACTOR_UNAVAILABLE = 7
    OUT_OF_MEMORY = 8
    GET_TIMED_OUT = 9
    UNSCHEDULABLE = 10
    ENV_FAILED = 20
    ACTOR_ENV_FAILED = 21
    GROUP_REMOVED = 22
    ACTOR_GROUP_REMOVED = 23
    RECONSTRUCTION_FAILED = 24
    STOPPED_FOR_MEMORY = 25
    BAD_RECORD = 26
    NESTED_TOO_DEEPLY = 27
    ACTOR_UNSCHEDULABLE = 28


class Role(enum.Flag):
    """What a process is to the daemon that it speaks to."""

    DRIVER = enum.auto()
    WORKER = enum.auto()
    FAR = enum.auto()
    """A process of another node, of whatever kind."""
    LOCAL = DRIVER | WORKER
    ANY = LOCAL | FAR


SAYERS = {
    **dict.fromkeys((CONTROL, LEASE_REQUEST, LEASE_RETURN, CREATE_ACTOR, ACTOR_WATCH), Role.ANY),
    **dict.fromkeys((ACTOR_DROP, ACTOR_CREATED, FUNCTION), Role.ANY),
    **dict.fromkeys((PEER_DETACHED, NEED_SPACE, RESTORE, ORPHANS, ADOPTED), Role.LOCAL),
    **dict.fromkeys((ORPHAN_ASKED, DEPOSIT, WITHDRAW, DEVICE_LOST), Role.LOCAL),
    **dict.fromkeys((BLOCKED, UNBLOCKED, LENDS_OBJECTS, RETIRES), Role.WORKER),
}
"""Who may say what to a daemon; nobody says anything else. Of a lease, an inheritance or an actor, the state
knows whose it is."""


def check_sender(role: Role, kind: int) -> None:
    """ValueError when it is not for that sender to say."""
    if role not in SAYERS.get(kind, Role(0)):
        raise ValueError(f"it is not for {(role.name or 'nobody').lower()} processes to say to a daemon")


PROCESS_BODY = struct.Struct("<II")
ROW_HEAD = struct.Struct("<16sQIIIIQII")
"""id id, function u64, shape u32, needs u32, arena object, in_arena u32, zero u32. Of a row of a ledger: what a daemon
must know of it besides what follows."""
LEASE_BODY = struct.Struct("<Q")
NODE_BODY = struct.Struct("<I")
ACTOR_STATE_BODY = struct.Struct("<16sII")
SPACE_BODY = struct.Struct("<QQ")
IN_ARENA_BODY = struct.Struct("<II")
NUMBER_BODY = struct.Struct("<Q")
NAMED_BODY = struct.Struct("<16sII")
"""id id, owner process. An object, and whose it is."""
WANTS_MEMORY_BODY = struct.Struct("<QI4xQ")
"""cookie u64, shape u32, peak_bytes u64. What its worker held at most."""
SIZE_BODY = struct.Struct("<II")
"""bytes u32, shape u32. Of what an heir is given."""
LEASE_REQUEST_BODY = struct.Struct("<II")
LEASE_GRANT_BODY = struct.Struct("<QIIII")
SHAPE_REFUSED_BODY = struct.Struct("<II")
PEER_DIED_BODY = struct.Struct("<III4xQ")
ACTOR_UP_BODY = struct.Struct("<16sIIII")
ACTOR_WATCH_BODY = struct.Struct("<16sII")
RESTORED_BODY = struct.Struct("<IIII")
FIND_ORPHANS_BODY = struct.Struct("<QII")
ORPHANS_BODY = struct.Struct("<QII")
ADOPT_BODY = struct.Struct("<QII")
SETTLED_BODY = struct.Struct("<II")
ORPHAN_ASKED_BODY = struct.Struct("<II16s")
ORPHAN_ANSWERED_BODY = struct.Struct("<16sIIII")
DEPOSIT_BODY = struct.Struct("<II")
NOT_NEAR_BODY = struct.Struct("<III")
KEEP_BODY = struct.Struct("<16sII")
