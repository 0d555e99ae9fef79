/// One ring between one producer and one consumer: order, room, and who is told of room.
#include "ring.hpp"

#include <atomic>
#include <thread>

#include "check.hpp"
#include "doorbell.hpp"

using namespace weft;

namespace {

/// A ring outside any segment, whose counters begin where the test wants.
class LoneRing {
  public:
    explicit LoneRing(uint32_t at = 0) {
        memory_ = static_cast<char*>(aligned_alloc(4096, kRingStride));
        memset(memory_, 0, kRingStride);
        header_ = new (memory_) RingHeader{};
        header_->tail.store(at);
        header_->head.store(at);
    }
    LoneRing(const LoneRing&) = delete;
    ~LoneRing() { free(memory_); }
    RingHeader* header() const { return header_; }

  private:
    char* memory_;
    RingHeader* header_;
};

/// What the n-th record holds: a piece of this.
const char* text_of(uint64_t record) {
    static const std::string text = [] {
        std::string all(kMaxRecord + 256, 0);
        for (size_t i = 0; i < all.size(); ++i)
            all[i] = char(i * 7 + (i >> 8));
        return all;
    }();
    return text.data() + record % 256;
}

bool holds(const Record& got, uint32_t bytes, uint64_t record) {
    return got.bytes == bytes && got.kind == uint16_t(record) && got.flags == uint16_t(bytes) &&
           memcmp(got.data, text_of(record), bytes) == 0;
}

bool put(RingWriter& writer, uint32_t bytes, uint64_t record) {
    char* to = writer.reserve(bytes, uint16_t(record), uint16_t(bytes));
    if (to == nullptr) return false;
    memcpy(to, text_of(record), bytes);
    writer.publish();
    return true;
}

/// The size of the n-th record: mostly small, now and then a large one, at times the largest.
uint32_t size_of(uint64_t n) {
    const uint64_t x = Random(n + 1).next();
    if (x % 997 == 0) return kMaxRecord;
    if (x % 101 == 0) return uint32_t((x >> 20) % kMaxRecord);
    return uint32_t((x >> 20) % 120);
}

}  // namespace

TEST("records come out whole and in the order they went in") {
    LoneRing ring;
    RingWriter writer(ring.header());
    RingReader reader(ring.header());
    Record got{};
    uint64_t in = 0, out = 0;
    while (out < 60'000) {
        while (put(writer, size_of(in), in))
            ++in;
        CHECK(in > out);
        for (const uint64_t until = out + (in - out + 1) / 2; out < until; ++out) {
            CHECK(reader.next(got));
            CHECK(holds(got, size_of(out), out));
        }
        reader.release();
    }
}

TEST("a record of every size is read as it was written") {
    LoneRing ring;
    RingWriter writer(ring.header());
    RingReader reader(ring.header());
    Record got{};
    for (uint32_t bytes = 0; bytes <= kMaxRecord; bytes += bytes < 300 || bytes > kMaxRecord - 30 ? 1 : 61) {
        CHECK(put(writer, bytes, bytes));
        CHECK(reader.next(got));
        CHECK(holds(got, bytes, bytes));
        CHECK(!reader.next(got));
        reader.release();
    }
}

TEST("the largest record fits into an empty ring wherever its tail is") {
    LoneRing ring;
    for (uint32_t offset = 0; offset < kRingBytes; offset += 8) {
        ring.header()->tail.store(offset);
        ring.header()->head.store(offset);
        RingWriter writer(ring.header());
        RingReader reader(ring.header());
        char* to = writer.reserve(kMaxRecord, 5);
        if (to == nullptr) fail(__FILE__, __LINE__, "no room at offset " + std::to_string(offset));
        to[0] = 'a';
        to[kMaxRecord - 1] = 'z';
        writer.publish();
        Record got{};
        CHECK(reader.next(got));
        CHECK_EQ(got.bytes, kMaxRecord);
        CHECK(got.data[0] == 'a' && got.data[kMaxRecord - 1] == 'z');
        CHECK(!reader.next(got));
    }
}

TEST("the counters may run over the end of 32 bits") {
    LoneRing ring(0u - 3 * 8);
    RingWriter writer(ring.header());
    RingReader reader(ring.header());
    Record got{};
    for (uint64_t n = 0; n < 2000; ++n) {
        CHECK(put(writer, size_of(n), n));
        CHECK(reader.next(got));
        CHECK(holds(got, size_of(n), n));
        reader.release();
    }
}

