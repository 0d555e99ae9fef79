#include "leases.hpp"

#include <algorithm>

#include "definitions.hpp"
#include "streams.hpp"
#include "submitter.hpp"
#include "tasks.hpp"

namespace weft {

namespace {

/// A worker is given what it is expected to finish in about this time.
constexpr int64_t kPipelineNs = 1'000'000;
constexpr size_t kPipelineTasks = 512;
/// Waking a second worker costs about as much as this much queued work on the first.
constexpr int64_t kWorthAnotherWorkerNs = 30'000;
constexpr uint32_t kMostLeasesAsked = 4096;
constexpr int64_t kIdleLeaseNs = 50'000'000;
/// While tasks of another shape wait, perhaps for what this lease holds. Longer than from one call to the
/// next.
constexpr int64_t kIdleLeaseNsWhileOthersWait = 2'000'000;
/// An input that is worth running a task where it is.
constexpr uint64_t kLargeInput = 1 << 20;
/// Tasks of a queue that are looked at when a worker's node matters.
constexpr size_t kLookedAt = 256;

}  // namespace

Shape* Leases::shape(uint32_t id) {
    std::unique_ptr<Shape>& place = shapes_[id];
    if (!place) {
        place = std::make_unique<Shape>();
        place->id = id;
    }
    return place.get();
}

void Leases::enqueue(Task* task) {
    if (!task->shape->refusal.empty()) return submitter_.fail_task(task, task->shape->refusal);
    if (!task->deps.empty() && (task->near = near(task)) != 0) task->shape->is_far = true;
    task->shape->queue.push_back(task);
    pump_shape(task->shape);
}

void Leases::enqueue_again(Task* task) {
    task->shape->queue.push_front(task);
    pump_shape(task->shape);
}

Lease* Leases::pick(Shape* shape, const Task* task) {
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

void Leases::pump_shape(Shape* shape) {
    if (shape->is_far) return pump_far(shape);
    while (!shape->queue.empty()) {
        Task* task = shape->queue.front();
        Lease* lease = pick(shape, task);
        if (lease == nullptr) break;
        shape->queue.pop_front();
        if (task->deps.empty() || submitter_.has_arguments(task)) push(lease, task);
    }
    ask_leases(shape, {});
}

void Leases::set_asked(Shape* shape, uint32_t count) {
    shapes_asking_ += int(count != 0) - int(shape->asked != 0);
    shape->asked = count;
}

/// `near`: nodes (number + 1) that tasks of the queue would rather run on, once for each task.
void Leases::ask_leases(Shape* shape, const std::vector<uint32_t>& near) {
    const auto wanted = uint32_t(std::min<size_t>(shape->queue.size(), kMostLeasesAsked));
    const bool more = wanted > shape->asked && (shape->asked == 0 || wanted >= 2 * shape->asked);
    if (!more && !(wanted == 0 && shape->asked != 0)) return;
    set_asked(shape, wanted);
    Buffer body;
    body.add(records::LeaseRequest{shape->id, wanted});
    for (size_t i = 0; i < near.size() && i < wanted; ++i)
        body.add(near[i] - 1);
    endpoint_.send_daemon(Kind::LEASE_REQUEST, body.data(), body.size());
}

void Leases::push(Lease* lease, Task* task) {
    task->lease = lease;
    lease->used = true;
    task->expected_ns = std::max<int64_t>(0, task->function->estimate_ns);
    lease->flight.push_back(task);
    lease->expected_ns += task->expected_ns;
    definitions_.send_function(lease->worker, task->function);
    if (task->flags & kStreaming) streams_.aim(task);
    submitter_.write_task(lease->worker, task, Kind::TASK);
    if (task->flags & kStreaming) streams_.start_stream(task);
}

// ---- tasks whose large inputs are on other nodes ------------------------------------------------

uint32_t Leases::near(const Task* task) const {
    uint32_t best = 0;
    uint64_t most = 0;
    for (const Entry* entry : task->deps) {
        if (entry->where != Where::arena || entry->arena.bytes < kLargeInput) continue;
        const uint32_t node = endpoint_.arena.node_of(entry->arena);
        if (std::ranges::find(task->shape->unfit, node) != task->shape->unfit.end()) continue;
        uint64_t bytes = 0;
        for (const Entry* other : task->deps)
            if (other->where == Where::arena && endpoint_.arena.node_of(other->arena) == node)
                bytes += other->arena.bytes;
        if (bytes > most) {
            most = bytes;
            best = node;
        }
    }
    return best;
}

uint32_t Leases::node_of(const Lease* lease) const {
    return endpoint_.segment.node_of(lease->worker.slot);
}

/// The node that has the inputs cannot run them, or is not known to the daemon: they take any worker, those
/// that are leased already before all. Else an idle lease on the one node that can run them is left idle
/// until it is returned. Who has a worker on that node knows better.
void Leases::on_not_near(Cursor cursor) {
    const auto refusal = cursor.take<records::NotNear>();
    Shape* told = shape(refusal.shape);
    const uint32_t node = refusal.node + 1;
    const bool for_good = refusal.for_good != 0;
    const auto is_there = [&](const Lease* lease) { return !lease->revoked && node_of(lease) == node; };
    if (!for_good && std::ranges::any_of(told->leases, is_there)) return;
    if (for_good && std::ranges::find(told->unfit, node) == told->unfit.end()) told->unfit.push_back(node);
    size_t looked = 0;
    for (Task* task : told->queue) {
        if (looked++ == kLookedAt) break;
        if (task->near == node) task->near = 0;
    }
    pump_shape(told);
}

/// Each task waits for a worker of the node that has its inputs, or takes one that was granted elsewhere for
/// want of room there.
void Leases::pump_far(Shape* shape) {
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
        std::vector<Task*> rest;
        near.clear();
        is_far = false;
        for (size_t looked = 0; !shape->queue.empty() && looked < kLookedAt; ++looked) {
            Task* task = shape->queue.front();
            shape->queue.pop_front();
            if (Lease* lease = idle(task, anywhere)) {
                if (submitter_.has_arguments(task)) push(lease, task);
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

// ---- leases -------------------------------------------------------------------------------------

void Leases::on_grant(Cursor cursor) {
    const auto grant = cursor.take<records::LeaseGrant>();
    auto lease = std::make_unique<Lease>();
    lease->id = grant.lease;
    lease->shape = shape(grant.shape);
    lease->worker = grant.worker;
    if (leases_.contains(lease->id)) throw Malformed("it grants a lease that is held already");
    lease->idle_since_ns = endpoint_.now_ns();
    Shape* shape = lease->shape;
    if (shape->asked > 0) set_asked(shape, shape->asked - 1);
    shape->leases.push_back(lease.get());
    lease_at_[lease->worker.key()] = lease->id;
    leases_.emplace(lease->id, std::move(lease));
    pump_shape(shape);
}

void Leases::return_lease(Lease* lease) {
    std::erase(lease->shape->leases, lease);
    endpoint_.send_daemon(Kind::LEASE_RETURN, &lease->id, sizeof lease->id);
    forget_lease(lease);
}

void Leases::forget_lease(const Lease* lease) {
    if (const auto it = lease_at_.find(lease->worker.key()); it != lease_at_.end() && it->second == lease->id)
        lease_at_.erase(it);
    leases_.erase(lease->id);
}

void Leases::on_revoke(uint64_t id) {
    const auto it = leases_.find(id);
    if (it == leases_.end()) return;
    it->second->revoked = true;
    if (it->second->flight.empty()) return_lease(it->second.get());
}

void Leases::on_refused(Cursor cursor) {
    const auto [number, only_now] = cursor.take<records::ShapeRefused>();
    Shape* refused = shape(number);
    const bool is_for_good = only_now == 0;
    const std::string refusal(cursor.rest());
    if (is_for_good) refused->refusal = refusal;
    set_asked(refused, 0);
    for (Task* task : refused->queue.take_all())
        submitter_.fail_task(task, refusal);
}

void Leases::worker_died(const PeerDeath& death, const std::string& reason) {
    if (const auto lease = lease_at_.find(death.dead.key()); lease != lease_at_.end())
        lease_lost(leases_.at(lease->second).get(), death, reason);
}

void Leases::lease_lost(Lease* lease, const PeerDeath& death, const std::string& reason) {
    const std::vector<Task*> flight = lease->flight.take_all();
    Shape* shape = lease->shape;
    std::erase(shape->leases, lease);
    forget_lease(lease);
    const bool for_memory = death.cause == DeathCause::stopped_for_memory;
    // The first one ran; the others had not started and lose nothing.
    for (auto it = flight.rbegin(); it != flight.rend(); ++it) {
        Task* task = *it;
        task->lease = nullptr;
        const bool ran = std::next(it) == flight.rend();
        if (!shape->refusal.empty()) {  // its worker was ended with what it was placed in
            submitter_.fail_task(task, shape->refusal);
            continue;
        }
        if ((ran || task->cancelled) && !submitter_.retry(task)) {
            if (task->cancelled) {
                submitter_.fail_task(
                    task, error_value(ErrorCode::cancelled, "task " + task->name + " was cancelled"));
                continue;
            }
            submitter_.fail_task(
                task,
                error_value(for_memory ? ErrorCode::stopped_for_memory : ErrorCode::worker_crashed,
                            "task " + task->name + " (attempt " + std::to_string(task->header().attempt + 1) +
                                ") lost its worker: " + reason +
                                ". Its retries are used up (max_retries). If the worker was "
                                "killed for memory, ask for more with .options(memory=...)."));
            continue;
        }
        if (ran && for_memory) {
            const records::WantsMemory body{task->cookie(), shape->id, 0, death.peak_bytes};
            endpoint_.push_event({kWantsMemory, {reinterpret_cast<const char*>(&body), sizeof body}});
            continue;
        }
        shape->queue.push_front(task);
    }
    pump_shape(shape);
}

void Leases::retry_in(uint64_t cookie, uint32_t number) {
    Task* task = tasks_.task_at(cookie);
    if (task == nullptr) return;  // it was cancelled meanwhile
    task->shape = shape(number);
    if (!task->shape->refusal.empty()) return submitter_.fail_task(task, task->shape->refusal);
    task->shape->queue.push_front(task);
    pump_shape(task->shape);
}

void Leases::leave_flight(Task* task) {
    Lease* lease = std::exchange(task->lease, nullptr);
    lease->flight.erase(task);
    if (!lease->flight.empty()) {
        lease->expected_ns = std::max<int64_t>(0, lease->expected_ns - task->expected_ns);
        return;
    }
    lease->expected_ns = 0;
    lease->blocked = false;
    if (lease->revoked)
        return_lease(lease);
    else if (lease->shape->queue.empty() || lease->shape->is_far)
        lease->idle_since_ns = endpoint_.now_ns();
}

void Leases::on_handback(ProcessId from, Cursor cursor) {
    std::vector<Task*> back, cancelled;
    Shape* shape = nullptr;
    while (cursor.left() >= sizeof(uint64_t)) {
        Task* task = tasks_.task_at(cursor.take<uint64_t>());
        if (task == nullptr || task->lease == nullptr || task->lease->worker != from) continue;
        Lease* lease = task->lease;
        shape = lease->shape;
        lease->blocked = true;
        leave_flight(task);
        (task->cancelled ? cancelled : back).push_back(task);
    }
    // The word that they are cancelled found them there no more.
    for (Task* task : cancelled)
        submitter_.fail_task(task, error_value(ErrorCode::cancelled,
                                               "task " + task->name + " was cancelled before it started"));
    if (shape == nullptr) return;
    for (auto it = back.rbegin(); it != back.rend(); ++it)
        (*it)->shape->queue.push_front(*it);
    pump_shape(shape);
}

int64_t Leases::return_idle() {
    int64_t due = -1;
    const int64_t now = leases_.empty() ? 0 : endpoint_.now_ns();
    const int64_t limit = shapes_asking_ == 0 ? kIdleLeaseNs : kIdleLeaseNsWhileOthersWait;
    std::vector<Lease*> idle;
    for (auto& [id, lease] : leases_) {
        // Tasks that would rather run elsewhere leave it idle, and it may hold the only CPU that they can
        // have.
        if (!lease->flight.empty() || (!lease->shape->queue.empty() && !lease->shape->is_far)) continue;
        const int64_t left = lease->idle_since_ns + limit - now;
        if (left <= 0)
            idle.push_back(lease.get());
        else
            due = due < 0 ? left : std::min(due, left);
    }
    for (Lease* lease : idle)
        return_lease(lease);
    return due;
}

}  // namespace weft
