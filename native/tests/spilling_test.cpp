/// Objects that go to disk and back while others read, delete and die; and disks that fail.
#include "spilling.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <array>

#include "arena_parts.hpp"
#include "doorbell.hpp"

using namespace weft;

namespace {

constexpr ProcessId kDaemon{kDaemonSlot, 1}, kFirst{1, 1}, kSecond{2, 1};
/// Of an object that is moved in more than one piece.
constexpr uint32_t kMany = (9 << 20) / kGranuleBytes;

const SpillFile::Pause kGoOn = [] { return true; };

/// An arena, the daemon's view of it and two processes'.
struct Store {
    explicit Store(uint32_t granules, uint64_t limit = SpillFile::kNoLimit)
        : segment(inhabited(granules * kGranuleBytes)),
          daemon(*segment, kDaemon),
          first(*segment, kFirst),
          second(*segment, kSecond),
          file(*segment, daemon, {"/tmp"}, limit) {}
    uint64_t spill(uint64_t bytes, const SpillFile::Pause& pause = kGoOn) {
        return file.spill(bytes, pause).bytes;
    }
    SpillCode restore(const ArenaRef& ref, const SpillFile::Pause& pause = kGoOn) {
        return file.restore(ref, pause).code;
    }
    Phase phase_of(const ArenaRef& ref) const { return word_of(*segment, ref.entry).phase(); }
    uint64_t used_bytes() const {
        uint64_t used = 0;
        for (uint32_t g = 0; g < segment->header().granules; ++g)
            used += segment->granule(g).load() != 0 ? kGranuleBytes : 0;
        return used;
    }
    uint64_t disk_bytes() const {
        struct stat info{};
        fstat(file.fd(), &info);
        return uint64_t(info.st_blocks) * 512;
    }

    std::unique_ptr<Segment> segment;
    Arena daemon, first, second;
    SpillFile file;
};

/// While there is one, files cannot grow past so many bytes: a disk that is full.
class FullDisk {
  public:
    explicit FullDisk(uint64_t bytes) {
        signal(SIGXFSZ, SIG_IGN);
        getrlimit(RLIMIT_FSIZE, &before_);
        const rlimit small{bytes, before_.rlim_max};
        CHECK_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    }
    ~FullDisk() { setrlimit(RLIMIT_FSIZE, &before_); }

  private:
    rlimit before_{};
};

}  // namespace

// ---- there and back --------------------------------------------------------------------------------

TEST("a spilled object leaves the arena and comes back as it was") {
    Store store(16);
    const ArenaRef ref = make(store.first, 5, kFirst);
    CHECK_EQ(store.spill(1), 5 * kGranuleBytes);
    CHECK_EQ(store.used_bytes(), 0u);
    char* data = nullptr;
    CHECK(store.second.pin(ref, data) == PinResult::spilled);
    make(store.second, 7, kSecond);  // its old place is somebody else's
    CHECK(store.restore(ref) == SpillCode::done);
    check_readable(store.second, ref);
    CHECK_EQ(check_books(*store.segment), 2u);
    CHECK_EQ(store.used_bytes(), 12 * kGranuleBytes);
    CHECK(store.restore(ref) == SpillCode::done);  // it is there already
    store.first.remove(ref);
    CHECK(store.restore(ref) == SpillCode::gone);
    CHECK(store.restore({1 << 30, 0, 0}) == SpillCode::gone);
}

TEST("the largest objects go first, and only as many as are needed") {
    Store store(64);
    std::vector<ArenaRef> refs;
    for (const uint32_t granules : {2u, 9u, 1u, 5u, 7u})
        refs.push_back(make(store.first, granules, kFirst));
    CHECK_EQ(store.spill(10 * kGranuleBytes), 16 * kGranuleBytes);
    std::vector<bool> spilled;
    for (const ArenaRef& ref : refs)
        spilled.push_back(store.phase_of(ref) == Phase::spilled);
    CHECK(spilled == std::vector<bool>({false, true, false, false, true}));
}

