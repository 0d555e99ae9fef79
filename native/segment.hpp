/// One node's shared memory: a memfd, mapped by every local process.
#pragma once

#include <memory>

#include "ids.hpp"
#include "layout.hpp"

namespace weft {

/// The two ends of a ring in one word, never 0: both slots and, lest who lets go late frees what those have
/// who got the slots next, the low bits of both generations.
struct RingEnds {
    static constexpr uint32_t kSlotBits = 15, kGenerationBits = 17;
    static_assert(kMostSlots < 1 << kSlotBits && 2 * (kSlotBits + kGenerationBits) == 64);

    static uint64_t pack(ProcessId from, ProcessId to) { return half(from) << 32 | half(to); }
    explicit RingEnds(uint64_t word) : from(slot(word >> 32)), to(slot(word)) {}
    uint32_t other(uint32_t slot) const { return from == slot ? to : from; }

    uint32_t from, to;  ///< slots

  private:
    static uint64_t half(ProcessId p) { return uint32_t(p.generation << kSlotBits) | (p.slot + 1); }
    static uint32_t slot(uint64_t half) { return uint32_t(half & ((1 << kSlotBits) - 1)) - 1; }
};

class Segment {
  public:
    /// A new memfd with room for so many bytes of objects, processes and, of each process, events. Throws
    /// std::system_error.
    static std::unique_ptr<Segment> create(uint64_t arena_bytes, uint32_t events = kEvents,
                                           uint32_t slots = kFewSlots);
    /// Maps an existing one; the descriptor is duplicated. Throws std::system_error or std::runtime_error.
    static std::unique_ptr<Segment> attach(int fd);
    ~Segment();
    Segment(const Segment&) = delete;
    Segment& operator=(const Segment&) = delete;

    /// In a fork's child: what it writes from now on no other process sees, and it goes on reading what those
    /// write who share the segment. Safe in a child of several threads.
    void become_private();
    /// These bytes of it, from a page's beginning on, mapped once more: private to this process, which may
    /// write, in the place of the mapping `at` if there is one; or shared. Null where there is no memory.
    char* map_private(const char* data, uint64_t bytes, char* at = nullptr) const;
    char* map_shared(const char* data, uint64_t bytes) const;
    /// These granules, as this process sees them, are a copy from now on: the node may give them to others.
    void keep_copy(uint32_t first, uint32_t count);

    int fd() const { return fd_; }
    Header& header() const { return *reinterpret_cast<Header*>(base_); }
    ProcessSlot& slot(uint32_t i) const {
        return *at<ProcessSlot>(header().slots_at + i * header().slot_stride);
    }
    FarSlot& far(uint32_t slot) const { return at<FarSlot>(header().far_at)[slot - kFarSlots]; }
    /// Number + 1 of the node of a process of another one; 0 for this node's.
    uint32_t node_of(uint32_t slot) const {
        return is_far(slot) ? far(slot).node.load(std::memory_order_acquire) : 0;
    }
    /// Words that have a bit for each slot that was ever used.
    uint32_t ready_words() const { return header().ready_words.load(std::memory_order_relaxed); }
    Doorbell& bell(uint32_t i) const { return slot(i).bell; }
    /// Where a consumer finds its rings: index + 1 of the block from one slot to another, 0 when there is
    /// none, kParted when there was one. Stored (release) by the producer once the ring is usable.
    Shared<uint32_t>& ring_of(uint32_t from, uint32_t to) const {
        return at<Shared<uint32_t>>(header().directory_at)[uint64_t(from) * header().slots + to];
    }
    /// Index + 1 of the block of that ring; 0 when there is none now.
    uint32_t open_block(uint32_t from, uint32_t to) const {
        const uint32_t block = ring_of(from, to).load(std::memory_order_acquire);
        return block == kParted ? 0 : block;
    }
    /// 0 when free, else RingEnds. A producer that holds a block keeps its consumer's slot from being used
    /// again: so it takes the block before the directory names it, and gives it back after.
    Shared<uint64_t>& block_owner(uint32_t block) const {
        return at<Shared<uint64_t>>(header().blocks_at)[block];
    }
    RingHeader* ring(uint32_t block) const {
        return reinterpret_cast<RingHeader*>(base_ + header().rings_at + block * kRingStride);
    }
    /// 0 when free, else slot + 1 of who claimed it.
    Shared<uint32_t>& granule(uint32_t i) const { return at<Shared<uint32_t>>(header().granules_at)[i]; }
    ObjectEntry& object(uint32_t i) const {
        return *at<ObjectEntry>(header().objects_at + i * header().entry_stride);
    }
    char* event_ring(uint32_t slot) const {
        return base_ + header().events_at + slot * header().event_stride;
    }
    char* granule_data(uint32_t i) const { return base_ + header().arena_at + i * kGranuleBytes; }

    /// `alive` first: were it read last, it could be that of the slot's next process.
    bool is_alive(ProcessId p) const {
        return is_far(p.slot) ? lives(far(p.slot), p) : lives(slot(p.slot), p);
    }
    /// Whether a slot number that came from elsewhere can be one of this node's.
    bool is_slot(uint32_t s) const { return is_far(s) ? s - kFarSlots < kMostFar : s < header().slots; }

    /// The block of the ring from -> to, made if there is none; kNoBlock when no block is free, kNoRing
    /// when `to` is dead. With the daemon or the relay at one end there always is one.
    uint32_t open_ring(ProcessId from, ProcessId to);
    void close_ring(ProcessId from, ProcessId to);
    /// The consumer has read the last record of a ring whose producer needs it no more: its block and its
    /// memory go back. The two remain acquainted, for who tells of deaths: the row of each names the other.
    void part(ProcessId from, ProcessId to);
    /// Gives a block back, if it has these ends still: who opens a ring to a dead process, or closes one with
    /// it, and the daemon that buries that may both be at it.
    void free_block(uint32_t block, uint64_t ends) { block_owner(block).compare_exchange_strong(ends, 0); }
    /// Calls visit(block, ends) for each block that the slot is an end of, also if its ring is not open yet.
    template <class Visit>
    void blocks_of(uint32_t slot, Visit&& visit) const;

  private:
    Segment(int fd, char* base, uint64_t bytes) : fd_(fd), base_(base), bytes_(bytes) {}
    template <class Slot>
    static bool lives(const Slot& s, ProcessId p) {
        return s.alive.load(std::memory_order_acquire) != 0 &&
               s.generation.load(std::memory_order_acquire) == p.generation;
    }
    uint32_t take_block(ProcessId from, ProcessId to, uint64_t ends);
    template <class T>
    T* at(uint64_t offset) const {
        return reinterpret_cast<T*>(base_ + offset);
    }

    int fd_;
    char* base_;
    uint64_t bytes_;
};

template <class Visit>
void Segment::blocks_of(uint32_t slot, Visit&& visit) const {
    for (uint32_t block = 0; block < header().blocks; ++block) {
        const uint64_t word = block_owner(block).load();
        if (word == 0) continue;
        const RingEnds ends(word);
        if (ends.from == slot || ends.to == slot) visit(block, word);
    }
}

}  // namespace weft
