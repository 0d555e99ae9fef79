/// Processes of other nodes: what is sent to their proxies, what is written in their name, and how they end.
#include <array>
#include <stdexcept>

#include "fake_node.hpp"

using namespace weft;

namespace {

constexpr uint32_t kHere = 0, kThere = 1;
constexpr ProcessId kDaemon{kDaemonSlot, 1};

struct Sent {
    ProcessId from, to;
    Kind kind;
    std::string payload;
};

std::vector<Sent> parse(const std::string& batch) {
    std::vector<Sent> all;
    for (size_t at = 0; at < batch.size();) {
        LinkRecord record;
        memcpy(&record, batch.data() + at, sizeof record);
        at += sizeof record;
        all.push_back({record.from, record.to, Kind(record.kind), batch.substr(at, record.bytes)});
        at += record.bytes;
    }
    return all;
}

void read_rings(FakeNode& node) {
    for (Received& record : node.port.drain())
        node.records.push_back(std::move(record));
}

std::string batch_for(FakeNode& node, uint32_t to) {
    read_rings(node);
    node.port.forwarding().commit();
    return node.port.forwarding().take_batch(to);
}

ProcessId proxy_of(FakeNode& node, uint32_t far_node, ProcessId who) {
    const ProcessId proxy = node.port.reserve_proxy();
    node.port.forwarding().names.add_proxy(proxy, {far_node, who});
    return proxy;
}

/// Two nodes that pass on what is for the other, making proxies and imports as they are named.
struct TwoNodes {
    TwoNodes() { there.port.forwarding().names.node = kThere; }

    bool carry(FakeNode& from, FakeNode& to, uint32_t from_number, uint32_t to_number) {
        const std::string batch = batch_for(from, to_number);
        for (size_t at = 0; at < batch.size();) {
            const Delivery d =
                to.port.forwarding().deliver(from_number, batch.data() + at, batch.size() - at);
            at += d.consumed;
            CHECK(d.stop != Delivery::Stop::record);
            for (const FarProcess& who : d.processes)
                proxy_of(to, who.node, who.id);
            for (const FarObject& what : d.objects) {
                const ArenaRef made = to.port.import_object(what.bytes, {kDaemonSlot, 1});
                to.port.forwarding().names.add_import(made, what);
                imports.push_back(made);
            }
        }
        return !batch.empty();
    }
    void carry() {
        while (carry(here, there, kHere, kThere) | carry(there, here, kThere, kHere)) {
        }
    }

    FakeNode here, there;
    std::vector<ArenaRef> imports;
};

}  // namespace

TEST("what a local process sends to a proxy is in the batch for its node, in order") {
    FakeNode node;
    Puppet local(node), other(node);
    const FarProcess one{1, {7, 70}}, two{2, {8, 80}};
    const ProcessId far = proxy_of(node, one.node, one.id), farther = proxy_of(node, two.node, two.id);
    CHECK(node.port.is_proxy(far.slot) && !node.port.is_proxy(local.id.slot));
    for (uint32_t i = 0; i < 100; ++i) {
        local.say(far, Kind::WANT, i);
        other.say(i % 2 == 0 ? far : farther, Kind::WANT, i);
    }
    uint32_t from_local = 0, from_other = 0;
    const auto look = [&](const FarProcess& who) {
        for (const Sent& record : parse(batch_for(node, who.node))) {
            uint32_t n = 0;
            memcpy(&n, record.payload.data(), sizeof n);
            CHECK(record.to == who.id && record.kind == Kind::WANT);
            if (record.from == local.id) {
                CHECK(who == one);
                CHECK_EQ(n, from_local++);
            } else {
                CHECK(record.from == other.id && (n % 2 == 0) == (who == one));
                ++from_other;
            }
        }
    };
    look(one);
    look(two);
    CHECK_EQ(from_local + from_other, 200u);
    CHECK(node.records.empty() && node.port.forwarding().nodes_with_output().empty());
}

