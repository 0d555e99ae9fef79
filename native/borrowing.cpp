#include "borrowing.hpp"

#include <algorithm>

#include "inbox.hpp"
#include "inheritance.hpp"
#include "lent_rows.hpp"
#include "lineage.hpp"
#include "objects.hpp"

namespace weft {

namespace {

std::string unknown_error() {
    return error_value(ErrorCode::object_lost,
                       "its owner no longer knows the object: every counted reference was dropped before "
                       "this one was read");
}

}  // namespace

Entry* Borrowing::borrow(Id id, ProcessId owner, bool is_actor, uint32_t tokens) {
    if (is_actor && owner.slot == kDaemonSlot) return weak_actor(id);
    Entry* entry = objects_.find(id);
    if (entry != nullptr && is_weak_actor(entry)) {
        objects_.step_aside(entry);
        entry = nullptr;
    }
    if (entry == nullptr) {
        entry = objects_.new_borrowed(id, owner, is_actor);
        objects_.escape(entry);
        if (!is_actor && owner.slot != kDaemonSlot && !endpoint_.segment.is_alive(owner))
            inheritance_.ask_where(entry);  // it may be settled, and nobody else will tell
    }
    if (entry->owned) {
        if (Lineage::is_unmade(entry)) lineage_.rebuild(entry);
        return entry;
    }
    if (!is_actor && entry->owner != owner) {
        if (!endpoint_.segment.is_alive(owner))
            return entry;  // the count died with it; the one that moved it gave another
        // One of the two is dead, and that is not known here yet. If it is the other one, it was the owner
        // before; else this process will be asked for the ref, and counted in at the heir, before that is
        // settled.
        if (endpoint_.segment.is_alive(entry->owner)) {
            if (tokens != 0) return_counts(id, owner, tokens);
            return entry;
        }
        inheritance_.moved_to(entry, owner);
    }
    entry->tokens += tokens;
    if (entry->tokens >= kMostTokens)  // long before their number wraps
        return_counts(entry->id, entry->owner, std::exchange(entry->tokens, 1) - 1);
    return entry;
}

Entry* Borrowing::weak_actor(Id id) {
    if (Entry* known = objects_.find(id); known != nullptr && is_weak_actor(known)) return known;
    Entry* entry = objects_.new_borrowed(id, endpoint_.daemon, true);
    objects_.escape(entry);
    return entry;
}

void Borrowing::fetch(Entry* entry) {
    if (entry->owned || entry->fetching || entry->is_done()) return;
    entry->fetching = true;
    if (endpoint_.is_lost()) return objects_.fail(entry, node_lost_error());
    if (entry->owner == endpoint_.self) return objects_.fail(entry, unknown_error());
    if (!endpoint_.segment.is_alive(entry->owner))
        return inheritance_.ask_where(entry);  // it moves to another, or is lost
    endpoint_.send(entry->owner, Kind::WANT, &entry->id, sizeof entry->id);
}

void Borrowing::add_borrower(Entry* entry, ProcessId borrower, int64_t count) {
    auto& list = entry->more().borrowers;
    const auto it =
        std::find_if(list.begin(), list.end(), [&](auto& b) { return b.first == borrower.key(); });
    if (it == list.end()) {
        // Whoever shares a ring with it hears of its death; of one that is dead already nobody would.
        if (!endpoint_.channels.knows(borrower) &&
            !endpoint_.channels.send(borrower, Kind::ACQUAINT, nullptr, 0))
            return;
        list.emplace_back(borrower.key(), count);
        const uint32_t node = endpoint_.segment.node_of(borrower.slot);
        if (node != 0 && !entry->is_actor) rows_.deposit(entry, node - 1);
        if (list.size() == 1) rows_.became_lent(entry);
        return;
    }
    it->second += count;
    if (it->second != 0) return;
    list.erase(it);
    if (list.empty()) rows_.no_longer_lent(entry);
    if (list.empty() && entry->holds.load(std::memory_order_acquire) == 0) objects_.release_entry(entry);
}

void Borrowing::lend_ref(Entry* entry, ProcessId to) {
    objects_.escape(entry);
    if (entry->owned) {
        add_borrower(entry, to, 1);
    } else if (!endpoint_.segment.is_alive(entry->owner)) {
        const bool is_lost = entry->extra && entry->extra->has_no_heir;
        if (entry->owner != to && !is_lost) entry->more().late_lends.push_back(to);
    } else if (entry->owner != to && entry->owner.slot != kDaemonSlot) {
        count_in(entry->id, entry->owner, to);
    }
}

void Borrowing::count_in(Id id, ProcessId owner, ProcessId borrower) {
    const records::BorrowAdd body{id, borrower};
    endpoint_.send(owner, body.kind, &body, sizeof body);
}

void Borrowing::return_counts(Id id, ProcessId owner, uint64_t count) {
    const records::BorrowRelease body{id, count};
    endpoint_.send(owner, body.kind, &body, sizeof body);
}

void Borrowing::pack_value(Buffer& out, Entry* entry, ProcessId to) {
    const auto nested = entry->extra ? uint32_t(entry->extra->nested.size()) : 0u;
    const bool in_arena = entry->where == Where::arena;
    out.add(PackedValue{entry->where, nested, in_arena ? sizeof(ArenaRef) : entry->value.size()});
    for (uint32_t i = 0; i < nested; ++i) {
        Entry* inner = entry->extra->nested[i];
        if (to.slot != kDaemonSlot) lend_ref(inner, to);
        out.add(PackedRef{inner->id, inner->owner, inner->is_actor, 0});
    }
    if (in_arena)
        out.add(entry->arena);
    else
        out.append(entry->value.data(), entry->value.size());
}

void Borrowing::send_value(Entry* entry, ProcessId to) {
    Buffer out;
    out.add(entry->id);
    pack_value(out, entry, to);
    endpoint_.send(to, Kind::VALUE, out.data(), out.size());
}

std::vector<Entry*> Borrowing::unpack_refs(Cursor& cursor, uint32_t count, bool self_borrow) {
    std::vector<Entry*> refs;
    refs.reserve(count);
    for (uint32_t i = 0; i < count; ++i) {
        const PackedRef ref = cursor.take<PackedRef>();
        const bool counted = ref.owner.slot != kDaemonSlot && ref.owner != endpoint_.self;
        Entry* entry = borrow(ref.id, ref.owner, ref.is_actor != 0, counted ? 1 : 0);
        hold(entry);
        refs.push_back(entry);
        if (self_borrow && counted) count_in(ref.id, ref.owner, endpoint_.self);
    }
    return refs;
}

void Borrowing::discard_values(Cursor& cursor, uint32_t count, bool owns_memory) {
    for (uint32_t i = 0; i < count; ++i) {
        const auto value = cursor.take<PackedValue>();
        for (Entry* inner : unpack_refs(cursor, value.nested, false))
            objects_.drop_locked(inner);
        const char* data = cursor.skip(value.bytes);
        if (value.where != Where::arena || !owns_memory) continue;
        ArenaRef arena;
        memcpy(&arena, data, sizeof arena);
        endpoint_.arena.remove(arena);
    }
}

void Borrowing::discard_task(const Incoming& incoming) {
    Cursor cursor(incoming.bytes.data(), incoming.bytes.size());
    const auto header = cursor.take<TaskHeader>();
    if (header.flags & kSelfBorrow) return;  // it was not counted in
    cursor.skip(header.static_bytes - header.nested * sizeof(PackedRef));
    for (Entry* entry : unpack_refs(cursor, header.nested, false))
        objects_.drop_locked(entry);
    discard_values(cursor, header.deps, false);
}

std::vector<Entry*> Borrowing::hold_orphans(const Incoming& incoming) {
    std::vector<Entry*> held;
    Cursor cursor(incoming.bytes.data(), incoming.bytes.size());
    const auto header = cursor.take<TaskHeader>();
    const auto look_at = [&](uint32_t count) {
        for (uint32_t i = 0; i < count; ++i) {
            const auto ref = cursor.take<PackedRef>();
            if (ref.is_actor != 0 || ref.owner.slot == kDaemonSlot || endpoint_.segment.is_alive(ref.owner))
                continue;
            held.push_back(borrow(ref.id, ref.owner, false, 0));
            hold(held.back());
        }
    };
    cursor.skip(header.static_bytes - header.nested * sizeof(PackedRef));
    look_at(header.nested);
    for (uint32_t i = 0; i < header.deps; ++i) {
        const auto value = cursor.take<PackedValue>();
        look_at(value.nested);
        cursor.skip(value.bytes);
    }
    return held;
}

void Borrowing::drop(const std::vector<Entry*>& held) {
    for (Entry* entry : held)
        objects_.drop_locked(entry);
}

// ---- what others say -------------------------------------------------------------------------------

void Borrowing::on_borrow_add(Cursor cursor) {
    const auto [id, borrower] = cursor.take<records::BorrowAdd>();
    if (Entry* entry = objects_.find(id);
        entry && borrower != endpoint_.self && endpoint_.segment.is_alive(borrower))
        add_borrower(entry, borrower, 1);
}

void Borrowing::on_borrow_release(ProcessId from, Cursor cursor) {
    const auto [id, count] = cursor.take<records::BorrowRelease>();
    if (count > kMostTokens) throw Malformed("it returns more counts than a process can have");
    if (Entry* entry = objects_.find(id)) add_borrower(entry, from, -int64_t(count));
}

void Borrowing::on_want(ProcessId from, Cursor cursor) {
    const Id id = cursor.take<Id>();
    Entry* entry = objects_.find(id);
    if (entry != nullptr) lineage_.want(entry);
    if (entry == nullptr) {
        Buffer out;
        out.add(id);
        out.add(PackedValue{Where::unknown, 0, 0});
        return endpoint_.send(from, Kind::VALUE, out.data(), out.size());
    }
    if (entry->is_done()) return send_value(entry, from);
    entry->more().wanters.push_back(from);
    if (!entry->owned) fetch(entry);
}

void Borrowing::on_value(ProcessId from, Cursor cursor) {
    const Id id = cursor.take<Id>();
    const auto value = cursor.take<PackedValue>();
    std::vector<Entry*> nested = unpack_refs(cursor, value.nested, false);
    Entry* entry = objects_.find(id);
    if (entry == nullptr || entry->owned || entry->owner != from || entry->is_done()) {
        for (Entry* inner : nested)
            objects_.drop_locked(inner);
        return;
    }
    objects_.publish_inner(entry, std::move(nested));
    switch (value.where) {
        case Where::arena:
            return objects_.complete(entry, Where::arena, nullptr, 0, cursor.take<ArenaRef>());
        case Where::inlined:
        case Where::error:
            return objects_.complete(entry, value.where, cursor.skip(value.bytes), value.bytes, {});
        default:
            return objects_.fail(entry, unknown_error());
    }
}

}  // namespace weft
