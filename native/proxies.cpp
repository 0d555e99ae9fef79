#include "proxies.hpp"

namespace weft {

void Proxies::add(ProcessId proxy) {
    channels_[proxy.slot] = std::make_unique<Channels>(segment_, proxy, event_fd_);
    segment_.bell(proxy.slot).state.store(uint32_t(Bell::eventfd_sleeps), std::memory_order_seq_cst);
}

bool Proxies::send_as(uint32_t proxy, ProcessId to, Kind kind, const void* data, size_t bytes) {
    const auto it = channels_.find(proxy);
    return it != channels_.end() && it->second->send(to, kind, data, bytes);
}

void Proxies::forget(uint32_t proxy, ProcessId dead) {
    if (const auto it = channels_.find(proxy); it != channels_.end()) it->second->forget(dead);
}

void Proxies::drain(std::vector<Outbound>& out) {
    for (auto& [slot, channels] : channels_) {
        Doorbell& bell = segment_.bell(slot);
        bell.state.store(uint32_t(Bell::awake), std::memory_order_seq_cst);
        take_ready(segment_, bell, [&, proxy = slot, c = channels.get()](uint32_t from) {
            c->receive(from, [&](ProcessId id, Kind kind, const char* data, size_t bytes) {
                out.push_back({proxy, id, kind, std::string(data, bytes)});
            });
        });
    }
}

bool Proxies::sleep() {
    bool more = false;
    for (auto& [slot, channels] : channels_) {
        Doorbell& bell = segment_.bell(slot);
        bell.state.store(uint32_t(Bell::eventfd_sleeps), std::memory_order_seq_cst);  // partner: ring_bell
        more = more || has_ready(segment_, bell);
    }
    return more;
}

}  // namespace weft
