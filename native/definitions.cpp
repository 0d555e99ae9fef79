/// Functions and classes: sent once to each process that needs them, and forgotten when nobody can need them.
///
/// DEF-1  A function stays as long as Python holds it, a task has it, or lineage on disk names it.
/// DEF-2  A worker keeps what it was sent until all who sent it have said that they will not need it, or
/// died.
///
/// Nothing on a task's way counts its users for this. Who gives a function up, and the death of an actor, add
/// to a number; once that is large beside all that a sweep has to look at, one sweep frees what has no user.
/// So what is given up waits for others to be given up, and the look costs each of them a constant.
#include <algorithm>

#include "core.hpp"

namespace weft {

namespace {

/// So many may wait for a sweep, whatever it costs; and one for so many that it looks at.
constexpr size_t kUnusedKept = 64;
constexpr size_t kLookedAtEach = 8;

}  // namespace

Function* Core::define_function(uint64_t key, std::string payload) {
    auto& place = functions_[key];
    if (!place) {
        place = std::make_unique<Function>();
        place->key = key;
        place->payload = std::move(payload);
        place->sent_to.resize(kSlots);
    }
    return place.get();
}

Function* Core::function(uint64_t key) {
    const auto it = functions_.find(key);
    return it == functions_.end() ? nullptr : it->second.get();
}

void Core::send_function(ProcessId to, Function* function) {
    if (function == nullptr || function->sent_to[to.slot] == to.generation + 1) return;
    function->sent_to[to.slot] = to.generation + 1;
    Buffer out;
    out.add(function->key);
    out.append(function->payload.data(), function->payload.size());
    send(to, Kind::FUNCTION, out.data(), out.size());
}

// ---- what nobody needs any more --------------------------------------------------------------------

void Core::give_up(Function* function) {
    if (--function->holders == 0) may_be_unused();
}

/// A function lost its last holder, or an actor died. Nobody up the stack may have a pointer to either.
void Core::may_be_unused() {
    const size_t looked_at = tasks_.size() + entries_.size() + functions_.size() + actors_.size();
    if (++given_up_ > kUnusedKept + looked_at / kLookedAtEach) sweep();
}

void Core::sweep() {
    given_up_ = 0;
    const bool is_any_on_disk = lineage_file_.batches() != 0;
    for (auto& [key, function] : functions_)
        function->is_used = function->holders != 0 || (function->is_flushed && is_any_on_disk);
    for (auto& [id, link] : actors_)
        link->is_used = link->state != ActorLink::dead || (link->is_flushed && is_any_on_disk);
    for (const auto& task : tasks_) {
        if (task->function != nullptr) task->function->is_used = true;
        if (task->actor != nullptr) task->actor->is_used = true;
    }
    // Who has a handle must go on hearing why the actor is dead.
    for (const Entry& entry : entries_)
        if (entry.is_actor)
            if (const auto it = actors_.find(entry.id); it != actors_.end()) it->second->is_used = true;
    std::erase_if(functions_, [this](const auto& item) {
        if (item.second->is_used) return false;
        forget_at_workers(*item.second);
        return true;
    });
    std::erase_if(actors_, [](const auto& item) { return !item.second->is_used; });
}

/// It follows the last task that needs it in the one channel to each worker.
void Core::forget_at_workers(const Function& function) {
    for (uint32_t slot = 0; slot < kSlots; ++slot) {
        if (slot == kDaemonSlot || function.sent_to[slot] == 0) continue;
        const ProcessId worker{slot, function.sent_to[slot] - 1};
        if (channels_.knows(worker)) send(worker, Kind::FORGET_FUNCTION, &function.key, sizeof function.key);
    }
}

// ---- a worker's side -------------------------------------------------------------------------------

void Core::on_function(ProcessId from, Cursor cursor) {
    const auto key = cursor.take<uint64_t>();
    Definition& known = definitions_[key];
    if (!known.is_loaded && known.pickle.empty()) known.pickle = cursor.rest();
    if (std::find(known.senders.begin(), known.senders.end(), from) == known.senders.end())
        known.senders.push_back(from);
}

std::string Core::definition(uint64_t key) {
    const auto it = definitions_.find(key);
    return it == definitions_.end() ? std::string() : it->second.pickle;
}

void Core::loaded(uint64_t key) {
    const auto it = definitions_.find(key);
    if (it == definitions_.end()) return forgotten_.push_back(key);  // who sent it died meanwhile
    it->second.is_loaded = true;
    it->second.pickle = {};
}

void Core::on_forget_function(ProcessId from, uint64_t key) {
    const auto it = definitions_.find(key);
    if (it == definitions_.end() || std::erase(it->second.senders, from) == 0 || !it->second.senders.empty())
        return;
    if (it->second.is_loaded) forgotten_.push_back(key);
    definitions_.erase(it);
}

void Core::sender_died(ProcessId dead) {
    std::vector<uint64_t> keys;
    for (const auto& [key, definition] : definitions_)
        if (std::find(definition.senders.begin(), definition.senders.end(), dead) != definition.senders.end())
            keys.push_back(key);
    for (const uint64_t key : keys)
        on_forget_function(dead, key);
}

}  // namespace weft
