/// Cancelling: what has not started ends at once; what runs is asked to stop, or its worker is ended.
#include "actor_links.hpp"
#include "leases.hpp"
#include "objects.hpp"
#include "submitter.hpp"
#include "tasks.hpp"

namespace weft {

Submitter::Cancelled Submitter::cancel(Entry* entry, bool force, bool recursive) {
    if (!entry->owned && !entry->is_done()) {
        const records::CancelObject body{entry->id, (force ? 1u : 0u) | (recursive ? 2u : 0u)};
        endpoint_.send(entry->owner, body.kind, &body, sizeof body);
        return Cancelled::asked;
    }
    Task* task = tasks_.task_at(entry->cookie);
    if (entry->cookie == 0 || task == nullptr || entry->is_done()) return Cancelled::too_late;
    if (force && task->actor != nullptr) return Cancelled::refused;
    task->cancelled = true;
    task->retries = 0;
    const std::string error =
        error_value(ErrorCode::cancelled, "task " + task->name + " was cancelled before it started");
    if (task->missing != 0) {
        ActorLink* behind = task->actor;
        if (behind != nullptr) behind->queue.erase(task);
        fail_task(task, error);
        if (behind != nullptr) actors_.flush_actor(behind);
        return Cancelled::done;
    }
    ProcessId where{};
    if (task->actor != nullptr) {
        if (task->actor->queue.contains(task)) {
            task->actor->queue.erase(task);
            fail_task(task, error);
            return Cancelled::done;
        }
        where = task->actor->where;
    } else if (task->lease == nullptr) {
        Shape* shape = task->shape;
        if (task->list != nullptr) task->list->erase(task);  // else it waits for a larger shape
        fail_task(task, error);
        leases_.pump_shape(shape);
        return Cancelled::done;
    } else {
        where = task->lease->worker;
    }
    const records::Cancel body{task->cookie(), (force ? 1u : 0u) | (recursive ? 2u : 0u)};
    endpoint_.send(where, body.kind, &body, sizeof body);
    return Cancelled::asked;
}

/// One search through the tasks finds the children of all, as long as no task is added.
void Submitter::index_children() {
    if (children_as_of_ == tasks_.last_generation() && !children_.empty()) return;
    children_.clear();
    children_as_of_ = tasks_.last_generation();
    tasks_.each([&](Task* task) {
        if (!task->returns.empty()) children_.emplace(task->parent, task->cookie());
    });
}

void Submitter::cancel_children(Id parent, bool force) {
    index_children();
    std::vector<uint64_t> mine;
    for (auto [it, end] = children_.equal_range(parent); it != end; ++it)
        mine.push_back(it->second);
    for (const uint64_t cookie : mine) {
        const Task* task = tasks_.task_at(cookie);  // unless it has ended meanwhile
        if (task != nullptr && !task->returns.empty() && task->returns[0] != nullptr && task->kept_for == 0)
            cancel(task->returns[0], force, true);
    }
}

void Submitter::forget_index() {
    if (!children_.empty()) children_ = {};
}

void Submitter::on_cancel_object(Cursor cursor) {
    const auto [id, how, _] = cursor.take<records::CancelObject>();
    if (Entry* entry = objects_.find(id); entry != nullptr && entry->owned) cancel(entry, how & 1, how & 2);
}

}  // namespace weft
