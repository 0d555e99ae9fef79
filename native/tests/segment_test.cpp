/// The segment: what attaching sees, and ring blocks that many take at once.
#include "segment.hpp"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <set>
#include <stdexcept>
#include <thread>

#include "check.hpp"

using namespace weft;

namespace {

int open_files() {
    int count = 0;
    for (int fd = 0; fd < 256; ++fd)
        count += fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
    return count;
}

template <class Call>
bool throws(Call&& call) {
    try {
        call();
    } catch (const std::runtime_error&) {
        return true;
    }
    return false;
}

/// A segment in which every slot has a process, its first.
std::unique_ptr<Segment> inhabited() {
    auto segment = Segment::create(1 << 20);
    for (uint32_t slot = 0; slot < kFewSlots; ++slot) {
        segment->slot(slot).generation.store(1);
        segment->slot(slot).alive.store(1);
    }
    return segment;
}

uint32_t open_ring(Segment& segment, uint32_t from, uint32_t to) {
    return segment.open_ring({from, 1}, {to, 1});
}

void close_ring(Segment& segment, uint32_t from, uint32_t to) {
    segment.close_ring({from, 1}, {to, 1});
}

}  // namespace

TEST("a new segment is empty, and its parts do not overlap") {
    auto segment = Segment::create(10 << 20);
    const Header& h = segment->header();
    CHECK_EQ(h.granules, 160u);
    CHECK_EQ(h.arena_bytes, uint64_t(10 << 20));
    const std::array<std::pair<uint64_t, uint64_t>, 8> parts{{
        {h.slots_at, h.slots * h.slot_stride},
        {h.far_at, kMostFar * sizeof(FarSlot)},
        {h.directory_at, uint64_t(h.slots) * h.slots * 4},
        {h.blocks_at, h.blocks * 8},
        {h.rings_at, h.blocks * kRingStride},
        {h.granules_at, h.granules * 4},
        {h.objects_at, h.objects * h.entry_stride},
        {h.arena_at, h.arena_bytes},
    }};
    uint64_t end = sizeof(Header);
    for (const auto& [at, bytes] : parts) {
        CHECK(at >= end);
        CHECK_EQ(at % 4096, 0u);
        end = at + bytes;
    }
    CHECK(end <= h.segment_bytes);
    CHECK_EQ(segment->ring_of(h.slots - 1, h.slots - 1).load(), 0u);
    CHECK_EQ(segment->block_owner(h.blocks - 1).load(), 0u);
    CHECK_EQ(segment->granule(h.granules - 1).load(), 0u);
    CHECK_EQ(segment->object(h.objects - 1).word.load(), 0u);
    segment->granule_data(h.granules - 1)[kGranuleBytes - 1] = 'z';
}

TEST("an arena of odd or no size is rounded up to whole granules") {
    CHECK_EQ(Segment::create(0)->header().granules, 1u);
    CHECK_EQ(Segment::create(1)->header().granules, 1u);
    CHECK_EQ(Segment::create(kGranuleBytes + 1)->header().granules, 2u);
}

TEST("whoever attaches sees the same memory, also after the maker let go") {
    auto maker = Segment::create(1 << 20);
    auto second = Segment::attach(maker->fd());
    CHECK(second->fd() != maker->fd());
    maker->slot(7).generation.store(5);
    maker->slot(7).alive.store(1);
    CHECK(second->is_alive({7, 5}));
    CHECK(!second->is_alive({7, 4}));
    strcpy(second->granule_data(3), "still here");
    Child child([&] {
        auto third = Segment::attach(second->fd());
        CHECK_EQ(std::string(third->granule_data(3)), "still here");
        third->granule_data(4)[0] = 'c';
    });
    child.join();
    maker.reset();
    CHECK_EQ(second->granule_data(4)[0], 'c');
}

