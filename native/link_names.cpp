#include "link_names.hpp"

namespace weft {

namespace {
/// Names of dead proxies that are kept.
constexpr size_t kRemembered = 4096;
}  // namespace

void LinkNames::add_proxy(ProcessId proxy, const FarProcess& who) {
    by_slot_[proxy.slot] = {proxy, who};
    proxies_[who] = proxy;
}

void LinkNames::remove_proxy(ProcessId proxy) {
    Living& living = by_slot_[proxy.slot];
    if (!living.who || living.proxy != proxy) return;
    proxies_.erase(*living.who);
    dead_[proxy.key()] = *living.who;
    dead_order_.push_back(proxy.key());
    living.who.reset();
    if (dead_order_.size() > kRemembered) {
        dead_.erase(dead_order_.front());
        dead_order_.pop_front();
    }
}

FarProcess LinkNames::far(ProcessId process) const {
    if (process.slot < kSlots) {
        const Living& living = by_slot_[process.slot];
        if (living.who && living.proxy == process) return *living.who;
    }
    if (const auto it = dead_.find(process.key()); it != dead_.end()) return it->second;
    return {node, process};
}

std::optional<ProcessId> LinkNames::local(const FarProcess& who) const {
    if (who.id.slot == 0 || who.node == node) return who.id;
    const auto it = proxies_.find(who);
    return it == proxies_.end() ? std::nullopt : std::optional(it->second);
}

void LinkNames::add_import(const ArenaRef& entry, const FarObject& origin) {
    imports_[key(entry.entry, entry.generation)] = origin;
    by_origin_[{origin.node, origin.entry, origin.generation}] = entry;
}

void LinkNames::remove_import(uint32_t entry, uint32_t generation) {
    const auto it = imports_.find(key(entry, generation));
    if (it == imports_.end()) return;
    const auto named = by_origin_.find({it->second.node, it->second.entry, it->second.generation});
    if (named != by_origin_.end() && named->second.entry == entry && named->second.generation == generation)
        by_origin_.erase(named);
    imports_.erase(it);
}

std::optional<FarObject> LinkNames::origin(uint32_t entry, uint32_t generation) const {
    const auto it = imports_.find(key(entry, generation));
    return it == imports_.end() ? std::nullopt : std::optional(it->second);
}

std::optional<ArenaRef> LinkNames::local(const FarObject& origin) const {
    if (origin.node == node) return ArenaRef{origin.entry, origin.generation, origin.bytes};
    const auto it = by_origin_.find({origin.node, origin.entry, origin.generation});
    return it == by_origin_.end() ? std::nullopt : std::optional(it->second);
}

}  // namespace weft
