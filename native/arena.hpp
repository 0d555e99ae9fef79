/// Objects in the segment: claiming memory for them, pinning them while they are read, giving them back.
///
/// AR-1  A granule's word is 0 exactly when nobody may touch its bytes.
/// AR-2  An entry's granules keep a non-zero word until the entry has left Phase::reclaiming.
/// AR-3  Only the process whose compare-and-swap moved an entry to reclaiming frees its granules.
/// AR-4  An operation on a stale ref changes nothing of what is in its entry now: the word changes by
///       compare-and-swap, and the generation is in it. A pin it may set for a moment, which keeps nothing.
#pragma once

#include <algorithm>
#include <mutex>
#include <new>
#include <optional>
#include <span>
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

/// Who owns an entry, and in which of its lives, in one word, so that a stale ref cannot give the next
/// object another owner: u21 slot | u22 generation of the process | u21 generation of the entry.
struct OwnerWord {
    static constexpr uint32_t kBits = 21, kMask = (1u << kBits) - 1, kProcessMask = (1u << (kBits + 1)) - 1;
    static_assert(kFarSlots + kMostFar <= 1u << kBits);

    static uint64_t pack(ProcessId owner, uint32_t generation) {
        return uint64_t(owner.slot) << (2 * kBits + 1) | uint64_t(owner.generation & kProcessMask) << kBits |
               (generation & kMask);
    }
    uint64_t bits;

    uint32_t slot() const { return uint32_t(bits >> (2 * kBits + 1)); }
    bool is(ProcessId owner, uint32_t generation) const { return bits == pack(owner, generation); }
    bool is_of(uint32_t generation) const { return (bits & kMask) == (generation & kMask); }
    bool is_alive(const Segment& segment) const {
        const auto lives = [this](const auto& process) {
            return process.alive.load(std::memory_order_acquire) != 0 &&
                   (process.generation.load(std::memory_order_acquire) & kProcessMask) ==
                       ((bits >> kBits) & kProcessMask);
        };
        return is_far(slot()) ? lives(segment.far(slot())) : lives(segment.slot(slot()));
    }
};

inline uint32_t granules_for(uint64_t bytes) {
    return uint32_t(std::max<uint64_t>(1, (bytes + kGranuleBytes - 1) / kGranuleBytes));
}

inline EntryWord word_of(const Segment& segment, uint32_t entry) {
    return {segment.object(entry).word.load(std::memory_order_seq_cst)};
}

/// Changes an entry's word to next(word), and returns that, unless next gives nothing.
template <class Next>
std::optional<EntryWord> change_word(ObjectEntry& entry, Next&& next) {
    EntryWord word{entry.word.load(std::memory_order_seq_cst)};
    for (;;) {
        const std::optional<EntryWord> wanted = next(word);
        if (!wanted || entry.word.compare_exchange_weak(word.bits, wanted->bits, std::memory_order_seq_cst))
            return wanted;
    }
}

/// Who reads an entry's object in place: a bit for each slot that was ever used. Sequentially consistent, as
/// the pins: whose pin can be seen, its slot's word is counted (NodePort::reserve_slot).
inline std::span<Shared<uint64_t>> pins_of(const Segment& segment, uint32_t entry) {
    return {reinterpret_cast<Shared<uint64_t>*>(&segment.object(entry) + 1),
            segment.header().ready_words.load(std::memory_order_seq_cst)};
}
bool no_pins(const Segment& segment, uint32_t entry);
uint32_t count_pins(const Segment& segment, uint32_t entry);

enum class PinResult { ok, spilled, lost };

/// One process's view of the arena. Thread-safe.
class Arena {
  public:
    Arena(Segment& segment, ProcessId self) : segment_(segment), self_(self) {}

    /// Memory for an object of so many bytes, in Phase::building. False when there is no room.
    bool allocate(uint64_t bytes, ProcessId owner, ArenaRef& ref, char*& data);
    /// What this process has filled is to be another's, and stays readable in place here; before seal.
    void hand_over(const ArenaRef& ref, ProcessId owner);
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
    /// In a fork's child: who held the lock is not here.
    void become_private() { new (&mutex_) std::mutex; }
    void unpin(const ArenaRef& ref);
    /// What is pinned stays readable for good, though this process gives its slot up. Throws
    /// std::system_error.
    void keep_pinned();

    /// An entry without memory: the object's bytes are elsewhere. False when no entry is free.
    bool import_entry(uint64_t bytes, ProcessId owner, ArenaRef& ref);
    /// Whether it is such an entry still; not when it is gone.
    bool is_elsewhere(const ArenaRef& ref) const {
        const EntryWord word = word_of(segment_, ref.entry);
        return word.generation() == ref.generation && word.has(EntryWord::kElsewhere);
    }
    /// Whether its bytes came from another node, or are there.
    bool is_import(const ArenaRef& ref) const;
    /// Whether it is not gone; it may be deleted.
    bool exists(const ArenaRef& ref) const {
        return ref.entry < segment_.header().objects &&
               word_of(segment_, ref.entry).generation() == ref.generation;
    }
    /// Number + 1 of the node that has the bytes of an import; 0 when they are here.
    uint32_t node_of(const ArenaRef& ref) const;
    /// Which node that is. By the daemon.
    void set_node_of(const ArenaRef& ref, uint32_t node);
    /// Whether so many granules are free side by side, and whether an entry is.
    bool has_run(uint32_t granules) const;
    bool has_entry() const;
    /// Memory without an entry, for the daemon's restores.
    bool claim_run(uint32_t granules, uint32_t& first);
    /// Memory of an entry that is about to lose it is this process's from now on, whoever else dies.
    void take_run(uint32_t first, uint32_t granules);
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
    void put_name_on(Run run);
    bool take_entry(uint32_t& entry, uint32_t& generation);
    void try_reclaim(uint32_t entry);

    Segment& segment_;
    ProcessId self_;
    std::mutex mutex_;
    struct Pin {
        uint32_t generation, count;
    };
    std::unordered_map<uint32_t, Pin> pins_;  ///< by entry
};

/// Free what a dead process held: its pins, what it was building or reclaiming. By the daemon.
/// What it wrote for an owner that has not accepted it goes too when `unaccepted`.
void reclaim_after_death(Segment& segment, ProcessId dead, bool unaccepted);
/// All objects that a process owns. By the daemon.
std::vector<ArenaRef> objects_of(Segment& segment, ProcessId owner);
/// Delete all objects that a dead process owned. By the daemon.
void remove_objects_of(Segment& segment, ProcessId dead);

}  // namespace weft
