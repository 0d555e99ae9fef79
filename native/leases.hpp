/// Shapes and leases: from a queue of tasks to a leased worker.
///
/// Events go in (a grant, a refusal, a reply that frees a worker, a death), requests for leases and tasks go
/// out, the latter through Submitter::write_task.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "endpoint.hpp"
#include "task.hpp"

namespace weft {

class Definitions;
class Streams;
class Submitter;
class Tasks;

struct Lease {
    uint64_t id;
    ProcessId worker;
    struct Shape* shape;
    LinkedList<Task> flight;  ///< pushed, in order; the first one runs
    int64_t expected_ns = 0;  ///< of what is in flight
    bool revoked = false;
    bool blocked = false;  ///< it handed work back; nothing is pushed before its next reply
    bool used = false;     ///< something was pushed
    int64_t idle_since_ns = 0;
};

/// Tasks that need the same resources and environment.
struct Shape {
    uint32_t id;
    LinkedList<Task> queue;
    std::vector<Lease*> leases;
    uint32_t asked = 0;           ///< leases requested and not yet granted
    std::string refusal;          ///< the error value, when no node can ever hold it
    bool is_far = false;          ///< some task of the queue may have large inputs on another node
    std::vector<uint32_t> unfit;  ///< numbers + 1 of nodes that can never serve it, whatever inputs they have
};

class Leases {
  public:
    Leases(Endpoint& endpoint, Tasks& tasks, Submitter& submitter, Streams& streams, Definitions& definitions)
        : endpoint_(endpoint),
          tasks_(tasks),
          submitter_(submitter),
          streams_(streams),
          definitions_(definitions) {}

    Shape* shape(uint32_t id);
    /// A task that has all that it needs.
    void enqueue(Task* task);
    /// In front: it was there before.
    void enqueue_again(Task* task);
    /// A task that waits for a larger shape is queued there.
    void retry_in(uint64_t cookie, uint32_t shape);
    void pump_shape(Shape* shape);
    /// The worker has answered the task or handed it back. A lease that was asked back goes with its last
    /// one.
    void leave_flight(Task* task);

    void on_grant(Cursor cursor);
    void on_revoke(uint64_t lease);
    void on_refused(Cursor cursor);
    void on_not_near(Cursor cursor);
    void on_handback(ProcessId from, Cursor cursor);
    void worker_died(const PeerDeath& death, const std::string& reason);
    /// Leases that were idle for long go back; in how many nanoseconds the next one is due, -1 for none.
    int64_t return_idle();
    size_t count() const { return leases_.size(); }

  private:
    void push(Lease* lease, Task* task);
    Lease* pick(Shape* shape, const Task* task);
    uint32_t near(const Task* task) const;
    uint32_t node_of(const Lease* lease) const;  ///< number + 1; 0 for this node
    void pump_far(Shape* shape);
    void ask_leases(Shape* shape, const std::vector<uint32_t>& near);
    void set_asked(Shape* shape, uint32_t count);
    void return_lease(Lease* lease);
    void forget_lease(const Lease* lease);
    void lease_lost(Lease* lease, const PeerDeath& death, const std::string& reason);

    Endpoint& endpoint_;
    Tasks& tasks_;
    Submitter& submitter_;
    Streams& streams_;
    Definitions& definitions_;
    std::unordered_map<uint32_t, std::unique_ptr<Shape>> shapes_;
    std::unordered_map<uint64_t, std::unique_ptr<Lease>> leases_;
    int shapes_asking_ = 0;                            ///< for leases that have not been granted
    std::unordered_map<uint64_t, uint64_t> lease_at_;  ///< a worker's key to its lease
};

}  // namespace weft