TEST("who asks for room until it is in one piece has it, and nothing is spilled where it is there") {
    Store store(16);
    for (int i = 0; i < 8; ++i)
        make(store.first, 2, kFirst);
    while (!store.daemon.has_run(5))
        CHECK(store.file.make_room(5 * kGranuleBytes, kGoOn).code == SpillCode::done);
    const uint64_t used = store.used_bytes();
    CHECK(store.file.make_room(5 * kGranuleBytes, kGoOn).code == SpillCode::done);
    CHECK_EQ(store.used_bytes(), used);
    CHECK(store.file.make_room(17 * kGranuleBytes, kGoOn).code == SpillCode::done);
    CHECK(store.file.make_room(17 * kGranuleBytes, kGoOn).code == SpillCode::nothing);
}

TEST("what somebody reads is not spilled, and what is being written is not") {
    Store store(16);
    const ArenaRef read = make(store.first, 5, kFirst);
    char* data = nullptr;
    CHECK(store.second.pin(read, data) == PinResult::ok);
    ArenaRef building;
    char* bytes = nullptr;
    CHECK(store.first.allocate(100, kFirst, building, bytes));
    CHECK(store.file.spill(1, kGoOn).code == SpillCode::nothing);
    store.second.unpin(read);
    CHECK_EQ(store.spill(1), 5 * kGranuleBytes);
    store.first.abandon(building);
}

TEST("an object deleted while it is on disk is gone, and so is its place on disk") {
    Store store(16);
    const ArenaRef first = make(store.first, 6, kFirst), second = make(store.first, 4, kFirst);
    CHECK_EQ(store.spill(10 * kGranuleBytes), 10 * kGranuleBytes);
    CHECK(store.disk_bytes() >= 10 * kGranuleBytes);
    store.first.remove(first);
    CHECK(is_gone(*store.segment, first));
    CHECK_EQ(store.spill(1), 0u);
    CHECK(store.disk_bytes() <= 5 * kGranuleBytes);
    CHECK(store.restore(second) == SpillCode::done);
    check_readable(store.first, second);
    CHECK(store.disk_bytes() <= kGranuleBytes);
    store.first.remove(second);
    CHECK_EQ(check_books(*store.segment), 0u);
}

TEST("places in the file are used again, whatever else stays there") {
    Store store(8);
    const auto object = [&](uint32_t granules) {
        ArenaRef ref;
        char* data = nullptr;
        CHECK(store.first.allocate(granules * kGranuleBytes, kFirst, ref, data));
        memset(data, int('a' + granules), granules * kGranuleBytes);
        store.first.seal(ref, true);
        return ref;
    };
    const ArenaRef large = object(3), small = object(2), stays = object(1);
    CHECK_EQ(store.spill(6 * kGranuleBytes), 6 * kGranuleBytes);
    for (int i = 0; i < 20; ++i) {  // the one that stays is behind them
        const ArenaRef& one = i % 2 == 0 ? large : small;
        CHECK(store.restore(one) == SpillCode::done);
        CHECK_EQ(store.spill(1), one.bytes);
        CHECK(store.phase_of(stays) == Phase::spilled);
    }
    for (const ArenaRef& one : {large, small}) {
        CHECK(store.restore(one) == SpillCode::done);
        char* data = nullptr;
        CHECK(store.first.pin(one, data) == PinResult::ok);
        CHECK(data[0] == char('a' + one.bytes / kGranuleBytes) && data[one.bytes - 1] == data[0]);
        store.first.unpin(one);
    }
    struct stat info{};
    CHECK_EQ(fstat(store.file.fd(), &info), 0);
    CHECK_EQ(uint64_t(info.st_size), 6 * kGranuleBytes);
}