TEST("a full ring refuses, keeps what it has, and takes more once there is room") {
    LoneRing ring;
    RingWriter writer(ring.header());
    RingReader reader(ring.header());
    uint64_t in = 0;
    while (put(writer, 1000, in))
        ++in;
    CHECK_EQ(in, uint64_t(kRingBytes / record_span(1000)));
    Record got{};
    CHECK(reader.next(got));
    CHECK(!put(writer, 1000, in));  // read, but its room is not given back yet
    CHECK(!reader.release());       // nobody said that it waits for room
    CHECK(put(writer, 1000, in));
    for (uint64_t n = 1; n <= in; ++n) {
        CHECK(reader.next(got));
        CHECK(holds(got, 1000, n));
    }
    CHECK(!reader.next(got));
    CHECK(!writer.is_empty());
    reader.release();
    CHECK(writer.is_empty());
}

TEST("nothing is seen of a record before it is published") {
    LoneRing ring;
    RingWriter writer(ring.header());
    RingReader reader(ring.header());
    Record got{};
    char* to = writer.reserve(100, 1);
    memset(to, 1, 100);
    CHECK(!reader.next(got));
    CHECK(!reader.has_more());
    // A second thought: what was reserved is reserved anew.
    CHECK(put(writer, 50, 2));
    CHECK(reader.has_more());
    CHECK(reader.next(got));
    CHECK(holds(got, 50, 2));
    CHECK(!reader.next(got));
}

TEST("a writer and a reader made later go on where the first ones were") {
    LoneRing ring;
    {
        RingWriter writer(ring.header());
        for (uint64_t n = 0; n < 10; ++n)
            CHECK(put(writer, 40, n));
        RingReader reader(ring.header());
        Record got{};
        for (uint64_t n = 0; n < 4; ++n)
            CHECK(reader.next(got));
        reader.release();
    }
    RingWriter writer(ring.header());
    RingReader reader(ring.header());
    CHECK(put(writer, 40, 10));
    Record got{};
    for (uint64_t n = 4; n <= 10; ++n) {
        CHECK(reader.next(got));
        CHECK(holds(got, 40, n));
    }
}

TEST("two threads pass millions of records") {
    constexpr uint64_t kRecords = 3'000'000;
    LoneRing ring;
    std::thread producer([&] {
        RingWriter writer(ring.header());
        for (uint64_t n = 0; n < kRecords; ++n) {
            const uint32_t bytes = n % 4096 == 0 ? size_of(n) : uint32_t(n % 25);
            while (!put(writer, bytes, n))
                sched_yield();
        }
    });
    RingReader reader(ring.header());
    Record got{};
    for (uint64_t n = 0; n < kRecords;) {
        if (!reader.next(got)) {
            reader.release();
            sched_yield();
            continue;
        }
        CHECK(holds(got, n % 4096 == 0 ? size_of(n) : uint32_t(n % 25), n));
        if (++n % 64 == 0) reader.release();
    }
    producer.join();
}

TEST("a producer that wants room is always told of it") {
    // The producer sleeps until the consumer's release() says that it is awaited: one that is missed hangs.
    // Both sleep in the kernel at once: the waits of the standard library yield first, to all that a busy
    // machine runs.
    constexpr uint64_t kRecords = 100'000;
    constexpr uint32_t kBytes = 60'000;
    LoneRing ring;
    Shared<uint32_t> tail_moved{0}, room_made{0};
    std::thread producer([&] {
        RingWriter writer(ring.header());
        for (uint64_t n = 0; n < kRecords; ++n) {
            char* to = writer.reserve(kBytes, 1);
            while (to == nullptr) {
                const uint32_t seen = room_made.load();
                writer.want_room();
                to = writer.reserve(kBytes, 1);
                if (to == nullptr) futex_wait(room_made, seen, -1);
                if (to == nullptr) to = writer.reserve(kBytes, 1);
            }
            memcpy(to, &n, sizeof n);
            writer.publish();
            tail_moved.fetch_add(1);
            futex_wake(tail_moved);
        }
    });
    RingReader reader(ring.header());
    Record got{};
    for (uint64_t n = 0; n < kRecords;) {
        const uint32_t seen = tail_moved.load();
        if (!reader.next(got)) {
            futex_wait(tail_moved, seen, -1);
            continue;
        }
        CHECK(memcmp(got.data, &n, sizeof n) == 0);
        ++n;
        if (reader.release()) {
            room_made.fetch_add(1);
            futex_wake(room_made);
        }
    }
    producer.join();
}
