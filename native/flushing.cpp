#include "flushing.hpp"

#include <algorithm>

#include "actor_links.hpp"
#include "borrowing.hpp"
#include "definitions.hpp"
#include "leases.hpp"
#include "lineage.hpp"
#include "objects.hpp"
#include "submitter.hpp"
#include "tasks.hpp"

namespace weft {

namespace {

/// The mutex is held while so much is packed: some hundreds of tasks, less than a millisecond.
constexpr size_t kBatchBytes = 256 << 10;

/// A task in the file: this, its record, its name, the ids of its returns and of its items, then its inputs.
struct FlushedTask {
    Id parent;
    Id actor;  ///< nil for a plain task
    Id previous_call;
    uint64_t function = 0;
    uint32_t has_function = 0;
    uint32_t shape = 0;
    uint32_t has_shape = 0;
    int32_t retries = 0;
    uint32_t flags = 0;
    uint32_t record_bytes = 0;
    uint32_t name_bytes = 0;
    uint32_t returns = 0;
    uint32_t items = 0;
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

// ---- to disk ------------------------------------------------------------------------------------

void Flushing::limit_lineage(size_t memory_bytes, uint64_t disk_bytes) {
    most_lineage_bytes_ = memory_bytes;
    lineage_file_.limit(disk_bytes);
}

void Flushing::lineage_has_grown() {
    if (lineage_.kept_bytes() <= most_lineage_bytes_ || endpoint_.is_closed()) return;
    if (!flush_thread_.joinable()) flush_thread_ = std::thread([this] { flush_loop(); });
    if (!std::exchange(is_flushing_, true)) flush_wanted_.notify_one();
    while (lineage_.kept_bytes() > 2 * most_lineage_bytes_ && lineage_.has_kept()) {
        const LineageFile::Shared batch = flush_oldest();
        flush_written(batch, lineage_file_.write(*batch));
    }
}

void Flushing::flush_loop() {
    block_signals();
    pthread_setname_np(pthread_self(), "weft-lineage");
    std::unique_lock lock(endpoint_.mutex);
    for (;;) {
        flush_wanted_.wait(lock, [this] { return endpoint_.is_closed() || is_flushing_; });
        while (!endpoint_.is_closed() && lineage_.kept_bytes() > most_lineage_bytes_ / 8 * 7 &&
               lineage_.has_kept()) {
            const LineageFile::Shared batch = flush_oldest();
            lock.unlock();
            const int error = lineage_file_.write(*batch);
            lock.lock();
            flush_written(batch, error);
        }
        if (endpoint_.is_closed()) return;
        is_flushing_ = false;
    }
}

LineageFile::Shared Flushing::flush_oldest() {
    LineageFile::Shared batch = lineage_file_.begin();
    while (lineage_.kept_bytes() > most_lineage_bytes_ / 8 * 7 && batch->bytes.size() < kBatchBytes &&
           lineage_.has_kept()) {
        if (Task* task = lineage_.take_oldest()) flush_with_needs(*batch, task);
    }
    lineage_file_.seal(batch, objects_.unneeded());
    objects_.drop_rest();
    return batch;
}

/// The tasks that made its inputs go first, whatever their age (FIL-2). Chains are walked, not recursed into.
void Flushing::flush_with_needs(LineageFile::Batch& batch, Task* task) {
    const auto is_in_memory = [](const Entry* entry) {
        return entry->owned && entry->lineage != nullptr && entry->lineage->kept_for != 0;
    };
    std::vector<uint64_t> path{task->cookie()};
    while (!path.empty()) {
        Task* last = tasks_.task_at(path.back());
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

void Flushing::flush(LineageFile::Batch& batch, Task* task) {
    static thread_local Buffer out;
    out.clear();
    FlushedTask about{};
    about.parent = task->parent;
    if (task->actor != nullptr) {
        about.actor = task->actor->id;
        about.previous_call = task->previous_call;
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
    about.items = uint32_t(task->items.size());
    about.deps = uint32_t(task->deps.size());
    about.nested = uint32_t(task->nested.size());
    out.add(about);
    out.append(task->record.data(), task->record.size());
    out.append(task->name.data(), task->name.size());
    for (const Entry* entry : task->returns)
        out.add(entry == nullptr ? Id{} : entry->id);
    for (const auto& [index, item] : task->items)
        out.add(item->id);
    std::vector<Entry*>& unneeded = objects_.unneeded();
    const size_t before = unneeded.size();
    const auto describe_all = [&](const std::vector<Entry*>& needs) {
        for (Entry* entry : needs)
            if (!describe_need(batch, entry, out)) unneeded.push_back(entry);
    };
    lineage_.uncount_kept(task);
    describe_all(task->deps);
    describe_all(task->nested);
    const uint64_t position = LineageFile::next_position(batch);
    LineageFile::append(batch, out.data(), out.size());
    const auto is_flushed = [&](Entry* entry) {
        if (entry == nullptr) return;
        entry->lineage = nullptr;
        entry->flushed = position;
        objects_.escape(entry);  // it is named by its id from now on
        lineage_file_.refer(position);
    };
    std::for_each(task->returns.begin(), task->returns.end(), is_flushed);
    for (auto& [index, item] : task->items)
        is_flushed(item);
    task->deps.clear();
    task->nested.clear();
    task->returns.clear();
    task->items.clear();
    submitter_.finish_task(task);
    if (unneeded.size() != before) objects_.drop_rest();
}

/// Whether its lineage hold passes to the batch.
bool Flushing::describe_need(LineageFile::Batch& batch, Entry* entry, Buffer& out) {
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
        objects_.escape(entry);
        return batch.inputs.insert(entry).second;
    }
    return false;
}

void Flushing::flush_written(const LineageFile::Shared& batch, int error) {
    lineage_file_.written(batch, error, objects_.unneeded());
    objects_.drop_rest();
    if (error == 0 || std::exchange(told_forgotten_, true)) return;
    endpoint_.push_event(
        {kLineageForgotten,
         "old lineage cannot be written to disk (" + lineage_file_.trouble() +
             "), so it is forgotten: objects that were made long ago cannot be made again if the node "
             "that has them dies. Make room, or set TMPDIR to another folder."});
}

void Flushing::forget_flushed(Entry* entry) {
    lineage_file_.drop(std::exchange(entry->flushed, 0), objects_.unneeded());
}

std::string Flushing::why_forgotten() const {
    return lineage_file_.trouble().empty() ? "no more than " + std::to_string(lineage_file_.most_bytes()) +
                                                 " bytes of it may be on disk (WEFT_LINEAGE_DISK)"
                                           : "it could not be kept on disk (" + lineage_file_.trouble() + ")";
}

void Flushing::wake() {
    std::lock_guard lock(endpoint_.mutex);
    flush_wanted_.notify_all();
}

void Flushing::end_thread() {
    if (flush_thread_.joinable()) flush_thread_.join();
}

// ---- and back -----------------------------------------------------------------------------------

Task* Flushing::lineage_of(Entry* entry) {
    if (entry->lineage != nullptr || entry->flushed == 0) return entry->lineage;
    return read_back(entry->flushed);
}

Task* Flushing::lineage_to_tell(Entry* entry) {
    const bool is_full = lineage_.kept_bytes() > 2 * most_lineage_bytes_ + kBatchBytes;
    return is_full && entry->lineage == nullptr ? nullptr : lineage_of(entry);
}

Task* Flushing::read_back(uint64_t position) {
    std::string record;
    if (!lineage_file_.read(position, record)) return nullptr;
    Cursor cursor(record.data(), record.size());
    const auto about = cursor.take<FlushedTask>();
    Task* task = tasks_.new_task();
    task->record.append(cursor.skip(about.record_bytes), about.record_bytes);
    task->name.assign(cursor.skip(about.name_bytes), about.name_bytes);
    task->id = task->header().task;
    task->parent = about.parent;
    task->previous_call = about.previous_call;
    if (!about.actor.is_nil()) task->actor = actors_.link(about.actor);
    if (about.has_function != 0) task->function = definitions_.function(about.function);
    if (about.has_shape != 0) task->shape = leases_.shape(about.shape);
    task->retries = about.retries;
    task->flags = about.flags;
    const auto find_made = [&](Id id) -> Entry* {
        Entry* entry = objects_.find(id);
        if (entry == nullptr || entry->flushed != position) return nullptr;
        entry->lineage = task;
        ++task->kept_for;
        return entry;
    };
    for (uint32_t i = 0; i < about.returns; ++i)
        task->returns.push_back(find_made(cursor.take<Id>()));
    for (uint32_t i = 0; i < about.items; ++i)
        if (Entry* item = find_made(cursor.take<Id>())) task->items.emplace(item_index(item), item);
    for (uint32_t i = 0; i < about.deps; ++i)
        task->deps.push_back(need_again(cursor));
    for (uint32_t i = 0; i < about.nested; ++i)
        task->nested.push_back(need_again(cursor));
    // The record in the file may go now, and with it what only it needed.
    for (Entry* entry : task->returns)
        if (entry != nullptr) forget_flushed(entry);
    for (auto& [index, item] : task->items)
        forget_flushed(item);
    lineage_.count_kept(task);
    objects_.drop_rest();
    return task;
}

/// An input, with one lineage hold more.
Entry* Flushing::need_again(Cursor& cursor) {
    const auto need = cursor.take<FlushedNeed>();
    const char* data = cursor.skip(need.bytes);
    Entry* entry = objects_.find(need.id);
    if (entry == nullptr && need.kind == kBorrowed) {
        entry = borrowing_.borrow(need.id, need.owner, false, 0);
    } else if (entry == nullptr) {
        entry = objects_.new_entry(need.id);
        objects_.escape(entry);
        if (need.kind == kMade) {
            entry->flushed = need.position;
            lineage_file_.refer(need.position);
        } else if (need.kind == kSmall) {
            objects_.complete(entry, Where::inlined, data, need.bytes, {});
        }
    }
    ++entry->lineage_holds;
    return entry;
}

}  // namespace weft
