/// What this process knows of an object: for a person who asks why it is not there.
#include <algorithm>

#include "core.hpp"

namespace weft {

namespace {

constexpr size_t kArgumentsTold = 4;  ///< of one task in a listing of many

}  // namespace

Explanation Core::explain(Entry* entry) {
    Explanation out;
    out.is_owned = entry->owned;
    out.owner = entry->owner;
    out.owner_alive = segment_->is_alive(entry->owner);
    out.borrowers = entry->extra ? entry->extra->borrowers.size() : 0;
    out.holds = entry->holds.load();
    if (entry->is_done()) {
        const bool failed = entry->state.load() == uint8_t(ObjectState::failed);
        out.state = failed ? "failed" : entry->where == Where::arena ? "in the arena" : "inline";
        out.bytes = entry->where == Where::arena ? entry->arena.bytes : entry->value.size();
        return out;
    }
    if (!entry->owned) {
        out.state = entry->fetching ? "asked of its owner" : "not asked for";
        return out;
    }
    Task* task = entry->cookie == 0 ? nullptr : task_at(entry->cookie);
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
        const bool sent = std::find(link.flight.begin(), link.flight.end(), task) != link.flight.end();
        out.actor = link.id;
        out.ahead =
            sent ? size_t(std::find(link.flight.begin(), link.flight.end(), task) - link.flight.begin())
                 : size_t(std::find(link.queue.begin(), link.queue.end(), task) - link.queue.begin());
        out.state = sent                                  ? "sent to its actor"
                    : link.state == ActorLink::restarting ? "waits for its actor to restart"
                    : link.state == ActorLink::up         ? "waits for an earlier call"
                                                          : "waits for its actor to start";
        out.worker = link.where;
    } else if (task->lease != nullptr) {
        const auto& flight = task->lease->flight;
        out.ahead = size_t(std::find(flight.begin(), flight.end(), task) - flight.begin());
        out.state = out.ahead == 0 ? "runs, or is about to" : "queued at a worker";
        out.worker = task->lease->worker;
    } else {
        out.state = "waits for a worker";
        out.shape = int64_t(task->shape->id);
        out.ahead = size_t(std::find(task->shape->queue.begin(), task->shape->queue.end(), task) -
                           task->shape->queue.begin());
        out.leases = task->shape->leases.size();
    }
    return out;
}

std::vector<TaskStory> Core::tasks(size_t most) {
    std::vector<TaskStory> out;
    for (const auto& owned : tasks_) {
        Task* task = owned.get();
        if (out.size() == most) break;
        if (task->record.size() < sizeof(TaskHeader) || (task->flags & kIsCreation)) continue;
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
            const bool sent = std::find(flight.begin(), flight.end(), task) != flight.end();
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
    }
    return out;
}

std::vector<Held> Core::held(size_t most) {
    std::vector<Held> out;
    for (Entry& entry : entries_) {
        if (out.size() == most) break;
        const size_t holds = entry.holds.load();
        const bool is_lent = entry.extra && !entry.extra->borrowers.empty();
        if (holds == 0 && !is_lent) continue;  // free
        Held& one = out.emplace_back();
        one.id = entry.id;
        one.is_owned = entry.owned;
        one.is_actor = entry.is_actor;
        one.owner = entry.owner;
        one.holds = holds;
        const Explanation story = explain(&entry);
        one.state = story.state;
        one.bytes = story.bytes;
        if (!is_lent) continue;
        for (const auto& [key, count] : entry.extra->borrowers)
            one.borrowers.emplace_back(ProcessId::from_key(key), count);
    }
    return out;
}

}  // namespace weft
