/// Submitting: from a task to a leased worker or an actor, and back from its reply (SUB-1).
#include <algorithm>
#include <cstring>
#include <ranges>

#include "core.hpp"

namespace weft {

namespace {

/// A worker is given what it is expected to finish in about this time.
constexpr int64_t kPipelineNs = 1'000'000;
constexpr size_t kPipelineTasks = 512;
/// Waking a second worker costs about as much as this much queued work on the first.
constexpr int64_t kWorthAnotherWorkerNs = 30'000;
constexpr uint32_t kMostLeasesAsked = 4096;
/// So many tasks of a chain are named between the one that failed and the one that is asked for.
constexpr int kLongestStory = 16;
/// So many inputs of a task are recorded one by one; all of them are counted.
constexpr size_t kRecordedInputs = 16;

/// The rest of a story behind its first task; the whole error when it is not one.
std::string_view behind_first(std::string_view error) {
    uint16_t bytes = 0;
    if (error.size() < 1 + sizeof bytes || error[0] != 'D') return error;
    memcpy(&bytes, error.data() + 1, sizeof bytes);
    return error.substr(std::min(error.size(), 1 + sizeof bytes + bytes));
}

/// A task did not run because an argument's task raised: 'D', its name, and the argument's error. What the
/// engine itself says of a dead process stays as it is. In a long chain the last task's name replaces the one
/// before.
std::string dependency_error(std::string_view task, std::string_view error) {
    if (error.empty() || (error[0] != 'P' && error[0] != 'D')) return std::string(error);
    int depth = 0;
    for (std::string_view rest = error; !rest.empty() && rest[0] == 'D'; rest = behind_first(rest))
        ++depth;
    if (depth >= kLongestStory) error = behind_first(error);
    const auto bytes = uint16_t(std::min<size_t>(task.size(), 0xffff));
    std::string story(1, 'D');
    story.append(reinterpret_cast<const char*>(&bytes), sizeof bytes);
    story.append(task.substr(0, bytes));
    return story.append(error);
}

}  // namespace

Shape* Core::shape(uint32_t id) {
    if (shapes_.size() <= id) shapes_.resize(id + 1);
    if (!shapes_[id]) {
        shapes_[id] = std::make_unique<Shape>();
        shapes_[id]->id = id;
    }
    return shapes_[id].get();
}

Task* Core::new_task() {
    if (free_tasks_.empty()) {
        tasks_.push_back(std::make_unique<Task>());
        tasks_.back()->index = uint32_t(tasks_.size() - 1);
        tasks_.back()->generation = 1;
        return tasks_.back().get();
    }
    Task* task = tasks_[free_tasks_.back()].get();
    free_tasks_.pop_back();
    return task;
}

Task* Core::task_at(uint64_t cookie) {
    const auto index = uint32_t(cookie);
    if (index >= tasks_.size()) return nullptr;
    Task* task = tasks_[index].get();
    return task->generation == uint32_t(cookie >> 32) ? task : nullptr;
}

/// The task is over; its record and holds go.
void Core::finish_task(Task* task) {
    ++task->generation;
    for (Entry* entry : task->deps)
        drop_locked(entry);
    for (Entry* entry : task->nested)
        drop_locked(entry);
    for (Entry* entry : task->returns) {
        if (entry == nullptr) continue;
        entry->cookie = 0;
        drop_locked(entry);
    }
    if (task->actor_entry != nullptr) drop_locked(task->actor_entry);
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
    free_tasks_.push_back(task->index);
}

void Core::fail_task(Task* task, std::string_view error) {
    for (Entry* entry : task->returns)
        if (entry != nullptr) fail(entry, error);
    if ((task->flags & kStreaming) && !task->returns.empty()) wake_stream(stream_of(task->returns[0]));
    finish_task(task);
}

// ---- from submission to a worker -------------------------------------------------------------------

void Core::record_submission(const Task* task) {
    if (!log_.counts(Tally::submitted, task->id)) return;
    Event event;
    event.at_ns = now_ns();
    event.duration_ns = 0;
    event.task = task->id;
    event.other = task->parent;
    event.bytes = task->record.size();
    event.kind = EventKind::SUBMITTED;
    event.status = 0;
    event.attempt = 0;
    event.count = uint32_t(task->deps.size());
    log_.record(event, task->name);
    event.kind = EventKind::USES;
    for (size_t i = 0; i < std::min(task->deps.size(), kRecordedInputs); ++i) {
        event.other = task->deps[i]->id;
        log_.record(event, {});
    }
}

void Core::submit(Task* task) {
    ++submitted_;
    record_submission(task);
    if (is_lost()) return fail_task(task, node_lost_error());
    task->header().cookie = task->cookie();
    for (Entry* entry : task->returns)
        entry->cookie = task->cookie();
    for (Entry* entry : task->deps)
        fetch(entry);  // which fails it at once when its owner is dead
    wait_for_arguments(task);
}

void Core::dependency_done(Task* task) {
    if (--task->missing == 0) enqueue(task);
}

/// All dependencies are there (or failed: then so does the task).
void Core::enqueue(Task* task) {
    for (Entry* entry : task->deps) {
        if (entry->where != Where::error) continue;
        if (task->actor != nullptr) std::erase(task->actor->queue, task);
        ActorLink* behind = task->actor;
        if (task->flags & kIsCreation) return fail_creation(task, std::string(entry->value.view()));
        fail_task(task, dependency_error(task->name, entry->value.view()));
        if (behind != nullptr) flush_actor(behind);
        return;
    }
    if (task->flags & kIsCreation) {
        Buffer out;
        out.add(uint32_t(task->spec.size()));
        out.append(task->spec.data(), task->spec.size());
        send_function(daemon_, task->function);
        out.append(task->record.data(), task->record.size());
        for (Entry* entry : task->deps)
            pack_value(out, entry, daemon_);
        send(daemon_, Kind::CREATE_ACTOR, out.data(), out.size());
        // Held until the actor is dead: a restart needs the arguments again.
        return;
    }
    if (task->actor != nullptr) return flush_actor(task->actor);
    if (!task->shape->refusal.empty()) return fail_task(task, task->shape->refusal);
    if (!task->deps.empty() && (task->near = near(task)) != 0) task->shape->is_far = true;
    task->shape->queue.push_back(task);
    pump_shape(task->shape);
}

Lease* Core::pick(Shape* shape, const Task* task) {
    Lease* best = nullptr;
    const int64_t estimate = task->function->estimate_ns;
    for (Lease* lease : shape->leases) {
        if (lease->revoked || lease->blocked) continue;
        if (!lease->flight.empty()) {
            if (estimate < 0 || lease->expected_ns + estimate > kPipelineNs) continue;
            if (lease->flight.size() >= kPipelineTasks) continue;
            if (lease->expected_ns < kWorthAnotherWorkerNs) return lease;
        }
        if (best == nullptr || lease->expected_ns < best->expected_ns) best = lease;
        if (lease->flight.empty()) return lease;
    }
    return best;
}

void Core::pump_shape(Shape* shape) {
    if (shape->is_far) return pump_far(shape);
    while (!shape->queue.empty()) {
        Task* task = shape->queue.front();
        Lease* lease = pick(shape, task);
        if (lease == nullptr) break;
        shape->queue.pop_front();
        if (task->deps.empty() || has_arguments(task)) push(lease, task);
    }
    ask_leases(shape, {});
}

/// `near`: nodes (number + 1) that tasks of the queue would rather run on, once for each task.
void Core::ask_leases(Shape* shape, const std::vector<uint32_t>& near) {
    const auto wanted = uint32_t(std::min<size_t>(shape->queue.size(), kMostLeasesAsked));
    const bool more = wanted > shape->asked && (shape->asked == 0 || wanted >= 2 * shape->asked);
    if (!more && !(wanted == 0 && shape->asked != 0)) return;
    shape->asked = wanted;
    Buffer body;
    body.add(shape->id);
    body.add(wanted);
    for (size_t i = 0; i < near.size() && i < wanted; ++i)
        body.add(near[i] - 1);
    send(daemon_, Kind::LEASE_REQUEST, body.data(), body.size());
}

// ---- tasks whose large inputs are on other nodes ---------------------------------------------------

namespace {
/// An input that is worth running a task where it is.
constexpr uint64_t kLargeInput = 1 << 20;
/// Tasks of a queue that are looked at when a worker's node matters.
constexpr size_t kLookedAt = 256;
}  // namespace

uint32_t Core::near(const Task* task) const {
    uint32_t best = 0;
    uint64_t most = 0;
    for (const Entry* entry : task->deps) {
        if (entry->where != Where::arena || entry->arena.bytes < kLargeInput) continue;
        const uint32_t node = arena_.node_of(entry->arena);
        if (std::ranges::find(task->shape->unfit, node) != task->shape->unfit.end()) continue;
        uint64_t bytes = 0;
        for (const Entry* other : task->deps)
            if (other->where == Where::arena && arena_.node_of(other->arena) == node)
                bytes += other->arena.bytes;
        if (bytes > most) {
            most = bytes;
            best = node;
        }
    }
    return best;
}

uint32_t Core::node_of(const Lease* lease) const {
    return segment_->slot(lease->worker.slot).node.load(std::memory_order_relaxed);
}

/// The node that has the inputs can not run them, or is not known to the daemon: they take any worker, those
/// that are leased already before all. Else an idle lease on the one node that can run them is left idle
/// until it is returned. Who has a worker on that node knows better.
void Core::on_not_near(Cursor cursor) {
    Shape* told = shape(cursor.take<uint32_t>());
    const uint32_t node = cursor.take<uint32_t>() + 1;
    const bool for_good = cursor.take<uint32_t>() != 0;
    const auto is_there = [&](const Lease* lease) { return !lease->revoked && node_of(lease) == node; };
    if (!for_good && std::ranges::any_of(told->leases, is_there)) return;
    if (for_good && std::ranges::find(told->unfit, node) == told->unfit.end()) told->unfit.push_back(node);
    for (Task* task : told->queue | std::views::take(kLookedAt))
        if (task->near == node) task->near = 0;
    pump_shape(told);
}

/// Each task waits for a worker of the node that has its inputs, or takes one that was granted elsewhere for
/// want of room there.
void Core::pump_far(Shape* shape) {
    std::vector<uint32_t> near;
    bool is_far = false;
    const auto idle = [&](const Task* task, bool anywhere) -> Lease* {
        if (!anywhere && task->near == 0) return pick(shape, task);
        for (Lease* lease : shape->leases)
            if (!lease->revoked && !lease->blocked && lease->flight.empty() &&
                (node_of(lease) == task->near || (anywhere && !lease->used)))
                return lease;
        return nullptr;
    };
    for (const bool anywhere : {false, true}) {
        std::deque<Task*> rest;
        near.clear();
        is_far = false;
        for (size_t looked = 0; !shape->queue.empty() && looked < kLookedAt; ++looked) {
            Task* task = shape->queue.front();
            shape->queue.pop_front();
            if (Lease* lease = idle(task, anywhere)) {
                if (has_arguments(task)) push(lease, task);
                continue;
            }
            rest.push_back(task);
            if (task->near == 0) continue;
            is_far = true;
            near.push_back(task->near);
        }
        is_far = is_far || !shape->queue.empty();
        for (; !rest.empty(); rest.pop_back())
            shape->queue.push_front(rest.back());
    }
    shape->is_far = is_far;
    ask_leases(shape, near);
}

void Core::push(Lease* lease, Task* task) {
    task->lease = lease;
    lease->used = true;
    task->expected_ns = std::max<int64_t>(0, task->function->estimate_ns);
    lease->flight.push_back(task);
    lease->expected_ns += task->expected_ns;
    send_function(lease->worker, task->function);
    write_task(lease->worker, task, Kind::TASK);
    if (task->flags & kStreaming) send_credit(task, stream_of(task->returns[0]));
}

void Core::write_task(ProcessId to, Task* task, Kind kind) {
    for (Entry* entry : task->nested)
        lend_ref(entry, to);
    static thread_local Buffer with_values;
    const char* data = task->record.data();
    size_t bytes = task->record.size();
    if (!task->deps.empty()) {
        with_values.clear();
        with_values.append(data, bytes);
        for (Entry* entry : task->deps)
            pack_value(with_values, entry, to);
        data = with_values.data();
        bytes = with_values.size();
    }
    if (lost_.load(std::memory_order_relaxed)) return;
    // It may have died since it was granted or found: without a word of it the task would wait for ever.
    if (!channels_.send(to, kind, data, bytes)) channels_.found_dead(to);
}

// ---- leases ----------------------------------------------------------------------------------------

void Core::on_grant(Cursor cursor) {
    auto lease = std::make_unique<Lease>();
    lease->id = cursor.take<uint64_t>();
    lease->shape = shape(cursor.take<uint32_t>());
    lease->worker = cursor.take<ProcessId>();
    lease->idle_since_ns = now_ns();
    Shape* shape = lease->shape;
    if (shape->asked > 0) --shape->asked;
    shape->leases.push_back(lease.get());
    leases_.emplace(lease->id, std::move(lease));
    pump_shape(shape);
}

void Core::return_lease(Lease* lease) {
    std::erase(lease->shape->leases, lease);
    send(daemon_, Kind::LEASE_RETURN, &lease->id, sizeof lease->id);
    leases_.erase(lease->id);
}

void Core::on_revoke(uint64_t id) {
    const auto it = leases_.find(id);
    if (it == leases_.end()) return;
    it->second->revoked = true;
    if (it->second->flight.empty()) return_lease(it->second.get());
}

void Core::on_refused(Cursor cursor) {
    Shape* refused = shape(cursor.take<uint32_t>());
    cursor.take<uint32_t>();
    refused->refusal = cursor.rest();
    refused->asked = 0;
    std::deque<Task*> queue = std::move(refused->queue);
    refused->queue.clear();
    for (Task* task : queue)
        fail_task(task, refused->refusal);
}

void Core::lease_lost(Lease* lease, const std::string& reason) {
    std::deque<Task*> flight = std::move(lease->flight);
    Shape* shape = lease->shape;
    std::erase(shape->leases, lease);
    leases_.erase(lease->id);
    const bool for_memory = reason.starts_with("stopped for memory: ");
    // The first one ran; the others had not started and lose nothing.
    for (auto it = flight.rbegin(); it != flight.rend(); ++it) {
        Task* task = *it;
        task->lease = nullptr;
        const bool ran = std::next(it) == flight.rend();
        if (!shape->refusal.empty()) {  // its worker was ended with what it was placed in
            fail_task(task, shape->refusal);
            continue;
        }
        if ((ran || task->cancelled) && !retry(task)) {
            if (task->cancelled) {
                fail_task(task, error_value(ErrorCode::cancelled, "task " + task->name + " was cancelled"));
                continue;
            }
            fail_task(
                task,
                error_value(for_memory ? ErrorCode::stopped_for_memory : ErrorCode::worker_crashed,
                            "task " + task->name + " (attempt " + std::to_string(task->header().attempt + 1) +
                                ") lost its worker: " + reason +
                                ". Its retries are used up (max_retries). If the worker was "
                                "killed for memory, ask for more with .options(memory=...)."));
            continue;
        }
        if (ran && for_memory) {
            Buffer body;
            body.add(task->cookie());
            body.add(shape->id);
            body.add(uint32_t(0));
            push_event({kWantsMemory, std::string(body.data(), body.size()) + reason});
            continue;
        }
        shape->queue.push_front(task);
    }
    pump_shape(shape);
}

void Core::retry_in(uint64_t cookie, uint32_t number) {
    Task* task = task_at(cookie);
    if (task == nullptr) return;  // it was cancelled meanwhile
    task->shape = shape(number);
    if (!task->shape->refusal.empty()) return fail_task(task, task->shape->refusal);
    task->shape->queue.push_front(task);
    pump_shape(task->shape);
}

bool Core::retry(Task* task) {
    if (task->retries == 0 || task->cancelled) return false;
    if (task->retries > 0) --task->retries;
    ++task->header().attempt;
    return true;
}

// ---- replies ---------------------------------------------------------------------------------------

void Core::on_reply(Cursor cursor) {
    const auto reply = cursor.take<ReplyHeader>();
    Task* task = task_at(reply.cookie);
    if (task == nullptr) return discard_values(cursor, reply.values, true);
    if (ActorLink* link = task->actor) {
        if (!link->flight.empty() && link->flight.front() == task)
            link->flight.pop_front();
        else if (std::erase(link->flight, task) == 0)
            return discard_values(cursor, reply.values, true);  // its incarnation was given up
        return settle(task, reply, cursor);
    }
    Lease* lease = task->lease;
    if (lease == nullptr) return discard_values(cursor, reply.values, true);
    Function* function = task->function;
    const auto took = int64_t(reply.duration_ns);
    function->estimate_ns =
        took >= function->estimate_ns ? took : function->estimate_ns - (function->estimate_ns - took) / 8;
    Shape* shape = lease->shape;
    lease->blocked = false;
    leave_flight(task);
    if (!shape->queue.empty()) pump_shape(shape);
    settle(task, reply, cursor);
}

/// The worker has answered the task or handed it back. A lease that was asked back goes with its last one.
void Core::leave_flight(Task* task) {
    Lease* lease = std::exchange(task->lease, nullptr);
    if (lease->flight.front() == task)
        lease->flight.pop_front();
    else
        std::erase(lease->flight, task);
    if (!lease->flight.empty()) {
        lease->expected_ns = std::max<int64_t>(0, lease->expected_ns - task->expected_ns);
        return;
    }
    lease->expected_ns = 0;
    lease->blocked = false;
    if (lease->revoked)
        return_lease(lease);
    else if (lease->shape->queue.empty() || lease->shape->is_far)
        lease->idle_since_ns = now_ns();
}

/// Take the results over, or try again.
void Core::settle(Task* task, const ReplyHeader& reply, Cursor cursor) {
    const auto status = Status(reply.status);
    if (status == Status::lost) return arguments_lost(task);
    if (status == Status::retry && retry(task)) {
        discard_values(cursor, reply.values, true);
        return resend(task);
    }
    // One error stands for all returns.
    const bool error_for_all = status != Status::ok && reply.values == 1 && task->returns.size() > 1;
    std::string error;
    for (uint32_t i = 0; i < reply.values && i < task->returns.size(); ++i) {
        Entry* entry = task->returns[i];
        if (entry == nullptr || (entry->is_done() && entry->where != Where::none)) {
            discard_values(cursor, 1, true);  // it was made again for the sake of another
            continue;
        }
        const auto value = cursor.take<PackedValue>();
        std::vector<Entry*> nested = unpack_refs(cursor, value.nested, false);
        publish_inner(entry, std::move(nested));
        const char* data = cursor.skip(value.bytes);
        if (value.where == Where::arena) {
            ArenaRef arena;
            memcpy(&arena, data, sizeof arena);
            arena_.accept(arena);
            complete(entry, Where::arena, nullptr, 0, arena);
        } else {
            if (error_for_all) error.assign(data, value.bytes);
            complete(entry, value.where, data, value.bytes, {});
        }
    }
    if (task->flags & kStreaming) wake_stream(stream_of(task->returns[0]));
    if (error_for_all)
        for (size_t i = 1; i < task->returns.size(); ++i)
            if (task->returns[i] != nullptr) fail(task->returns[i], error);
    if (can_make_again(task)) return keep(task);
    finish_task(task);
}

void Core::resend(Task* task) {
    if (task->actor != nullptr) {
        // In front: a later call may depend on this one.
        task->actor->queue.push_front(task);
        return flush_actor(task->actor);
    }
    task->shape->queue.push_front(task);
    pump_shape(task->shape);
}

void Core::on_handback(Cursor cursor) {
    std::vector<Task*> back;
    Shape* shape = nullptr;
    while (cursor.left() >= sizeof(uint64_t)) {
        Task* task = task_at(cursor.take<uint64_t>());
        if (task == nullptr || task->lease == nullptr) continue;
        Lease* lease = task->lease;
        shape = lease->shape;
        lease->blocked = true;
        leave_flight(task);
        back.push_back(task);
    }
    if (shape == nullptr) return;
    for (auto it = back.rbegin(); it != back.rend(); ++it)
        (*it)->shape->queue.push_front(*it);
    pump_shape(shape);
}

void Core::ask_restore(uint64_t key) {
    ++restoring[key].askers;
    send(daemon_, Kind::RESTORE, &key, sizeof key);
}

void Core::end_restore(uint64_t key) {
    const auto it = restoring.find(key);
    if (--it->second.askers == 0) restoring.erase(it);
}

uint64_t Core::ask_space(uint64_t bytes) {
    const uint64_t number = ++last_space_request;
    space_requests[number] = {};
    const uint64_t body[] = {bytes, number};
    send(daemon_, Kind::NEED_SPACE, body, sizeof body);
    return number;
}

}  // namespace weft
