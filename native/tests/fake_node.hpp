/// A node without Python: a daemon that the test plays itself, and drivers and workers that are bare Cores,
/// all in one process. Each Core has a mapping of the segment and threads of its own, as it would in a
/// process.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>

#include "check.hpp"
#include "core.hpp"
#include "inspection.hpp"
#include "node_port.hpp"

namespace weft::testing {

/// The daemon's part, called by the test's main thread only.
class FakeNode {
  public:
    explicit FakeNode(uint64_t arena_bytes = 4 << 20) : port(arena_bytes) {}

    std::unique_ptr<Core> join(bool is_worker) {
        const ProcessId id = port.reserve_slot();
        return std::make_unique<Core>(Segment::attach(port.segment_fd()), port.event_fd(), id,
                                      Id{0, id.slot}.child(id.generation), is_worker);
    }
    std::unique_ptr<Core> driver() { return join(false); }
    std::unique_ptr<Core> worker() { return join(true); }

    /// As kill -9 would: its threads stop wherever they are, and the daemon buries it and tells its peers.
    void kill(std::unique_ptr<Core>& core, std::vector<ProcessId> also_tell = {}, bool tell = true) {
        const ProcessId dead = core->self();
        core.reset();
        std::vector<ProcessId> told = port.mark_dead(dead);
        for (const ProcessId& id : also_tell)
            if (std::find(told.begin(), told.end(), id) == told.end()) told.push_back(id);
        for (const ProcessId& id : told)
            if (tell) tell_death(id, dead);
    }
    void tell_death(ProcessId to, ProcessId dead) {
        Buffer body;
        body.add(PeerDeath{dead});
        body.append("killed by the test", 18);
        port.send(to, Kind::PEER_DIED, body.data(), body.size());
        if (!port.is_proxy(to.slot)) settle_death(to, dead);
    }
    /// Nothing of it moves to anybody.
    void settle_death(ProcessId to, ProcessId dead) {
        Buffer body;
        body.add(uint32_t(1));
        body.add(uint32_t(0));
        body.add(dead);
        port.send(to, Kind::SETTLED, body.data(), body.size());
    }

    /// The next record of that kind; others of other kinds wait for who asks for them.
    Received expect(Kind kind) {
        std::optional<Received> got;
        EVENTUALLY((got = take(kind)).has_value());
        return *got;
    }
    std::optional<Received> take(Kind kind) {
        for (Received& record : port.drain())
            records.push_back(std::move(record));
        const auto it =
            std::find_if(records.begin(), records.end(), [&](const Received& r) { return r.kind == kind; });
        if (it == records.end()) return std::nullopt;
        Received record = std::move(*it);
        records.erase(it);
        return record;
    }
    bool has(Kind kind) {
        for (Received& record : port.drain())
            records.push_back(std::move(record));
        return std::any_of(records.begin(), records.end(), [&](const Received& r) { return r.kind == kind; });
    }

    uint64_t grant(Core& to, const Core& worker, uint32_t shape = 0) {
        return grant(to.self(), worker.self(), shape);
    }
    uint64_t grant(ProcessId to, ProcessId worker, uint32_t shape = 0) {
        const records::LeaseGrant body{++lease_, shape, worker};
        CHECK(port.send(to, body.kind, &body, sizeof body));
        return lease_;
    }
    void revoke(Core& from, uint64_t lease) {
        port.send(from.self(), Kind::LEASE_REVOKE, &lease, sizeof lease);
    }
    void refuse(Core& from, uint32_t shape, std::string_view error) {
        Buffer body;
        body.add(shape);
        body.add(uint32_t(0));
        body.append(error.data(), error.size());
        port.send(from.self(), Kind::SHAPE_REFUSED, body.data(), body.size());
    }
    void actor_up(Core& to, Id actor, const Core& where) {
        const records::ActorUp body{actor, where.self()};
        port.send(to.self(), body.kind, &body, sizeof body);
    }
    void actor_down(Core& to, Id actor, bool is_dead, std::string_view error) {
        Buffer body;
        body.add(actor);
        body.add(uint32_t(is_dead));
        body.add(uint32_t(0));
        body.append(error.data(), error.size());
        port.send(to.self(), Kind::ACTOR_DOWN, body.data(), body.size());
    }

    NodePort port;
    std::vector<Received> records;

  private:
    uint64_t lease_ = 0;
};

/// A process that says and hears exactly what the test wants.
class Puppet {
  public:
    explicit Puppet(FakeNode& node)
        : id(node.port.reserve_slot()),
          segment_(Segment::attach(node.port.segment_fd())),
          channels_(*segment_, id, node.port.event_fd()) {}

