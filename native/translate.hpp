/// Every place in a record that names a process or an object of this segment, so that a record can be passed
/// to another node: there, other numbers stand for the same processes and objects.
#pragma once

#include <type_traits>

#include "ledger.hpp"
#include "wire.hpp"

namespace weft {

/// Calls on_process(ProcessId&) and on_arena(ArenaRef&) for each, in the record's order. The references may
/// be changed; the record's size does not. False when the record is cut short. An on_arena that takes two
/// pointers more is told where the value's header is, and the ref.
template <class OnProcess, class OnArena>
bool walk_names(Kind kind, char* data, size_t bytes, OnProcess&& on_process, OnArena&& on_arena);

namespace detail {

/// `Byte` is const where nothing is to be changed.
template <class Byte, class OnProcess, class OnArena>
class Walk {
  public:
    Walk(Byte* data, size_t bytes, OnProcess& on_process, OnArena& on_arena)
        : at_(data), end_(data + bytes), on_process_(on_process), on_arena_(on_arena) {}

    bool skip(size_t bytes) { return left() >= bytes && (at_ += bytes, true); }

    template <class T>
    bool peek(T& value) const {
        if (left() < sizeof value) return false;
        memcpy(&value, at_, sizeof value);
        return true;
    }
    template <class T>
    bool take(T& value) {
        return peek(value) && skip(sizeof value);
    }

    [[gnu::always_inline]] bool refs(uint32_t count) {
        for (uint32_t i = 0; i < count; ++i) {
            PackedRef ref;
            if (!peek(ref)) return false;
            on_process_(ref.owner);
            put(ref);
        }
        return true;
    }

    [[gnu::always_inline]] bool value() {  // of each record on a task's way
        Byte* const head = at_;
        PackedValue value;
        if (!take(value) || value.where > Where::unknown || !refs(value.nested)) return false;
        if (value.where != Where::arena) return skip(value.bytes);
        ArenaRef arena;
        if (value.bytes != sizeof arena || !peek(arena)) return false;
        if constexpr (std::is_invocable_v<OnArena&, ArenaRef&, Byte*, Byte*>)
            on_arena_(arena, head, at_);
        else
            on_arena_(arena);
        put(arena);
        return true;
    }

    /// The header and what it says of the sizes behind it, up to the nested refs.
    bool task_head(TaskHeader& header) {
        if (!take(header)) return false;
        const uint64_t nested = uint64_t(header.nested) * sizeof(PackedRef);
        const uint64_t names = uint64_t(header.name_bytes) + header.method_bytes + header.retry_bytes;
        return header.returns <= kMostReturns && names + nested <= header.static_bytes &&
               skip(header.static_bytes - nested);
    }

    bool task() {
        TaskHeader header;
        if (!task_head(header) || !refs(header.nested)) return false;
        for (uint32_t i = 0; i < header.deps; ++i)
            if (!value()) return false;
        return true;
    }

    bool reply() {
        ReplyHeader header;
        if (!take(header)) return false;
        for (uint32_t i = 0; i < header.values; ++i)
            if (!value()) return false;
        return true;
    }

    bool process() {
        ProcessId id;
        if (!peek(id)) return false;
        on_process_(id);
        put(id);
        return true;
    }

    bool processes(uint32_t count) {
        for (uint32_t i = 0; i < count; ++i)
            if (!process()) return false;
        return true;
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
        if (!take(about) || (about.flags & kIsCreation) != 0) return false;
        const size_t before = left();
        if (!task_head(header) || !refs(header.nested) || !has_return(about, header)) return false;
        const size_t read = before - left();
        return about.record_bytes >= read && skip(about.record_bytes - read) && skip(about.name_bytes) &&
               refs(about.deps) && (about.edges == 0 || skip(sizeof(TaskEdges)));
    }

    /// An item of a stream has a number of its own.
    static bool has_return(const TaskRow& about, const TaskHeader& header) {
        return (about.flags & kStreaming) != 0 || about.return_index < header.returns;
    }

    bool creation() {
        uint32_t spec = 0;
        return take(spec) && skip(spec) && task();
    }

    /// Everything that an heir is given (`node/inheritance.py`).
    bool adoption() {
        uint64_t number = 0;
        uint32_t counts[2], sizes[2];  // rows, functions; of a row: bytes, shape
        if (!take(number) || !take(counts)) return false;
        for (uint32_t i = 0; i < counts[1]; ++i) {
            uint32_t size[2];
            if (!take(size) || size[0] < sizeof(uint64_t) || !skip(size[0])) return false;
        }
        for (uint32_t i = 0; i < counts[0]; ++i) {
            if (!skip(sizeof(Id)) || !take(sizes) || left() < sizes[0]) return false;
            if (!Walk(at_, sizes[0], on_process_, on_arena_).row()) return false;
            skip(sizes[0]);
        }
        return true;
    }

    size_t left() const { return size_t(end_ - at_); }

  private:
    /// What was peeked at and maybe changed.
    template <class T>
    void put(const T& value) {
        if constexpr (!std::is_const_v<Byte>) memcpy(at_, &value, sizeof value);
        at_ += sizeof value;
    }

    Byte* at_;
    Byte* end_;
    OnProcess& on_process_;
    OnArena& on_arena_;
};

}  // namespace detail

template <class OnProcess, class OnArena>
bool walk_names(Kind kind, char* data, size_t bytes, OnProcess&& on_process, OnArena&& on_arena) {
    detail::Walk<char, OnProcess, OnArena> walk(data, bytes, on_process, on_arena);
    return reads_names(kind, walk);
}

/// The same for the body of a row of a ledger (`ledger.hpp`).
template <class OnProcess, class OnArena>
bool walk_row_names(char* data, size_t bytes, OnProcess&& on_process, OnArena&& on_arena) {
    return detail::Walk<char, OnProcess, OnArena>(data, bytes, on_process, on_arena).row();
}

}  // namespace weft
