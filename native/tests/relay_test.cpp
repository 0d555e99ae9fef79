/// Processes of other nodes: what is sent to their proxies, what is written in their name, and how they end.
#include <poll.h>

#include <array>
#include <map>
#include <set>
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
    return node.port.add_proxy({far_node, who});
}

/// Two nodes that pass on what is for the other, making proxies and imports as they are named.
struct TwoNodes {
    TwoNodes() { there.port.forwarding().names.node = kThere; }

    bool carry(FakeNode& from, FakeNode& to, uint32_t from_number, uint32_t to_number) {
        const std::string batch = batch_for(from, to_number);
        carried += batch.size();
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
    size_t carried = 0;  ///< bytes
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

TEST("names that this node cannot have are refused, in and out") {
    FakeNode node;
    Puppet local(node);
    proxy_of(node, kThere, {5, 50});
    Forwarding& forwarding = node.port.forwarding();
    forwarding.names.node = kHere;
    const auto value = [](const ArenaRef& object, ProcessId owner) {
        Buffer out;
        out.add(Id{1, 2});
        out.add(PackedValue{Where::arena, 1, sizeof object});
        out.add(PackedRef{Id{3, 4}, owner, 0, 0});
        out.add(object);
        return std::string(out.data(), out.size());
    };
    const auto comes = [&](const std::string& record) {
        Buffer batch;
        batch.add(LinkRecord{uint32_t(record.size()), uint16_t(Kind::VALUE), 0, {5, 50}, local.id});
        batch.append(record.data(), record.size());
        try {
            forwarding.deliver(kThere, batch.data(), batch.size());
        } catch (const std::invalid_argument&) {
            return false;
        }
        return true;
    };
    CHECK(comes(value(to_link(FarObject{kHere, 3, 1, 70'000}), to_link({kHere, local.id}))));
    CHECK(!comes(value(to_link(FarObject{kHere, 0xfffffff0, 1, 70'000}), to_link({kHere, local.id}))));
    const auto goes = [&](const ArenaRef& object, ProcessId owner) {
        const std::string record = value(object, owner);
        return forwarding.pass_on(kThere, local.id, {5, 50}, Kind::VALUE, record.data(), record.size());
    };
    CHECK(goes({3, 1, 70'000}, local.id));
    CHECK(!goes({3, 1, 70'000}, {0xfffffff0, 1}));
    CHECK(!goes({3, 1, uint64_t(1) << kSizeBits}, local.id));
    CHECK(!forwarding.pass_on(kThere, local.id, {5, 50}, Kind::CONTROL, nullptr, kMostLinkBytes + 1));
}

TEST("a value for whose object there is no name arrives as an error, with its refs, and so do the others") {
    FakeNode node;
    Puppet local(node);
    const ProcessId far = proxy_of(node, kThere, {5, 50});
    Forwarding& forwarding = node.port.forwarding();
    forwarding.names.node = kHere;
    const ArenaRef known = node.port.import_object(70'000, local.id);
    forwarding.names.add_import(known, {kThere, 7, 1, 70'000});
    Buffer reply, batch;
    reply.add(ReplyHeader{99, uint32_t(Status::ok), 0, 4, 0});
    const auto add = [&](uint32_t entry) {
        reply.add(PackedValue{Where::arena, 1, sizeof(ArenaRef)});
        reply.add(PackedRef{Id{entry, 4}, to_link({kThere, {5, 50}}), 0, 0});
        reply.add(to_link(FarObject{kThere, entry, 1, 70'000}));
    };
    add(6);
    add(7);
    reply.add(PackedValue{Where::inlined, 0, 5});
    reply.append("small", 5);
    add(8);
    for (int i = 0; i < 2; ++i) {
        batch.add(LinkRecord{uint32_t(reply.size()), uint16_t(Kind::REPLY), 0, {5, 50}, local.id});
        batch.append(reply.data(), reply.size());
    }
    const std::string refusal = error_value(ErrorCode::out_of_memory, "there is no room for it");
    const Delivery d = forwarding.deliver(kThere, batch.data(), batch.size(), refusal);
    CHECK(d.stop == Delivery::Stop::names && d.objects.size() == 2);  // of the second record
    CHECK_EQ(d.consumed, sizeof(LinkRecord) + reply.size());
    const std::string came = local.hear(far, Kind::REPLY);
    Cursor cursor(came.data(), came.size());
    CHECK_EQ(cursor.take<ReplyHeader>().cookie, 99u);
    const auto hears = [&](Where where, std::string_view text, uint32_t entry) {
        const auto value = cursor.take<PackedValue>();
        CHECK(value.where == where && value.nested == (entry != 0));
        if (entry != 0) {
            const auto ref = cursor.take<PackedRef>();
            CHECK((ref.id == Id{entry, 4}) && ref.owner == far);
        }
        CHECK(cursor.text(value.bytes) == text);
    };
    hears(Where::error, refusal, 6);
    const ArenaRef here{known.entry, known.generation, 70'000};
    hears(Where::arena, {reinterpret_cast<const char*>(&here), sizeof here}, 7);
    hears(Where::inlined, "small", 0);
    hears(Where::error, refusal, 8);
    CHECK_EQ(cursor.left(), 0u);
}

TEST("a link that is full leaves records with their senders, and those of the dead are read all the same") {
    FakeNode node;
    Puppet local(node), dying(node);
    const ProcessId far = proxy_of(node, kThere, {5, 50});
    Forwarding& forwarding = node.port.forwarding();
    local.say(far, Kind::WANT, uint32_t(1));
    CHECK_EQ(parse(batch_for(node, kThere)).size(), 1u);
    forwarding.hold(kThere, true);
    local.say(far, Kind::WANT, uint32_t(2));
    CHECK_EQ(parse(batch_for(node, kThere)).size(), 1u);
    CHECK(!local.has_heard(far, Kind::WANT));  // it is told to keep the rest
    local.say(far, Kind::WANT, uint32_t(3));
    dying.say(far, Kind::WANT, uint32_t(4));
    node.port.mark_dead(dying.id);
    forwarding.commit();
    const auto last_words = parse(forwarding.take_batch(kThere));
    CHECK(last_words.size() == 1 && last_words[0].from == dying.id);
    CHECK(batch_for(node, kThere).empty());
    node.port.release_link(kThere);
    CHECK(!local.has_heard(far, Kind::WANT));  // it is told to go on
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

TEST("what did not fit into the daemon's ring is heard before what was sent to another node after it") {
    FakeNode node;
    Puppet local(node);
    const ProcessId far = proxy_of(node, kThere, {5, 50});
    const std::array<char, 1'000> row{};
    constexpr uint32_t kRows = 5'000;
    for (uint32_t i = 0; i < kRows; ++i)
        local.say(kDaemon, Kind::DEPOSIT, i, row);
    local.say(far, Kind::WANT, uint32_t(1));
    local.say(far, Kind::WANT, uint32_t(2));
    size_t came = 0;
    EVENTUALLY((local.has_heard(kDaemon, Kind::ACQUAINT), [&] {
        const auto batch = parse(batch_for(node, kThere));
        if (!batch.empty()) CHECK_EQ(node.records.size(), size_t(kRows));
        came += batch.size();
        return came == 2;
    }()));
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
    // What was sent is what fits into the rings, and a little more than is enough.
    CHECK(nodes.carried > large.size() && nodes.carried < kCount / 2 * large.size());
    const ProcessId sender_there = *nodes.there.port.forwarding().names.local(FarProcess{kHere, sender.id});
    Puppet second(nodes.there);  // nobody else is held back
    sender.say(proxy_of(nodes.here, kThere, second.id), Kind::WANT, uint32_t(7));
    pump();
    CHECK_EQ(second.hear(sender_there, Kind::WANT).size(), sizeof(uint32_t));
    other.say(reader_here, Kind::WANT, uint32_t(7));
    uint32_t next = 0;
    EVENTUALLY((pump(), [&] {
        while (reader.has_heard(sender_there, Kind::FUNCTION)) {
            uint32_t n = 0;
            memcpy(&n, reader.hear(sender_there, Kind::FUNCTION).data(), sizeof n);
            CHECK_EQ(n, next++);
        }
        return next == kCount;
    }()));
    const ProcessId other_there = *nodes.there.port.forwarding().names.local(FarProcess{kHere, other.id});
    CHECK(reader.has_heard(other_there, Kind::WANT));
}

// ---- processes of one node that have no ring -------------------------------------------------------

namespace {

/// A node whose shared rings are all taken by two others, until they are given back.
struct Scarce {
    Scarce() {
        for (uint32_t i = 0; i < kSharedBlocks; ++i)
            view->block_owner(first + i).store(RingEnds::pack({900, 1}, {901, 1}));
    }
    void give_back() {
        for (uint32_t i = 0; i < kSharedBlocks; ++i)
            view->block_owner(first + i).store(0);
    }
    FakeNode node;
    std::unique_ptr<Segment> view = Segment::attach(node.port.segment_fd());
    const uint32_t first = kOwnBlocks * view->header().slots;
};

}  // namespace

TEST(
    "without a free ring records go through the relay, whole and in order, and take a ring once one is "
    "free") {
    Scarce scarce;
    Puppet a(scarce.node), b(scarce.node);
    uint32_t said = 0, heard = 0;
    const std::array<char, 300> small{};
    const std::array<char, 400'000> large{};
    const auto talk = [&](uint32_t count) {
        for (uint32_t i = 0; i < count; ++i, ++said) {
            if (said % 100 == 99)
                a.say(b.id, Kind::WANT, said, large);
            else
                a.say(b.id, Kind::WANT, said, small);
        }
        EVENTUALLY((read_rings(scarce.node), a.has_heard(b.id, Kind::ACQUAINT), [&] {
            while (b.has_heard(a.id, Kind::WANT)) {
                uint32_t n = 0;
                const std::string record = b.hear(a.id, Kind::WANT);
                memcpy(&n, record.data(), sizeof n);
                CHECK_EQ(n, heard++);
                CHECK_EQ(record.size(), sizeof n + (n % 100 == 99 ? large.size() : small.size()));
            }
            return heard == said;
        }()));
    };
    talk(1000);
    CHECK_EQ(scarce.view->ring_of(a.id.slot, b.id.slot).load(), 0u);
    scarce.give_back();
    talk(1000);
    CHECK(scarce.view->open_block(a.id.slot, b.id.slot) != 0);
    talk(1000);
    CHECK(scarce.node.port.mark_dead(b.id) == std::vector<ProcessId>{a.id});
}

TEST("the death of who was reached through the relay is told, also to who was just about to reach it") {
    Scarce scarce;
    Puppet a(scarce.node), b(scarce.node), late(scarce.node);
    a.say(b.id, Kind::WANT, uint32_t(1));
    b.say(b.id, Kind::WANT, uint32_t(1));  // to itself, too
    read_rings(scarce.node);
    late.say(b.id, Kind::WANT, uint32_t(2));
    CHECK(scarce.node.port.mark_dead(b.id) == std::vector<ProcessId>{a.id});
    read_rings(scarce.node);
    ProcessId dead;
    memcpy(&dead, late.hear(kDaemon, Kind::PEER_DIED).data(), sizeof dead);
    CHECK(dead == b.id);
    CHECK(scarce.node.port.release_slot(b.id));
    Puppet heir(scarce.node);
    CHECK_EQ(heir.id.slot, b.id.slot);
    a.say(heir.id, Kind::WANT, uint32_t(3));  // it is another, and reached as such
    read_rings(scarce.node);
    CHECK(heir.has_heard(a.id, Kind::WANT));
}

TEST("whatever rings come and go, each process hears each other one in order, and all of it") {
    constexpr uint32_t kProcesses = 6, kSteps = 60'000;
    for (const uint32_t rings : {0u, 1u, 7u, 20u}) {
        Scarce scarce;
        for (uint32_t i = 0; i < rings; ++i)
            scarce.view->block_owner(scarce.first + i * 31).store(0);
        Random random(rings);
        std::vector<std::unique_ptr<Puppet>> all;
        for (uint32_t i = 0; i < kProcesses; ++i)
            all.push_back(std::make_unique<Puppet>(scarce.node));
        std::map<std::pair<uint32_t, uint32_t>, uint32_t> said, heard;
        const auto listen = [&](uint32_t me, uint32_t slot) {
            all[me]->channels().receive(slot, [&](ProcessId from, Kind kind, const char* data, size_t) {
                if (kind != Kind::WANT) return;  // the daemon asks for idle rings now and then
                uint32_t n = 0;
                memcpy(&n, data, sizeof n);
                uint32_t& next = heard[{from.slot, me}];
                CHECK_EQ(n, next++);
            });
        };
        const auto take_bells = [&](uint32_t me) {  // as a process does: only who has rung is looked at
            take_ready(*scarce.view, scarce.view->bell(all[me]->id.slot),
                       [&](uint32_t slot) { listen(me, slot); });
        };
        for (uint32_t step = 0; step < kSteps; ++step) {
            const uint32_t me = uint32_t(random.below(kProcesses)),
                           other = uint32_t(random.below(kProcesses));
            const uint64_t what = random.below(100);
            if (what < 60) {  // itself, too
                const uint32_t n = said[{all[me]->id.slot, other}]++;
                const std::string rest(random.below(50) == 0 ? random.below(300'000) : random.below(500),
                                       'x');
                std::string record(reinterpret_cast<const char*>(&n), sizeof n);
                record += rest;
                CHECK(all[me]->channels().send(all[other]->id, Kind::WANT, record.data(), record.size()));
            } else if (what < 80) {
                take_bells(me);
            } else if (what < 98) {
                read_rings(scarce.node);
            } else {
                all[me]->channels().return_idle();
            }
        }
        EVENTUALLY((read_rings(scarce.node), [&] {
            for (uint32_t me = 0; me < kProcesses; ++me)
                take_bells(me);
            return std::all_of(said.begin(), said.end(),
                               [&](const auto& s) { return heard[s.first] == s.second; });
        }()));
    }
}

TEST("what the daemon itself says to a process of another node wakes it, so that it is sent") {
    FakeNode node;
    const ProcessId far = proxy_of(node, kThere, {5, 50});
    node.port.drain();
    pollfd bell{node.port.event_fd(), POLLIN, 0};
    CHECK_EQ(poll(&bell, 1, 0), 0);
    CHECK(node.port.send(far, Kind::CONTROL, "hello", 5));
    CHECK_EQ(poll(&bell, 1, 0), 1);
    CHECK_EQ(parse(batch_for(node, kThere)).size(), 1u);
}

TEST("a death is not told to processes of other nodes in this node's names") {
    FakeNode node;
    const ProcessId far = proxy_of(node, kThere, {5, 50}), dead{9, 1};
    CHECK(node.port.send(far, Kind::PEER_DIED, &dead, sizeof dead));
    CHECK(batch_for(node, kThere).empty());
}

TEST("nobody but the relay speaks for others") {
    FakeNode node;
    Puppet liar(node), believer(node), victim(node);
    CHECK(liar.channels().send_as(believer.id, victim.id, uint16_t(Kind::WANT), 0, "x", 1));
    liar.say(believer.id, Kind::VALUE, uint32_t(1));
    CHECK(believer.has_heard(liar.id, Kind::VALUE));
    CHECK(!believer.has_heard(victim.id, Kind::WANT) && !believer.has_heard(liar.id, Kind::WANT));
}

TEST("rings that nobody writes to are given back when they are asked for, and opened again at need") {
    FakeNode node;
    Puppet a(node), b(node), c(node);
    auto view = Segment::attach(node.port.segment_fd());
    const auto say = [&](Puppet& to, uint32_t n) {
        a.say(to.id, Kind::WANT, n);
        EVENTUALLY(to.has_heard(a.id, Kind::WANT));
        to.hear(a.id, Kind::WANT);
    };
    say(b, 1);
    say(c, 2);
    a.channels().return_idle();
    say(c, 3);
    a.channels().return_idle();  // only that to b is idle since the last time
    CHECK(view->open_block(a.id.slot, c.id.slot) != 0);
    a.say(b.id, Kind::WANT, uint32_t(4));  // before b has seen that the ring is over
    CHECK(!b.has_heard(a.id, Kind::WANT));
    CHECK_EQ(view->ring_of(a.id.slot, b.id.slot).load(), kParted);
    a.has_heard(b.id, Kind::WANT);  // it is told that it may open another
    CHECK(b.has_heard(a.id, Kind::WANT));
    a.channels().return_idle();
    a.channels().return_idle();
    CHECK(!c.has_heard(a.id, Kind::WANT));
    CHECK_EQ(view->open_block(a.id.slot, c.id.slot), 0u);
    CHECK(node.port.mark_dead(c.id) == std::vector<ProcessId>{a.id});  // it is told all the same
    CHECK(!node.port.release_slot(c.id));
    a.channels().forget(c.id);
    CHECK(node.port.release_slot(c.id));
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
    EVENTUALLY((carry(), worker->inbox.has_incoming()));
    const Task_ task = next_task(*worker);
    CHECK(nodes.there.port.forwarding().names.far(task.from) == (FarProcess{kHere, driver->self()}));
    reply(*worker, task, {"from far away"});
    EVENTUALLY((carry(), result->is_done()));
    CHECK_EQ(get(*driver, result), "from far away");
    driver->objects.drop(result);
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
    CHECK(!node.port.is_alive(far));
    CHECK(!node.port.forwarding().names.of_proxy(far));
    CHECK(node.port.forwarding().names.far(far) ==
          (FarProcess{kThere, {5, 50}}));  // records may name it still
    CHECK(get(*driver, result).find("lost its worker") != std::string::npos);
    node.expect(Kind::PEER_DETACHED);
    CHECK(node.port.release_slot(far));
    CHECK(!node.port.is_proxy(far.slot));
    ProcessId next;
    do {
        next = proxy_of(node, kThere, {6, 60});
        node.port.mark_dead(next);
        node.port.release_slot(next);
    } while (next.slot != far.slot);
    CHECK_EQ(next.generation, far.generation + 1);
    driver->objects.drop(result);
}

TEST("a local process that has talked with proxies only leaves nothing behind") {
    FakeNode node;
    const ProcessId far = proxy_of(node, kThere, {5, 50});
    Puppet local(node);
    local.say(far, Kind::WANT, uint32_t(1));
    CHECK_EQ(parse(batch_for(node, kThere)).size(), 1u);
    CHECK(node.port.mark_dead(local.id).empty());
    CHECK(node.port.release_slot(local.id));
    node.port.mark_dead(far);
    CHECK(node.port.release_slot(far));
    CHECK_EQ(node.port.statistics().ring_blocks_used, 0u);
}

TEST("twenty thousand processes of other nodes take no slot and no ring of this one") {
    FakeNode node;
    Puppet local(node);
    const uint64_t slots = node.port.statistics().slots_used;
    std::vector<ProcessId> all;
    for (uint32_t i = 0; i < 20'000; ++i)
        all.push_back(proxy_of(node, 1 + i / 100, {2 + i % 100, 1}));
    for (const ProcessId& far : all)
        local.say(far, Kind::WANT, far.slot);
    std::set<uint32_t> reached;
    EVENTUALLY((local.has_heard(all[0], Kind::ACQUAINT), read_rings(node), [&] {
        node.port.forwarding().commit();
        for (const uint32_t to : node.port.forwarding().nodes_with_output())
            for (const Sent& record : parse(node.port.forwarding().take_batch(to)))
                reached.insert(to << 8 | record.to.slot);
        return reached.size() == all.size();
    }()));
    CHECK_EQ(node.port.statistics().slots_used, slots);
    CHECK_EQ(node.port.statistics().ring_blocks_used, 1u);
    for (const ProcessId& far : all)
        CHECK(node.port.mark_dead(far) == std::vector<ProcessId>{local.id} && node.port.release_slot(far));
}

TEST("an object of another node is received into memory when somebody wants it") {
    FakeNode node(16 * kGranuleBytes);
    auto reader = node.driver();
    const ProcessId far = node.port.add_proxy({kThere, {5, 50}});
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
    const ProcessId far = node.port.add_proxy({kThere, {5, 50}});
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
