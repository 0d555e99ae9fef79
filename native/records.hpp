/// The records: their kinds, who may say them, what they begin with. Made by schema/generate.py of
/// schema/records.py, which says it all in words: change that, and run `make records`.
#pragma once

#include "arena.hpp"
#include "ids.hpp"

namespace weft {

enum class Kind : uint16_t {
    CONTROL = 1,
    BIND_JOB = 2,
    LEASE_REQUEST = 3,
    LEASE_GRANT = 4,
    LEASE_RETURN = 5,
    LEASE_REVOKE = 6,
    SHAPE_REFUSED = 7,
    PEER_DIED = 8,
    PEER_DETACHED = 9,
    BLOCKED = 10,
    UNBLOCKED = 11,
    CREATE_ACTOR = 12,
    ACTOR_UP = 13,
    ACTOR_DOWN = 14,
    ACTOR_WATCH = 15,
    ACTOR_DROP = 16,
    ACTOR_CREATED = 17,
    FUNCTION = 18,
    TASK = 19,
    NEED_SPACE = 20,
    SPACE = 21,
    RESTORE = 22,
    RESTORED = 23,
    LENDS_OBJECTS = 24,
    PROMISE_KEPT = 25,
    FIND_ORPHANS = 26,
    ORPHANS = 27,
    ADOPT = 28,
    ADOPTED = 29,
    SETTLED = 30,
    ORPHAN_ASKED = 31,
    ORPHAN_ANSWERED = 32,
    DEPOSIT = 33,
    WITHDRAW = 34,
    NOT_NEAR = 35,
    RETIRES = 36,
    SPARE_RINGS = 37,
    DEVICE_LOST = 38,
    REPLY = 64,
    HANDBACK = 65,
    BORROW_ADD = 66,
    BORROW_RELEASE = 67,
    WANT = 68,
    VALUE = 69,
    CANCEL = 70,
    STREAM_ITEM = 71,
    STREAM_CREDIT = 72,
    ACQUAINT = 73,
    CANCEL_OBJECT = 74,
    MOVED = 75,
    FORGET_FUNCTION = 76,
    KEEP = 77,
    DEPOSIT_THERE = 78,
};
constexpr size_t kKinds = 128;

/// In LEASE_REQUEST.
constexpr uint32_t kPatient = 0x80000000;

/// Stands for the control store among the nodes of a DEPOSIT or WITHDRAW.
constexpr uint32_t kStoreNode = 0xffffe;

/// A process numbers its own shapes from 1 on; those that it gets with what it adopts are numbered by the
/// daemon, from here on.
constexpr uint32_t kAdoptedShapes = 0x80000000;

/// The kind of the event in a process that a wait has lasted for a second.
constexpr uint16_t kWaitsLong = 0xfffe;

/// The kind of the event that tells, in words, that lineage had to be forgotten.
constexpr uint16_t kLineageForgotten = 0xfffd;

/// The kind of the event that tells of a task whose worker was stopped for memory: the body of that name. It
/// waits for retry_in().
constexpr uint16_t kWantsMemory = 0xfffc;

/// Why a process ended, as far as somebody acts on it.
enum class DeathCause : uint32_t {
    ended = 0,
    stopped_for_memory = 1,
};

/// Of an error value of the engine's own: b"S", the code, the text.
enum class ErrorCode : uint8_t {
    worker_crashed = 1,
    actor_died = 2,
    owner_died = 3,
    object_lost = 4,
    cancelled = 5,
    node_lost = 6,
    actor_unavailable = 7,
    out_of_memory = 8,
    get_timed_out = 9,
    unschedulable = 10,
    env_failed = 20,
    actor_env_failed = 21,
    group_removed = 22,
    actor_group_removed = 23,
    reconstruction_failed = 24,
    stopped_for_memory = 25,
    bad_record = 26,
    nested_too_deeply = 27,
    actor_unschedulable = 28,
};

/// Who may say a kind to a driver or worker. One bit for the daemon, one for all others.
enum class Sayer : uint8_t { nobody = 0, daemon = 1, peer = 2, anyone = 3 };

constexpr Sayer sayer(Kind kind) {
    switch (kind) {
        case Kind::CONTROL:
        case Kind::BIND_JOB:
        case Kind::LEASE_GRANT:
        case Kind::LEASE_REVOKE:
        case Kind::SHAPE_REFUSED:
        case Kind::PEER_DIED:
        case Kind::ACTOR_UP:
        case Kind::ACTOR_DOWN:
        case Kind::SPACE:
        case Kind::RESTORED:
        case Kind::PROMISE_KEPT:
        case Kind::FIND_ORPHANS:
        case Kind::ADOPT:
        case Kind::SETTLED:
        case Kind::ORPHAN_ANSWERED:
        case Kind::NOT_NEAR:
        case Kind::SPARE_RINGS:
            return Sayer::daemon;
        case Kind::REPLY:
        case Kind::HANDBACK:
        case Kind::BORROW_ADD:
        case Kind::BORROW_RELEASE:
        case Kind::WANT:
        case Kind::VALUE:
        case Kind::CANCEL:
        case Kind::STREAM_ITEM:
        case Kind::STREAM_CREDIT:
        case Kind::ACQUAINT:
        case Kind::CANCEL_OBJECT:
        case Kind::MOVED:
        case Kind::FORGET_FUNCTION:
        case Kind::DEPOSIT_THERE:
            return Sayer::peer;
        case Kind::FUNCTION:
        case Kind::TASK:
        case Kind::KEEP:
            return Sayer::anyone;
        default:
            return Sayer::nobody;
    }
}

/// What records begin with.
namespace records {

/// Of a row of a ledger: what a daemon must know of it besides what follows.
struct RowHead {
    Id id;
    uint64_t function = 0;
    uint32_t shape = 0;
    uint32_t needs = 0;
    ArenaRef arena;
    uint32_t in_arena = 0;
    uint32_t zero = 0;
};
static_assert(sizeof(RowHead) == 56);

struct ActorState {
    Id actor;
    uint32_t state = 0;
    uint32_t zero = 0;
};
static_assert(sizeof(ActorState) == 24);

/// Bytes that are wanted or were freed, and the request's number.
struct Space {
    uint64_t bytes = 0;
    uint64_t number = 0;
};
static_assert(sizeof(Space) == 16);

/// An object of the arena.
struct InArena {
    uint32_t entry = 0;
    uint32_t generation = 0;
};
static_assert(sizeof(InArena) == 8);

/// An object, and whose it is.
struct Named {
    Id id;
    ProcessId owner;
};
static_assert(sizeof(Named) == 24);

/// What its worker held at most.
struct WantsMemory {
    uint64_t cookie = 0;
    uint32_t shape = 0;
    uint32_t reserved = 0;
    uint64_t peak_bytes = 0;
};
static_assert(sizeof(WantsMemory) == 24);

/// Of what an heir is given.
struct Size {
    uint32_t bytes = 0;
    uint32_t shape = 0;
};
static_assert(sizeof(Size) == 8);

struct LeaseRequest {
    static constexpr Kind kind = Kind::LEASE_REQUEST;
    uint32_t shape = 0;
    uint32_t wanted = 0;
};
static_assert(sizeof(LeaseRequest) == 8);

struct LeaseGrant {
    static constexpr Kind kind = Kind::LEASE_GRANT;
    uint64_t lease = 0;
    uint32_t shape = 0;
    ProcessId worker;
    uint32_t pid = 0;
};
static_assert(sizeof(LeaseGrant) == 24);

struct ShapeRefused {
    static constexpr Kind kind = Kind::SHAPE_REFUSED;
    uint32_t shape = 0;
    uint32_t only_now = 0;
};
static_assert(sizeof(ShapeRefused) == 8);

struct PeerDied {
    static constexpr Kind kind = Kind::PEER_DIED;
    ProcessId dead;
    DeathCause cause = DeathCause::ended;
    uint32_t reserved = 0;
    uint64_t peak_bytes = 0;
};
static_assert(sizeof(PeerDied) == 24);

struct ActorUp {
    static constexpr Kind kind = Kind::ACTOR_UP;
    Id actor;
    ProcessId worker;
    uint32_t incarnation = 0;
    uint32_t zero = 0;
};
static_assert(sizeof(ActorUp) == 32);

struct ActorWatch {
    static constexpr Kind kind = Kind::ACTOR_WATCH;
    Id actor;
    ProcessId owner;
};
static_assert(sizeof(ActorWatch) == 24);

struct Restored {
    static constexpr Kind kind = Kind::RESTORED;
    uint32_t entry = 0;
    uint32_t generation = 0;
    uint32_t ok = 0;
    uint32_t zero = 0;
};
static_assert(sizeof(Restored) == 16);

struct FindOrphans {
    static constexpr Kind kind = Kind::FIND_ORPHANS;
    uint64_t number = 0;
    uint32_t round = 0;
    uint32_t dead = 0;
};
static_assert(sizeof(FindOrphans) == 16);

struct Orphans {
    static constexpr Kind kind = Kind::ORPHANS;
    uint64_t number = 0;
    uint32_t round = 0;
    uint32_t zero = 0;
};
static_assert(sizeof(Orphans) == 16);

struct Adopt {
    static constexpr Kind kind = Kind::ADOPT;
    uint64_t number = 0;
    uint32_t rows = 0;
    uint32_t functions = 0;
};
static_assert(sizeof(Adopt) == 16);

struct Settled {
    static constexpr Kind kind = Kind::SETTLED;
    uint32_t dead = 0;
    uint32_t has_moved = 0;
};
static_assert(sizeof(Settled) == 8);

struct OrphanAsked {
    static constexpr Kind kind = Kind::ORPHAN_ASKED;
    ProcessId dead;
    Id object;
};
static_assert(sizeof(OrphanAsked) == 24);

struct OrphanAnswered {
    static constexpr Kind kind = Kind::ORPHAN_ANSWERED;
    Id object;
    uint32_t is_found = 0;
    uint32_t zero = 0;
    ProcessId owner;
};
static_assert(sizeof(OrphanAnswered) == 32);

struct Deposit {
    static constexpr Kind kind = Kind::DEPOSIT;
    uint32_t nodes = 0;
    uint32_t zero = 0;
};
static_assert(sizeof(Deposit) == 8);

struct NotNear {
    static constexpr Kind kind = Kind::NOT_NEAR;
    uint32_t shape = 0;
    uint32_t node = 0;
    uint32_t for_good = 0;
};
static_assert(sizeof(NotNear) == 12);

struct BorrowAdd {
    static constexpr Kind kind = Kind::BORROW_ADD;
    Id object;
    ProcessId borrower;
};
static_assert(sizeof(BorrowAdd) == 24);

struct BorrowRelease {
    static constexpr Kind kind = Kind::BORROW_RELEASE;
    Id object;
    uint64_t count = 0;
};
static_assert(sizeof(BorrowRelease) == 24);

struct Cancel {
    static constexpr Kind kind = Kind::CANCEL;
    uint64_t cookie = 0;
    uint32_t how = 0;
    uint32_t zero = 0;
};
static_assert(sizeof(Cancel) == 16);

struct StreamItem {
    static constexpr Kind kind = Kind::STREAM_ITEM;
    uint64_t cookie = 0;
    uint32_t index = 0;
    uint32_t zero = 0;
};
static_assert(sizeof(StreamItem) == 16);

struct StreamCredit {
    static constexpr Kind kind = Kind::STREAM_CREDIT;
    uint64_t cookie = 0;
    uint32_t consumed = 0;
    uint32_t zero = 0;
};
static_assert(sizeof(StreamCredit) == 16);

struct CancelObject {
    static constexpr Kind kind = Kind::CANCEL_OBJECT;
    Id object;
    uint32_t how = 0;
    uint32_t zero = 0;
};
static_assert(sizeof(CancelObject) == 24);

struct Moved {
    static constexpr Kind kind = Kind::MOVED;
    Id object;
    ProcessId owner;
};
static_assert(sizeof(Moved) == 24);

struct Keep {
    static constexpr Kind kind = Kind::KEEP;
    Id object;
    uint32_t is_kept = 0;
    uint32_t zero = 0;
};
static_assert(sizeof(Keep) == 24);

struct DepositThere {
    static constexpr Kind kind = Kind::DEPOSIT_THERE;
    Id object;
    uint32_t node = 0;
    uint32_t zero = 0;
};
static_assert(sizeof(DepositThere) == 24);

}  // namespace records

/// Whether all that a record announces is there, so that its handler reads it without another look.
template <class Walk>
[[gnu::always_inline]] inline bool reads_whole(Kind kind, Walk& walk, size_t bytes) {
    switch (kind) {
        case Kind::HANDBACK:
            return bytes % sizeof(uint64_t) == 0;
        case Kind::ADOPT:
            return walk.adoption();
        case Kind::PEER_DIED:
            return walk.process() && walk.skip(16);
        case Kind::REPLY:
            return walk.reply();
        case Kind::NOT_NEAR:
            return walk.skip(12);
        case Kind::LEASE_GRANT:
            return walk.skip(12) && walk.process() && walk.skip(4);
        case Kind::SPACE:
        case Kind::RESTORED:
        case Kind::PROMISE_KEPT:
        case Kind::WANT:
        case Kind::CANCEL:
        case Kind::STREAM_CREDIT:
            return walk.skip(16);
        case Kind::BORROW_ADD:
        case Kind::MOVED:
            return walk.skip(16) && walk.process();
        case Kind::ACTOR_UP:
            return walk.skip(16) && walk.process() && walk.skip(8);
        case Kind::VALUE:
        case Kind::STREAM_ITEM:
            return walk.skip(16) && walk.value();
        case Kind::ACTOR_DOWN:
        case Kind::BORROW_RELEASE:
        case Kind::CANCEL_OBJECT:
        case Kind::KEEP:
        case Kind::DEPOSIT_THERE:
            return walk.skip(24);
        case Kind::ORPHAN_ANSWERED:
            return walk.skip(24) && walk.process();
        case Kind::LEASE_REVOKE:
        case Kind::SHAPE_REFUSED:
        case Kind::FUNCTION:
        case Kind::FORGET_FUNCTION:
            return walk.skip(8);
        case Kind::FIND_ORPHANS: {
            records::FindOrphans head;
            return walk.take(head) && walk.processes(head.dead);
        }
        case Kind::SETTLED: {
            records::Settled head;
            return walk.take(head) && walk.processes(head.dead);
        }
        case Kind::TASK:
            return walk.task();
        default:  // its bytes are somebody else's: messages in MessagePack, or none at all
            return true;
    }
}

/// The same as far as names of processes and objects go, in records that travel between nodes.
template <class Walk>
[[gnu::always_inline]] inline bool reads_names(Kind kind, Walk& walk) {
    switch (kind) {
        case Kind::CREATE_ACTOR:
            return walk.creation();
        case Kind::REPLY:
            return walk.reply();
        case Kind::LEASE_GRANT:
            return walk.skip(12) && walk.process();
        case Kind::ACTOR_UP:
        case Kind::ACTOR_WATCH:
        case Kind::BORROW_ADD:
        case Kind::MOVED:
            return walk.skip(16) && walk.process();
        case Kind::VALUE:
        case Kind::STREAM_ITEM:
            return walk.skip(16) && walk.value();
        case Kind::TASK:
            return walk.task();
        default:
            return true;
    }
}

}  // namespace weft
