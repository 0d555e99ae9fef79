/// Rings, threads and waiting: whoever waits, pumps; the background thread stands in (docs/design/0001).
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "core.hpp"

namespace weft {

namespace {

constexpr int64_t kTickNs = 1'000'000;
constexpr int64_t kIdleLeaseNs = 50'000'000;
constexpr int64_t kIdleLedgerNs = 50'000'000;
constexpr int kTicksBeforeParking = 4;
/// After so many spins in vain the next ones are short, but for one in so many.
constexpr uint32_t kVainSpins = 8;
constexpr uint32_t kRetrySpin = 64;
constexpr int64_t kShortSpinNs = 3'000;
/// A long spin gives its core away after so many turns: who is waited for may be waiting for it.
constexpr uint32_t kYieldEvery = 64;
constexpr int64_t kOtherWaiterNs = 50'000'000;
/// One part in so many of the arena may be inputs that stay only for the sake of lineage.
constexpr uint64_t kShareOfInputs = 4;

}  // namespace

void block_signals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
}

Core::Core(std::unique_ptr<Segment> segment, int event_fd, ProcessId self, Id root_id, bool is_worker)
    : root(root_id),
      segment_(std::move(segment)),
      self_(self),
      daemon_{kDaemonSlot, segment_->slot(kDaemonSlot).generation.load()},
      is_worker_(is_worker),
      arena_(*segment_, self),
      channels_(*segment_, self, event_fd),
      ledger_(*segment_, arena_, self),
      log_(*segment_, self.slot) {
    most_input_bytes_ = segment_->header().arena_bytes / kShareOfInputs;
    background_thread_ = std::thread([this] { background(); });
}

Core::~Core() {
    close();
}

void Core::close() {
    if (closed_.exchange(true)) return;
    Doorbell& bell = segment_->bell(self_.slot);
    bell.background_word.fetch_add(1);
    futex_wake(bell.background_word, 16);
    bell.waiter_word.fetch_add(1);
    futex_wake(bell.waiter_word, 16);
    {
        std::lock_guard lock(mutex_);
        others_.notify_all();
        flush_wanted_.notify_all();
    }
    {
        std::lock_guard lock(events_mutex_);
        events_ready_.notify_all();
    }
    if (background_thread_.joinable()) background_thread_.join();
    if (flush_thread_.joinable()) flush_thread_.join();
    if (watch_thread_.joinable()) {
        const uint64_t one = 1;
        [[maybe_unused]] const ssize_t written = ::write(watch_stop_fd_, &one, sizeof one);
        watch_thread_.join();
        ::close(watch_stop_fd_);
    }
    // Nobody waits or pumps any more once each holder has seen closed_.
    std::lock_guard pump(pump_mutex_);
}

// ---- receiving -------------------------------------------------------------------------------------

void Core::send(ProcessId to, Kind kind, const void* data, size_t bytes) {
    if (!lost_.load(std::memory_order_relaxed)) channels_.send(to, kind, data, bytes);
}

size_t Core::drain() {
    size_t count = 0;
    take_ready(*segment_, segment_->bell(self_.slot), [&](uint32_t slot) {
        std::lock_guard lock(mutex_);
        count += drain_peer(slot);
    });
    if (channels_.has_found_dead()) {
        std::lock_guard lock(mutex_);
        for (const ProcessId dead : channels_.take_found_dead())
            peer_died(dead, "it died before it was reached");
    }
    if (count != 0) progress_.fetch_add(1, std::memory_order_release);
    return count;
}

size_t Core::drain_peer(uint32_t slot) {
    return channels_.receive(slot, [this](ProcessId from, Kind kind, const char* data, size_t bytes) {
        handle(from, kind, data, bytes);
    });
}

