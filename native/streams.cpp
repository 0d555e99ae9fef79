/// Generator tasks: items travel as they come; the consumer's credits hold the producer back.
///
/// STR-1  An item's id derives from the task and its index, so a retry's repetition is told and dropped.
/// STR-2  A producer is at most `window` items ahead of what its consumer has taken.
#include "core.hpp"

namespace weft {

void Core::on_stream_item(Cursor cursor) {
    const uint64_t cookie = cursor.take<uint64_t>();
    const uint32_t index = cursor.take<uint32_t>();
    cursor.take<uint32_t>();
    const auto value = cursor.take<PackedValue>();
    std::vector<Entry*> nested = unpack_refs(cursor, value.nested, false);
    ArenaRef arena{};
    if (value.where == Where::arena) arena = cursor.take<ArenaRef>();
    Task* task = task_at(cookie);
    Stream* stream = task != nullptr && !task->returns.empty() ? stream_of(task->returns[0]) : nullptr;
    if (stream == nullptr || stream->closed || index != stream->received) {
        for (Entry* inner : nested)
            drop_locked(inner);
        if (value.where == Where::arena) arena_.remove(arena);
        return;
    }
    ++stream->received;
    Entry* item = new_entry(task->id.object(index + 2));
    hold(item);
    publish_inner(item, std::move(nested));
    if (value.where == Where::arena) {
        arena_.accept(arena);
        complete(item, Where::arena, nullptr, 0, arena);
    } else {
        complete(item, value.where, cursor.rest().data(), value.bytes, {});
    }
    stream->items.push_back(item);
    wake_stream(stream);
}

/// Something came, or the end.
void Core::wake_stream(Stream* stream) {
    if (stream == nullptr) return;
    stream->available.store(uint32_t(stream->items.size()), std::memory_order_release);
    for (PyObject* callback : stream->callbacks)
        push_event({0xffff, {}, callback});
    stream->callbacks.clear();
}

Entry* Core::take_item(Entry* generator) {
    Stream* stream = stream_of(generator);
    if (stream == nullptr || stream->items.empty()) return nullptr;
    Entry* item = stream->items.front();
    stream->items.pop_front();
    stream->available.store(uint32_t(stream->items.size()), std::memory_order_release);
    ++stream->consumed;
    Task* task = task_at(generator->cookie);
    if (task == nullptr) return item;
    const uint32_t window = task->header().window;
    // Before the producer would run dry, and not for each item.
    if (stream->consumed - stream->credited >= std::max(1u, window / 2)) send_credit(task, stream);
    return item;
}

void Core::send_credit(Task* task, Stream* stream) {
    if (stream == nullptr || (stream->consumed == 0 && !stream->closed)) return;
    const ProcessId to = task->lease != nullptr   ? task->lease->worker
                         : task->actor != nullptr ? task->actor->where
                                                  : self_;
    if (to == self_) return;
    stream->credited = stream->consumed;
    struct {
        uint64_t cookie;
        uint32_t consumed, reserved;
    } body{task->cookie(), stream->closed ? kNoMoreItems : stream->consumed, 0};
    send(to, Kind::STREAM_CREDIT, &body, sizeof body);
}

void Core::close_stream(Entry* generator) {
    Stream* stream = stream_of(generator);
    if (stream == nullptr || stream->closed) return;
    stream->closed = true;
    std::deque<Entry*> items = std::move(stream->items);
    stream->items.clear();
    stream->available.store(0);
    for (Entry* item : items)
        drop_locked(item);
    if (Task* task = task_at(generator->cookie)) send_credit(task, stream);
}

// ---- the producer's side ---------------------------------------------------------------------------

std::shared_ptr<Credit> Core::credit(ProcessId from, uint64_t cookie) {
    auto& place = credits_[{from.key(), cookie}];
    if (!place) place = std::make_shared<Credit>();
    return place;
}

void Core::forget_credit(ProcessId from, uint64_t cookie) {
    credits_.erase({from.key(), cookie});
}

void Core::on_stream_credit(ProcessId from, Cursor cursor) {
    const uint64_t cookie = cursor.take<uint64_t>();
    const uint32_t consumed = cursor.take<uint32_t>();
    // It may come before the task starts, or after it ended; the latter is swept when the task's peer goes.
    std::shared_ptr<Credit> credit = this->credit(from, cookie);
    if (consumed == kNoMoreItems)
        credit->closed.store(true, std::memory_order_release);
    else
        credit->consumed.store(consumed, std::memory_order_release);
}

}  // namespace weft