TEST("a process that names others is understood on the other node") {
    TwoNodes nodes;
    Puppet local(nodes.here), bystander(nodes.here), reader(nodes.there);
    const ProcessId reader_here = proxy_of(nodes.here, kThere, reader.id);
    local.say(reader_here, Kind::BORROW_ADD, Id{1, 2}, bystander.id);
    local.say(reader_here, Kind::BORROW_ADD, Id{1, 2}, reader_here);
    local.say(reader_here, Kind::BORROW_ADD, Id{1, 2}, ProcessId{0, 0});
    nodes.carry();
    const ProcessId local_there = *nodes.there.port.forwarding().names.local(FarProcess{kHere, local.id});
    const auto heard = [&] {
        ProcessId who;
        memcpy(&who, reader.hear(local_there, Kind::BORROW_ADD).data() + sizeof(Id), sizeof who);
        return who;
    };
    CHECK(nodes.there.port.forwarding().names.far(heard()) == (FarProcess{kHere, bystander.id}));
    CHECK(heard() == reader.id);
    CHECK(heard() == (ProcessId{0, 0}));
}

TEST("an object that is named is imported there, and is the same object when it is named back") {
    TwoNodes nodes;
    Puppet local(nodes.here), reader(nodes.there);
    const ProcessId reader_here = proxy_of(nodes.here, kThere, reader.id);
    const ArenaRef object{3, 1, 500'000};
    local.say(reader_here, Kind::VALUE, Id{1, 2}, PackedValue{Where::arena, 0, sizeof object}, object);
    nodes.carry();
    CHECK_EQ(nodes.imports.size(), 1u);
    const ProcessId local_there = *nodes.there.port.forwarding().names.local(FarProcess{kHere, local.id});
    ArenaRef heard;
    const auto take = [&](const std::string& record) {
        memcpy(&heard, record.data() + sizeof(Id) + sizeof(PackedValue), sizeof heard);
    };
    take(reader.hear(local_there, Kind::VALUE));
    CHECK(heard.entry == nodes.imports[0].entry && heard.bytes == object.bytes);
    reader.say(local_there, Kind::VALUE, Id{1, 2}, PackedValue{Where::arena, 0, sizeof heard}, heard);
    nodes.carry();
    take(local.hear(reader_here, Kind::VALUE));
    CHECK(heard.entry == object.entry && heard.generation == object.generation &&
          heard.bytes == object.bytes);
    CHECK_EQ(nodes.imports.size(), 1u);
}

TEST("records from and to daemons are not delivered but shown") {
    FakeNode node;
    Puppet local(node);
    Forwarding& forwarding = node.port.forwarding();
    forwarding.names.node = kThere;
    Buffer batch;
    const auto add = [&](ProcessId from, ProcessId to, Kind kind, std::string_view text) {
        batch.add(LinkRecord{uint32_t(text.size()), uint16_t(kind), 0, from, to});
        batch.append(text.data(), text.size());
    };
    add({0, 1}, local.id, Kind::LEASE_REVOKE, "to a process");
    add({5, 50}, {0, 1}, Kind::LEASE_REQUEST, "to the daemon");
    add({5, 50}, local.id, Kind::WANT, "to a process");
    add({5, 50}, {local.id.slot, local.id.generation + 1}, Kind::WANT, "to nobody");
    size_t at = 0;
    const auto next = [&] {
        Delivery d = forwarding.deliver(kHere, batch.data() + at, batch.size() - at);
        at += d.consumed;
        return d;
    };
    Delivery d = next();
    CHECK(d.stop == Delivery::Stop::record && d.from.slot == 0 && d.to == local.id);
    d = next();
    CHECK(d.stop == Delivery::Stop::names && d.processes.at(0) == (FarProcess{kHere, {5, 50}}));
    const ProcessId far = proxy_of(node, kHere, {5, 50});
    d = next();
    CHECK(d.stop == Delivery::Stop::record && d.payload == "to the daemon" && d.from == (ProcessId{5, 50}));
    d = next();
    CHECK(d.stop == Delivery::Stop::none);
    CHECK_EQ(at, batch.size());
    CHECK_EQ(local.hear(far, Kind::WANT), "to a process");
    forwarding.refuse(local.id);
    at = 0;
    CHECK(next().to.slot == 0);  // the first is skipped: its reader is about to end
}

TEST("a batch that is none is refused, wherever it is cut and whatever is in it") {
    FakeNode node;
    Puppet local(node);
    proxy_of(node, kThere, {5, 50});
    Buffer batch;
    const ArenaRef object{3, 1, 500'000};
    Buffer value;
    value.add(Id{1, 2});
    value.add(PackedValue{Where::arena, 0, sizeof object});
    value.add(object);
    batch.add(LinkRecord{uint32_t(value.size()), uint16_t(Kind::VALUE), 0, {5, 50}, local.id});
    batch.append(value.data(), value.size());
    const auto refuses = [&](const char* data, size_t bytes) {
        auto copy =
            std::make_unique<char[]>(bytes);  // of exactly that size, so that a read beyond it is seen
        std::copy_n(data, bytes, copy.get());
        try {
            node.port.forwarding().deliver(kThere, copy.get(), bytes);
        } catch (const std::invalid_argument&) {
            return true;
        }
        return false;
    };
    for (size_t bytes = 1; bytes < batch.size(); ++bytes)
        CHECK(refuses(batch.data(), bytes));
    for (size_t at = 0; at < batch.size(); ++at) {
        std::string bent(batch.data(), batch.size());
        bent[at] = char(0xff);
        refuses(bent.data(), bent.size());  // or takes it for something else; both are well
    }
}

TEST("a link that is full leaves records in the rings, and those of the dead are read all the same") {
    FakeNode node;
    Puppet local(node), dying(node);
    const ProcessId far = proxy_of(node, kThere, {5, 50});
    Forwarding& forwarding = node.port.forwarding();
    local.say(far, Kind::WANT, uint32_t(1));
    CHECK_EQ(parse(batch_for(node, kThere)).size(), 1u);
    forwarding.hold(kThere, true);
    local.say(far, Kind::WANT, uint32_t(2));
    dying.say(far, Kind::WANT, uint32_t(3));
    CHECK(batch_for(node, kThere).empty());
    node.port.mark_dead(dying.id);
    forwarding.commit();
    const auto last_words = parse(forwarding.take_batch(kThere));
    CHECK(last_words.size() == 1 && last_words[0].from == dying.id);
    CHECK(batch_for(node, kThere).empty());
    node.port.release_link(kThere);
    const auto rest = parse(batch_for(node, kThere));
    CHECK(rest.size() == 1 && rest[0].from == local.id);
}

TEST("what came out of rings is not sent before what its sender had told the daemon is handled") {
    FakeNode node;
    Puppet local(node);
    const ProcessId far = proxy_of(node, kThere, {5, 50});
    local.say(kDaemon, Kind::ACTOR_DROP, uint32_t(1));
    local.say(far, Kind::WANT, uint32_t(2));
    read_rings(node);
    CHECK_EQ(node.records.size(), 1u);
    CHECK(node.port.forwarding().take_batch(kThere).empty());
    node.port.forwarding().commit();
    CHECK_EQ(parse(node.port.forwarding().take_batch(kThere)).size(), 1u);
}

TEST("a full batch is sent before more is read, and nothing is forgotten") {
    FakeNode node;
    Puppet local(node);
    const ProcessId far = proxy_of(node, kThere, {5, 50});
    const std::array<char, 100'000> large{};
    uint32_t said = 0, came = 0;
    for (; said < 40; ++said)
        local.say(far, Kind::FUNCTION, said, large);
    size_t longest = 0, rounds = 0;
    EVENTUALLY((local.has_heard(far, Kind::ACQUAINT), [&] {
        const std::string batch = batch_for(node, kThere);
        longest = std::max(longest, batch.size());
        rounds += batch.empty() ? 0 : 1;
        for (const Sent& record : parse(batch)) {
            uint32_t n = 0;
            memcpy(&n, record.payload.data(), sizeof n);
            CHECK_EQ(n, came++);
        }
        return came == said;
    }()));
    CHECK(rounds > 1 && longest < 3'000'000);
}

TEST("a process that does not read holds its sender back, not its node's memory, and hears it all at last") {
    TwoNodes nodes;
    Puppet sender(nodes.here), other(nodes.here), reader(nodes.there);
    const ProcessId reader_here = proxy_of(nodes.here, kThere, reader.id);
    const std::array<char, 50'000> large{};
    constexpr uint32_t kCount = 200;
    for (uint32_t i = 0; i < kCount; ++i)
        sender.say(reader_here, Kind::FUNCTION, i, large);
    const auto pump = [&] {
        nodes.carry();
        sender.has_heard(reader_here, Kind::ACQUAINT);  // writes on where there is room again
    };
    for (int i = 0; i < 100; ++i)
        pump();
    // What has come is what fits into the ring, and a little more than is enough.
    const ProcessId sender_there = *nodes.there.port.forwarding().names.local(FarProcess{kHere, sender.id});
    other.say(reader_here, Kind::WANT, uint32_t(7));  // nobody else is held back
    pump();
    const ProcessId other_there = *nodes.there.port.forwarding().names.local(FarProcess{kHere, other.id});
    CHECK_EQ(reader.hear(other_there, Kind::WANT).size(), sizeof(uint32_t));
    uint32_t before = 0;
    while (reader.has_heard(sender_there, Kind::FUNCTION)) {
        reader.hear(sender_there, Kind::FUNCTION);
        if (++before > kCount / 2) break;
        // Without another pump only what was at this node can be heard.
    }
    CHECK(before < kCount / 2);
    uint32_t next = before;
    EVENTUALLY((pump(), [&] {
        while (reader.has_heard(sender_there, Kind::FUNCTION)) {
            uint32_t n = 0;
            memcpy(&n, reader.hear(sender_there, Kind::FUNCTION).data(), sizeof n);
            CHECK_EQ(n, next++);
        }
        return next == kCount;
    }()));
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
    TwoNodes nodes;
    auto driver = nodes.here.driver(), worker = nodes.there.worker();
    const ProcessId worker_here = proxy_of(nodes.here, kThere, worker->self());
    Entry* result = submit(*driver);
    nodes.here.grant(driver->self(), worker_here);
    const auto carry = [&] {
        settle(*driver);
        nodes.carry();
        settle(*worker);
        nodes.carry();
    };
    EVENTUALLY((carry(), worker->has_incoming()));
    const Task_ task = next_task(*worker);
    CHECK(nodes.there.port.forwarding().names.far(task.from) == (FarProcess{kHere, driver->self()}));
    reply(*worker, task, {"from far away"});
    EVENTUALLY((carry(), result->is_done()));
    CHECK_EQ(get(*driver, result), "from far away");
    driver->drop(result);
}

TEST("a proxy's death is told to its peers, and its slot is used again") {
    FakeNode node;
    auto driver = node.driver();
    const ProcessId far = proxy_of(node, kThere, {5, 50});
    Entry* result = submit(*driver);
    node.grant(driver->self(), far);
    settle(*driver);
    CHECK(!batch_for(node, kThere).empty());
    for (const ProcessId& peer : node.port.mark_dead(far))
        node.tell_death(peer, far);
    CHECK(!node.port.is_proxy(far.slot));
    CHECK(!node.port.forwarding().names.of_proxy(far.slot));
    CHECK(node.port.forwarding().names.far(far) ==
          (FarProcess{kThere, {5, 50}}));  // records may name it still
    CHECK(get(*driver, result).find("lost its worker") != std::string::npos);
    node.expect(Kind::PEER_DETACHED);
    EVENTUALLY(node.port.release_slot(far));
    CHECK(node.port.reserve_proxy() == (ProcessId{far.slot, far.generation + 1}));
    driver->drop(result);
}

TEST("a local process's death frees its slot once its proxies forget it") {
    FakeNode node;
    const ProcessId far = proxy_of(node, kThere, {5, 50});
    Puppet local(node);
    local.say(far, Kind::WANT, uint32_t(1));
    CHECK_EQ(parse(batch_for(node, kThere)).size(), 1u);
    CHECK(node.port.mark_dead(local.id) == std::vector<ProcessId>{far});
    CHECK(!node.port.release_slot(local.id));
    node.tell_death(far, local.id);
    CHECK(batch_for(node, kThere).empty());
    CHECK(node.port.take_detached() == std::vector<ProcessId>{local.id});
    CHECK(node.port.release_slot(local.id));
    node.port.mark_dead(far);
    CHECK(node.port.release_slot(far));
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
