/// What this process has lent is written down, so that it can pass to another owner: in its ledger, and in
/// copies on the nodes that have a borrower (docs/design/0021-metadata-store.md; inheritance.hpp reads it).
///
/// HEI-1  An object that is lent has a row, and so has every object of this process that the row needs.
/// HEI-4  A node with a borrower has a copy of the object's row, and of the rows that it needs, as long as
///        the object lives. Of what the row names and other processes own, their owners send copies.
#pragma once

#include <vector>

#include "endpoint.hpp"
#include "ledger.hpp"
#include "task.hpp"

namespace weft {

class Definitions;
class Flushing;
class Objects;
class Tasks;

class LentRows {
  public:
    LentRows(Endpoint& endpoint, Tasks& tasks, Objects& objects, Flushing& flushing, Definitions& definitions)
        : endpoint_(endpoint),
          tasks_(tasks),
          objects_(objects),
          flushing_(flushing),
          definitions_(definitions),
          ledger_(endpoint.segment, endpoint.arena, endpoint.self) {}

    void became_lent(Entry* entry);
    void no_longer_lent(Entry* entry);
    /// Its value has come while it was lent, or needed by what is.
    void renew_row(Entry* entry);
    /// That node gets a copy of its row, and of what the row needs (HEI-4).
    void deposit(Entry* first, uint32_t node);
    /// A process has sent that node a row which names an object of this one.
    void on_deposit_there(Cursor cursor);
    /// A borrowed object has this owner from now on: what the one before was told, it is told.
    void owner_changed(Entry* entry);
    /// Its value has come.
    void deposit_again(Entry* entry);
    /// The object is gone.
    void withdraw(Id id, const std::vector<uint32_t>& nodes);
    /// Something needs its row, though nobody has borrowed it; until that does so no more.
    void need_row(Entry* entry);
    void need_row_no_more(Entry* entry);
    /// By a process that has a ref to it, before it writes that ref where the end of all processes leaves it.
    void keep(Entry* entry);
    void on_keep(Cursor cursor);
    /// Before an idle worker sleeps: the daemon must not end one whose objects others refer to. Takes the
    /// mutex.
    void tell_lending();
    /// An empty ledger's memory goes back when it was empty for long; when that is due, -1 for never.
    int64_t let_go_when_idle();

  private:
    /// What a row names, actors aside.
    struct Named {
        std::vector<Entry*> own;    ///< its needs
        std::vector<Entry*> other;  ///< which this process has borrowed

        void add(Entry* entry) {
            if (!entry->is_actor) (entry->owned ? own : other).push_back(entry);
        }
    };
    void write_rows(Entry* first);
    std::vector<Entry*> write_row(Entry* entry);
    bool describe(Entry* entry, RowHead& head, Buffer& body, Named& named);
    void describe_task(Entry* entry, Task* task, RowKind kind, Buffer& body, Named& named);
    std::vector<Entry*> send_deposit(Entry* entry, const std::vector<uint32_t>& nodes);
    void tell_owner(Entry* entry, uint32_t node);
    void erase_rows(Entry* first);
    void set_kept(Entry* entry, bool is_kept);

    Endpoint& endpoint_;
    Tasks& tasks_;
    Objects& objects_;
    Flushing& flushing_;
    Definitions& definitions_;
    Ledger ledger_;
    int64_t ledger_empty_since_ns_ = 0;
    uint64_t lent_out_ = 0;      ///< owned objects that have a borrower
    bool told_lending_ = false;  ///< what the daemon knows of that
};

}  // namespace weft
