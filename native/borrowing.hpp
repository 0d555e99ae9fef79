/// Refs and values on their way between an owner and those who borrow from it.
///
/// OWN-2  A process is sent a ref only after its count was added at the owner (or is on its way there,
///        earlier in the sender's one FIFO channel to the owner).
/// OWN-3  A borrower returns exactly the counts that it was given.
#pragma once

#include <vector>

#include "endpoint.hpp"
#include "entry.hpp"

namespace weft {

class Inheritance;
class LentRows;
class Lineage;
class Objects;
struct Incoming;

class Borrowing {
  public:
    Borrowing(Endpoint& endpoint, Objects& objects, LentRows& rows, Lineage& lineage,
              Inheritance& inheritance)
        : endpoint_(endpoint), objects_(objects), rows_(rows), lineage_(lineage), inheritance_(inheritance) {}

    Entry* borrow(Id id, ProcessId owner, bool is_actor, uint32_t tokens);
    /// An entry for an actor that does not keep it alive, even if this process owns or borrows it.
    Entry* weak_actor(Id id);
    /// Asks the owner of a borrowed object for its value, once.
    void fetch(Entry* entry);
    void add_borrower(Entry* entry, ProcessId borrower, int64_t count);
    /// Counts `to` in for a ref that is about to be sent to it (OWN-2).
    void lend_ref(Entry* entry, ProcessId to);
    /// Tells the owner that the borrower was given one more count.
    void count_in(Id id, ProcessId owner, ProcessId borrower);
    void return_counts(Id id, ProcessId owner, uint64_t count);

    /// Appends the value as `to` shall see it: header, the refs inside it, the data or where it lies.
    void pack_value(Buffer& out, Entry* entry, ProcessId to);
    void send_value(Entry* entry, ProcessId to);
    /// Takes over refs that came in a record; each is held once for the caller.
    std::vector<Entry*> unpack_refs(Cursor& cursor, uint32_t count, bool self_borrow);
    /// Returns what came in values that nobody waits for: the counts of refs, and memory if it would have
    /// been ours.
    void discard_values(Cursor& cursor, uint32_t count, bool owns_memory);
    /// Entries for the refs of such a task whose owners are dead; each is held.
    std::vector<Entry*> hold_orphans(const Incoming& incoming);
    void drop(const std::vector<Entry*>& held);
    /// Returns the counts of the refs that came with a task which will not run here.
    void discard_task(const Incoming& incoming);

    void on_borrow_add(Cursor cursor);
    void on_borrow_release(ProcessId from, Cursor cursor);
    void on_want(ProcessId from, Cursor cursor);
    void on_value(ProcessId from, Cursor cursor);

  private:
    Endpoint& endpoint_;
    Objects& objects_;
    LentRows& rows_;
    Lineage& lineage_;
    Inheritance& inheritance_;
};

}  // namespace weft
