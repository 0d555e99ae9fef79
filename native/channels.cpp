#include "channels.hpp"

#include <stdexcept>

namespace weft {

Channels::Peer* Channels::peer(ProcessId id) {
    std::unique_ptr<Peer>& place = peers_[id.slot];
    if (place && place->id == id) return place.get();
    if (place || !segment_.is_alive(id)) return nullptr;
    place = std::make_unique<Peer>();
    place->id = id;
    return place.get();
}

bool Channels::send(ProcessId to, Kind kind, const void* data, size_t bytes) {
    Peer* target = peer(to);
    if (target == nullptr || (!target->out && !open(*target))) return false;
    const char* at = static_cast<const char*>(data);
    for (; bytes > kMaxRecord; at += kMaxRecord, bytes -= kMaxRecord)
        write(*target, uint16_t(kind), kMore, at, kMaxRecord);
    write(*target, uint16_t(kind), 0, at, bytes);
    return true;
}

/// False when it is dead. Without a ring between the two its slot may be another's by now, so nothing of it
/// is kept.
bool Channels::open(Peer& peer) {
    const uint32_t block = segment_.open_ring(self_, peer.id);
    if (block == kRingBlocks) throw std::runtime_error("weft: no shared ring is free on this node");
    if (block != kNoRing) {
        peer.out = std::make_unique<RingWriter>(segment_.ring(block));
        return true;
    }
    found_dead(peer.id);
    if (!peer.in) peers_[peer.id.slot].reset();
    return false;
}

void Channels::write(Peer& peer, uint16_t kind, uint16_t flags, const void* data, size_t bytes) {
    char* to = peer.overflow.empty() ? peer.out->reserve(uint32_t(bytes), kind, flags) : nullptr;
    if (to == nullptr) {
        peer.overflow.push_back({kind, flags, std::string(static_cast<const char*>(data), bytes)});
        flush(peer);
        return;
    }
    if (bytes != 0) memcpy(to, data, bytes);
    peer.out->publish();
    ring(peer.id.slot);
}

bool Channels::flush(Peer& peer) {
    bool any = false;
    while (!peer.overflow.empty()) {
        const Peer::Waiting& next = peer.overflow.front();
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
    return any;
}

bool Channels::is_flushed() const {
    return std::all_of(peers_.begin(), peers_.end(), [](const auto& p) { return !p || p->overflow.empty(); });
}

void Channels::forget(ProcessId dead) {
    if (!knows(dead)) return;
    peers_[dead.slot].reset();
    segment_.close_ring(dead, self_);
    segment_.close_ring(self_, dead);
}

}  // namespace weft
