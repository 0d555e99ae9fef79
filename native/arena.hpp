/// Objects in the segment: claiming memory for them, pinning them while they are read, giving them back.
///
/// AR-1  A granule's word is 0 exactly when nobody may touch its bytes.
/// AR-2  An entry's granules keep a non-zero word until the entry has left Phase::reclaiming.
/// AR-3  Only the process whose compare-and-swap moved an entry to reclaiming frees its granules.
#pragma once

#include <mutex>
#include <unordered_map>
#include <vector>

#include "segment.hpp"

namespace weft {

/// Where an arena object is, as messages carry it.
struct ArenaRef {
    uint32_t entry = 0;
    uint32_t generation = 0;
    uint64_t bytes = 0;
    /// Its name in records of restores: u32 entry, u32 generation.
    uint64_t key() const { return (uint64_t(generation) << 32) | entry; }
};
static_assert(sizeof(ArenaRef) == 16);

enum class PinResult { ok, spilled, lost };

/// One process's view of the arena. Thread-safe.
class Arena {
  public:
    Arena(Segment& segment, ProcessId self) : segment_(segment), self_(self) {}

    /// Memory for an object of so many bytes, in Phase::building. False when there is no room.
    bool allocate(uint64_t bytes, ProcessId owner, ArenaRef& ref, char*& data);
    /// The bytes are written: others may read them. `accepted` when the owner is this process. It is deleted
    /// at once when the owner is dead.
    void seal(const ArenaRef& ref, bool accepted);
    /// Undo an allocate that will not be sealed.
    void abandon(const ArenaRef& ref);
    /// The owner has learnt of the object.
    void accept(const ArenaRef& ref);
    /// This process owns it from now on.
    void adopt(const ArenaRef& ref);
    /// No ref is left; it goes once nobody reads it. By the owner.
    void remove(const ArenaRef& ref);

    /// Keep it readable in place until unpin. Counts within the process.
    PinResult pin(const ArenaRef& ref, char*& data);
    void unpin(const ArenaRef& ref);

    /// An entry without memory: the object's bytes are elsewhere. False when no entry is free.
    bool import_entry(uint64_t bytes, ProcessId owner, ArenaRef& ref);
    /// Whether it is such an entry still; not when it is gone.
    bool is_elsewhere(const ArenaRef& ref) const {
        const ObjectEntry& entry = segment_.object(ref.entry);
        // Partner: end_receiving.
        return entry.is_elsewhere.load(std::memory_order_acquire) != 0 &&
               entry.generation.load(std::memory_order_acquire) == ref.generation;
    }
    /// Number + 1 of the node that has the bytes of an import; 0 when they are here.
    uint32_t node_of(const ArenaRef& ref) const;
    /// Memory without an entry, for the daemon's restores.
    bool claim_run(uint32_t granules, uint32_t& first);
    void release_run(uint32_t first, uint32_t granules);
    /// After a phase change made by the daemon: finish a delete that came meanwhile.
    void reclaim_if_deleted(uint32_t entry);

  private:
    struct Run {
        uint32_t first, count;
    };
    bool claim(uint32_t count, Run& run);
    bool claim_at(uint32_t first, uint32_t count);
    void release(Run run);
    uint32_t take_entry();
    void try_reclaim(uint32_t entry);

    Segment& segment_;
    ProcessId self_;
    std::mutex mutex_;
    std::unordered_map<uint32_t, uint32_t> pins_;
};

/// Free what a dead process held: its pins, what it was building or reclaiming. By the daemon.
/// What it wrote for an owner that has not accepted it goes too when `unaccepted`.
void reclaim_after_death(Segment& segment, ProcessId dead, bool unaccepted);
/// Delete all objects that a dead process owned. By the daemon.
void remove_objects_of(Segment& segment, ProcessId dead);

bool no_pins(const ObjectEntry& entry);

}  // namespace weft