void Core::handle(ProcessId from, Kind kind, const char* data, size_t bytes) {
    Cursor cursor(data, bytes);
    switch (kind) {
        case Kind::REPLY:
            return on_reply(cursor);
        case Kind::TASK:
            inbox_.push_back({from, std::string(data, bytes)});
            return inbox_changed();
        case Kind::FUNCTION:
            return on_function(from, cursor);
        case Kind::FORGET_FUNCTION:
            return on_forget_function(from, cursor.take<uint64_t>());
        case Kind::HANDBACK:
            return on_handback(cursor);
        case Kind::BORROW_ADD: {
            const Id id = cursor.take<Id>();
            const ProcessId borrower = cursor.take<ProcessId>();
            if (Entry* entry = find(id); entry && segment_->is_alive(borrower))
                add_borrower(entry, borrower, 1);
            return;
        }
        case Kind::BORROW_RELEASE: {
            const Id id = cursor.take<Id>();
            const auto count = int64_t(cursor.take<uint64_t>());
            if (Entry* entry = find(id)) add_borrower(entry, from, -count);
            return;
        }
        case Kind::WANT: {
            const Id id = cursor.take<Id>();
            Entry* entry = find(id);
            if (entry != nullptr && entry->owned && is_lost_in_arena(entry)) rebuild(entry);
            Buffer out;
            out.add(id);
            if (entry == nullptr) {
                out.add(PackedValue{Where::unknown, 0, 0});
            } else if (!entry->is_done()) {
                entry->more().wanters.push_back(from);
                if (!entry->owned) fetch(entry);
                return;
            } else {
                pack_value(out, entry, from);
            }
            return send(from, Kind::VALUE, out.data(), out.size());
        }
        case Kind::VALUE:
            return on_value(cursor);
        case Kind::CANCEL: {
            const uint64_t cookie = cursor.take<uint64_t>();
            const uint32_t how = cursor.take<uint32_t>();
            if (!cancel_incoming(from, cookie) && on_cancel) on_cancel(from, cookie, how & 1, how & 2);
            return;
        }
        case Kind::CANCEL_OBJECT: {
            const Id id = cursor.take<Id>();
            const uint32_t how = cursor.take<uint32_t>();
            if (Entry* entry = find(id); entry != nullptr && entry->owned) cancel(entry, how & 1, how & 2);
            return;
        }
        case Kind::MOVED:
            return on_moved(cursor);
        case Kind::STREAM_ITEM:
            return on_stream_item(cursor);
        case Kind::STREAM_CREDIT:
            return on_stream_credit(from, cursor);
        default:
            return handle_daemon(kind, data, bytes);
    }
}

void Core::handle_daemon(Kind kind, const char* data, size_t bytes) {
    Cursor cursor(data, bytes);
    switch (kind) {
        case Kind::CONTROL:
            return push_event({uint16_t(kind), std::string(data, bytes)});
        case Kind::BIND_JOB:
            binding_.assign(data, bytes);
            return;
        case Kind::LEASE_GRANT:
            return on_grant(cursor);
        case Kind::LEASE_REVOKE:
            return on_revoke(cursor.take<uint64_t>());
        case Kind::SHAPE_REFUSED:
            return on_refused(cursor);
        case Kind::NOT_NEAR:
            return on_not_near(cursor);
        case Kind::PEER_DIED: {
            const ProcessId dead = cursor.take<ProcessId>();
            return peer_died(dead, cursor.rest());
        }
        case Kind::FIND_ORPHANS:
            return on_find_orphans(cursor);
        case Kind::ADOPT:
            return on_adopt(cursor);
        case Kind::SETTLED:
            return on_settled(cursor);
        case Kind::ORPHAN_ANSWERED:
            return on_orphan_answered(cursor);
        case Kind::ACTOR_UP:
            return on_actor_up(cursor);
        case Kind::ACTOR_DOWN:
            return on_actor_down(cursor);
        case Kind::PROMISE_KEPT:
            if (Entry* promise = find(cursor.take<Id>()); promise != nullptr && promise->owned)
                complete(promise, Where::inlined, "N", 1, {});  // None, as a plain value
            return;
        case Kind::SPACE: {
            const uint64_t freed = cursor.take<uint64_t>();
            if (const auto it = space_requests.find(cursor.take<uint64_t>()); it != space_requests.end())
                it->second = {true, freed, std::string(cursor.rest())};
            ++space_answers;
            return;
        }
        case Kind::RESTORED: {
            const uint64_t key = cursor.take<uint64_t>();
            const bool ok = cursor.take<uint32_t>() != 0;
            cursor.take<uint32_t>();
            if (const auto it = restoring.find(key); it != restoring.end()) {
                ++it->second.answers;
                it->second.error = ok ? std::string() : std::string(cursor.rest());
            }
            ++restore_answers;
            return;
        }
        default:
            return;  // a record of a later version: the handshake refuses those peers
    }
}

void Core::peer_died(ProcessId dead, std::string_view reason_view) {
    const std::string reason(reason_view);
    drain_peer(dead.slot);  // what it had published still counts, also if it was its first word
    channels_.forget(dead);
    std::vector<Lease*> lost;
    for (auto& [id, lease] : leases_)
        if (lease->worker == dead) lost.push_back(lease.get());
    for (Lease* lease : lost)
        lease_lost(lease, reason);
    for (auto& [id, to] : actors_)
        if (to->state == ActorLink::up && to->where == dead) actor_out_of_reach(to.get());

    for (auto& [id, entry] : table_)
        if (entry->extra) std::erase(entry->extra->wanters, dead);
    for (auto& [key, credit] : credits_)
        if (key.first == dead.key()) credit->closed.store(true);
    sender_died(dead);
    std::erase_if(inbox_, [&](const Incoming& in) {
        if (in.from != dead) return false;
        discard_task(in);
        return true;
    });
    inbox_changed();
    send(daemon_, Kind::PEER_DETACHED, &dead, sizeof dead);
}

