/// Lineage: what it takes to make an object again when the node that had its bytes is gone (LIN-1, LIN-2).
///
/// Only values in the arena can be lost while their owner lives: those that are small are in its own memory.
/// So a task is kept only for returns that are in the arena. It keeps its arguments' entries, and not their
/// values where those can be made again: such a value is freed when nobody else needs it. flushing.cpp takes
/// what is old to disk.
#include <algorithm>

#include "core.hpp"

namespace weft {

size_t lineage_bytes(const Task* task) {
    return sizeof(Task) + task->record.size() + task->name.size() +
           sizeof(Entry) * (task->deps.size() + task->nested.size() + task->returns.size());
}

std::string Core::lost_for_good() {
    return error_value(
        ErrorCode::reconstruction_failed,
        "its bytes are gone with the node or the process that had them, and what made it can not "
        "be run again: put(), a task with max_retries=0, or a method with max_task_retries=0. Return it from "
        "a task that may be retried, or let the method be.");
}

std::string Core::why_lost(const Entry* entry) const {
    if (entry->flushed == 0) return lost_for_good();
    const std::string why = lineage_file_.trouble().empty()
                                ? "no more than " + std::to_string(lineage_file_.most_bytes()) +
                                      " bytes of it may be on disk "
                                      "(WEFT_LINEAGE_DISK)"
                                : "it could not be kept on disk (" + lineage_file_.trouble() + ")";
    return error_value(ErrorCode::reconstruction_failed,
                       "its bytes are gone with the node or the process that had them, and what made it is "
                       "forgotten: it was too old to stay in memory, and " +
                           why + ".");
}

bool Core::can_make_again(const Task* task) const {
    if (task->retries == 0 || task->cancelled) return false;
    if ((task->flags & (kIsCreation | kStreaming)) != 0) return false;
    return std::any_of(task->returns.begin(), task->returns.end(),
                       [](const Entry* entry) { return entry && entry->where == Where::arena; });
}

/// The task is over, and stays as the lineage of what it made.
void Core::keep(Task* task) {
    ++task->generation;
    task->lease = nullptr;
    task->missing = 0;
    // The actor need not live on for the sake of what it has returned.
    if (task->actor_entry != nullptr) drop_locked(std::exchange(task->actor_entry, nullptr));
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
        drop_locked(entry);
    }
    ++kept_count_;
    kept_bytes_ += lineage_bytes(task);
    if (kept_.size() > 2 * kept_count_ + 64)
        std::erase_if(kept_, [this](uint64_t cookie) { return task_at(cookie) == nullptr; });
    kept_.push_back(task->cookie());
    if (--task->kept_for == 0) forget_kept(task);
    if (kept_bytes_ > most_lineage_bytes_) lineage_has_grown();
}

/// The entry of a return is about to go.
void Core::forget_return(Entry* entry) {
    Task* task = entry->lineage;
    entry->lineage = nullptr;
    std::replace(task->returns.begin(), task->returns.end(), entry, static_cast<Entry*>(nullptr));
    if (task->kept_for != 0 && --task->kept_for == 0) forget_kept(task);
}

/// Nothing that it made is left.
void Core::forget_kept(Task* task) {
    --kept_count_;
    kept_bytes_ -= lineage_bytes(task);
    unneeded_.insert(unneeded_.end(), task->deps.begin(), task->deps.end());
    unneeded_.insert(unneeded_.end(), task->nested.begin(), task->nested.end());
    task->deps.clear();
    task->nested.clear();
    task->returns.clear();
    finish_task(task);
    drop_rest();
}

void Core::hold_as_lineage(Entry* entry) {
    ++entry->lineage_holds;
    drop_locked(entry);
}

void Core::drop_lineage(Entry* entry) {
    if (--entry->lineage_holds == 0 && entry->holds.load(std::memory_order_acquire) == 0)
        release_entry(entry);
}

/// Nobody has use for its value, but somebody may for the way it was made, or for itself where there is none.
void Core::evict(Entry* entry) {
    if (entry->owned && entry->where != Where::arena) return;  // small: it is its own lineage
    if (entry->owned && entry->lineage == nullptr && entry->flushed == 0 && keep_input(entry)) return;
    let_value_go(entry);
}

void Core::let_value_go(Entry* entry) {
    if (entry->owned) arena_.remove(entry->arena);
    entry->value.reset();
    entry->where = Where::none;
    entry->fetching = false;
    entry->state.store(uint8_t(ObjectState::pending), std::memory_order_release);
    if (!entry->extra) return;
    dropped_.insert(dropped_.end(), entry->extra->nested.begin(), entry->extra->nested.end());
    entry->extra->nested.clear();
    drop_rest();
}

