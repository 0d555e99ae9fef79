#include "objects.hpp"

#include <algorithm>

#include "borrowing.hpp"
#include "flushing.hpp"
#include "kept_inputs.hpp"
#include "lent_rows.hpp"
#include "lineage.hpp"
#include "submitter.hpp"

namespace weft {

Entry* Objects::new_entry(Id id) {
    Entry* entry = entries_.take();
    entry->id = id;
    entry->owner = endpoint_.self;
    ++owned_;
    return entry;
}

Entry* Objects::new_borrowed(Id id, ProcessId owner, bool is_actor) {
    Entry* entry = entries_.take();
    entry->id = id;
    entry->owned = false;
    entry->owner = owner;
    entry->is_actor = is_actor;
    ++borrowed_;
    return entry;
}

Entry* Objects::own_from_now(Id id) {
    Entry* entry = find(id);
    if (entry == nullptr) {
        entry = new_entry(id);
        escape(entry);
    } else if (!entry->owned) {
        entry->owned = true;
        entry->owner = endpoint_.self;
        entry->tokens = 0;
        entry->fetching = false;
        --borrowed_;
        ++owned_;
    }
    hold(entry);
    return entry;
}

Entry* Objects::find(Id id) {
    const auto it = table_.find(id);
    return it == table_.end() ? nullptr : it->second;
}

void Objects::escape(Entry* entry) {
    if (entry->in_table) return;
    // An uncounted token of an actor of this very process stays beside the counted entry.
    entry->in_table = table_.emplace(entry->id, entry).second;
}

void Objects::step_aside(Entry* entry) {
    if (std::exchange(entry->in_table, false)) table_.erase(entry->id);
}

void Objects::drop(Entry* entry) {
    // The last one goes under the mutex: who sees none there knows that nobody else is about to act on it.
    uint32_t holds = entry->holds.load(std::memory_order_relaxed);
    while (holds > 1)
        if (entry->holds.compare_exchange_weak(holds, holds - 1, std::memory_order_acq_rel)) return;
    if (endpoint_.is_closed()) return;  // all that it had goes with its slot, which may be another's by now
    std::lock_guard lock(endpoint_.mutex);
    drop_locked(entry);
}

void Objects::drop_locked(Entry* entry) {
    // Who has the last one, and the mutex, is alone with it.
    if (entry->holds.load(std::memory_order_acquire) == 1)
        entry->holds.store(0, std::memory_order_relaxed);
    else if (entry->holds.fetch_sub(1, std::memory_order_acq_rel) != 1)
        return;
    release_entry(entry);
}

void Objects::release_entry(Entry* entry) {
    if (entry->owned && entry->extra && !entry->extra->borrowers.empty()) return;
    if (!entry->owned && entry->tokens != 0) {
        borrowing_.return_counts(entry->id, entry->owner, std::exchange(entry->tokens, 0));
    }
    if (entry->lineage_holds != 0 || (entry->extra && entry->extra->needed != 0))
        return lineage_.evict(entry);
    if (entry->is_input) inputs_.forget_input(entry);
    if (entry->owned) {
        if (entry->is_actor) endpoint_.send_daemon(Kind::ACTOR_DROP, &entry->id, sizeof entry->id);
        if (entry->where == Where::arena) endpoint_.arena.remove(entry->arena);
        if (entry->lineage != nullptr) lineage_.forget_return(entry);
        if (entry->flushed != 0) flushing_.forget_flushed(entry);
        --owned_;
    } else {
        --borrowed_;
    }
    finish_entry(entry);
}

void Objects::finish_entry(Entry* entry) {
    if (entry->in_table) table_.erase(entry->id);
    std::unique_ptr<EntryExtra> extra = std::move(entry->extra);
    entry->holds.store(0, std::memory_order_relaxed);  // nobody has it: who gets it next is told by the mutex
    entry->state.store(ObjectState::pending, std::memory_order_relaxed);
    entry->owned = true;
    entry->in_table = entry->fetching = entry->is_actor = entry->marked = false;
    entry->where = Where::none;
    entry->tokens = 0;
    entry->cookie = entry->dependent = 0;
    entry->lineage = nullptr;
    entry->value.reset();
    entries_.give_back(entry);
    if (!extra) return drop_rest();
    if (!extra->deposits.empty() || extra->is_inherited) rows_.withdraw(entry->id, extra->deposits);
    for (PyObject* callback : extra->callbacks)
        endpoint_.push_event({0xffff, {}, callback});
    for (PyObject* callback : extra->on_freed)
        endpoint_.push_event({0xffff, {}, callback});
    dropped_.insert(dropped_.end(), extra->nested.begin(), extra->nested.end());
    if (extra->stream) {
        dropped_.insert(dropped_.end(), extra->stream->items.begin(), extra->stream->items.end());
        for (PyObject* callback : extra->stream->callbacks)
            endpoint_.push_event({0xffff, {}, callback});
    }
    drop_rest();
}

void Objects::drop_rest() {
    if (std::exchange(is_dropping_, true)) return;
    while (!dropped_.empty() || !unneeded_.empty()) {
        std::vector<Entry*>& from = dropped_.empty() ? unneeded_ : dropped_;
        Entry* inner = from.back();
        from.pop_back();
        if (&from == &dropped_)
            drop_locked(inner);
        else
            lineage_.drop_lineage(inner);
    }
    is_dropping_ = false;
}

void Objects::let_value_go(Entry* entry) {
    if (entry->owned) endpoint_.arena.remove(entry->arena);
    entry->value.reset();
    entry->where = Where::none;
    entry->fetching = false;
    entry->state.store(ObjectState::pending, std::memory_order_release);
    if (!entry->extra) return;
    dropped_.insert(dropped_.end(), entry->extra->nested.begin(), entry->extra->nested.end());
    entry->extra->nested.clear();
    drop_rest();
}

void Objects::complete(Entry* entry, Where where, const char* data, size_t bytes, const ArenaRef& arena) {
    if (entry->is_done()) {
        if (where == Where::arena && entry->owned) endpoint_.arena.remove(arena);
        return;
    }
    entry->where = where;
    if (where == Where::arena)
        entry->arena = arena;
    else
        entry->value.assign(data, bytes);
    const auto state = where == Where::error   ? ObjectState::failed
                       : where == Where::arena ? ObjectState::in_arena
                                               : ObjectState::inlined;
    entry->state.store(state, std::memory_order_release);  // partner: Entry::now
    if (where == Where::error) failures.fetch_add(1, std::memory_order_release);
    if (entry->marked) marked_done.fetch_add(1, std::memory_order_release);
    const uint64_t dependent = std::exchange(entry->dependent, 0);
    if (!entry->extra) return submitter_.unblock(dependent, {});
    if (entry->extra->row != 0 || entry->extra->needed != 0 || !entry->extra->borrowers.empty())
        rows_.renew_row(entry);
    if (!entry->extra->deposits.empty()) rows_.deposit_again(entry);
    const std::vector<uint64_t> dependents = std::move(entry->extra->dependents);
    std::vector<ProcessId> wanters = std::move(entry->extra->wanters);
    std::vector<PyObject*> callbacks = std::move(entry->extra->callbacks);
    entry->extra->dependents.clear();
    entry->extra->wanters.clear();
    entry->extra->callbacks.clear();
    for (PyObject* callback : callbacks)
        endpoint_.push_event({0xffff, {}, callback});
    for (const ProcessId& wanter : wanters)
        if (endpoint_.segment.is_alive(wanter)) borrowing_.send_value(entry, wanter);
    submitter_.unblock(dependent, dependents);
}

void Objects::fail(Entry* entry, std::string_view error) {
    complete(entry, Where::error, error.data(), error.size(), {});
}

void Objects::on_promise_kept(Id id) {
    if (Entry* promise = find(id); promise != nullptr && promise->owned)
        complete(promise, Where::inlined, "N", 1, {});  // None, as a plain value
}

void Objects::fail_pending(const std::string& error) {
    std::vector<Entry*> pending;
    for (auto& [id, entry] : table_)
        if (!entry->is_done() && !entry->is_actor) {
            hold(entry);  // one that fails may end another
            pending.push_back(entry);
        }
    for (Entry* entry : pending) {
        fail(entry, error);
        drop_locked(entry);
    }
}

void Objects::publish_inner(Entry* entry, std::vector<Entry*> nested) {
    if (nested.empty()) return;
    for (Entry* inner : nested)
        escape(inner);  // the value names them by id
    auto& list = entry->more().nested;
    list.insert(list.end(), nested.begin(), nested.end());
}

bool Objects::is_lost_in_arena(const Entry* entry) const {
    if (entry->where != Where::arena) return false;
    const EntryWord word = word_of(endpoint_.segment, entry->arena.entry);
    return word.has(EntryWord::kDeleted) || word.generation() != entry->arena.generation;
}

}  // namespace weft
