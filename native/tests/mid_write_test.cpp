/// A producer dies in the middle of a write: its consumer sees whole records only.
#include "ring.hpp"
#include "segment.hpp"
#include "stepping.hpp"

using namespace weft;

namespace {

constexpr ProcessId kFrom{2, 1}, kTo{1, 1};

std::unique_ptr<Segment> with_consumer() {
    auto segment = Segment::create(1 << 20);
    segment->slot(kTo.slot).generation.store(kTo.generation);
    segment->slot(kTo.slot).alive.store(1);
    return segment;
}

uint32_t size_of(uint64_t n) {
    const uint64_t x = Random(n + 1).next();
    return x % 64 == 0 ? uint32_t((x >> 20) % kMaxRecord) : uint32_t((x >> 20) % 400);
}

/// The n-th record: its number, again and again.
void write_record(char* to, uint32_t bytes, uint64_t n) {
    for (uint32_t i = 0; i + 8 <= bytes; i += 8)
        memcpy(to + i, &n, 8);
    for (uint32_t i = bytes & ~7u; i < bytes; ++i)
        to[i] = char(n);
}

void check_record(const Record& got, uint64_t n) {
    CHECK_EQ(got.bytes, size_of(n));
    CHECK_EQ(got.kind, uint16_t(n));
    for (uint32_t i = 0; i + 8 <= got.bytes; i += 8)
        CHECK(memcmp(got.data + i, &n, 8) == 0);
    for (uint32_t i = got.bytes & ~7u; i < got.bytes; ++i)
        CHECK_EQ(got.data[i], char(n));
}

bool put(RingWriter& writer, uint64_t n) {
    char* to = writer.reserve(size_of(n), uint16_t(n));
    if (to == nullptr) return false;
    write_record(to, size_of(n), n);
    writer.publish();
    return true;
}

}  // namespace

TEST("a producer that dies at any instruction leaves whole records only") {
    if (!kCanStep) return;
    auto segment = with_consumer();
    RingHeader* ring = segment->ring(segment->open_ring(kFrom, kTo));
    // Close to the end, so that one record has to begin anew.
    ring->tail.store(kRingBytes - 200);
    ring->head.store(kRingBytes - 200);
    SharedWithChildren<std::atomic<uint64_t>> said;
    std::string copy(kRingStride + 64, 0);
    auto* replica =
        reinterpret_cast<RingHeader*>((reinterpret_cast<uintptr_t>(copy.data()) + 63) & ~uintptr_t(63));
    uint64_t most = 0;
    const auto look = [&] {
        memcpy(static_cast<void*>(replica), static_cast<void*>(ring), kRingStride);
        RingReader reader(replica);
        Record got{};
        uint64_t n = 0;
        for (; reader.next(got); ++n)
            check_record(got, n);
        CHECK(n >= said->load() && n <= said->load() + 1);
        most = n;
        return true;
    };
    char* data = reinterpret_cast<char*>(ring) + 4096;
    const bool ended = step_through(
        {{reinterpret_cast<char*>(ring), sizeof *ring}, {data, 4096}, {data + kRingBytes - 200, 200}},
        [&] {
            RingWriter writer(ring);
            for (uint64_t n = 0; n < 12; ++n) {
                CHECK(put(writer, n));
                said->store(n + 1);
            }
        },
        look);
    CHECK(ended);
    CHECK_EQ(most, 12u);
}

TEST("hundreds of producers killed while they write leave whole records only") {
    auto segment = with_consumer();
    Random random(7);
    uint64_t records = 0;
    for (uint32_t round = 0; round < 400; ++round) {
        RingHeader* ring = segment->ring(segment->open_ring(kFrom, kTo));
        Child producer([&] {
            RingWriter writer(ring);
            for (uint64_t n = 0;; ++n)
                while (!put(writer, n))
                    sched_yield();
        });
        RingReader reader(ring);
        Record got{};
        uint64_t n = 0;
        const int64_t until = now_us() + int64_t(random.below(2000));
        while (now_us() < until) {
            if (!reader.next(got)) {
                reader.release();
                continue;
            }
            check_record(got, n++);
            if (n % 32 == 0) reader.release();
        }
        producer.kill_now();
        while (reader.next(got))
            check_record(got, n++);
        records += n;
        segment->close_ring(kFrom, kTo);
    }
    CHECK(records > 0);
}
