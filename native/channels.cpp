#include "channels.hpp"

namespace weft {

namespace {
/// After so many records through the relay it is tried again to have a ring.
constexpr uint32_t kTryAfter = 256;
}  // namespace

/// One that was not known, in whose slot another one was `before`.
Channels::Peer* Channels::meet(ProcessId id, const Peer* before) {
    // Its slot is not used again before this process gave up its rings; without rings it may be.
    if (before != nullptr && (!before->is_relayed || segment_.is_alive(before->id))) return nullptr;
    if (!segment_.is_alive(id)) return nullptr;
    auto fresh = std::make_unique<Peer>();
    fresh->id = id;
    fresh->is_relayed = is_far(id.slot);
    auto& place = is_far(id.slot) ? far_[id.slot] : peers_[id.slot];
    place = std::move(fresh);
    return place.get();
}

bool Channels::send(ProcessId to, Kind kind, const void* data, size_t bytes) {
    Peer* target = peer(to);
    if (target == nullptr) return false;
    if (!target->out && !target->is_closing && !target->is_relayed && !open(*target)) return false;
    if (target->is_relayed)
        pass_on(*target, uint16_t(kind), 0, data, bytes);
    else
        write_whole(*target, uint16_t(kind), 0, data, bytes);
    return true;
}

bool Channels::send_as(ProcessId to, ProcessId as, uint16_t kind, uint16_t flags, const void* data,
                       size_t bytes) {
    Peer* target = peer(to);
    if (target == nullptr || (!target->out && !open(*target))) return false;
    write_whole(*target, kind, uint16_t(flags | kNamed), data, bytes, &as);
    return true;
}

/// False when it is dead. Without a ring between the two its slot may be another's by now, so nothing of it
/// is kept.
bool Channels::open(Peer& peer) {
    const uint32_t block = segment_.open_ring(self_, peer.id);
    if (block == kNoBlock) return peer.is_relayed = true;
    if (block != kNoRing) {
        peer.out = std::make_unique<RingWriter>(segment_.ring(block));
        return true;
    }
    found_dead(peer.id);
    if (!peer.in) peers_[peer.id.slot].reset();
    return false;
}

/// One part, behind the name if there is one.
void Channels::write(Peer& peer, uint16_t kind, uint16_t flags, const void* data, size_t bytes,
                     const ProcessId* name) {
    const size_t named = name != nullptr ? sizeof *name : 0;
    peer.is_used = true;
    char* to =
        peer.out && peer.overflow.empty() ? peer.out->reserve(uint32_t(named + bytes), kind, flags) : nullptr;
    if (to == nullptr) {
        std::string kept(reinterpret_cast<const char*>(name), named);
        peer.overflow.push_back({kind, flags, kept.append(static_cast<const char*>(data), bytes)});
        flush(peer);
        return;
    }
    if (name != nullptr) memcpy(to, name, sizeof *name);
    if (bytes != 0) memcpy(to + named, data, bytes);
    peer.out->publish();
    ring(peer.id.slot);
}

void Channels::write_whole(Peer& peer, uint16_t kind, uint16_t flags, const void* data, size_t bytes,
                           const ProcessId* name) {
    const size_t most = kMaxRecord - (name != nullptr ? sizeof *name : 0);
    const char* at = static_cast<const char*>(data);
    for (; bytes > most; at += most, bytes -= most)
        write(peer, kind, uint16_t(flags | kMore), at, most, name);
    write(peer, kind, flags, at, bytes, name);
}

bool Channels::flush(Peer& peer) {
    if (peer.is_relayed) return false;  // pass_on_queued() does it
    if (!peer.out) {
        if (!peer.is_closing || segment_.open_block(self_.slot, peer.id.slot) != 0) return false;
        peer.is_closing = false;
        if (!open(peer)) return false;
        if (peer.is_relayed) {  // no ring is free any more: what waits is whole records or parts of such
            std::deque<Waiting> parts = std::exchange(peer.overflow, {});
            std::string whole;
            for (Waiting& part : parts) {
                whole.append(part.bytes);
                if (part.flags & kMore) continue;
                pass_on(peer, part.kind, part.flags, whole.data(), whole.size());
                whole.clear();
            }
            return true;
        }
    }
    bool any = false;
    while (!peer.overflow.empty()) {
        const Waiting& next = peer.overflow.front();
        char* to = peer.out->reserve(uint32_t(next.bytes.size()), next.kind, next.flags);
        if (to == nullptr) {
            // Say so, then look once more: the consumer may have made room just before.
            peer.out->want_room();
            to = peer.out->reserve(uint32_t(next.bytes.size()), next.kind, next.flags);
            if (to == nullptr) break;
        }
        memcpy(to, next.bytes.data(), next.bytes.size());
        peer.out->publish();
        peer.overflow.pop_front();
        any = true;
    }
    if (any) ring(peer.id.slot);
    if (peer.id.slot == kDaemonSlot && peer.overflow.empty() && !relayed_.empty()) pass_on_queued();
    return any;
}

// ---- through the relay -----------------------------------------------------------------------------

void Channels::pass_on(Peer& peer, uint16_t kind, uint16_t flags, const void* data, size_t bytes) {
    Peer* relay = this->peer({kRelaySlot, segment_.slot(kRelaySlot).generation.load()});
    if (relay == nullptr || (!relay->out && !open(*relay))) return;  // the daemon is gone, and all with it
    if (!is_far(peer.id.slot) && (peer.kept_for & kRingFollows) == 0 && ++peer.passed_on % kTryAfter == 0)
        try_ring(peer);
    if (peer.kept_for == 0 && peer.overflow.empty() && relay->overflow.empty() && !daemon_waits())
        return write_whole(*relay, kind, uint16_t(flags | kNamed), data, bytes, &peer.id);
    peer.overflow.push_back({kind, flags, std::string(static_cast<const char*>(data), bytes)});
    queue(peer);
}

void Channels::queue(Peer& peer) {
    if (peer.kept_for != 0 || peer.overflow.empty() || std::exchange(peer.is_queued, true)) return;
    relayed_.push_back(peer.id);
}

/// Each in turn one record, while the ring takes them (CH-4).
void Channels::pass_on_queued() {
    Peer& relay = *peers_[kRelaySlot];
    while (!relayed_.empty() && relay.overflow.empty() && !daemon_waits()) {
        Peer* next = find(relayed_.front().slot);
        const bool is_same = next != nullptr && next->id == relayed_.front();
        relayed_.pop_front();
        if (!is_same) continue;
        next->is_queued = false;
        if (!next->is_relayed || next->kept_for != 0 || next->overflow.empty()) continue;
        const Waiting record = std::move(next->overflow.front());
        next->overflow.pop_front();
        write_whole(relay, record.kind, uint16_t(record.flags | kNamed), record.bytes.data(),
                    record.bytes.size(), &next->id);
        queue(*next);
    }
}

/// A block may have come back. What is on its way through the relay must arrive before what the ring will
/// bring: so the ring is used once the peer has seen the last of it.
void Channels::try_ring(Peer& peer) {
    const uint32_t block = segment_.open_ring(self_, peer.id);
    if (block == kNoBlock || block == kNoRing) return;
    peer.out = std::make_unique<RingWriter>(segment_.ring(block));
    peer.kept_for |= kRingFollows;
    write_whole(*peers_[kRelaySlot], uint16_t(Word::ring_follows), kChannel | kNamed, nullptr, 0, &peer.id);
}

void Channels::ring_is_ready(Peer& peer) {
    if (!peer.is_relayed || !peer.out) return;
    peer.is_relayed = false;
    peer.kept_for = 0;
    for (Waiting& record : std::exchange(peer.overflow, {}))
        write_whole(peer, record.kind, record.flags, record.bytes.data(), record.bytes.size());
}

void Channels::heard(ProcessId from, Word word, const char* data, size_t bytes) {
    Peer* known = find(from.slot);
    if (known == nullptr || known->id != from) return;
    uint32_t reason = 0;
    if (bytes >= sizeof reason) memcpy(&reason, data, sizeof reason);
    switch (word) {
        case Word::ring_follows: {
            // By the way that is there: it need not wait for a ring in this direction.
            Peer* relay = peer({kRelaySlot, segment_.slot(kRelaySlot).generation.load()});
            if (relay != nullptr && (relay->out || open(*relay)))
                write_whole(*relay, uint16_t(Word::ring_ready), kChannel | kNamed, nullptr, 0, &from);
            return;
        }
        case Word::ring_ready:
            return ring_is_ready(*known);
        case Word::keep_the_rest:
            known->kept_for |= uint8_t(reason);
            return;
        case Word::send_the_rest:
            known->kept_for &= uint8_t(~reason);
            queue(*known);
            return pass_on_queued();
        case Word::close_ring:
            return;
    }
}

// ---- rings that are not needed now -----------------------------------------------------------------

void Channels::return_idle() {
    for (const auto& peer : peers_) {
        if (!peer || !peer->out || peer->is_relayed || peer->id.slot <= kRelaySlot) continue;
        if (std::exchange(peer->is_used, false) || !peer->overflow.empty() || !peer->out->is_empty())
            continue;
        peer->out->reserve(0, uint16_t(Word::close_ring), kChannel);
        peer->out->publish();
        peer->out.reset();
        peer->is_closing = true;
        ring(peer->id.slot);
    }
}

bool Channels::is_flushed() const {
    const auto is_empty = [](const std::unique_ptr<Peer>& p) { return !p || p->overflow.empty(); };
    return std::all_of(peers_.begin(), peers_.end(), is_empty) &&
           std::all_of(far_.begin(), far_.end(), [&](const auto& item) { return is_empty(item.second); });
}

void Channels::forget(ProcessId dead) {
    if (!knows(dead)) return;
    if (is_far(dead.slot)) {
        far_.erase(dead.slot);
        return;
    }
    peers_[dead.slot].reset();
    segment_.close_ring(dead, self_);
    segment_.close_ring(self_, dead);
}

}  // namespace weft
