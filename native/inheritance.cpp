#include "inheritance.hpp"

#include <algorithm>

#include "actor_links.hpp"
#include "borrowing.hpp"
#include "definitions.hpp"
#include "inbox.hpp"
#include "leases.hpp"
#include "lent_rows.hpp"
#include "lineage.hpp"
#include "objects.hpp"
#include "streams.hpp"
#include "submitter.hpp"
#include "tasks.hpp"

namespace weft {

// ---- everybody's side: the owner of something is dead -------------------------------------------

void Inheritance::on_find_orphans(Cursor cursor) {
    const auto asked = cursor.take<records::FindOrphans>();
    std::vector<ProcessId> dead(asked.dead);
    for (ProcessId& id : dead)
        id = cursor.take<ProcessId>();
    asked_.push_back({asked.number, asked.round, std::move(dead)});
    answer_when_flushed();
}

void Inheritance::name_orphans(const Question& question) {
    inbox_.hold_orphans();
    const std::vector<ProcessId>& dead = question.dead;
    Buffer out;
    out.add(records::Orphans{question.number, question.round});
    for (const auto& [id, entry] : objects_.table())
        if (!entry->owned && !entry->is_actor &&
            std::find(dead.begin(), dead.end(), entry->owner) != dead.end()) {
            out.add(records::Named{id, entry->owner});
        }
    endpoint_.send_daemon(Kind::ORPHANS, out.data(), out.size());
}

void Inheritance::on_moved(Cursor cursor) {
    const auto [id, owner] = cursor.take<records::Moved>();
    if (owner == endpoint_.self) return;
    if (objects_.find(id) == nullptr) inbox_.hold_orphans();  // the ref may be in what waits there
    Entry* entry = objects_.find(id);
    if (entry == nullptr || entry->owned)
        return borrowing_.return_counts(id, owner, 1);  // it was dropped here meanwhile
    if (entry->owner != owner) {
        if (endpoint_.segment.is_alive(entry->owner)) return;  // a late word of a move before
        moved_to(entry, owner);
    }
    ++entry->tokens;
    if (entry->holds.load(std::memory_order_acquire) == 0) objects_.release_entry(entry);
}

void Inheritance::moved_to(Entry* entry, ProcessId owner) {
    entry->owner = owner;
    entry->tokens = 0;
    if (entry->extra) entry->extra->has_no_heir = false;
    rows_.owner_changed(entry);
    if (entry->extra && entry->extra->keeps) rows_.keep(entry);
    // Before this process knew of the move it passed the ref on; those it went to are counted in and told.
    if (entry->extra)
        for (const ProcessId& late : std::exchange(entry->extra->late_lends, {})) {
            borrowing_.lend_ref(entry, late);
            send_moved(entry->id, owner, late);
        }
    if (std::exchange(entry->fetching, false))
        borrowing_.fetch(entry);
    else if (!endpoint_.segment.is_alive(owner))
        ask_where(entry);
}

void Inheritance::send_moved(Id id, ProcessId owner, ProcessId to) {
    const records::Moved body{id, owner};
    endpoint_.send(to, body.kind, &body, sizeof body);
}

void Inheritance::ask_where(Entry* entry) {
    const records::OrphanAsked body{entry->owner, entry->id};
    endpoint_.send_daemon(body.kind, &body, sizeof body);
}

void Inheritance::on_orphan_answered(Cursor cursor) {
    const auto [id, is_found, _, owner] = cursor.take<records::OrphanAnswered>();
    Entry* entry = objects_.find(id);
    if (entry == nullptr || entry->owned || endpoint_.segment.is_alive(entry->owner)) return;
    if (is_found == 0) {
        entry->more().late_lends.clear();
        return fail_orphan(entry);
    }
    borrowing_.count_in(
        id, owner, endpoint_.self);  // the heir keeps it until then (HEI-5), or whoever sent the ref does
    moved_to(entry, owner);
    ++entry->tokens;
}

void Inheritance::on_settled(Cursor cursor) {
    const auto settled = cursor.take<records::Settled>();
    std::vector<ProcessId> dead(settled.dead);
    const bool has_moved = settled.has_moved != 0;
    for (ProcessId& id : dead)
        id = cursor.take<ProcessId>();
    inbox_.hold_orphans();
    for (const ProcessId& one : dead)
        bury(one, has_moved);
    if (has_moved) bury({kDaemonSlot, 0}, true);  // what an heir needs, and has not been told of
}

/// Fail what is still its, or ask where it is; and forget what it had borrowed.
void Inheritance::bury(ProcessId dead, bool has_moved) {
    std::vector<Entry*> orphans, unborrowed;
    for (auto& [id, entry] : objects_.table()) {
        // Each is held meanwhile: what follows from one may end another.
        if (!entry->owned && entry->owner == dead && !entry->is_actor) {
            hold(entry);
            orphans.push_back(entry);
        }
        if (!entry->extra) continue;
        if (std::erase_if(entry->extra->borrowers, [&](auto& b) { return b.first == dead.key(); }) == 0)
            continue;
        if (!entry->extra->borrowers.empty()) continue;
        hold(entry);
        rows_.no_longer_lent(entry);
        unborrowed.push_back(entry);
    }
    for (Entry* entry : orphans) {
        if (has_moved)
            ask_where(entry);
        else
            fail_orphan(entry);
        objects_.drop_locked(entry);
    }
    for (Entry* entry : unborrowed)
        objects_.drop_locked(entry);
}

void Inheritance::fail_orphan(Entry* entry) {
    entry->more().has_no_heir = true;
    if (entry->is_done()) return;
    char id[33];
    snprintf(id, sizeof id, "%016llx", (unsigned long long)entry->id.high);
    constexpr auto why =
        " is lost: the process that owned it died, and what it takes to make it again died with it. "
        "Return it from a task that may be retried, or keep its owner. (A call that was not answered yet "
        "is not made again with max_task_retries=0.)";
    objects_.fail(entry, error_value(ErrorCode::owner_died, "object " + std::string(id) + why));
}

// ---- the heir's side ----------------------------------------------------------------------------

struct Inheritance::AdoptedRow {
    Entry* entry;
    uint32_t shape;
    Cursor body;
};

struct Inheritance::Adoption {
    std::vector<AdoptedRow> rows;
    std::unordered_map<Id, Task*, IdHash> tasks;  ///< those that are run again
    std::unordered_map<Id, Task*, IdHash> kept;   ///< those that only tell how values were made
};

void Inheritance::on_adopt(Cursor cursor) {
    const auto [number, rows, functions] = cursor.take<records::Adopt>();
    if (rows == 0) return let_inherited_go(number);
    Adoption all;
    for (uint32_t i = 0; i < functions; ++i) {
        const uint32_t bytes = cursor.take<records::Size>().bytes;
        Cursor record(cursor.skip(bytes), bytes);
        const auto key = record.take<uint64_t>();
        definitions_.define_function(key, std::string(record.rest()));
    }
    for (uint32_t i = 0; i < rows; ++i) {
        const Id id = cursor.take<Id>();
        const auto [bytes, shape] = cursor.take<records::Size>();
        const char* body = cursor.skip(bytes);
        all.rows.push_back({objects_.own_from_now(id), shape, Cursor(body, bytes)});
    }
    while (!cursor.rest().empty()) {  // what outlives all processes names these
        if (Entry* entry = objects_.find(cursor.take<Id>())) entry->more().keeps = true;
    }
    for (const AdoptedRow& row : all.rows)
        adopt_row(all, row);
    for (auto& [id, task] : all.kept)
        lineage_.keep(task);
    for (auto& [id, task] : all.tasks) {
        if (task->actor == nullptr) {
            submitter_.submit(task);
            continue;
        }
        task->actor_entry = borrowing_.weak_actor(task->actor->id);
        hold(task->actor_entry);
        actors_.submit_call(task, task->actor_entry);
    }
    std::vector<Entry*>& inherited = inherited_[number];
    for (const AdoptedRow& row : all.rows) {
        inherited.push_back(row.entry);
        row.entry->more().is_inherited = true;
        rows_.need_row(row.entry);  // should this process die before anybody is counted in
        rows_.owner_changed(row.entry);
        if (row.entry->extra->keeps) rows_.keep(row.entry);
        // Before this process knew of the death it passed the ref on.
        for (const ProcessId& late : std::exchange(row.entry->extra->late_lends, {})) {
            borrowing_.add_borrower(row.entry, late, 1);
            send_moved(row.entry->id, endpoint_.self, late);
        }
        // It may wait for it already.
        if (row.entry->holds.load(std::memory_order_acquire) > 1) lineage_.want(row.entry);
    }
    adopted_.push_back(number);
    answer_when_flushed();
}

void Inheritance::let_inherited_go(uint64_t number) {
    const auto it = inherited_.find(number);
    if (it == inherited_.end()) return;
    const std::vector<Entry*> entries = std::move(it->second);
    inherited_.erase(it);
    for (Entry* entry : entries) {
        rows_.need_row_no_more(entry);
        objects_.drop_locked(entry);
    }
}

void Inheritance::answer_when_flushed() {
    if ((asked_.empty() && adopted_.empty()) || !endpoint_.channels.is_flushed()) return;
    for (const Question& question : std::exchange(asked_, {}))
        name_orphans(question);
    for (const uint64_t number : std::exchange(adopted_, {}))
        endpoint_.send_daemon(Kind::ADOPTED, &number, sizeof number);
}

void Inheritance::adopt_row(Adoption& all, const AdoptedRow& row) {
    Entry* entry = row.entry;
    Cursor body = row.body;
    if (body.take<uint32_t>() != kValueRow) return adopt_task(all, row, row.body);
    const bool has_lineage = body.take<uint32_t>() != 0;
    const auto value = body.take<PackedValue>();
    std::vector<Entry*> nested;
    for (uint32_t i = 0; i < value.nested; ++i)
        nested.push_back(take_over(body.take<PackedRef>()));
    const char* data = body.skip(value.bytes);
    ArenaRef arena{};
    if (value.where == Where::arena) memcpy(&arena, data, sizeof arena), endpoint_.arena.adopt(arena);
    if (entry->is_done()) {
        for (Entry* inner : nested)
            objects_.drop_locked(inner);
        if (value.where == Where::arena && objects_.is_lost_in_arena(entry)) entry->arena = arena;
    } else {
        objects_.publish_inner(entry, std::move(nested));
        objects_.complete(entry, value.where, value.where == Where::arena ? nullptr : data,
                          value.where == Where::arena ? 0 : value.bytes, arena);
    }
    if (has_lineage && entry->where == Where::arena && entry->lineage == nullptr && entry->flushed == 0)
        adopt_task(all, row, body);
}

/// A task that is to be run, or that is kept as the lineage of what it made.
void Inheritance::adopt_task(Adoption& all, const AdoptedRow& row, Cursor body) {
    Entry* entry = row.entry;
    const auto about = body.take<TaskRow>();
    const bool is_lineage = about.kind == kLineageRow || entry->is_done();
    if (entry->is_done() && entry->where != Where::arena) return;
    const char* record = body.skip(about.record_bytes);
    TaskHeader header;
    memcpy(&header, record, sizeof header);
    if (about.retries == 0) {
        if (!entry->is_done())
            objects_.fail(
                entry,
                error_value(ErrorCode::owner_died,
                            "the process that had submitted its task died, and the task may not be run "
                            "again (max_retries=0)"));
        return;
    }
    const bool is_call = !header.actor.is_nil();
    if (!is_call && (definitions_.function(header.function) == nullptr ||
                     row.shape == 0)) {  // it died before it was told
        if (!entry->is_done()) fail_orphan(entry);
        return;
    }
    Task*& task = (is_lineage ? all.kept : all.tasks)[header.task];
    if (task == nullptr) {
        task = tasks_.new_task();
        task->id = header.task;
        task->record.append(record, about.record_bytes);
        if (!is_lineage) ++task->header().attempt;
        task->name = body.text(about.name_bytes);
        if (is_call) {
            task->actor = actors_.link(header.actor);
        } else {
            task->function = definitions_.function(header.function);
            task->shape = leases_.shape(row.shape);
        }
        task->flags = about.flags;
        task->retries = about.retries > 0 && !is_lineage ? about.retries - 1 : about.retries;
        task->parent = endpoint_.root;
        task->returns.assign(header.returns, nullptr);
        for (uint32_t i = 0; i < about.deps; ++i)
            task->deps.push_back(take_over(body.take<PackedRef>()));
        if (about.edges != 0) {
            const auto [parent, previous_call] = body.take<TaskEdges>();
            task->parent = parent;
            task->previous_call = previous_call;
        }
        char* refs =
            task->record.data() + sizeof header + header.static_bytes - header.nested * sizeof(PackedRef);
        for (uint32_t i = 0; i < header.nested; ++i) {
            PackedRef ref;
            memcpy(&ref, refs + i * sizeof ref, sizeof ref);
            task->nested.push_back(take_over(ref));
            ref.owner = task->nested.back()->owner;
            memcpy(refs + i * sizeof ref, &ref, sizeof ref);
        }
    }
    if (task->flags & kStreaming) {  // its items are not held
        if (!is_lineage) entry->cookie = task->cookie();
        return Streams::register_item(task, entry);
    }
    hold(entry);
    task->returns.at(about.return_index) = entry;
}

/// A ref that the dead one had: to what is adopted with it, to what has another heir, of which the daemon
/// tells next (its owner has no generation), or to what it had borrowed itself. Held.
Entry* Inheritance::take_over(const PackedRef& ref) {
    Entry* entry = objects_.find(ref.id);
    if (entry == nullptr || is_weak_actor(entry)) {
        const bool is_lost = ref.owner.slot == kDaemonSlot && ref.owner.generation != 0 && ref.is_actor == 0;
        const bool counted = ref.owner.slot != kDaemonSlot && ref.owner != endpoint_.self;
        entry = borrowing_.borrow(ref.id, ref.owner, ref.is_actor != 0, counted ? 1 : 0);
        if (counted && ref.is_actor == 0 && !endpoint_.segment.is_alive(ref.owner))
            ask_where(entry);  // it died after the row was written, and has an heir of its own
        else if (counted)
            borrowing_.count_in(ref.id, ref.owner, endpoint_.self);
        if (is_lost) fail_orphan(entry);
    }
    hold(entry);
    return entry;
}

}  // namespace weft
