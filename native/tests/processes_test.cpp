/// A small node of real processes: one driver, workers that are killed at random, and the test as their
/// daemon.
#include <map>
#include <set>

#include "arena_parts.hpp"
#include "fake_node.hpp"

using namespace weft;

namespace {

constexpr uint64_t kLargeGranules = 3;

std::unique_ptr<Core> attach(NodePort& port, ProcessId id, bool is_worker) {
    return std::make_unique<Core>(Segment::attach(port.segment_fd()), port.event_fd(), id,
                                  Id{id.generation, id.slot}.child(1), is_worker);
}

/// What a task does and returns follows from its id: its dependencies' lengths and one more, inline or in the
/// arena.
bool is_large(Id task) {
    return task.high % 7 == 0;
}

std::string answer_to(const Task_& task) {
    size_t length = 1;
    for (const std::string& dep : task.deps)
        length += dep.size() == sizeof(ArenaRef) ? 5 : dep.size();
    return std::string(std::min<size_t>(length, 12), 'x');
}

[[noreturn]] void be_worker(NodePort& port, ProcessId id) {
    auto core = attach(port, id, true);
    for (;;) {
        core->pump.wait_until([&] { return core->inbox.has_incoming(); }, -1, Pump::kNeverLend);
        if (!core->inbox.has_incoming()) continue;
        const Task_ task = next_task(*core);
        core->pump.running_task.store(true);
        const int64_t started = now_us();
        // Some are long enough for what is queued behind them to be handed back.
        if (task.header.task.high % 97 == 0) pause_us(3000);
        if (is_large(task.header.task)) {
            ArenaRef ref;
            char* data = nullptr;
            CHECK(core->arena().allocate(kLargeGranules * kGranuleBytes, task.from, ref, data));
            write_pattern(data, ref);
            core->arena().seal(ref, false);
            Buffer out;
            out.add(ReplyHeader{task.header.cookie, uint32_t(Status::ok), uint32_t(now_us() - started) * 1000,
                                1, 0});
            out.add(PackedValue{Where::arena, 0, sizeof ref});
            out.add(ref);
            std::lock_guard lock(core->mutex());
            core->endpoint.send(task.from, Kind::REPLY, out.data(), out.size());
            for (Entry* entry : task.nested)
                core->objects.drop_locked(entry);
        } else {
            reply(*core, task, {answer_to(task)}, Status::ok, uint32_t(now_us() - started) * 1000);
        }
        core->pump.running_task.store(false);
        core->pump.advance_epoch();
    }
}

void check_result(Core& core, Entry* entry, size_t length) {
    const std::string value = get(core, entry);
    if (entry->where == Where::arena) return check_readable(core.arena(), entry->arena);
    CHECK_EQ(value.substr(0, 1), "x");
    CHECK(length == 0 || value.size() == length);
}

/// Waves of tasks: lone ones, chains, and ones with refs inside, all retried for ever.
void be_driver(NodePort& port, ProcessId id, int waves) {
    auto core = attach(port, id, false);
    for (int wave = 0; wave < waves; ++wave) {
        std::vector<Entry*> lone, chain;
        for (int i = 0; i < 60; ++i)
            lone.push_back(submit(*core, {.retries = -1, .shape = uint32_t(i % 2)}));
        for (int i = 0; i < 8; ++i) {
            Call call{.retries = -1};
            if (i > 0) call.deps = {chain.back(), lone[size_t(i)]};
            call.nested = {lone[size_t(i) + 10], lone[size_t(i) + 10]};
            chain.push_back(submit(*core, call));
        }
        for (Entry* entry : chain)
            check_result(*core, entry, 0);
        for (Entry* entry : lone)
            check_result(*core, entry, is_large(entry->id) ? 0 : 1);
        for (Entry* entry : lone)
            core->objects.drop(entry);
        for (Entry* entry : chain)
            core->objects.drop(entry);
        core->pump.poll();
    }
    EVENTUALLY((core->pump.poll(), owned(*core) == 0));
    core->close();
}

/// The daemon's part of leasing and of burying, as little of it as will do.
class Daemon {
  public:
    Daemon() : port(256 * kGranuleBytes) {}

