/// Every place in a record that names a process or an object of this segment, so that a record can be passed
/// to another node: there, other numbers stand for the same processes and objects.
#pragma once

#include "ledger.hpp"
#include "wire.hpp"

namespace weft {

/// Calls on_process(ProcessId&) and on_arena(ArenaRef&) for each, in the record's order. The references may
/// be changed; the record's size does not. False when the record is cut short.
template <class OnProcess, class OnArena>
bool walk_names(Kind kind, char* data, size_t bytes, OnProcess&& on_process, OnArena&& on_arena);

namespace detail {

template <class OnProcess, class OnArena>
class Walk {
  public:
    Walk(char* data, size_t bytes, OnProcess& on_process, OnArena& on_arena)
        : at_(data), end_(data + bytes), on_process_(on_process), on_arena_(on_arena) {}

    bool skip(size_t bytes) { return left() >= bytes && (at_ += bytes, true); }

    template <class T>
    bool peek(T& value) const {
        if (left() < sizeof value) return false;
        memcpy(&value, at_, sizeof value);
        return true;
    }

    bool refs(uint32_t count) {
        for (uint32_t i = 0; i < count; ++i) {
            PackedRef ref;
            if (!peek(ref)) return false;
            on_process_(ref.owner);
            memcpy(at_, &ref, sizeof ref);
            at_ += sizeof ref;
        }
        return true;
    }

    bool value() {
        PackedValue value;
        if (!peek(value) || !skip(sizeof value) || !refs(value.nested)) return false;
        if (value.where == Where::arena) {
            ArenaRef arena;
            if (!peek(arena)) return false;
            on_arena_(arena);
            memcpy(at_, &arena, sizeof arena);
        }
        return skip(value.bytes);
    }

    bool task() {
        TaskHeader header;
        if (!peek(header) || !skip(sizeof header)) return false;
        const size_t nested = header.nested * sizeof(PackedRef);
        if (header.static_bytes < nested || !skip(header.static_bytes - nested) || !refs(header.nested))
            return false;
        for (int i = 0; i < header.deps; ++i)
            if (!value()) return false;
        return true;
    }

    bool reply() {
        ReplyHeader header;
        if (!peek(header) || !skip(sizeof header)) return false;
        for (uint32_t i = 0; i < header.values; ++i)
            if (!value()) return false;
        return true;
    }

    bool process() {
        ProcessId id;
        if (!peek(id)) return false;
        on_process_(id);
        memcpy(at_, &id, sizeof id);
        return skip(sizeof id);
    }

    /// The body of a row of a ledger.
    bool row() {
        uint32_t about[2];
        if (!peek(about)) return false;
        if (about[0] != kValueRow) return task_row();
        return skip(sizeof about) && value() && (about[1] == 0 || task_row());
    }

    bool task_row() {
        TaskRow about;
        TaskHeader header;
        if (!peek(about) || !skip(sizeof about) || !peek(header)) return false;
        const size_t nested = header.nested * sizeof(PackedRef);
        if (header.static_bytes < nested || about.record_bytes < sizeof header + header.static_bytes)
            return false;
        return skip(sizeof header + header.static_bytes - nested) && refs(header.nested) &&
               skip(about.record_bytes - sizeof header - header.static_bytes) && skip(about.name_bytes) &&
               refs(about.deps);
    }

    bool creation() {
        uint32_t spec = 0;
        return peek(spec) && skip(sizeof spec) && skip(spec) && task();
    }

  private:
    size_t left() const { return size_t(end_ - at_); }

    char* at_;
    char* end_;
    OnProcess& on_process_;
    OnArena& on_arena_;
};

}  // namespace detail

template <class OnProcess, class OnArena>
bool walk_names(Kind kind, char* data, size_t bytes, OnProcess&& on_process, OnArena&& on_arena) {
    detail::Walk<OnProcess, OnArena> walk(data, bytes, on_process, on_arena);
    constexpr size_t kItemPrefix = sizeof(uint64_t) + 2 * sizeof(uint32_t);
    switch (kind) {
        case Kind::TASK:
            return walk.task();
        case Kind::CREATE_ACTOR:
            return walk.creation();
        case Kind::REPLY:
            return walk.reply();
        case Kind::VALUE:
            return walk.skip(sizeof(Id)) && walk.value();
        case Kind::STREAM_ITEM:
            return walk.skip(kItemPrefix) && walk.value();
        case Kind::BORROW_ADD:
        case Kind::MOVED:
        case Kind::ACTOR_UP:
        case Kind::ACTOR_WATCH:
            return walk.skip(sizeof(Id)) && walk.process();
        case Kind::LEASE_GRANT:
            return walk.skip(sizeof(uint64_t) + sizeof(uint32_t)) && walk.process();
        default:
            return true;
    }
}

/// The same for the body of a row of a ledger (`ledger.hpp`).
template <class OnProcess, class OnArena>
bool walk_row_names(char* data, size_t bytes, OnProcess&& on_process, OnArena&& on_arena) {
    return detail::Walk<OnProcess, OnArena>(data, bytes, on_process, on_arena).row();
}

}  // namespace weft
