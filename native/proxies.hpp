/// Processes of other nodes, as this segment sees them. Each has a slot here, a *proxy*, whose rings the node
/// daemon reads and writes: what a local process sends to it is passed to its node, what comes from there is
/// written in its name. So no process knows, or needs to know, on which node another one runs.
///
/// PX-1  What a local process has published before its death is read before the death is told.
/// PX-2  A ring is not read while its node's link is full, or while the receiver there has enough: the rest
///       stays with the process that wrote it.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <vector>

#include "channels.hpp"

namespace weft {

/// Used by the daemon's one thread.
class Proxies {
  public:
    Proxies(Segment& segment, int event_fd) : segment_(segment), event_fd_(event_fd) {}

    /// The slot was reserved for a process of another node.
    void add(ProcessId proxy);
    /// It died, or its node did. What it had been sent is dropped.
    void remove(uint32_t slot);
    bool has(uint32_t slot) const { return proxies_.contains(slot); }

    /// One record in the proxy's name; false when `to` is dead.
    bool send_as(uint32_t proxy, ProcessId to, Kind kind, const void* data, size_t bytes);
    /// A local peer of the proxy died: give the rings up.
    void forget(uint32_t proxy, ProcessId dead);

    /// Calls take(proxy, from, kind, data, bytes) for what local processes have sent to proxies, in order for
    /// each pair; not for proxies of which can_take(slot) is false, nor for paused pairs.
    template <class CanTake, class Take>
    void drain(CanTake&& can_take, Take&& take);
    /// The same for all that one process has sent, wherever to and whatever is paused.
    template <class Take>
    void drain_from(uint32_t slot, Take&& take);
    /// Whether a record came between the last drain and now. Sets `left` when some could not be taken.
    template <class CanTake>
    bool sleep(CanTake&& can_take, bool& left);

    /// Do not read what `from` sends to the proxy; and go on.
    void pause(uint32_t proxy, uint32_t from) { paused_.insert({proxy, from}); }
    void resume(uint32_t proxy, uint32_t from);
    /// Pairs (proxy, local process) whose ring has taken too little of what came, or has taken all of it now;
    /// since the last call.
    struct Change {
        uint32_t proxy;
        ProcessId to;
        bool is_full;
    };
    std::vector<Change> take_changes() { return std::exchange(changes_, {}); }

  private:
    struct Proxy {
        std::unique_ptr<Channels> channels;
        /// Bytes that came for a local process since its ring was full; by slot.
        std::map<uint32_t, std::pair<ProcessId, size_t>> waiting;
    };
    void settle(uint32_t slot, Proxy& proxy, uint32_t from);

    Segment& segment_;
    int event_fd_;
    std::map<uint32_t, Proxy> proxies_;
    std::set<std::pair<uint32_t, uint32_t>> paused_;
    std::vector<Change> changes_;
};

template <class CanTake, class Take>
void Proxies::drain(CanTake&& can_take, Take&& take) {
    for (auto& [slot, proxy] : proxies_) {
        if (!can_take(slot)) continue;
        Doorbell& bell = segment_.bell(slot);
        bell.state.store(uint32_t(Bell::awake), std::memory_order_seq_cst);
        take_ready(segment_, bell, [&, to = slot, p = &proxy](uint32_t from) {
            if (!can_take(to)) {
                bell.ready[from / 64].fetch_or(1ULL << (from % 64), std::memory_order_seq_cst);
                return;
            }
            settle(to, *p, from);
            if (paused_.contains({to, from})) return;
            p->channels->receive(from, [&](ProcessId id, Kind kind, const char* data, size_t bytes) {
                take(to, id, kind, data, bytes);
            });
            settle(to, *p, from);
        });
    }
}

template <class Take>
void Proxies::drain_from(uint32_t from, Take&& take) {
    for (auto& [slot, proxy] : proxies_)
        proxy.channels->receive(from, [&, to = slot](ProcessId id, Kind kind, const char* data,
                                                     size_t bytes) { take(to, id, kind, data, bytes); });
}

template <class CanTake>
bool Proxies::sleep(CanTake&& can_take, bool& left) {
    bool more = false;
    for (auto& [slot, proxy] : proxies_) {
        Doorbell& bell = segment_.bell(slot);
        if (!can_take(slot)) {  // it stays awake: whoever writes to it wakes nobody
            left = left || has_ready(segment_, bell);
            continue;
        }
        bell.state.store(uint32_t(Bell::eventfd_sleeps), std::memory_order_seq_cst);  // partner: ring_bell
        more = more || has_ready(segment_, bell);
    }
    return more;
}

}  // namespace weft
