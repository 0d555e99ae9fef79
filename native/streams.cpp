#include "streams.hpp"

#include <algorithm>

#include "actor_links.hpp"
#include "borrowing.hpp"
#include "leases.hpp"
#include "lent_rows.hpp"
#include "lineage.hpp"
#include "objects.hpp"
#include "submitter.hpp"
#include "tasks.hpp"

namespace weft {

namespace {

/// Those that this attempt, or the next one, is to make again; each is held for the caller.
std::vector<Entry*> wanted_items(const Task* task) {
    std::vector<Entry*> wanted;
    for (const auto& [index, item] : task->items) {
        if (item->cookie == 0 || item->is_done()) continue;
        hold(item);
        wanted.push_back(item);
    }
    return wanted;
}

/// The index behind the last of them; 0 when there is none.
uint32_t end_of_wanted(const Task* task) {
    for (auto it = task->items.rbegin(); it != task->items.rend(); ++it)
        if (it->second->cookie != 0 && !it->second->is_done()) return it->first + 1;
    return 0;
}

std::string why_ended(const Task* task) {
    const std::string option = task->actor != nullptr ? "max_task_retries" : "max_retries";
    if (task->cancelled) return "it was cancelled";
    if (task->actor != nullptr && task->actor->state == ActorLink::dead) return "its actor is dead";
    if (task->retries != 0) return "it failed";
    const bool had_none = reinterpret_cast<const TaskHeader*>(task->record.data())->attempt == 0;
    return had_none ? option + "=0. Let it be retried" : "its retries are used up (" + option + ")";
}

std::string lost_story(const Task* task, std::string_view why) {
    return "generator task " + task->name +
           ": its bytes are gone with the node or the process that had them, and the task cannot make it "
           "again: " +
           std::string(why);
}

/// Why it runs no more, as an error value.
std::string end_of(const Task* task) {
    const bool died = task->actor != nullptr && task->actor->state == ActorLink::dead && !task->cancelled;
    if (died && is_error_value(task->actor->death)) return task->actor->death;
    return error_value(ErrorCode::reconstruction_failed, why_ended(task));
}

/// Of what cannot be made again because of this error. A death is told as what it is, as for calls under way.
std::string lost_value(const Task* task, std::string_view error) {
    const auto code = ErrorCode(error[1]);
    const bool is_death = code == ErrorCode::actor_died || code == ErrorCode::worker_crashed;
    return error_value(is_death ? code : ErrorCode::reconstruction_failed, lost_story(task, error.substr(2)));
}

std::shared_ptr<const std::string> why_not_again(const Task* task) {
    return std::make_shared<const std::string>(lost_value(task, end_of(task)));
}

}  // namespace

void Streams::on_stream_item(ProcessId from, Cursor cursor) {
    const auto [cookie, index, _] = cursor.take<records::StreamItem>();
    const auto value = cursor.take<PackedValue>();
    std::vector<Entry*> nested = borrowing_.unpack_refs(cursor, value.nested, false);
    ArenaRef arena{};
    if (value.where == Where::arena) arena = cursor.take<ArenaRef>();
    Task* task = tasks_.task_at(cookie);
    const std::string_view data = cursor.text(value.where == Where::arena ? 0 : value.bytes);
    const bool is_error = value.where == Where::error;
    const bool is_running =
        task != nullptr && (task->flags & kStreaming) != 0 && submitter_.runs_at(task, from);
    Entry* item = is_running ? place_of_item(task, index, is_error) : nullptr;
    if (item == nullptr) {
        for (Entry* inner : nested)
            objects_.drop_locked(inner);
        if (value.where == Where::arena) endpoint_.arena.remove(arena);
    } else {
        objects_.publish_inner(item, std::move(nested));
        item->cookie = 0;
        if (value.where == Where::arena) {
            if (item->lineage == nullptr) register_item(task, item);
            endpoint_.arena.accept(arena);
            objects_.complete(item, Where::arena, nullptr, 0, arena);
        } else {
            if (item->lineage != nullptr) lineage_.forget_return(item);
            objects_.complete(item, value.where, data.data(), data.size(), {});
        }
        objects_.drop_locked(item);
    }
    if (!is_running || (task = tasks_.task_at(cookie)) == nullptr) return;
    if (is_error && !task->is_stopped) fail_items(task, data);  // what is behind it does not come
    Stream* stream = stream_of(task);
    if (stream != nullptr && stream->available.load() != stream->items.size()) wake_stream(stream);
    if ((stream != nullptr && !stream->closed) || task->is_stopped || index + 1 < task->goes_to) return;
    task->goes_to = end_of_wanted(task);
    if (task->goes_to <= index + 1)
        stop_stream(task);
    else
        send_credit(task, task->goes_to - std::min(task->goes_to, task->header().window));
}

/// The entry that waits for the item, held; null when none does.
Entry* Streams::place_of_item(Task* task, uint32_t index, bool is_error) {
    task->next_item = std::max(task->next_item, index + 1);
    Stream* stream = stream_of(task);
    const bool is_open = stream != nullptr && !stream->closed;
    if (const auto it = task->items.find(index); it != task->items.end()) {
        Entry* item = it->second;
        if (objects_.is_lost_in_arena(item)) {
            item->where = Where::none;
            item->state.store(ObjectState::pending, std::memory_order_release);
            item->cookie = task->cookie();
        }
        if (!item->is_done() && item->cookie != 0) return hold(item), item;
    }
    if (!is_open || stream->has_failed) return nullptr;
    // An attempt that fails earlier than the one before it got must not look like the end.
    if (index != stream->received && !(is_error && index < stream->received)) return nullptr;
    stream->has_failed = is_error;
    Entry* item = objects_.new_entry(task->id.object(stream->received++ + 2));
    item->holds.store(2, std::memory_order_relaxed);  // the stream's and the caller's
    stream->items.push_back(item);
    return item;
}

void Streams::wake_stream(Stream* stream) {
    if (stream == nullptr) return;
    stream->available.store(uint32_t(stream->items.size()), std::memory_order_release);
    for (PyObject* callback : stream->callbacks)
        endpoint_.push_event({0xffff, {}, callback});
    stream->callbacks.clear();
}

Entry* Streams::take_item(Entry* generator) {
    Stream* stream = stream_of(generator);
    if (stream == nullptr || stream->items.empty()) return nullptr;
    Entry* item = stream->items.front();
    stream->items.pop_front();
    stream->available.store(uint32_t(stream->items.size()), std::memory_order_release);
    ++stream->consumed;
    Task* task = tasks_.task_at(generator->cookie);
    if (task == nullptr) return item;
    const uint32_t window = task->header().window;
    // Before the producer would run dry, and not for each item.
    if (stream->consumed - stream->credited >= std::max(1u, window / 2)) {
        stream->credited = stream->consumed;
        send_credit(task, stream->consumed);
    }
    return item;
}

void Streams::send_credit(Task* task, uint32_t consumed) {
    const ProcessId to = task->lease != nullptr   ? task->lease->worker
                         : task->actor != nullptr ? task->actor->where
                                                  : endpoint_.self;
    if (to == endpoint_.self) return;
    const records::StreamCredit body{task->cookie(), consumed};
    endpoint_.send(to, body.kind, &body, sizeof body);
}

void Streams::aim(Task* task) {
    Stream* stream = stream_of(task);
    task->is_stopped = false;
    if (stream != nullptr && !stream->closed) return;
    task->goes_to = end_of_wanted(task);
    task->header().window = std::max(1u, task->goes_to);
}

void Streams::start_stream(Task* task) {
    Stream* stream = stream_of(task);
    if (stream == nullptr || stream->closed) {
        if (task->goes_to == 0) stop_stream(task);
    } else if (stream->consumed != 0) {
        stream->credited = stream->consumed;
        send_credit(task, stream->consumed);
    }
}

void Streams::stop_stream(Task* task) {
    if (!std::exchange(task->is_stopped, true)) send_credit(task, kNoMoreItems);
}

void Streams::close_stream(Entry* generator) {
    Stream* stream = stream_of(generator);
    if (stream == nullptr || stream->closed) return;
    stream->closed = true;
    std::deque<Entry*> items = std::move(stream->items);
    stream->items.clear();
    stream->available.store(0);
    for (Entry* item : items)
        objects_.drop_locked(item);
    Task* task = tasks_.task_at(generator->cookie);
    if (task == nullptr) return;
    task->goes_to = end_of_wanted(task);
    if (task->goes_to <= task->next_item) stop_stream(task);
}

// ---- items that are lost ------------------------------------------------------------------------

void Streams::register_item(Task* task, Entry* item) {
    item->lineage = task;
    task->items.emplace(item_index(item), item);
}

void Streams::want_items(Task* task) {
    task->next_item = 0;
    for (const auto& [index, item] : task->items) {
        if (objects_.is_lost_in_arena(item)) {
            item->where = Where::none;
            item->state.store(ObjectState::pending, std::memory_order_release);
            item->cookie = task->cookie();
        } else if (item->cookie != 0) {
            item->cookie = task->cookie();
        }
    }
    for (Entry* item : wanted_items(task)) {
        if (item->extra && item->extra->row != 0) rows_.renew_row(item);
        objects_.drop_locked(item);
    }
}

/// An item was found lost while its task is under way. An attempt that has sent it already is ended, and
/// begins anew when its answer comes: without the item its consumer may never make room for the next one.
void Streams::item_lost(Task* task, Entry* item) {
    if (item->extra && item->extra->row != 0) rows_.renew_row(item);
    if (item_index(item) >= task->next_item || task->is_stopped) return;
    if (task->retries != 0 && !task->cancelled) return stop_stream(task);
    item->cookie = 0;
    item->more().unmakeable = why_not_again(task);
    lineage_.forget_return(item);
    objects_.fail(item, lineage_.why_lost(item));
}

void Streams::begin_stream_again(Task* task) {
    lineage_.count_rebuilt();
    ++task->generation;
    task->header().cookie = task->cookie();
    task->returns[0]->cookie = task->cookie();
    want_items(task);
    submitter_.resend(task);
}

void Streams::end_stream(Task* task) {
    wake_stream(stream_of(task));
    const std::vector<Entry*> wanted = wanted_items(task);
    if (!task->is_stopped && !wanted.empty())
        fail_items(task, error_value(ErrorCode::reconstruction_failed,
                                     "when it was run again it ended after " +
                                         std::to_string(task->next_item) + " items"));
    if (lineage_.can_make_again(task)) {
        lineage_.keep(task);
        // The last one first: the attempt that it begins goes far enough for the others.
        for (auto it = wanted.rbegin(); it != wanted.rend(); ++it)
            if (!(*it)->is_done()) lineage_.rebuild(*it);
    } else {
        if (!wanted.empty()) fail_items(task, end_of(task));
        submitter_.finish_task(task);
    }
    for (Entry* item : wanted)
        objects_.drop_locked(item);
}

void Streams::fail_items(Task* task, std::string_view error) {
    for (Entry* item : wanted_items(task)) {
        item->cookie = 0;
        lineage_.forget_return(item);
        objects_.fail(item,
                      is_error_value(error) ? of_item(item, lost_value(task, error)) : std::string(error));
        objects_.drop_locked(item);
    }
}

void Streams::abandon_items(Task* task) {
    task->next_item = task->goes_to = 0;
    task->is_stopped = false;
    if (task->items.empty()) return;
    const std::shared_ptr<const std::string> why = why_not_again(task);
    for (const auto& [index, item] : std::exchange(task->items, {})) {
        item->lineage = nullptr;
        item->cookie = 0;
        item->more().unmakeable = why;
    }
}

}  // namespace weft
