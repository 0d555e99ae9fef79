#include "relay.hpp"

#include <stdexcept>

namespace weft {

namespace {
/// So much may wait here for a process that does not read; then its senders are asked to keep the rest.
constexpr size_t kEnoughBytes = 1 << 20;
/// So many free names are kept before one is used again.
constexpr size_t kRested = 4096;
}  // namespace

Relay::Relay(Segment& segment, int event_fd) : segment_(segment), channels_(segment, self_, event_fd) {
    ProcessSlot& mine = segment_.slot(kRelaySlot);
    mine.generation.store(self_.generation);
    mine.alive.store(1);
    mine.bell.state.store(uint32_t(Bell::eventfd_sleeps));
}

ProcessId Relay::add_far(uint32_t node) {
    uint32_t slot = next_far_;
    if (free_.size() > kRested || next_far_ == kFarSlots + kMostFar) {
        if (free_.empty())
            throw std::runtime_error("weft: this node knows of " + std::to_string(kMostFar) +
                                     " living processes of other nodes, and has no name for one more");
        slot = free_.front();
        free_.pop_front();
    } else {
        ++next_far_;
    }
    FarSlot& far = segment_.far(slot);
    const uint32_t generation = far.generation.load() + 1;
    far.node.store(node + 1);
    far.generation.store(generation);
    far.alive.store(1);
    known_.insert(slot);
    return {slot, generation};
}

bool Relay::release(ProcessId far) {
    if (segment_.far(far.slot).generation.load() == far.generation && known_.erase(far.slot) != 0)
        free_.push_back(far.slot);
    return true;
}

bool Relay::send_as(ProcessId from, ProcessId to, uint16_t kind, uint16_t flags, const void* data,
                    size_t bytes) {
    if (is_far(to.slot) || !channels_.send_as(to, from, kind, flags, data, bytes)) return false;
    if (!channels_.has_waiting(to.slot)) return true;
    Full& full = full_[to.slot];
    if (full.to != to) full = {to, 0, {}};
    full.bytes += bytes;
    if (full.bytes > kEnoughBytes && full.told.insert(from.key()).second)
        changes_.push_back({from, to, true});
    return true;
}

/// Once the ring has taken all that waited, more may come.
void Relay::settle(uint32_t slot) {
    const auto it = full_.find(slot);
    if (it == full_.end()) return;
    channels_.flush_waiting(slot);
    if (channels_.has_waiting(slot)) return;
    for (const uint64_t sender : it->second.told)
        changes_.push_back({ProcessId::from_key(sender), it->second.to, false});
    full_.erase(it);
}

void Relay::keep(ProcessId who, ProcessId to, bool keeps, uint8_t reason) {
    const uint32_t why = reason;
    channels_.send_as(who, to, uint16_t(keeps ? Word::keep_the_rest : Word::send_the_rest), kChannel, &why,
                      sizeof why);
}

void Relay::acquaint(ProcessId one, ProcessId other) {
    const std::pair<uint64_t, uint64_t> pair{one.key(), other.key()};
    if (pair == last_pair_ || one == other) return;
    last_pair_ = pair;
    talked_[pair.first].insert(pair.second);
    talked_[pair.second].insert(pair.first);
}

std::vector<ProcessId> Relay::forget(ProcessId dead) {
    last_pair_ = {};
    if (!is_far(dead.slot)) {
        channels_.forget(dead);
        full_.erase(dead.slot);
    }
    std::vector<ProcessId> peers;
    const auto it = talked_.find(dead.key());
    if (it == talked_.end()) return peers;
    for (const uint64_t key : it->second) {
        if (const auto other = talked_.find(key); other != talked_.end()) other->second.erase(dead.key());
        const ProcessId peer = ProcessId::from_key(key);
        if (!is_far(peer.slot) && segment_.is_alive(peer)) peers.push_back(peer);
    }
    talked_.erase(it);
    return peers;
}

bool Relay::sleep() {
    Doorbell& bell = segment_.bell(kRelaySlot);
    bell.state.store(uint32_t(Bell::eventfd_sleeps), std::memory_order_seq_cst);  // partner: ring_bell
    return has_ready(segment_, bell);
}

}  // namespace weft
