/// A process's rings to and from its peers: sending that never blocks, and receiving whole records.
///
/// A peer of this node has a ring of its own, while one is free. The others are reached through the relay
/// (relay.hpp), in one ring for all of them, each record with the name of whom it is for: processes of other
/// nodes, and those of this node for which no ring was free.
///
/// CH-1  Records to one peer arrive in the order in which they were sent, also when its way changes: a ring
///       follows the relay only when the peer has read all that went through the relay, and a new ring an old
///       one only when the peer has read that to its end.
/// CH-2  Nobody waits for room: what finds none is kept here, in order. Of what goes through the relay no
///       more than the ring holds is on its way, so that who has enough can be served less.
/// CH-3  Whoever has exchanged a record is told of the other's death: their rings, or the directory, or the
///       relay knows that they have.
/// CH-4  What goes through the relay follows all that the daemon was told before: of what was lent it hears
///       before the ref is on its way.
#pragma once

#include <algorithm>
#include <deque>
#include <exception>
#include <memory>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "doorbell.hpp"
#include "ring.hpp"
#include "wire.hpp"

namespace weft {

/// What channels say to each other, in records with the flag kChannel.
enum class Word : uint16_t {
    close_ring = 1,     ///< the last record of a ring
    ring_follows = 2,   ///< through the relay: a ring is there, and will be used once you say so
    ring_ready = 3,     ///< the answer
    keep_the_rest = 4,  ///< from the relay, u32 reason: keep what you have for that peer
    send_the_rest = 5,  ///< and send it
};
/// Why records to a peer are kept. One reason may go while another stays.
constexpr uint8_t kReceiverIsFull = 1, kLinkIsFull = 2, kRingFollows = 4;
/// In the kind of a record of which only the beginning is there, because there was no memory for the rest.
constexpr uint16_t kCut = 0x8000;

/// Not thread-safe: the owner's lock guards it.
class Channels {
  public:
    Channels(Segment& segment, ProcessId self, int daemon_event_fd)
        : segment_(segment), self_(self), event_fd_(daemon_event_fd), peers_(segment.header().slots) {}

    /// One record, whatever its size. Dropped when `to` is dead; false then.
    bool send(ProcessId to, Kind kind, const void* data, size_t bytes);
    /// Relay: the same, in the name of `as`, with such flags.
    bool send_as(ProcessId to, ProcessId as, uint16_t kind, uint16_t flags, const void* data, size_t bytes);

    /// Whether records were exchanged with that very process.
    bool knows(ProcessId id) const {
        const Peer* peer = find(id.slot);
        return peer != nullptr && peer->id == id;
    }
    /// Whether records to that slot wait for room in its ring; and write what there is room for.
    bool has_waiting(uint32_t slot) const { return peers_[slot] && !peers_[slot]->overflow.empty(); }
    void flush_waiting(uint32_t slot) {
        if (has_waiting(slot)) flush(*peers_[slot]);
    }
    /// Whether all that was sent is in the rings.
    bool is_flushed() const;
    /// Give up both rings with a dead process.
    void forget(ProcessId dead);
    /// Rings are scarce: those to peers that were not written to since the last call go back.
    void return_idle();
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

    /// Calls handle(from, kind, data, bytes) for each record that `slot` has published; how many. Of the
    /// relay's slot `from` is who sent it through there. `handle` may send, and may forget `slot` itself.
    /// The relay's own takes (from, to, kind, flags, data, bytes).
    template <class Handle>
    size_t receive(uint32_t slot, Handle&& handle);

