/// The objects that this process owns or borrows: where they are found, when they are done, when they go.
///
/// OWN-1  An owned object is freed when no hold is left and every borrower's count is zero.
#pragma once

#include <atomic>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "endpoint.hpp"
#include "entry.hpp"
#include "pool.hpp"

namespace weft {

class Borrowing;
class Flushing;
class Inheritance;
class KeptInputs;
class LentRows;
class Lineage;
class Submitter;

class Objects {
  public:
    Objects(Endpoint& endpoint, Borrowing& borrowing, Lineage& lineage, Flushing& flushing,
            KeptInputs& inputs, LentRows& rows, Submitter& submitter)
        : endpoint_(endpoint),
          borrowing_(borrowing),
          lineage_(lineage),
          flushing_(flushing),
          inputs_(inputs),
          rows_(rows),
          submitter_(submitter) {}

    Entry* new_entry(Id id);
    Entry* new_borrowed(Id id, ProcessId owner, bool is_actor);
    /// The entry, owned here and held once more.
    Entry* own_from_now(Id id);
    Entry* find(Id id);
    /// Others may name it by its id from now on.
    void escape(Entry* entry);
    /// Another is found by its id from now on.
    void step_aside(Entry* entry);

    /// Gives one hold up. Takes the mutex when it was the last.
    void drop(Entry* entry);
    void drop_locked(Entry* entry);
    /// No hold is left here; free it unless a borrower counts on it, or a row names it.
    void release_entry(Entry* entry);
    /// Its value goes; it stays, and can be made again.
    void let_value_go(Entry* entry);
    /// Lineage holds that forgotten tasks had; drop_rest() gives them up.
    std::vector<Entry*>& unneeded() { return unneeded_; }
    void drop_rest();

    void complete(Entry* entry, Where where, const char* data, size_t bytes, const ArenaRef& arena);
    void fail(Entry* entry, std::string_view error);
    /// The daemon kept what this process had promised.
    void on_promise_kept(Id id);
    /// The daemon is gone: what others were to give has failed.
    void fail_pending(const std::string& error);
    /// The refs inside its value, each held.
    void publish_inner(Entry* entry, std::vector<Entry*> nested);
    /// Whether its bytes were in the arena, and are gone.
    bool is_lost_in_arena(const Entry* entry) const;

    /// Those that are found by their ids. None may be ended meanwhile.
    const std::unordered_map<Id, Entry*, IdHash>& table() const { return table_; }
    template <class Look>
    void each(Look&& look) {
        entries_.each(look);
    }
    size_t used() const { return entries_.used(); }
    uint64_t owned() const { return owned_; }
    uint64_t borrowed() const { return borrowed_; }

    // Stored under the mutex, loaded by waiters without.
    std::atomic<uint64_t> failures{0};     ///< objects that ended in an error
    std::atomic<uint64_t> marked_done{0};  ///< completions of entries that somebody marked

  private:
    void finish_entry(Entry* entry);

    Endpoint& endpoint_;
    Borrowing& borrowing_;
    Lineage& lineage_;
    Flushing& flushing_;
    KeptInputs& inputs_;
    LentRows& rows_;
    Submitter& submitter_;
    std::unordered_map<Id, Entry*, IdHash> table_;
    Pool<Entry> entries_;
    // What follows from a drop is left to the outermost one: chains are longer than stacks.
    std::vector<Entry*> dropped_;   ///< holds that freed entries had on others
    std::vector<Entry*> unneeded_;  ///< lineage holds that forgotten tasks had
    bool is_dropping_ = false;
    uint64_t owned_ = 0, borrowed_ = 0;
};

}  // namespace weft
