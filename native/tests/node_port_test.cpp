/// The daemon's end: slots, deaths, rings of the dead, and objects that go to disk and back.
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

/// A file without a name, as spilled objects are kept in.
struct SpillFile {
    int fd = memfd_create("spill", MFD_CLOEXEC);
    ~SpillFile() { close(fd); }
    uint64_t disk_bytes() const {
        struct stat info{};
        fstat(fd, &info);
        return uint64_t(info.st_blocks) * 512;
    }
};

Phase phase_of(const Member& member, const ArenaRef& ref) {
    return Phase(member.segment->object(ref.entry).state.load() & 0xff);
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
    NodePort port(1 << 20);
    std::vector<ProcessId> all;
    for (uint32_t i = 1; i < kSlots; ++i)
        all.push_back(port.reserve_slot());
    auto view = Segment::attach(port.segment_fd());
    CHECK_EQ(view->header().ready_words.load(), kReadyWords);
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
                                            kSlots * 4);
            const std::span<char> blocks(reinterpret_cast<char*>(&view->block_owner(0)), kRingBlocks * 8);
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
    SpillFile file;
    Member a(port), b(port);
    const ArenaRef on_disk = make(a.arena, 5, a.id);
    CHECK_EQ(port.spill(1, file.fd), 5 * kGranuleBytes);
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

// ---- spilling --------------------------------------------------------------------------------------

TEST("a spilled object leaves the arena and comes back as it was") {
    NodePort port(16 * kGranuleBytes);
    SpillFile file;
    Member a(port), b(port);
    const ArenaRef ref = make(a.arena, 5, a.id);
    CHECK_EQ(port.spill(1, file.fd), 5 * kGranuleBytes);
    CHECK_EQ(port.statistics().used_bytes, 0u);
    CHECK_EQ(port.statistics().spilled_objects, 1u);
    char* data = nullptr;
    CHECK(b.arena.pin(ref, data) == PinResult::spilled);
    make(b.arena, 7, b.id);  // its old place is somebody else's
    const auto [ok, why] = port.restore(ref.entry, ref.generation, file.fd);
    CHECK(ok && why.empty());
    check_readable(b.arena, ref);
    CHECK_EQ(check_books(*a.segment), 2u);
    CHECK_EQ(port.statistics().used_bytes, 12 * kGranuleBytes);
    CHECK(port.restore(ref.entry, ref.generation, file.fd).first);  // it is there already
    a.arena.remove(ref);
    CHECK_EQ(port.restore(ref.entry, ref.generation, file.fd).second, "the object is gone");
    CHECK(!port.restore(1 << 30, 0, file.fd).first);
}

TEST("the largest objects go first, and only as many as are needed") {
    NodePort port(64 * kGranuleBytes);
    SpillFile file;
    Member a(port);
    std::vector<ArenaRef> refs;
    for (const uint32_t granules : {2u, 9u, 1u, 5u, 7u})
        refs.push_back(make(a.arena, granules, a.id));
    CHECK_EQ(port.spill(10 * kGranuleBytes, file.fd), 16 * kGranuleBytes);
    std::vector<bool> spilled;
    for (const ArenaRef& ref : refs)
        spilled.push_back(phase_of(a, ref) == Phase::spilled);
    CHECK(spilled == std::vector<bool>({false, true, false, false, true}));
    const auto largest = port.largest_objects(2);
    CHECK_EQ(largest.size(), 2u);
    CHECK_EQ(std::get<0>(largest[0]), 5 * kGranuleBytes);
    CHECK_EQ(std::get<1>(largest[0]), a.id.slot);
    CHECK_EQ(std::get<0>(largest[1]), 2 * kGranuleBytes);
}

TEST("what somebody reads is not spilled, and what is being written is not") {
    NodePort port(16 * kGranuleBytes);
    SpillFile file;
    Member a(port), b(port);
    const ArenaRef read = make(a.arena, 5, a.id);
    char* data = nullptr;
    CHECK(b.arena.pin(read, data) == PinResult::ok);
    ArenaRef building;
    char* bytes = nullptr;
    CHECK(a.arena.allocate(100, a.id, building, bytes));
    CHECK_EQ(port.spill(1, file.fd), 0u);
    CHECK_EQ(std::get<2>(port.largest_objects(5).at(0)), 1u);
    b.arena.unpin(read);
    CHECK_EQ(port.spill(1, file.fd), 5 * kGranuleBytes);
    a.arena.abandon(building);
}

TEST("an object deleted while it is on disk is gone, and so is its place on disk") {
    NodePort port(16 * kGranuleBytes);
    SpillFile file;
    Member a(port);
    const ArenaRef first = make(a.arena, 6, a.id), second = make(a.arena, 4, a.id);
    CHECK_EQ(port.spill(10 * kGranuleBytes, file.fd), 10 * kGranuleBytes);
    CHECK(file.disk_bytes() >= 10 * kGranuleBytes);
    a.arena.remove(first);
    CHECK(is_gone(*a.segment, first));
    CHECK_EQ(port.spill(1, file.fd), 0u);
    CHECK(file.disk_bytes() <= 5 * kGranuleBytes);
    CHECK(port.restore(second.entry, second.generation, file.fd).first);
    check_readable(a.arena, second);
    CHECK(file.disk_bytes() <= kGranuleBytes);
    a.arena.remove(second);
    CHECK_EQ(check_books(*a.segment), 0u);
}

