/// What lies where in the shared segment. Everything is addressed by offset; nothing here has a pointer, a
/// virtual function or a process-local lock. A process may die between any two instructions.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace weft {

constexpr uint32_t kSlots = 1024;
constexpr uint32_t kReadyWords = kSlots / 64;
constexpr uint64_t kGranuleBytes = 64 << 10;
constexpr uint32_t kRingBytes = 256 << 10;
constexpr uint32_t kRingBlocks = 8192;
/// In place of a block: whom the ring was for is dead.
constexpr uint32_t kNoRing = kRingBlocks + 1;
/// Two of them, each with its header, fill a ring: so one always fits into an empty ring, wherever its tail
/// is.
constexpr uint32_t kMaxRecord = kRingBytes / 2 - 8;
constexpr uint32_t kMaxObjects = 1u << 20;
constexpr uint32_t kFewObjects = 1u << 14, kManyObjects = 1u << 17;
constexpr uint64_t kMagic = 0x0231746665770aULL;
constexpr uint32_t kDaemonSlot = 0;
/// Events of one process that are kept, unless the segment is made with another number.
constexpr uint32_t kEvents = 8192;

template <class T>
using Shared = std::atomic<T>;
static_assert(Shared<uint64_t>::is_always_lock_free && Shared<uint32_t>::is_always_lock_free);

/// Who, if anyone, must be woken when a record arrives.
enum class Bell : uint32_t {
    awake = 0,              ///< somebody looks at the ready bits soon by itself
    waiter_sleeps = 1,      ///< a thread that waits sleeps on `waiter_word`
    background_sleeps = 2,  ///< the background thread sleeps on `background_word`
    eventfd_sleeps = 3,     ///< the node daemon sleeps in its selector
};

/// One process's doorbell. Producers set bits and read `state`; the owner clears bits and writes `state`.
struct alignas(64) Doorbell {
    /// Bit b of word w: slot 64w+b has published something. Set by that producer after its ring's tail
    /// (Ring::publish), cleared by the owner before it reads the tails (Doorbell scan).
    Shared<uint64_t> ready[kReadyWords];
    /// A Bell. Stored by the owner before it re-reads `ready`; read by producers after they set `ready`.
    alignas(64) Shared<uint32_t> state;
    Shared<uint32_t> waiter_word;
    Shared<uint32_t> background_word;
    /// 1 while the owner spins; partner: Header::spinners.
    Shared<uint32_t> spinning;
};

struct alignas(64) ProcessSlot {
    /// Stored by the daemon when it reserves the slot; read by everyone.
    Shared<uint32_t> generation;
    /// 1 from reservation until the daemon saw the death; partner: PEER_DIED handling.
    Shared<uint32_t> alive;
    /// The first page of its ledger, 0 for none; stored by the process, read by the daemon after its death.
    Shared<uint64_t> ledger;
    /// Number + 1 of the node whose process it stands for; 0 for one of this node. Stored by the daemon.
    Shared<uint32_t> node;
    Doorbell bell;
};

/// A single-producer single-consumer byte ring, followed by kRingBytes of data.
struct alignas(64) RingHeader {
    /// Stored (release) by the producer once a record is whole; read (acquire) by the consumer.
    Shared<uint32_t> tail;
    /// Stored (release) by the consumer; read (acquire) by the producer for room.
    alignas(64) Shared<uint32_t> head;
    /// 1 when the producer has records that did not fit; the consumer clears it and rings back.
    alignas(64) Shared<uint32_t> wants_room;
};
constexpr uint64_t kRingStride = 4096 + kRingBytes;
static_assert(sizeof(RingHeader) <= 4096);

enum class Phase : uint32_t {
    free = 0,
    building = 1,    ///< being written by `writer`
    sealed = 2,      ///< readable in the arena
    spilling = 3,    ///< the daemon is writing it to disk
    spilled = 4,     ///< only on disk
    restoring = 5,   ///< the daemon is reading it back
    reclaiming = 6,  ///< its granules are going back
};
/// Above the phase while it is building or reclaiming: slot + 1 of who does it. In one word with the phase,
/// so that a process that dies right after its compare-and-swap is known.
constexpr uint32_t kHolderShift = 16;
/// Flag beside the phase: the owner has no use for it; reclaimed when the last pin goes.
constexpr uint32_t kDeleted = 0x100;

constexpr uint64_t kFarBytes = 1ULL << 63;

/// One object in the arena.
struct alignas(64) ObjectEntry {
    /// A Phase, its holder and kDeleted. Partner of `pins`: a reader sets its pin, then reads `state`; a
    /// deleter or spiller writes `state`, then reads `pins`. Both sequentially consistent.
    Shared<uint32_t> state;
    /// Grows each time the entry is freed; a stale reference is told by it.
    Shared<uint32_t> generation;
    Shared<uint64_t> owner;     ///< ProcessId key of who may delete it
    Shared<uint64_t> writer;    ///< ProcessId key of who wrote it
    Shared<uint32_t> accepted;  ///< 1 once the owner knows of it; else it dies with its writer
    Shared<uint32_t> first_granule;
    Shared<uint32_t> granules;  ///< 0 while it is spilled
    /// 1 while it is an object of another node whose bytes have not come here; stored by the daemon.
    Shared<uint32_t> is_elsewhere;
    uint64_t bytes;
    /// Where it was spilled to; of an import whose bytes are not here, kFarBytes and the number of the node.
    uint64_t file_offset;
    alignas(64) Shared<uint64_t> pins[kReadyWords];
};
static_assert(sizeof(ObjectEntry) == 192);

struct alignas(64) Header {
    uint64_t magic;
    uint64_t segment_bytes;
    uint64_t arena_bytes;
    uint32_t granules;
    uint32_t objects;
    uint64_t slots_at, directory_at, blocks_at, rings_at, granules_at, objects_at, events_at, arena_at;
    uint32_t cores;
    uint32_t events;  ///< that a process keeps; 0: nothing is recorded
    uint64_t event_stride;
    /// Words of the ready bitmap in use: grows with the slots.
    alignas(64) Shared<uint32_t> ready_words;
    /// Processes that spin now; bounded by the cores.
    alignas(64) Shared<uint32_t> spinners;
    /// Where the last search for free granules ended, so that the next begins there.
    alignas(64) Shared<uint32_t> granule_hint;
    Shared<uint32_t> object_hint;
};

}  // namespace weft
