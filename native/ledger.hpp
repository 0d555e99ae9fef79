/// What a process has lent to others, written in the segment: it outlives the process, and the node daemon
/// reads there what must pass to another owner.
///
/// LED-1  A row is published by one release-store of its page's `used`; one that is cut short by a death is
///        not there.
/// LED-2  A row says how to get at its object by itself, or names the rows that it needs.
/// LED-3  Whoever reads it takes nothing for granted: what died may have written anywhere before it did.
#pragma once

#include <string>
#include <vector>

#include "arena.hpp"
#include "records.hpp"

namespace weft {

using records::RowHead;

/// How a row's body begins. A value: the kind, whether its task follows (as a TaskRow that may be run again),
/// then a PackedValue. A task that was not done, or that only tells how to make a value which is gone: a
/// TaskRow.
enum RowKind : uint32_t { kValueRow = 0, kTaskRow = 1, kLineageRow = 2 };

/// Before a task's record: what else it takes to submit it. Then the record, the name, PackedRefs, TaskEdges.
struct TaskRow {
    uint32_t kind = kTaskRow;
    uint32_t return_index;
    int32_t retries;
    uint32_t flags;
    uint32_t record_bytes;
    uint32_t name_bytes;
    uint32_t deps;   ///< PackedRefs behind the name
    uint32_t edges;  ///< 1: TaskEdges behind these; 0 in rows of earlier versions
};
static_assert(sizeof(TaskRow) == 32);

/// What a task's row tells people of the graph besides its arguments.
struct TaskEdges {
    Id parent;         ///< control: the task that submitted it
    Id previous_call;  ///< stateful: what its caller had called on the same actor before, nil for the first
};
static_assert(sizeof(TaskEdges) == 32);

/// A row as the daemon finds it.
struct FoundRow {
    RowHead head;
    bool is_lent = false;  ///< else another row needs it
    std::vector<Id> needs;
    std::string body;
};

/// The writer's side. Not thread-safe: the owner's lock guards it. What was lent stays readable when it is
/// gone: the daemon frees the pages.
class Ledger {
  public:
    Ledger(Segment& segment, Arena& arena, ProcessId self)
        : arena_(arena), self_(self), first_page_(&segment.slot(self.slot).ledger) {}

    /// The row's handle, 0 when the arena has no room for it.
    uint32_t write(const RowHead& head, const std::vector<Id>& needs, std::string_view body, bool is_lent);
    void set_lent(uint32_t row, bool is_lent);
    void erase(uint32_t row);
    /// Gives the memory of an empty ledger back.
    void let_go();

    size_t rows() const { return live_; }
    size_t pages() const { return pages_.size(); }

  private:
    struct Page {
        ArenaRef arena;
        char* data;
        uint32_t capacity;
    };
    char* reserve(uint32_t bytes);
    bool add_page(uint32_t bytes);
    void let_go(std::vector<Page>& pages);
    void compact();

    Arena& arena_;
    ProcessId self_;
    Shared<uint64_t>* first_page_;  ///< what names it
    std::vector<Page> pages_;
    std::vector<char*> rows_;  ///< by handle - 1
    std::vector<uint32_t> free_;
    size_t live_ = 0, live_bytes_ = 0, used_bytes_ = 0;
};

/// All rows of a process that is dead. By the daemon, before it frees what the process had.
std::vector<FoundRow> read_ledger(Segment& segment, ProcessId dead);

}  // namespace weft
