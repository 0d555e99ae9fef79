/// Cancelling: what has not started ends at once; what runs is asked to stop, or its worker is ended.
#include <algorithm>

#include "core.hpp"

namespace weft {

Core::Cancelled Core::cancel(Entry* entry, bool force, bool recursive) {
    if (!entry->owned && !entry->is_done()) {
        struct {
            Id id;
            uint32_t how, reserved;
        } body{entry->id, (force ? 1u : 0u) | (recursive ? 2u : 0u), 0};
        send(entry->owner, Kind::CANCEL_OBJECT, &body, sizeof body);
        return Cancelled::asked;
    }
    Task* task = task_at(entry->cookie);
    if (entry->cookie == 0 || task == nullptr || entry->is_done()) return Cancelled::too_late;
    if (force && task->actor != nullptr) return Cancelled::refused;
    task->cancelled = true;
    task->retries = 0;
    const std::string error =
        error_value(ErrorCode::cancelled, "task " + task->name + " was cancelled before it started");
    if (task->missing != 0) {
        for (Entry* dep : task->deps)
            if (dep->extra) std::erase(dep->extra->dependents, task);
        ActorLink* behind = task->actor;
        if (behind != nullptr) std::erase(behind->queue, task);
        fail_task(task, error);
        if (behind != nullptr) flush_actor(behind);
        return Cancelled::done;
    }
    ProcessId where{};
    if (task->actor != nullptr) {
        if (std::erase(task->actor->queue, task) != 0) {
            fail_task(task, error);
            return Cancelled::done;
        }
        where = task->actor->where;
    } else if (task->lease == nullptr) {
        Shape* shape = task->shape;
        std::erase(shape->queue, task);
        fail_task(task, error);
        pump_shape(shape);
        return Cancelled::done;
    } else {
        where = task->lease->worker;
    }
    struct {
        uint64_t cookie;
        uint32_t how, reserved;
    } body{task->cookie(), (force ? 1u : 0u) | (recursive ? 2u : 0u), 0};
    send(where, Kind::CANCEL, &body, sizeof body);
    return Cancelled::asked;
}

void Core::cancel_children(Id parent, bool force) {
    std::vector<Entry*> mine;
    for (auto& task : tasks_)
        if (task->parent == parent && !task->returns.empty() && task->returns[0] != nullptr &&
            task->kept_for == 0)
            mine.push_back(task->returns[0]);
    for (Entry* entry : mine)
        cancel(entry, force, true);
}

bool Core::cancel_incoming(ProcessId from, uint64_t cookie) {
    const auto it = std::find_if(inbox_.begin(), inbox_.end(), [&](const Incoming& in) {
        return in.from == from && reinterpret_cast<const TaskHeader*>(in.bytes.data())->cookie == cookie;
    });
    if (it == inbox_.end()) return false;
    discard_task(*it);
    inbox_.erase(it);
    inbox_changed();
    const std::string error = error_value(ErrorCode::cancelled, "the task was cancelled before it started");
    Buffer out;
    out.add(ReplyHeader{cookie, uint32_t(Status::cancelled), 0, 1, 0});
    out.add(PackedValue{Where::error, 0, error.size()});
    out.append(error.data(), error.size());
    send(from, Kind::REPLY, out.data(), out.size());
    return true;
}

}  // namespace weft