    template <class... Parts>
    void say(ProcessId to, Kind kind, const Parts&... parts) {
        Buffer out;
        (out.add(parts), ...);
        CHECK(channels_.send(to, kind, out.data(), out.size()));
    }
    void say_bytes(ProcessId to, Kind kind, std::string_view bytes) {
        CHECK(channels_.send(to, kind, bytes.data(), bytes.size()));
    }
    /// The next record of that kind from that process; others are skipped.
    std::string hear(ProcessId from, Kind kind) {
        std::string got;
        EVENTUALLY((listen(from), has(from, kind)));
        const auto it = find(from, kind);
        got = std::move(it->bytes);
        heard_.erase(it);
        return got;
    }
    /// Whether all that it said is in its ring to that process.
    bool has_said_all(ProcessId to) {
        listen(to);
        return channels_.is_flushed();
    }
    bool has_heard(ProcessId from, Kind kind) {
        listen(from);
        return has(from, kind);
    }
    Channels& channels() { return channels_; }

    const ProcessId id;

  private:
    struct Heard {
        uint32_t slot;
        Kind kind;
        std::string bytes;
    };
    void listen(ProcessId from) {
        const auto keep = [&](ProcessId who, Kind kind, const char* data, size_t bytes) {
            heard_.push_back({who.slot, kind, std::string(data, bytes)});
        };
        if (!is_far(from.slot)) channels_.receive(from.slot, keep);
        channels_.receive(kRelaySlot, keep);
    }
    std::vector<Heard>::iterator find(ProcessId from, Kind kind) {
        return std::find_if(heard_.begin(), heard_.end(),
                            [&](const Heard& r) { return r.slot == from.slot && r.kind == kind; });
    }
    bool has(ProcessId from, Kind kind) { return find(from, kind) != heard_.end(); }