void Core::poll() {
    if (!has_mail() || !pump_mutex_.try_lock()) return;
    drain();
    pump_mutex_.unlock();
    if (other_waiters_.load(std::memory_order_seq_cst) != 0) {
        std::lock_guard lock(mutex_);
        others_.notify_all();
    }
}

// ---- waiting ---------------------------------------------------------------------------------------

bool Core::spin(int64_t limit_ns, bool is_due) {
    Header& header = segment_->header();
    Doorbell& bell = segment_->bell(self_.slot);
    if (has_ready(*segment_, bell)) return true;
    if (header.spinners.fetch_add(1) >= header.cores) {
        header.spinners.fetch_sub(1);
        sched_yield();
        return has_ready(*segment_, bell);
    }
    bell.spinning.store(1, std::memory_order_relaxed);
    // Who is waited for may be waiting for this very core, or busy for long: then spinning only harms.
    if (!is_due && vain_spins_ >= kVainSpins && vain_spins_ % kRetrySpin != 0)
        limit_ns = std::min(limit_ns, kShortSpinNs);
    const int64_t until = now_ns() + limit_ns;
    bool found = false;
    for (uint32_t i = 1; !(found = has_ready(*segment_, bell)); ++i) {
        __builtin_ia32_pause();
        if (i % 32 != 0) continue;
        if (now_ns() >= until) break;
        if (is_due && i % kYieldEvery == 0) sched_yield();
    }
    vain_spins_ = found ? 0 : vain_spins_ + 1;
    bell.spinning.store(0, std::memory_order_relaxed);
    header.spinners.fetch_sub(1);
    return found;
}

