/// Lineage past its share of memory goes to disk, the oldest first, and comes back when something must be
/// made again (docs/design/0010).
///
/// A task that goes names its inputs by where *their* lineage is in the file, which was written before, so
/// their entries go with it: a chain costs memory only for its newest part. An input that nothing can make
/// again (put(), or a task that may not be retried) stays in the arena, up to a share of it, and is spilled
/// like all else there.
#include <algorithm>

#include "core.hpp"

namespace weft {

namespace {

/// The mutex is held while so much is packed: some hundreds of tasks, less than a millisecond.
constexpr size_t kBatchBytes = 256 << 10;

/// A task in the file: this, its record, its name, the ids of its returns, then its inputs.
struct FlushedTask {
    Id parent;
    Id actor;  ///< nil for a plain task
    uint64_t function = 0;
    uint32_t has_function = 0;
    uint32_t shape = 0;
    uint32_t has_shape = 0;
    int32_t retries = 0;
    uint32_t flags = 0;
    uint32_t record_bytes = 0;
    uint32_t name_bytes = 0;
    uint32_t returns = 0;
    uint32_t deps = 0;
    uint32_t nested = 0;
};

/// How an input is found again when it is not in memory.
enum NeedKind : uint32_t {
    kMade = 0,      ///< by the task at its position
    kBorrowed = 1,  ///< from its owner
    kSmall = 2,     ///< its value follows
    kInMemory = 3,  ///< it stayed there
};

struct FlushedNeed {
    Id id;
    ProcessId owner;
    uint64_t position = 0;
    uint32_t kind = kMade;
    uint32_t bytes = 0;
};

}  // namespace

// ---- to disk --------------------------------------------------------------------------------------------

void Core::limit_lineage(size_t memory_bytes, uint64_t disk_bytes) {
    most_lineage_bytes_ = memory_bytes;
    lineage_file_.limit(disk_bytes);
}

/// A thread takes it to disk; who makes lineage faster than that does it himself.
void Core::lineage_has_grown() {
    if (closed_.load()) return;
    if (!flush_thread_.joinable()) flush_thread_ = std::thread([this] { flush_loop(); });
    if (!std::exchange(is_flushing_, true)) flush_wanted_.notify_one();
    while (kept_bytes_ > 2 * most_lineage_bytes_ && !kept_.empty()) {
        const LineageFile::Shared batch = flush_oldest();
        flush_written(batch, lineage_file_.write(*batch));
    }
}

void Core::flush_loop() {
    block_signals();
    pthread_setname_np(pthread_self(), "weft-lineage");
    std::unique_lock lock(mutex_);
    for (;;) {
        flush_wanted_.wait(lock, [this] { return closed_.load() || is_flushing_; });
        while (!closed_.load() && kept_bytes_ > most_lineage_bytes_ / 8 * 7 && !kept_.empty()) {
            const LineageFile::Shared batch = flush_oldest();
            lock.unlock();
            const int error = lineage_file_.write(*batch);
            lock.lock();
            flush_written(batch, error);
        }
        if (closed_.load()) return;
        is_flushing_ = false;
    }
}

LineageFile::Shared Core::flush_oldest() {
    LineageFile::Shared batch = lineage_file_.begin();
    while (kept_bytes_ > most_lineage_bytes_ / 8 * 7 && batch->bytes.size() < kBatchBytes && !kept_.empty()) {
        Task* task = task_at(kept_.front());
        kept_.pop_front();
        if (task != nullptr) flush_with_needs(*batch, task);
    }
    lineage_file_.seal(batch, unneeded_);
    drop_rest();
    return batch;
}

/// The tasks that made its inputs go first, whatever their age (FIL-2). Chains are walked, not recursed into.
void Core::flush_with_needs(LineageFile::Batch& batch, Task* task) {
    const auto is_in_memory = [](const Entry* entry) { return entry->owned && entry->lineage != nullptr; };
    std::vector<uint64_t> path{task->cookie()};
    while (!path.empty()) {
        Task* last = task_at(path.back());
        if (last == nullptr) {  // it was flushed on another way
            path.pop_back();
            continue;
        }
        const auto need = std::find_if(last->deps.begin(), last->deps.end(), is_in_memory);
        const auto inner = std::find_if(last->nested.begin(), last->nested.end(), is_in_memory);
        if (need != last->deps.end()) {
            path.push_back((*need)->lineage->cookie());
        } else if (inner != last->nested.end()) {
            path.push_back((*inner)->lineage->cookie());
        } else {
            path.pop_back();
            flush(batch, last);
        }
    }
}

void Core::flush(LineageFile::Batch& batch, Task* task) {
    static thread_local Buffer out;
    out.clear();
    FlushedTask about{};
    about.parent = task->parent;
    if (task->actor != nullptr) {
        about.actor = task->actor->id;
        task->actor->is_flushed = true;
    }
    about.has_function = task->function != nullptr;
    if (task->function != nullptr) {
        about.function = task->function->key;
        task->function->is_flushed = true;
    }
    about.has_shape = task->shape != nullptr;
    if (task->shape != nullptr) about.shape = task->shape->id;
    about.retries = task->retries;
    about.flags = task->flags;
    about.record_bytes = uint32_t(task->record.size());
    about.name_bytes = uint32_t(task->name.size());
    about.returns = uint32_t(task->returns.size());
    about.deps = uint32_t(task->deps.size());
    about.nested = uint32_t(task->nested.size());
    out.add(about);
    out.append(task->record.data(), task->record.size());
    out.append(task->name.data(), task->name.size());
    for (const Entry* entry : task->returns)
        out.add(entry == nullptr ? Id{} : entry->id);
    const size_t before = unneeded_.size();
    const auto describe_all = [&](const std::vector<Entry*>& needs) {
        for (Entry* entry : needs)
            if (!describe_need(batch, entry, out)) unneeded_.push_back(entry);
    };
    --kept_count_;
    kept_bytes_ -= lineage_bytes(task);
    describe_all(task->deps);
    describe_all(task->nested);
    const uint64_t position = LineageFile::next_position(batch);
    LineageFile::append(batch, out.data(), out.size());
    for (Entry* entry : task->returns) {
        if (entry == nullptr) continue;
        entry->lineage = nullptr;
        entry->flushed = position;
        escape(entry);  // it is named by its id from now on
        lineage_file_.refer(position);
    }
    task->deps.clear();
    task->nested.clear();
    task->returns.clear();
    finish_task(task);
    if (unneeded_.size() != before) drop_rest();
}

/// Whether its lineage hold passes to the batch.
bool Core::describe_need(LineageFile::Batch& batch, Entry* entry, Buffer& out) {
    FlushedNeed need{};
    need.id = entry->id;
    need.owner = entry->owner;
    const bool is_small =
        entry->owned && entry->where == Where::inlined && (!entry->extra || entry->extra->nested.empty());
    // A row, here or on another node, names it, or somebody waits for its end.
    const bool must_stay =
        entry->extra && (entry->extra->row != 0 || entry->extra->needed != 0 ||
                         !entry->extra->deposits.empty() || !entry->extra->on_freed.empty());
    if (entry->flushed != 0) {
        need.position = entry->flushed;
        lineage_file_.refer(entry->flushed, &batch);
        out.add(need);
        return must_stay && batch.inputs.insert(entry).second;
    } else if (!entry->owned && !entry->is_actor) {
        need.kind = kBorrowed;
        out.add(need);
    } else if (is_small) {
        need.kind = kSmall;
        need.bytes = uint32_t(entry->value.size());
        out.add(need);
        out.append(entry->value.data(), entry->value.size());
    } else {
        need.kind = kInMemory;
        out.add(need);
        escape(entry);
        return batch.inputs.insert(entry).second;
    }
    return false;
}

void Core::flush_written(const LineageFile::Shared& batch, int error) {
    lineage_file_.written(batch, error, unneeded_);
    drop_rest();
    if (error == 0 || std::exchange(told_forgotten_, true)) return;
    push_event(
        {kLineageForgotten,
         "old lineage can not be written to disk (" + lineage_file_.trouble() +
             "), so it is forgotten: objects that were made long ago can not be made again if the node "
             "that has them dies. Make room, or set TMPDIR to another folder."});
}

/// The entry is about to go.
void Core::forget_flushed(Entry* entry) {
    lineage_file_.drop(std::exchange(entry->flushed, 0), unneeded_);
}

// ---- and back -------------------------------------------------------------------------------------------

/// The task that can make it again, in memory from now on; null when there is none.
Task* Core::lineage_of(Entry* entry) {
    if (entry->lineage != nullptr || entry->flushed == 0) return entry->lineage;
    return read_back(entry->flushed);
}

/// For a row: it comes back only while memory has room for it.
Task* Core::lineage_to_tell(Entry* entry) {
    const bool is_full = kept_bytes_ > 2 * most_lineage_bytes_ + kBatchBytes;
    return is_full && entry->lineage == nullptr ? nullptr : lineage_of(entry);
}

Task* Core::read_back(uint64_t position) {
    std::string record;
    if (!lineage_file_.read(position, record)) return nullptr;
    Cursor cursor(record.data(), record.size());
    const auto about = cursor.take<FlushedTask>();
    Task* task = new_task();
    task->record.append(cursor.skip(about.record_bytes), about.record_bytes);
    task->name.assign(cursor.skip(about.name_bytes), about.name_bytes);
    task->id = task->header().task;
    task->parent = about.parent;
    if (!about.actor.is_nil()) task->actor = link(about.actor);
    if (about.has_function != 0) task->function = function(about.function);
    if (about.has_shape != 0) task->shape = shape(about.shape);
    task->retries = about.retries;
    task->flags = about.flags;
    for (uint32_t i = 0; i < about.returns; ++i) {
        Entry* entry = find(cursor.take<Id>());
        if (entry != nullptr && entry->flushed == position) {
            entry->lineage = task;
            ++task->kept_for;
            task->returns.push_back(entry);
        } else {
            task->returns.push_back(nullptr);
        }
    }
    for (uint32_t i = 0; i < about.deps; ++i)
        task->deps.push_back(need_again(cursor));
    for (uint32_t i = 0; i < about.nested; ++i)
        task->nested.push_back(need_again(cursor));
    // The record in the file may go now, and with it what only it needed.
    for (Entry* entry : task->returns)
        if (entry != nullptr) forget_flushed(entry);
    ++kept_count_;
    kept_bytes_ += lineage_bytes(task);
    kept_.push_back(task->cookie());
    drop_rest();
    return task;
}

/// An input, with one lineage hold more.
Entry* Core::need_again(Cursor& cursor) {
    const auto need = cursor.take<FlushedNeed>();
    const char* data = cursor.skip(need.bytes);
    Entry* entry = find(need.id);
    if (entry == nullptr && need.kind == kBorrowed) {
        entry = borrow(need.id, need.owner, false, 0);
    } else if (entry == nullptr) {
        entry = new_entry(need.id);
        escape(entry);
        if (need.kind == kMade) {
            entry->flushed = need.position;
            lineage_file_.refer(need.position);
        } else if (need.kind == kSmall) {
            complete(entry, Where::inlined, data, need.bytes, {});
        }
    }
    ++entry->lineage_holds;
    return entry;
}

// ---- inputs that nothing can make again -----------------------------------------------------------------

void Core::limit_inputs(uint64_t bytes) {
    most_input_bytes_ = bytes;
}

/// Whether its value stays. The oldest ones go when there are too many.
bool Core::keep_input(Entry* entry) {
    if (entry->is_input) return true;
    if (entry->arena.bytes > most_input_bytes_ || is_lost_in_arena(entry)) return false;
    entry->is_input = true;
    inputs_.push_back(entry);
    input_bytes_ += entry->arena.bytes;
    while (input_bytes_ > most_input_bytes_) {
        Entry* oldest = inputs_.front();
        forget_input(oldest);
        oldest->lineage_holds -= lineage_file_.forget_input(oldest);
        const bool is_used = oldest->holds.load(std::memory_order_acquire) != 0 ||
                             (oldest->extra && !oldest->extra->borrowers.empty());
        if (is_used) continue;
        if (oldest->lineage_holds == 0)
            release_entry(oldest);
        else
            let_value_go(oldest);
    }
    return true;
}

void Core::forget_input(Entry* entry) {
    entry->is_input = false;
    input_bytes_ -= entry->arena.bytes;
    inputs_.erase(std::find(inputs_.begin(), inputs_.end(), entry));
}

}  // namespace weft
