/// The daemon's end: slots, deaths, rings of the dead.
#include "node_port.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>

#include <array>
#include <optional>
#include <stdexcept>

#include "arena_parts.hpp"
#include "stepping.hpp"

using namespace weft;

namespace {

/// A process of the node: its slot, its view of the segment and of the arena.
struct Member {
    explicit Member(NodePort& port)
        : id(port.reserve_slot()),
          segment(Segment::attach(port.segment_fd())),
          arena(*segment, id),
          channels(*segment, id, port.event_fd()) {}
    bool say(ProcessId to, Kind kind, std::string_view text) {
        return channels.send(to, kind, text.data(), text.size());
    }
    std::vector<std::string> hear(uint32_t slot) {
        std::vector<std::string> all;
        channels.receive(
            slot, [&](ProcessId, Kind, const char* data, size_t bytes) { all.emplace_back(data, bytes); });
        return all;
    }

    const ProcessId id;
    std::unique_ptr<Segment> segment;
    Arena arena;
    Channels channels;
};

constexpr ProcessId kDaemon{kDaemonSlot, 1};

bool is_readable(int fd) {
    pollfd item{fd, POLLIN, 0};
    return poll(&item, 1, 0) == 1;
}

}  // namespace

// ---- slots and records -----------------------------------------------------------------------------

TEST("each slot is reserved once, and a reserved one is alive") {
    NodePort port(1 << 20);
    Member a(port), b(port);
    CHECK(a.id.slot != b.id.slot && a.id.slot != kDaemonSlot);
    CHECK(a.segment->is_alive(a.id) && a.segment->is_alive(b.id) && a.segment->is_alive(kDaemon));
    CHECK_EQ(port.statistics().slots_used, 3u);
}

TEST("when all slots are taken, reserving says so, until one is released") {
    constexpr uint32_t kRoom = 2000;
    NodePort port(1 << 20, kEvents, kRoom);
    std::vector<ProcessId> all;
    for (uint32_t i = 2; i < kRoom; ++i)
        all.push_back(port.reserve_slot());
    auto view = Segment::attach(port.segment_fd());
    CHECK_EQ(view->header().ready_words.load(), (kRoom + 63) / 64);
    bool refused = false;
    try {
        port.reserve_slot();
    } catch (const std::runtime_error&) {
        refused = true;
    }
    CHECK(refused);
    CHECK(port.mark_dead(all[500]).empty());
    CHECK(port.release_slot(all[500]));
    const ProcessId heir = port.reserve_slot();
    CHECK_EQ(heir.slot, all[500].slot);
    CHECK_EQ(heir.generation, all[500].generation + 1);
}

