#include "virtual_process.hpp"

#include <algorithm>

namespace weft {

namespace {

/// All of them take part in one simulation and share no memory: a slot that is neither the daemon's nor the
/// relay's.
constexpr ProcessId kSelf{2, 1};
/// Numbers of processes are names of far slots, of which no part keeps an array.
constexpr ProcessId process(uint32_t number) {
    return {kFarSlots + number, 1};
}
Id task_id(uint64_t bunch, uint32_t index) {
    return {bunch, index};
}

}  // namespace

VirtualProcess::VirtualProcess(std::shared_ptr<Segment> unused, std::function<bool(uint32_t)> is_alive)
    : is_alive_(std::move(is_alive)),
      core_(std::move(unused), -1, kSelf, Id{}, false, static_cast<Outside*>(this)) {}

// ---- what it does ----------------------------------------------------------------------------------

/// The record of a call without arguments, as the Python layer leaves it in a task.
Task* VirtualProcess::draft(Id id, uint32_t flags, int32_t retries, Id actor) {
    Task* task = core_.tasks.new_task();
    TaskHeader header{};
    header.task = id;
    header.actor = actor;
    header.flags = flags;
    task->record.add(header);
    task->id = id;
    task->flags = flags;
    task->retries = retries;
    return task;
}

void VirtualProcess::submit(uint64_t bunch, uint32_t count, uint64_t function, uint32_t shape,
                            int32_t retries) {
    const std::lock_guard lock(core_.mutex());
    for (uint32_t index = 0; index < count; ++index) {
        const Id id = task_id(bunch, index);
        Task* task = draft(id, 0, retries, {});
        task->header().returns = 1;
        task->function = core_.definitions.define_function(function, {});
        task->shape = core_.leases.shape(shape);
        Entry* entry = core_.objects.new_entry(id.object(1));
        entry->holds.store(2);  // the task's, and one here
        task->returns.push_back(entry);
        const auto at = pending_.emplace(id, entry).first;
        core_.submitter.submit(task);
        settle(at);
    }
}

void VirtualProcess::create_actor(Id actor, std::string spec, Id id) {
    const std::lock_guard lock(core_.mutex());
    Task* task = draft(id, kIsCreation, 0, actor);
    task->spec = std::move(spec);
    Entry* entry = core_.objects.new_entry(actor);
    entry->is_actor = true;
    hold(entry);
    actors_.emplace(actor, entry);
    core_.actors.submit_creation(task);
}

void VirtualProcess::call(Id actor, uint64_t bunch, uint32_t count, int32_t retries) {
    const std::lock_guard lock(core_.mutex());
    Entry* callee = actors_.at(actor);
    for (uint32_t index = 0; index < count; ++index) {
        const Id id = task_id(bunch, index);
        Task* task = draft(id, kIsMethod, retries, actor);
        task->header().returns = 1;
        task->actor_entry = callee;
        hold(callee);
        Entry* entry = core_.objects.new_entry(id.object(1));
        entry->holds.store(2);
        task->returns.push_back(entry);
        const auto at = pending_.emplace(id, entry).first;
        core_.actors.submit_call(task, callee);
        settle(at);
    }
}

// ---- what it hears ---------------------------------------------------------------------------------

void VirtualProcess::hear(Kind kind, std::string_view bytes) {
    const std::lock_guard lock(core_.mutex());
    core_.handle(core_.endpoint.daemon, kind, bytes.data(), bytes.size());
    // These may end tasks of which they do not say which.
    if (kind != Kind::LEASE_GRANT && kind != Kind::LEASE_REVOKE) settle_all();
}

uint32_t VirtualProcess::answered(uint32_t worker, uint64_t bunch, const std::vector<uint32_t>& indices,
                                  int64_t took_ns) {
    const std::lock_guard lock(core_.mutex());
    const size_t before = done_.size();
    const auto duration = uint32_t(std::clamp<int64_t>(took_ns, 0, UINT32_MAX));
    for (const uint32_t index : indices) {
        const auto at = pending_.find(task_id(bunch, index));
        if (at == pending_.end()) continue;
        Buffer reply;
        reply.add(ReplyHeader{at->second->cookie, uint32_t(Status::ok), duration, 1, 0});
        reply.add(PackedValue{Where::inlined, 0, 0});
        core_.handle(process(worker), Kind::REPLY, reply.data(), reply.size());
        settle(at);
    }
    return uint32_t(done_.size() - before);
}

void VirtualProcess::handed_back(uint32_t worker, uint64_t bunch, const std::vector<uint32_t>& indices) {
    const std::lock_guard lock(core_.mutex());
    Buffer cookies;
    for (const uint32_t index : indices)
        if (const auto at = pending_.find(task_id(bunch, index)); at != pending_.end())
            cookies.add(at->second->cookie);
    core_.handle(process(worker), Kind::HANDBACK, cookies.data(), cookies.size());
}

int64_t VirtualProcess::return_idle() {
    const std::lock_guard lock(core_.mutex());
    return core_.leases.return_idle();
}

void VirtualProcess::settle(std::unordered_map<Id, Entry*, IdHash>::iterator at) {
    const auto [id, entry] = *at;
    if (!entry->is_done()) return;
    done_.push_back({id.high, uint32_t(id.low), entry->where == Where::error});
    pending_.erase(at);
    core_.objects.drop_locked(entry);
}

void VirtualProcess::settle_all() {
    std::vector<Id> over;
    for (const auto& [id, entry] : pending_)
        if (entry->is_done()) over.push_back(id);
    // In an order that depends on no hash.
    std::ranges::sort(over, {}, [](const Id& id) { return std::pair(id.high, id.low); });
    for (const Id& id : over)
        settle(pending_.find(id));
}

// ---- what it says ----------------------------------------------------------------------------------

void VirtualProcess::send(ProcessId to, Kind kind, const char* data, size_t bytes) {
    if (to.slot == kDaemonSlot) {
        // A definition means nothing here, and rings are its caller's.
        if (kind == Kind::FUNCTION || kind == Kind::PEER_DETACHED) return;
        sent_.push_back({0, uint16_t(kind), std::string(data, bytes), 0, {}});
        return;
    }
    if (kind != Kind::TASK) return;
    TaskHeader header;
    memcpy(&header, data, sizeof header);
    const uint32_t number = to.slot - kFarSlots;
    const auto [last, is_first] = last_sent_.try_emplace(number, sent_.size());
    if (is_first || sent_[last->second].bunch != header.task.high) {
        last->second = sent_.size();
        sent_.push_back({number, 0, {}, header.task.high, {}});
    }
    sent_[last->second].indices.push_back(uint32_t(header.task.low));
}

std::vector<VirtualSent> VirtualProcess::take_sent() {
    last_sent_.clear();
    return std::exchange(sent_, {});
}

}  // namespace weft
