/// An object as this process knows it: one that it owns or borrows.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "arena.hpp"
#include "wire.hpp"

typedef struct _object PyObject;

namespace weft {

struct Task;
struct Entry;

/// What there is of an object, and where: who reads it without the mutex decides by one load of this. While
/// somebody holds the entry, `inlined` and `failed` are for good; `in_arena` may become `pending` again.
enum class ObjectState : uint8_t { pending, inlined, failed, in_arena };

/// The consumer's end of a generator task; hangs on the entry that the task completes at its end.
struct Stream {
    std::deque<Entry*> items;  ///< arrived and not taken; each is held
    uint32_t received = 0;     ///< items so far; one of a lower index is a retry's repetition
    uint32_t consumed = 0;
    uint32_t credited = 0;    ///< consumed, as the producer knows it
    bool closed = false;      ///< the consumer wants no more
    bool has_failed = false;  ///< what the task raised has come: the last item
    std::atomic<uint32_t> available{0};
    std::vector<PyObject*> callbacks;
};

/// What few objects need.
struct EntryExtra {
    std::unique_ptr<Stream> stream;
    std::vector<Entry*> nested;        ///< refs inside the value; each is held
    std::vector<uint64_t> dependents;  ///< as Entry::dependent: those behind the first
    std::vector<ProcessId> wanters;    ///< borrowers to send the value to
    std::vector<PyObject*> callbacks;
    std::vector<PyObject*> on_freed;                      ///< called when the object is gone
    std::vector<std::pair<uint64_t, int64_t>> borrowers;  ///< counts by process key; never a zero
    uint32_t row = 0;                                     ///< in the ledger, 0 for none
    uint32_t needed = 0;                                  ///< other rows that name it
    std::vector<Entry*> row_needs;                        ///< what its own row names
    std::vector<uint32_t> deposits;                       ///< nodes that have a copy of its row
    std::vector<uint32_t> owner_told;                     ///< borrowed: nodes that its owner is to give one
    bool is_inherited = false;          ///< the daemon is told when it is gone, whoever else has a row
    bool is_kept = false;               ///< owned: what outlives all processes names it (KEEP)
    bool keeps = false;                 ///< this process wants that; asked of each owner that it gets
    std::vector<ProcessId> late_lends;  ///< who was sent the ref while its owner was dead
    bool has_no_heir = false;           ///< borrowed: its owner's death is settled, and nobody has it
    std::shared_ptr<const std::string> unmakeable;  ///< of an item: an error value, why it is lost
};

/// An object that this process owns or borrows.
struct Entry {
    Id id;
    /// Python refs, tasks and outer objects. Lock-free up and down; zero is acted on under the mutex.
    std::atomic<uint32_t> holds{0};
    /// Stored (release) after the value, loaded (acquire) before it is read.
    std::atomic<ObjectState> state{ObjectState::pending};
    bool owned = true;
    bool in_table = false;  ///< findable by id: others may name it
    bool fetching = false;  ///< borrowed, and the owner was asked
    bool is_actor = false;
    bool marked = false;    ///< somebody waits for any of several
    bool is_input = false;  ///< its value is kept only because lineage needs it
    Where where = Where::none;
    ProcessId owner;
    uint32_t tokens = 0;         ///< counts given to this borrower
    uint32_t lineage_holds = 0;  ///< kept tasks that had it as an argument
    Task* lineage = nullptr;     ///< the kept task that can make it again; an item's, also while that runs
    uint64_t flushed = 0;        ///< where that task is in the lineage file, when it is not in memory
    uint64_t cookie = 0;         ///< of the task that makes it, while it is under way
    uint64_t dependent = 0;      ///< cookie of the first task of this process that waits for it, or did
    Blob value;                  ///< the inline value or the error
    ArenaRef arena;
    std::unique_ptr<EntryExtra> extra;

    ObjectState now() const { return state.load(std::memory_order_acquire); }
    bool is_done() const { return now() != ObjectState::pending; }
    EntryExtra& more() {
        if (!extra) extra = std::make_unique<EntryExtra>();
        return *extra;
    }
};

/// Nobody counts it. It is never one with the counted entry of the same actor, which would then live, and
/// keep the actor alive, for as long as the actor's own handle to itself.
inline bool is_weak_actor(const Entry* entry) {
    return entry->is_actor && !entry->owned && entry->owner.slot == kDaemonSlot;
}

inline void hold(Entry* entry) {
    entry->holds.fetch_add(1, std::memory_order_relaxed);
}
/// Of an item of a generator's: its id is the object after the next of the index, since the first is the end.
inline uint32_t item_index(const Entry* item) {
    return item->id.index() - 2;
}

/// What became of its generator's task, as its own error.
inline std::string of_item(const Entry* item, std::string error) {
    return error.insert(kErrorCodeBytes, "item " + std::to_string(item_index(item)) + " of ");
}

/// The consumer's end of the generator task that completes it, if it is one's.
inline Stream* stream_of(const Entry* entry) {
    return entry->extra ? entry->extra->stream.get() : nullptr;
}

}  // namespace weft
