/// Collective operations: members as threads, so that ThreadSanitizer sees what they share, and as processes
/// that are killed.
#include "collective.hpp"

#include <sys/mman.h>

#include <atomic>
#include <cmath>
#include <thread>
#include <vector>

#include "check.hpp"

using namespace weft;
using namespace weft::collective;

namespace {

constexpr uint64_t kSlotBytes = 4096;

/// Zeroed memory that forked children share.
class SharedMemory {
  public:
    explicit SharedMemory(size_t bytes) : bytes_(bytes) {
        data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        CHECK(data_ != MAP_FAILED);
    }
    ~SharedMemory() { munmap(data_, bytes_); }
    SharedMemory(const SharedMemory&) = delete;
    SharedMemory& operator=(const SharedMemory&) = delete;
    void* data() const { return data_; }

  private:
    void* data_;
    size_t bytes_;
};

Surroundings all_alive() {
    return {[](uint64_t) { return true; }, [] { return Outcome::done; }};
}

Request request_for(Operation operation, Element element, Reduction reduction, uint32_t root,
                    int64_t length) {
    Request request{};
    request.operation = operation;
    request.element = element;
    request.reduction = reduction;
    request.root = root;
    request.dimensions = 1;
    request.shape[0] = length;
    return request;
}

/// Runs body(member) on a thread for each rank.
template <class Body>
void with_members(uint32_t size, Body body) {
    SharedMemory memory(Member::block_bytes(size, kSlotBytes));
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < size; ++rank)
        threads.emplace_back([&, rank] {
            Member member(memory.data(), size, kSlotBytes, rank, rank + 1, all_alive(), -1);
            CHECK(bool(member.join()));
            body(member);
        });
    for (std::thread& thread : threads)
        thread.join();
}

template <class T>
T reduce_two(Element element, Reduction reduction, T a, T b) {
    const void* arrays[] = {&a, &b};
    T out, copy;
    reduce(element, reduction, arrays, 2, 1, &out, &copy);
    CHECK(memcmp(&out, &copy, sizeof out) == 0);
    return out;
}

TEST("each reduction gives what it says") {
    CHECK_EQ(reduce_two<float>(Element::float32, Reduction::sum, 1.5f, 2), 3.5f);
    CHECK_EQ(reduce_two<double>(Element::float64, Reduction::product, 3, 4), 12.0);
    CHECK_EQ(reduce_two<double>(Element::float64, Reduction::mean, 3, 4), 3.5);
    CHECK_EQ(reduce_two<int32_t>(Element::int32, Reduction::minimum, -3, 4), -3);
    CHECK_EQ(reduce_two<uint16_t>(Element::uint16, Reduction::maximum, 65535, 4), 65535);
}

TEST("integers wrap around") {
    CHECK_EQ(reduce_two<int32_t>(Element::int32, Reduction::sum, INT32_MAX, 1), INT32_MIN);
    CHECK_EQ(reduce_two<int64_t>(Element::int64, Reduction::product, INT64_MAX, 2), -2);
    CHECK_EQ(reduce_two<uint16_t>(Element::uint16, Reduction::product, 65535, 65535), 1);
    CHECK_EQ(reduce_two<int8_t>(Element::int8, Reduction::sum, 127, 1), -128);
}

TEST("a NaN stays, whichever side it is on") {
    CHECK(std::isnan(reduce_two<float>(Element::float32, Reduction::maximum, NAN, 1)));
    CHECK(std::isnan(reduce_two<float>(Element::float32, Reduction::minimum, 1, NAN)));
    const uint16_t nan = 0x7f81, one = 0x3f80;
    CHECK_EQ(reduce_two<uint16_t>(Element::bfloat16, Reduction::sum, nan, one) & 0x7fc0, 0x7fc0);
}

