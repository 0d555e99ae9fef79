/// All ways in which some processes can get in between each other, up to a bound, and die: to be included
/// before anything of the engine.
///
/// Each process of a scenario is a coroutine that stops before every operation on shared memory. A scenario
/// is run again and again, each time with another choice of who goes on (depth first, all choices up to the
/// bounds), until there are no more:
///
/// - a process is left in the middle at most `Bounds::preemptions` times in a run;
/// - at most `Bounds::delays` stores that are not sequentially consistent stay in their process's store
///   buffer, as on x86, until it has an atomic exchange or a fence, sleeps or ends, or an earlier choice;
/// - at most `Bounds::deaths` processes are killed, before any operation. What is in a store buffer then
/// still
///   arrives.
///
/// Beside that, what happens before what is followed as C++ has it (release and acquire, fences, read-modify-
/// write), for the plain memory that a scenario tells of by wrote() and reads(): a read that is not ordered
/// behind the write fails, though the interleaving gave it the right bytes.
///
/// What this does not show: loads that are done late or early beyond what the two above say (Arm, POWER).
/// Those are left to TSan, to the orders that the comments justify, and to runs on such a machine.
///
/// Sources of the engine that a scenario needs are included by the test, not linked: they are compiled with
/// other atomics here.
#pragma once

#include <linux/futex.h>
#include <setjmp.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <vector>

#include "check.hpp"

namespace weft::testing {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kCanInterleave = false;  // it must be told of each change of stacks, and has other ends
#else
constexpr bool kCanInterleave = true;
#endif

struct Bounds {
    int preemptions = 2;
    int delays = 1;
    int deaths = 0;
    uint32_t mortals = 1;  ///< a bit for each process that may be killed
};

constexpr size_t kMostProcesses = 4;
using Clock = std::array<uint32_t, kMostProcesses>;

inline void join(Clock& into, const Clock& other) {
    for (size_t i = 0; i < into.size(); ++i)
        into[i] = std::max(into[i], other[i]);
}

/// One run's world. There is one at a time.
class Interleaving {
  public:
    struct Result {
        uint64_t runs = 0;
        std::string failure;  ///< of the first run that failed
        bool is_good() const { return failure.empty(); }
    };
    using Body = std::function<void()>;

    /// Explores all runs of the processes, each in memory as `reset` leaves it; stops at the first failure.
    /// `at_end` looks at what they have left; it may call failed().
    static Result explore(Bounds bounds, const Body& reset, const std::vector<Body>& processes,
                          const Body& at_end) {
        Result result;
        std::vector<Choice> trail;
        do {
            Interleaving run(bounds, trail);
            current_ = &run;
            reset();
            run.run(processes);
            if (run.failure_.empty()) at_end();
            current_ = nullptr;
            ++result.runs;
            result.failure = run.failure_;
        } while (result.failure.empty() && next(trail));
        return result;
    }

    static Interleaving* current() { return current_; }
    static bool is_watched() { return current_ != nullptr && current_->running_ >= 0; }
    static bool is_unshared(const void* at) {
        return std::find(unshared.begin(), unshared.end(), at) != unshared.end();
    }
    static int running() { return current_->running_; }
    /// The run is no good; the process that finds it goes no further.
    static void failed(const std::string& why) {
        if (current_->failure_.empty()) current_->failure_ = why;
        if (current_->running_ >= 0) current_->leave();
    }
    static bool is_dead(size_t process) { return current_->processes_[process].is_dead; }
    static bool is_over(size_t process) { return is_dead(process) || current_->processes_[process].is_done; }

    // ---- planted faults: what a check must find ------------------------------------------------------

    /// Operations on these words are relaxed, whatever the code says.
    static inline std::vector<const void*> weakened;
    static inline bool has_no_fences = false;
    std::memory_order effective(const void* at, std::memory_order order) const {
        const bool is_weak = std::find(weakened.begin(), weakened.end(), at) != weakened.end();
        return is_weak ? std::memory_order_relaxed : order;
    }

    // ---- what processes do ---------------------------------------------------------------------------

    struct Location {
        Clock released{};  ///< what an acquiring load of its present value orders
    };
    struct Buffered {
        const void* at;
        std::function<void()> commit;
    };

