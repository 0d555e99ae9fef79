/// A process dies anywhere in the arena's code: what it held comes back, what others hold is untouched.
#include <algorithm>
#include <array>

#include "arena_parts.hpp"
#include "stepping.hpp"

using namespace weft;

namespace {

constexpr ProcessId kLiving{1, 1}, kDead{70, 1}, kHeir{5, 1};

/// What the daemon does when a process died, and later when its peers are through with it.
void bury(Segment& segment, ProcessId dead) {
    segment.slot(dead.slot).alive.store(0);
    remove_objects_of(segment, dead);
    reclaim_after_death(segment, dead, false);
    reclaim_after_death(segment, dead, true);
}

/// More than these tests use.
constexpr uint32_t kEntries = 256;

/// The words that the arena keeps of itself, in two segments of one size.
struct Tables {
    std::span<char> hints, granules, objects;
    explicit Tables(Segment& segment)
        : hints(reinterpret_cast<char*>(&segment.header().granule_hint), 64),
          granules(reinterpret_cast<char*>(&segment.granule(0)), segment.header().granules * 4),
          objects(reinterpret_cast<char*>(&segment.object(0)), kEntries * sizeof(ObjectEntry)) {}
    void copy_to(const Tables& other) const {
        memcpy(other.hints.data(), hints.data(), hints.size());
        memcpy(other.granules.data(), granules.data(), granules.size());
        memcpy(other.objects.data(), objects.data(), objects.size());
    }
};

/// If kDead died now: afterwards there must be `living` and nothing else.
void check_death(Segment& segment, Segment& replica, const std::vector<ArenaRef>& living) {
    Tables(segment).copy_to(Tables(replica));
    bury(replica, kDead);
    CHECK_EQ(check_books(replica), living.size());
    Arena heir(replica, kHeir);
    for (const ArenaRef& ref : living) {
        CHECK(word_of(replica, ref.entry).is(ref.generation, Phase::sealed));
        CHECK(!is_gone(replica, ref));
        heir.remove(ref);
        CHECK(is_gone(replica, ref));
    }
    CHECK_EQ(check_books(replica), 0u);
    ArenaRef all;
    char* data = nullptr;
    CHECK(heir.allocate(replica.header().arena_bytes, kHeir, all, data));
}

/// Runs `child` as kDead, step by step; after each change its death is tried on a copy. `parent` is called at
/// each your_turn() and keeps the list of what must live.
void die_everywhere(Segment& segment, std::vector<ArenaRef>& living, const std::function<void(Arena&)>& child,
                    const std::function<void()>& parent) {
    auto replica = Segment::create(segment.header().arena_bytes);
    const Tables tables(segment);
    int deaths = 0;
    const bool ended = step_through(
        {tables.hints, tables.granules, tables.objects},
        [&] {
            Arena arena(segment, kDead);
            child(arena);
        },
        [&] {
            ++deaths;
            check_death(segment, *replica, living);
            return true;
        },
        parent);
    CHECK(ended);
    CHECK(deaths > 5);
    check_death(segment, *replica, living);
}

}  // namespace

TEST("who dies while it makes an object leaves no trace of it") {
    if (!kCanStep) return;
    auto segment = inhabited(12 * kGranuleBytes);
    Arena arena(*segment, kLiving);
    // What entries and granules were before must not matter.
    for (int i = 0; i < 12; ++i)
        arena.remove(make(arena, 1 + uint32_t(i) % 5, kLiving));
    std::vector<ArenaRef> living{make(arena, 2, kLiving), make(arena, 1, kLiving)};
    die_everywhere(
        *segment, living,
        [&](Arena& mine) {
            ArenaRef ref;
            char* data = nullptr;
            CHECK(mine.allocate(3 * kGranuleBytes, kDead, ref, data));
            mine.seal(ref, true);
            CHECK(mine.allocate(kGranuleBytes, kLiving, ref, data));
            mine.abandon(ref);
            CHECK(!mine.allocate(10 * kGranuleBytes, kDead, ref, data));
        },
        [] {});
}

TEST("who dies while it deletes its objects leaves none of them") {
    if (!kCanStep) return;
    auto segment = inhabited(12 * kGranuleBytes);
    Arena arena(*segment, kLiving);
    std::vector<ArenaRef> living{make(arena, 2, kLiving), make(arena, 1, kLiving)};
    // One was written by itself, one by another for it.
    const ArenaRef given = make(arena, 4, kDead, false);
    Arena before(*segment, kDead);
    const ArenaRef own = make(before, 3, kDead);
    arena.accept(given);
    die_everywhere(
        *segment, living,
        [&](Arena& mine) {
            mine.remove(own);
            mine.remove(given);
        },
        [] {});
}

TEST("what a process wrote for another lives once it is accepted") {
    if (!kCanStep) return;
    auto segment = inhabited(12 * kGranuleBytes);
    Arena arena(*segment, kLiving);
    std::vector<ArenaRef> living;
    SharedWithChildren<ArenaRef> result;
    die_everywhere(
        *segment, living,
        [&](Arena& mine) {
            *result = make(mine, 3, kLiving, false);
            your_turn();
        },
        [&] {
            arena.accept(*result);
            living.push_back(*result);
        });
    CHECK_EQ(living.size(), 1u);
}