  private:
    struct Waiting {
        uint16_t kind, flags;
        std::string bytes;
    };
    struct Peer {
        ProcessId id;
        std::unique_ptr<RingWriter> out;
        std::unique_ptr<RingReader> in;
        bool is_relayed = false;
        bool is_closing = false;  ///< the last record of its ring is out, and not known to be read
        bool is_used = true;      ///< written to since the last return_idle()
        bool is_queued = false;   ///< in relayed_
        uint8_t kept_for = 0;     ///< reasons to keep its records
        uint32_t passed_on = 0;   ///< records through the relay
        /// What did not fit, in order: parts of records; through the relay, whole records.
        std::deque<Waiting> overflow;
        std::string partial;  ///< a record of several parts, so far
        bool is_cut = false;  ///< what came after those found no memory
        /// Parts of one record follow each other; of the name, one is enough.
        void add_part(const Record& part) {
            const size_t named = (part.flags & kNamed) && !partial.empty() ? sizeof(ProcessId) : 0;
            if (is_cut || part.bytes <= named) return;
            try {
                partial.append(part.data + named, part.bytes - named);
            } catch (const std::exception&) {
                is_cut = true;
                partial.resize(std::min<size_t>(partial.size(), kMaxRecord));
                partial.shrink_to_fit();  // there is something to be told, which takes memory, too
            }
        }
    };
    Peer* find(uint32_t slot) const {
        if (!is_far(slot)) return peers_[slot].get();
        const auto it = far_.find(slot);
        return it == far_.end() ? nullptr : it->second.get();
    }
    /// Null when it is dead.
    Peer* peer(ProcessId id) {
        Peer* known = find(id.slot);
        return known != nullptr && known->id == id ? known : meet(id, known);
    }
    Peer* meet(ProcessId id, const Peer* before);
    /// Whether something that the daemon is to hear first did not fit into its ring.
    bool daemon_waits() const {
        const Peer* daemon = peers_[kDaemonSlot].get();
        return daemon != nullptr && !daemon->overflow.empty();
    }
    bool open(Peer& peer);
    void write(Peer& peer, uint16_t kind, uint16_t flags, const void* data, size_t bytes,
               const ProcessId* name = nullptr);
    void write_whole(Peer& peer, uint16_t kind, uint16_t flags, const void* data, size_t bytes,
                     const ProcessId* name = nullptr);
    void pass_on(Peer& peer, uint16_t kind, uint16_t flags, const void* data, size_t bytes);
    void queue(Peer& peer);
    void pass_on_queued();
    void try_ring(Peer& peer);
    void ring_is_ready(Peer& peer);
    void heard(ProcessId from, Word word, const char* data, size_t bytes);
    bool flush(Peer& peer);
    template <class Handle>
    void take(ProcessId id, Handle&& handle, uint16_t kind, uint16_t flags, const char* data, size_t bytes);
    void ring(uint32_t slot) { ring_bell(segment_, self_.slot, slot, event_fd_); }

    Segment& segment_;
    ProcessId self_;
    int event_fd_;
    std::vector<std::unique_ptr<Peer>> peers_;                 ///< of this node, by slot
    std::unordered_map<uint32_t, std::unique_ptr<Peer>> far_;  ///< of other nodes
    std::deque<ProcessId> relayed_;  ///< have records that the relay's ring had no room for, in turn
    std::vector<ProcessId> found_dead_;
    std::atomic<bool> any_found_dead_{false};
};

template <class Handle>
void Channels::take(ProcessId id, Handle&& handle, uint16_t kind, uint16_t flags, const char* data,
                    size_t bytes) {
    ProcessId name = id;
    if (flags & kNamed) {
        if (bytes < sizeof name) return;
        memcpy(&name, data, sizeof name);
        data += sizeof name;
        bytes -= sizeof name;
    }
    if constexpr (std::is_invocable_v<Handle, ProcessId, ProcessId, uint16_t, uint16_t, const char*,
                                      size_t>) {
        handle(id, name, kind, flags, data, bytes);
    } else {
        // Only the relay speaks for others; and who was dead, and forgotten, when it did so says nothing.
        if ((flags & kNamed) && (id.slot != kRelaySlot || !segment_.is_slot(name.slot))) return;
        if ((flags & kNamed) && !knows(name) && peer(name) == nullptr) return;
        if (flags & kChannel) return heard(name, Word(kind), data, bytes);
        handle(name, Kind(kind), data, bytes);
    }
}

template <class Handle>
size_t Channels::receive(uint32_t slot, Handle&& handle) {
    const uint32_t block = segment_.open_block(slot, self_.slot);
    Peer* from = peers_[slot].get();
    if (from == nullptr) {
        if (block == 0) return 0;
        peers_[slot] = std::make_unique<Peer>();
        from = peers_[slot].get();
        from->id = {slot, segment_.slot(slot).generation.load(std::memory_order_acquire)};
    }
    size_t count = from->overflow.empty() || !flush(*from) ? 0 : 1;
    if (slot == kRelaySlot && !relayed_.empty()) pass_on_queued();
    if (block == 0) return count;
    if (!from->in) from->in = std::make_unique<RingReader>(segment_.ring(block - 1));
    RingReader& in = *from->in;
    const ProcessId id = from->id;
    Record record{};
    uint32_t unreleased = 0;
    while (in.next(record)) {
        ++count;
        if (record.flags & kMore) {
            from->add_part(record);
        } else if (!from->partial.empty() || from->is_cut) {
            from->add_part(record);
            const std::string whole = std::move(from->partial);
            from->partial.clear();
            const uint16_t kind = std::exchange(from->is_cut, false) ? record.kind | kCut : record.kind;
            take(id, handle, kind, record.flags, whole.data(), whole.size());
        } else if (record.flags == kChannel && Word(record.kind) == Word::close_ring) {
            from->in.reset();
            segment_.part(id, self_);
            ring(slot);  // it may have more, and no way to send it
            return count;
        } else {
            take(id, handle, record.kind, record.flags, record.data, record.bytes);
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
