/// Channels: records of any size, full rings in both directions, and peers that are dead.
#include "channels.hpp"

#include <barrier>
#include <map>
#include <thread>

#include "check.hpp"

using namespace weft;

namespace {

/// A segment and the processes in it, as far as channels can tell.
struct House {
    std::unique_ptr<Segment> segment = Segment::create(1 << 20);

    ProcessId enter(uint32_t slot) {
        segment->header().ready_words.store(segment->header().slots / 64);
        const uint32_t generation = segment->slot(slot).generation.fetch_add(1) + 1;
        segment->slot(slot).alive.store(1);
        return {slot, generation};
    }
    void die(ProcessId id) { segment->slot(id.slot).alive.store(0); }
    uint32_t blocks() const {
        uint32_t count = 0;
        for (uint32_t b = 0; b < segment->header().blocks; ++b)
            count += segment->block_owner(b).load() != 0 ? 1 : 0;
        return count;
    }
};

/// The n-th record of a conversation: as long as its number says, and full of it.
std::string text_of(uint64_t n) {
    const uint64_t x = Random(n + 1).next() >> 8;
    size_t bytes = x % 300;
    if (x % 97 == 0) bytes = (x >> 10) % kMaxRecord;
    if (x % 997 == 0) bytes = (x >> 10) % (3 * kMaxRecord);
    std::string text(bytes, char('a' + n % 26));
    text.append(reinterpret_cast<const char*>(&n), sizeof n);
    return text;
}

Kind kind_of(uint64_t n) {
    return Kind(100 + n % 7);
}

/// One end: sends numbered records and checks that those of each peer come in order.
struct End {
    Channels channels;
    std::map<uint32_t, uint64_t> sent, got;

    End(House& house, ProcessId self) : channels(*house.segment, self, -1) {}
    void send(ProcessId to) {
        const uint64_t n = sent[to.slot]++;
        const std::string text = text_of(n);
        CHECK(channels.send(to, kind_of(n), text.data(), text.size()));
    }
    size_t receive(uint32_t slot) {
        return channels.receive(slot, [&](ProcessId from, Kind kind, const char* data, size_t bytes) {
            const uint64_t n = got[from.slot]++;
            CHECK(kind == kind_of(n));
            CHECK(std::string_view(data, bytes) == text_of(n));
        });
    }
};

}  // namespace

TEST("a record arrives whole whatever its size") {
    House house;
    const ProcessId a = house.enter(1), b = house.enter(2);
    Channels from(*house.segment, a, -1), to(*house.segment, b, -1);
    for (const size_t bytes :
         {size_t(0), size_t(1), size_t(kMaxRecord) - 1, size_t(kMaxRecord), size_t(kMaxRecord) + 1,
          size_t(kRingBytes), 2 * size_t(kMaxRecord), 2 * size_t(kMaxRecord) + 1, size_t(5'000'000)}) {
        std::string text(bytes, 0);
        for (size_t i = 0; i < bytes; ++i)
            text[i] = char(i * 31 + (i >> 13));
        CHECK(from.send(b, Kind::VALUE, bytes == 0 ? nullptr : text.data(), bytes));
        int arrived = 0;
        while (arrived == 0) {
            to.receive(a.slot, [&](ProcessId who, Kind kind, const char* data, size_t got) {
                CHECK(who == a && kind == Kind::VALUE);
                CHECK(std::string_view(data, got) == text);
                ++arrived;
            });
            from.receive(b.slot, [](ProcessId, Kind, const char*, size_t) { CHECK(false); });
        }
        CHECK_EQ(arrived, 1);
    }
}