TEST("an object that finds no room on its way back stays on disk") {
    Store store(8);
    const ArenaRef ref = make(store.first, 6, kFirst);
    CHECK(store.spill(1) != 0);
    const ArenaRef wall = make(store.first, 4, kFirst);
    const SpillResult result = store.file.restore(ref, kGoOn);
    CHECK(result.code == SpillCode::no_room);
    CHECK_EQ(result.bytes, 6 * kGranuleBytes);  // so much room must be made
    CHECK(store.phase_of(ref) == Phase::spilled);
    CHECK_EQ(check_books(*store.segment), 2u);
    store.first.remove(wall);
    CHECK(store.restore(ref) == SpillCode::done);
    check_readable(store.first, ref);
}

TEST("the bytes of another node's object are not looked for on this disk") {
    Store store(8);
    ArenaRef import;
    CHECK(store.daemon.import_entry(3 * kGranuleBytes, kFirst, import));
    CHECK(store.restore(import) == SpillCode::elsewhere);
}

TEST("no more is spilled than the limit says, and what is given back may be used again") {
    Store store(32, 10 * kGranuleBytes);
    const ArenaRef one = make(store.first, 8, kFirst), two = make(store.first, 8, kFirst);
    CHECK_EQ(store.spill(8 * kGranuleBytes), 8 * kGranuleBytes);
    CHECK(store.file.spill(8 * kGranuleBytes, kGoOn).code == SpillCode::over_limit);
    const ArenaRef& on_disk = store.phase_of(one) == Phase::spilled ? one : two;
    store.first.remove(on_disk);
    CHECK_EQ(store.spill(8 * kGranuleBytes), 8 * kGranuleBytes);
}

// ---- others, meanwhile -----------------------------------------------------------------------------

TEST("who pins an object while it is being spilled keeps it, and its place on disk is given back") {
    Store store(kMany + 4);
    const ArenaRef ref = make(store.first, kMany, kFirst);
    int pauses = 0;
    const SpillResult result = store.file.spill(1, [&] {
        char* data = nullptr;
        CHECK(++pauses == 1 && store.second.pin(ref, data) == PinResult::ok && has_pattern(data, ref));
        return true;
    });
    CHECK_EQ(pauses, 1);  // and no more of it was written
    CHECK(result.code == SpillCode::nothing);
    CHECK(store.disk_bytes() <= kGranuleBytes);
    store.second.unpin(ref);
    CHECK_EQ(check_books(*store.segment), 1u);
    CHECK_EQ(store.spill(1), kMany * kGranuleBytes);
}

TEST("who asks for an object while it is being spilled has it at once") {
    Store store(kMany + 4);
    const ArenaRef ref = make(store.first, kMany, kFirst);
    store.spill(1, [&] {
        CHECK(store.restore(ref) == SpillCode::done);
        return true;
    });
    check_readable(store.second, ref);
}

TEST("another object comes back in the midst of a spill") {
    Store store(kMany + 8);
    const ArenaRef small = make(store.first, 3, kFirst);
    CHECK_EQ(store.spill(1), 3 * kGranuleBytes);
    const ArenaRef large = make(store.first, kMany, kFirst);
    bool is_back = false;
    CHECK_EQ(store.spill(1,
                         [&] {
                             is_back = is_back || store.restore(small) == SpillCode::done;
                             check_readable(store.second, small);
                             return true;
                         }),
             kMany * kGranuleBytes);
    CHECK(is_back);
    CHECK(store.restore(large) == SpillCode::done);
    check_readable(store.first, large);
    check_readable(store.first, small);
}

TEST("an object that its owner deletes while it is being spilled is gone") {
    Store store(kMany + 4);
    const ArenaRef ref = make(store.first, kMany, kFirst);
    const SpillResult result = store.file.spill(1, [&] { return store.first.remove(ref), true; });
    CHECK(result.code == SpillCode::nothing);
    CHECK(is_gone(*store.segment, ref));
    CHECK_EQ(check_books(*store.segment), 0u);
    CHECK(store.disk_bytes() <= kGranuleBytes);
}