TEST("an object that finds no room on its way back stays on disk") {
    NodePort port(8 * kGranuleBytes);
    SpillFile file;
    Member a(port);
    const ArenaRef ref = make(a.arena, 6, a.id);
    CHECK(port.spill(1, file.fd) != 0);
    const ArenaRef wall = make(a.arena, 4, a.id);
    CHECK(!port.restore(ref.entry, ref.generation, file.fd).first);
    CHECK(phase_of(a, ref) == Phase::spilled);
    CHECK_EQ(check_books(*a.segment), 2u);
    a.arena.remove(wall);
    CHECK(port.restore(ref.entry, ref.generation, file.fd).first);
    check_readable(a.arena, ref);
}

TEST("when the disk fails, objects stay where they are") {
    NodePort port(8 * kGranuleBytes);
    Member a(port);
    const ArenaRef ref = make(a.arena, 3, a.id);
    const int read_only = open("/dev/null", O_RDONLY | O_CLOEXEC);
    CHECK_EQ(port.spill(1, read_only), 0u);
    check_readable(a.arena, ref);
    SpillFile file;
    CHECK(port.spill(1, file.fd) != 0);
    CHECK(!port.restore(ref.entry, ref.generation, read_only).first);  // reads nothing
    CHECK(phase_of(a, ref) == Phase::spilled);
    CHECK_EQ(port.statistics().used_bytes, 0u);
    CHECK(port.restore(ref.entry, ref.generation, file.fd).first);
    check_readable(a.arena, ref);
    close(read_only);
}

TEST("trimming gives free memory back and touches nothing else") {
    NodePort port(32 * kGranuleBytes);
    Member a(port);
    const ArenaRef kept = make(a.arena, 3, a.id), gone = make(a.arena, 8, a.id),
                   also = make(a.arena, 2, a.id);
    a.arena.remove(gone);
    CHECK_EQ(port.trim(), 27 * kGranuleBytes);
    check_readable(a.arena, kept);
    check_readable(a.arena, also);
    CHECK_EQ(check_books(*a.segment), 2u);
    const ArenaRef fresh = make(a.arena, 8, a.id);
    check_readable(a.arena, fresh);
}

namespace {

/// What a process asks the daemon for, one thing at a time.
struct Mailbox {
    std::atomic<uint64_t> wanted{0};  ///< entry + 1 and generation of what shall come back
    Shared<uint32_t> answers{0};      ///< what the asker sleeps on
    std::atomic<uint32_t> ended{0};
};

void live_with_spilling(Member& self, Mailbox& box, uint64_t seed) {
    Random random(seed);
    std::vector<ArenaRef> mine;
    for (int round = 0; round < 40'000; ++round) {
        const uint64_t what = random.below(5);
        ArenaRef ref;
        char* data = nullptr;
        if (what < 2 && self.arena.allocate((1 + random.below(5)) * kGranuleBytes, self.id, ref, data)) {
            write_pattern(data, ref);
            self.arena.seal(ref, true);
            mine.push_back(ref);
        } else if (what < 4 && !mine.empty()) {
            ref = mine[random.below(mine.size())];
            PinResult result = self.arena.pin(ref, data);
            for (int tries = 0; result == PinResult::spilled && tries < 50; ++tries) {
                box.wanted.store(uint64_t(ref.generation) << 32 | (ref.entry + 1));
                for (uint32_t seen = 0; seen = box.answers.load(), box.wanted.load() != 0;)
                    futex_wait(box.answers, seen, -1);
                result = self.arena.pin(ref, data);
            }
            CHECK(result != PinResult::lost);
            if (result != PinResult::ok) continue;  // no room for it now
            CHECK(has_pattern(data, ref));
            if (random.below(50) == 0) sched_yield();
            CHECK(has_pattern(data, ref));
            self.arena.unpin(ref);
        } else if (!mine.empty()) {
            const size_t i = random.below(mine.size());
            self.arena.remove(mine[i]);
            mine.erase(mine.begin() + long(i));
        }
    }
    for (const ArenaRef& ref : mine)
        self.arena.remove(ref);
    box.ended.store(1);
}

}  // namespace

TEST(
    "processes that write, read and delete while the daemon spills and restores always read what they "
    "wrote") {
    NodePort port(40 * kGranuleBytes);
    SpillFile file;
    constexpr size_t kProcesses = 3;
    std::vector<std::unique_ptr<Member>> members;
    for (size_t i = 0; i < kProcesses; ++i)
        members.push_back(std::make_unique<Member>(port));
    SharedWithChildren<std::array<Mailbox, kProcesses>> boxes;
    std::vector<Child> children;
    for (size_t i = 0; i < kProcesses; ++i)
        children.emplace_back([&, i] { live_with_spilling(*members[i], (*boxes)[i], i + 1); });
    Random random(17);
    const auto all_ended = [&] {
        for (Mailbox& box : *boxes)
            if (box.ended.load() == 0) return false;
        return true;
    };
    while (!all_ended()) {
        if (random.below(4) == 0) port.spill((1 + random.below(10)) * kGranuleBytes, file.fd);
        if (random.below(50) == 0) port.trim();
        for (Mailbox& box : *boxes) {
            const uint64_t wanted = box.wanted.load();
            if (wanted == 0) continue;
            const auto entry = uint32_t(wanted) - 1, generation = uint32_t(wanted >> 32);
            while (!port.restore(entry, generation, file.fd).first)
                if (port.spill(kGranuleBytes, file.fd) == 0) break;
            box.wanted.store(0);
            box.answers.fetch_add(1);
            futex_wake(box.answers);
        }
        pause_us(long(random.below(20)));
    }
    for (Child& child : children)
        child.join();
    CHECK_EQ(check_books(*members[0]->segment), 0u);
    CHECK_EQ(port.statistics().used_bytes, 0u);
    CHECK_EQ(port.spill(1, file.fd), 0u);
    CHECK(file.disk_bytes() <= kGranuleBytes);
}
