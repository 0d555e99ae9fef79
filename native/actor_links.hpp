/// The caller's side of actors: where each one is, and its calls in order.
#pragma once

#include <string>
#include <unordered_map>

#include "endpoint.hpp"
#include "task.hpp"

namespace weft {

class Streams;
class Submitter;
class Sweep;

struct ActorLink {
    Id id;
    enum { unknown, up, restarting, dead } state = unknown;
    bool watching = false;
    bool out_of_reach =
        false;  ///< where it was is dead to this process; the daemon has been asked what that means
    ProcessId where;
    LinkedList<Task> queue;    ///< in order; the head may wait for its dependencies
    LinkedList<Task> flight;   ///< sent and not answered
    Id last_call;              ///< of this process
    std::string death;         ///< the error value
    Task* creation = nullptr;  ///< in the creator: held until it is dead, for restarts
    bool is_flushed = false;   ///< lineage on disk may name it
    bool is_used = false;      ///< as the last sweep saw it
};

class ActorLinks {
  public:
    ActorLinks(Endpoint& endpoint, Submitter& submitter, Streams& streams, Sweep& sweep)
        : endpoint_(endpoint), submitter_(submitter), streams_(streams), sweep_(sweep) {}

    ActorLink* link(Id actor);
    void submit_call(Task* task, Entry* actor);
    void submit_creation(Task* task);
    /// Have the daemon tell where it is, from now on.
    void watch(ActorLink* to, ProcessId owner);
    /// Send what can go, in order: a call whose dependencies are missing holds up those behind it, unless
    /// they may overtake it.
    void flush_actor(ActorLink* link);
    /// A call that may overtake others, and has all it needs: the others need not be looked at.
    void send_early(ActorLink* link, Task* task);
    /// An argument of the constructor failed: tell those who watch the actor through the daemon, too.
    void fail_creation(Task* task, const std::string& error);
    void on_actor_up(Cursor cursor);
    void on_actor_down(Cursor cursor);
    void process_died(ProcessId dead);

    /// Those that live or are on disk are in use, whoever else looks at them (sweep.hpp).
    void mark_living(bool is_lineage_on_disk);
    void mark_used(Id actor);
    void forget_unused();
    size_t count() const { return actors_.size(); }

  private:
    void send_call(ActorLink* link, Task* task);
    void fail_unsent(ActorLink* to, const std::string& error);
    void actor_is_dead(ActorLink* link, const std::string& error);
    void actor_out_of_reach(ActorLink* to);
    void settle_flight(ActorLink* to, bool may_retry, const std::string& error);

    Endpoint& endpoint_;
    Submitter& submitter_;
    Streams& streams_;
    Sweep& sweep_;
    std::unordered_map<Id, std::unique_ptr<ActorLink>, IdHash> actors_;
    /// A process's key to what is known to be there, until it dies. One actor may have several names.
    std::unordered_multimap<uint64_t, Id> actors_at_;
};

}  // namespace weft