Core::Waited Core::wait_until(const Predicate& done, int64_t deadline_ns, int64_t lend_after_ns,
                              int64_t due_ns) {
    Doorbell& bell = segment_->bell(self_.slot);
    bool lent = false;
    int64_t lend_at = lend_after_ns < 0 ? -1 : now_ns() + lend_after_ns;
    Waited result = Waited::done;
    const auto lend_once = [&] {
        if (lend_at < 0 || lent || now_ns() < lend_at) return;
        lent = true;
        std::lock_guard lock(mutex_);
        send(daemon_, Kind::BLOCKED, nullptr, 0);
        hand_back_locked();
    };
    const auto over = [&](Waited& out) {
        if (done()) return out = Waited::done, true;
        if (closed_.load(std::memory_order_acquire)) return out = Waited::closed, true;
        if (is_interrupted()) return out = Waited::interrupted, true;
        if (deadline_ns >= 0 && now_ns() >= deadline_ns) return out = Waited::timed_out, true;
        return false;
    };
    while (!over(result)) {
        bool mine = pump_mutex_.try_lock();
        if (!mine) {
            std::unique_lock lock(mutex_);
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
                std::lock_guard lock(mutex_);
                hand_back_locked();
            }
            if (count != 0 && other_waiters_.load(std::memory_order_seq_cst) != 0) {
                std::lock_guard lock(mutex_);
                others_.notify_all();
            }
            if (over(result)) break;
            if (count != 0) continue;
            const bool is_due = due_ns != 0;
            int64_t limit = is_due ? std::exchange(due_ns, 0) : spin_ns_.load(std::memory_order_relaxed);
            if (deadline_ns >= 0) limit = std::min(limit, std::max<int64_t>(0, deadline_ns - now_ns()));
            if (spin(limit, is_due)) continue;
            lend_once();
            int64_t due = -1;
            {
                std::lock_guard lock(mutex_);
                due = tick_work();
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
            if (has_ready(*segment_, bell) || closed_.load() || done() ||
                interrupt_.load()) {  // partner: wake_waiters
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
        if (other_waiters_.load(std::memory_order_seq_cst) != 0) {
            std::lock_guard lock(mutex_);
            others_.notify_all();
        }
        break;
    }
    if (lent) {
        std::lock_guard lock(mutex_);
        send(daemon_, Kind::UNBLOCKED, nullptr, 0);
    }
    return result;
}

void Core::leave_pump() {
    Doorbell& bell = segment_->bell(self_.slot);
    advance_epoch();
    bell.state.store(uint32_t(Bell::awake), std::memory_order_seq_cst);
    // While the background thread ticks, "awake" is a promise it enforces. While it sleeps, it must be woken.
    while (background_waits_.load(std::memory_order_seq_cst)) {
        bell.state.store(uint32_t(Bell::background_sleeps), std::memory_order_seq_cst);
        if (!has_ready(*segment_, bell)) return;
        bell.state.store(uint32_t(Bell::awake), std::memory_order_seq_cst);
        drain();
    }
}

// ---- the background thread -------------------------------------------------------------------------

int64_t Core::tick_work() {
    int64_t due = -1;
    confirm_adoptions();
    if (ledger_.rows() == 0 && ledger_.pages() != 0) {
        const int64_t left = ledger_empty_since_ns_ + kIdleLedgerNs - now_ns();
        if (left <= 0)
            ledger_.let_go();
        else
            due = left;
    }
    if (!leases_.empty()) {
        const int64_t now = now_ns();
        std::vector<Lease*> idle;
        for (auto& [id, lease] : leases_) {
            // Tasks that would rather run elsewhere leave it idle, and it may hold the only CPU that they can
            // have.
            if (!lease->flight.empty() || (!lease->shape->queue.empty() && !lease->shape->is_far)) continue;
            const int64_t left = lease->idle_since_ns + kIdleLeaseNs - now;
            if (left <= 0)
                idle.push_back(lease.get());
            else
                due = due < 0 ? left : std::min(due, left);
        }
        for (Lease* lease : idle)
            return_lease(lease);
    }
    return due;
}

void Core::begin_task() {
    running_task.store(true, std::memory_order_seq_cst);  // partner: background, which parks, then looks
    if (!has_incoming() || is_actor.load() || !background_waits_.load(std::memory_order_seq_cst)) return;
    Doorbell& bell = segment_->bell(self_.slot);
    bell.background_word.fetch_add(1);
    futex_wake(bell.background_word, 1);
}

void Core::hand_back_locked() {
    if (inbox_.empty() || is_actor.load()) return;
    std::unordered_map<uint64_t, std::vector<uint64_t>> cookies;
    std::erase_if(inbox_, [&](const Incoming& incoming) {
        const auto* header = reinterpret_cast<const TaskHeader*>(incoming.bytes.data());
        if (header->flags & (kIsCreation | kIsMethod)) return false;
        cookies[incoming.from.key()].push_back(header->cookie);
        discard_task(incoming);
        return true;
    });
    inbox_changed();
    for (auto& [key, list] : cookies)
        send(ProcessId::from_key(key), Kind::HANDBACK, list.data(), list.size() * sizeof(uint64_t));
}

void Core::background() {
    block_signals();
    pthread_setname_np(pthread_self(), "weft-pump");
    Doorbell& bell = segment_->bell(self_.slot);
    uint64_t seen = epoch();
    int idle_ticks = 0;
    bool at_once = false;
    while (!closed_.load(std::memory_order_acquire)) {
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
            if (bell.state.load(std::memory_order_seq_cst) == uint32_t(Bell::waiter_sleeps) &&
                !closed_.load())
                futex_wait(bell.background_word, word, -1);
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
                    std::lock_guard lock(mutex_);
                    if (was_running) hand_back_locked();
                    due = tick_work();
                }
                word = bell.background_word.load(std::memory_order_seq_cst);
                background_waits_.store(true, std::memory_order_seq_cst);
                bell.state.store(uint32_t(Bell::background_sleeps), std::memory_order_seq_cst);
                // Partner: begin_task, which does not wake this thread before it is seen to wait.
                const bool has_begun = !was_running && running_task.load(std::memory_order_seq_cst);
                if (!has_ready(*segment_, bell) && !has_begun && !closed_.load()) break;
                bell.state.store(uint32_t(Bell::awake), std::memory_order_seq_cst);
                if (closed_.load()) break;
            }
            pump_mutex_.unlock();
            if (other_waiters_.load(std::memory_order_seq_cst) != 0) {
                std::lock_guard lock(mutex_);
                others_.notify_all();
            }
            if (!closed_.load()) futex_wait(bell.background_word, word, due);
            background_waits_.store(false, std::memory_order_seq_cst);
            // Woken by a record while the main thread stays away: handle it now, not at the next tick.
            at_once = epoch() == seen && has_ready(*segment_, bell);
            continue;
        }
        if (other_waiters_.load(std::memory_order_seq_cst) != 0) {
            std::lock_guard lock(mutex_);
            others_.notify_all();
        }
    }
}

// ---- the daemon's death ----------------------------------------------------------------------------

