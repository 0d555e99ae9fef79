/// What lies where in the shared segment. Everything is addressed by offset; nothing here has a pointer, a
/// virtual function or a process-local lock. A process may die between any two instructions.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace weft {

/// Process slots of a segment: as many as it is made with, at most so many (names have so many bits for one).
constexpr uint32_t kFewSlots = 1024, kMostSlots = 1u << 14;
/// Processes of other nodes are named as slots from here on. They have no doorbell, rings or pins here.
constexpr uint32_t kFarSlots = 1u << 20, kMostFar = 1u << 20;
inline bool is_far(uint32_t slot) {
    return slot >= kFarSlots;
}
constexpr uint64_t kGranuleBytes = 64 << 10;
constexpr uint32_t kRingBytes = 256 << 10;
/// Ring blocks that any two processes may have, beside those that each has for the daemon and the relay.
constexpr uint32_t kSharedBlocks = 8192;
constexpr uint32_t kOwnBlocks = 4;
/// In place of a block: none is free; or whom the ring was for is dead.
constexpr uint32_t kNoBlock = 0xfffffffe, kNoRing = 0xffffffff;
/// In the directory, in place of a block + 1: the two have talked, and have no ring now.
constexpr uint32_t kParted = 0xffffffff;
/// Two of them, each with its header, fill a ring: so one always fits into an empty ring, wherever its tail
/// is.
constexpr uint32_t kMaxRecord = kRingBytes / 2 - 8;
constexpr uint32_t kMinObjects = 1u << 20, kMaxObjects = 1u << 24;
constexpr uint64_t kMagic = 0x0331746665770aULL;
/// The node daemon has two slots: what it is told itself, and what it passes on to others (relay.hpp).
constexpr uint32_t kDaemonSlot = 0, kRelaySlot = 1;
/// Events of one process that are kept, unless the segment is made with another number.
constexpr uint32_t kEvents = 8192;

#ifndef WEFT_SHARED
#define WEFT_SHARED std::atomic  // tests/interleaving.hpp puts its own in the place
#endif
template <class T>
using Shared = WEFT_SHARED<T>;
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
    /// A Bell. Stored by the owner before it re-reads `ready`; read by producers after they set `ready`.
    Shared<uint32_t> state;
    Shared<uint32_t> waiter_word;
    Shared<uint32_t> background_word;
    /// 1 while the owner spins; partner: Header::spinners.
    Shared<uint32_t> spinning;
    /// Bit b of word w: slot 64w+b has published something. Set by that producer after its ring's tail
    /// (Ring::publish), cleared by the owner before it reads the tails (Doorbell scan). The words follow.
    Shared<uint64_t>& ready(uint32_t w) { return reinterpret_cast<Shared<uint64_t>*>(this + 1)[w]; }
    const Shared<uint64_t>& ready(uint32_t w) const {
        return reinterpret_cast<const Shared<uint64_t>*>(this + 1)[w];
    }
};
static_assert(sizeof(Doorbell) == 64);

struct alignas(64) ProcessSlot {
    /// Stored by the daemon when it reserves the slot; read by everyone.
    Shared<uint32_t> generation;
    /// 1 from reservation until the daemon saw the death; partner: PEER_DIED handling.
    Shared<uint32_t> alive;
    /// The first page of its ledger, 0 for none; stored by the process, read by the daemon after its death.
    Shared<uint64_t> ledger;
    Doorbell bell;  ///< the last: its ready words follow
};

/// A process of another node. Stored by the daemon, read by everyone.
struct FarSlot {
    Shared<uint32_t> generation;
    Shared<uint32_t> alive;
    Shared<uint32_t> node;  ///< its number + 1
    uint32_t reserved;
};
static_assert(sizeof(FarSlot) == 16);

/// A single-producer single-consumer byte ring, followed by kRingBytes of data.
struct alignas(64) RingHeader {
    /// Stored (release) by the producer once a record is whole; read (acquire) by the consumer.
    Shared<uint32_t> tail;
    /// Stored (release) by the consumer; read (acquire) by the producer for room.
    alignas(64) Shared<uint32_t> head;
    /// 1 when the producer has records that did not fit; the consumer clears it and rings back.
    alignas(64) Shared<uint32_t> wants_room;
};
constexpr uint64_t kRingPage = 4096;
constexpr uint64_t kRingStride = kRingPage + kRingBytes;
static_assert(sizeof(RingHeader) <= kRingPage);

