#include "submitter.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "actor_links.hpp"
#include "borrowing.hpp"
#include "definitions.hpp"
#include "leases.hpp"
#include "lineage.hpp"
#include "objects.hpp"
#include "streams.hpp"
#include "tasks.hpp"

namespace weft {

namespace {

/// So many tasks of a chain are named between the one that failed and the one that is asked for.
constexpr int kLongestStory = 16;
/// So many inputs of a task are recorded one by one; all of them are counted.
constexpr size_t kRecordedInputs = 16;
/// For so many tasks that go on at once memory is kept.
constexpr size_t kMostUnblockedKept = 4096;

/// Whether a task that needs this value is named before it: a cancelled argument cancels, and what is no
/// error of a task or of the engine's own stays as it is.
bool tells_of_a_failure(std::string_view error) {
    if (is_error_value(error)) return ErrorCode(error[1]) != ErrorCode::cancelled;
    return !error.empty() && (error[0] == 'P' || error[0] == 'D');
}

/// The rest of a story behind its first task; the whole error when it is not one.
std::string_view behind_first(std::string_view error) {
    uint32_t bytes = 0;
    if (error.size() < 1 + sizeof bytes || error[0] != 'D') return error;
    memcpy(&bytes, error.data() + 1, sizeof bytes);
    return error.substr(std::min(error.size(), 1 + sizeof bytes + bytes));
}

/// A task did not run because an argument's task failed: 'D', its name, and the argument's error. What
/// depends on a cancelled task counts as cancelled, too. In a long chain the last task's name replaces the
/// one before.
std::string dependency_error(std::string_view task, std::string_view error) {
    if (!tells_of_a_failure(error)) return std::string(error);
    int depth = 0;
    for (std::string_view rest = error; !rest.empty() && rest[0] == 'D'; rest = behind_first(rest))
        ++depth;
    if (depth >= kLongestStory) error = behind_first(error);
    const auto bytes = uint32_t(task.size());
    std::string story(1, 'D');
    story.append(reinterpret_cast<const char*>(&bytes), sizeof bytes);
    story.append(task);
    return story.append(error);
}

/// With its arguments it is longer than a record may be.
std::string too_long(const std::string& task, uint64_t bytes) {
    return error_value(ErrorCode::bad_record, "the arguments of task " + task + " take " +
                                                  std::to_string(bytes) +
                                                  " bytes beside what is in the object store, and at most " +
                                                  std::to_string(kMostRecordBytes) +
                                                  " can be sent with one call: pass fewer, or lists of them");
}

}  // namespace

void Submitter::record_submission(const Task* task) {
    if (!endpoint_.log.counts(Tally::submitted, task->id)) return;
    Event event;
    event.at_ns = now_ns();
    event.duration_ns = 0;
    event.task = task->id;
    event.other = task->parent;
    event.bytes = task->record.size();
    event.kind = EventKind::SUBMITTED;
    event.status = 0;
    event.attempt = 0;
    event.count = uint32_t(task->deps.size());
    endpoint_.log.record(event, task->name);
    event.kind = EventKind::USES;
    for (size_t i = 0; i < std::min(task->deps.size(), kRecordedInputs); ++i) {
        event.other = task->deps[i]->id;
        endpoint_.log.record(event, {});
    }
}

void Submitter::submit(Task* task) {
    ++submitted_;
    record_submission(task);
    if (endpoint_.is_lost()) return fail_task(task, node_lost_error());
    task->header().cookie = task->cookie();
    for (Entry* entry : task->returns)
        if (entry != nullptr) entry->cookie = task->cookie();
    for (Entry* entry : task->deps)
        borrowing_.fetch(entry);  // which fails it at once when its owner is dead
    wait_for_arguments(task);
}

void Submitter::wait_for_arguments(Task* task) {
    if (has_arguments(task)) enqueue(task);
}

bool Submitter::has_arguments(Task* task) {
    task->missing = 0;
    for (Entry* entry : task->deps) {
        if (entry->is_done()) continue;
        ++task->missing;
        add_dependent(entry, task);
    }
    return task->missing == 0;
}

/// Cookies of tasks that ended otherwise stay behind; they go before the list would grow.
void Submitter::add_dependent(Entry* entry, const Task* task) {
    if (entry->dependent == 0) {
        entry->dependent = task->cookie();
        return;
    }
    auto& dependents = entry->more().dependents;
    if (dependents.size() == dependents.capacity()) {
        std::erase_if(dependents, [this](uint64_t cookie) { return tasks_.task_at(cookie) == nullptr; });
        if (dependents.size() > dependents.capacity() / 2) dependents.reserve(2 * dependents.capacity());
    }
    dependents.push_back(task->cookie());
}

void Submitter::unblock(uint64_t first, const std::vector<uint64_t>& others) {
    if (first == 0) return;
    unblocked_.push_back(first);
    unblocked_.insert(unblocked_.end(), others.begin(), others.end());
    if (std::exchange(is_unblocking_, true)) return;
    for (size_t i = 0; i < unblocked_.size(); ++i) {  // it grows meanwhile
        Task* task = tasks_.task_at(unblocked_[i]);
        if (task != nullptr && --task->missing == 0) enqueue(task);  // else it ended meanwhile
    }
    unblocked_.clear();
    if (unblocked_.capacity() > kMostUnblockedKept) unblocked_.shrink_to_fit();
    is_unblocking_ = false;
}

void Submitter::enqueue(Task* task) {
    uint64_t bytes = task->record.size();
    for (Entry* entry : task->deps) {
        bytes += sizeof(PackedValue) + sizeof(ArenaRef) + entry->value.size();
        if (entry->extra) bytes += entry->extra->nested.size() * sizeof(PackedRef);
        if (entry->where != Where::error) continue;
        const bool is_creation = (task->flags & kIsCreation) != 0;
        return end_unsent(task, is_creation ? std::string(entry->value.view())
                                            : dependency_error(task->name, entry->value.view()));
    }
    if (bytes > kMostRecordBytes) return end_unsent(task, too_long(task->name, bytes));
    if (task->flags & kIsCreation) {
        Buffer out;
        out.add(uint32_t(task->spec.size()));
        out.append(task->spec.data(), task->spec.size());
        definitions_.send_function(endpoint_.daemon, task->function);
        out.append(task->record.data(), task->record.size());
        for (Entry* entry : task->deps)
            borrowing_.pack_value(out, entry, endpoint_.daemon);
        endpoint_.send_daemon(Kind::CREATE_ACTOR, out.data(), out.size());
        // Held until the actor is dead: a restart needs the arguments again.
        return;
    }
    if (task->actor != nullptr)
        return task->flags & kUnordered ? actors_.send_early(task->actor, task)
                                        : actors_.flush_actor(task->actor);
    leases_.enqueue(task);
}

/// It ends before it was sent; the calls behind it go on.
void Submitter::end_unsent(Task* task, const std::string& error) {
    if (task->flags & kIsCreation) return actors_.fail_creation(task, error);
    ActorLink* behind = task->actor;
    if (behind != nullptr) behind->queue.erase(task);
    fail_task(task, error);
    if (behind != nullptr) actors_.flush_actor(behind);
}

void Submitter::write_task(ProcessId to, Task* task, Kind kind) {
    // Where the refs lie in the record. Their owners are written again: one may have died since it was made,
    // and who is counted in at the heir must count itself there, too.
    char* refs = task->record.data() + sizeof(TaskHeader) + task->header().static_bytes -
                 task->nested.size() * sizeof(PackedRef) + offsetof(PackedRef, owner);
    for (Entry* entry : task->nested) {
        borrowing_.lend_ref(entry, to);
        memcpy(refs, &entry->owner, sizeof entry->owner);
        refs += sizeof(PackedRef);
    }
    static thread_local Buffer with_values;
    const char* data = task->record.data();
    size_t bytes = task->record.size();
    if (!task->deps.empty()) {
        with_values.clear();
        with_values.append(data, bytes);
        for (Entry* entry : task->deps)
            borrowing_.pack_value(with_values, entry, to);
        data = with_values.data();
        bytes = with_values.size();
    }
    endpoint_.send_to_be_answered(to, kind, data, bytes);
}

void Submitter::fail_all(const std::string& error) {
    tasks_.each([&](Task* task) {
        for (Entry* entry : task->returns)
            if (entry != nullptr && !entry->is_done()) objects_.fail(entry, error);
    });
}

}  // namespace weft