    /// Who was told by the system that a process is dead knows that all it did is done.
    void learn_of_death(size_t process) { join(clock(), processes_[process].clock); }
    /// Words that only one process ever changes, or none: their operations are no steps.
    static inline std::vector<const void*> unshared;
    /// Before an operation: others may go first.
    void point() { switch_out(); }
    Location& location(const void* at) { return locations_[at]; }
    Clock& clock() { return self().clock; }
    Clock& fence_released() { return self().fence_released; }
    Clock& fence_acquired() { return self().fence_acquired; }

    void flush() {
        Process& me = self();
        while (!me.buffer.empty()) {
            me.buffer.front().commit();
            me.buffer.pop_front();
        }
    }
    /// A store that may stay in the buffer.
    void store(const void* at, std::function<void()> commit) {
        Process& me = self();
        ++me.clock[size_t(running_)];
        const bool is_behind = !me.buffer.empty();
        if (!is_behind && (delays_ == 0 || choose(2) == 0)) return commit();
        if (!is_behind) --delays_;
        me.buffer.push_back({at, std::move(commit)});
    }
    bool has_buffered(const void* at) {
        const auto& buffer = self().buffer;
        return std::any_of(buffer.begin(), buffer.end(), [&](const Buffered& one) { return one.at == at; });
    }
    void fence() {
        if (has_no_fences) return;
        flush();
        join(self().clock, self().fence_acquired);
        join(sequence_, self().clock);
        self().clock = sequence_;
        self().fence_released = self().clock;
    }
    /// Sleeps until it is woken, or the condition holds.
    void sleep(std::function<bool()> until) {
        flush();
        self().wakes_when = std::move(until);
        switch_out();
    }
    long futex(void* word, int operation, uint32_t value) {
        point();
        flush();
        auto* shared = static_cast<std::atomic<uint32_t>*>(word);
        if (operation == FUTEX_WAKE) {
            for (Process& process : processes_)
                if (process.futex == word) process.futex = nullptr;
            return 0;
        }
        if (shared->load() != value) return errno = EAGAIN, -1;
        self().futex = word;
        switch_out();
        return 0;
    }
    /// Plain memory was written before the run began; it is written; it is read.
    void was_written(const void* at) { plain_[at] = {0, 0, {}}; }
    void wrote(const void* at) {
        Plain& plain = plain_[at];
        for (size_t i = 0; i < kMostProcesses; ++i)
            if (clock()[i] < plain.reads[i]) failed("what is written is not known to be read");
        plain = {size_t(running_), ++clock()[size_t(running_)], {}};
    }
    void reads(const void* at) {
        const auto it = plain_.find(at);
        if (it == plain_.end()) return failed("what is read was never written");
        if (clock()[it->second.writer] < it->second.written)
            failed("what is read is not known to be written");
        it->second.reads[size_t(running_)] = ++clock()[size_t(running_)];
    }

  private:
    struct Choice {
        uint32_t taken, of;
    };
    struct Process {
        ucontext_t context{};
        jmp_buf place;
        bool has_begun = false;
        const Body* body = nullptr;
        bool is_done = false, is_dead = false;
        const void* futex = nullptr;
        std::function<bool()> wakes_when;
        std::deque<Buffered> buffer;
        Clock clock{}, fence_released{}, fence_acquired{};

        bool can_run() {
            if (is_done || is_dead || futex != nullptr) return false;
            if (wakes_when && !wakes_when()) return false;
            return true;
        }
    };
    static constexpr size_t kStackBytes = 64 << 10;
    static constexpr size_t kMostSteps = 20'000;

    Interleaving(Bounds bounds, std::vector<Choice>& trail)
        : trail_(trail),
          preemptions_(bounds.preemptions),
          delays_(bounds.delays),
          deaths_(bounds.deaths),
          mortals_(bounds.mortals) {}

    /// The next choices, depth first; false when all were made.
    static bool next(std::vector<Choice>& trail) {
        while (!trail.empty() && trail.back().taken + 1 == trail.back().of)
            trail.pop_back();
        if (trail.empty()) return false;
        ++trail.back().taken;
        return true;
    }
    uint32_t choose(uint32_t of) {
        if (of == 1) return 0;
        if (depth_ == trail_.size()) trail_.push_back({0, of});
        if (trail_[depth_].of != of) {
            fprintf(stderr, "a scenario must do the same each time\n");
            abort();
        }
        return trail_[depth_++].taken;
    }

