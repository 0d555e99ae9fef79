/// What was long ago: the file, its bound, what is thinned out of it, and disks that refuse.
#include "recorder.hpp"

#include <sys/resource.h>

#include <string>

#include "check.hpp"
#include "wire.hpp"

using namespace weft;

namespace {

constexpr uint32_t kFew = 256;
constexpr int64_t kSecond = 1'000'000'000;
const std::vector<std::string> kFolders{"/tmp"};

Event run(uint64_t number, int64_t duration_ns = 5, Status status = Status::ok) {
    Event event{};
    event.at_ns = int64_t(number) * kSecond;
    event.duration_ns = duration_ns;
    event.task = {number << 8, 1};
    event.kind = EventKind::RAN;
    event.status = uint8_t(status);
    return event;
}

/// As it is in the ring of a slot.
Event named(Event event, std::string_view name) {
    event.name_bytes = uint32_t(name.size());
    memcpy(event.name, name.data(), std::min(name.size(), kEventName));
    return event;
}

std::unique_ptr<Segment> inhabited() {
    auto segment = Segment::create(1 << 20, kFew);
    segment->slot(1).generation.store(1);
    return segment;
}

}  // namespace

TEST("runs are found again in the file and in what is not in it yet, the newest first") {
    EventFile file(kFolders, 4 * EventFile::kChunkBytes);
    for (uint64_t i = 0; i < EventFile::kChunkEvents + 10; ++i)
        file.append(named(run(i), "f"));
    const auto found = file.find({.most = 20});
    CHECK_EQ(found.size(), 20u);
    for (uint64_t i = 0; i < 20; ++i)
        CHECK_EQ(found[i].at_ns, int64_t(EventFile::kChunkEvents + 9 - i) * kSecond);
    CHECK_EQ(file.find({.most = SIZE_MAX}).size(), EventFile::kChunkEvents + 10);
}

TEST("runs are chosen by time, name and end, and the longest are told apart") {
    EventFile file(kFolders, 4 * EventFile::kChunkBytes);
    for (uint64_t i = 0; i < 100; ++i)
        file.append(named(run(i, int64_t(i * 37 % 100), i % 10 == 3 ? Status::failed : Status::ok),
                          i % 2 ? "odd" : "even"));
    CHECK_EQ(file.find({.from_ns = 10 * kSecond, .to_ns = 20 * kSecond}).size(), 10u);
    CHECK_EQ(file.find({.name = "odd"}).size(), 50u);
    CHECK_EQ(file.find({.name = "od"}).size(), 0u);
    CHECK_EQ(file.find({.is_unwell = true}).size(), 10u);
    const auto longest = file.find({.is_longest = true, .most = 3});
    CHECK_EQ(longest.size(), 3u);
    for (int64_t i = 0; i < 3; ++i)
        CHECK_EQ(longest[size_t(i)].duration_ns, 99 - i);
    CHECK_EQ(file.find({.is_longest = true, .most = 0}).size(), 0u);
}

TEST("the oldest chunk gives way") {
    EventFile file(kFolders, 2 * EventFile::kChunkBytes);
    for (uint64_t i = 0; i < 5 * EventFile::kChunkEvents; ++i)
        file.append(run(i));
    const auto found = file.find({.most = SIZE_MAX});
    CHECK_EQ(found.size(), 2 * EventFile::kChunkEvents);
    CHECK_EQ(found.back().at_ns, int64_t(3 * EventFile::kChunkEvents) * kSecond);
}

TEST("a disk that is full costs events, which are counted, and those before stay") {
    signal(SIGXFSZ, SIG_IGN);
    EventFile file(kFolders, 8 * EventFile::kChunkBytes);
    rlimit before{};
    getrlimit(RLIMIT_FSIZE, &before);
    const rlimit few{rlim_t(EventFile::kChunkBytes * 3 / 2), before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &few);
    for (uint64_t i = 0; i < 3 * EventFile::kChunkEvents; ++i)
        file.append(run(i));
    setrlimit(RLIMIT_FSIZE, &before);
    CHECK_EQ(file.refused(), 2 * EventFile::kChunkEvents);
    CHECK_EQ(file.find({.most = SIZE_MAX}).size(), EventFile::kChunkEvents);
}

TEST("without a folder to write to nothing is kept, and nothing else happens") {
    EventFile file({"/nowhere"}, 2 * EventFile::kChunkBytes);
    for (uint64_t i = 0; i < EventFile::kChunkEvents + 1; ++i)
        file.append(run(i));
    CHECK_EQ(file.refused(), EventFile::kChunkEvents);
    CHECK_EQ(file.find({}).size(), 1u);
}

