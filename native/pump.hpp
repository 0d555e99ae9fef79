/// Rings, threads and waiting: whoever waits, pumps; the background thread stands in (docs/design/0001).
///
/// The thread that holds `pump_mutex_` reads the rings. Lock order: pump_mutex_, Endpoint::mutex. The GIL may
/// be held when either is taken, so nobody takes the GIL while holding one.
#pragma once

#include <pthread.h>

#include <condition_variable>
#include <cstdio>
#include <exception>
#include <functional>
#include <thread>

#include "doorbell.hpp"
#include "endpoint.hpp"

namespace weft {

class Inbox;

/// What the pump drives. Each is called with the mutex held.
class Pumped {
  public:
    /// Handles what that slot has published; how many records.
    virtual size_t drain_peer(uint32_t slot) = 0;
    /// A peer that was dead when it was first reached.
    virtual void found_dead(ProcessId dead) = 0;
    /// What is due now and then; in how many nanoseconds the next is, -1 for none.
    virtual int64_t tick_work() = 0;
    /// Whether something may become due of which nobody will tell.
    virtual bool may_owe_a_tick() const = 0;
    virtual void daemon_lost() = 0;

  protected:
    ~Pumped() = default;
};

class Pump {
  public:
    Pump(Endpoint& endpoint, Inbox& inbox, Pumped& pumped)
        : endpoint_(endpoint), inbox_(inbox), pumped_(pumped) {}

    using Predicate = std::function<bool()>;
    enum class Waited { done, timed_out, interrupted, closed };
    /// Blocks until the predicate holds, pumping. Called without the GIL. A task's get lends its CPUs when it
    /// has waited for `lend_after_ns`; never when that is negative. It spins for `due_ns` first, when the
    /// daemon is about to answer.
    Waited wait_until(const Predicate& done, int64_t deadline_ns, int64_t lend_after_ns, int64_t due_ns = 0);
    static constexpr int64_t kNeverLend = -1;
    static constexpr int64_t kLendAtOnce = 0;
    /// Reads what has come, if nobody else is at it.
    void poll();
    bool has_mail() const { return has_ready(endpoint_.segment, bell()); }
    /// Something is there now that may become due: the background thread sees to it, also when it is parked.
    void owe_a_tick();
    void advance_epoch() { epoch_.fetch_add(1, std::memory_order_relaxed); }
    /// After a value was given by a thread other than the one that pumps: whoever waits looks again.
    void wake_waiters();
    /// Makes a wait of that thread return `interrupted`, so that it looks for signals. The mutex is held.
    void interrupt(pthread_t thread);
    /// A task is about to run on the main thread: what waits behind it is handed back unless it is short.
    void begin_task();
    void end_task() { running_task.store(false, std::memory_order_relaxed); }
    /// The worker's main thread shall return.
    void request_exit();
    bool exit_requested() const { return exit_.load(std::memory_order_acquire); }
    void set_spin_limit(int64_t ns) { spin_ns_ = ns; }

    void start();
    void watch_daemon(int socket_fd);
    /// The endpoint is closed: all who wait return, and the threads end.
    void wake_all();
    void end_threads();
    /// Until nobody waits or pumps any more, once each has seen that the endpoint is closed.
    void wait_for_others() { const std::lock_guard pump(pump_mutex_); }
    void become_private();

    /// Whoever waits pumps, under frames of C, and so do threads of which nobody would catch anything.
    template <class Work>
    static void guarded(const char* what, Work&& work) noexcept {
        try {
            work();
        } catch (const std::exception& error) {
            fprintf(stderr, "weft: %s was cut short: %s\n", what, error.what());
        }
    }

    /// Set while this worker's main thread runs a task; what arrives meanwhile is handed back.
    std::atomic<bool> running_task{false};

  private:
    Doorbell& bell() const { return endpoint_.segment.bell(endpoint_.self.slot); }
    void ring_waiter();
    void notify_others();
    size_t drain();
    bool is_interrupted();
    /// `is_due`: the answer is under way, so earlier spins in vain say nothing.
    bool spin(int64_t limit_ns, bool is_due = false);
    void leave_pump();
    int64_t parking_limit();
    void wake_background();
    void background();
    void daemon_lost();
    uint64_t epoch() const { return epoch_.load(std::memory_order_relaxed); }

    Endpoint& endpoint_;
    Inbox& inbox_;
    Pumped& pumped_;
    std::mutex pump_mutex_;
    std::condition_variable others_;  ///< waiters that do not pump, with the endpoint's mutex
    std::atomic<uint32_t> other_waiters_{0};
    std::atomic<uint64_t> epoch_{0};
    std::atomic<bool> background_waits_{false};
    std::atomic<bool> interrupt_{false};  ///< for interrupted_thread_
    std::atomic<pthread_t> interrupted_thread_{};
    std::atomic<bool> exit_{false};
    std::atomic<int64_t> spin_ns_{30'000};
    uint32_t vain_spins_ = 0;  ///< in a row; guarded by pump_mutex_
    std::thread background_thread_;
    std::thread watch_thread_;
    int watch_fd_ = -1;
    int watch_stop_fd_ = -1;
};

}  // namespace weft
