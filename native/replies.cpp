/// A task's way back to its submitter: its reply, what becomes of its results, whether it is tried again, and
/// its end.
#include <cstring>

#include "actor_links.hpp"
#include "borrowing.hpp"
#include "definitions.hpp"
#include "leases.hpp"
#include "lineage.hpp"
#include "objects.hpp"
#include "streams.hpp"
#include "submitter.hpp"
#include "tasks.hpp"

namespace weft {

bool Submitter::runs_at(const Task* task, ProcessId worker) {
    if (task->actor != nullptr) return task->actor->where == worker;
    return task->lease != nullptr && task->lease->worker == worker;
}

void Submitter::fail_in_flight(Task* task, const std::string& error) {
    if (task->actor != nullptr) {
        if (!task->actor->flight.contains(task)) return;  // its incarnation was given up
        task->actor->flight.erase(task);
        return fail_task(task, error);
    }
    Shape* shape = task->lease->shape;
    leases_.leave_flight(task);
    fail_task(task, error);
    if (!shape->queue.empty()) leases_.pump_shape(shape);
}

void Submitter::on_reply(ProcessId from, Cursor cursor) {
    const auto reply = cursor.take<ReplyHeader>();
    Task* task = tasks_.task_at(reply.cookie);
    if (task == nullptr || !runs_at(task, from)) return borrowing_.discard_values(cursor, reply.values, true);
    if (ActorLink* link = task->actor) {
        if (!link->flight.contains(task))
            return borrowing_.discard_values(cursor, reply.values, true);  // its incarnation was given up
        link->flight.erase(task);
        return settle(task, reply, cursor);
    }
    Lease* lease = task->lease;
    Function* function = task->function;
    const auto took = int64_t(reply.duration_ns);
    function->estimate_ns =
        took >= function->estimate_ns ? took : function->estimate_ns - (function->estimate_ns - took) / 8;
    Shape* shape = lease->shape;
    lease->blocked = false;
    leases_.leave_flight(task);
    if (!shape->queue.empty()) leases_.pump_shape(shape);
    settle(task, reply, cursor);
}

/// Take the results over, or try again.
void Submitter::settle(Task* task, const ReplyHeader& reply, Cursor cursor) {
    const auto status = Status(reply.status);
    if (status == Status::lost && task->cancelled)
        return fail_task(task, error_value(ErrorCode::cancelled, "task " + task->name + " was cancelled"));
    if (status == Status::lost) return arguments_lost(task);
    if (status == Status::retry && retry(task)) {
        borrowing_.discard_values(cursor, reply.values, true);
        return resend(task);
    }
    if (task->is_stopped && stream_of(task) != nullptr && !stream_of(task)->closed && retry(task)) {
        borrowing_.discard_values(cursor, reply.values, true);
        return streams_.begin_stream_again(task);
    }
    // One error stands for all returns.
    const bool error_for_all = status != Status::ok && reply.values == 1 && task->returns.size() > 1;
    std::string error;
    if (error_for_all) {
        Cursor first = cursor;
        const auto value = first.take<PackedValue>();
        first.skip(value.nested * sizeof(PackedRef));
        if (value.where == Where::error) error = first.text(value.bytes);
    }
    if (error.empty() && reply.values < task->returns.size())
        error =
            error_value(ErrorCode::bad_record, "task " + task->name + " was answered without this result");
    for (uint32_t i = 0; i < reply.values && i < task->returns.size(); ++i) {
        Entry* entry = task->returns[i];
        if (entry == nullptr || (entry->is_done() && entry->where != Where::none)) {
            borrowing_.discard_values(cursor, 1, true);  // it was made again for the sake of another
            continue;
        }
        const auto value = cursor.take<PackedValue>();
        std::vector<Entry*> nested = borrowing_.unpack_refs(cursor, value.nested, false);
        objects_.publish_inner(entry, std::move(nested));
        const char* data = cursor.skip(value.bytes);
        if (value.where == Where::arena) {
            ArenaRef arena;
            memcpy(&arena, data, sizeof arena);
            endpoint_.arena.accept(arena);
            objects_.complete(entry, Where::arena, nullptr, 0, arena);
        } else {
            objects_.complete(entry, value.where, data, value.bytes, {});
        }
    }
    if (reply.values > task->returns.size())
        borrowing_.discard_values(cursor, reply.values - uint32_t(task->returns.size()), true);
    for (size_t i = reply.values; i < task->returns.size(); ++i)
        if (task->returns[i] != nullptr) objects_.fail(task->returns[i], error);
    if (task->flags & kStreaming) return streams_.end_stream(task);
    if (lineage_.can_make_again(task)) return lineage_.keep(task);
    finish_task(task);
}

void Submitter::resend(Task* task) {
    if (task->actor != nullptr) {
        // In front: a later call may depend on this one.
        task->actor->queue.push_front(task);
        return actors_.flush_actor(task->actor);
    }
    leases_.enqueue_again(task);
}

/// Its worker could not read an argument: it waits until all are there again.
void Submitter::arguments_lost(Task* task) {
    std::vector<Entry*> lost;
    for (Entry* entry : task->deps)
        if (objects_.is_lost_in_arena(entry)) lost.push_back(entry);
    for (Entry* entry : lost)
        if (objects_.is_lost_in_arena(entry)) lineage_.rebuild(entry);
    if (task->actor != nullptr) task->actor->queue.push_front(task);
    wait_for_arguments(task);
}

bool Submitter::retry(Task* task) {
    if (task->retries == 0 || task->cancelled) return false;
    if (task->retries > 0) --task->retries;
    ++task->header().attempt;
    task->next_item = 0;
    task->is_stopped = false;
    return true;
}

void Submitter::finish_task(Task* task) {
    tasks_.forget_cookie(task);
    for (Entry* entry : task->deps)
        objects_.drop_locked(entry);
    for (Entry* entry : task->nested)
        objects_.drop_locked(entry);
    for (Entry* entry : task->returns) {
        if (entry == nullptr) continue;
        entry->cookie = 0;
        objects_.drop_locked(entry);
    }
    if (task->actor_entry != nullptr) objects_.drop_locked(task->actor_entry);
    if (task->flags & kStreaming) Streams::abandon_items(task);
    task->deps.clear();
    task->nested.clear();
    task->returns.clear();
    task->name.clear();
    task->spec.clear();
    task->function = nullptr;
    task->shape = nullptr;
    task->lease = nullptr;
    task->actor = nullptr;
    task->actor_entry = nullptr;
    task->missing = 0;
    task->flags = 0;
    task->kept_for = 0;
    task->cancelled = false;
    if (task->record.size() > 4096)
        task->record.~Buffer(), new (&task->record) Buffer;
    else
        task->record.clear();
    tasks_.give_back(task);
}

void Submitter::fail_task(Task* task, std::string_view error) {
    for (Entry* entry : task->returns)
        if (entry != nullptr) objects_.fail(entry, error);
    if (task->flags & kStreaming) {
        streams_.wake_stream(stream_of(task));
        streams_.fail_items(task, error);
    }
    finish_task(task);
}

}  // namespace weft
