#include "collective.hpp"

#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "doorbell.hpp"
#include "spin.hpp"

namespace weft::collective {

namespace {

constexpr uint64_t kPipeBytes = 256 << 10;
/// Up to here every member reduces everything itself: one round instead of two.
constexpr uint64_t kDirectBytes = 32 << 10;
constexpr int64_t kLookUpNs = 20'000'000;
constexpr int64_t kPatienceNs = 200'000;
constexpr uint32_t kSpinsAYield = 32;

constexpr uint64_t round_up(uint64_t value, uint64_t step) {
    return (value + step - 1) / step * step;
}

int64_t now_ns() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return int64_t(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

/// Whether a counter that wraps around has come as far as `goal`.
bool has_reached(uint32_t counter, uint32_t goal) {
    return int32_t(counter - goal) >= 0;
}

uint64_t out_bytes(uint32_t size, uint64_t slot_bytes) {
    return round_up(slot_bytes / size, 64) + 64;
}

uint64_t stride(uint32_t size, uint64_t slot_bytes);

}  // namespace

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

namespace {

uint64_t slots_at(uint32_t size) {
    return round_up(sizeof(Block) + (size - 1) * sizeof(Cell), 4096);
}

uint64_t stride(uint32_t size, uint64_t slot_bytes) {
    return round_up(2 * (slot_bytes + out_bytes(size, slot_bytes) + kPipeBytes), 4096);
}

}  // namespace

uint64_t Member::block_bytes(uint32_t size, uint64_t slot_bytes) {
    return slots_at(size) + size * stride(size, slot_bytes);
}

Member::Member(void* block, uint32_t size, uint64_t slot_bytes, uint32_t rank, uint64_t process,
               Surroundings around, int64_t timeout_ns)
    : block_(static_cast<Block*>(block)),
      size_(size),
      rank_(rank),
      slot_bytes_(slot_bytes),
      process_(process),
      around_(std::move(around)),
      timeout_ns_(timeout_ns),
      spins_a_yield_(long(size) <= sysconf(_SC_NPROCESSORS_ONLN) ? kSpinsAYield : 1) {
    if (size == 0 || size > kMaxMembers) throw std::invalid_argument("a group has 1 to 256 members");
    if (rank >= size) throw std::invalid_argument("a rank must be less than the group's size");
    if (slot_bytes < 64 * size || slot_bytes % 64 != 0)
        throw std::invalid_argument("slot_bytes must be a multiple of 64 and at least 64 for each member");
}

Member::~Member() {
    leave();
}

Cell& Member::cell(uint32_t rank) const {
    return block_->cells[rank];
}

char* Member::in_slot(uint32_t rank, uint32_t round) const {
    return reinterpret_cast<char*>(block_) + slots_at(size_) + rank * stride(size_, slot_bytes_) +
           (round % 2) * slot_bytes_;
}

char* Member::out_slot(uint32_t rank, uint32_t round) const {
    return in_slot(rank, 0) + 2 * slot_bytes_ + (round % 2) * out_bytes(size_, slot_bytes_);
}

char* Member::pipe_slot(uint32_t rank, uint32_t fragment) const {
    return in_slot(rank, 0) + 2 * slot_bytes_ + 2 * out_bytes(size_, slot_bytes_) +
           (fragment % 2) * kPipeBytes;
}

// ---- waiting ---------------------------------------------------------------------------------------

bool Member::has_arrived(uint32_t rank) const {
    return has_reached(cell(rank).arrived.load(std::memory_order_acquire), round_ + 1);
}

Outcome Member::find_gone(uint32_t rank) const {
    const uint32_t why = cell(rank).gone.load(std::memory_order_acquire);
    if (why == uint32_t(Gone::no)) return {};
    Outcome outcome;
    outcome.kind = Outcome::gone;
    outcome.rank = rank;
    outcome.why = Gone(why);
    return outcome;
}

Outcome Member::find_cause() const {
    Outcome cause;
    for (uint32_t rank = 0; rank < size_; ++rank) {
        const Outcome found = find_gone(rank);
        if (!found && (!!cause || found.why < cause.why)) cause = found;
    }
    return cause;
}

Outcome Member::find_missing() const {
    for (uint32_t rank = 0; rank < size_; ++rank)
        if (!find_gone(rank) && !has_arrived(rank)) return find_cause();
    return {};
}

void Member::bury_the_dead() {
    for (uint32_t rank = 0; rank < size_; ++rank) {
        Cell& other = cell(rank);
        const uint64_t process = other.process.load(std::memory_order_acquire);
        uint32_t present = uint32_t(Gone::no);
        if (process == 0 || other.gone.load(std::memory_order_relaxed) != present) continue;
        if (around_.is_alive(process)) continue;
        if (!other.gone.compare_exchange_strong(present, uint32_t(Gone::died))) continue;
        other.bell.ring();
        block_->bell.ring();
    }
}

template <class Done, class Lost>
Outcome Member::wait(Bell& bell, Done done, Lost lost) {
    const int64_t started = now_ns();
    // Who is waited for may be waiting for this very core: a spin is short, and then the core is offered.
    for (uint32_t turn = 1;; ++turn) {
        if (done()) return {};
        if (turn % spins_a_yield_ != 0) {
            relax();
            continue;
        }
        if (now_ns() - started > kPatienceNs) break;
        sched_yield();
    }
    int64_t looked_up = started;
    for (;;) {
        const uint32_t seen = bell.word.load();
        // Gone first: what it still did before it went is then seen by done().
        const Outcome outcome = lost();
        if (done()) return {};
        if (!outcome) return outcome;
        bell.sleepers.fetch_add(1);
        if (!done()) futex_wait(bell.word, seen, kLookUpNs);
        bell.sleepers.fetch_sub(1);
        const int64_t now = now_ns();
        if (now - looked_up < kLookUpNs) continue;
        looked_up = now;
        bury_the_dead();
        Outcome other;
        other.kind = around_.look_up();
        if (!other) return other;
        if (timeout_ns_ < 0 || now - started < timeout_ns_) continue;
        other.kind = Outcome::timed_out;
        return other;
    }
}

Outcome Member::failed(Outcome outcome) {
    failure_ = outcome;
    leave(outcome.kind == Outcome::timed_out     ? Gone::timed_out
          : outcome.kind == Outcome::interrupted ? Gone::interrupted
                                                 : Gone::failed);
    return outcome;
}

void Member::leave(Gone why) {
    if (!joined_) return;
    joined_ = false;
    if (!!failure_) {
        failure_.kind = Outcome::gone;
        failure_.rank = rank_;
        failure_.why = why;
    }
    uint32_t present = uint32_t(Gone::no);
    cell(rank_).gone.compare_exchange_strong(present, uint32_t(why));
    if (why > Gone::left) block_->is_given_up.store(1, std::memory_order_release);
    for (uint32_t rank = 0; rank < size_; ++rank)
        cell(rank).bell.ring();
    block_->bell.ring();
}

Outcome Member::arrive() {
    if (!failure_) return failure_;
    if (block_->is_given_up.load(std::memory_order_acquire) != 0) return failed(find_cause());
    const uint32_t goal = (round_ + 1) * size_;
    cell(rank_).arrived.store(round_ + 1, std::memory_order_release);
    if (block_->arrivals.fetch_add(1, std::memory_order_acq_rel) + 1 == goal) {
        block_->bell.ring();
        ++round_;
        return {};
    }
    // The counter is short by one for ever when somebody died between the two stores above. Then the cells
    // say that the round is whole; they are read only by those that have waited long.
    bool is_slow = false;
    Outcome outcome = wait(
        block_->bell,
        [&] {
            if (has_reached(block_->arrivals.load(std::memory_order_acquire), goal)) return true;
            for (uint32_t rank = 0; is_slow && rank < size_; ++rank)
                if (!has_arrived(rank)) return false;
            return is_slow;
        },
        [&] {
            is_slow = true;
            return find_missing();
        });
    if (outcome.kind == Outcome::timed_out)
        while (outcome.rank + 1 < size_ && has_arrived(outcome.rank))
            ++outcome.rank;
    if (!outcome) return failed(outcome);
    ++round_;
    return {};
}

void Member::publish(const Request& request) {
    cell(rank_).requests[round_ % 2] = request;
}

Outcome Member::agree(const Request& request) {
    publish(request);
    if (const Outcome arrived = arrive(); !arrived) return arrived;
    const Request& first = cell(0).requests[(round_ - 1) % 2];
    for (uint32_t rank = 1; rank < size_; ++rank) {
        const Request& other = cell(rank).requests[(round_ - 1) % 2];
        if (other == first) continue;
        Outcome outcome;
        outcome.kind = Outcome::mismatch;
        outcome.rank = rank;
        outcome.first = first;
        outcome.other = other;
        return outcome;
    }
    return {};
}

Outcome Member::join() {
    uint64_t nobody = 0;
    if (!cell(rank_).process.compare_exchange_strong(nobody, process_)) {
        Outcome taken;
        taken.kind = Outcome::gone;
        taken.rank = rank_;
        failure_ = taken;
        return taken;
    }
    joined_ = true;
    Request request{};
    request.operation = Operation::join;
    return agree(request);
}

// ---- operations ------------------------------------------------------------------------------------

template <class In, class Middle, class Out>
Outcome Member::pipeline(const Request& request, size_t chunks, In in, Middle middle, Out out) {
    for (size_t step = 0; step < chunks + 2; ++step) {
        if (step >= 2) out(step - 2);
        if (step == chunks + 1) break;
        if (step >= 1 && step <= chunks) middle(step - 1);
        if (step < chunks) in(step);
        const Outcome outcome = step == 0 ? agree(request) : arrive();
        if (!outcome) return outcome;
    }
    return {};
}

template <class In, class Out>
Outcome Member::exchange(const Request& request, size_t chunks, In in, Out out) {
    for (size_t step = 0; step <= chunks; ++step) {
        if (step >= 1) out(step - 1);
        if (step == chunks) break;
        in(step);
        const Outcome outcome = step == 0 ? agree(request) : arrive();
        if (!outcome) return outcome;
    }
    return {};
}

namespace {

/// An array cut into chunks of at most `most`; one of nothing for an empty array.
struct Chunks {
    size_t total, most;
    size_t count() const { return std::max<size_t>(1, (total + most - 1) / most); }
    size_t start(size_t chunk) const { return chunk * most; }
    size_t length(size_t chunk) const { return std::min(most, total - start(chunk)); }
};

void copy(char* to, const char* from, size_t bytes) {
    if (bytes != 0 && to != from) memcpy(to, from, bytes);
}

}  // namespace

Outcome Member::barrier(const Request& request) {
    return agree(request);
}

void Member::reduce_slots(const Request& request, const char* own, uint64_t slot_offset, size_t count,
                          char* out, char* copy) const {
    const void* arrays[kMaxMembers];
    for (uint32_t rank = 0; rank < size_; ++rank)
        arrays[rank] = rank == rank_ ? own : in_slot(rank, round_ - 1) + slot_offset;
    collective::reduce(request.element, request.reduction, arrays, size_, count, out, copy);
}

Outcome Member::reduce_directly(const Request& request, char* data, size_t count, bool takes_all) {
    copy(in_slot(rank_, round_), data, count * element_bytes(request.element));
    if (const Outcome outcome = agree(request); !outcome) return outcome;
    if (takes_all && count != 0) reduce_slots(request, data, 0, count, data, nullptr);
    return {};
}

Outcome Member::reduce_in_parts(const Request& request, char* data, size_t count, bool takes_all) {
    const size_t width = element_bytes(request.element);
    const Chunks chunks{count, slot_bytes_ / width};
    // Member q reduces the elements from q × part of each chunk on.
    const auto part_of = [&](size_t chunk, uint32_t rank) {
        const size_t length = chunks.length(chunk);
        const size_t part = round_up((length + size_ - 1) / size_, 64 / width);
        const size_t start = std::min(length, rank * part);
        return std::pair{start, std::min(part, length - start)};
    };
    return pipeline(
        request, chunks.count(),
        [&](size_t chunk) {
            const auto [mine, mine_length] = part_of(chunk, rank_);
            char* slot = in_slot(rank_, round_);
            const char* from = data + chunks.start(chunk) * width;
            const size_t after = mine + mine_length;
            copy(slot, from, mine * width);
            copy(slot + after * width, from + after * width, (chunks.length(chunk) - after) * width);
        },
        [&](size_t chunk) {
            const auto [start, length] = part_of(chunk, rank_);
            char* own = data + (chunks.start(chunk) + start) * width;
            char* shown = out_slot(rank_, round_);
            reduce_slots(request, own, start * width, length, takes_all ? own : shown,
                         takes_all ? shown : nullptr);
        },
        [&](size_t chunk) {
            for (uint32_t rank = 0; takes_all && rank < size_; ++rank) {
                const auto [start, length] = part_of(chunk, rank);
                if (rank == rank_) continue;
                copy(data + (chunks.start(chunk) + start) * width, out_slot(rank, round_ - 1),
                     length * width);
            }
        });
}

Outcome Member::all_reduce(const Request& request, char* data, size_t count) {
    const size_t bytes = count * element_bytes(request.element);
    if (bytes <= std::min(kDirectBytes, slot_bytes_)) return reduce_directly(request, data, count, true);
    return reduce_in_parts(request, data, count, true);
}

Outcome Member::reduce(const Request& request, char* data, size_t count) {
    const size_t bytes = count * element_bytes(request.element);
    const bool takes_all = rank_ == request.root;
    if (bytes <= std::min(kDirectBytes, slot_bytes_)) return reduce_directly(request, data, count, takes_all);
    return reduce_in_parts(request, data, count, takes_all);
}

Outcome Member::reduce_scatter(const Request& request, const char* in, char* out, size_t count) {
    const size_t width = element_bytes(request.element);
    const size_t room = slot_bytes_ / size_ / 64 * 64;
    const Chunks chunks{count, room / width};
    return exchange(
        request, chunks.count(),
        [&](size_t chunk) {
            for (uint32_t rank = 0; rank < size_; ++rank)
                if (rank != rank_)
                    copy(in_slot(rank_, round_) + rank * room,
                         in + (rank * count + chunks.start(chunk)) * width, chunks.length(chunk) * width);
        },
        [&](size_t chunk) {
            if (chunks.length(chunk) == 0) return;
            reduce_slots(request, in + (rank_ * count + chunks.start(chunk)) * width, rank_ * room,
                         chunks.length(chunk), out + chunks.start(chunk) * width, nullptr);
        });
}

Outcome Member::all_gather(const Request& request, const char* in, char* out, size_t bytes) {
    const Chunks chunks{bytes, slot_bytes_};
    return exchange(
        request, chunks.count(),
        [&](size_t chunk) { copy(in_slot(rank_, round_), in + chunks.start(chunk), chunks.length(chunk)); },
        [&](size_t chunk) {
            for (uint32_t rank = 0; rank < size_; ++rank)
                copy(out + rank * bytes + chunks.start(chunk),
                     rank == rank_ ? in + chunks.start(chunk) : in_slot(rank, round_ - 1),
                     chunks.length(chunk));
        });
}

Outcome Member::gather(const Request& request, const char* in, char* out, size_t bytes) {
    const Chunks chunks{bytes, slot_bytes_};
    const bool is_root = rank_ == request.root;
    return exchange(
        request, chunks.count(),
        [&](size_t chunk) {
            if (!is_root) copy(in_slot(rank_, round_), in + chunks.start(chunk), chunks.length(chunk));
        },
        [&](size_t chunk) {
            for (uint32_t rank = 0; is_root && rank < size_; ++rank)
                copy(out + rank * bytes + chunks.start(chunk),
                     rank == rank_ ? in + chunks.start(chunk) : in_slot(rank, round_ - 1),
                     chunks.length(chunk));
        });
}

Outcome Member::scatter(const Request& request, const char* in, char* out, size_t bytes) {
    const size_t room = slot_bytes_ / size_ / 64 * 64;
    const Chunks chunks{bytes, room};
    const bool is_root = rank_ == request.root;
    return exchange(
        request, chunks.count(),
        [&](size_t chunk) {
            for (uint32_t rank = 0; is_root && rank < size_; ++rank)
                if (rank != rank_)
                    copy(in_slot(rank_, round_) + rank * room, in + rank * bytes + chunks.start(chunk),
                         chunks.length(chunk));
        },
        [&](size_t chunk) {
            copy(out + chunks.start(chunk),
                 is_root ? in + rank_ * bytes + chunks.start(chunk)
                         : in_slot(request.root, round_ - 1) + rank_ * room,
                 chunks.length(chunk));
        });
}

Outcome Member::broadcast(const Request& request, char* data, size_t bytes) {
    const Chunks chunks{bytes, slot_bytes_};
    const bool is_root = rank_ == request.root;
    return exchange(
        request, chunks.count(),
        [&](size_t chunk) {
            if (is_root) copy(in_slot(rank_, round_), data + chunks.start(chunk), chunks.length(chunk));
        },
        [&](size_t chunk) {
            if (!is_root)
                copy(data + chunks.start(chunk), in_slot(request.root, round_ - 1), chunks.length(chunk));
        });
}

Outcome Member::all_to_all(const Request& request, const char* in, char* out, size_t bytes) {
    const size_t room = slot_bytes_ / size_ / 64 * 64;
    const Chunks chunks{bytes, room};
    return exchange(
        request, chunks.count(),
        [&](size_t chunk) {
            for (uint32_t rank = 0; rank < size_; ++rank)
                if (rank != rank_)
                    copy(in_slot(rank_, round_) + rank * room, in + rank * bytes + chunks.start(chunk),
                         chunks.length(chunk));
        },
        [&](size_t chunk) {
            for (uint32_t rank = 0; rank < size_; ++rank)
                copy(out + rank * bytes + chunks.start(chunk),
                     rank == rank_ ? in + rank * bytes + chunks.start(chunk)
                                   : in_slot(rank, round_ - 1) + rank_ * room,
                     chunks.length(chunk));
        });
}

// ---- between two -----------------------------------------------------------------------------------

Outcome Member::send(const Request& request, uint32_t to, const char* data, size_t bytes) {
    if (!failure_) return failure_;
    const Chunks chunks{bytes, kPipeBytes};
    Cell& own = cell(rank_);
    const auto wait_for_taken = [&](uint32_t goal) {
        Outcome outcome = wait(
            own.bell, [&] { return has_reached(own.taken.load(std::memory_order_acquire), goal); },
            [&] { return find_gone(to); });
        if (outcome.kind == Outcome::timed_out) outcome.rank = to;
        return outcome ? outcome : failed(outcome);
    };
    for (size_t chunk = 0; chunk < chunks.count(); ++chunk) {
        const uint32_t number = own.posted.load(std::memory_order_relaxed);
        // Two are on their way at most; the second only once the first was not refused.
        if (chunk != 0)
            if (const Outcome outcome = wait_for_taken(chunk == 1 ? number : number - 1); !outcome)
                return outcome;
        if (own.refused.load(std::memory_order_acquire) == number && chunk == 1) break;
        Fragment& fragment = own.fragments[number % 2];
        fragment.bytes = chunks.length(chunk);
        fragment.request = request;
        fragment.to.store(to, std::memory_order_relaxed);
        copy(pipe_slot(rank_, number), data + chunks.start(chunk), chunks.length(chunk));
        own.posted.store(number + 1, std::memory_order_release);
        own.bell.ring();
    }
    const uint32_t posted = own.posted.load(std::memory_order_relaxed);
    if (const Outcome outcome = wait_for_taken(posted); !outcome) return outcome;
    if (own.refused.load(std::memory_order_acquire) != posted) return {};
    Outcome outcome;
    outcome.kind = Outcome::mismatch;
    outcome.rank = to;
    outcome.first = request;
    outcome.other = own.answer;
    return outcome;
}

Outcome Member::receive(const Request& request, uint32_t from, char* data, size_t bytes) {
    if (!failure_) return failure_;
    Cell& sender = cell(from);
    const Chunks chunks{bytes, kPipeBytes};
    for (size_t chunk = 0; chunk < chunks.count(); ++chunk) {
        uint32_t number = 0;
        Outcome outcome = wait(
            sender.bell,
            [&] {
                number = sender.taken.load(std::memory_order_acquire);
                const uint32_t posted = sender.posted.load(std::memory_order_acquire);
                // The fragment is this one, and ours, only if nobody took it while we looked.
                return posted != number &&
                       sender.fragments[number % 2].to.load(std::memory_order_acquire) == rank_ &&
                       sender.taken.load(std::memory_order_acquire) == number;
            },
            [&] { return find_gone(from); });
        if (outcome.kind == Outcome::timed_out) outcome.rank = from;
        if (!outcome) return failed(outcome);
        const Fragment& fragment = sender.fragments[number % 2];
        const bool fits = chunk != 0 || fragment.request == request;
        if (fits) {
            copy(data + chunks.start(chunk), pipe_slot(from, number), chunks.length(chunk));
        } else {
            outcome.kind = Outcome::mismatch;
            outcome.rank = rank_;
            outcome.first = fragment.request;
            outcome.other = request;
            sender.answer = request;
            sender.refused.store(number + 1, std::memory_order_release);
        }
        sender.taken.store(number + 1, std::memory_order_release);
        sender.bell.ring();
        if (!fits) return outcome;
    }
    return {};
}

}  // namespace weft::collective
