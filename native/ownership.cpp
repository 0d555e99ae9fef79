/// Objects: who owns them, who borrows them, and when they go (OWN-1 to OWN-3).
#include <algorithm>

#include "core.hpp"

namespace weft {

Entry* Core::new_entry(Id id) {
    Entry* entry;
    if (free_entries_.empty()) {
        entry = &entries_.emplace_back();
    } else {
        entry = free_entries_.back();
        free_entries_.pop_back();
    }
    entry->id = id;
    entry->owner = self_;
    ++owned_;
    return entry;
}

Entry* Core::find(Id id) {
    const auto it = table_.find(id);
    return it == table_.end() ? nullptr : it->second;
}

void Core::escape(Entry* entry) {
    if (entry->in_table) return;
    // An uncounted token of an actor of this very process stays beside the counted entry.
    entry->in_table = table_.emplace(entry->id, entry).second;
}

Entry* Core::borrow(Id id, ProcessId owner, bool is_actor, uint32_t tokens) {
    Entry* entry = find(id);
    if (entry == nullptr) {
        entry = new_entry(id);
        --owned_;
        ++borrowed_;
        entry->owned = false;
        entry->owner = owner;
        entry->is_actor = is_actor;
        escape(entry);
    }
    if (entry->owned) return entry;
    if (!is_actor && entry->owner != owner) {
        if (!segment_->is_alive(owner))
            return entry;  // the count died with it; the one that moved it gave another
        moved_to(entry, owner);
    }
    entry->tokens += tokens;
    return entry;
}

Entry* Core::weak_actor(Id id) {
    if (Entry* known = find(id); known == nullptr || !known->owned)
        return borrow(id, {kDaemonSlot, daemon_.generation}, true, 0);
    Entry* entry = new_entry(id);
    --owned_;
    ++borrowed_;
    entry->owned = false;
    entry->owner = daemon_;
    entry->is_actor = true;
    return entry;
}

void Core::drop(Entry* entry) {
    // The last one goes under the mutex: who sees none there knows that nobody else is about to act on it.
    uint32_t holds = entry->holds.load(std::memory_order_relaxed);
    while (holds > 1)
        if (entry->holds.compare_exchange_weak(holds, holds - 1, std::memory_order_acq_rel)) return;
    std::lock_guard lock(mutex_);
    drop_locked(entry);
}

void Core::drop_locked(Entry* entry) {
    if (entry->holds.fetch_sub(1, std::memory_order_acq_rel) == 1) release_entry(entry);
}

/// No hold is left here; free it unless a borrower counts on it, or a row names it.
void Core::release_entry(Entry* entry) {
    if (entry->owned && entry->extra && !entry->extra->borrowers.empty()) return;
    if (!entry->owned && entry->tokens != 0) {
        return_counts(entry->id, entry->owner, std::exchange(entry->tokens, 0));
    }
    if (entry->lineage_holds != 0 || (entry->extra && entry->extra->needed != 0)) return evict(entry);
    if (entry->is_input) forget_input(entry);
    if (entry->owned) {
        if (entry->is_actor) send(daemon_, Kind::ACTOR_DROP, &entry->id, sizeof entry->id);
        if (entry->where == Where::arena) arena_.remove(entry->arena);
        if (entry->lineage != nullptr) forget_return(entry);
        if (entry->flushed != 0) forget_flushed(entry);
        --owned_;
    } else {
        --borrowed_;
    }
    finish_entry(entry);
}

void Core::finish_entry(Entry* entry) {
    if (entry->in_table) table_.erase(entry->id);
    std::unique_ptr<EntryExtra> extra = std::move(entry->extra);
    entry->holds.store(0);
    entry->state.store(uint8_t(ObjectState::pending));
    entry->owned = true;
    entry->in_table = entry->fetching = entry->is_actor = entry->marked = false;
    entry->where = Where::none;
    entry->tokens = 0;
    entry->cookie = 0;
    entry->lineage = nullptr;
    entry->value.reset();
    free_entries_.push_back(entry);
    if (!extra) return drop_rest();
    if (!extra->deposits.empty()) withdraw(entry->id, extra->deposits);
    for (PyObject* callback : extra->callbacks)
        push_event({0xffff, {}, callback});
    for (PyObject* callback : extra->on_freed)
        push_event({0xffff, {}, callback});
    dropped_.insert(dropped_.end(), extra->nested.begin(), extra->nested.end());
    if (extra->stream)
        dropped_.insert(dropped_.end(), extra->stream->items.begin(), extra->stream->items.end());
    drop_rest();
}

void Core::drop_rest() {
    if (std::exchange(is_dropping_, true)) return;
    while (!dropped_.empty() || !unneeded_.empty()) {
        std::vector<Entry*>& from = dropped_.empty() ? unneeded_ : dropped_;
        Entry* inner = from.back();
        from.pop_back();
        if (&from == &dropped_)
            drop_locked(inner);
        else
            drop_lineage(inner);
    }
    is_dropping_ = false;
}

void Core::complete(Entry* entry, Where where, const char* data, size_t bytes, const ArenaRef& arena) {
    if (entry->is_done()) {
        if (where == Where::arena && entry->owned) arena_.remove(arena);
        return;
    }
    entry->where = where;
    if (where == Where::arena)
        entry->arena = arena;
    else
        entry->value.assign(data, bytes);
    const auto state = where == Where::error ? ObjectState::failed : ObjectState::ready;
    entry->state.store(uint8_t(state), std::memory_order_release);  // partner: Entry::is_done
    if (where == Where::error) failures.fetch_add(1, std::memory_order_release);
    if (entry->marked) marked_done.fetch_add(1, std::memory_order_release);
    if (!entry->extra) return;
    if (entry->extra->row != 0 || entry->extra->needed != 0 || !entry->extra->borrowers.empty())
        renew_row(entry);
    if (!entry->extra->deposits.empty()) deposit_again(entry);
    std::vector<Task*> dependents = std::move(entry->extra->dependents);
    std::vector<ProcessId> wanters = std::move(entry->extra->wanters);
    std::vector<PyObject*> callbacks = std::move(entry->extra->callbacks);
    entry->extra->dependents.clear();
    entry->extra->wanters.clear();
    entry->extra->callbacks.clear();
    for (PyObject* callback : callbacks)
        push_event({0xffff, {}, callback});
    for (const ProcessId& wanter : wanters) {
        Buffer out;
        out.add(entry->id);
        pack_value(out, entry, wanter);
        send(wanter, Kind::VALUE, out.data(), out.size());
    }
    for (Task* task : dependents)
        unblocked_.push_back(task->cookie());
    if (std::exchange(is_unblocking_, true)) return;
    while (!unblocked_.empty()) {
        Task* task = task_at(unblocked_.front());
        unblocked_.pop_front();
        if (task != nullptr) dependency_done(task);  // else it ended meanwhile
    }
    is_unblocking_ = false;
}

void Core::fail(Entry* entry, std::string_view error) {
    complete(entry, Where::error, error.data(), error.size(), {});
}

void Core::fetch(Entry* entry) {
    if (entry->owned || entry->fetching || entry->is_done()) return;
    entry->fetching = true;
    if (is_lost()) return fail(entry, node_lost_error());
    if (!segment_->is_alive(entry->owner)) return ask_where(entry);  // it moves to another, or is lost
    send(entry->owner, Kind::WANT, &entry->id, sizeof entry->id);
}

void Core::add_borrower(Entry* entry, ProcessId borrower, int64_t count) {
    auto& list = entry->more().borrowers;
    const auto it =
        std::find_if(list.begin(), list.end(), [&](auto& b) { return b.first == borrower.key(); });
    if (it == list.end()) {
        // Whoever shares a ring with it hears of its death; of one that is dead already nobody would.
        if (!channels_.knows(borrower) && !channels_.send(borrower, Kind::ACQUAINT, nullptr, 0)) return;
        list.emplace_back(borrower.key(), count);
        const uint32_t node = segment_->slot(borrower.slot).node.load(std::memory_order_acquire);
        if (node != 0 && !entry->is_actor) deposit(entry, node - 1);
        if (list.size() == 1) became_lent(entry);
        return;
    }
    it->second += count;
    if (it->second != 0) return;
    list.erase(it);
    if (list.empty()) no_longer_lent(entry);
    if (list.empty() && entry->holds.load(std::memory_order_acquire) == 0) release_entry(entry);
}

void Core::tell_lending() {
    std::lock_guard lock(mutex_);
    const uint32_t lends = lent_out_ != 0 ? 1 : 0;
    if (told_lending_ == (lends != 0)) return;
    told_lending_ = lends != 0;
    send(daemon_, Kind::LENDS_OBJECTS, &lends, sizeof lends);
}

void Core::lend_ref(Entry* entry, ProcessId to) {
    escape(entry);
    if (entry->owned) {
        add_borrower(entry, to, 1);
    } else if (!segment_->is_alive(entry->owner)) {
        if (entry->owner != to && buried_[entry->owner.slot] != entry->owner.generation)
            entry->more().late_lends.push_back(to);
    } else if (entry->owner != to && entry->owner.slot != kDaemonSlot) {
        count_in(entry->id, entry->owner, to);
    }
}

void Core::count_in(Id id, ProcessId owner, ProcessId borrower) {
    struct {
        Id id;
        ProcessId borrower;
    } body{id, borrower};
    send(owner, Kind::BORROW_ADD, &body, sizeof body);
}

void Core::return_counts(Id id, ProcessId owner, uint64_t count) {
    struct {
        Id id;
        uint64_t count;
    } body{id, count};
    send(owner, Kind::BORROW_RELEASE, &body, sizeof body);
}

/// Appends the value as `to` shall see it: header, the refs inside it, the data or where it lies.
void Core::pack_value(Buffer& out, Entry* entry, ProcessId to) {
    const auto nested = entry->extra ? uint32_t(entry->extra->nested.size()) : 0u;
    const bool in_arena = entry->where == Where::arena;
    out.add(PackedValue{entry->where, nested, in_arena ? sizeof(ArenaRef) : entry->value.size()});
    for (uint32_t i = 0; i < nested; ++i) {
        Entry* inner = entry->extra->nested[i];
        if (to.slot != kDaemonSlot) lend_ref(inner, to);
        out.add(PackedRef{inner->id, inner->owner, inner->is_actor, 0});
    }
    if (in_arena)
        out.add(entry->arena);
    else
        out.append(entry->value.data(), entry->value.size());
}

/// Takes over refs that came in a record; each is held once for the caller.
std::vector<Entry*> Core::unpack_refs(Cursor& cursor, uint32_t count, bool self_borrow) {
    std::vector<Entry*> refs;
    refs.reserve(count);
    for (uint32_t i = 0; i < count; ++i) {
        const PackedRef ref = cursor.take<PackedRef>();
        const bool counted = ref.owner.slot != kDaemonSlot && ref.owner != self_;
        Entry* entry = borrow(ref.id, ref.owner, ref.is_actor != 0, counted ? 1 : 0);
        hold(entry);
        refs.push_back(entry);
        if (self_borrow && counted) count_in(ref.id, ref.owner, self_);
    }
    return refs;
}

void Core::publish_inner(Entry* entry, std::vector<Entry*> nested) {
    if (nested.empty()) return;
    for (Entry* inner : nested)
        escape(inner);  // the value names them by id
    auto& list = entry->more().nested;
    list.insert(list.end(), nested.begin(), nested.end());
}

/// Returns what came in values that nobody waits for: the counts of refs, and memory if it would have been
/// ours.
void Core::discard_values(Cursor& cursor, uint32_t count, bool owns_memory) {
    for (uint32_t i = 0; i < count; ++i) {
        const auto value = cursor.take<PackedValue>();
        for (Entry* inner : unpack_refs(cursor, value.nested, false))
            drop_locked(inner);
        const char* data = cursor.skip(value.bytes);
        if (value.where != Where::arena || !owns_memory) continue;
        ArenaRef arena;
        memcpy(&arena, data, sizeof arena);
        arena_.remove(arena);
    }
}

/// Returns the counts of the refs that came with a task which will not run here.
void Core::discard_task(const Incoming& incoming) {
    Cursor cursor(incoming.bytes.data(), incoming.bytes.size());
    const auto header = cursor.take<TaskHeader>();
    if (header.flags & kSelfBorrow) return;  // it was not counted in
    cursor.skip(header.static_bytes - header.nested * sizeof(PackedRef));
    for (Entry* entry : unpack_refs(cursor, header.nested, false))
        drop_locked(entry);
    discard_values(cursor, header.deps, false);
}

void Core::on_value(Cursor cursor) {
    const Id id = cursor.take<Id>();
    const auto value = cursor.take<PackedValue>();
    std::vector<Entry*> nested = unpack_refs(cursor, value.nested, false);
    Entry* entry = find(id);
    if (entry == nullptr || entry->is_done()) {
        for (Entry* inner : nested)
            drop_locked(inner);
        return;
    }
    publish_inner(entry, std::move(nested));
    switch (value.where) {
        case Where::arena:
            return complete(entry, Where::arena, nullptr, 0, cursor.take<ArenaRef>());
        case Where::inlined:
        case Where::error:
            return complete(entry, value.where, cursor.rest().data(), value.bytes, {});
        default:
            return fail(
                entry,
                error_value(ErrorCode::object_lost,
                            "its owner no longer knows the object: every counted reference was dropped "
                            "before this one was read"));
    }
}

}  // namespace weft
