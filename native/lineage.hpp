/// Lineage: what it takes to make an object again when the node that had its bytes is gone.
///
/// Only values in the arena can be lost while their owner lives: those that are small are in its own memory.
/// So a task is kept only for returns that are in the arena. It keeps its arguments' entries, and not their
/// values where those can be made again: such a value is freed when nobody else needs it. Flushing takes what
/// is old to disk.
///
/// LIN-1  A task is kept as lineage, in memory or in the lineage file, as long as an object in the arena that
///        it made is owned here.
/// LIN-2  An entry with a lineage hold stays, without its value when nobody has use for that and it can be
///        made again.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "endpoint.hpp"
#include "task.hpp"

namespace weft {

class ActorLinks;
class Borrowing;
class Flushing;
class KeptInputs;
class LentRows;
class Objects;
class Streams;
class Submitter;
class Tasks;

/// What a kept task takes.
size_t lineage_bytes(const Task* task);
/// What is told of an object that nothing can make again, as an error value.
std::string lost_for_good();

class Lineage {
  public:
    Lineage(Endpoint& endpoint, Tasks& tasks, Objects& objects, Borrowing& borrowing, Submitter& submitter,
            ActorLinks& actors, Streams& streams, Flushing& flushing, KeptInputs& inputs, LentRows& rows)
        : endpoint_(endpoint),
          tasks_(tasks),
          objects_(objects),
          borrowing_(borrowing),
          submitter_(submitter),
          actors_(actors),
          streams_(streams),
          flushing_(flushing),
          inputs_(inputs),
          rows_(rows) {}

    /// A reader found the object's memory gone. True when its value comes again (it is pending then), or has
    /// come already; else the entry has failed, or is as it was.
    bool recover(Entry* entry, const ArenaRef& lost);
    /// Why it cannot be made again, as an error value.
    std::string why_lost(const Entry* entry) const;
    bool knows_why_lost(const Entry* entry) const {
        return entry->flushed != 0 || (entry->extra && entry->extra->unmakeable);
    }
    bool can_make_again(const Task* task) const;
    /// Makes a value that is gone again, and what that needs. Deep chains are walked, not recursed into.
    void rebuild(Entry* entry);
    /// An heir was only told how it is made: nobody makes it until somebody may want it.
    static bool is_unmade(const Entry* entry) {
        return entry->where == Where::none && entry->cookie == 0 &&
               (entry->lineage != nullptr || entry->flushed != 0);
    }
    /// Somebody may read it: it is made, or made again, if its value is nowhere.
    void want(Entry* entry);
    void count_rebuilt() { ++rebuilt_; }

    /// The task is over, and stays as the lineage of what it made.
    void keep(Task* task);
    /// The entry of a return is about to go.
    void forget_return(Entry* entry);
    void drop_lineage(Entry* entry);
    /// Nobody has use for its value, but somebody may for the way it was made, or for itself where there is
    /// none.
    void evict(Entry* entry);

    /// One that is in memory from now on, or no longer.
    void count_kept(Task* task);
    void uncount_kept(Task* task);
    /// The oldest one, which is in the list no longer; null when it was forgotten.
    Task* take_oldest();
    bool has_kept() const { return !kept_.empty(); }
    uint64_t kept() const { return kept_count_; }
    uint64_t kept_bytes() const { return kept_bytes_; }
    uint64_t rebuilt() const { return rebuilt_; }

  private:
    void forget_kept(Task* task);
    void hold_as_lineage(Entry* entry);
    void run_again(Task* task, std::vector<Entry*>& missing);

    Endpoint& endpoint_;
    Tasks& tasks_;
    Objects& objects_;
    Borrowing& borrowing_;
    Submitter& submitter_;
    ActorLinks& actors_;
    Streams& streams_;
    Flushing& flushing_;
    KeptInputs& inputs_;
    LentRows& rows_;
    /// Cookies of tasks kept as lineage, oldest first; some are forgotten by now.
    std::deque<uint64_t> kept_;
    uint64_t kept_count_ = 0, kept_bytes_ = 0, rebuilt_ = 0;
};

}  // namespace weft