enum class Phase : uint8_t {
    free = 0,
    building = 1,    ///< being written by its holder
    sealed = 2,      ///< readable in the arena
    spilling = 3,    ///< the daemon is writing it to disk; who pins it makes it sealed again
    spilled = 4,     ///< only on disk, or on another node
    moving = 5,      ///< the daemon reads it back, or has written all of it: readers wait
    reclaiming = 6,  ///< its holder gives its granules back
};

/// All that an entry is, in one word that changes by compare-and-swap alone: whoever has a ref to what was
/// there before fails in its change, and a process that dies right after one is known as the holder.
struct EntryWord {
    static constexpr uint64_t kDeleted = 0x100;    ///< its owner has no use for it; the last pin reclaims it
    static constexpr uint64_t kAccepted = 0x200;   ///< its owner knows of it; else it dies with its writer
    static constexpr uint64_t kResident = 0x400;   ///< its granules are its own: from sealed until spilled
    static constexpr uint64_t kElsewhere = 0x800;  ///< of another node, and its bytes have not come here
    static constexpr uint32_t kHolderShift = 16, kGenerationShift = 32;
    static constexpr uint64_t kHolder = 0xffffULL << kHolderShift;

    uint64_t bits = 0;

    Phase phase() const { return Phase(bits & 0xff); }
    bool has(uint64_t flag) const { return (bits & flag) != 0; }
    /// Slot + 1 of who builds or reclaims it; 0 in every other phase.
    uint32_t holder() const { return uint32_t((bits & kHolder) >> kHolderShift); }
    /// Grows each time the entry is freed; a stale ref is told by it.
    uint32_t generation() const { return uint32_t(bits >> kGenerationShift); }
    bool is(uint32_t generation_, Phase phase_) const {
        return generation() == generation_ && phase() == phase_;
    }
    /// Written to its end, and not being reclaimed.
    bool is_whole(uint32_t generation_) const {
        return generation() == generation_ && phase() != Phase::free && holder() == 0;
    }
    /// Nobody but its last reader keeps it.
    bool is_reclaimable() const {
        return has(kDeleted) && (phase() == Phase::sealed || phase() == Phase::spilled);
    }

    EntryWord with(uint64_t flags) const { return {bits | flags}; }
    EntryWord without(uint64_t flags) const { return {bits & ~flags}; }
    /// Held by nobody.
    EntryWord in(Phase next) const { return {(bits & ~(kHolder | 0xff)) | uint64_t(next)}; }
    EntryWord held(Phase next, uint32_t slot) const {
        return {in(next).bits | uint64_t(slot + 1) << kHolderShift};
    }
    EntryWord retired() const { return {uint64_t(generation() + 1) << kGenerationShift}; }
};
static_assert(kMostSlots < EntryWord::kHolder >> EntryWord::kHolderShift && uint64_t(Phase::free) == 0);

/// One object in the arena. What is beside the word is stored by who builds it, or by the daemon while it
/// restores it, and is good for who reads the word before and finds its generation unchanged after.
struct alignas(64) ObjectEntry {
    /// An EntryWord. Partner of the pins: a reader sets its pin, then reads the word; a deleter or spiller
    /// writes the word, then reads the pins. Both sequentially consistent.
    Shared<uint64_t> word;
    /// An OwnerWord: who may delete it.
    Shared<uint64_t> owner;
    Shared<uint64_t> writer;  ///< ProcessId key of who wrote it
    Shared<uint64_t> bytes;
    Shared<uint32_t> first_granule;
    Shared<uint32_t> granules;
    /// u32 generation of the entry, u32 number + 1 of the node that has the bytes of an import. Stored by the
    /// daemon; of no meaning for another generation.
    Shared<uint64_t> node;
};  // and a bit for each slot, see pins_of
static_assert(sizeof(ObjectEntry) == 64);

struct alignas(64) Header {
    uint64_t magic;
    uint64_t segment_bytes;
    uint64_t arena_bytes;
    uint32_t granules;
    uint32_t objects;
    uint32_t slots;   ///< of processes; a multiple of 64
    uint32_t blocks;  ///< of rings: kOwnBlocks for each slot, then the shared ones
    uint64_t slot_stride, entry_stride;
    uint64_t slots_at, far_at, directory_at, blocks_at, rings_at, granules_at, objects_at, events_at,
        arena_at;
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
    /// Entries that were ever free to take: the rest is untouched, and looked at by nobody. Grows before the
    /// first of them is taken (Arena::take_entry), so that whoever looks for what a dead process held finds
    /// it.
    Shared<uint32_t> objects_used;
};

}  // namespace weft
