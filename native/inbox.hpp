/// What a worker is to run: tasks that have come and not started, the job that it works for, and how far the
/// consumers of its streams are.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "endpoint.hpp"

namespace weft {

class Borrowing;
struct Entry;

/// The producer's end: what the consumer has taken.
struct Credit {
    std::atomic<uint32_t> consumed{0};
    std::atomic<bool> closed{false};
};

/// A task record that waits to be run here.
struct Incoming {
    ProcessId from;
    std::string bytes;  ///< empty once it was cancelled
    uint64_t cookie() const { return reinterpret_cast<const TaskHeader*>(bytes.data())->cookie; }
};

class Inbox {
  public:
    Inbox(Endpoint& endpoint, Borrowing& borrowing) : endpoint_(endpoint), borrowing_(borrowing) {}

    /// False when it is not for that sender to say, or not to this process.
    bool on_task(ProcessId from, const char* data, size_t bytes);
    /// A task that cannot run here: its submitter, or the daemon of an actor's creation, hears why.
    void answer_refused(ProcessId from, const TaskHeader& header, std::string_view error);
    /// Takes the mutex.
    bool take_incoming(Incoming& out);
    /// This one was taken last. The mutex is held.
    void take(const Incoming& incoming) {
        taken_ = &incoming, taken_from_ = incoming.from, taken_cookie_ = incoming.cookie();
    }
    /// Whether this is the one that was taken last: it may be about to run. The mutex is held.
    bool was_taken_last(ProcessId from, uint64_t cookie) const {
        return taken_from_ == from && taken_cookie_ == cookie;
    }
    /// Its refs have been taken over. The mutex is held.
    void unpacked() {
        taken_ = nullptr;
        if (!held_.empty()) let_go(taken_from_, taken_cookie_);
    }
    /// It has run, or waits elsewhere: who cancels it now must not stop the next one. The mutex is held.
    void forget_taken() {
        unpacked();
        taken_from_ = {}, taken_cookie_ = 0;
    }
    /// The one that was taken last is a call of an actor that is not created yet. The mutex is held.
    void put_off(Incoming&& incoming) {
        early.push_back(std::move(incoming));
        taken_ = nullptr, taken_from_ = {}, taken_cookie_ = 0;
    }
    /// What waits here may have refs whose owners are dead: this process has them from now on, and so is
    /// counted in at their heirs. The mutex is held.
    void hold_orphans();
    bool has_incoming() const { return incoming_.load(std::memory_order_acquire) != 0; }
    /// The tasks that wait to be run here.
    std::vector<Id> waiting(size_t most) const;
    /// What waits here goes back to who sent it, but for an actor's.
    void hand_back();
    /// No task is taken any more; what has come and will come goes back to who sent it. Takes the mutex.
    void retire();
    void sender_died(ProcessId dead);

    /// Drops a task that has not started and answers for it; else asks the one that runs it to stop.
    void on_cancel(ProcessId from, Cursor cursor);
    /// Of one that has not started and will not: its bytes are gone with this. The mutex is held.
    void answer_cancelled(Incoming& incoming);
    /// Called with the mutex held when a task that runs here shall stop.
    std::function<void(ProcessId from, uint64_t cookie, bool force, bool recursive)> on_cancel_running;

    void bind(const char* data, size_t bytes) { binding_.assign(data, bytes); }
    /// The job that this worker was bound to since the last call, or nothing. Takes the mutex.
    std::string take_binding();

    std::shared_ptr<Credit> credit(ProcessId from, uint64_t cookie);
    void forget_credit(ProcessId from, uint64_t cookie) { credits_.erase({from.key(), cookie}); }
    void on_stream_credit(ProcessId from, Cursor cursor);

    std::deque<Incoming> early;         ///< what was put off; guarded by the mutex
    std::atomic<bool> is_actor{false};  ///< what it has is its actor's: nothing is handed back
    uint64_t tasks_run = 0;

  private:
    void hold_orphans(const Incoming& incoming);
    void let_go(ProcessId from, uint64_t cookie);
    void discard(const Incoming& incoming);
    bool cancel_incoming(ProcessId from, uint64_t cookie);
    Incoming* find_incoming(ProcessId from, uint64_t cookie);
    void changed() { incoming_.store(uint32_t(inbox_.size()), std::memory_order_release); }
    void forget_index() { index_.clear(), is_indexed_ = false; }

    Endpoint& endpoint_;
    Borrowing& borrowing_;
    std::deque<Incoming> inbox_;
    /// What waits in a long inbox, by sender and cookie, from the first cancel until it is empty or
    /// rearranged.
    std::map<std::pair<uint64_t, uint64_t>, Incoming*> index_;
    bool is_indexed_ = false;
    const Incoming* taken_ = nullptr;  ///< the task that was taken last, until its refs are taken over
    ProcessId taken_from_{};           ///< with its cookie: of the task that was taken last
    uint64_t taken_cookie_ = 0;
    std::atomic<uint32_t> incoming_{0};  ///< its length, for waiters
    bool is_retired_ = false;
    /// Orphans that this process holds for what waits, by sender and cookie.
    std::map<std::pair<uint64_t, uint64_t>, std::vector<Entry*>> held_;
    std::string binding_;
    std::map<std::pair<uint64_t, uint64_t>, std::shared_ptr<Credit>> credits_;
};

}  // namespace weft