TEST("an object that its owner deletes while it comes back is gone, and so is its place on disk") {
    Store store(kMany + 4);
    const ArenaRef ref = make(store.first, kMany, kFirst);
    CHECK(store.spill(1) != 0);
    store.restore(ref, [&] { return store.first.remove(ref), true; });
    CHECK(is_gone(*store.segment, ref));
    CHECK_EQ(check_books(*store.segment), 0u);
    CHECK(store.disk_bytes() <= kGranuleBytes);
}

TEST("the death of who wrote an object that is being spilled, or comes back, takes nothing from it") {
    Store store(kMany + 4);
    const ArenaRef ref = make(store.second, kMany, kFirst, false);
    store.first.accept(ref);
    const auto bury = [&] {
        store.segment->slot(kSecond.slot).alive.store(0);
        remove_objects_of(*store.segment, kSecond);
        reclaim_after_death(*store.segment, kSecond, false);
        reclaim_after_death(*store.segment, kSecond, true);
        return true;
    };
    CHECK_EQ(store.spill(1, bury), kMany * kGranuleBytes);
    CHECK_EQ(store.used_bytes(), 0u);
    CHECK(store.restore(ref, bury) == SpillCode::done);
    check_readable(store.first, ref);
    CHECK_EQ(check_books(*store.segment), 1u);
}

TEST("a spill that is broken off leaves the object in memory, a restore leaves it on disk") {
    Store store(kMany + 4);
    const ArenaRef ref = make(store.first, kMany, kFirst);
    CHECK(store.file.spill(1, [] { return false; }).code == SpillCode::stopped);
    check_readable(store.first, ref);
    CHECK_EQ(store.spill(1), kMany * kGranuleBytes);
    CHECK(store.restore(ref, [] { return false; }) == SpillCode::stopped);
    CHECK(store.phase_of(ref) == Phase::spilled);
    CHECK_EQ(store.used_bytes(), 0u);
    CHECK(store.restore(ref) == SpillCode::done);
    check_readable(store.first, ref);
}

// ---- disks that fail -------------------------------------------------------------------------------

TEST("on a disk that is full objects stay where they are, and nothing is left of what was written") {
    Store store(kMany + 4);
    const ArenaRef ref = make(store.first, kMany, kFirst);
    {
        const FullDisk disk(5 << 20);
        const SpillResult result = store.file.spill(1, kGoOn);
        CHECK(result.code == SpillCode::disk_failed);
        CHECK_EQ(result.error, EFBIG);
    }
    CHECK(store.disk_bytes() <= kGranuleBytes);
    check_readable(store.first, ref);
    CHECK_EQ(store.spill(1), kMany * kGranuleBytes);
}

TEST("what fits on a disk that is nearly full is spilled") {
    Store store(64);
    const ArenaRef large = make(store.first, 9, kFirst), small = make(store.first, 3, kFirst);
    const FullDisk disk(10 * kGranuleBytes);
    const SpillResult result = store.file.spill(12 * kGranuleBytes, kGoOn);
    CHECK(result.code == SpillCode::done);
    CHECK_EQ(result.bytes, 9 * kGranuleBytes);
    check_readable(store.first, small);
    CHECK(store.restore(large) == SpillCode::done);
}

TEST("an object that cannot be read stays on disk, and is read when the disk lets it") {
    Store store(8);
    const ArenaRef ref = make(store.first, 3, kFirst);
    CHECK(store.spill(1) != 0);
    std::string kept(3 * kGranuleBytes, 0);
    CHECK_EQ(pread(store.file.fd(), kept.data(), kept.size(), 0), ssize_t(kept.size()));
    CHECK_EQ(ftruncate(store.file.fd(), 0), 0);
    CHECK(store.restore(ref) == SpillCode::disk_failed);
    CHECK(store.phase_of(ref) == Phase::spilled);
    CHECK_EQ(store.used_bytes(), 0u);
    CHECK_EQ(pwrite(store.file.fd(), kept.data(), kept.size(), 0), ssize_t(kept.size()));
    CHECK(store.restore(ref) == SpillCode::done);
    check_readable(store.first, ref);
}