TEST("each event of the rings is read once, and summed by function") {
    auto segment = inhabited();
    EventLog log(*segment, 1);
    const auto file = std::make_shared<EventFile>(kFolders, 4 * EventFile::kChunkBytes);
    Recorder recorder(*segment, file);
    CHECK(!recorder.look(kSecond));
    for (uint64_t i = 0; i < 10; ++i)
        log.record(run(i, int64_t(10 * i),
                       i == 4   ? Status::failed
                       : i == 5 ? Status::retry
                                : Status::ok),
                   "f");
    CHECK(recorder.look(2 * kSecond));
    CHECK(!recorder.look(3 * kSecond));
    const Recorder::Sums sums = recorder.take_sums();
    CHECK_EQ(sums.recorded, 10u);
    CHECK_EQ(sums.missed, 0u);
    const FunctionSums& f = sums.functions.at("f");
    CHECK_EQ(f.runs, 10u);
    CHECK_EQ(f.failed, 1u);
    CHECK_EQ(f.retried, 1u);
    CHECK_EQ(f.run_ns, 450u);
    CHECK_EQ(f.longest_ns, 90u);
    CHECK(recorder.take_sums().functions.empty());
    CHECK_EQ(file->find({}).size(), 10u);
}

TEST("what a ring has lost before it was read is counted") {
    auto segment = inhabited();
    EventLog log(*segment, 1);
    const auto file = std::make_shared<EventFile>(kFolders, 4 * EventFile::kChunkBytes);
    Recorder recorder(*segment, file);
    for (uint64_t i = 0; i < 3 * kFew; ++i)
        log.record(run(i), "f");
    recorder.look(kSecond);
    const Recorder::Sums sums = recorder.take_sums();
    CHECK_EQ(sums.recorded + sums.missed, 3u * kFew);
    CHECK(sums.missed >= 2u * kFew);
}

TEST("what comes faster than the file shall last is thinned out by task, failures last") {
    auto segment = inhabited();
    EventLog log(*segment, 1);
    const auto file = std::make_shared<EventFile>(kFolders, 4 * EventFile::kChunkBytes);
    Recorder recorder(*segment, file);
    constexpr uint64_t kRuns = 2 * EventFile::kChunkEvents;
    for (uint64_t i = 0; i < kRuns;) {
        for (const uint64_t end = i + kFew / 4; i < end; ++i) {
            Event submitted = run(i);
            submitted.kind = EventKind::SUBMITTED;
            log.record(submitted, "f");
            log.record(run(i, 5, i == kRuns - 9 ? Status::failed : Status::ok), "f");
        }
        recorder.look(kSecond);  // no time passes: nothing is added to what may be written
    }
    const Recorder::Sums sums = recorder.take_sums();
    CHECK_EQ(sums.functions.at("f").runs, kRuns);
    const auto found = file->find({.most = SIZE_MAX});
    const uint64_t all = EventFile::kChunkEvents / 4;  // half of the budget, at two events a task
    CHECK(found.size() > all && found.size() < all + kRuns / 8);
    CHECK_EQ(sums.thinned, 2 * (kRuns - found.size()) + 1);  // and what failed was submitted
    CHECK_EQ(file->find({.is_unwell = true}).size(), 1u);
}

TEST("more functions than are kept apart are told together") {
    auto segment = inhabited();
    EventLog log(*segment, 1);
    Recorder recorder(*segment, std::make_shared<EventFile>(kFolders, 0));
    for (uint64_t i = 0; i < Recorder::kMostFunctions + 44; ++i) {
        log.record(run(i), std::to_string(i));
        if (i % 100 == 0) recorder.look(kSecond);
    }
    recorder.look(kSecond);
    const Recorder::Sums sums = recorder.take_sums();
    CHECK_EQ(sums.functions.size(), Recorder::kMostFunctions + 1);
    CHECK_EQ(sums.functions.at("").runs, 44u);
}

TEST("the thread looks by itself, and ends at once") {
    auto segment = inhabited();
    EventLog log(*segment, 1);
    log.record(run(1), "f");
    RecorderThread thread(*segment, std::make_shared<EventFile>(kFolders, EventFile::kChunkBytes));
    uint64_t runs = 0;
    for (; runs == 0; std::this_thread::yield())
        for (const auto& [name, sums] : thread.take_sums().functions)
            runs += sums.runs;
    CHECK_EQ(runs, 1u);
}
