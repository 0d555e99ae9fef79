"""The records that processes of a node send each other, said once. `generate.py` makes native/records.hpp and
src/weft/engine/wire/kinds.py of this table; a test fails when they differ from it.

A record begins with a body of fixed fields, `name type, …`, or with a body of `BODIES` that several records share:

    u32, u64   little-endian
    id         16 bytes: an object, an actor or a task
    process    u32 slot, u32 generation
    object     an ArenaRef: u32 entry, u32 generation, u64 bytes
    pad        four bytes that nobody reads, and that are no field in Python

What follows is its tail. Of these the reader checks that they are whole before anything is done with the record:

    value            a PackedValue, with its refs and its bytes
    task, reply      a TaskHeader or ReplyHeader with all that it announces (the record has no body of its own)
    creation         an actor's creation, likewise; `adoption`: what an heir is given (its body counts what follows)
    u64[]            numbers up to the end
    process[name]    as many as the body's field of that name says

Any other tail is said in the record's words and looked at by whoever reads it.
"""

from __future__ import annotations

from dataclasses import dataclass

ANY, LOCAL, WORKER = "ANY", "LOCAL", "WORKER"
"""Who may say a record to a daemon: all, drivers and workers of its node, its workers."""
DAEMON, PEER, ANYONE = "daemon", "peer", "anyone"
"""Who may say a record to a driver or worker. Those that answer something (REPLY, STREAM_ITEM, HANDBACK, VALUE) must
come from whom it was asked of: their handlers know who that is."""


@dataclass(frozen=True)
class Record:
    number: int
    words: str
    body: str = ""
    tail: str = ""
    to_daemon: str = ""
    to_process: str = ""
    travels: bool = False
    """Between nodes, where other numbers stand for the processes and objects that it names."""


BODIES = {
    "PROCESS": ("slot u32, generation u32", ""),
    "ROW_HEAD": (
        "id id, function u64, shape u32, needs u32, arena object, in_arena u32, zero u32",
        "Of a row of a ledger: what a daemon must know of it besides what follows.",
    ),
    "LEASE": ("lease u64", ""),
    "NODE": ("node u32", ""),
    "ACTOR_STATE": ("actor id, state u32, zero u32", ""),
    "SPACE": ("bytes u64, number u64", "Bytes that are wanted or were freed, and the request's number."),
    "IN_ARENA": ("entry u32, generation u32", "An object of the arena."),
    "NUMBER": ("number u64", "Of an inheritance."),
    "NAMED": ("id id, owner process", "An object, and whose it is."),
    "WANTS_MEMORY": ("cookie u64, shape u32, _ pad, peak_bytes u64", "What its worker held at most."),
    "SIZE": ("bytes u32, shape u32", "Of what an heir is given."),
}