    Process& self() { return processes_[size_t(running_)]; }
    // Only the way into a process is a context: to change it is a system call.
    void switch_out() {
        if (_setjmp(self().place) == 0) _longjmp(scheduler_, 1);
    }
    void switch_into(Process& process) {
        if (_setjmp(scheduler_) != 0) return;
        if (std::exchange(process.has_begun, true)) _longjmp(process.place, 1);
        setcontext(&process.context);
    }
    [[noreturn]] void leave() {
        self().is_done = true;
        _longjmp(scheduler_, 1);
    }
    static void enter() {
        Interleaving& world = *current_;
        (*world.self().body)();
        world.flush();
        world.leave();
    }
    void run(const std::vector<Body>& bodies) {
        processes_.resize(bodies.size());
        for (size_t i = 0; i < bodies.size(); ++i) {
            Process& process = processes_[i];
            process.body = &bodies[i];
            getcontext(&process.context);
            process.context.uc_stack.ss_sp = stacks_[i];
            process.context.uc_stack.ss_size = kStackBytes;
            process.context.uc_link = nullptr;
            makecontext(&process.context, &Interleaving::enter, 0);
        }
        int last = -1;
        for (size_t step = 0; failure_.empty(); ++step) {
            if (step == kMostSteps) return failed("it does not come to an end");
            const bool can_go_on = last >= 0 && processes_[size_t(last)].can_run();
            // The first choice is to go on with who ran last; then, while the bounds allow it: another, a
            // death, or a store that leaves its buffer.
            struct Move {
                enum { run, kill, commit } what;
                size_t who;
            };
            std::vector<Move> moves;
            if (can_go_on) moves.push_back({Move::run, size_t(last)});
            for (size_t i = 0; i < processes_.size(); ++i)
                if (int(i) != last && processes_[i].can_run() && (!can_go_on || preemptions_ > 0))
                    moves.push_back({Move::run, i});
            const bool is_over = moves.empty();
            for (size_t i = 0; i < processes_.size() && deaths_ > 0 && !is_over; ++i)
                if (!processes_[i].is_done && !processes_[i].is_dead && (mortals_ >> i & 1) != 0)
                    moves.push_back({Move::kill, i});
            for (size_t i = 0; i < processes_.size(); ++i)
                if (!processes_[i].buffer.empty()) moves.push_back({Move::commit, i});
            if (moves.empty()) break;
            const Move move = moves[choose(uint32_t(moves.size()))];
            Process& process = processes_[move.who];
            if (move.what == Move::commit) {
                process.buffer.front().commit();
                process.buffer.pop_front();
                continue;
            }
            if (move.what == Move::kill) {
                --deaths_;
                process.is_dead = true;
                for (Buffered& one : process.buffer)
                    one.commit();
                process.buffer.clear();
                continue;
            }
            if (can_go_on && int(move.who) != last) --preemptions_;
            last = int(move.who);
            process.wakes_when = nullptr;
            running_ = last;
            switch_into(process);
            running_ = -1;
        }
        if (!failure_.empty()) return;
        for (size_t i = 0; i < processes_.size(); ++i)
            if (!processes_[i].is_done && !processes_[i].is_dead)
                failure_ = "process " + std::to_string(i) + " sleeps for ever";
    }

    static inline Interleaving* current_ = nullptr;
    alignas(64) static inline char stacks_[kMostProcesses][kStackBytes];
    std::vector<Choice>& trail_;
    size_t depth_ = 0;
    int preemptions_, delays_, deaths_;
    uint32_t mortals_;
    std::vector<Process> processes_;
    jmp_buf scheduler_;
    int running_ = -1;
    std::string failure_;
    std::unordered_map<const void*, Location> locations_;
    struct Plain {
        size_t writer;
        uint32_t written;
        Clock reads;  ///< by process: when it read it last
    };
    std::unordered_map<const void*, Plain> plain_;
    Clock sequence_{};  ///< of all fences so far: they are in one order
};

inline bool orders_before(std::memory_order order) {
    return order == std::memory_order_release || order == std::memory_order_acq_rel ||
           order == std::memory_order_seq_cst;
}
inline bool orders_after(std::memory_order order) {
    return order == std::memory_order_acquire || order == std::memory_order_acq_rel ||
           order == std::memory_order_seq_cst || order == std::memory_order_consume;
}

/// An atomic whose operations are the steps of an Interleaving; outside of one it is an ordinary atomic.
template <class T>
class Stepped {
  public:
    static constexpr bool is_always_lock_free = std::atomic<T>::is_always_lock_free;
    using Order = std::memory_order;

