#include "lineage.hpp"

#include "actor_links.hpp"
#include "borrowing.hpp"
#include "flushing.hpp"
#include "kept_inputs.hpp"
#include "lent_rows.hpp"
#include "objects.hpp"
#include "streams.hpp"
#include "submitter.hpp"
#include "tasks.hpp"

namespace weft {

size_t lineage_bytes(const Task* task) {
    return sizeof(Task) + task->record.size() + task->name.size() +
           sizeof(Entry) *
               (task->deps.size() + task->nested.size() + task->returns.size() + task->items.size());
}

std::string lost_for_good() {
    return error_value(
        ErrorCode::reconstruction_failed,
        "its bytes are gone with the node or the process that had them, and what made it cannot "
        "be run again: put(), a task with max_retries=0, or a method with max_task_retries=0. Return it from "
        "a task that may be retried, or let the method be.");
}

std::string Lineage::why_lost(const Entry* entry) const {
    if (entry->extra && entry->extra->unmakeable) return of_item(entry, *entry->extra->unmakeable);
    if (entry->flushed == 0) return lost_for_good();
    return error_value(ErrorCode::reconstruction_failed,
                       "its bytes are gone with the node or the process that had them, and what made it is "
                       "forgotten: it was too old to stay in memory, and " +
                           flushing_.why_forgotten() + ".");
}

bool Lineage::can_make_again(const Task* task) const {
    if (task->retries == 0 || task->cancelled) return false;
    if ((task->flags & kIsCreation) != 0) return false;
    if (!task->items.empty()) return true;
    for (const Entry* entry : task->returns)
        if (entry != nullptr && entry->where == Where::arena) return true;
    return false;
}

void Lineage::keep(Task* task) {
    ++task->generation;
    task->lease = nullptr;
    task->missing = 0;
    // The actor need not live on for the sake of what it has returned.
    if (task->actor_entry != nullptr) objects_.drop_locked(std::exchange(task->actor_entry, nullptr));
    for (Entry* entry : task->deps)
        hold_as_lineage(entry);
    for (Entry* entry : task->nested)
        hold_as_lineage(entry);
    const std::vector<Entry*> returns = task->returns;
    task->kept_for = 1;  // until all have been looked at
    for (size_t i = 0; i < returns.size(); ++i) {
        Entry* entry = returns[i];
        if (entry == nullptr) continue;
        entry->cookie = 0;
        if (entry->where == Where::arena || !entry->is_done()) {
            entry->lineage = task;
            ++task->kept_for;
        } else {
            entry->lineage = nullptr;
            task->returns[i] = nullptr;
        }
        objects_.drop_locked(entry);
    }
    for (auto& [index, item] : task->items)
        item->cookie = 0;
    task->kept_for += uint32_t(task->items.size());
    count_kept(task);
    if (--task->kept_for == 0) forget_kept(task);
    flushing_.lineage_has_grown();
}

void Lineage::count_kept(Task* task) {
    ++kept_count_;
    kept_bytes_ += lineage_bytes(task);
    if (kept_.size() > 2 * kept_count_ + 64)
        std::erase_if(kept_, [this](uint64_t cookie) { return tasks_.task_at(cookie) == nullptr; });
    kept_.push_back(task->cookie());
}

void Lineage::uncount_kept(Task* task) {
    --kept_count_;
    kept_bytes_ -= lineage_bytes(task);
}

Task* Lineage::take_oldest() {
    Task* task = tasks_.task_at(kept_.front());
    kept_.pop_front();
    return task;
}

void Lineage::forget_return(Entry* entry) {
    Task* task = entry->lineage;
    entry->lineage = nullptr;
    if (task->flags & kStreaming) {
        task->items.erase(item_index(entry));
        if (task->kept_for != 0) kept_bytes_ -= sizeof(Entry);
    } else {
        std::replace(task->returns.begin(), task->returns.end(), entry, static_cast<Entry*>(nullptr));
    }
    if (task->kept_for != 0 && --task->kept_for == 0) forget_kept(task);
}

/// Nothing that it made is left.
void Lineage::forget_kept(Task* task) {
    uncount_kept(task);
    std::vector<Entry*>& unneeded = objects_.unneeded();
    unneeded.insert(unneeded.end(), task->deps.begin(), task->deps.end());
    unneeded.insert(unneeded.end(), task->nested.begin(), task->nested.end());
    task->deps.clear();
    task->nested.clear();
    task->returns.clear();
    submitter_.finish_task(task);
    objects_.drop_rest();
}

void Lineage::hold_as_lineage(Entry* entry) {
    ++entry->lineage_holds;
    objects_.drop_locked(entry);
}

void Lineage::drop_lineage(Entry* entry) {
    if (--entry->lineage_holds == 0 && entry->holds.load(std::memory_order_acquire) == 0)
        objects_.release_entry(entry);
}

void Lineage::evict(Entry* entry) {
    if (entry->owned && entry->where != Where::arena) return;  // small: it is its own lineage
    const bool can_be_made =
        entry->flushed != 0 || (entry->lineage != nullptr && entry->lineage->retries != 0);
    if (entry->owned && !can_be_made && inputs_.keep_input(entry)) return;
    objects_.let_value_go(entry);
}

bool Lineage::recover(Entry* entry, const ArenaRef& lost) {
    if (!entry->is_done()) return true;  // it is being made again
    if (entry->where != Where::arena) return entry->where != Where::error;
    if (entry->arena.entry != lost.entry || entry->arena.generation != lost.generation) return true;
    if (endpoint_.is_lost() || (entry->owned && flushing_.lineage_of(entry) == nullptr)) return false;
    rebuild(entry);
    return true;
}

void Lineage::want(Entry* entry) {
    if (entry->owned && (is_unmade(entry) || objects_.is_lost_in_arena(entry))) rebuild(entry);
}

void Lineage::rebuild(Entry* first) {
    std::vector<Entry*> missing{first};
    while (!missing.empty()) {
        Entry* entry = missing.back();
        missing.pop_back();
        if (entry->where == Where::none && (entry->cookie != 0 || entry->fetching)) continue;  // on its way
        entry->value.reset();
        entry->where = Where::none;
        entry->state.store(ObjectState::pending, std::memory_order_release);
        if (!entry->owned) {
            if (entry->tokens == 0 && entry->owner.slot != kDaemonSlot) {
                entry->tokens = 1;
                borrowing_.count_in(entry->id, entry->owner, endpoint_.self);
            }
            entry->fetching = false;
            borrowing_.fetch(entry);
        } else if (Task* task = flushing_.lineage_of(entry)) {
            if (task->flags & kStreaming) entry->cookie = task->cookie();  // of its items only these are made
            if (task->kept_for != 0)
                run_again(task, missing);
            else
                streams_.item_lost(task, entry);
        } else {
            objects_.fail(entry, why_lost(entry));
        }
    }
}

/// A kept task becomes a task like any other. What it needs and is not there goes to `missing`.
void Lineage::run_again(Task* task, std::vector<Entry*>& missing) {
    ++rebuilt_;
    uncount_kept(task);
    task->kept_for = 0;
    ++task->generation;
    task->header().cookie = task->cookie();
    ++task->header().attempt;
    if (task->retries > 0) --task->retries;
    streams_.want_items(task);
    for (Entry* entry : task->returns) {
        if (entry == nullptr) continue;
        hold(entry);
        entry->lineage = nullptr;
        entry->cookie = task->cookie();
        if (objects_.is_lost_in_arena(entry)) {
            entry->where = Where::none;
            entry->state.store(ObjectState::pending, std::memory_order_release);
        }
    }
    for (Entry* entry : task->returns)
        if (entry != nullptr && entry->extra && entry->extra->row != 0) rows_.renew_row(entry);
    const auto take_back = [&](Entry* entry) {
        hold(entry);
        --entry->lineage_holds;
        if ((!entry->is_done() && entry->cookie == 0 && !entry->fetching) || objects_.is_lost_in_arena(entry))
            missing.push_back(entry);
    };
    std::for_each(task->deps.begin(), task->deps.end(), take_back);
    std::for_each(task->nested.begin(), task->nested.end(), take_back);
    // Those in `missing` are pending from now on, so that the task waits for them.
    for (Entry* entry : missing) {
        if (entry->is_done()) entry->state.store(ObjectState::pending, std::memory_order_release);
        entry->where = Where::none;
    }
    if (ActorLink* actor = task->actor) {
        if (actor->state == ActorLink::dead) return submitter_.fail_task(task, std::string(actor->death));
        actors_.watch(actor, endpoint_.daemon);  // an heir to what it returned may never have called it
        actor->queue.push_back(task);
    }
    submitter_.wait_for_arguments(task);
}

}  // namespace weft