TEST("what does not fit waits in the sender, in order, and goes when there is room") {
    House house;
    const ProcessId a = house.enter(1), b = house.enter(2);
    End from(house, a), to(house, b);
    for (int i = 0; i < 5000; ++i)
        from.send(b);
    take_ready(*house.segment, house.segment->bell(1), [](uint32_t) {});
    to.receive(a.slot);
    CHECK(to.got[a.slot] < 5000);
    // The consumer has rung back because the producer said that it waits.
    while (to.got[a.slot] < 5000) {
        bool rung = false;
        take_ready(*house.segment, house.segment->bell(1), [&](uint32_t slot) {
            rung = slot == b.slot;
            from.receive(slot);
        });
        CHECK(rung);
        to.receive(a.slot);
    }
    CHECK(to.receive(a.slot) == 0);
}

namespace {

void sleep_until_rung(Segment& segment, uint32_t self) {
    Doorbell& bell = segment.bell(self);
    const uint32_t seen = bell.waiter_word.load();
    bell.state.store(uint32_t(Bell::waiter_sleeps), std::memory_order_seq_cst);
    if (!has_ready(segment, bell)) futex_wait(bell.waiter_word, seen, -1);
    bell.state.store(uint32_t(Bell::awake), std::memory_order_seq_cst);
}

/// Sends to all others as fast as it can, hardly listens, and then sleeps until all that it must get has come
/// and all others are served too: a wake-up that is lost hangs.
void flood(House& house, const std::vector<ProcessId>& all, size_t me, uint64_t records,
           std::atomic<uint32_t>& served) {
    Segment& segment = *house.segment;
    End end(house, all[me]);
    Random random(me + 1);
    const auto listen = [&] {
        take_ready(segment, segment.bell(all[me].slot), [&](uint32_t slot) { end.receive(slot); });
    };
    for (uint64_t n = 0; n < records; ++n) {
        for (size_t i = 0; i < all.size(); ++i)
            if (i != me) end.send(all[i]);
        if (random.below(200) == 0) listen();
    }
    bool counted = false;
    while (served.load() < all.size()) {
        listen();
        bool complete = true;
        for (size_t i = 0; i < all.size(); ++i)
            complete = complete && (i == me || end.got[all[i].slot] == records);
        if (complete && !counted) {
            counted = true;
            served.fetch_add(1);
            for (const ProcessId& other : all)
                ring_bell(segment, all[me].slot, other.slot, -1);
        }
        if (served.load() < all.size()) sleep_until_rung(segment, all[me].slot);
    }
}

}  // namespace