bool Core::is_lost_in_arena(const Entry* entry) const {
    if (entry->where != Where::arena) return false;
    const ObjectEntry& object = segment_->object(entry->arena.entry);
    return (object.state.load(std::memory_order_seq_cst) & kDeleted) != 0 ||
           object.generation.load(std::memory_order_seq_cst) != entry->arena.generation;
}

bool Core::recover(Entry* entry, const ArenaRef& lost) {
    if (!entry->is_done()) return true;  // it is being made again
    if (entry->where != Where::arena) return entry->where != Where::error;
    if (entry->arena.entry != lost.entry || entry->arena.generation != lost.generation) return true;
    if (entry->owned && lineage_of(entry) == nullptr) return false;
    rebuild(entry);
    return true;
}

/// Makes a value that is gone again, and what that needs. Deep chains are walked, not recursed into.
void Core::rebuild(Entry* first) {
    std::vector<Entry*> missing{first};
    while (!missing.empty()) {
        Entry* entry = missing.back();
        missing.pop_back();
        if (entry->where == Where::none && (entry->cookie != 0 || entry->fetching)) continue;  // on its way
        entry->value.reset();
        entry->where = Where::none;
        entry->state.store(uint8_t(ObjectState::pending), std::memory_order_release);
        if (!entry->owned) {
            if (entry->tokens == 0 && entry->owner.slot != kDaemonSlot) {
                entry->tokens = 1;
                count_in(entry->id, entry->owner, self_);
            }
            entry->fetching = false;
            fetch(entry);
        } else if (Task* task = lineage_of(entry)) {
            run_again(task, missing);
        } else {
            fail(entry, why_lost(entry));
        }
    }
}

/// A kept task becomes a task like any other. What it needs and is not there goes to `missing`.
void Core::run_again(Task* task, std::vector<Entry*>& missing) {
    ++rebuilt_;
    --kept_count_;
    kept_bytes_ -= lineage_bytes(task);
    task->kept_for = 0;
    ++task->generation;
    task->header().cookie = task->cookie();
    ++task->header().attempt;
    if (task->retries > 0) --task->retries;
    for (Entry* entry : task->returns) {
        if (entry == nullptr) continue;
        hold(entry);
        entry->lineage = nullptr;
        entry->cookie = task->cookie();
        if (is_lost_in_arena(entry)) {
            entry->where = Where::none;
            entry->state.store(uint8_t(ObjectState::pending), std::memory_order_release);
        }
    }
    for (Entry* entry : task->returns)
        if (entry != nullptr && entry->extra && entry->extra->row != 0) renew_row(entry);
    const auto take_back = [&](Entry* entry) {
        hold(entry);
        --entry->lineage_holds;
        if ((!entry->is_done() && entry->cookie == 0 && !entry->fetching) || is_lost_in_arena(entry))
            missing.push_back(entry);
    };
    std::for_each(task->deps.begin(), task->deps.end(), take_back);
    std::for_each(task->nested.begin(), task->nested.end(), take_back);
    // Those in `missing` are pending from now on, so that the task waits for them.
    for (Entry* entry : missing) {
        if (entry->is_done()) entry->state.store(uint8_t(ObjectState::pending), std::memory_order_release);
        entry->where = Where::none;
    }
    if (ActorLink* actor = task->actor) {
        if (actor->state == ActorLink::dead) return fail_task(task, std::string(actor->death));
        watch(actor, daemon_);  // an heir to what it returned may never have called it
        actor->queue.push_back(task);
    }
    wait_for_arguments(task);
}

void Core::wait_for_arguments(Task* task) {
    if (has_arguments(task)) enqueue(task);
}

/// If not, the task hears when they come. One that was there may be gone by the time a worker is found.
bool Core::has_arguments(Task* task) {
    task->missing = 0;
    for (Entry* entry : task->deps) {
        if (entry->is_done()) continue;
        ++task->missing;
        entry->more().dependents.push_back(task);
    }
    return task->missing == 0;
}

/// Its worker could not read an argument: it waits until all are there again.
void Core::arguments_lost(Task* task) {
    std::vector<Entry*> lost;
    for (Entry* entry : task->deps)
        if (is_lost_in_arena(entry)) lost.push_back(entry);
    for (Entry* entry : lost)
        if (is_lost_in_arena(entry)) rebuild(entry);
    if (task->actor != nullptr) task->actor->queue.push_front(task);
    wait_for_arguments(task);
}

}  // namespace weft
