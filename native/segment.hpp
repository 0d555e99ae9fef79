/// One node's shared memory: a memfd, mapped by every local process.
#pragma once

#include <memory>

#include "ids.hpp"
#include "layout.hpp"

namespace weft {

/// The two ends of a ring in one word, never 0: both slots and, lest who lets go late frees what those have
/// who got the slots next, the low bits of both generations.
struct RingEnds {
    static constexpr uint32_t kSlotBits = 11, kGenerationBits = 21;
    static_assert(kSlots < 1 << kSlotBits && 2 * (kSlotBits + kGenerationBits) == 64);

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
    /// A new memfd with room for so many bytes of objects and, of each process, events. Throws
    /// std::system_error.
    static std::unique_ptr<Segment> create(uint64_t arena_bytes, uint32_t events = kEvents);
    /// Maps an existing one; the descriptor is duplicated. Throws std::system_error or std::runtime_error.
    static std::unique_ptr<Segment> attach(int fd);
    ~Segment();
    Segment(const Segment&) = delete;
    Segment& operator=(const Segment&) = delete;

    int fd() const { return fd_; }
    Header& header() const { return *reinterpret_cast<Header*>(base_); }
    ProcessSlot& slot(uint32_t i) const { return at<ProcessSlot>(header().slots_at)[i]; }
    Doorbell& bell(uint32_t i) const { return slot(i).bell; }
    /// Where a consumer finds its rings: index + 1 of the block from one slot to another, 0 when there is
    /// none. Stored (release) by the producer once the ring is usable.
    Shared<uint32_t>& ring_of(uint32_t from, uint32_t to) const {
        return at<Shared<uint32_t>>(header().directory_at)[uint64_t(from) * kSlots + to];
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
    ObjectEntry& object(uint32_t i) const { return at<ObjectEntry>(header().objects_at)[i]; }
    char* event_ring(uint32_t slot) const {
        return base_ + header().events_at + slot * header().event_stride;
    }
    char* granule_data(uint32_t i) const { return base_ + header().arena_at + i * kGranuleBytes; }

    /// `alive` first: were it read last, it could be that of the slot's next process.
    bool is_alive(ProcessId p) const {
        const ProcessSlot& s = slot(p.slot);
        return s.alive.load(std::memory_order_acquire) != 0 &&
               s.generation.load(std::memory_order_acquire) == p.generation;
    }

    /// The block of the ring from -> to, made if there is none; kRingBlocks when no block is free, kNoRing
    /// when `to` is dead.
    uint32_t open_ring(ProcessId from, ProcessId to);
    void close_ring(ProcessId from, ProcessId to);
    /// Gives a block back, if it has these ends still: who opens a ring to a dead process, or closes one with
    /// it, and the daemon that buries that may both be at it.
    void free_block(uint32_t block, uint64_t ends) { block_owner(block).compare_exchange_strong(ends, 0); }
    /// Calls visit(block, ends) for each block that the slot is an end of, also if its ring is not open yet.
    template <class Visit>
    void blocks_of(uint32_t slot, Visit&& visit) const;

  private:
    Segment(int fd, char* base, uint64_t bytes) : fd_(fd), base_(base), bytes_(bytes) {}
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
    for (uint32_t block = 0; block < kRingBlocks; ++block) {
        const uint64_t word = block_owner(block).load();
        if (word == 0) continue;
        const RingEnds ends(word);
        if (ends.from == slot || ends.to == slot) visit(block, word);
    }
}

}  // namespace weft
