#include "proxies.hpp"

namespace weft {

namespace {
/// So much may wait here for a process that does not read; then its sender is asked to keep the rest.
constexpr size_t kEnoughBytes = 1 << 20;
}  // namespace

void Proxies::add(ProcessId proxy) {
    proxies_[proxy.slot].channels = std::make_unique<Channels>(segment_, proxy, event_fd_);
    segment_.bell(proxy.slot).state.store(uint32_t(Bell::eventfd_sleeps), std::memory_order_seq_cst);
}

void Proxies::remove(uint32_t slot) {
    proxies_.erase(slot);
    std::erase_if(paused_, [&](const auto& pair) { return pair.first == slot || pair.second == slot; });
}

bool Proxies::send_as(uint32_t slot, ProcessId to, Kind kind, const void* data, size_t bytes) {
    const auto it = proxies_.find(slot);
    if (it == proxies_.end()) return false;
    Proxy& proxy = it->second;
    if (!proxy.channels->send(to, kind, data, bytes)) return false;
    if (!proxy.channels->has_waiting(to.slot)) return true;
    auto& [who, waiting] = proxy.waiting[to.slot];
    const bool was_enough = waiting > kEnoughBytes && who == to;
    waiting = (who == to ? waiting : 0) + bytes;
    who = to;
    if (!was_enough && waiting > kEnoughBytes) changes_.push_back({slot, to, true});
    return true;
}

/// Once the ring has taken all that waited, more may come.
void Proxies::settle(uint32_t slot, Proxy& proxy, uint32_t from) {
    const auto it = proxy.waiting.find(from);
    if (it == proxy.waiting.end()) return;
    proxy.channels->flush_waiting(from);
    if (proxy.channels->has_waiting(from)) return;
    if (it->second.second > kEnoughBytes) changes_.push_back({slot, it->second.first, false});
    proxy.waiting.erase(it);
}

void Proxies::forget(uint32_t slot, ProcessId dead) {
    paused_.erase({slot, dead.slot});
    if (const auto it = proxies_.find(slot); it != proxies_.end()) {
        it->second.channels->forget(dead);
        it->second.waiting.erase(dead.slot);
    }
}

void Proxies::resume(uint32_t proxy, uint32_t from) {
    if (paused_.erase({proxy, from}) != 0 && has(proxy)) ring_bell(segment_, from, proxy, event_fd_);
}

}  // namespace weft