void Core::watch_daemon(int socket_fd) {
    watch_fd_ = socket_fd;
    watch_stop_fd_ = eventfd(0, EFD_CLOEXEC);
    if (watch_stop_fd_ < 0) throw std::system_error(errno, std::generic_category(), "weft: eventfd");
    watch_thread_ = std::thread([this] {
        block_signals();
        pthread_setname_np(pthread_self(), "weft-watch");
        pollfd fds[2] = {{watch_fd_, POLLRDHUP, 0}, {watch_stop_fd_, POLLIN, 0}};
        while (!closed_.load()) {
            if (::poll(fds, 2, -1) < 0) continue;
            if (fds[1].revents != 0) return;
            if (fds[0].revents != 0) return daemon_lost();
        }
    });
}

std::string Core::node_lost_error() {
    return error_value(
        ErrorCode::node_lost,
        "the node daemon ended, and with it everything that was running. Call weft.init() again.");
}

void Core::daemon_lost() {
    {
        std::lock_guard lock(mutex_);
        lost_.store(true);
        const std::string error = node_lost_error();
        for (auto& task : tasks_)
            if (task && !task->returns.empty())
                for (Entry* entry : task->returns)
                    if (entry != nullptr && !entry->is_done()) fail(entry, error);
        std::vector<Entry*> pending;
        for (auto& [id, entry] : table_)
            if (!entry->is_done() && !entry->is_actor) {
                hold(entry);  // one that fails may end another
                pending.push_back(entry);
            }
        for (Entry* entry : pending) {
            fail(entry, error);
            drop_locked(entry);
        }
        for (auto& [number, request] : space_requests)
            request = {true, 0, "the node daemon ended"};
        ++space_answers;
        ++restore_answers;
        others_.notify_all();
    }
    Doorbell& bell = segment_->bell(self_.slot);
    bell.waiter_word.fetch_add(1);
    futex_wake(bell.waiter_word, 16);
    push_event({0, {}});
}

// ---- events for Python -----------------------------------------------------------------------------

void Core::push_event(CoreEvent event) {
    std::lock_guard lock(events_mutex_);
    events_.push_back(std::move(event));
    events_ready_.notify_one();
}

bool Core::next_event(CoreEvent& event) {
    std::unique_lock lock(events_mutex_);
    events_ready_.wait(lock, [&] { return closed_.load() || !events_.empty(); });
    if (events_.empty()) return false;
    event = std::move(events_.front());
    events_.pop_front();
    return true;
}

bool Core::take_incoming(Incoming& out) {
    std::lock_guard lock(mutex_);
    if (is_retired_) hand_back_locked();
    if (inbox_.empty()) return false;
    out = std::move(inbox_.front());
    inbox_.pop_front();
    inbox_changed();
    return true;
}

void Core::retire() {
    std::lock_guard lock(mutex_);
    is_retired_ = true;
    send(daemon_, Kind::RETIRES, nullptr, 0);
}

void Core::wake_waiters() {
    {
        std::lock_guard lock(mutex_);
        others_.notify_all();
    }
    Doorbell& bell = segment_->bell(self_.slot);
    bell.waiter_word.fetch_add(1);
    futex_wake(bell.waiter_word, 16);
}

void Core::request_exit() {
    exit_.store(true, std::memory_order_release);
    Doorbell& bell = segment_->bell(self_.slot);
    bell.waiter_word.fetch_add(1);
    futex_wake(bell.waiter_word, 16);
}

void Core::interrupt(pthread_t thread) {
    interrupted_thread_.store(thread);
    interrupt_.store(true, std::memory_order_seq_cst);
    others_.notify_all();
    Doorbell& bell = segment_->bell(self_.slot);
    bell.waiter_word.fetch_add(1);
    futex_wake(bell.waiter_word, 16);
}

/// Whether this thread shall look for signals; once for each interrupt().
bool Core::is_interrupted() {
    return interrupt_.load(std::memory_order_seq_cst) && interrupted_thread_.load() == pthread_self() &&
           interrupt_.exchange(false);
}

std::string Core::take_binding() {
    std::lock_guard lock(mutex_);
    std::string binding;
    binding.swap(binding_);
    return binding;
}

Core::Counters Core::counters() {
    std::lock_guard lock(mutex_);
    const uint64_t pending = tasks_.size() - free_tasks_.size() - kept_count_;
    return {submitted_,
            tasks_run,
            owned_,
            borrowed_,
            pending,
            leases_.size(),
            kept_count_,
            kept_bytes_,
            rebuilt_,
            lineage_file_.bytes(),
            input_bytes_,
            functions_.size(),
            definitions_.size(),
            actors_.size()};
}

}  // namespace weft