    std::unique_ptr<Segment> segment_;
    Channels channels_;
    std::vector<Heard> heard_;
};

// ---- what a driver does ----------------------------------------------------------------------------

struct Call {
    std::vector<Entry*> deps = {};
    std::vector<Entry*> nested = {};
    uint32_t returns = 1;
    int32_t retries = 0;
    uint32_t flags = 0;
    uint32_t shape = 0;
    uint64_t function = 7;
};

/// The record of a call, and holds on all that it names, as the Python layer leaves them in a task.
inline Task* draft(Core& core, const Call& call, Id actor = {}) {
    Task* task = core.tasks.new_task();
    TaskHeader header{};
    header.task = core.endpoint.root.child(core.endpoint.root_counter.fetch_add(1));
    header.actor = actor;
    header.function = call.function;
    header.flags = call.flags;
    header.returns = call.returns;
    header.deps = uint32_t(call.deps.size());
    header.nested = uint32_t(call.nested.size());
    header.static_bytes = uint32_t(call.nested.size() * sizeof(PackedRef));
    task->record.add(header);
    for (Entry* entry : call.nested) {
        core.objects.escape(entry);
        task->record.add(PackedRef{entry->id, entry->owner, entry->is_actor, 0});
        hold(entry);
        task->nested.push_back(entry);
    }
    for (Entry* entry : call.deps) {
        hold(entry);
        task->deps.push_back(entry);
    }
    task->id = header.task;
    task->flags = call.flags;
    task->retries = call.retries;
    task->name = "f";
    for (uint32_t i = 0; i < call.returns; ++i) {
        Entry* entry = core.objects.new_entry(header.task.object(i + 1));
        entry->holds.store(2);
        task->returns.push_back(entry);
    }
    return task;
}

/// The returns, each with one hold of the caller.
inline std::vector<Entry*> submit_many(Core& core, const Call& call) {
    std::lock_guard lock(core.mutex());
    Task* task = draft(core, call);
    task->function = core.definitions.define_function(call.function, "code");
    task->shape = core.leases.shape(call.shape);
    std::vector<Entry*> returns = task->returns;
    core.pump.advance_epoch();
    core.submitter.submit(task);
    return returns;
}

inline Entry* submit(Core& core, const Call& call = {}) {
    return submit_many(core, call).at(0);
}

inline Entry* call_actor(Core& core, Entry* actor, Call call = {}) {
    std::lock_guard lock(core.mutex());
    call.flags |= kIsMethod;
    Task* task = draft(core, call, actor->id);
    task->actor_entry = actor;
    hold(actor);
    Entry* result = task->returns.at(0);
    core.pump.advance_epoch();
    core.actors.submit_call(task, actor);
    return result;
}

/// An object that is there, with one hold of the caller.
inline Entry* put(Core& core, std::string_view value, std::vector<Entry*> nested = {}) {
    std::lock_guard lock(core.mutex());
    Entry* entry = core.objects.new_entry(
        core.endpoint.root.child(core.endpoint.root_counter.fetch_add(1)).object(0xffff));
    hold(entry);
    for (Entry* inner : nested)
        hold(inner);
    core.objects.publish_inner(entry, std::move(nested));
    core.objects.complete(entry, Where::inlined, value.data(), value.size(), {});
    return entry;
}

/// An object that somebody else will complete.
inline Entry* pending(Core& core) {
    std::lock_guard lock(core.mutex());
    Entry* entry =
        core.objects.new_entry(core.endpoint.root.child(core.endpoint.root_counter.fetch_add(1)).object(1));
    hold(entry);
    return entry;
}

inline void wait_until(Core& core, const Pump::Predicate& done) {
    const int64_t deadline = now_us() + 30'000'000;
    for (;;) {
        const Pump::Waited waited = core.pump.wait_until(done, deadline * 1000, Pump::kNeverLend);
        if (waited == Pump::Waited::done) return;
        CHECK(waited == Pump::Waited::interrupted);
    }
}

/// Waits for it; its value, or its error behind an exclamation mark.
inline std::string get(Core& core, Entry* entry) {
    if (!entry->is_done() && !entry->owned) {
        std::lock_guard lock(core.mutex());
        core.borrowing.fetch(entry);
    }
    wait_until(core, [&] { return entry->is_done(); });
    return (entry->where == Where::error ? "!" : "") + std::string(entry->value.view());
}

/// Reads all that has come and was sent on its account, on the caller's thread.
inline void settle(Core& core) {
    core.pump.wait_until([] { return false; }, now_us() * 1000 + 200'000, Pump::kNeverLend);
}

inline Counters counters(Core& core) {
    return Inspection(core).counters();
}
inline uint64_t owned(Core& core) {
    return counters(core).owned;
}
inline uint64_t borrowed(Core& core) {
    return counters(core).borrowed;
}

// ---- what a worker does ----------------------------------------------------------------------------

/// A call as its worker sees it.
struct Task_ {
    ProcessId from;
    TaskHeader header{};
    std::vector<Entry*> nested;
    std::vector<std::string> deps;
};

/// Takes the next task, counting in the refs that came with it.
inline Task_ next_task(Core& worker) {
    Incoming incoming;
    do {
        wait_until(worker, [&] { return worker.inbox.has_incoming(); });
    } while (!worker.inbox.take_incoming(incoming));  // it may have been handed back meanwhile
    Task_ task;
    Cursor cursor(incoming.bytes.data(), incoming.bytes.size());
    task.from = incoming.from;
    task.header = cursor.take<TaskHeader>();
    cursor.skip(task.header.static_bytes - task.header.nested * sizeof(PackedRef));
    std::lock_guard lock(worker.mutex());
    const bool self_borrow = (task.header.flags & kSelfBorrow) != 0;
    task.nested = worker.borrowing.unpack_refs(cursor, task.header.nested, self_borrow);
    for (uint32_t i = 0; i < task.header.deps; ++i) {
        const auto value = cursor.take<PackedValue>();
        for (Entry* inner : worker.borrowing.unpack_refs(cursor, value.nested, self_borrow))
            task.nested.push_back(inner);
        task.deps.emplace_back(cursor.skip(value.bytes), value.bytes);
    }
    worker.inbox.unpacked();
    return task;
}

/// Answers, with refs in the first value, and drops what came with the task unless it is kept.
inline void reply(Core& worker, const Task_& task, const std::vector<std::string>& values,
                  Status status = Status::ok, uint32_t took_ns = 1000, const std::vector<Entry*>& refs = {},
                  bool keep = false) {
    Buffer out;
    out.add(ReplyHeader{task.header.cookie, uint32_t(status), took_ns, uint32_t(values.size()), 0});
    std::lock_guard lock(worker.mutex());
    for (size_t i = 0; i < values.size(); ++i) {
        const auto nested = uint32_t(i == 0 ? refs.size() : 0);
        out.add(PackedValue{status == Status::ok ? Where::inlined : Where::error, nested, values[i].size()});
        for (uint32_t r = 0; r < nested; ++r) {
            worker.borrowing.lend_ref(refs[r], task.from);
            out.add(PackedRef{refs[r]->id, refs[r]->owner, refs[r]->is_actor, 0});
        }
        out.append(values[i].data(), values[i].size());
    }
    worker.endpoint.send(task.from, Kind::REPLY, out.data(), out.size());
    if (!keep)
        for (Entry* entry : task.nested)
            worker.objects.drop_locked(entry);
    worker.pump.advance_epoch();
}

}  // namespace weft::testing
