#include "definitions.hpp"

#include <algorithm>

namespace weft {

Function* Definitions::define_function(uint64_t key, std::string payload) {
    auto& place = functions_[key];
    if (!place) {
        place = std::make_unique<Function>();
        place->key = key;
        place->payload = std::move(payload);
    }
    return place.get();
}

Function* Definitions::function(uint64_t key) {
    const auto it = functions_.find(key);
    return it == functions_.end() ? nullptr : it->second.get();
}

void Definitions::send_function(ProcessId to, Function* function) {
    if (function == nullptr) return;
    if (!is_far(to.slot) && function->sent_to.size() <= to.slot) function->sent_to.resize(to.slot + 1);
    uint32_t& sent = is_far(to.slot) ? function->sent_far[to.slot] : function->sent_to[to.slot];
    if (sent == to.generation + 1) return;
    sent = to.generation + 1;
    Buffer out;
    out.add(function->key);
    out.append(function->payload.data(), function->payload.size());
    endpoint_.send(to, Kind::FUNCTION, out.data(), out.size());
}

void Definitions::mark_held(bool is_lineage_on_disk) {
    for (auto& [key, function] : functions_)
        function->is_used = function->holders != 0 || (function->is_flushed && is_lineage_on_disk);
}

void Definitions::forget_unused() {
    std::erase_if(functions_, [this](const auto& item) {
        if (item.second->is_used) return false;
        forget_at_workers(*item.second);
        return true;
    });
}

/// It follows the last task that needs it in the one channel to each worker.
void Definitions::forget_at_workers(const Function& function) {
    const auto tell = [&](uint32_t slot, uint32_t sent) {
        const ProcessId worker{slot, sent - 1};
        if (slot != kDaemonSlot && sent != 0 && endpoint_.channels.knows(worker))
            endpoint_.send(worker, Kind::FORGET_FUNCTION, &function.key, sizeof function.key);
    };
    for (uint32_t slot = 0; slot < function.sent_to.size(); ++slot)
        tell(slot, function.sent_to[slot]);
    for (const auto& [slot, sent] : function.sent_far)
        tell(slot, sent);
}

// ---- a worker's side ----------------------------------------------------------------------------

void Definitions::on_function(ProcessId from, Cursor cursor) {
    const auto key = cursor.take<uint64_t>();
    Definition& known = received_[key];
    if (!known.is_loaded && known.pickle.empty()) known.pickle = cursor.rest();
    if (std::find(known.senders.begin(), known.senders.end(), from) == known.senders.end())
        known.senders.push_back(from);
}

std::string Definitions::definition(uint64_t key) {
    const auto it = received_.find(key);
    return it == received_.end() ? std::string() : it->second.pickle;
}

void Definitions::loaded(uint64_t key) {
    const auto it = received_.find(key);
    if (it == received_.end()) return forgotten_.push_back(key);  // who sent it died meanwhile
    it->second.is_loaded = true;
    it->second.pickle = {};
}

void Definitions::on_forget_function(ProcessId from, uint64_t key) {
    const auto it = received_.find(key);
    if (it == received_.end() || std::erase(it->second.senders, from) == 0 || !it->second.senders.empty())
        return;
    if (it->second.is_loaded) forgotten_.push_back(key);
    received_.erase(it);
}

void Definitions::sender_died(ProcessId dead) {
    std::vector<uint64_t> keys;
    for (const auto& [key, definition] : received_)
        if (std::find(definition.senders.begin(), definition.senders.end(), dead) != definition.senders.end())
            keys.push_back(key);
    for (const uint64_t key : keys)
        on_forget_function(dead, key);
}

}  // namespace weft
