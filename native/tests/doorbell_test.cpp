/// Doorbells: whoever sleeps is woken, whoever is awake is left alone, and no ready bit is lost.
#include "doorbell.hpp"

#include <poll.h>
#include <sys/eventfd.h>

#include <array>
#include <thread>

#include "check.hpp"

using namespace weft;

namespace {

constexpr int kPingPongs = 100'000;

/// Two counters, each written by one side before it rings the other.
struct Table {
    std::array<std::atomic<uint32_t>, 2> served{};
};

/// Sleeps as a waiter does: says so, looks once more, then waits for the word to change.
void sleep_until_rung(Segment& segment, uint32_t self, bool as_background) {
    Doorbell& bell = segment.bell(self);
    Shared<uint32_t>& word = as_background ? bell.background_word : bell.waiter_word;
    const uint32_t seen = word.load(std::memory_order_seq_cst);
    bell.state.store(uint32_t(as_background ? Bell::background_sleeps : Bell::waiter_sleeps),
                     std::memory_order_seq_cst);
    if (!has_ready(segment, bell)) futex_wait(word, seen, -1);
    bell.state.store(uint32_t(Bell::awake), std::memory_order_seq_cst);
}

/// Plays `self`'s side: waits for the other's n-th ball, then serves its own. A lost wake-up hangs.
void play(Segment& segment, Table& table, uint32_t self) {
    const uint32_t other = 3 - self;
    for (uint32_t n = 1; n <= kPingPongs; ++n) {
        if (self == 1) {
            table.served[0].store(n, std::memory_order_release);
            ring_bell(segment, self, other, -1);
        }
        while (table.served[other - 1].load(std::memory_order_acquire) < n) {
            sleep_until_rung(segment, self, n % 2 == 0);
            take_ready(segment, segment.bell(self), [&](uint32_t slot) { CHECK_EQ(slot, other); });
        }
        if (self == 2) {
            table.served[1].store(n, std::memory_order_release);
            ring_bell(segment, self, other, -1);
        }
    }
}

}  // namespace

TEST("two processes ring each other to and fro and no wake-up is lost") {
    auto segment = Segment::create(1 << 20);
    SharedWithChildren<Table> table;
    Child child([&] { play(*segment, *table, 2); });
    play(*segment, *table, 1);
    child.join();
}

TEST("two threads ring each other to and fro and no wake-up is lost") {
    auto segment = Segment::create(1 << 20);
    Table table;
    std::thread other([&] { play(*segment, table, 2); });
    play(*segment, table, 1);
    other.join();
}

TEST("whoever is awake is not woken, and its bit is set once") {
    auto segment = Segment::create(1 << 20);
    Doorbell& bell = segment->bell(1);
    for (int i = 0; i < 3; ++i)
        ring_bell(*segment, 2, 1, -1);
    CHECK_EQ(bell.waiter_word.load(), 0u);
    CHECK_EQ(bell.background_word.load(), 0u);
    CHECK(has_ready(*segment, bell));
    int visits = 0;
    take_ready(*segment, bell, [&](uint32_t slot) { visits += slot == 2 ? 1 : 100; });
    CHECK_EQ(visits, 1);
    CHECK(!has_ready(*segment, bell));
}

TEST("only the first ring wakes a sleeper, by the word it sleeps on") {
    auto segment = Segment::create(1 << 20);
    Doorbell& bell = segment->bell(1);
    for (const auto& [state, word] : {std::pair(Bell::waiter_sleeps, &bell.waiter_word),
                                      std::pair(Bell::background_sleeps, &bell.background_word)}) {
        bell.state.store(uint32_t(state));
        ring_bell(*segment, 2, 1, -1);
        ring_bell(*segment, 3, 1, -1);
        CHECK_EQ(bell.state.load(), uint32_t(Bell::awake));
        CHECK_EQ(word->load(), 1u);
    }
    CHECK_EQ(bell.waiter_word.load() + bell.background_word.load(), 2u);
}

TEST("who sleeps in a selector is woken by its eventfd") {
    auto segment = Segment::create(1 << 20);
    const int event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    Doorbell& bell = segment->bell(kDaemonSlot);
    std::atomic<uint32_t> published{0};
    constexpr uint32_t kRings = 200'000;
    std::thread producer([&] {
        for (uint32_t n = 1; n <= kRings; ++n) {
            published.store(n, std::memory_order_release);
            ring_bell(*segment, 1, kDaemonSlot, event);
            if (n % 16 == 0) sched_yield();
        }
    });
    uint32_t seen = 0;
    while (seen < kRings) {
        bell.state.store(uint32_t(Bell::eventfd_sleeps), std::memory_order_seq_cst);
        if (!has_ready(*segment, bell)) {
            pollfd item{event, POLLIN, 0};
            CHECK_EQ(poll(&item, 1, 20'000), 1);
            uint64_t count = 0;
            CHECK(read(event, &count, sizeof count) == sizeof count);
        }
        bell.state.store(uint32_t(Bell::awake), std::memory_order_seq_cst);
        take_ready(*segment, bell, [&](uint32_t) { seen = published.load(std::memory_order_acquire); });
    }
    producer.join();
    close(event);
}

TEST("each of a thousand slots has a bit of its own") {
    auto segment = Segment::create(1 << 20);
    segment->header().ready_words.store(kFewSlots / 64);
    Doorbell& bell = segment->bell(1);
    for (uint32_t slot = 0; slot < kFewSlots; slot += 3)
        ring_bell(*segment, slot, 1, -1);
    uint32_t next = 0;
    take_ready(*segment, bell, [&](uint32_t slot) {
        CHECK_EQ(slot, next);
        next += 3;
    });
    CHECK(next >= kFewSlots);
    CHECK(!has_ready(*segment, bell));
}

TEST("a consumer finds the last word of every one of many producers") {
    constexpr uint32_t kProducers = 4, kSlotsEach = 60, kWords = 5'000;
    auto segment = Segment::create(1 << 20);
    segment->header().ready_words.store(kFewSlots / 64);
    std::array<std::atomic<uint32_t>, kFewSlots> published{};
    std::vector<std::thread> producers;
    for (uint32_t p = 0; p < kProducers; ++p) {
        producers.emplace_back([&, p] {
            for (uint32_t n = 1; n <= kWords; ++n) {
                for (uint32_t k = 0; k < kSlotsEach; ++k) {
                    const uint32_t slot = 2 + k * kProducers + p;  // neighbours share a word of bits
                    published[slot].store(n, std::memory_order_release);
                    ring_bell(*segment, slot, 1, -1);
                }
            }
        });
    }
    std::array<uint32_t, kFewSlots> seen{};
    uint32_t finished = 0;
    while (finished < kProducers * kSlotsEach) {
        sleep_until_rung(*segment, 1, false);
        take_ready(*segment, segment->bell(1), [&](uint32_t slot) {
            const uint32_t now = published[slot].load(std::memory_order_acquire);
            CHECK(now >= seen[slot]);
            if (now == kWords && seen[slot] != kWords) ++finished;
            seen[slot] = now;
        });
    }
    for (std::thread& producer : producers)
        producer.join();
}