RECORDS = {
    "CONTROL": Record(1, "One message of `messages.py`.", to_daemon=ANY, to_process=DAEMON),
    "BIND_JOB": Record(2, "To a worker, before its first lease is granted: messages.BindJob.", to_process=DAEMON),
    "LEASE_REQUEST": Record(
        3,
        "So many more leases are wanted now; the newest counts. Then u32 nodes that have large inputs of what waits,"
        " one for each task. Between daemons `wanted` may have PATIENT in it: who asks has some on its own node and"
        " takes none away from others.",
        "shape u32, wanted u32",
        to_daemon=ANY,
    ),
    "LEASE_GRANT": Record(
        4,
        "That worker runs tasks of the shape until the lease is returned.",
        "lease u64, shape u32, worker process, pid u32",
        to_process=DAEMON,
        travels=True,
    ),
    "LEASE_RETURN": Record(5, "It is not needed any more.", "LEASE", to_daemon=ANY),
    "LEASE_REVOKE": Record(6, "Return it as soon as what was pushed is done.", "LEASE", to_process=DAEMON),
    "SHAPE_REFUSED": Record(
        7,
        "What waits for that shape fails with the error value that follows; 0: what comes later does, too.",
        "shape u32, only_now u32",
        to_process=DAEMON,
    ),
    "PEER_DIED": Record(
        8,
        "Why, what it held at most when it was stopped for memory, then the reason as UTF-8 text, for a person.",
        "dead process, cause DeathCause, _ pad, peak_bytes u64",
        to_process=DAEMON,
    ),
    "PEER_DETACHED": Record(
        9, "This process holds no ring with that dead process any more.", "PROCESS", to_daemon=LOCAL
    ),
    "BLOCKED": Record(10, "The worker's task waits in get or wait and lends its CPUs.", to_daemon=WORKER),
    "UNBLOCKED": Record(11, "It goes on.", to_daemon=WORKER),
    "CREATE_ACTOR": Record(
        12,
        "u32 n, n bytes of messages.ActorSpec, then the creation's TASK record.",
        tail="creation",
        to_daemon=ANY,
        travels=True,
    ),
    "ACTOR_UP": Record(
        13,
        "The actor is there.",
        "actor id, worker process, incarnation u32, zero u32",
        to_process=DAEMON,
        travels=True,
    ),
    "ACTOR_DOWN": Record(
        14, "State 0: it is being restarted, 1: it is dead. Then an error value.", "ACTOR_STATE", to_process=DAEMON
    ),
    "ACTOR_WATCH": Record(
        15,
        "Tell me when it is up or down, and now. Its owner; slot 0 where that is not known.",
        "actor id, owner process",
        to_daemon=ANY,
        travels=True,
    ),
    "ACTOR_DROP": Record(16, "The actor's id. No handle is left: let it finish its queue, then end it.", to_daemon=ANY),
    "ACTOR_CREATED": Record(
        17,
        "By the actor's worker. State 1: it lives, 0: it does not; then an error value.",
        "ACTOR_STATE",
        to_daemon=ANY,
    ),
    "FUNCTION": Record(
        18,
        "Then the pickled function or class. Sent before its first use.",
        "key u64",
        to_daemon=ANY,
        to_process=ANYONE,
    ),
    "TASK": Record(
        19,
        "The daemon says creations of actors, which it passes on unread, and nobody else does.",
        tail="task",
        to_process=ANYONE,
        travels=True,
    ),
    "NEED_SPACE": Record(20, "The arena is full: spill something, then answer SPACE.", "SPACE", to_daemon=LOCAL),
    "SPACE": Record(
        21, "0 bytes: none could be freed; then text that names the largest holders.", "SPACE", to_process=DAEMON
    ),
    "RESTORE": Record(22, "A spilled object is wanted.", "IN_ARENA", to_daemon=LOCAL),
    "RESTORED": Record(
        23,
        "When it is not there again: then text or an error value.",
        "entry u32, generation u32, ok u32, zero u32",
        to_process=DAEMON,
    ),
    "LENDS_OBJECTS": Record(
        24,
        "1: other processes refer to objects of this idle worker, so that it must be kept.",
        "lends u32",
        to_daemon=WORKER,
    ),
    "PROMISE_KEPT": Record(
        25,
        "A promise of the receiver's that the daemon was told of has the value None now.",
        "promise id",
        to_process=DAEMON,
    ),
    "FIND_ORPHANS": Record(
        26,
        "Which objects of these dead do you refer to?",
        "number u64, round u32, dead u32",
        "process[dead]",
        to_process=DAEMON,
    ),
    "ORPHANS": Record(
        27, "The answer: an object and its owner for each (NAMED).", "number u64, round u32, zero u32", to_daemon=LOCAL
    ),
    "ADOPT": Record(
        28,
        "Own these from now on. Without rows: let those go that were given under that number. Of each function its SIZE"
        " and its FUNCTION record, of each row an id, its SIZE and its body; then the ids of those that something"
        " lasting names.",
        "number u64, rows u32, functions u32",
        "adoption",
        to_process=DAEMON,
    ),
    "ADOPTED": Record(29, "They are owned here, and who refers to them will hear of it.", "NUMBER", to_daemon=LOCAL),
    "SETTLED": Record(
        30,
        "Unless something has moved, all that these dead owned is lost; else ask.",
        "dead u32, has_moved u32",
        "process[dead]",
        to_process=DAEMON,
    ),
    "ORPHAN_ASKED": Record(
        31, "That dead process owned what is wanted here.", "dead process, object id", to_daemon=LOCAL
    ),
    "ORPHAN_ANSWERED": Record(
        32,
        "Whether somebody has inherited it, and who.",
        "object id, is_found u32, zero u32, owner process",
        to_process=DAEMON,
    ),
    "DEPOSIT": Record(
        33,
        "Then the nodes' numbers, ROW_HEAD, ids that it needs, the row's body. Those nodes get a copy of it.",
        "nodes u32, zero u32",
        to_daemon=LOCAL,
    ),
    "WITHDRAW": Record(
        34,
        "The object is gone. Then u32 numbers of the nodes that have a copy of its row.",
        "object id",
        to_daemon=LOCAL,
    ),
    "NOT_NEAR": Record(
        35,
        "That node has inputs of what waits, and cannot run it.",
        "shape u32, node u32, for_good u32",
        to_process=DAEMON,
    ),
    "RETIRES": Record(
        36,
        "This worker runs no task but the one that runs now, and hands all others back until it is ended.",
        to_daemon=WORKER,
    ),
    "SPARE_RINGS": Record(
        37,
        "By the native core: no shared ring is free. Give back those that were not written to since the last time.",
        to_process=DAEMON,
    ),
    "DEVICE_LOST": Record(
        38,
        "An object of another node names memory of a device that is gone: nobody can read it, wherever it is.",
        "IN_ARENA",
        to_daemon=LOCAL,
    ),
    "REPLY": Record(
        64, "ReplyHeader, then for each return a PackedValue.", tail="reply", to_process=PEER, travels=True
    ),
    "HANDBACK": Record(65, "Cookies of tasks that were not started.", tail="u64[]", to_process=PEER),
    "BORROW_ADD": Record(
        66, "That process was sent a ref of yours.", "object id, borrower process", to_process=PEER, travels=True
    ),
    "BORROW_RELEASE": Record(
        67, "So many of the counts given to me are returned.", "object id, count u64", to_process=PEER
    ),
    "WANT": Record(68, "Send me the value when it is there.", "object id", to_process=PEER),
    "VALUE": Record(69, "The answer.", "object id", "value", to_process=PEER, travels=True),
    "CANCEL": Record(70, "`how`: 1 force, 2 recursive.", "cookie u64, how u32, zero u32", to_process=PEER),
    "STREAM_ITEM": Record(
        71, "One item of a generator.", "cookie u64, index u32, zero u32", "value", to_process=PEER, travels=True
    ),
    "STREAM_CREDIT": Record(
        72, "Items consumed so far; kNoMoreItems: stop.", "cookie u64, consumed u32, zero u32", to_process=PEER
    ),
    "ACQUAINT": Record(73, "Nothing: it opens a ring, so that one hears of the other's death.", to_process=PEER),
    "CANCEL_OBJECT": Record(
        74, "Cancel your task that makes it; `how` as of CANCEL.", "object id, how u32, zero u32", to_process=PEER
    ),
    "MOVED": Record(
        75,
        "Its owner is dead, that one owns it now and counts you in.",
        "object id, owner process",
        to_process=PEER,
        travels=True,
    ),
    "FORGET_FUNCTION": Record(
        76, "No task of mine will need it again, unless I send it anew.", "key u64", to_process=PEER
    ),
    "KEEP": Record(
        77,
        "1: what outlives all processes names it, so it stays and its row is kept; from a daemon 0: no more.",
        "object id, is_kept u32, zero u32",
        to_process=ANYONE,
    ),
    "DEPOSIT_THERE": Record(
        78,
        "A row that was sent to that node names it: send a copy of its own row after.",
        "object id, node u32, zero u32",
        to_process=PEER,
    ),
}