TEST("records travel between the daemon and its processes, and the eventfd tells of them") {
    NodePort port(1 << 20);
    Member a(port), b(port);
    CHECK(port.drain().empty());
    CHECK(!is_readable(port.event_fd()));
    CHECK(a.say(kDaemon, Kind::BLOCKED, "a1"));
    CHECK(b.say(kDaemon, Kind::UNBLOCKED, "b1"));
    CHECK(a.say(kDaemon, Kind::BLOCKED, std::string(300'000, 'a')));
    CHECK(is_readable(port.event_fd()));
    std::vector<Received> got = port.drain();
    CHECK_EQ(got.size(), 2u);  // the large one waits for room
    CHECK(got[0].from == a.id && got[0].kind == Kind::BLOCKED && got[0].payload == "a1");
    CHECK(got[1].from == b.id && got[1].kind == Kind::UNBLOCKED && got[1].payload == "b1");
    while (got.size() < 3) {
        a.hear(kDaemonSlot);
        for (Received& record : port.drain())
            got.push_back(std::move(record));
    }
    CHECK_EQ(got[2].payload.size(), 300'000u);
    CHECK(port.send(b.id, Kind::CONTROL, "hello", 5));
    CHECK(b.hear(kDaemonSlot) == std::vector<std::string>{"hello"});
    port.drain();
    CHECK(!is_readable(port.event_fd()));
}

// ---- deaths ----------------------------------------------------------------------------------------

TEST("lingering sees a record without a wake-up, and sleeping afterwards misses none") {
    NodePort port(1 << 20);
    Member member(port);
    CHECK(member.say(kDaemon, Kind::CONTROL, "first"));
    CHECK_EQ(port.drain().size(), 1u);
    CHECK(!port.linger(1'000));
    CHECK(!is_readable(port.event_fd()));
    CHECK(member.say(kDaemon, Kind::CONTROL, "second"));  // it sleeps again: it is woken
    CHECK(is_readable(port.event_fd()));
    CHECK(port.linger(1'000));
    CHECK_EQ(port.drain().size(), 1u);
    for (int i = 0; i < 1000; ++i)  // in vain for long: it hardly tries, and still finds what is there
        CHECK(!port.linger(100));
    CHECK(member.say(kDaemon, Kind::CONTROL, "third"));
    CHECK(port.linger(100));
    CHECK_EQ(port.drain().size(), 1u);
}

TEST("who shares a ring with the dead is named, once") {
    NodePort port(1 << 20);
    Member a(port), b(port), c(port), d(port);
    CHECK(a.say(b.id, Kind::WANT, "x"));
    CHECK(c.say(a.id, Kind::WANT, "x"));
    CHECK(b.say(c.id, Kind::WANT, "x"));
    const std::vector<ProcessId> peers = port.mark_dead(a.id);
    CHECK(peers == std::vector<ProcessId>({b.id, c.id}));
    CHECK(port.mark_dead(a.id).empty());
    CHECK(port.mark_dead({d.id.slot, d.id.generation + 7}).empty());
    CHECK(d.segment->is_alive(d.id) && !d.segment->is_alive(a.id));
    CHECK(!port.send(a.id, Kind::CONTROL, "x", 1));
}

TEST("a dead process's slot is free once all its living peers let go") {
    NodePort port(1 << 20);
    Member a(port), b(port), c(port);
    CHECK(a.say(b.id, Kind::WANT, "x"));
    CHECK(a.say(c.id, Kind::WANT, "x"));
    CHECK(a.say(kDaemon, Kind::BLOCKED, "x"));
    b.hear(a.id.slot);
    port.mark_dead(a.id);
    CHECK(!port.release_slot(a.id));
    b.channels.forget(a.id);
    CHECK(!port.release_slot(a.id));
    port.mark_dead(c.id);  // the other one dies too
    CHECK(port.release_slot(a.id));
    CHECK(port.release_slot(a.id));
    CHECK(port.release_slot(c.id));
    CHECK_EQ(port.statistics().slots_used, 2u);
    CHECK_EQ(port.statistics().ring_blocks_used, 0u);
}

TEST("the last words of the dead are heard, also if they were the first") {
    NodePort port(1 << 20);
    for (int round = 0; round < 5; ++round) {
        Member member(port);
        CHECK(member.say(kDaemon, Kind::ACTOR_CREATED, "last"));
        port.mark_dead(member.id);
        const std::vector<Received> got = port.drain();
        CHECK_EQ(got.size(), 1u);
        CHECK(got[0].from == member.id);
        CHECK(port.release_slot(member.id));
        // Whoever has the slot next speaks and is spoken to.
        Member heir(port);
        CHECK_EQ(heir.id.slot, member.id.slot);
        CHECK(heir.say(kDaemon, Kind::BLOCKED, "new"));
        const std::vector<Received> next = port.drain();
        CHECK_EQ(next.size(), 1u);
        CHECK(next[0].from == heir.id && next[0].payload == "new");
        CHECK(port.send(heir.id, Kind::CONTROL, "welcome", 7));
        CHECK(heir.hear(kDaemonSlot) == std::vector<std::string>{"welcome"});
        port.mark_dead(heir.id);
        CHECK(port.release_slot(heir.id));
    }
    CHECK_EQ(port.statistics().ring_blocks_used, 0u);
}

TEST("one that died while it was spinning does not count as a spinner") {
    NodePort port(1 << 20);
    Member a(port);
    a.segment->header().spinners.fetch_add(1);
    a.segment->bell(a.id.slot).spinning.store(1);
    port.mark_dead(a.id);
    CHECK_EQ(a.segment->header().spinners.load(), 0u);
}

TEST("who dies anywhere while it opens or closes a ring leaves no block behind") {
    if (!kCanStep) return;
    NodePort port(1 << 20);
    Member living(port);
    auto view = Segment::attach(port.segment_fd());
    for (const bool closes : {false, true}) {
        for (int n = 0;; ++n) {
            Member dead(port), other(port);
            // Whoever is dead already is what the living one's ring is closed for.
            CHECK(other.say(dead.id, Kind::WANT, "x"));
            const std::span<char> directory(reinterpret_cast<char*>(&view->ring_of(dead.id.slot, 0)),
                                            view->header().slots * 4);
            const std::span<char> blocks(reinterpret_cast<char*>(&view->block_owner(0)),
                                         view->header().blocks * 8);
            if (closes) port.mark_dead(other.id);
            const bool died = die_at_change(n, {directory, blocks}, [&] {
                if (closes) {
                    dead.hear(other.id.slot);
                    dead.channels.forget(other.id);
                } else {
                    dead.say(living.id, Kind::WANT, "hello");
                }
            });
            if (!closes) port.mark_dead(other.id);
            port.mark_dead(dead.id);
            living.hear(dead.id.slot);
            living.channels.forget(dead.id);
            CHECK(port.release_slot(dead.id));
            CHECK(port.release_slot(other.id));
            CHECK_EQ(port.statistics().ring_blocks_used, 0u);
            if (!died) break;
            CHECK(n < 100);
        }
    }
}

TEST("who dies before it is reached first is not taken for who has its slot next") {
    if (!kCanStep) return;
    NodePort port(1 << 20);
    bool has_passed_on = true;
    int changes = 0;
    for (; has_passed_on; ++changes) {
        Member caller(port), dead(port);
        const ProcessId next{dead.id.slot, dead.id.generation + 1};
        std::optional<Member> heir;
        const auto die_and_be_followed = [&] {
            port.mark_dead(dead.id);
            if (!port.release_slot(dead.id)) return;  // the caller has a ring with it, and is told
            heir.emplace(port);
            CHECK(heir->id == next);
            CHECK(heir->say(caller.id, Kind::WANT, "from the heir"));
        };
        const std::span<char> directory(
            reinterpret_cast<char*>(&caller.segment->ring_of(caller.id.slot, dead.id.slot)), 4);
        const std::span<char> blocks(
            reinterpret_cast<char*>(&caller.segment->block_owner(caller.id.slot * 8)), 8);
        CHECK(step_through(
            {directory, blocks},
            [&] {
                caller.say(dead.id, Kind::TASK, "for the dead");
                if (!caller.segment->is_alive(next)) return;
                caller.hear(dead.id.slot);
                caller.channels.forget(dead.id);
                CHECK(caller.say(next, Kind::TASK, "for the heir"));
            },
            [&, left = changes]() mutable {
                if (left-- == 0) die_and_be_followed();
                return true;
            }));
        has_passed_on = heir.has_value();
        if (has_passed_on) {
            CHECK(heir->hear(caller.id.slot) == std::vector<std::string>{"for the heir"});
            CHECK_EQ(port.statistics().ring_blocks_used, 2u);
            port.mark_dead(heir->id);
        }
        port.mark_dead(caller.id);
        for (const ProcessId& gone : {dead.id, next, caller.id})
            CHECK(port.release_slot(gone));
        CHECK_EQ(port.statistics().ring_blocks_used, 0u);
    }
    CHECK(changes > 1);
}

TEST("what the dead owned goes, wherever it is") {
    NodePort port(32 * kGranuleBytes);
    Member a(port), b(port);
    SpillFile file(*a.segment, a.arena, {"/tmp"}, SpillFile::kNoLimit);
    const ArenaRef on_disk = make(a.arena, 5, a.id);
    CHECK_EQ(file.spill(1, [] { return true; }).bytes, 5 * kGranuleBytes);
    const ArenaRef here = make(a.arena, 3, a.id), read = make(a.arena, 2, a.id),
                   theirs = make(a.arena, 2, b.id, false);
    const ArenaRef unaccepted = make(a.arena, 2, b.id, false);
    char* data = nullptr;
    CHECK(b.arena.pin(read, data) == PinResult::ok);
    b.arena.accept(theirs);
    CHECK(a.say(b.id, Kind::REPLY, "it is on its way"));
    port.mark_dead(a.id);
    CHECK(is_gone(*b.segment, on_disk) && is_gone(*b.segment, here));
    CHECK(!is_gone(*b.segment, read) && has_pattern(data, read));
    CHECK(!is_gone(*b.segment, unaccepted));  // its owner may be about to read of it
    b.hear(a.id.slot);
    b.channels.forget(a.id);
    CHECK(port.release_slot(a.id));
    CHECK(is_gone(*b.segment, unaccepted));
    check_readable(b.arena, theirs);
    b.arena.unpin(read);
    CHECK(is_gone(*b.segment, read));
    b.arena.remove(theirs);
    CHECK_EQ(check_books(*b.segment), 0u);
    CHECK_EQ(port.statistics().used_bytes, 0u);
}

TEST("who dies anywhere while it rings a sleeper does not leave it asleep") {
    if (!kCanStep) return;
    bool has_died = true;
    int deaths = 0;
    for (int change = 0; has_died; ++change) {
        NodePort port(1 << 20);
        const ProcessId sleeper = port.reserve_slot(), ringer = port.reserve_slot();
        const auto segment = Segment::attach(port.segment_fd());
        Doorbell& bell = segment->bell(sleeper.slot);
        bell.state.store(uint32_t(Bell::waiter_sleeps));
        has_died = die_at_change(change, {{reinterpret_cast<char*>(&bell), sizeof bell}}, [&] {
            Channels channels(*segment, ringer, port.event_fd());
            channels.send(sleeper, Kind::ACQUAINT, nullptr, 0);
        });
        const uint32_t before = bell.waiter_word.load();
        const bool was_asleep = bell.state.load() == uint32_t(Bell::waiter_sleeps);
        const bool is_told = !port.mark_dead(ringer).empty();
        if (!has_died) break;
        // Without a ring between the two it has rung nobody.
        CHECK(is_told || was_asleep);
        CHECK(port.send(sleeper, Kind::PEER_DIED, &ringer, sizeof ringer));
        CHECK(bell.waiter_word.load() != before);
        ++deaths;
    }
    CHECK(deaths >= 3);  // the bit, the state and the word
}

// ---- what is known of objects ----------------------------------------------------------------------

TEST("the largest objects in memory are named, with their owners and how many read them") {
    NodePort port(64 * kGranuleBytes);
    Member a(port), b(port);
    const ArenaRef on_disk = make(a.arena, 9, a.id);
    SpillFile file(*a.segment, a.arena, {"/tmp"}, SpillFile::kNoLimit);
    CHECK_EQ(file.spill(1, [] { return true; }).bytes, on_disk.bytes);
    const ArenaRef read = make(a.arena, 5, a.id);
    make(b.arena, 2, b.id);
    make(b.arena, 1, b.id);
    char* data = nullptr;
    CHECK(b.arena.pin(read, data) == PinResult::ok);
    const auto largest = port.largest_objects(2);
    CHECK_EQ(largest.size(), 2u);
    CHECK(largest[0] == std::tuple(5 * kGranuleBytes, a.id.slot, 1u));
    CHECK(largest[1] == std::tuple(2 * kGranuleBytes, b.id.slot, 0u));
    CHECK_EQ(port.statistics().spilled_objects, 1u);
    CHECK_EQ(port.statistics().objects, 4u);
    CHECK_EQ(port.statistics().used_bytes, 8 * kGranuleBytes);
}

TEST("room may come while another process reads, anybody writes, or something can be spilled") {
    NodePort port(64 * kGranuleBytes);
    Member a(port), b(port);
    const ArenaRef ref = make(a.arena, 5, a.id);
    CHECK(port.room_may_come(a.id.slot));  // it may have been sealed just after room was looked for
    char* data = nullptr;
    CHECK(a.arena.pin(ref, data) == PinResult::ok);
    CHECK(!port.room_may_come(a.id.slot) && port.room_may_come(b.id.slot));
    ArenaRef building;
    CHECK(a.arena.allocate(100, a.id, building, data));
    CHECK(port.room_may_come(a.id.slot));
    a.arena.abandon(building);
    CHECK(!port.room_may_come(a.id.slot));
}