TEST("what is no segment is refused, and no descriptor is left open") {
    const int before = open_files();
    const int empty = memfd_create("empty", MFD_CLOEXEC);
    CHECK(throws([&] { Segment::attach(empty); }));
    CHECK_EQ(ftruncate(empty, 1 << 16), 0);
    CHECK(throws([&] { Segment::attach(empty); }));
    CHECK(throws([&] { Segment::attach(12'345); }));
    close(empty);
    {
        auto segment = Segment::attach(Segment::create(1 << 20)->fd());
    }
    CHECK_EQ(open_files(), before);
}

TEST("a ring is opened once, found by both ends, and its block goes back when it is closed") {
    auto segment = inhabited();
    const uint32_t block = open_ring(*segment, 3, 9);
    CHECK_EQ(open_ring(*segment, 3, 9), block);
    CHECK_EQ(segment->ring_of(3, 9).load(), block + 1);
    CHECK_EQ(segment->ring_of(9, 3).load(), 0u);
    CHECK(open_ring(*segment, 9, 3) != block);
    segment->ring(block)->tail.store(77);
    close_ring(*segment, 3, 9);
    close_ring(*segment, 3, 9);  // closing what is closed does nothing
    CHECK_EQ(segment->ring_of(3, 9).load(), 0u);
    CHECK_EQ(segment->block_owner(block).load(), 0u);
    const uint32_t again = open_ring(*segment, 3, 9);
    CHECK_EQ(segment->ring(again)->tail.load(), 0u);
}

TEST("no ring is opened to a dead process, nor to one whose slot is another's by now") {
    auto segment = inhabited();
    segment->slot(9).alive.store(0);
    CHECK_EQ(open_ring(*segment, 3, 9), kNoRing);
    segment->slot(9).generation.store(2);
    segment->slot(9).alive.store(1);
    CHECK_EQ(open_ring(*segment, 3, 9), kNoRing);
    CHECK_EQ(segment->ring_of(3, 9).load(), 0u);
    segment->blocks_of(3, [](auto...) { CHECK(false); });
}

TEST("the rings of a slot are found from both ends") {
    auto segment = inhabited();
    const uint32_t there = open_ring(*segment, 3, 9), back = open_ring(*segment, 9, 3);
    open_ring(*segment, 9, 4);
    std::set<uint32_t> found;
    segment->blocks_of(3, [&](uint32_t block, uint64_t word) {
        const RingEnds ends(word);
        CHECK(ends.from == 3 ? ends.to == 9 : ends.from == 9 && ends.to == 3);
        CHECK_EQ(ends.other(3), 9u);
        found.insert(block);
    });
    CHECK(found == std::set({there, back}));
}

TEST("who closes a ring late leaves that of the next in its slot alone") {
    auto segment = inhabited();
    const ProcessId dead{3, 1}, heir{3, 2}, living{9, 1};
    const uint64_t late = RingEnds::pack(dead, living);
    const uint32_t block = segment->open_ring(dead, living);
    segment->close_ring(dead, living);
    CHECK_EQ(segment->open_ring(heir, living), block);
    segment->free_block(block, late);
    CHECK_EQ(segment->block_owner(block).load(), RingEnds::pack(heir, living));
}

TEST("the ends of a ring are told apart, whatever their slots and generations") {
    for (const ProcessId& from :
         {ProcessId{0, 0}, ProcessId{kMostSlots - 1, 0xffffffff}, ProcessId{7, 1 << 17}})
        for (const ProcessId& to : {ProcessId{kMostSlots - 1, 1}, ProcessId{0, 0}}) {
            const uint64_t word = RingEnds::pack(from, to);
            CHECK(word != 0);
            CHECK_EQ(RingEnds(word).from, from.slot);
            CHECK_EQ(RingEnds(word).to, to.slot);
            CHECK(word != RingEnds::pack({from.slot, from.generation + 1}, to));
        }
}

TEST("when every block is taken, opening says so until one is closed") {
    auto segment = inhabited();
    for (uint32_t i = 0; i < kSharedBlocks; ++i)
        CHECK(open_ring(*segment, 2 + i / 1000, 2 + i % 1000) != kNoBlock);
    CHECK_EQ(open_ring(*segment, 100, 2), kNoBlock);
    close_ring(*segment, 3, 3);
    CHECK(open_ring(*segment, 100, 2) != kNoBlock);
    CHECK_EQ(open_ring(*segment, 100, 3), kNoBlock);
    // The daemon and the relay are reached all the same, and reach everybody.
    for (const uint32_t service : {kDaemonSlot, kRelaySlot})
        for (uint32_t slot = 2; slot < kFewSlots; ++slot)
            CHECK(open_ring(*segment, slot, service) != kNoBlock &&
                  open_ring(*segment, service, slot) != kNoBlock);
}

TEST("a ring that is parted gives its block back, and both rows tell that the two have talked") {
    auto segment = inhabited();
    const ProcessId from{3, 1}, to{9, 1};
    const uint32_t block = segment->open_ring(from, to);
    segment->ring(block)->tail.store(8);
    segment->part(from, to);
    CHECK_EQ(segment->block_owner(block).load(), 0u);
    CHECK_EQ(segment->open_block(3, 9), 0u);
    CHECK(segment->ring_of(3, 9).load() == kParted && segment->ring_of(9, 3).load() == kParted);
    const uint32_t again = segment->open_ring(from, to);
    CHECK_EQ(segment->ring(again)->tail.load(), 0u);
    segment->part(from, to);
    segment->close_ring(from, to);
    segment->close_ring(to, from);
    CHECK(segment->ring_of(3, 9).load() == 0 && segment->ring_of(9, 3).load() == 0);
}

TEST("threads and processes that open and close rings at once never share a block") {
    // Each plays eight slots whose searches start close together, and writes its name into the blocks it
    // holds.
    constexpr uint32_t kProcesses = 3, kThreads = 2, kSlotsEach = 8, kRounds = 600, kRings = 20;
    auto segment = inhabited();
    const auto body = [&](uint32_t player) {
        Random random(player);
        for (uint32_t round = 0; round < kRounds; ++round) {
            for (uint32_t s = 0; s < kSlotsEach; ++s) {
                const uint32_t from = 2 + s * kProcesses * kThreads + player;
                for (uint32_t to = 2; to < kRings + 2; ++to) {
                    const uint32_t block = open_ring(*segment, from, to);
                    CHECK(block < segment->header().blocks);
                    segment->ring(block)->tail.store(from << 10 | to);
                }
                for (uint32_t to = 2; to < kRings + 2; ++to) {
                    const uint32_t block = segment->ring_of(from, to).load() - 1;
                    CHECK_EQ(segment->ring(block)->tail.load(), from << 10 | to);
                    CHECK_EQ(segment->block_owner(block).load(), RingEnds::pack({from, 1}, {to, 1}));
                    if (random.below(3) != 0 || round + 1 == kRounds) close_ring(*segment, from, to);
                }
            }
        }
    };
    const auto play = [&](uint32_t process) {
        std::vector<std::thread> threads;
        for (uint32_t t = 0; t < kThreads; ++t)
            threads.emplace_back(body, process * kThreads + t);
        for (std::thread& thread : threads)
            thread.join();
    };
    std::vector<Child> children;
    for (uint32_t p = 1; p < kProcesses; ++p)
        children.emplace_back([&, p] { play(p); });
    play(0);
    for (Child& child : children)
        child.join();
    for (uint32_t b = 0; b < segment->header().blocks; ++b)
        CHECK_EQ(segment->block_owner(b).load(), 0u);
}
