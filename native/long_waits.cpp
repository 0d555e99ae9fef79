/// Waits that have lasted: what they wait for, and ending one that waits in vain (engine/state/deadlock.py).
///
/// Nothing here runs before a wait has lasted for a second.
#include <time.h>

#include <algorithm>

#include "core.hpp"

namespace weft {

namespace {
/// A wait for more different things than this is not looked into.
constexpr size_t kMostThings = 1000;
constexpr size_t kMostHindrances = 10'000;
}  // namespace

void Core::begin_long_wait(LongWait& wait) {
    timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    wait.began_s = double(now.tv_sec) + double(now.tv_nsec) * 1e-9;
    {
        std::lock_guard lock(mutex_);
        wait.number = ++last_long_wait_;
        long_waits_.push_back(&wait);
    }
    push_event({kWaitsLong, {}});
}

void Core::end_long_wait(LongWait& wait) {
    std::lock_guard lock(mutex_);
    std::erase(long_waits_, &wait);
}

bool Core::break_wait(uint64_t number, std::string error) {
    {
        std::lock_guard lock(mutex_);
        const auto it = std::find_if(long_waits_.begin(), long_waits_.end(),
                                     [&](const LongWait* wait) { return wait->number == number; });
        if (it == long_waits_.end()) return false;
        (*it)->error = std::move(error);
        (*it)->is_broken.store(true, std::memory_order_release);
    }
    wake_waiters();
    return true;
}

std::vector<Entry*> Core::waited_for(const LongWait& wait) {
    std::vector<Entry*> out;
    std::unordered_set<const void*> seen;
    std::unordered_map<const ActorLink*, std::unordered_set<const Task*>> unsent;
    for (size_t i = 0; i < wait.count; ++i) {
        Entry* entry = wait.entries[i];
        if (entry->is_done()) continue;
        const Task* task = entry->owned && entry->cookie != 0 ? task_at(entry->cookie) : nullptr;
        const void* thing = entry;
        if (task != nullptr && task->missing == 0) {
            if (ActorLink* link = task->actor) {
                auto [it, is_new] = unsent.try_emplace(link);
                if (is_new) it->second.insert(link->queue.begin(), link->queue.end());
                thing = it->second.contains(task) ? static_cast<const void*>(&link->queue) : link;
            } else {
                thing = task->lease != nullptr ? static_cast<const void*>(task->lease) : task->shape;
            }
        }
        if (!seen.insert(thing).second) continue;
        if (out.size() == kMostThings) return {};
        out.push_back(entry);
    }
    return out;
}

Hindrance Core::hindrance(const Entry* entry, std::vector<Entry*>& needs) {
    Hindrance out;
    out.object = entry->id;
    Task* task = entry->owned && entry->cookie != 0 ? task_at(entry->cookie) : nullptr;
    if (task == nullptr || entry->is_done() || task->kept_for != 0) return out;
    out.task = task->name;
    const auto wait_for = [&](const Task* one) {
        out.kind = 'o';
        for (Entry* dep : one->deps) {
            if (dep->is_done()) continue;
            out.what.push_back(dep->id);
            needs.push_back(dep);
        }
        if (out.what.empty()) out.kind = '?';
    };
    if (task->missing != 0) {
        wait_for(task);
    } else if (ActorLink* link = task->actor) {
        const bool is_sent = std::find(link->queue.begin(), link->queue.end(), task) == link->queue.end();
        if (is_sent) {
            out.kind = 't';
            out.what.push_back(task->id);
        } else if (link->state != ActorLink::up) {
            out.kind = 'a';
            out.what.push_back(link->id);
        } else {
            wait_for(link->queue.front());
        }
    } else if (task->lease != nullptr) {
        if (task->lease->flight.front() != task) return out;  // it is handed back soon
        out.kind = 't';
        out.what.push_back(task->id);
    } else if (task->shape != nullptr) {
        out.kind = 's';
        out.shape = task->shape->id;
    }
    return out;
}

std::vector<Hindrance> Core::hindrances(std::vector<Entry*> entries) {
    std::vector<Hindrance> out;
    std::unordered_set<const Entry*> seen;
    while (!entries.empty() && out.size() < kMostHindrances) {
        Entry* entry = entries.back();
        entries.pop_back();
        if (!seen.insert(entry).second) continue;
        Hindrance one = hindrance(entry, entries);
        if (one.kind != '?') out.push_back(std::move(one));
    }
    return out;
}

std::vector<Id> Core::inbox(size_t most) {
    std::vector<Id> out;
    for (const Incoming& incoming : inbox_) {
        if (out.size() == most) break;
        out.push_back(reinterpret_cast<const TaskHeader*>(incoming.bytes.data())->task);
    }
    return out;
}

}  // namespace weft
