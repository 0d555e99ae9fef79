#include "pump.hpp"

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "inbox.hpp"
#include "spin.hpp"

namespace weft {

namespace {

constexpr int64_t kTickNs = 1'000'000;
constexpr int kTicksBeforeParking = 4;
/// So long the background thread is parked at most while something may become due.
constexpr int64_t kParkedNs = 250'000'000;
/// After so many spins in vain the next ones are short, but for one in so many.
constexpr uint32_t kVainSpins = 8;
constexpr uint32_t kRetrySpin = 64;
/// So often a spin looks before it is counted: that takes a cache line from those who spin elsewhere.
constexpr uint32_t kUncountedLooks = 16;
constexpr int64_t kShortSpinNs = 3'000;
/// A long spin gives its core away after so many turns: who is waited for may be waiting for it.
constexpr uint32_t kYieldEvery = 64;
constexpr int64_t kOtherWaiterNs = 50'000'000;

}  // namespace

void Pump::start() {
    background_thread_ = std::thread([this] { background(); });
}

void Pump::wake_all() {
    Doorbell& bell = this->bell();
    bell.background_word.fetch_add(1);
    futex_wake(bell.background_word, 16);
    ring_waiter();
    std::lock_guard lock(endpoint_.mutex);
    endpoint_.be_lost();
    others_.notify_all();
}

void Pump::end_threads() {
    if (background_thread_.joinable()) background_thread_.join();
    if (!watch_thread_.joinable()) return;
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(watch_stop_fd_, &one, sizeof one);
    watch_thread_.join();
    ::close(watch_stop_fd_);
}

void Pump::become_private() {
    new (&pump_mutex_) std::mutex;
    new (&others_) std::condition_variable;
}

/// A waiter that sleeps looks again.
void Pump::ring_waiter() {
    Doorbell& bell = this->bell();
    bell.waiter_word.fetch_add(1);
    futex_wake(bell.waiter_word, 16);
}

/// Waiters that do not pump look again. Partner: the one that counts itself in before it sleeps (wait_until).
void Pump::notify_others() {
    if (other_waiters_.load(std::memory_order_seq_cst) == 0) return;
    std::lock_guard lock(endpoint_.mutex);
    others_.notify_all();
}

size_t Pump::drain() {
    size_t count = 0;
    take_ready(endpoint_.segment, endpoint_.segment.bell(endpoint_.self.slot), [&](uint32_t slot) {
        std::lock_guard lock(endpoint_.mutex);
        guarded("reading records", [&] { count += pumped_.drain_peer(slot); });
    });
    if (endpoint_.channels.has_found_dead()) {
        std::lock_guard lock(endpoint_.mutex);
        guarded("the death of a peer", [this] {
            for (const ProcessId dead : endpoint_.channels.take_found_dead())
                pumped_.found_dead(dead);
        });
        ++count;
    }
    return count;
}

void Pump::poll() {
    if (!has_mail() || !pump_mutex_.try_lock()) return;
    drain();
    pump_mutex_.unlock();
    notify_others();
}

// ---- waiting ------------------------------------------------------------------------------------

bool Pump::spin(int64_t limit_ns, bool is_due) {
    Header& header = endpoint_.segment.header();
    Doorbell& bell = this->bell();
    for (uint32_t i = 0; i < kUncountedLooks; ++i) {
        if (has_ready(endpoint_.segment, bell)) return vain_spins_ = 0, true;
        relax();
    }
    if (header.spinners.fetch_add(1) >= header.cores) {
        header.spinners.fetch_sub(1);
        sched_yield();
        return has_ready(endpoint_.segment, bell);
    }
    bell.spinning.store(1, std::memory_order_relaxed);
    // Who is waited for may be waiting for this very core, or busy for long: then spinning only harms.
    if (!is_due && vain_spins_ >= kVainSpins && vain_spins_ % kRetrySpin != 0)
        limit_ns = std::min(limit_ns, kShortSpinNs);
    const int64_t until = now_ns() + limit_ns;
    bool found = false;
    for (uint32_t i = 1; !(found = has_ready(endpoint_.segment, bell)); ++i) {
        relax();
        if (i % 32 != 0) continue;
        if (now_ns() >= until) break;
        if (is_due && i % kYieldEvery == 0) sched_yield();
    }
    vain_spins_ = found ? 0 : vain_spins_ + 1;
    bell.spinning.store(0, std::memory_order_relaxed);
    header.spinners.fetch_sub(1);
    return found;
}

Pump::Waited Pump::wait_until(const Predicate& done, int64_t deadline_ns, int64_t lend_after_ns,
                              int64_t due_ns) {
    Doorbell& bell = this->bell();
    bool lent = false;
    int64_t lend_at = lend_after_ns < 0 ? -1 : now_ns() + lend_after_ns;
    Waited result = Waited::done;
    const auto lend_once = [&] {
        if (lend_at < 0 || lent || now_ns() < lend_at) return;
        lent = true;
        std::lock_guard lock(endpoint_.mutex);
        guarded("handing tasks back", [this] {
            endpoint_.send_daemon(Kind::BLOCKED, nullptr, 0);
            inbox_.hand_back();
        });
    };
    const auto over = [&](Waited& out) {
        if (done()) return out = Waited::done, true;
        if (endpoint_.is_closed()) return out = Waited::closed, true;
        if (is_interrupted()) return out = Waited::interrupted, true;
        if (deadline_ns >= 0 && now_ns() >= deadline_ns) return out = Waited::timed_out, true;
        return false;
    };
    while (!over(result)) {
        bool mine = pump_mutex_.try_lock();
        if (!mine) {
            std::unique_lock lock(endpoint_.mutex);
            other_waiters_.fetch_add(1, std::memory_order_seq_cst);  // partner: the pump's leaver
            mine = pump_mutex_.try_lock();
            if (!mine) {
                lock.unlock();
                lend_once();
                lock.lock();
                if (!done()) others_.wait_for(lock, std::chrono::nanoseconds(kOtherWaiterNs));
                other_waiters_.fetch_sub(1);
                lock.unlock();
                if (over(result)) break;
                result = Waited::interrupted;  // let the caller look for signals, then come back
                break;
            }
            other_waiters_.fetch_sub(1);
        }
        bell.state.store(uint32_t(Bell::awake), std::memory_order_seq_cst);
        for (;;) {
            const size_t count = drain();
            if (lent) {
                std::lock_guard lock(endpoint_.mutex);
                guarded("handing tasks back", [this] { inbox_.hand_back(); });
            }
            if (count != 0) notify_others();
            if (over(result)) break;
            if (count != 0) continue;
            const bool is_due = due_ns != 0;
            int64_t limit = is_due ? std::exchange(due_ns, 0) : spin_ns_.load(std::memory_order_relaxed);
            if (deadline_ns >= 0) limit = std::min(limit, std::max<int64_t>(0, deadline_ns - now_ns()));
            if (spin(limit, is_due)) continue;
            lend_once();
            int64_t due = -1;
            {
                std::lock_guard lock(endpoint_.mutex);
                guarded("a tick", [&] { due = pumped_.tick_work(); });
            }
            if (deadline_ns >= 0) {
                const int64_t left = std::max<int64_t>(0, deadline_ns - now_ns());
                due = due < 0 ? left : std::min(due, left);
            }
            if (lend_at >= 0 && !lent) {
                const int64_t left = std::max<int64_t>(0, lend_at - now_ns());
                due = due < 0 ? left : std::min(due, left);
            }
            const uint32_t word = bell.waiter_word.load(std::memory_order_seq_cst);
            bell.state.store(uint32_t(Bell::waiter_sleeps), std::memory_order_seq_cst);  // partner: ring_bell
            if (has_ready(endpoint_.segment, bell) || endpoint_.is_closed() || done() ||
                (interrupt_.load() && interrupted_thread_.load() == pthread_self())) {  // partner: interrupt
                bell.state.store(uint32_t(Bell::awake), std::memory_order_seq_cst);
                continue;
            }
            const int error = futex_wait(bell.waiter_word, word, due);
            bell.state.store(uint32_t(Bell::awake), std::memory_order_seq_cst);
            if (error == EINTR) {
                result = Waited::interrupted;
                break;
            }
        }
        leave_pump();
        pump_mutex_.unlock();
        notify_others();
        break;
    }
    if (lent) {
        std::lock_guard lock(endpoint_.mutex);
        guarded("going on", [this] { endpoint_.send_daemon(Kind::UNBLOCKED, nullptr, 0); });
    }
    return result;
}

void Pump::leave_pump() {
    Doorbell& bell = this->bell();
    advance_epoch();
    bell.state.store(uint32_t(Bell::awake), std::memory_order_seq_cst);
    // While the background thread ticks, "awake" is a promise it enforces. While it sleeps, it must be woken.
    while (background_waits_.load(std::memory_order_seq_cst)) {
        bell.state.store(uint32_t(Bell::background_sleeps), std::memory_order_seq_cst);
        if (!has_ready(endpoint_.segment, bell)) return;
        bell.state.store(uint32_t(Bell::awake), std::memory_order_seq_cst);
        drain();
    }
}

// ---- the background thread ----------------------------------------------------------------------

void Pump::begin_task() {
    running_task.store(true, std::memory_order_seq_cst);  // partner: background, which parks, then looks
    if (!inbox_.has_incoming() || inbox_.is_actor.load() ||
        !background_waits_.load(std::memory_order_seq_cst))
        return;
    wake_background();
}

void Pump::owe_a_tick() {
    if (background_waits_.load(std::memory_order_seq_cst)) wake_background();
}

void Pump::wake_background() {
    Doorbell& bell = this->bell();
    bell.background_word.fetch_add(1);
    futex_wake(bell.background_word, 1);
}

int64_t Pump::parking_limit() {
    std::lock_guard lock(endpoint_.mutex);
    return pumped_.may_owe_a_tick() ? kParkedNs : -1;
}

void Pump::background() {
    block_signals();
    pthread_setname_np(pthread_self(), "weft-pump");
    Doorbell& bell = this->bell();
    uint64_t seen = epoch();
    int idle_ticks = 0;
    bool at_once = false;
    while (!endpoint_.is_closed()) {
        const uint32_t tick_word = bell.background_word.load(std::memory_order_seq_cst);
        if (!std::exchange(at_once, false)) futex_wait(bell.background_word, tick_word, kTickNs);
        if (!pump_mutex_.try_lock()) {
            if (bell.state.load() != uint32_t(Bell::waiter_sleeps)) {
                idle_ticks = 0;
                continue;
            }
            if (++idle_ticks < kTicksBeforeParking) continue;
            const uint32_t word = bell.background_word.load(std::memory_order_seq_cst);
            background_waits_.store(true, std::memory_order_seq_cst);  // partner: leave_pump
            const int64_t limit = parking_limit();                     // partner: owe_a_tick
            if (bell.state.load(std::memory_order_seq_cst) == uint32_t(Bell::waiter_sleeps) &&
                !endpoint_.is_closed())
                futex_wait(bell.background_word, word, limit);
            background_waits_.store(false, std::memory_order_seq_cst);
            idle_ticks = 0;
            continue;
        }
        idle_ticks = 0;
        if (epoch() != seen) {
            seen = epoch();
            pump_mutex_.unlock();
        } else {
            // The main thread is away in a computation of its own: take over until it is seen again.
            int64_t due = -1;
            uint32_t word = 0;
            for (;;) {
                drain();
                const bool was_running = running_task.load();
                {
                    std::lock_guard lock(endpoint_.mutex);
                    guarded("a tick", [&] {
                        if (was_running) inbox_.hand_back();
                        due = pumped_.tick_work();
                        if (due < 0 && pumped_.may_owe_a_tick()) due = kParkedNs;
                    });
                }
                word = bell.background_word.load(std::memory_order_seq_cst);
                background_waits_.store(true, std::memory_order_seq_cst);
                bell.state.store(uint32_t(Bell::background_sleeps), std::memory_order_seq_cst);
                // Partner: begin_task, which does not wake this thread before it is seen to wait.
                const bool has_begun = !was_running && running_task.load(std::memory_order_seq_cst);
                if (!has_ready(endpoint_.segment, bell) && !has_begun && !endpoint_.is_closed()) break;
                bell.state.store(uint32_t(Bell::awake), std::memory_order_seq_cst);
                if (endpoint_.is_closed()) break;
            }
            pump_mutex_.unlock();
            notify_others();
            if (!endpoint_.is_closed()) futex_wait(bell.background_word, word, due);
            background_waits_.store(false, std::memory_order_seq_cst);
            // Woken by a record while the main thread stays away: handle it now, not at the next tick.
            at_once = epoch() == seen && has_ready(endpoint_.segment, bell);
            continue;
        }
        notify_others();
    }
}

// ---- the daemon's death -------------------------------------------------------------------------

void Pump::watch_daemon(int socket_fd) {
    watch_fd_ = socket_fd;
    watch_stop_fd_ = eventfd(0, EFD_CLOEXEC);
    if (watch_stop_fd_ < 0) throw std::system_error(errno, std::generic_category(), "weft: eventfd");
    watch_thread_ = std::thread([this] {
        block_signals();
        pthread_setname_np(pthread_self(), "weft-watch");
        pollfd fds[2] = {{watch_fd_, POLLRDHUP, 0}, {watch_stop_fd_, POLLIN, 0}};
        while (!endpoint_.is_closed()) {
            if (::poll(fds, 2, -1) < 0) continue;
            if (fds[1].revents != 0) return;
            if (fds[0].revents != 0) return guarded("the end of the node daemon", [this] { daemon_lost(); });
        }
    });
}

void Pump::daemon_lost() {
    {
        std::lock_guard lock(endpoint_.mutex);
        endpoint_.be_lost();
        pumped_.daemon_lost();
        others_.notify_all();
    }
    ring_waiter();
    endpoint_.push_event({0, {}});
}

// ---- waking -------------------------------------------------------------------------------------

void Pump::wake_waiters() {
    {
        std::lock_guard lock(endpoint_.mutex);
        others_.notify_all();
    }
    ring_waiter();
}

void Pump::request_exit() {
    exit_.store(true, std::memory_order_release);
    ring_waiter();
}

void Pump::interrupt(pthread_t thread) {
    interrupted_thread_.store(thread);
    interrupt_.store(true, std::memory_order_seq_cst);
    others_.notify_all();
    ring_waiter();
}

/// Whether this thread shall look for signals; once for each interrupt().
bool Pump::is_interrupted() {
    return interrupt_.load(std::memory_order_seq_cst) && interrupted_thread_.load() == pthread_self() &&
           interrupt_.exchange(false);
}

}  // namespace weft
