/// What a process has done lately: a ring of fixed-size events for each slot, in the segment, for observers.
///
/// EVT-1  Recording never waits, allocates or fails: the oldest event gives way.
/// EVT-2  Every event has a number; `written` counts them all, so a reader knows how many it has missed.
/// EVT-3  A reader takes only events that were whole when it looked: it reads `written` before and after.
/// EVT-4  Rings and tallies outlive the process, and go on with the slot's next one; so sums over all slots
///        never fall.
/// EVT-5  What a busy process leaves out is known: what its tallies count and what it admitted differ by
/// that.
///        Which tasks those are their ids decide, so that whoever submits a task and whoever runs it choose
///        alike.
///
/// One writer at a time: a process records while it holds its core's mutex, the daemon on its one thread.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <vector>

#include "segment.hpp"

namespace weft {

/// `src/weft/observe/event_records.py` has the same numbers; a test compares them.
enum class EventKind : uint8_t {
    SUBMITTED = 1,  ///< a task or call; other: its parent; bytes: of its arguments; count: of its inputs
    USES = 2,       ///< task needs an object (other); follows SUBMITTED
    RAN = 3,        ///< a task or call, from taking it up to its answer; other: its actor
    WAITED = 4,     ///< task (or the driver) was blocked for an object (other) and count - 1 more
    PUT = 5,        ///< an object (other) went into the arena
    SPILLED = 6,    ///< bytes went to disk
    RESTORED = 7,   ///< bytes came back from disk
    RECEIVED = 8,   ///< bytes of an object came from another node
    SENT = 9,       ///< bytes of an object were asked for by another node
};

/// Sums since the segment was made; `observe/event_records.py` has the same order.
enum class Tally : uint32_t {
    submitted,
    finished,
    failed,
    run_ns,
    put_objects,
    put_bytes,
    spilled_bytes,
    restored_bytes,
    received_bytes,
    sent_bytes,
    count,
};

constexpr size_t kEventName = 56;

struct Event {
    int64_t at_ns;  ///< begin, on the monotonic clock
    int64_t duration_ns;
    Id task;
    Id other;
    uint64_t bytes;
    uint32_t pid;
    EventKind kind;
    uint8_t status;  ///< of RAN: a Status
    uint16_t attempt;
    uint32_t count;
    uint32_t name_bytes;  ///< of the whole name; `name` has the first kEventName of them
    char name[kEventName];
};
static_assert(sizeof(Event) == 128);
constexpr size_t kEventWords = sizeof(Event) / sizeof(uint64_t);
constexpr size_t kNameWord = offsetof(Event, name) / sizeof(uint64_t);

/// So many events of a process are recorded in each stretch of time, whatever they are; of what comes beyond
/// that, one task in so many. An event costs some 100 ns, most of it for memory that is in no cache any more.
constexpr int32_t kBurst = 512;
constexpr int64_t kBurstNs = 40'000'000;
constexpr uint64_t kSampled = 64;

struct alignas(64) EventRing {
    /// Events ever written. Stored (release) by the writer behind each event; read by observers.
    Shared<uint64_t> written;
    /// Submissions and runs that were worth an event. Stored (release) behind their tally; read by observers.
    Shared<uint64_t> admitted;
    /// Waits that were not, told by threads that hold no lock.
    Shared<uint64_t> skipped_waits;
    alignas(64) Shared<uint64_t> tallies[16];
};
static_assert(sizeof(EventRing) <= 4096 && size_t(Tally::count) <= 16);
/// The ring's header has a page of its own; the events follow it.
constexpr uint64_t event_ring_stride(uint32_t events) {
    return events == 0 ? 4096 : 4096 + (uint64_t(events) * sizeof(Event) + 4095) / 4096 * 4096;
}

/// One slot's ring. Cheap to make.
class EventLog {
  public:
    EventLog(const Segment& segment, uint32_t slot)
        : events_(segment.header().events),
          ring_(reinterpret_cast<EventRing*>(segment.event_ring(slot))),
          words_(reinterpret_cast<Shared<uint64_t>*>(segment.event_ring(slot) + 4096)),
          pid_(uint32_t(getpid())) {}

    bool is_on() const { return events_ != 0; }

