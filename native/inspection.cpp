#include "inspection.hpp"

#include <algorithm>
#include <unordered_set>

namespace weft {

namespace {

constexpr size_t kArgumentsTold = 4;  ///< of one task in a listing of many

/// How many are before it in its queue or flight.
size_t ahead_of(const Task* task) {
    size_t count = 0;
    for (; task->before != nullptr; task = task->before)
        ++count;
    return count;
}
/// A wait for more different things than this is not looked into.
constexpr size_t kMostThings = 1000;
constexpr size_t kMostHindrances = 10'000;

}  // namespace

Explanation Inspection::explain(Entry* entry, bool counts_ahead) {
    Explanation out;
    out.is_owned = entry->owned;
    out.owner = entry->owner;
    out.owner_alive = core_.endpoint.segment.is_alive(entry->owner);
    out.borrowers = entry->extra ? entry->extra->borrowers.size() : 0;
    out.refs = entry->extra ? entry->extra->nested.size() : 0;
    out.holds = entry->holds.load();
    if (entry->is_done()) {
        const bool failed = entry->now() == ObjectState::failed;
        out.state = failed ? "failed" : entry->where == Where::arena ? "in the arena" : "inline";
        out.bytes = entry->where == Where::arena ? entry->arena.bytes : entry->value.size();
        return out;
    }
    if (!entry->owned) {
        out.state = entry->fetching ? "asked of its owner" : "not asked for";
        return out;
    }
    Task* task = entry->cookie == 0 ? nullptr : core_.tasks.task_at(entry->cookie);
    if (task == nullptr) {
        out.state = "unknown";
        return out;
    }
    out.task = task->name;
    out.attempt = task->record.size() >= sizeof(TaskHeader) ? task->header().attempt + 1u : 1u;
    out.retries_left = task->retries;
    if (task->missing != 0) {
        out.state = "waits for arguments";
        for (const Entry* dep : task->deps)
            if (!dep->is_done()) out.waits_for.push_back(dep->id);
    } else if (task->actor != nullptr) {
        const ActorLink& link = *task->actor;
        const bool sent = link.flight.contains(task);
        out.actor = link.id;
        out.state = sent                                  ? "sent to its actor"
                    : link.state == ActorLink::restarting ? "waits for its actor to restart"
                    : link.state == ActorLink::up         ? "waits for an earlier call"
                                                          : "waits for its actor to start";
        out.worker = link.where;
    } else if (task->lease != nullptr) {
        out.state = task->before == nullptr ? "runs, or is about to" : "queued at a worker";
        out.worker = task->lease->worker;
    } else {
        out.state = "waits for a worker";
        out.shape = int64_t(task->shape->id);
        out.leases = task->shape->leases.size();
    }
    if (counts_ahead && task->missing == 0) out.ahead = ahead_of(task);
    return out;
}

std::vector<TaskStory> Inspection::tasks(size_t most) {
    std::vector<TaskStory> out;
    core_.tasks.each([&](Task* task) {
        if (out.size() == most) return;
        if (task->record.size() < sizeof(TaskHeader) || (task->flags & kIsCreation)) return;
        TaskStory& one = out.emplace_back();
        one.id = task->id;
        one.parent = task->parent;
        one.name = task->name;
        one.attempt = task->header().attempt;
        if (task->kept_for != 0) {
            one.state = "FINISHED";  // and kept, to be run again if its results are lost
        } else if (task->missing != 0) {
            one.state = "PENDING_ARGS_AVAIL";
            for (const Entry* dep : task->deps)
                if (!dep->is_done() && one.waits_for.size() < kArgumentsTold)
                    one.waits_for.push_back(dep->id);
        } else if (task->actor != nullptr) {
            const auto& flight = task->actor->flight;
            const bool sent = flight.contains(task);
            one.state = !sent                    ? "PENDING_NODE_ASSIGNMENT"
                        : flight.front() == task ? "RUNNING"
                                                 : "SUBMITTED_TO_WORKER";
            if (sent) one.worker = task->actor->where;
        } else if (task->lease != nullptr) {
            one.state = task->lease->flight.front() == task ? "RUNNING" : "SUBMITTED_TO_WORKER";
            one.worker = task->lease->worker;
        } else {
            one.state = "PENDING_NODE_ASSIGNMENT";
        }
        if (task->actor != nullptr) one.actor = task->actor->id;
        if (task->actor == nullptr && task->shape != nullptr) one.shape = int64_t(task->shape->id);
    });
    return out;
}

std::vector<Held> Inspection::held(size_t most) {
    std::vector<Held> out;
    core_.objects.each([&](Entry* entry) {
        if (out.size() == most) return;
        const size_t holds = entry->holds.load();
        const bool is_lent = entry->extra && !entry->extra->borrowers.empty();
        if (holds == 0 && !is_lent) return;  // free
        Held& one = out.emplace_back();
        one.id = entry->id;
        one.is_owned = entry->owned;
        one.is_actor = entry->is_actor;
        one.owner = entry->owner;
        one.holds = holds;
        const Explanation story = explain(entry, false);
        one.state = story.state;
        one.bytes = story.bytes;
        if (!is_lent) return;
        for (const auto& [key, count] : entry->extra->borrowers)
            one.borrowers.emplace_back(ProcessId::from_key(key), count);
    });
    return out;
}

std::vector<Entry*> Inspection::waited_for(const LongWait& wait) {
    std::vector<Entry*> out;
    std::unordered_set<const void*> seen;
    for (size_t i = 0; i < wait.count; ++i) {
        Entry* entry = wait.entries[i];
        if (entry->is_done()) continue;
        const Task* task = entry->owned && entry->cookie != 0 ? core_.tasks.task_at(entry->cookie) : nullptr;
        const void* thing = entry;
        if (task != nullptr && task->missing == 0) {
            if (ActorLink* link = task->actor) {
                thing = link->queue.contains(task) ? static_cast<const void*>(&link->queue) : link;
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

Hindrance Inspection::hindrance(const Entry* entry, std::vector<Entry*>& needs) {
    Hindrance out;
    out.object = entry->id;
    Task* task = entry->owned && entry->cookie != 0 ? core_.tasks.task_at(entry->cookie) : nullptr;
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
        if (!link->queue.contains(task)) {
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

std::vector<Hindrance> Inspection::hindrances(std::vector<Entry*> entries) {
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

Counters Inspection::counters() {
    std::lock_guard lock(core_.mutex());
    return {core_.submitter.submitted(),
            core_.inbox.tasks_run,
            core_.objects.owned(),
            core_.objects.borrowed(),
            core_.tasks.used() - core_.lineage.kept(),
            core_.leases.count(),
            core_.lineage.kept(),
            core_.lineage.kept_bytes(),
            core_.lineage.rebuilt(),
            core_.flushing.disk_bytes(),
            core_.kept_inputs.bytes(),
            core_.definitions.functions(),
            core_.definitions.received(),
            core_.actors.count()};
}

}  // namespace weft
