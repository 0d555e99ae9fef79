#include "link_names.hpp"

namespace weft {

namespace {
/// Names of dead proxies that are kept.
constexpr size_t kRemembered = 4096;
}  // namespace

void LinkNames::add_proxy(ProcessId proxy, const FarProcess& who) {
    const uint32_t at = proxy.slot - kFarSlots;
    if (by_slot_.size() <= at) by_slot_.resize(at + 1);
    by_slot_[at] = {proxy, who};
    proxies_[who] = proxy;
}

void LinkNames::remove_proxy(ProcessId proxy) {
    const auto who = of_proxy(proxy);
    if (!who) return;
    proxies_.erase(*who);
    dead_[proxy.key()] = *who;
    dead_order_.push_back(proxy.key());
    by_slot_[proxy.slot - kFarSlots].who.reset();
    if (dead_order_.size() > kRemembered) {
        dead_.erase(dead_order_.front());
        dead_order_.pop_front();
    }
}

std::optional<FarProcess> LinkNames::of_proxy(ProcessId proxy) const {
    if (!is_far(proxy.slot) || proxy.slot - kFarSlots >= by_slot_.size()) return std::nullopt;
    const Living& living = by_slot_[proxy.slot - kFarSlots];
    return living.proxy == proxy ? living.who : std::nullopt;
}

FarProcess LinkNames::far(ProcessId process) const {
    if (!is_far(process.slot)) return {node, process};
    if (const auto who = of_proxy(process)) return *who;
    if (const auto it = dead_.find(process.key()); it != dead_.end()) return it->second;
    return {0, {0, process.generation}};  // dead for so long that nobody knows whom it stood for
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
