/// Processes of other nodes: what is sent to their proxies, what is written in their name, and how they end.
#include "fake_node.hpp"

using namespace weft;

namespace {

std::vector<Outbound> outbound(FakeNode& node) {
    for (Received& record : node.port.drain())
        node.records.push_back(std::move(record));
    return node.port.take_outbound();
}

}  // namespace

TEST("what a local process sends to a proxy comes out of the daemon, in order") {
    FakeNode node;
    Puppet local(node), other(node);
    const ProcessId far = node.port.reserve_proxy(), farther = node.port.reserve_proxy();
    CHECK(node.port.is_proxy(far.slot) && !node.port.is_proxy(local.id.slot));
    for (uint32_t i = 0; i < 100; ++i) {
        local.say(far, Kind::WANT, i);
        other.say(i % 2 == 0 ? far : farther, Kind::VALUE, i);
    }
    uint32_t from_local = 0, from_other = 0;
    for (const Outbound& record : outbound(node)) {
        uint32_t n = 0;
        memcpy(&n, record.payload.data(), sizeof n);
        if (record.from == local.id) {
            CHECK(record.proxy == far.slot && record.kind == Kind::WANT);
            CHECK_EQ(n, from_local++);
        } else {
            CHECK(record.from == other.id && record.kind == Kind::VALUE);
            CHECK_EQ(record.proxy, n % 2 == 0 ? far.slot : farther.slot);
            ++from_other;
        }
    }
    CHECK_EQ(from_local + from_other, 200u);
    CHECK(node.records.empty());
}

TEST("records written in a proxy's name come from it") {
    FakeNode node;
    Puppet local(node);
    const ProcessId far = node.port.reserve_proxy();
    CHECK(node.port.send_as(far.slot, local.id, Kind::VALUE, "hello", 5));
    CHECK_EQ(local.hear(far, Kind::VALUE), "hello");
    CHECK(!node.port.send_as(local.id.slot, local.id, Kind::VALUE, "no proxy", 8));
    CHECK(!node.port.send_as(far.slot, {local.id.slot, local.id.generation + 1}, Kind::VALUE, "dead", 4));
}

TEST("a call goes to a worker of another node and its answer comes back") {
    FakeNode here, there;
    auto driver = here.driver(), worker = there.worker();
    // Each node knows the other's process by a proxy of its own.
    const ProcessId worker_here = here.port.reserve_proxy(), driver_there = there.port.reserve_proxy();
    Entry* result = submit(*driver);
    here.grant(driver->self(), worker_here);
    const auto carry = [&] {
        settle(*driver);
        for (const Outbound& r : outbound(here))
            CHECK(there.port.send_as(driver_there.slot, worker->self(), r.kind, r.payload.data(),
                                     r.payload.size()));
        settle(*worker);
        for (const Outbound& r : outbound(there))
            CHECK(here.port.send_as(worker_here.slot, driver->self(), r.kind, r.payload.data(),
                                    r.payload.size()));
    };
    EVENTUALLY((carry(), worker->has_incoming()));
    const Task_ task = next_task(*worker);
    CHECK(task.from == driver_there);
    reply(*worker, task, {"from far away"});
    EVENTUALLY((carry(), result->is_done()));
    CHECK_EQ(get(*driver, result), "from far away");
    driver->drop(result);
}

TEST("a proxy's death is told to its peers, and its slot is used again") {
    FakeNode node;
    auto driver = node.driver();
    const ProcessId far = node.port.reserve_proxy();
    Entry* result = submit(*driver);
    node.grant(driver->self(), far);
    settle(*driver);
    CHECK(!outbound(node).empty());
    for (const ProcessId& peer : node.port.mark_dead(far))
        node.tell_death(peer, far);
    CHECK(!node.port.is_proxy(far.slot));
    CHECK(get(*driver, result).find("lost its worker") != std::string::npos);
    node.expect(Kind::PEER_DETACHED);
    EVENTUALLY(node.port.release_slot(far));
    CHECK(node.port.reserve_proxy() == (ProcessId{far.slot, far.generation + 1}));
    driver->drop(result);
}

TEST("a local process's death frees its slot once its proxies forget it") {
    FakeNode node;
    const ProcessId far = node.port.reserve_proxy();
    Puppet local(node);
    local.say(far, Kind::WANT, uint32_t(1));
    CHECK_EQ(outbound(node).size(), 1u);
    CHECK(node.port.mark_dead(local.id) == std::vector<ProcessId>{far});
    CHECK(!node.port.release_slot(local.id));
    node.port.proxy_forgets(far.slot, local.id);
    CHECK(node.port.release_slot(local.id));
    CHECK_EQ(node.port.statistics().ring_blocks_used, 0u);
}

TEST("an object of another node is received into memory when somebody wants it") {
    FakeNode node(16 * kGranuleBytes);
    auto reader = node.driver();
    const ProcessId far = node.port.reserve_proxy();
    const ArenaRef ref = node.port.import_object(100'000, far);
    char* data = nullptr;
    CHECK(reader->arena().pin(ref, data) == PinResult::spilled);
    char* to = node.port.begin_receiving(ref.entry, ref.generation);
    CHECK(to != nullptr);
    CHECK(node.port.begin_receiving(ref.entry, ref.generation) == nullptr);  // under way already
    memset(to, 'x', 100'000);
    node.port.end_receiving(ref.entry, ref.generation, true);
    CHECK(reader->arena().pin(ref, data) == PinResult::ok);
    CHECK(data[0] == 'x' && data[99'999] == 'x');
    uint64_t bytes = 0;
    const char* sent = node.port.begin_sending(ref.entry, ref.generation, bytes);
    CHECK(sent != nullptr && sent[99'999] == 'x');
    CHECK_EQ(bytes, 100'000u);
    node.port.end_sending(ref.entry, ref.generation);
    node.port.remove(ref.entry, ref.generation);
    CHECK(node.port.exists(ref.entry, ref.generation));
    reader->arena().unpin(ref);
    CHECK(!node.port.exists(ref.entry, ref.generation));
    CHECK_EQ(node.port.statistics().used_bytes, 0u);
}

TEST("an object whose transfer failed, or that was deleted meanwhile, leaves no memory behind") {
    FakeNode node(16 * kGranuleBytes);
    const ProcessId far = node.port.reserve_proxy();
    const ArenaRef failed = node.port.import_object(100'000, far);
    CHECK(node.port.begin_receiving(failed.entry, failed.generation) != nullptr);
    node.port.end_receiving(failed.entry, failed.generation, false);
    CHECK_EQ(node.port.statistics().used_bytes, 0u);
    CHECK(node.port.begin_receiving(failed.entry, failed.generation) != nullptr);  // once more
    node.port.remove(failed.entry, failed.generation);
    node.port.end_receiving(failed.entry, failed.generation, true);
    CHECK(!node.port.exists(failed.entry, failed.generation));
    CHECK_EQ(node.port.statistics().used_bytes, 0u);
    const ArenaRef orphan = node.port.import_object(100'000, far);
    node.port.mark_dead(far);
    CHECK(!node.port.exists(orphan.entry, orphan.generation));
}
