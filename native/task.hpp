/// A task that this process has submitted.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "entry.hpp"
#include "linked_list.hpp"
#include "wire.hpp"

namespace weft {

struct ActorLink;
struct Function;
struct Lease;
struct Shape;

/// Linked into the queue or flight that it is in (SUB-1).
struct Task : Linked<Task> {
    uint32_t near = 0;  ///< number + 1 of the node that has most of its large inputs; 0: this one, or none
    uint32_t index = 0;
    uint32_t generation = 0;
    Id id;
    Function* function = nullptr;
    Shape* shape = nullptr;
    Lease* lease = nullptr;
    ActorLink* actor = nullptr;
    Entry* actor_entry = nullptr;  ///< held while the call is under way
    Buffer record;                 ///< TaskHeader and static part
    std::string spec;              ///< of an actor's creation: ActorSpec
    std::vector<Entry*> deps;      ///< held
    std::vector<Entry*> nested;    ///< held
    std::vector<Entry*> returns;   ///< held; as lineage not, and null for those that are gone
    uint32_t missing = 0;          ///< dependencies that are pending
    int32_t retries = 0;           ///< left; -1 for ever
    uint32_t flags = 0;
    int64_t expected_ns = 0;
    Id parent;               ///< the task that submitted it
    Id previous_call;        ///< of a call: the one that its caller made before on the same actor
    bool cancelled = false;  ///< not to be tried again
    uint32_t kept_for = 0;   ///< as lineage: how many of its returns and items are left
    // Of a generator.
    std::map<uint32_t, Entry*> items;  ///< those in the arena that are not freed, by index; not held
    uint32_t next_item = 0;            ///< what this attempt has not sent yet begins here
    uint32_t goes_to = 0;     ///< nobody takes its items, and the last one to be made again is before this
    bool is_stopped = false;  ///< this attempt was told to send no more
    std::string name;
    uint64_t cookie() const { return (uint64_t(generation) << 32) | index; }
    TaskHeader& header() { return *reinterpret_cast<TaskHeader*>(record.data()); }
};

/// Null when the stream is over, and the task runs for the sake of lost items.
inline Stream* stream_of(const Task* task) {
    return task->returns.empty() || task->returns[0] == nullptr ? nullptr : stream_of(task->returns[0]);
}

}  // namespace weft
