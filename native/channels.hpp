/// A process's rings to and from its peers: sending that never blocks, and receiving whole records.
#pragma once

#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "doorbell.hpp"
#include "ring.hpp"
#include "wire.hpp"

namespace weft {

/// Not thread-safe: the owner's lock guards it.
class Channels {
  public:
    Channels(Segment& segment, ProcessId self, int daemon_event_fd)
        : segment_(segment), self_(self), event_fd_(daemon_event_fd), peers_(kSlots) {}

    /// One record, whatever its size. Dropped when `to` is dead; false then.
    bool send(ProcessId to, Kind kind, const void* data, size_t bytes);

    /// Whether records were exchanged with that very process.
    bool knows(ProcessId id) const { return peers_[id.slot] && peers_[id.slot]->id == id; }
    /// Whether records to that slot wait for room in its ring; and write what there is room for.
    bool has_waiting(uint32_t slot) const { return peers_[slot] && !peers_[slot]->overflow.empty(); }
    void flush_waiting(uint32_t slot) {
        if (has_waiting(slot)) flush(*peers_[slot]);
    }
    /// Whether all that was sent is in the rings.
    bool is_flushed() const;
    /// Give up both rings with a dead process.
    void forget(ProcessId dead);
    /// Nobody else tells of a peer that was dead when it was to be reached first: it is told by this. The
    /// process's own doorbell rings: who reads the rings may be asleep.
    void found_dead(ProcessId dead) {
        if (std::find(found_dead_.begin(), found_dead_.end(), dead) == found_dead_.end())
            found_dead_.push_back(dead);
        any_found_dead_.store(true, std::memory_order_release);
        ring(self_.slot);
    }
    /// Peers that turned out dead when they were first reached. Can be asked without the lock.
    bool has_found_dead() const { return any_found_dead_.load(std::memory_order_acquire); }
    std::vector<ProcessId> take_found_dead() {
        any_found_dead_.store(false, std::memory_order_relaxed);
        return std::exchange(found_dead_, {});
    }

    /// Calls handle(from, kind, data, bytes) for each record that `slot` has published; how many.
    /// `handle` may send, and may forget `slot` itself.
    template <class Handle>
    size_t receive(uint32_t slot, Handle&& handle);

  private:
    struct Peer {
        ProcessId id;
        std::unique_ptr<RingWriter> out;
        std::unique_ptr<RingReader> in;
        struct Waiting {
            uint16_t kind, flags;
            std::string bytes;
        };
        std::deque<Waiting> overflow;  ///< what did not fit, in order
        std::string partial;           ///< a record of several parts, so far
    };
    Peer* peer(ProcessId id);
    bool open(Peer& peer);
    void write(Peer& peer, uint16_t kind, uint16_t flags, const void* data, size_t bytes);
    bool flush(Peer& peer);
    void ring(uint32_t slot) { ring_bell(segment_, self_.slot, slot, event_fd_); }

    Segment& segment_;
    ProcessId self_;
    int event_fd_;
    std::vector<std::unique_ptr<Peer>> peers_;
    std::vector<ProcessId> found_dead_;
    std::atomic<bool> any_found_dead_{false};
};

template <class Handle>
size_t Channels::receive(uint32_t slot, Handle&& handle) {
    const uint32_t block = segment_.ring_of(slot, self_.slot).load(std::memory_order_acquire);
    Peer* from = peers_[slot].get();
    if (from == nullptr) {
        if (block == 0) return 0;
        peers_[slot] = std::make_unique<Peer>();
        from = peers_[slot].get();
        from->id = {slot, segment_.slot(slot).generation.load(std::memory_order_acquire)};
    }
    size_t count = from->overflow.empty() || !flush(*from) ? 0 : 1;
    if (block == 0) return count;
    if (!from->in) from->in = std::make_unique<RingReader>(segment_.ring(block - 1));
    RingReader& in = *from->in;
    const ProcessId id = from->id;
    Record record{};
    uint32_t unreleased = 0;
    while (in.next(record)) {
        ++count;
        if (record.flags & kMore) {
            from->partial.append(record.data, record.bytes);
        } else if (!from->partial.empty()) {
            std::string whole = std::move(from->partial);
            from->partial.clear();
            whole.append(record.data, record.bytes);
            handle(id, Kind(record.kind), whole.data(), whole.size());
        } else {
            handle(id, Kind(record.kind), record.data, record.bytes);
        }
        if (peers_[slot].get() != from) return count;
        if ((unreleased += record.bytes) > kRingBytes / 8) {
            if (in.release()) ring(slot);
            unreleased = 0;
        }
    }
    if (in.release()) ring(slot);
    return count;
}

}  // namespace weft
