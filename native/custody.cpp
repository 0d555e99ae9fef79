/// When an owner dies: what it had lent is in its ledger, the node daemon finds out who still refers to it,
/// and one of these takes it all over. The others are told, and notice nothing but a delay (docs/design, "No
/// cliff").
///
/// CUS-1  An object that is lent has a row, and so has every object of this process that the row needs.
/// CUS-2  A ref to an object whose owner is dead stays pending until the object has moved or the death is
///        settled.
/// CUS-3  What a dead process had borrowed stays counted until its death is settled.
/// CUS-4  A node with a borrower has a copy of the object's row, and of the rows that it needs, as long as
///        the object lives.
#include <algorithm>

#include "core.hpp"

namespace weft {

// ---- the owner's side: what is lent is written down -----------------------------------------------------

void Core::became_lent(Entry* entry) {
    ++lent_out_;
    if (entry->is_actor) return;
    if (entry->extra->row != 0)
        ledger_.set_lent(entry->extra->row, true);
    else
        write_rows(entry);
}

void Core::no_longer_lent(Entry* entry) {
    --lent_out_;
    if (entry->extra->row == 0) return;
    if (entry->extra->needed != 0)
        ledger_.set_lent(entry->extra->row, false);
    else
        erase_rows(entry);
}

/// A row for it, and for what that needs. Chains are walked, not recursed into.
void Core::write_rows(Entry* first) {
    std::vector<Entry*> missing{first};
    while (!missing.empty()) {
        Entry* entry = missing.back();
        missing.pop_back();
        if (entry->extra && entry->extra->row != 0) continue;
        const std::vector<Entry*> needs = write_row(entry);
        for (Entry* need : needs) {
            ++need->more().needed;
            if (need->extra->row == 0) missing.push_back(need);
        }
        entry->more().row_needs = needs;
    }
}

/// Those of this process's objects that the row names.
std::vector<Entry*> Core::write_row(Entry* entry) {
    std::vector<Entry*> needs;
    RowHead head{};
    static thread_local Buffer body;
    body.clear();
    if (!describe(entry, head, body, needs)) return {};
    std::vector<Id> ids;
    for (const Entry* need : needs)
        ids.push_back(need->id);
    entry->more().row =
        ledger_.write(head, ids, {body.data(), body.size()}, !entry->extra->borrowers.empty());
    return entry->extra->row != 0 ? needs : std::vector<Entry*>{};
}

/// What its row says. False for an item of a stream that is not there yet, and for a result of a call that
/// may not be repeated: only its value can be handed on.
bool Core::describe(Entry* entry, RowHead& head, Buffer& body, std::vector<Entry*>& needs) {
    const auto can_be_told = [](const Task* task) {
        if (task == nullptr || (task->flags & (kIsCreation | kStreaming)) != 0) return false;
        return task->actor == nullptr || task->retries != 0;  // the actor may have done it already
    };
    head.id = entry->id;
    Task* task = nullptr;
    if (entry->is_done()) {
        // On this node the value outlives its owner; another node may need to make it again. A task that has
        // just made it is not its lineage yet.
        const bool travels = entry->extra && !entry->extra->deposits.empty() && entry->where == Where::arena;
        if (travels) {
            Task* maker = entry->lineage == nullptr && entry->cookie != 0 ? task_at(entry->cookie)
                                                                          : lineage_to_tell(entry);
            if (can_be_told(maker)) task = maker;
        }
        const auto nested = entry->extra ? uint32_t(entry->extra->nested.size()) : 0u;
        head.in_arena = entry->where == Where::arena;
        if (head.in_arena) head.arena = entry->arena;
        body.add(uint32_t(kValueRow));
        body.add(uint32_t(task != nullptr));
        body.add(PackedValue{entry->where, nested, head.in_arena ? sizeof(ArenaRef) : entry->value.size()});
        for (uint32_t i = 0; i < nested; ++i) {
            Entry* inner = entry->extra->nested[i];
            if (inner->owned && !inner->is_actor) needs.push_back(inner);
            body.add(PackedRef{inner->id, inner->owner, inner->is_actor, 0});
        }
        if (head.in_arena)
            body.add(entry->arena);
        else
            body.append(entry->value.data(), entry->value.size());
        if (task != nullptr) describe_task(entry, task, kTaskRow, body, needs);
    } else {
        task = entry->cookie != 0 ? task_at(entry->cookie) : lineage_to_tell(entry);
        if (!can_be_told(task)) return false;
        describe_task(entry, task, entry->cookie != 0 ? kTaskRow : kLineageRow, body, needs);
    }
    if (task != nullptr && task->actor == nullptr) {
        send_function(daemon_, task->function);
        head.function = task->function->key;
        head.shape = task->shape->id;
    }
    head.needs = uint32_t(needs.size());
    return true;
}

void Core::describe_task(Entry* entry, Task* task, RowKind kind, Buffer& body, std::vector<Entry*>& needs) {
    const auto index = std::find(task->returns.begin(), task->returns.end(), entry) - task->returns.begin();
    body.add(TaskRow{kind, uint32_t(index), task->retries, task->flags, uint32_t(task->record.size()),
                     uint32_t(task->name.size()), uint32_t(task->deps.size())});
    body.append(task->record.data(), task->record.size());
    body.append(task->name.data(), task->name.size());
    const auto need = [&](Entry* inner) {
        if (inner->owned && !inner->is_actor) needs.push_back(inner);
    };
    for (Entry* dep : task->deps) {
        need(dep);
        body.add(PackedRef{dep->id, dep->owner, dep->is_actor, 0});
    }
    std::for_each(task->nested.begin(), task->nested.end(), need);
}

void Core::erase_rows(Entry* first) {
    std::vector<Entry*> unneeded{first}, loose;
    while (!unneeded.empty()) {
        Entry* entry = unneeded.back();
        unneeded.pop_back();
        ledger_.erase(std::exchange(entry->extra->row, 0));
        for (Entry* need : std::exchange(entry->extra->row_needs, {})) {
            if (--need->extra->needed != 0) continue;
            hold(need);
            loose.push_back(need);
            if (need->extra->row != 0 && need->extra->borrowers.empty()) unneeded.push_back(need);
        }
    }
    for (Entry* entry : loose)
        drop_locked(entry);  // the row may have been all that it stayed for
    if (ledger_.rows() == 0) ledger_empty_since_ns_ = now_ns();
}

/// Its value has come while it was lent, or needed by what is.
void Core::renew_row(Entry* entry) {
    if (entry->extra->row != 0) erase_rows(entry);
    if (!entry->extra->borrowers.empty() || entry->extra->needed != 0) write_rows(entry);
}

// ---- the owner's side: what is lent to another node is known there ---------------------------------------

/// That node gets a copy of its row, and of what the row needs (CUS-4).
void Core::deposit(Entry* first, uint32_t node) {
    std::vector<Entry*> missing{first};
    while (!missing.empty()) {
        Entry* entry = missing.back();
        missing.pop_back();
        std::vector<uint32_t>& nodes = entry->more().deposits;
        if (std::find(nodes.begin(), nodes.end(), node) != nodes.end()) continue;
        nodes.push_back(node);
        if (nodes.size() == 1 && entry->extra->row != 0)
            renew_row(entry);  // now it tells of its lineage, too
        for (Entry* need : send_deposit(entry, {node}))
            missing.push_back(need);
    }
}

/// Its value has come.
void Core::deposit_again(Entry* entry) {
    const std::vector<uint32_t> nodes = entry->extra->deposits;
    for (Entry* need : send_deposit(entry, nodes))
        for (const uint32_t node : nodes)
            deposit(need, node);
}

std::vector<Entry*> Core::send_deposit(Entry* entry, const std::vector<uint32_t>& nodes) {
    std::vector<Entry*> needs;
    RowHead head{};
    Buffer body;
    if (!describe(entry, head, body, needs)) return {};
    Buffer out;
    out.add(uint32_t(nodes.size()));
    out.add(uint32_t(0));
    out.append(nodes.data(), nodes.size() * sizeof(uint32_t));
    out.add(head);
    for (const Entry* need : needs)
        out.add(need->id);
    out.append(body.data(), body.size());
    send(daemon_, Kind::DEPOSIT, out.data(), out.size());
    return needs;
}

/// The object is gone.
void Core::withdraw(Id id, const std::vector<uint32_t>& nodes) {
    Buffer out;
    out.add(id);
    out.append(nodes.data(), nodes.size() * sizeof(uint32_t));
    send(daemon_, Kind::WITHDRAW, out.data(), out.size());
}

// ---- everybody's side: the owner of something is dead ---------------------------------------------------

void Core::drain_all() {
    segment_->blocks_of(self_.slot, [this](uint32_t, uint64_t ends) {
        const uint32_t from = RingEnds(ends).from;
        if (from != self_.slot && from != kDaemonSlot) drain_peer(from);
    });
}

void Core::on_find_orphans(Cursor cursor) {
    const auto number = cursor.take<uint64_t>();
    const auto round = cursor.take<uint32_t>();
    std::vector<ProcessId> dead(cursor.take<uint32_t>());
    for (ProcessId& id : dead)
        id = cursor.take<ProcessId>();
    drain_all();
    Buffer out;
    out.add(number);
    out.add(round);
    out.add(uint32_t(0));
    for (const auto& [id, entry] : table_)
        if (!entry->owned && !entry->is_actor &&
            std::find(dead.begin(), dead.end(), entry->owner) != dead.end())
            out.add(id);
    send(daemon_, Kind::ORPHANS, out.data(), out.size());
}

void Core::on_moved(Cursor cursor) {
    const Id id = cursor.take<Id>();
    const ProcessId owner = cursor.take<ProcessId>();
    if (owner == self_) return;
    Entry* entry = find(id);
    if (entry == nullptr || entry->owned)
        return return_counts(id, owner, 1);  // it was dropped here meanwhile
    if (entry->owner != owner) {
        if (segment_->is_alive(entry->owner)) return;  // a late word of a move before
        moved_to(entry, owner);
    }
    ++entry->tokens;
    if (entry->holds.load(std::memory_order_acquire) == 0) release_entry(entry);
}

/// The counts at the owner before died with it.
void Core::moved_to(Entry* entry, ProcessId owner) {
    entry->owner = owner;
    entry->tokens = 0;
    // Before this process knew of the move it passed the ref on; those it went to are counted in and told.
    if (entry->extra)
        for (const ProcessId& late : std::exchange(entry->extra->late_lends, {})) {
            lend_ref(entry, late);
            send_moved(entry->id, owner, late);
        }
    if (std::exchange(entry->fetching, false)) fetch(entry);
}

void Core::send_moved(Id id, ProcessId owner, ProcessId to) {
    struct {
        Id id;
        ProcessId owner;
    } body{id, owner};
    send(to, Kind::MOVED, &body, sizeof body);
}

void Core::ask_where(Entry* entry) {
    struct {
        ProcessId dead;
        Id id;
    } body{entry->owner, entry->id};
    send(daemon_, Kind::ORPHAN_ASKED, &body, sizeof body);
}

/// Where an object has gone whose dead owner was named in a ref that came late.
void Core::on_orphan_answered(Cursor cursor) {
    const Id id = cursor.take<Id>();
    const bool is_found = cursor.take<uint32_t>() != 0;
    cursor.take<uint32_t>();
    const ProcessId owner = cursor.take<ProcessId>();
    Entry* entry = find(id);
    if (entry == nullptr || entry->owned || entry->is_done() || segment_->is_alive(entry->owner)) return;
    if (!is_found) return fail_orphan(entry);
    count_in(id, owner, self_);  // whoever sent the ref still holds it
    moved_to(entry, owner);
    ++entry->tokens;
}

/// What had to pass on from the dead has done so.
void Core::on_settled(Cursor cursor) {
    std::vector<ProcessId> dead(cursor.take<uint32_t>());
    const bool has_moved = cursor.take<uint32_t>() != 0;
    for (ProcessId& id : dead)
        id = cursor.take<ProcessId>();
    drain_all();
    for (const ProcessId& one : dead) {
        buried_[one.slot] = one.generation;
        bury(one, has_moved);
    }
}

/// Fail what is still its, or ask where it is; and forget what it had borrowed.
void Core::bury(ProcessId dead, bool has_moved) {
    std::vector<Entry*> orphans, unborrowed;
    for (auto& [id, entry] : table_) {
        // Each is held meanwhile: what follows from one may end another.
        if (!entry->owned && entry->owner == dead && !entry->is_done() && !entry->is_actor) {
            hold(entry);
            orphans.push_back(entry);
        }
        if (!entry->extra) continue;
        if (std::erase_if(entry->extra->borrowers, [&](auto& b) { return b.first == dead.key(); }) == 0)
            continue;
        if (!entry->extra->borrowers.empty()) continue;
        hold(entry);
        no_longer_lent(entry);
        unborrowed.push_back(entry);
    }
    for (Entry* entry : orphans) {
        if (!has_moved)
            fail_orphan(entry);
        else if (entry->fetching)
            ask_where(entry);
        drop_locked(entry);
    }
    for (Entry* entry : unborrowed)
        drop_locked(entry);
}

void Core::fail_orphan(Entry* entry) {
    char id[33];
    snprintf(id, sizeof id, "%016llx", (unsigned long long)entry->id.high);
    constexpr auto why =
        " is lost: the process that owned it died, and what it takes to make it again died with it. "
        "Return it from a task that may be retried, or keep its owner. (A call that was not answered yet "
        "is not made again with max_task_retries=0, and items of a stream are not.)";
    fail(entry, error_value(ErrorCode::owner_died, "object " + std::string(id) + why));
}

// ---- the adopter's side ---------------------------------------------------------------------------------

struct Core::AdoptedRow {
    Entry* entry;
    std::vector<ProcessId> claimants;
    uint32_t shape;
    Cursor body;
};

struct Core::Adoption {
    std::vector<AdoptedRow> rows;
    std::unordered_map<Id, Task*, IdHash> tasks;  ///< those that are run again
    std::unordered_map<Id, Task*, IdHash> kept;   ///< those that only tell how values were made
};

/// Takes all objects of a dead process over. See engine/node/custody.py for who sends this.
void Core::on_adopt(Cursor cursor) {
    const auto number = cursor.take<uint64_t>();
    const auto rows = cursor.take<uint32_t>();
    const auto functions = cursor.take<uint32_t>();
    Adoption all;
    for (uint32_t i = 0; i < functions; ++i) {
        const auto bytes = cursor.take<uint32_t>();
        cursor.take<uint32_t>();
        Cursor record(cursor.skip(bytes), bytes);
        const auto key = record.take<uint64_t>();
        define_function(key, std::string(record.rest()));
    }
    for (uint32_t i = 0; i < rows; ++i) {
        const Id id = cursor.take<Id>();
        std::vector<ProcessId> claimants(cursor.take<uint32_t>());
        const auto bytes = cursor.take<uint32_t>();
        const auto shape = cursor.take<uint32_t>();
        cursor.take<uint32_t>();
        for (ProcessId& claimant : claimants)
            claimant = cursor.take<ProcessId>();
        const char* body = cursor.skip(bytes);
        all.rows.push_back({own_from_now(id), std::move(claimants), shape, Cursor(body, bytes)});
    }
    for (const AdoptedRow& row : all.rows)
        adopt_row(all, row);
    for (auto& [id, task] : all.kept)
        keep(task);
    for (auto& [id, task] : all.tasks) {
        if (task->actor == nullptr) {
            submit(task);
            continue;
        }
        task->actor_entry = weak_actor(task->actor->id);
        hold(task->actor_entry);
        submit_call(task, task->actor_entry);
    }
    for (AdoptedRow& row : all.rows) {
        if (row.entry->extra) {
            const std::vector<ProcessId> late = std::exchange(row.entry->extra->late_lends, {});
            row.claimants.insert(row.claimants.end(), late.begin(), late.end());
        }
        for (const ProcessId& claimant : row.claimants) {
            if (claimant == self_) continue;
            add_borrower(row.entry, claimant, 1);
            send_moved(row.entry->id, self_, claimant);
        }
    }
    for (const AdoptedRow& row : all.rows)
        drop_locked(row.entry);
    adopted_.push_back(number);
    confirm_adoptions();
}

/// Once all that were told will hear of it before the daemon's word reaches them.
void Core::confirm_adoptions() {
    if (adopted_.empty() || !channels_.is_flushed()) return;
    for (const uint64_t number : std::exchange(adopted_, {}))
        send(daemon_, Kind::ADOPTED, &number, sizeof number);
}

/// The entry, owned here and held once more.
Entry* Core::own_from_now(Id id) {
    Entry* entry = find(id);
    if (entry == nullptr) {
        entry = new_entry(id);
        escape(entry);
    } else if (!entry->owned) {
        entry->owned = true;
        entry->owner = self_;
        entry->tokens = 0;
        entry->fetching = false;
        --borrowed_;
        ++owned_;
    }
    hold(entry);
    return entry;
}

void Core::adopt_row(Adoption& all, const AdoptedRow& row) {
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
    if (value.where == Where::arena) memcpy(&arena, data, sizeof arena), arena_.adopt(arena);
    if (entry->is_done()) {
        for (Entry* inner : nested)
            drop_locked(inner);
        if (value.where == Where::arena && is_lost_in_arena(entry)) entry->arena = arena;
    } else {
        publish_inner(entry, std::move(nested));
        complete(entry, value.where, value.where == Where::arena ? nullptr : data,
                 value.where == Where::arena ? 0 : value.bytes, arena);
    }
    if (has_lineage && entry->where == Where::arena && entry->lineage == nullptr && entry->flushed == 0)
        adopt_task(all, row, body);
}

/// A task that is to be run, or that is kept as the lineage of what it made.
void Core::adopt_task(Adoption& all, const AdoptedRow& row, Cursor body) {
    Entry* entry = row.entry;
    const auto about = body.take<TaskRow>();
    const bool is_lineage = about.kind == kLineageRow || entry->is_done();
    if (entry->is_done() && entry->where != Where::arena) return;
    const char* record = body.skip(about.record_bytes);
    TaskHeader header;
    memcpy(&header, record, sizeof header);
    if (about.retries == 0) {
        if (!entry->is_done())
            fail(entry,
                 error_value(ErrorCode::owner_died,
                             "the process that had submitted its task died, and the task may not be run "
                             "again (max_retries=0)"));
        return;
    }
    const bool is_call = !header.actor.is_nil();
    if (!is_call && (function(header.function) == nullptr || row.shape == 0)) {  // it died before it was told
        if (!entry->is_done()) fail_orphan(entry);
        return;
    }
    Task*& task = (is_lineage ? all.kept : all.tasks)[header.task];
    if (task == nullptr) {
        task = new_task();
        task->id = header.task;
        task->record.append(record, about.record_bytes);
        if (!is_lineage) ++task->header().attempt;
        task->name = body.text(about.name_bytes);
        if (is_call) {
            task->actor = link(header.actor);
        } else {
            task->function = function(header.function);
            task->shape = shape(row.shape);
        }
        task->flags = about.flags;
        task->retries = about.retries > 0 && !is_lineage ? about.retries - 1 : about.retries;
        task->parent = root;
        task->returns.assign(header.returns, nullptr);
        for (uint32_t i = 0; i < about.deps; ++i)
            task->deps.push_back(take_over(body.take<PackedRef>()));
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
    hold(entry);
    task->returns.at(about.return_index) = entry;
}

/// A ref that the dead one had: to what is adopted with it, or to what it had borrowed itself. Held.
Entry* Core::take_over(const PackedRef& ref) {
    Entry* entry = find(ref.id);
    if (entry == nullptr) {
        const bool is_lost = ref.owner.slot == kDaemonSlot && ref.is_actor == 0;
        const bool counted = ref.owner.slot != kDaemonSlot && ref.owner != self_;
        entry = borrow(ref.id, ref.owner, ref.is_actor != 0, counted ? 1 : 0);
        if (counted) count_in(ref.id, ref.owner, self_);
        if (is_lost) fail_orphan(entry);
    }
    hold(entry);
    return entry;
}

}  // namespace weft