TEST("bfloat16 is rounded once, to even") {
    // 1 + 2^-8 lies between 1 and 1 + 2^-7; 1 has the even mantissa. Twice it is 2^-7 more than 1: exact.
    const uint16_t one = 0x3f80, eps = 0x3b80;
    CHECK_EQ(reduce_two<uint16_t>(Element::bfloat16, Reduction::sum, one, eps), one);
    const void* arrays[] = {&one, &eps, &eps};
    uint16_t out;
    reduce(Element::bfloat16, Reduction::sum, arrays, 3, 1, &out, nullptr);
    CHECK_EQ(out, 0x3f81);
}

TEST("all members end with the sum, for any length") {
    for (const uint32_t size : {1u, 2u, 3u, 5u})
        with_members(size, [&](Member& member) {
            for (const size_t count : {0, 1, 17, 1000, 4097, 40'000}) {
                std::vector<float> data(count);
                for (size_t i = 0; i < count; ++i)
                    data[i] = float(i % 100) * float(member.rank() + 1);
                const Request request =
                    request_for(Operation::all_reduce, Element::float32, Reduction::sum, 0, int64_t(count));
                CHECK(bool(member.all_reduce(request, reinterpret_cast<char*>(data.data()), count)));
                const float factor = float(size * (size + 1) / 2);
                for (size_t i = 0; i < count; ++i)
                    CHECK_EQ(data[i], float(i % 100) * factor);
            }
        });
}

TEST("operations that move data follow one another without a barrier between them") {
    constexpr uint32_t kSize = 3;
    with_members(kSize, [](Member& member) {
        for (int turn = 0; turn < 50; ++turn) {
            const size_t bytes = size_t(turn) * 397 % 9000;
            const uint32_t root = uint32_t(turn) % kSize;
            std::vector<char> own(bytes, char(member.rank() * 50 + turn)), all(bytes * kSize), back(bytes);
            const auto request = [&](Operation operation) {
                return request_for(operation, Element::uint8, Reduction::sum, root, int64_t(bytes));
            };
            CHECK(bool(member.all_gather(request(Operation::all_gather), own.data(), all.data(), bytes)));
            for (uint32_t rank = 0; rank < kSize; ++rank)
                for (size_t i = 0; i < bytes; ++i)
                    CHECK_EQ(all[rank * bytes + i], char(rank * 50 + turn));
            CHECK(bool(member.scatter(request(Operation::scatter), all.data(), back.data(), bytes)));
            CHECK(back == own);
            CHECK(bool(member.all_to_all(request(Operation::all_to_all), all.data(), all.data(), bytes)));
            for (size_t i = 0; i < bytes * kSize; ++i)
                CHECK_EQ(all[i], char(member.rank() * 50 + turn));
            CHECK(bool(member.broadcast(request(Operation::broadcast), back.data(), bytes)));
            for (size_t i = 0; i < bytes; ++i)
                CHECK_EQ(back[i], char(root * 50 + turn));
        }
    });
}

TEST("messages between pairs arrive whole and in order") {
    constexpr uint32_t kSize = 3;
    with_members(kSize, [](Member& member) {
        std::vector<char> data(700'000);
        for (int turn = 0; turn < 20; ++turn)
            for (uint32_t to = 1; to < kSize; ++to) {
                const size_t bytes = turn % 3 == 0 ? data.size() : size_t(turn);
                const Request request =
                    request_for(Operation::send, Element::uint8, Reduction::sum, 0, int64_t(bytes));
                if (member.rank() == 0) {
                    std::fill(data.begin(), data.end(), char(turn));
                    CHECK(bool(member.send(request, to, data.data(), bytes)));
                } else if (member.rank() == to) {
                    CHECK(bool(member.receive(request, 0, data.data(), bytes)));
                    for (size_t i = 0; i < bytes; ++i)
                        CHECK_EQ(data[i], char(turn));
                }
            }
    });
}

TEST("a mismatch is told to all, and the group goes on") {
    with_members(3, [](Member& member) {
        std::vector<double> data(600, 1.0);
        char* const bytes = reinterpret_cast<char*>(data.data());
        const size_t count = member.rank() == 1 ? 600 : 5;
        const Outcome outcome = member.all_reduce(
            request_for(Operation::all_reduce, Element::float64, Reduction::sum, 0, int64_t(count)), bytes,
            count);
        CHECK_EQ(int(outcome.kind), int(Outcome::mismatch));
        CHECK_EQ(outcome.rank, 1u);
        CHECK_EQ(outcome.first.shape[0], 5);
        CHECK_EQ(outcome.other.shape[0], 600);
        CHECK(bool(member.all_reduce(
            request_for(Operation::all_reduce, Element::float64, Reduction::sum, 0, 5), bytes, 5)));
        CHECK_EQ(data[0], 3.0);
    });
}

TEST("one that leaves is missed by those that wait for it, and by nobody before") {
    with_members(3, [](Member& member) {
        const Request request = request_for(Operation::barrier, Element::uint8, Reduction::sum, 0, 0);
        CHECK(bool(member.barrier(request)));
        if (member.rank() == 2) return;
        for (int again = 0; again < 2; ++again) {
            const Outcome outcome = member.barrier(request);
            CHECK_EQ(int(outcome.kind), int(Outcome::gone));
            CHECK_EQ(outcome.rank, 2u);
            CHECK_EQ(int(outcome.why), int(Gone::left));
        }
    });
}

TEST("a process killed at any moment ends the operation for all others") {
    constexpr uint32_t kSize = 3;
    struct Marks {
        Shared<uint32_t> is_dead;
        Shared<uint32_t> rounds;
    };
    for (int turn = 0; turn < 10; ++turn) {
        SharedMemory memory(Member::block_bytes(kSize, kSlotBytes));
        SharedWithChildren<Marks> marks;
        const auto work = [&](uint32_t rank) {
            Surroundings around = all_alive();
            around.is_alive = [&](uint64_t process) { return process != 3 || marks->is_dead.load() == 0; };
            Member member(memory.data(), kSize, kSlotBytes, rank, rank + 1, around, -1);
            CHECK(bool(member.join()));
            std::vector<float> data(5000, 1.0f);
            const Request request =
                request_for(Operation::all_reduce, Element::float32, Reduction::maximum, 0, 5000);
            for (;;) {
                const Outcome outcome =
                    member.all_reduce(request, reinterpret_cast<char*>(data.data()), 5000);
                if (rank == 0) marks->rounds.fetch_add(1);
                if (outcome) continue;
                CHECK_EQ(int(outcome.kind), int(Outcome::gone));
                CHECK_EQ(outcome.rank, 2u);
                CHECK_EQ(int(outcome.why), int(Gone::died));
                return;
            }
        };
        Child first([&] { work(0); }), second([&] { work(1); }), victim([&] { work(2); });
        EVENTUALLY(marks->rounds.load() > uint32_t(turn * 7));
        victim.kill_now();
        marks->is_dead.store(1);
        first.join();
        second.join();
    }
}

TEST("who waits too long says for whom, and the late one is told") {
    with_members(2, [](Member& member) {
        const Request request = request_for(Operation::barrier, Element::uint8, Reduction::sum, 0, 0);
        CHECK(bool(member.barrier(request)));
        static std::atomic<bool> gave_up;
        if (member.rank() == 0) {
            member.set_timeout(1'000'000);
            const Outcome outcome = member.barrier(request);
            CHECK_EQ(int(outcome.kind), int(Outcome::timed_out));
            CHECK_EQ(outcome.rank, 1u);
            gave_up.store(true);
        } else {
            EVENTUALLY(gave_up.load());
            const Outcome outcome = member.barrier(request);
            CHECK_EQ(int(outcome.kind), int(Outcome::gone));
            CHECK_EQ(int(outcome.why), int(Gone::timed_out));
        }
    });
}

TEST("a rank is taken once") {
    SharedMemory memory(Member::block_bytes(1, kSlotBytes));
    Member one(memory.data(), 1, kSlotBytes, 0, 1, all_alive(), -1);
    CHECK(bool(one.join()));
    Member two(memory.data(), 1, kSlotBytes, 0, 2, all_alive(), -1);
    CHECK_EQ(int(two.join().kind), int(Outcome::gone));
}

}  // namespace
