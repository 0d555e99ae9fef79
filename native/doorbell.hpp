/// Ringing and answering doorbells: a ready bit for the producer, and a wake only for one who sleeps.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>

#include "segment.hpp"

namespace weft {

/// Monotonic.
inline int64_t now_ns() {
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return int64_t(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

/// 0, or the errno (EAGAIN, EINTR, ETIMEDOUT). A negative timeout waits without one.
inline int futex_wait(Shared<uint32_t>& word, uint32_t expected, int64_t timeout_ns) {
    timespec span{timeout_ns / 1'000'000'000, timeout_ns % 1'000'000'000};
    const long r =
        syscall(SYS_futex, &word, FUTEX_WAIT, expected, timeout_ns < 0 ? nullptr : &span, nullptr, 0);
    return r == 0 ? 0 : errno;
}

inline void futex_wake(Shared<uint32_t>& word, int count = 1) {
    syscall(SYS_futex, &word, FUTEX_WAKE, count, nullptr, nullptr, 0);
}

/// Tells `to` that `from` has published. Call after the ring's publish().
inline void ring_bell(Segment& segment, uint32_t from, uint32_t to, int daemon_event_fd) {
    Doorbell& bell = segment.bell(to);
    Shared<uint64_t>& word = bell.ready(from / 64);
    const uint64_t bit = 1ULL << (from % 64);
    // Partner: take_ready's exchange. The fence orders the tail's store before the load of the bit.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if ((word.load(std::memory_order_relaxed) & bit) == 0) word.fetch_or(bit, std::memory_order_seq_cst);
    const uint32_t state = bell.state.load(std::memory_order_seq_cst);  // partner: the sleeper's store
    if (state == uint32_t(Bell::awake)) return;
    uint32_t expected = state;
    if (!bell.state.compare_exchange_strong(expected, uint32_t(Bell::awake))) return;
    if (state == uint32_t(Bell::eventfd_sleeps)) {
        const uint64_t one = 1;
        // The eventfd counts; a full counter already wakes, so a failed write loses nothing.
        [[maybe_unused]] const ssize_t written = write(daemon_event_fd, &one, sizeof one);
        return;
    }
    Shared<uint32_t>& futex =
        state == uint32_t(Bell::waiter_sleeps) ? bell.waiter_word : bell.background_word;
    futex.fetch_add(1, std::memory_order_seq_cst);
    futex_wake(futex);
}

/// Wakes whoever sleeps, also where the bell says that it is awake: one that died in ring_bell, between the
/// two, has left it so, and nobody who rings after it would wake anybody.
inline void wake_sleepers(Doorbell& bell) {
    for (Shared<uint32_t>* word : {&bell.waiter_word, &bell.background_word}) {
        word->fetch_add(1, std::memory_order_seq_cst);
        futex_wake(*word);
    }
}

/// Whether any bit is set.
inline bool has_ready(const Segment& segment, const Doorbell& bell) {
    const uint32_t words = segment.ready_words();
    for (uint32_t w = 0; w < words; ++w)
        if (bell.ready(w).load(std::memory_order_seq_cst) != 0) return true;
    return false;
}

/// Calls visit(slot) for each slot that had rung, having cleared its bit.
template <class Visit>
void take_ready(const Segment& segment, Doorbell& bell, Visit&& visit) {
    const uint32_t words = segment.ready_words();
    for (uint32_t w = 0; w < words; ++w) {
        if (bell.ready(w).load(std::memory_order_relaxed) == 0) continue;
        uint64_t bits = bell.ready(w).exchange(0, std::memory_order_seq_cst);  // partner: ring_bell's load
        while (bits != 0) {
            const uint32_t b = uint32_t(__builtin_ctzll(bits));
            bits &= bits - 1;
            visit(w * 64 + b);
        }
    }
}

}  // namespace weft