TEST("a folder that takes no file is passed over, and the last one is named") {
    Store store(8);
    const ArenaRef ref = make(store.first, 3, kFirst);
    SpillFile none(*store.segment, store.daemon, {"/nowhere", "/nowhere else"}, SpillFile::kNoLimit);
    CHECK(none.spill(1, kGoOn).code == SpillCode::disk_failed);
    CHECK_EQ(none.folder(), "/nowhere else");
    check_readable(store.first, ref);
    SpillFile second(*store.segment, store.daemon, {"/nowhere", "/tmp"}, SpillFile::kNoLimit);
    CHECK_EQ(second.spill(1, kGoOn).bytes, 3 * kGranuleBytes);
    CHECK(second.restore(ref, kGoOn).code == SpillCode::done);
}

// ---- the thread ------------------------------------------------------------------------------------

namespace {

std::vector<SpillDone> wait_for(SpillThread& thread, size_t count) {
    std::vector<SpillDone> all;
    while (all.size() < count) {
        pollfd item{thread.event_fd(), POLLIN, 0};
        poll(&item, 1, -1);
        for (SpillDone& done : thread.take_done())
            all.push_back(std::move(done));
    }
    return all;
}

size_t open_files() {
    size_t count = 0;
    for (int fd = 0; fd < 256; ++fd)
        count += fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
    return count;
}

}  // namespace

TEST("the thread does what it is asked, and says so once for each ticket") {
    Store store(16);
    SpillThread thread(*store.segment, store.daemon, {"/tmp"}, SpillFile::kNoLimit);
    const ArenaRef one = make(store.first, 8, kFirst), two = make(store.first, 8, kFirst);
    const uint64_t room = thread.make_room(16 * kGranuleBytes);
    std::vector<SpillDone> done = wait_for(thread, 1);
    CHECK_EQ(done[0].ticket, room);
    CHECK(done[0].result.code == SpillCode::done && !done[0].is_restore);
    CHECK_EQ(store.used_bytes(), 0u);
    const std::array<uint64_t, 3> tickets = {thread.restore(one), thread.restore(two), thread.restore(one)};
    done = wait_for(thread, 3);
    for (size_t i = 0; i < 3; ++i) {
        CHECK_EQ(done[i].ticket, tickets[i]);
        CHECK(done[i].result.code == SpillCode::done && done[i].is_restore);
    }
    check_readable(store.second, one);
    check_readable(store.second, two);
}

TEST("two who want more than there is together have it one after the other") {
    Store store(16);
    SpillThread thread(*store.segment, store.daemon, {"/tmp"}, SpillFile::kNoLimit);
    make(store.first, 8, kFirst);
    make(store.first, 8, kFirst);
    thread.make_room(12 * kGranuleBytes);
    thread.make_room(12 * kGranuleBytes);
    for (const SpillDone& done : wait_for(thread, 2))
        CHECK(done.result.code == SpillCode::done);
    const ArenaRef one = make(store.first, 12, kFirst);
    thread.make_room(12 * kGranuleBytes);
    wait_for(thread, 1);
    const ArenaRef two = make(store.second, 12, kSecond);
    CHECK(store.phase_of(one) == Phase::spilled);
    check_readable(store.first, two);
}

TEST("a thread that is ended while it spills leaves objects readable and no file open") {
    Store store(4 * kMany + 4);
    std::vector<ArenaRef> refs;
    for (int i = 0; i < 4; ++i)
        refs.push_back(make(store.first, kMany, kFirst));
    const size_t before = open_files();
    {
        SpillThread thread(*store.segment, store.daemon, {"/tmp"}, SpillFile::kNoLimit);
        thread.make_room(4 * kMany * kGranuleBytes);
        while (word_of(*store.segment, refs[0].entry).phase() == Phase::sealed &&
               word_of(*store.segment, refs[3].entry).phase() == Phase::sealed)
            sched_yield();
    }
    CHECK_EQ(open_files(), before);
    for (const ArenaRef& ref : refs)
        if (store.phase_of(ref) != Phase::spilled) check_readable(store.first, ref);
    check_books(*store.segment);
}