TEST("who dies while it reads does not keep what it read") {
    if (!kCanStep) return;
    auto segment = inhabited(12 * kGranuleBytes);
    Arena arena(*segment, kLiving);
    const ArenaRef going = make(arena, 3, kLiving), staying = make(arena, 2, kLiving);
    const ArenaRef gone = make(arena, 2, kLiving);
    arena.remove(gone);
    std::vector<ArenaRef> living{going, staying};
    die_everywhere(
        *segment, living,
        [&](Arena& mine) {
            char* data = nullptr;
            CHECK(mine.pin(staying, data) == PinResult::ok);
            CHECK(mine.pin(going, data) == PinResult::ok);
            CHECK(mine.pin(gone, data) == PinResult::lost);
            your_turn();
            CHECK(mine.pin(going, data) == PinResult::ok);
            mine.unpin(going);
            mine.unpin(going);  // the last reader of what was deleted meanwhile: it reclaims
            mine.unpin(staying);
            CHECK(mine.pin(going, data) == PinResult::lost);
        },
        [&] {
            arena.remove(going);
            std::erase_if(living, [&](const ArenaRef& ref) { return ref.entry == going.entry; });
        });
}

TEST("an object whose owner died stays for who reads it, and goes with that reader") {
    auto segment = inhabited(12 * kGranuleBytes);
    Arena arena(*segment, kLiving), owner(*segment, kDead);
    const ArenaRef ref = make(owner, 2, kDead);
    char* data = nullptr;
    CHECK(arena.pin(ref, data) == PinResult::ok);
    bury(*segment, kDead);
    CHECK(!is_gone(*segment, ref));
    CHECK(has_pattern(data, ref));
    arena.unpin(ref);
    CHECK_EQ(check_books(*segment), 0u);
}

TEST("what is written for an owner that died meanwhile goes as soon as it is there") {
    auto segment = inhabited(12 * kGranuleBytes);
    Arena arena(*segment, kLiving);
    ArenaRef ref;
    char* data = nullptr;
    CHECK(arena.allocate(3 * kGranuleBytes, kDead, ref, data));
    bury(*segment, kDead);
    CHECK(!is_gone(*segment, ref));
    arena.seal(ref, false);
    CHECK(is_gone(*segment, ref));
    CHECK_EQ(check_books(*segment), 0u);
}

namespace {

/// Refs of the living process that its murdered neighbours read.
struct Board {
    std::array<std::atomic<uint64_t>, 8> refs{};
    std::atomic<uint32_t> stop{0};
};

ArenaRef read_board(const Board& board, uint64_t i) {
    const uint64_t word = board.refs[i].load();
    return {uint32_t(word), uint32_t(word >> 32), kGranuleBytes};
}

/// Random work without an end.
[[noreturn]] void work_until_killed(Segment& segment, const Board& board, uint64_t seed) {
    Random random(seed);
    Arena arena(segment, kDead);
    std::vector<ArenaRef> mine;
    for (;;) {
        ArenaRef ref;
        char* data = nullptr;
        const uint64_t what = random.below(8);
        if (what < 3 && arena.allocate((1 + random.below(5)) * kGranuleBytes, kDead, ref, data)) {
            write_pattern(data, ref);
            if (random.below(4) == 0) {
                arena.abandon(ref);
                continue;
            }
            arena.seal(ref, true);
            mine.push_back(ref);
        } else if (what < 6) {
            ref = read_board(board, random.below(board.refs.size()));
            if (ref.generation == 0 || arena.pin(ref, data) != PinResult::ok) continue;
            CHECK(has_pattern(data, ref));
            arena.unpin(ref);
        } else if (!mine.empty()) {
            const size_t i = random.below(mine.size());
            arena.remove(mine[i]);
            mine.erase(mine.begin() + long(i));
        }
    }
}

/// A neighbour that lives through all the deaths; its objects are always whole.
void work_beside(Segment& segment, Board& board) {
    Random random(4711);
    Arena arena(segment, kLiving);
    std::array<ArenaRef, 8> mine{};
    for (uint32_t i = 0; i < mine.size(); ++i)
        mine[i].generation = ~0u;
    while (board.stop.load() == 0) {
        const size_t i = random.below(mine.size());
        if (mine[i].generation != ~0u) {
            check_readable(arena, mine[i]);
            board.refs[i].store(0);
            arena.remove(mine[i]);
            mine[i].generation = ~0u;
        }
        ArenaRef ref;
        char* data = nullptr;
        if (!arena.allocate(kGranuleBytes, kLiving, ref, data)) continue;
        write_pattern(data, ref);
        arena.seal(ref, true);
        mine[i] = ref;
        board.refs[i].store(uint64_t(ref.generation) << 32 | ref.entry);
    }
    for (const ArenaRef& ref : mine)
        if (ref.generation != ~0u) arena.remove(ref);
}

}  // namespace

TEST("hundreds of processes killed at random moments leave nothing, beside one that lives") {
    auto segment = inhabited(40 * kGranuleBytes);
    SharedWithChildren<Board> board;
    Child living([&] { work_beside(*segment, *board); });
    Random random(99);
    for (uint64_t n = 0; n < 400; ++n) {
        segment->slot(kDead.slot).alive.store(1);
        Child victim([&] { work_until_killed(*segment, *board, n + 1); });
        pause_us(long(random.below(1500)));
        victim.kill_now();
        bury(*segment, kDead);
        for (uint32_t g = 0; g < segment->header().granules; ++g)
            CHECK(segment->granule(g).load() != kDead.slot + 1);
    }
    board->stop.store(1);
    living.join();
    bury(*segment, kLiving);
    CHECK_EQ(check_books(*segment), 0u);
}
