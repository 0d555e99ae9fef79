/// Events: what is kept, what gives way, and what a reader sees while somebody writes.
#include "events.hpp"

#include <string>
#include <thread>

#include "check.hpp"

using namespace weft;

namespace {

constexpr uint32_t kFew = 64;

void record(EventLog& log, uint64_t number, std::string_view name = "f") {
    Event event{};
    event.at_ns = int64_t(number);
    event.duration_ns = int64_t(number) * 3;
    event.bytes = number;
    event.task = {number, number};
    event.kind = EventKind::RAN;
    log.record(event, name);
}

bool is_whole(const Event& event, uint64_t number) {
    return event.at_ns == int64_t(number) && event.duration_ns == int64_t(number) * 3 &&
           event.bytes == number && event.task == Id{number, number} &&
           std::string_view(event.name, 1) == "f";
}

}  // namespace

TEST("events are read in the order in which they were written") {
    auto segment = Segment::create(1 << 20, kFew);
    EventLog log(*segment, 3);
    for (uint64_t i = 0; i < 10; ++i)
        record(log, i);
    const auto read = EventLog(*segment, 3).read(0, 1000);
    CHECK_EQ(read.first, 0u);
    CHECK_EQ(read.written, 10u);
    for (uint64_t i = 0; i < 10; ++i)
        CHECK(is_whole(read.events[i], i));
    CHECK_EQ(EventLog(*segment, 4).read(0, 1000).written, 0u);
}

TEST("a reader goes on where it was, and takes at most what it asks for") {
    auto segment = Segment::create(1 << 20, kFew);
    EventLog log(*segment, 1);
    for (uint64_t i = 0; i < 20; ++i)
        record(log, i);
    CHECK_EQ(log.read(15, 1000).events.size(), 5u);
    CHECK_EQ(log.read(20, 1000).events.size(), 0u);
    CHECK_EQ(log.read(1000, 1000).events.size(), 0u);
    CHECK_EQ(log.read(0, 3).first, 17u);
}

TEST("the oldest events give way, and how many is known") {
    auto segment = Segment::create(1 << 20, kFew);
    EventLog log(*segment, 1);
    for (uint64_t i = 0; i < 1000; ++i)
        record(log, i);
    const auto read = log.read(0, 1000);
    CHECK_EQ(read.written, 1000u);
    CHECK_EQ(read.first, 1000 - kFew + 1);  // the oldest place is the one that a writer would be in now
    for (uint64_t i = 0; i < read.events.size(); ++i)
        CHECK(is_whole(read.events[i], read.first + i));
}

TEST("a long name is cut, and its length is told") {
    auto segment = Segment::create(1 << 20, kFew);
    EventLog log(*segment, 1);
    record(log, 0, std::string(100, 'f'));
    record(log, 1, std::string(1 << 20, 'f'));
    const auto read = log.read(0, 10);
    CHECK_EQ(read.events[0].name_bytes, 100u);
    CHECK_EQ(std::string(read.events[0].name, kEventName), std::string(kEventName, 'f'));
    CHECK_EQ(read.events[1].name_bytes, uint32_t(1 << 20));
}

TEST("names of any length come out as they went in") {
    auto segment = Segment::create(1 << 20, kFew);
    EventLog log(*segment, 1);
    const std::string name = "abcdefghijklmnopqrstuvwxyz";
    for (size_t length = 0; length <= name.size(); ++length)
        record(log, length, std::string_view(name).substr(0, length));
    const auto read = log.read(0, 100);
    for (size_t length = 0; length <= name.size(); ++length) {
        CHECK_EQ(read.events[length].name_bytes, uint32_t(length));
        CHECK_EQ(std::string(read.events[length].name, length), name.substr(0, length));
    }
}

TEST("a busy process records some tasks, counts the others, and soon records all again") {
    auto segment = Segment::create(1 << 20, kFew);
    EventLog log(*segment, 1);
    const auto admitted = [&](uint64_t first, uint64_t count) {
        uint64_t sum = 0;
        for (uint64_t i = first; i < first + count; ++i)
            sum += log.counts(Tally::finished, {i, 0}) ? 1 : 0;
        return sum;
    };
    CHECK_EQ(admitted(0, kBurst), uint64_t(kBurst));
    CHECK_EQ(admitted(0, 10 * kSampled), 10u);
    CHECK_EQ(log.read(0, 1).skipped, 10 * kSampled - 10);
    CHECK(log.admits_wait({0, 0}));
    CHECK(!log.admits_wait({1, 0}));
    CHECK_EQ(log.read(0, 1).skipped, 10 * kSampled - 9);
    CHECK(!EventLog(*segment, 2).read(0, 1).skipped);
    record(log, kBurstNs);  // another stretch of time has begun
    CHECK_EQ(admitted(1, 15), 15u);
}

TEST("nothing is kept in a segment that records nothing, but sums are") {
    auto segment = Segment::create(1 << 20, 0);
    EventLog log(*segment, 1);
    CHECK(!log.is_on());
    log.add(Tally::submitted, 3);
    CHECK(!log.counts(Tally::submitted, {0, 0}));
    CHECK(!log.admits_wait({0, 0}));
    CHECK_EQ(EventLog(*segment, 1).sum(Tally::submitted), 4u);
}

TEST("a reader never sees half an event while they are written") {
    auto segment = Segment::create(1 << 20, kFew);
    constexpr uint64_t kMany = 200'000;
    std::thread writer([&] {
        EventLog log(*segment, 1);
        for (uint64_t i = 0; i < kMany; ++i)
            record(log, i);
    });
    const EventLog log(*segment, 1);
    uint64_t next = 0, seen = 0, missed = 0;
    while (next < kMany) {
        const auto read = log.read(next, kMany);
        missed += read.first - next;
        for (uint64_t i = 0; i < read.events.size(); ++i)
            CHECK(is_whole(read.events[i], read.first + i));
        seen += read.events.size();
        next = read.written;
    }
    writer.join();
    CHECK_EQ(seen + missed, kMany);
}
