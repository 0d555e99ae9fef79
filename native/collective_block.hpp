/// What the members of a collective share: the layout of their block, and moving an array through it in
/// chunks.
#pragma once

#include <algorithm>
#include <cstring>

#include "collective.hpp"
#include "doorbell.hpp"

namespace weft::collective {

constexpr uint64_t kPipeBytes = 256 << 10;

constexpr uint64_t round_up(uint64_t value, uint64_t step) {
    return (value + step - 1) / step * step;
}

/// Where those that wait for one thing sleep.
struct alignas(64) Bell {
    Shared<uint32_t> word;      ///< the futex; grows with each ring
    Shared<uint32_t> sleepers;  ///< too high after a sleeper's death, which costs a wake

    void ring() {
        word.fetch_add(1);
        // Partner: the sleeper's fetch_add, which comes before its futex_wait compares the word.
        if (sleepers.load() != 0) futex_wake(word, INT32_MAX);
    }
};

/// One piece of a message in a member's pipe.
struct Fragment {
    Shared<uint32_t> to;
    uint64_t bytes;
    Request request;
};

/// What one member shows to the others. Only it writes here, but for `gone` (once, by anyone, from `no`), and
/// `taken`, `refused` and `answer`, which the receiver writes of a message that is for it.
struct alignas(64) Cell {
    Shared<uint64_t> process;  ///< 0 until it has joined
    Shared<uint32_t> gone;     ///< a Gone
    /// Rounds that it has ended; release-stored when all it wrote in the round is there (partner:
    /// has_arrived).
    Shared<uint32_t> arrived;
    Request requests[2];       ///< by the round's parity
    Shared<uint32_t> posted;   ///< fragments; released by the sender, acquired by the receiver
    Shared<uint32_t> taken;    ///< fragments; released by the receiver, acquired by the sender
    Shared<uint32_t> refused;  ///< 1 + the number of the fragment that did not fit the receiver's request
    Fragment fragments[2];     ///< by the fragment's number
    Request answer;            ///< what the receiver that refused had asked for
    Bell bell;                 ///< rung when posted or taken changes
};

struct alignas(64) Block {
    /// All members' arrivals; tells who came last, and the others that it did (release, acquire).
    Shared<uint32_t> arrivals;
    /// 1 once a member gave up although it had arrived: the others must not end that round without it.
    Shared<uint32_t> is_given_up;
    Bell bell;
    Cell cells[1];  ///< one a member; behind them, for each member, its slots
};

/// An array cut into chunks of at most `most`; one of nothing for an empty array.
struct Chunks {
    size_t total, most;
    size_t count() const { return std::max<size_t>(1, (total + most - 1) / most); }
    size_t start(size_t chunk) const { return chunk * most; }
    size_t length(size_t chunk) const { return std::min(most, total - start(chunk)); }
};

inline void copy(char* to, const char* from, size_t bytes) {
    if (bytes != 0 && to != from) memcpy(to, from, bytes);
}

}  // namespace weft::collective