    void add(Tally tally, uint64_t amount) {
        Shared<uint64_t>& sum = ring_->tallies[uint32_t(tally)];
        sum.store(sum.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
    }
    uint64_t sum(Tally tally) const {
        return ring_->tallies[uint32_t(tally)].load(std::memory_order_relaxed);
    }

    /// A task was submitted or has run: counts it, and says whether it is worth an event now.
    bool counts(Tally tally, Id task) {
        add(tally, 1);
        if (!is_on() || !is_worth_it(task)) return false;
        // Partner: the acquire load of skipped().
        ring_->admitted.store(ring_->admitted.load(std::memory_order_relaxed) + 1, std::memory_order_release);
        return true;
    }
    /// Whether a wait for this object is worth an event now. The mutex need not be held.
    bool admits_wait(Id object) {
        if (!is_on()) return false;
        if (is_worth_it(object)) return true;
        ring_->skipped_waits.fetch_add(1, std::memory_order_relaxed);
        return false;
    }

    /// Its pid and the name are filled in here. Composed of whole words: parts of them would have to be
    /// gathered again from the store buffer.
    void record(const Event& event, std::string_view name) {
        const uint64_t number = ring_->written.load(std::memory_order_relaxed);
        Shared<uint64_t>* to = words_ + (number % events_) * kEventWords;
        const auto set = [to](size_t word, uint64_t value) {
            to[word].store(value, std::memory_order_relaxed);
        };
        // A reader that sees one of these words sees at least this `written` behind its own fence.
        std::atomic_thread_fence(std::memory_order_release);
        set(0, uint64_t(event.at_ns));
        set(1, uint64_t(event.duration_ns));
        set(2, event.task.high);
        set(3, event.task.low);
        set(4, event.other.high);
        set(5, event.other.low);
        set(6, event.bytes);
        set(7, uint64_t(pid_) | uint64_t(event.kind) << 32 | uint64_t(event.status) << 40 |
                   uint64_t(event.attempt) << 48);
        const size_t kept = std::min(name.size(), kEventName);
        set(8, uint64_t(event.count) | uint64_t(std::min<size_t>(name.size(), 0xffffffff)) << 32);
        for (size_t i = 0; i < kept; i += 8)
            set(kNameWord + i / 8, first_word(name.data() + i, kept - i));
        // Partner: the acquire loads of read().
        ring_->written.store(number + 1, std::memory_order_release);
        const int64_t end_ns = event.at_ns + event.duration_ns;
        if (end_ns - burst_began_ns_ < kBurstNs) return;
        burst_began_ns_ = end_ns;
        left_.store(kBurst, std::memory_order_relaxed);
    }

    struct Read {
        uint64_t skipped = 0;  ///< left out so far
        uint64_t first = 0;    ///< number of the first event in `events`
        uint64_t written = 0;  ///< and of the one behind the last
        std::vector<Event> events;
    };
    /// The events from number `since` on, at most the newest `most`; older ones than the ring has are missed.
    Read read(uint64_t since, size_t most) const;

  private:
    uint64_t skipped() const;
    bool is_worth_it(Id task) {
        const int32_t left = left_.load(std::memory_order_relaxed);
        if (left <= 0) return task.high % kSampled == 0;
        left_.store(left - 1, std::memory_order_relaxed);
        return true;
    }
    /// Up to eight bytes as one word.
    static uint64_t first_word(const char* data, size_t bytes) {
        uint64_t word = 0;
        if (bytes >= 8) {
            memcpy(&word, data, 8);
        } else if (bytes >= 4) {
            uint32_t low, high;  // which overlap
            memcpy(&low, data, 4);
            memcpy(&high, data + bytes - 4, 4);
            word = low | uint64_t(high) << (8 * (bytes - 4));
        } else {
            for (size_t i = 0; i < bytes; ++i)
                word |= uint64_t(uint8_t(data[i])) << (8 * i);
        }
        return word;
    }

    uint64_t events_;
    EventRing* ring_;
    Shared<uint64_t>* words_;
    uint32_t pid_;
    std::atomic<int32_t> left_{kBurst};
    int64_t burst_began_ns_ = 0;
};

}  // namespace weft
