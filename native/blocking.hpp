/// How a thread of Python blocks: without the GIL, pumping, looking for signals, and telling of a wait that
/// lasts.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "py.hpp"

namespace weft {

inline int64_t deadline_after(double seconds) {
    if (seconds < 0) return -1;
    return now_ns() + int64_t(std::min(seconds, 1e9) * 1e9);
}

/// A value that another process has is here in microseconds: not worth giving the CPUs away for.
constexpr int64_t kFetchingNs = 5'000'000;

/// When a task that waits on this thread lends its CPUs.
inline int64_t lend_after(const Core& core, bool fetching_only) {
    if (!core.endpoint.is_worker || context == nullptr) return Pump::kNeverLend;
    return fetching_only ? kFetchingNs : Pump::kLendAtOnce;
}

/// Ask for what others own. Returns whether anything is pending.
bool start_fetching(Core& core, const std::vector<Entry*>& entries);

/// A wait without a deadline that has lasted so long may be in vain, and can be broken.
constexpr int64_t kLongWaitNs = 1'000'000'000;
/// So often a driver that waits looks for signals by itself. One that came before the thread slept, or that
/// another thread took, has ended no system call of it. A worker is interrupted by `wake_waiters`.
constexpr int64_t kLookForSignalsNs = 500'000'000;

/// What a wait is for. A wait for nothing that is named cannot be broken.
struct Wanted {
    Entry* const* entries = nullptr;
    size_t count = 0;
};

/// Tells of the wait that has lasted, for as long as it does.
class TellingOf {
  public:
    TellingOf(Core& core, Wanted wanted) : core_(core) {
        wait.entries = wanted.entries;
        wait.count = wanted.count;
        wait.thread = PyThread_get_thread_ident();
        if (context != nullptr) wait.name = context->name;
        core_.long_waits.begin(wait);
    }
    ~TellingOf() { core_.long_waits.end(wait); }
    LongWait wait;

  private:
    Core& core_;
};

/// Waits without the GIL; true when done, false when timed out (no exception) or with an exception set.
template <class Done>
bool block(Core& core, Done&& done, int64_t deadline, bool fetching_only = false, int64_t due_ns = 0,
           Wanted wanted = {}) {
    const int64_t lend = lend_after(core, fetching_only);
    std::optional<TellingOf> told;
    const bool may_be_long = deadline < 0 && wanted.count != 0;
    if (may_be_long) deadline = now_ns() + kLongWaitNs;
    const auto done_or_broken = [&] {
        return done() || (told && told->wait.is_broken.load(std::memory_order_acquire));
    };
    for (;;) {
        Pump::Waited result;
        int64_t until = deadline;
        if (!core.endpoint.is_worker) {
            const int64_t look_at = now_ns() + kLookForSignalsNs;
            if (deadline < 0 || look_at < deadline) until = look_at;
        }
        Py_BEGIN_ALLOW_THREADS;
        result = core.pump.wait_until(done_or_broken, until, lend, due_ns);
        Py_END_ALLOW_THREADS;
        if (result == Pump::Waited::timed_out && until != deadline) result = Pump::Waited::interrupted;
        if (result == Pump::Waited::timed_out && may_be_long) {
            deadline = -1;
            told.emplace(core, wanted);
            continue;
        }
        if (result == Pump::Waited::done && told && !done()) return raise_error(told->wait.error) != nullptr;
        if (result == Pump::Waited::done) return true;
        if (result == Pump::Waited::timed_out) return false;
        if (result == Pump::Waited::closed) return raise_over(core) != nullptr;
        if (!look_for_signals(core)) return false;
    }
}

/// A thread that is about to be blocked for an object and some more; recorded when it goes on.
class RecordedWait {
  public:
    RecordedWait(Core& core, Id object, size_t count) : core_(core), object_(object), count_(count) {
        if (core.endpoint.log.admits_wait(object)) began_ns_ = now_ns();
    }
    RecordedWait(const RecordedWait&) = delete;
    ~RecordedWait() {
        if (began_ns_ == 0) return;
        Event event;
        event.at_ns = began_ns_;
        event.duration_ns = now_ns() - began_ns_;
        event.task = context != nullptr ? context->task : core_.endpoint.root;
        event.other = object_;
        event.bytes = 0;
        event.kind = EventKind::WAITED;
        event.status = 0;
        event.attempt = 0;
        event.count = uint32_t(count_);
        std::lock_guard lock(core_.mutex());
        if (!core_.is_closed()) core_.endpoint.log.record(event, {});
    }

  private:
    Core& core_;
    Id object_;
    size_t count_;
    int64_t began_ns_ = 0;
};

}  // namespace weft