TEST("two processes that flood each other both get everything") {
    House house;
    const std::vector<ProcessId> all{house.enter(1), house.enter(2)};
    SharedWithChildren<std::atomic<uint32_t>> served;
    Child other([&] { flood(house, all, 1, 60'000, *served); });
    flood(house, all, 0, 60'000, *served);
    other.join();
}

TEST("four threads that flood each other all get everything") {
    House house;
    std::vector<ProcessId> all;
    for (uint32_t slot : {1u, 70u, 300u, 1023u})
        all.push_back(house.enter(slot));
    std::atomic<uint32_t> served{0};
    std::vector<std::thread> threads;
    for (size_t i = 0; i < all.size(); ++i)
        threads.emplace_back([&, i] { flood(house, all, i, 4000, served); });
    for (std::thread& thread : threads)
        thread.join();
}

TEST("a handler may send, also to whom it is hearing") {
    House house;
    const ProcessId a = house.enter(1), b = house.enter(2);
    Channels from(*house.segment, a, -1), to(*house.segment, b, -1);
    for (uint32_t i = 0; i < 100; ++i)
        CHECK(from.send(b, Kind::WANT, &i, sizeof i));
    to.receive(a.slot, [&](ProcessId who, Kind, const char* data, size_t bytes) {
        to.send(who, Kind::VALUE, data, bytes);
    });
    uint32_t next = 0;
    from.receive(b.slot, [&](ProcessId, Kind, const char* data, size_t) {
        CHECK(memcmp(data, &next, 4) == 0);
        ++next;
    });
    CHECK_EQ(next, 100u);
}

TEST("forgetting a dead peer gives both rings back, and its successor starts afresh") {
    House house;
    const ProcessId a = house.enter(1), b = house.enter(2);
    Channels mine(*house.segment, a, -1);
    {
        Channels theirs(*house.segment, b, -1);
        CHECK(mine.send(b, Kind::WANT, "x", 1));
        CHECK(theirs.send(a, Kind::WANT, "y", 1));
        for (int i = 0; i < 10; ++i) {  // part of a record, and more than fits
            const std::string large(100'000, 'z');
            CHECK(mine.send(b, Kind::VALUE, large.data(), large.size()));
        }
    }
    CHECK(!mine.knows({b.slot, b.generation + 1}));
    CHECK(mine.knows(b));
    CHECK_EQ(house.blocks(), 2u);
    house.die(b);
    mine.forget({b.slot, b.generation + 1});  // not that one
    CHECK_EQ(house.blocks(), 2u);
    mine.forget(b);
    CHECK(!mine.knows(b));
    CHECK_EQ(house.blocks(), 0u);
    CHECK(!mine.send(b, Kind::WANT, "x", 1));
    CHECK_EQ(house.blocks(), 0u);

    const ProcessId heir = house.enter(2);
    Channels theirs(*house.segment, heir, -1);
    CHECK(mine.send(heir, Kind::VALUE, "new", 3));
    std::string got;
    theirs.receive(a.slot, [&](ProcessId, Kind, const char* data, size_t bytes) { got.append(data, bytes); });
    CHECK_EQ(got, "new");
    CHECK(!mine.send(b, Kind::VALUE, "old", 3));
}

TEST("a handler may forget whom it is hearing") {
    House house;
    const ProcessId a = house.enter(1), b = house.enter(2);
    Channels mine(*house.segment, a, -1), theirs(*house.segment, b, -1);
    for (int i = 0; i < 5; ++i)
        CHECK(theirs.send(a, Kind::WANT, "x", 1));
    int heard = 0;
    mine.receive(b.slot, [&](ProcessId from, Kind, const char*, size_t) {
        if (++heard == 2) mine.forget(from);
    });
    CHECK_EQ(heard, 2);
    CHECK_EQ(house.blocks(), 0u);
}

TEST("who reaches a process while it dies learns of it, or whoever buries it sees the ring") {
    House house;
    const ProcessId a = house.enter(1);
    std::atomic<uint32_t> round{0};
    std::barrier<> both(2);
    std::atomic<uint64_t> now{0};
    constexpr uint32_t kRounds = 4000;
    std::atomic<bool> saw_ring{false};
    std::thread gravedigger([&] {
        for (uint32_t n = 1; n <= kRounds; ++n) {
            both.arrive_and_wait();
            const ProcessId b = ProcessId::from_key(now.load());
            for (uint64_t pause = Random(n).below(200); pause > 0; --pause)
                round.fetch_add(1);
            house.segment->slot(b.slot).alive.store(0);
            std::atomic_thread_fence(std::memory_order_seq_cst);
            saw_ring.store(false);
            house.segment->blocks_of(b.slot, [&](auto...) { saw_ring.store(true); });
            both.arrive_and_wait();
        }
    });
    for (uint32_t n = 1; n <= kRounds; ++n) {
        Channels mine(*house.segment, a, -1);
        const ProcessId b = house.enter(2);
        now.store(b.key());
        both.arrive_and_wait();
        for (uint64_t pause = Random(n + 1'000'000).below(200); pause > 0; --pause)
            round.fetch_add(1);
        const bool sent = mine.send(b, Kind::VALUE, "x", 1);
        both.arrive_and_wait();
        CHECK(!sent || mine.has_found_dead() || saw_ring.load());
        CHECK_EQ(mine.has_found_dead(), has_ready(*house.segment, house.segment->bell(a.slot)));
        take_ready(*house.segment, house.segment->bell(a.slot),
                   [&](uint32_t slot) { CHECK_EQ(slot, a.slot); });
        for (const ProcessId& dead : mine.take_found_dead())
            CHECK(dead == b);
        mine.forget(b);
    }
    gravedigger.join();
    CHECK_EQ(house.blocks(), 0u);
}
