/// What a core knows of its tasks, objects and waits: for a person who asks, and for who looks for deadlocks.
/// It looks into all parts and changes none.
#pragma once

#include <string>
#include <vector>

#include "core.hpp"

namespace weft {

/// A task that this process has submitted, for listings.
struct TaskStory {
    Id id, parent, actor{};
    std::string name, state;
    uint32_t attempt = 0;
    ProcessId worker{};
    int64_t shape = -1;         ///< what a lease for it must hold; -1 of an actor's call
    std::vector<Id> waits_for;  ///< some of the arguments that are not there yet
};

/// An object's story so far, as this process knows it.
struct Explanation {
    std::string state;
    std::string task;
    bool is_owned = true, owner_alive = true;
    ProcessId owner, worker;
    Id actor;
    uint64_t bytes = 0;
    size_t borrowers = 0, holds = 0, ahead = 0, leases = 0;
    size_t refs = 0;  ///< inside its value
    uint32_t attempt = 0;
    int32_t retries_left = 0;
    int64_t shape = -1;
    std::vector<Id> waits_for;
};

/// An object that this process owns or borrows, for a person who asks what is held and by whom.
struct Held {
    Id id;
    std::string state;
    bool is_owned = true, is_actor = false;
    ProcessId owner;
    uint64_t bytes = 0;
    size_t holds = 0;
    std::vector<std::pair<ProcessId, int64_t>> borrowers;
};

/// Why an object of this process's own is not there.
struct Hindrance {
    Id object;
    char kind = '?';  ///< 't' a task elsewhere, 'o' other objects, 'a' an actor, 's' a worker, '?' unknown
    std::vector<Id> what;  ///< the task, all the objects, or the actor
    uint32_t shape = 0;
    std::string task;
};

struct Counters {
    uint64_t submitted = 0, run = 0, owned = 0, borrowed = 0, pending = 0, leases = 0;
    uint64_t kept = 0, kept_bytes = 0, rebuilt = 0;
    uint64_t flushed_bytes = 0;  ///< of lineage on disk
    uint64_t input_bytes = 0;    ///< kept for the sake of lineage
    uint64_t functions = 0, definitions = 0, actors = 0;
};

/// Made where it is needed. The mutex is held, but for counters(), which takes it.
class Inspection {
  public:
    explicit Inspection(Core& core) : core_(core) {}

    Explanation explain(Entry* entry, bool counts_ahead = true);
    /// At most so many of the tasks that this process has submitted.
    std::vector<TaskStory> tasks(size_t most);
    /// At most so many of the objects that are held here.
    std::vector<Held> held(size_t most);
    /// One object for each thing that the wait depends on; nothing when there are too many to tell.
    std::vector<Entry*> waited_for(const LongWait& wait);
    /// Why these are not there, and whatever of this process's own they need.
    std::vector<Hindrance> hindrances(std::vector<Entry*> entries);
    Counters counters();

  private:
    Hindrance hindrance(const Entry* entry, std::vector<Entry*>& needs);

    Core& core_;
};

}  // namespace weft