    T load(Order order = Order::seq_cst) const {
        if (!Interleaving::is_watched() || Interleaving::is_unshared(this)) return value_.load();
        Interleaving& world = *Interleaving::current();
        world.point();
        if (world.has_buffered(this)) return buffered().at(this);
        acquire(world, world.effective(this, order));
        return value_.load();
    }
    void store(T value, Order order = Order::seq_cst) {
        if (!Interleaving::is_watched()) return value_.store(value);
        Interleaving& world = *Interleaving::current();
        world.point();
        order = world.effective(this, order);
        if (order == Order::seq_cst) {
            world.flush();
            ++world.clock()[size_t(Interleaving::running())];
            world.location(this).released = world.clock();
            return value_.store(value);
        }
        const Clock released = orders_before(order) ? world.clock() : world.fence_released();
        buffered()[this] = value;
        world.store(this, [this, &world, value, released] {
            world.location(this).released = released;
            value_.store(value);
        });
    }
    T exchange(T value, Order order = Order::seq_cst) {
        return modify([value](T) { return value; }, order);
    }
    T fetch_add(T by, Order order = Order::seq_cst) {
        return modify([by](T now) { return T(now + by); }, order);
    }
    T fetch_sub(T by, Order order = Order::seq_cst) {
        return modify([by](T now) { return T(now - by); }, order);
    }
    T fetch_or(T bits, Order order = Order::seq_cst) {
        return modify([bits](T now) { return T(now | bits); }, order);
    }
    T fetch_and(T bits, Order order = Order::seq_cst) {
        return modify([bits](T now) { return T(now & bits); }, order);
    }
    bool compare_exchange_strong(T& expected, T value, Order order = Order::seq_cst) {
        return compare_exchange_strong(expected, value, order, order);
    }
    bool compare_exchange_strong(T& expected, T value, Order order, Order otherwise) {
        bool is_equal = false;
        const T before = modify(
            [&](T now) {
                is_equal = now == expected;
                return is_equal ? value : now;
            },
            order, &is_equal, otherwise);
        if (!is_equal) expected = before;
        return is_equal;
    }
    bool compare_exchange_weak(T& expected, T value, Order order = Order::seq_cst) {
        return compare_exchange_strong(expected, value, order);
    }
    bool compare_exchange_weak(T& expected, T value, Order order, Order otherwise) {
        return compare_exchange_strong(expected, value, order, otherwise);
    }
    operator T() const { return load(); }
    T operator=(T value) { return store(value), value; }

  private:
    template <class Change>
    T modify(const Change& change, Order order, const bool* did_change = nullptr, Order otherwise = {}) {
        if (!Interleaving::is_watched()) {
            const T before = value_.load();
            value_.store(change(before));
            return before;
        }
        Interleaving& world = *Interleaving::current();
        world.point();
        world.flush();
        order = world.effective(this, order);
        const T before = value_.load();
        const T after = change(before);
        const bool is_write = did_change == nullptr || *did_change;
        acquire(world, is_write ? order : otherwise);
        if (!is_write) return before;
        ++world.clock()[size_t(Interleaving::running())];
        // It continues what the value before it released.
        join(world.location(this).released, orders_before(order) ? world.clock() : world.fence_released());
        value_.store(after);
        return before;
    }
    void acquire(Interleaving& world, Order order) const {
        const Clock& released = world.location(this).released;
        join(orders_after(order) ? world.clock() : world.fence_acquired(), released);
    }
    /// What is last in a store buffer, by word. One of a word: of those that several processes store to, none
    /// is stored to with less than sequential consistency.
    static std::unordered_map<const void*, T>& buffered() {
        static std::unordered_map<const void*, T> values;
        return values;
    }

    std::atomic<T> value_{};
};

}  // namespace weft::testing

namespace std {
inline void weft_stepped_fence(memory_order) {
    using weft::testing::Interleaving;
    if (Interleaving::is_watched()) Interleaving::current()->fence();
}
}  // namespace std
namespace weft::testing {
inline long stepped_syscall(long number, void* word, int operation, uint32_t value, const void*, void*, int) {
    if (number != SYS_futex || !Interleaving::is_watched()) abort();
    return Interleaving::current()->futex(word, operation, value);
}
}  // namespace weft::testing

#define WEFT_SHARED weft::testing::Stepped
#define atomic_thread_fence weft_stepped_fence
#define syscall ::weft::testing::stepped_syscall