    void start_worker() {
        const ProcessId id = port.reserve_slot();
        workers.emplace(id.key(), std::make_unique<Child>([&] { be_worker(port, id); }));
        idle.insert(id.key());
    }
    void start_driver(int waves) {
        driver = port.reserve_slot();
        driver_child = std::make_unique<Child>([&] { be_driver(port, driver, waves); });
    }

    void serve() {
        for (const Received& record : port.drain()) {
            Cursor cursor(record.payload.data(), record.payload.size());
            if (record.kind == Kind::LEASE_REQUEST) {
                const auto shape = cursor.take<uint32_t>();
                wanted[shape] = cursor.take<uint32_t>();
            } else if (record.kind == Kind::LEASE_RETURN) {
                const auto lease = leases.extract(cursor.take<uint64_t>());
                if (!lease.empty() && workers.contains(lease.mapped())) idle.insert(lease.mapped());
            }
        }
        std::erase_if(dead, [&](uint64_t key) { return port.release_slot(ProcessId::from_key(key)); });
        for (auto& [shape, count] : wanted) {
            for (; count > 0 && !idle.empty(); --count) {
                const uint64_t worker = *idle.begin();
                idle.erase(idle.begin());
                leases[++last_lease] = worker;
                const records::LeaseGrant body{last_lease, shape, ProcessId::from_key(worker)};
                port.send(driver, body.kind, &body, sizeof body);
            }
        }
    }
    void kill_worker(uint64_t which) {
        auto it = workers.begin();
        std::advance(it, long(which % workers.size()));
        const uint64_t key = it->first;
        it->second->kill_now();
        workers.erase(it);
        std::set<uint64_t> told;
        for (const ProcessId& peer : port.mark_dead(ProcessId::from_key(key)))
            told.insert(peer.key());
        if (idle.erase(key) == 0) told.insert(driver.key());  // the holder of its lease
        std::erase_if(leases, [&](const auto& lease) { return lease.second == key; });
        for (const uint64_t peer : told) {
            Buffer body;
            body.add(PeerDeath{ProcessId::from_key(key)});
            body.append("killed", 6);
            port.send(ProcessId::from_key(peer), Kind::PEER_DIED, body.data(), body.size());
        }
        Buffer settled;  // nothing of it moves to anybody
        settled.add(uint32_t(1));
        settled.add(uint32_t(0));
        settled.add(ProcessId::from_key(key));
        port.send(driver, Kind::SETTLED, settled.data(), settled.size());
        for (const auto& [worker, child] : workers)
            port.send(ProcessId::from_key(worker), Kind::SETTLED, settled.data(), settled.size());
        dead.insert(key);
    }

    NodePort port;
    ProcessId driver;
    std::unique_ptr<Child> driver_child;
    std::map<uint64_t, std::unique_ptr<Child>> workers;
    std::set<uint64_t> idle, dead;
    std::map<uint64_t, uint64_t> leases;
    std::map<uint32_t, uint32_t> wanted;
    uint64_t last_lease = 0;
};

}  // namespace

TEST("every task comes to its end while workers are killed at random, and nothing is left behind") {
    Daemon daemon;
    for (int i = 0; i < 3; ++i)
        daemon.start_worker();
    daemon.start_driver(300);
    Random random(5);
    int killed = 0;
    int64_t next_kill = now_us() + 5000;
    siginfo_t info{};
    while (waitid(P_PID, id_t(daemon.driver_child->pid()), &info, WEXITED | WNOHANG | WNOWAIT),
           info.si_pid == 0) {
        daemon.serve();
        pause_us(50);
        if (now_us() < next_kill) continue;
        daemon.kill_worker(random.next());
        daemon.start_worker();
        ++killed;
        next_kill = now_us() + int64_t(random.below(12'000));
    }
    daemon.driver_child->join();
    CHECK(killed > 10);
    while (!daemon.workers.empty())
        daemon.kill_worker(0);
    daemon.port.mark_dead(daemon.driver);
    daemon.dead.insert(daemon.driver.key());
    daemon.serve();
    CHECK(daemon.dead.empty());
    const NodePort::Statistics left = daemon.port.statistics();
    CHECK_EQ(left.objects, 0u);
    CHECK_EQ(left.used_bytes, 0u);
    CHECK_EQ(left.ring_blocks_used, 0u);
    CHECK_EQ(left.slots_used, 1u);
}
