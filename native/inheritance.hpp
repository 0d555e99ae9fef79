/// When an owner dies: what it had lent is in its ledger, or in copies of its rows (lent_rows.hpp). The node
/// daemons find out who still refers to it, and one of these is the heir of each object. The others are told,
/// count themselves in there, and notice nothing but a delay (docs/design/0021-metadata-store.md).
///
/// HEI-2  A ref to an object whose owner is dead stays pending until its heir is known or the death is
///        settled.
/// HEI-3  What a dead process had borrowed stays counted until its death is settled.
/// HEI-5  An heir keeps what it has inherited until the death is settled: by then all others are counted in.
#pragma once

#include <unordered_map>
#include <vector>

#include "endpoint.hpp"
#include "task.hpp"

namespace weft {

class ActorLinks;
class Borrowing;
class Definitions;
class Inbox;
class Leases;
class LentRows;
class Lineage;
class Objects;
class Submitter;
class Tasks;

class Inheritance {
  public:
    Inheritance(Endpoint& endpoint, Tasks& tasks, Objects& objects, Borrowing& borrowing, LentRows& rows,
                Lineage& lineage, Submitter& submitter, ActorLinks& actors, Leases& leases,
                Definitions& definitions, Inbox& inbox)
        : endpoint_(endpoint),
          tasks_(tasks),
          objects_(objects),
          borrowing_(borrowing),
          rows_(rows),
          lineage_(lineage),
          submitter_(submitter),
          actors_(actors),
          leases_(leases),
          definitions_(definitions),
          inbox_(inbox) {}

    // What other processes had sent before the daemon asked or told is handled before these three.
    void on_find_orphans(Cursor cursor);
    /// What had to pass on from the dead has done so.
    void on_settled(Cursor cursor);
    /// Takes objects of the dead over; without any rows: lets those go that it was given under that number.
    /// See engine/node/inheritance.py for who sends this.
    void on_adopt(Cursor cursor);
    void on_moved(Cursor cursor);
    /// Who is the heir of an object whose owner is dead; or that there is none.
    void on_orphan_answered(Cursor cursor);
    /// Tells the daemon what it waits for, once others will hear what this process has said before the
    /// daemon's next word reaches them: what waits for a full ring would come after it.
    void answer_when_flushed();

    /// The counts at the owner before died with it.
    void moved_to(Entry* entry, ProcessId owner);
    void ask_where(Entry* entry);

  private:
    struct Adoption;
    struct AdoptedRow;
    struct Question {
        uint64_t number;
        uint32_t round;
        std::vector<ProcessId> dead;
    };
    void name_orphans(const Question& question);
    void send_moved(Id id, ProcessId owner, ProcessId to);
    void bury(ProcessId dead, bool has_moved);
    void fail_orphan(Entry* entry);
    void let_inherited_go(uint64_t number);
    void adopt_row(Adoption& all, const AdoptedRow& row);
    void adopt_task(Adoption& all, const AdoptedRow& row, Cursor body);
    Entry* take_over(const PackedRef& ref);

    Endpoint& endpoint_;
    Tasks& tasks_;
    Objects& objects_;
    Borrowing& borrowing_;
    LentRows& rows_;
    Lineage& lineage_;
    Submitter& submitter_;
    ActorLinks& actors_;
    Leases& leases_;
    Definitions& definitions_;
    Inbox& inbox_;
    std::vector<Question> asked_;    ///< which orphans it refers to
    std::vector<uint64_t> adopted_;  ///< inheritances to be confirmed
    /// By number: what this process keeps until the death is settled; each is held.
    std::unordered_map<uint64_t, std::vector<Entry*>> inherited_;
};

}  // namespace weft
