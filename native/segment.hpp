/// One node's shared memory: a memfd, mapped by every local process.
#pragma once

#include <memory>

#include "ids.hpp"
#include "layout.hpp"

namespace weft {

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
    /// Index + 1 of the ring block from one slot to another, 0 when there is none.
    Shared<uint32_t>& ring_of(uint32_t from, uint32_t to) const {
        return at<Shared<uint32_t>>(header().directory_at)[uint64_t(from) * kSlots + to];
    }
    /// 0 when free, else (from + 1) << 32 | (to + 1).
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

    bool is_alive(ProcessId p) const {
        const ProcessSlot& s = slot(p.slot);
        return s.generation.load(std::memory_order_acquire) == p.generation &&
               s.alive.load(std::memory_order_acquire) != 0;
    }

    /// The block of the ring from -> to, made if there is none; kRingBlocks when no block is free.
    uint32_t open_ring(uint32_t from, uint32_t to);
    void close_ring(uint32_t from, uint32_t to);

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

}  // namespace weft
