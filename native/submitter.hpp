/// Submitting: from a task to its arguments, to whoever runs it, and back from its reply.
///
/// SUB-1  A task is in exactly one place: waiting for dependencies or for a larger shape, in the queue of
///        its shape, on a lease, in its actor's queue or flight, or kept as lineage.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "endpoint.hpp"
#include "task.hpp"

namespace weft {

class ActorLinks;
class Borrowing;
class Definitions;
class Leases;
class Lineage;
class Objects;
class Streams;
class Tasks;

class Submitter {
  public:
    Submitter(Endpoint& endpoint, Tasks& tasks, Objects& objects, Borrowing& borrowing, Leases& leases,
              ActorLinks& actors, Streams& streams, Lineage& lineage, Definitions& definitions)
        : endpoint_(endpoint),
          tasks_(tasks),
          objects_(objects),
          borrowing_(borrowing),
          leases_(leases),
          actors_(actors),
          streams_(streams),
          lineage_(lineage),
          definitions_(definitions) {}

    /// Waits for its arguments, then goes to its shape's queue or its actor's.
    void submit(Task* task);
    void wait_for_arguments(Task* task);
    /// If not, the task hears when they come. One that was there may be gone by the time a worker is found.
    bool has_arguments(Task* task);
    /// Tasks, by cookie, one for each dependency that was done.
    void unblock(uint64_t first, const std::vector<uint64_t>& others);
    /// The task to who runs it, with the values that it depends on.
    void write_task(ProcessId to, Task* task, Kind kind);
    void on_reply(ProcessId from, Cursor cursor);
    /// Whether that process was sent the task, and has not answered.
    static bool runs_at(const Task* task, ProcessId worker);
    /// Its answer cannot be read: it ends here, whatever its worker does.
    void fail_in_flight(Task* task, const std::string& error);
    /// Whether it may be tried again; then it counts as one more attempt.
    bool retry(Task* task);
    void resend(Task* task);
    /// The task is over; its record and holds go.
    void finish_task(Task* task);
    void fail_task(Task* task, std::string_view error);

    enum class Cancelled { done, asked, too_late, refused };
    /// Ends the task that makes the object: at once when it has not started, else by asking its worker.
    Cancelled cancel(Entry* entry, bool force, bool recursive);
    void cancel_children(Id parent, bool force);
    void on_cancel_object(Cursor cursor);
    /// What a search for children has found, now and then.
    void forget_index();

    /// The daemon is gone: what all tasks were to return has failed.
    void fail_all(const std::string& error);
    uint64_t submitted() const { return submitted_; }

  private:
    void index_children();
    void record_submission(const Task* task);
    void enqueue(Task* task);
    void end_unsent(Task* task, const std::string& error);
    void settle(Task* task, const ReplyHeader& reply, Cursor cursor);
    void add_dependent(Entry* entry, const Task* task);
    void arguments_lost(Task* task);

    Endpoint& endpoint_;
    Tasks& tasks_;
    Objects& objects_;
    Borrowing& borrowing_;
    Leases& leases_;
    ActorLinks& actors_;
    Streams& streams_;
    Lineage& lineage_;
    Definitions& definitions_;
    uint64_t submitted_ = 0;
    std::unordered_multimap<Id, uint64_t, IdHash> children_;  ///< a task to the cookies of those it submitted
    uint32_t children_as_of_ = 0;  ///< the last generation when they were looked for
    // What follows from a completion is left to the outermost one: chains are longer than stacks.
    std::vector<uint64_t> unblocked_;
    bool is_unblocking_ = false;
};

}  // namespace weft
