/// Objects in the arena: claiming, sealing, pinning, deleting, and many processes at once.
#include "arena.hpp"

#include <array>
#include <set>
#include <thread>

#include "arena_parts.hpp"

using namespace weft;

namespace {

constexpr ProcessId kFirst{1, 1}, kSecond{2, 1}, kThird{3, 1};

uint32_t place(const Segment& segment, const ArenaRef& ref) {
    return segment.object(ref.entry).first_granule;
}

}  // namespace

TEST("an object can be read once it is sealed, and not before") {
    auto segment = inhabited(16 * kGranuleBytes);
    Arena writer(*segment, kFirst), reader(*segment, kSecond);
    ArenaRef ref;
    char *data = nullptr, *seen = nullptr;
    CHECK(writer.allocate(100'000, kFirst, ref, data));
    CHECK(reader.pin(ref, seen) == PinResult::lost);
    write_pattern(data, ref);
    writer.seal(ref, true);
    CHECK(reader.pin(ref, seen) == PinResult::ok);
    CHECK(seen == data && has_pattern(seen, ref));
    reader.unpin(ref);
    CHECK_EQ(check_books(*segment), 1u);
    CHECK_EQ(granules_of(*segment, ref), 2u);
}

TEST("an object of no bytes has a place too") {
    auto segment = inhabited(16 * kGranuleBytes);
    Arena arena(*segment, kFirst);
    ArenaRef ref;
    char* data = nullptr;
    CHECK(arena.allocate(0, kFirst, ref, data));
    arena.seal(ref, true);
    CHECK_EQ(granules_of(*segment, ref), 1u);
    arena.remove(ref);
    CHECK(is_gone(*segment, ref));
}

TEST("a deleted object goes at once when nobody reads it, and its ref leads nowhere") {
    auto segment = inhabited(16 * kGranuleBytes);
    Arena arena(*segment, kFirst);
    const ArenaRef ref = make(arena, 3, kFirst);
    arena.remove(ref);
    CHECK(is_gone(*segment, ref));
    char* data = nullptr;
    CHECK(arena.pin(ref, data) == PinResult::lost);
    arena.remove(ref);  // twice is once
    CHECK_EQ(check_books(*segment), 0u);
}

TEST("an object deleted while it is read goes with the last reader") {
    auto segment = inhabited(16 * kGranuleBytes);
    Arena owner(*segment, kFirst), second(*segment, kSecond), third(*segment, kThird);
    const ArenaRef ref = make(owner, 2, kFirst);
    char* data = nullptr;
    CHECK(second.pin(ref, data) == PinResult::ok);
    CHECK(second.pin(ref, data) == PinResult::ok);
    CHECK(third.pin(ref, data) == PinResult::ok);
    owner.remove(ref);
    char* late = nullptr;
    CHECK(owner.pin(ref, late) == PinResult::lost);
    second.unpin(ref);
    third.unpin(ref);
    CHECK(!is_gone(*segment, ref));
    CHECK(has_pattern(data, ref));
    second.unpin(ref);
    CHECK(is_gone(*segment, ref));
    second.unpin(ref);  // one too many does nothing
    CHECK_EQ(check_books(*segment), 0u);
}

TEST("who still reads a deleted object can pin it again") {
    auto segment = inhabited(16 * kGranuleBytes);
    Arena owner(*segment, kFirst), reader(*segment, kSecond);
    const ArenaRef ref = make(owner, 2, kFirst);
    char* data = nullptr;
    CHECK(reader.pin(ref, data) == PinResult::ok);
    owner.remove(ref);
    CHECK(reader.pin(ref, data) == PinResult::ok);
    reader.unpin(ref);
    reader.unpin(ref);
    CHECK(is_gone(*segment, ref));
}

TEST("a ref to what was there before does not disturb who reads what is there now") {
    auto segment = inhabited(kGranuleBytes);
    Arena owner(*segment, kFirst), reader(*segment, kSecond);
    const ArenaRef old = make(owner, 1, kFirst);
    owner.remove(old);
    ArenaRef now = make(owner, 1, kFirst);
    for (uint32_t i = 0; now.entry != old.entry && i < segment->header().objects; ++i) {
        owner.remove(now);  // entries are used in turn
        now = make(owner, 1, kFirst);
    }
    CHECK_EQ(old.entry, now.entry);
    char* data = nullptr;
    CHECK(reader.pin(now, data) == PinResult::ok);
    char* stale = nullptr;
    CHECK(reader.pin(old, stale) == PinResult::lost);
    owner.remove(now);
    CHECK(!is_gone(*segment, now));
    reader.unpin(now);
    CHECK(is_gone(*segment, now));
}

TEST("a full object table refuses though there is memory, and takes more once an entry is free") {
    auto segment = inhabited(16 * kGranuleBytes);
    segment->header().objects = 3;
    Arena arena(*segment, kFirst);
    std::vector<ArenaRef> refs;
    for (int i = 0; i < 3; ++i) {
        CHECK(arena.has_entry());
        refs.push_back(make(arena, 1, kFirst));
    }
    CHECK(!arena.has_entry() && arena.has_run(13));
    ArenaRef ref;
    char* data = nullptr;
    CHECK(!arena.allocate(kGranuleBytes, kFirst, ref, data));
    CHECK(!arena.import_entry(kGranuleBytes, kFirst, ref));
    arena.remove(refs[1]);
    CHECK(arena.has_entry());
    refs[1] = make(arena, 1, kFirst);
    CHECK_EQ(check_books(*segment), 3u);
}

TEST("what will not be sealed is given up") {
    auto segment = inhabited(16 * kGranuleBytes);
    Arena arena(*segment, kFirst);
    ArenaRef ref;
    char* data = nullptr;
    CHECK(arena.allocate(5 * kGranuleBytes, kSecond, ref, data));
    arena.abandon(ref);
    CHECK(is_gone(*segment, ref));
    CHECK_EQ(check_books(*segment), 0u);
}

TEST("the memory that was freed last is used first") {
    auto segment = inhabited(64 * kGranuleBytes);
    Arena arena(*segment, kFirst), other(*segment, kSecond);
    const ArenaRef a = make(arena, 4, kFirst), b = make(arena, 4, kFirst), c = make(arena, 4, kFirst);
    const uint32_t at_a = place(*segment, a), at_b = place(*segment, b);
    arena.remove(b);
    CHECK_EQ(place(*segment, make(arena, 4, kFirst)), at_b);
    arena.remove(a);
    CHECK_EQ(place(*segment, make(other, 3, kSecond)), at_a);  // whoever asks next
    CHECK_EQ(place(*segment, make(other, 1, kSecond)), at_a + 3);
    check_readable(other, c);
    CHECK_EQ(check_books(*segment), 4u);
}

TEST("what is freed in the order in which it was made is used again, and no other memory") {
    auto segment = inhabited(64 * kGranuleBytes);
    Arena arena(*segment, kFirst);
    std::set<uint32_t> places;
    for (int round = 0; round < 10; ++round) {
        std::array<ArenaRef, 3> refs;
        for (ArenaRef& ref : refs)
            places.insert(place(*segment, ref = make(arena, 1, kFirst)));
        for (const ArenaRef& ref : refs)
            arena.remove(ref);
    }
    CHECK_EQ(places.size(), 3u);
}

TEST("a full arena refuses, and takes more once something went") {
    auto segment = inhabited(32 * kGranuleBytes);
    Arena arena(*segment, kFirst), other(*segment, kSecond);
    ArenaRef ref;
    char* data = nullptr;
    CHECK(!arena.allocate(33 * kGranuleBytes, kFirst, ref, data));
    std::vector<ArenaRef> refs;
    for (int i = 0; i < 8; ++i)
        refs.push_back(make(arena, 4, kFirst));
    CHECK(!arena.allocate(1, kFirst, ref, data));
    CHECK(!other.allocate(1, kSecond, ref, data));
    arena.remove(refs[2]);
    arena.remove(refs[3]);
    arena.remove(refs[6]);
    CHECK(!arena.allocate(9 * kGranuleBytes, kFirst, ref, data));  // twelve are free, but not in one run
    CHECK_EQ(place(*segment, make(other, 8, kSecond)), place(*segment, refs[1]) + 4);
    CHECK(!arena.allocate(5 * kGranuleBytes, kFirst, ref, data));
    make(arena, 4, kFirst);
    CHECK(!arena.allocate(1, kFirst, ref, data));
    CHECK_EQ(check_books(*segment), 7u);
}

TEST("a run is found across the place where the last search ended") {
    auto segment = inhabited(16 * kGranuleBytes);
    Arena arena(*segment, kFirst);
    const ArenaRef a = make(arena, 6, kFirst), b = make(arena, 6, kFirst);
    arena.remove(a);
    arena.remove(b);
    for (uint32_t hint = 0; hint < 40; ++hint) {
        segment->header().granule_hint.store(hint);
        const ArenaRef all = make(arena, 16, kFirst);
        CHECK_EQ(place(*segment, all), 0u);
        arena.remove(all);
    }
}

namespace {

/// Refs that everybody may read. Who puts one in owns it and removes it when it is pushed out.
struct Board {
    std::array<std::atomic<uint64_t>, 64> refs{};
    std::atomic<uint64_t> reads{0};  ///< of all: one thread may find all memory taken for as long as it runs
};

ArenaRef unpack(uint64_t word) {
    return {uint32_t(word), uint32_t(word >> 40), uint64_t((word >> 32) & 0xff) * kGranuleBytes};
}
uint64_t pack(const ArenaRef& ref) {
    return uint64_t(ref.generation) << 40 | uint64_t(ref.bytes / kGranuleBytes) << 32 | ref.entry;
}

/// Random work of one thread; every object that it reads must be whole.
void work(Segment& segment, Arena& arena, ProcessId self, Board& board, uint32_t seed, int rounds) {
    Random random(seed);
    std::vector<std::pair<uint32_t, ArenaRef>> mine;
    const auto drop = [&](size_t i) {
        uint64_t shown = pack(mine[i].second);
        board.refs[mine[i].first].compare_exchange_strong(shown, 0);
        arena.remove(mine[i].second);
        mine.erase(mine.begin() + long(i));
    };
    for (int round = 0; round < rounds; ++round) {
        const uint64_t what = random.below(10);
        if (what < 4) {
            ArenaRef ref;
            char* data = nullptr;
            const uint64_t granules = 1 + random.below(random.below(8) == 0 ? 40 : 6);
            if (!arena.allocate(granules * kGranuleBytes, self, ref, data)) {
                if (!mine.empty()) drop(random.below(mine.size()));
                continue;
            }
            CHECK(ref.generation < 1u << 24);
            write_pattern(data, ref);
            if (random.below(16) == 0) {
                arena.abandon(ref);
                continue;
            }
            arena.seal(ref, true);
            const auto spot = uint32_t(random.below(board.refs.size()));
            board.refs[spot].store(pack(ref));
            mine.emplace_back(spot, ref);
        } else if (what < 8) {
            const uint64_t word = board.refs[random.below(board.refs.size())].load();
            char* data = nullptr;
            if (word == 0 || arena.pin(unpack(word), data) != PinResult::ok) continue;
            CHECK(has_pattern(data, unpack(word)));
            if (random.below(100) == 0) sched_yield();
            CHECK(has_pattern(data, unpack(word)));
            arena.unpin(unpack(word));
            ++board.reads;
        } else if (!mine.empty()) {
            const size_t i = random.below(mine.size());
            char* data = nullptr;
            CHECK(arena.pin(mine[i].second, data) == PinResult::ok);
            CHECK(has_pattern(data, mine[i].second));
            arena.unpin(mine[i].second);
            if (what == 8 || mine.size() > 12) drop(i);
        }
    }
    while (!mine.empty())
        drop(0);
    CHECK(segment.header().granules > 0);
}

/// One process: an arena of its own, used by several threads.
void play(Segment& segment, ProcessId self, Board& board, int threads, int rounds) {
    Arena arena(segment, self);
    std::vector<std::thread> others;
    for (int t = 0; t < threads; ++t)
        others.emplace_back(
            [&, t] { work(segment, arena, self, board, self.slot * 100 + uint32_t(t), rounds); });
    for (std::thread& other : others)
        other.join();
}

}  // namespace

TEST("threads and processes at once never share memory, and nothing is left in the end") {
    for (const uint64_t granules : {24u, 300u}) {
        auto segment = inhabited(granules * kGranuleBytes);
        SharedWithChildren<Board> board;
        std::vector<Child> children;
        for (uint32_t p = 2; p <= 3; ++p)
            children.emplace_back([&, p] { play(*segment, {p * 60, 1}, *board, 2, 60'000); });
        play(*segment, {1, 1}, *board, 3, 60'000);
        for (Child& child : children)
            child.join();
        CHECK(board->reads > 0);
        CHECK_EQ(check_books(*segment), 0u);
    }
}

TEST("threads with arenas of their own never share memory") {
    // In one process, so that a race is seen for what it is.
    auto segment = inhabited(100 * kGranuleBytes);
    Board board;
    std::vector<std::thread> threads;
    for (uint32_t p = 1; p <= 4; ++p)
        threads.emplace_back([&, p] { play(*segment, {p, 1}, board, 1, 50'000); });
    for (std::thread& thread : threads)
        thread.join();
    CHECK(board.reads > 0);
    CHECK_EQ(check_books(*segment), 0u);
}
