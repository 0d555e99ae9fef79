/// Members of a collective: who is there, the end of a round, and messages between two of them.
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <stdexcept>

#include "collective_block.hpp"
#include "spin.hpp"

namespace weft::collective {

namespace {

constexpr int64_t kLookUpNs = 20'000'000;
constexpr int64_t kPatienceNs = 200'000;
constexpr uint32_t kSpinsAYield = 32;

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

bool Member::sees_loss() {
    bury_the_dead();
    return !find_cause();
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