CONSTANTS = {
    "PATIENT": (1 << 31, "uint32_t", "In LEASE_REQUEST."),
    "STORE_NODE": ((1 << 20) - 2, "uint32_t", "Stands for the control store among the nodes of a DEPOSIT or WITHDRAW."),
    "ADOPTED_SHAPES": (
        1 << 31,
        "uint32_t",
        "A process numbers its own shapes from 1 on; those that it gets with what it adopts are numbered by the daemon,"
        " from here on.",
    ),
    "WAITS_LONG": (0xFFFE, "uint16_t", "The kind of the event in a process that a wait has lasted for a second."),
    "LINEAGE_FORGOTTEN": (
        0xFFFD,
        "uint16_t",
        "The kind of the event that tells, in words, that lineage had to be forgotten.",
    ),
    "WANTS_MEMORY": (
        0xFFFC,
        "uint16_t",
        "The kind of the event that tells of a task whose worker was stopped for memory: the body of that name. It"
        " waits for retry_in().",
    ),
}

ENUMS = {
    "DeathCause": (
        "Why a process ended, as far as somebody acts on it.",
        "uint32_t",
        {"ended": 0, "stopped_for_memory": 1},
    ),
    "ErrorCode": (
        'Of an error value of the engine\'s own: b"S", the code, the text.',
        "uint8_t",
        {
            "worker_crashed": 1,
            "actor_died": 2,
            "owner_died": 3,
            "object_lost": 4,
            "cancelled": 5,
            "node_lost": 6,
            "actor_unavailable": 7,
            "out_of_memory": 8,
            "get_timed_out": 9,
            "unschedulable": 10,
            "env_failed": 20,
            "actor_env_failed": 21,
            "group_removed": 22,
            "actor_group_removed": 23,
            "reconstruction_failed": 24,
            "stopped_for_memory": 25,
            "bad_record": 26,
            "nested_too_deeply": 27,
            "actor_unschedulable": 28,
        },
    ),
}
