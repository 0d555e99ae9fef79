/// The node daemon's second slot: records that it passes on, natively, for processes that have no ring with
/// each other. Those are processes of other nodes (known here as far slots, see FarSlot), and processes of
/// this node for which no ring was free. A local process has one ring to the relay and one from it; each
/// record in them names whom it is for, or from whom it comes. So a process of another node costs this one
/// neither a slot nor a ring.
///
/// RL-1  What a local process has published before its death is passed on before the death is told.
/// RL-2  Who sends more than its receiver reads is told to keep the rest, and told when to go on; what is on
///       its way by then is bounded by the sender's ring.
/// RL-3  Of two that have exchanged a record through here, one is told of the other's death.
#pragma once

#include <deque>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "channels.hpp"

namespace weft {

/// Used by the daemon's one thread.
class Relay {
  public:
    Relay(Segment& segment, int event_fd);

    /// A name for a process of that node. Throws std::runtime_error when too many are known.
    ProcessId add_far(uint32_t node);
    bool is_known(uint32_t slot) const { return is_far(slot) && known_.contains(slot); }
    /// It is dead, and so is its name: another process gets it late, with another generation.
    void mark_dead(ProcessId far) { segment_.far(far.slot).alive.store(0); }
    bool release(ProcessId far);

    /// One record in the name of `from`; false when `to`, a process of this node, is dead.
    bool send_as(ProcessId from, ProcessId to, uint16_t kind, uint16_t flags, const void* data, size_t bytes);
    /// Whether those two have talked is known from now on.
    void acquaint(ProcessId one, ProcessId other);
    /// Gives up the rings with a dead process; the living ones of this node that it had talked with.
    std::vector<ProcessId> forget(ProcessId dead);

    /// Calls take(from, to, kind, flags, data, bytes) for all that local processes have sent, in order for
    /// each of them.
    template <class Take>
    void drain(Take&& take);
    /// The same for what one process has sent.
    template <class Take>
    void drain_from(uint32_t slot, Take&& take) {
        channels_.receive(slot, take);
    }
    /// Whether a record came between the last drain and now.
    bool sleep();

    /// Have a local process keep what it has for `to`, or send it.
    void keep(ProcessId who, ProcessId to, bool keeps, uint8_t reason);
    /// Pairs of a sender and a receiver whose ring has taken too little of what came, or has taken all of it
    /// now; since the last call.
    struct Change {
        ProcessId from, to;
        bool is_full;
    };
    std::vector<Change> take_changes() { return std::exchange(changes_, {}); }

  private:
    struct Full {
        ProcessId to;
        size_t bytes = 0;                   ///< that came since its ring was full
        std::unordered_set<uint64_t> told;  ///< senders who were told to keep the rest
    };
    void settle(uint32_t slot);

    Segment& segment_;
    ProcessId self_{kRelaySlot, 1};
    Channels channels_;
    std::unordered_set<uint32_t> known_;
    std::deque<uint32_t> free_;
    uint32_t next_far_ = kFarSlots;
    std::map<uint32_t, Full> full_;  ///< by the receiver's slot
    std::unordered_map<uint64_t, std::unordered_set<uint64_t>> talked_;
    std::pair<uint64_t, uint64_t> last_pair_{};  ///< that was acquainted: mostly the next one's, too
    std::vector<Change> changes_;
};

template <class Take>
void Relay::drain(Take&& take) {
    Doorbell& bell = segment_.bell(kRelaySlot);
    bell.state.store(uint32_t(Bell::awake), std::memory_order_seq_cst);
    take_ready(segment_, bell, [&](uint32_t from) {
        channels_.receive(from, take);
        settle(from);
    });
}

}  // namespace weft