// ---- all at once -----------------------------------------------------------------------------------

namespace {

/// What a process asks the daemon for, one thing at a time.
struct Mailbox {
    std::atomic<uint64_t> wanted{0};  ///< entry + 1 and generation of what shall come back
    Shared<uint32_t> answers{0};      ///< what the asker sleeps on
    std::atomic<uint32_t> ended{0};
};

void live_with_spilling(Arena& arena, ProcessId self, Mailbox& box, uint64_t seed) {
    Random random(seed);
    std::vector<ArenaRef> mine;
    for (int round = 0; round < 40'000; ++round) {
        const uint64_t what = random.below(5);
        ArenaRef ref;
        char* data = nullptr;
        if (what < 2 && arena.allocate((1 + random.below(5)) * kGranuleBytes, self, ref, data)) {
            write_pattern(data, ref);
            arena.seal(ref, true);
            mine.push_back(ref);
        } else if (what < 4 && !mine.empty()) {
            ref = mine[random.below(mine.size())];
            PinResult result = arena.pin(ref, data);
            for (int tries = 0; result == PinResult::spilled && tries < 50; ++tries) {
                box.wanted.store(uint64_t(ref.generation) << 32 | (ref.entry + 1));
                for (uint32_t seen = 0; seen = box.answers.load(), box.wanted.load() != 0;)
                    futex_wait(box.answers, seen, -1);
                result = arena.pin(ref, data);
            }
            CHECK(result != PinResult::lost);
            if (result != PinResult::ok) continue;  // no room for it now
            CHECK(has_pattern(data, ref));
            if (random.below(50) == 0) sched_yield();
            CHECK(has_pattern(data, ref));
            arena.unpin(ref);
        } else if (!mine.empty()) {
            const size_t i = random.below(mine.size());
            arena.remove(mine[i]);
            mine.erase(mine.begin() + long(i));
        }
    }
    for (const ArenaRef& ref : mine)
        arena.remove(ref);
    box.ended.store(1);
}

}  // namespace

TEST(
    "processes that write, read and delete while the daemon spills and restores always read what they "
    "wrote") {
    Store store(40);
    constexpr uint32_t kProcesses = 3;
    SharedWithChildren<std::array<Mailbox, kProcesses>> boxes;
    std::vector<Child> children;
    for (uint32_t i = 0; i < kProcesses; ++i)
        children.emplace_back([&, i] {
            Arena arena(*store.segment, {i + 1, 1});
            live_with_spilling(arena, {i + 1, 1}, (*boxes)[i], i + 1);
        });
    Random random(17);
    const auto all_ended = [&] {
        for (Mailbox& box : *boxes)
            if (box.ended.load() == 0) return false;
        return true;
    };
    while (!all_ended()) {
        if (random.below(4) == 0) store.spill((1 + random.below(10)) * kGranuleBytes);
        for (Mailbox& box : *boxes) {
            const uint64_t wanted = box.wanted.load();
            if (wanted == 0) continue;
            const ArenaRef ref{uint32_t(wanted) - 1, uint32_t(wanted >> 32), 0};
            while (store.restore(ref) != SpillCode::done)
                if (store.spill(kGranuleBytes) == 0) break;
            box.wanted.store(0);
            box.answers.fetch_add(1);
            futex_wake(box.answers);
        }
        pause_us(long(random.below(20)));
    }
    for (Child& child : children)
        child.join();
    CHECK_EQ(check_books(*store.segment), 0u);
    CHECK_EQ(store.used_bytes(), 0u);
    CHECK_EQ(store.spill(1), 0u);
    CHECK(store.disk_bytes() <= kGranuleBytes);
}
