#include "lent_rows.hpp"

#include <algorithm>

#include "definitions.hpp"
#include "flushing.hpp"
#include "leases.hpp"
#include "objects.hpp"
#include "tasks.hpp"

namespace weft {

namespace {
constexpr int64_t kIdleLedgerNs = 50'000'000;
}  // namespace

void LentRows::became_lent(Entry* entry) {
    ++lent_out_;
    if (entry->is_actor) return;
    if (entry->extra->row != 0)
        ledger_.set_lent(entry->extra->row, true);
    else
        write_rows(entry);
}

void LentRows::no_longer_lent(Entry* entry) {
    --lent_out_;
    if (entry->extra->row == 0) return;
    if (entry->extra->needed != 0)
        ledger_.set_lent(entry->extra->row, false);
    else
        erase_rows(entry);
}

void LentRows::tell_lending() {
    std::lock_guard lock(endpoint_.mutex);
    const uint32_t lends = lent_out_ != 0 ? 1 : 0;
    if (told_lending_ == (lends != 0)) return;
    told_lending_ = lends != 0;
    endpoint_.send_daemon(Kind::LENDS_OBJECTS, &lends, sizeof lends);
}

int64_t LentRows::let_go_when_idle() {
    if (ledger_.rows() != 0 || ledger_.pages() == 0) return -1;
    const int64_t left = ledger_empty_since_ns_ + kIdleLedgerNs - now_ns();
    if (left > 0) return left;
    ledger_.let_go();
    return -1;
}

/// A row for it, and for what that needs. Chains are walked, not recursed into.
void LentRows::write_rows(Entry* first) {
    std::vector<Entry*> missing{first};
    while (!missing.empty()) {
        Entry* entry = missing.back();
        missing.pop_back();
        if (entry->extra && entry->extra->row != 0) continue;
        const std::vector<Entry*> needs = write_row(entry);
        for (Entry* need : needs) {
            ++need->more().needed;
            if (need->extra->row == 0) missing.push_back(need);
        }
        entry->more().row_needs = needs;
    }
}

/// Those of this process's objects that the row names.
std::vector<Entry*> LentRows::write_row(Entry* entry) {
    Named named;
    RowHead head{};
    static thread_local Buffer body;
    body.clear();
    if (!describe(entry, head, body, named)) return {};
    std::vector<Id> ids;
    for (const Entry* need : named.own)
        ids.push_back(need->id);
    entry->more().row =
        ledger_.write(head, ids, {body.data(), body.size()}, !entry->extra->borrowers.empty());
    return entry->extra->row != 0 ? named.own : std::vector<Entry*>{};
}

/// What its row says. False for the end of a stream that is not there yet, and for a result of a call that
/// may not be repeated: only its value can be handed on.
bool LentRows::describe(Entry* entry, RowHead& head, Buffer& body, Named& named) {
    const auto can_be_told = [entry](const Task* task) {
        if (task == nullptr || (task->flags & kIsCreation) != 0) return false;
        if ((task->flags & kStreaming) != 0 && entry->lineage != task) return false;
        return task->actor == nullptr || task->retries != 0;  // the actor may have done it already
    };
    head.id = entry->id;
    Task* task = nullptr;
    if (entry->is_done()) {
        // On this node the value outlives its owner; another node may need to make it again. A task that has
        // just made it is not its lineage yet.
        const bool travels = entry->extra && !entry->extra->deposits.empty() && entry->where == Where::arena;
        if (travels) {
            Task* maker = entry->lineage == nullptr && entry->cookie != 0 ? tasks_.task_at(entry->cookie)
                                                                          : flushing_.lineage_to_tell(entry);
            if (can_be_told(maker)) task = maker;
        }
        const auto nested = entry->extra ? uint32_t(entry->extra->nested.size()) : 0u;
        head.in_arena = entry->where == Where::arena;
        if (head.in_arena) head.arena = entry->arena;
        body.add(uint32_t(kValueRow));
        body.add(uint32_t(task != nullptr));
        body.add(PackedValue{entry->where, nested, head.in_arena ? sizeof(ArenaRef) : entry->value.size()});
        for (uint32_t i = 0; i < nested; ++i) {
            Entry* inner = entry->extra->nested[i];
            named.add(inner);
            body.add(PackedRef{inner->id, inner->owner, inner->is_actor, 0});
        }
        if (head.in_arena)
            body.add(entry->arena);
        else
            body.append(entry->value.data(), entry->value.size());
        if (task != nullptr) describe_task(entry, task, kTaskRow, body, named);
    } else {
        task = entry->cookie != 0 ? tasks_.task_at(entry->cookie) : flushing_.lineage_to_tell(entry);
        if (!can_be_told(task)) return false;
        describe_task(entry, task, entry->cookie != 0 ? kTaskRow : kLineageRow, body, named);
    }
    if (task != nullptr && task->actor == nullptr) {
        definitions_.send_function(endpoint_.daemon, task->function);
        head.function = task->function->key;
        head.shape = task->shape->id;
    }
    head.needs = uint32_t(named.own.size());
    return true;
}

void LentRows::describe_task(Entry* entry, Task* task, RowKind kind, Buffer& body, Named& named) {
    const uint32_t index = entry->id.index() - 1;
    body.add(TaskRow{kind, index, task->retries, task->flags, uint32_t(task->record.size()),
                     uint32_t(task->name.size()), uint32_t(task->deps.size()), 1});
    body.append(task->record.data(), task->record.size());
    body.append(task->name.data(), task->name.size());
    for (Entry* dep : task->deps) {
        named.add(dep);
        body.add(PackedRef{dep->id, dep->owner, dep->is_actor, 0});
    }
    body.add(TaskEdges{task->parent, task->actor == nullptr ? Id{} : task->previous_call});
    for (Entry* inner : task->nested)
        named.add(inner);
}

void LentRows::erase_rows(Entry* first) {
    std::vector<Entry*> unneeded{first}, loose;
    while (!unneeded.empty()) {
        Entry* entry = unneeded.back();
        unneeded.pop_back();
        ledger_.erase(std::exchange(entry->extra->row, 0));
        for (Entry* need : std::exchange(entry->extra->row_needs, {})) {
            if (--need->extra->needed != 0) continue;
            hold(need);
            loose.push_back(need);
            if (need->extra->row != 0 && need->extra->borrowers.empty()) unneeded.push_back(need);
        }
    }
    for (Entry* entry : loose)
        objects_.drop_locked(entry);  // the row may have been all that it stayed for
    if (ledger_.rows() == 0) ledger_empty_since_ns_ = now_ns();
}

void LentRows::renew_row(Entry* entry) {
    if (entry->extra->row != 0) erase_rows(entry);
    if (!entry->extra->borrowers.empty() || entry->extra->needed != 0) write_rows(entry);
}

// ---- copies on other nodes ----------------------------------------------------------------------

void LentRows::deposit(Entry* first, uint32_t node) {
    std::vector<Entry*> missing{first};
    while (!missing.empty()) {
        Entry* entry = missing.back();
        missing.pop_back();
        std::vector<uint32_t>& nodes = entry->more().deposits;
        if (std::find(nodes.begin(), nodes.end(), node) != nodes.end()) continue;
        nodes.push_back(node);
        if (nodes.size() == 1 && entry->extra->row != 0)
            renew_row(entry);  // now it tells of its lineage, too
        for (Entry* need : send_deposit(entry, {node}))
            missing.push_back(need);
    }
}

void LentRows::deposit_again(Entry* entry) {
    const std::vector<uint32_t> nodes = entry->extra->deposits;
    for (Entry* need : send_deposit(entry, nodes))
        for (const uint32_t node : nodes)
            deposit(need, node);
}

std::vector<Entry*> LentRows::send_deposit(Entry* entry, const std::vector<uint32_t>& nodes) {
    Named named;
    RowHead head{};
    Buffer body;
    if (!describe(entry, head, body, named)) return {};
    Buffer out;
    const auto count = uint32_t(nodes.size());
    out.add(records::Deposit{count});
    out.append(nodes.data(), count * sizeof(uint32_t));
    out.add(head);
    for (const Entry* need : named.own)
        out.add(need->id);
    out.append(body.data(), body.size());
    endpoint_.send_daemon(Kind::DEPOSIT, out.data(), out.size());
    for (Entry* other : named.other)
        for (const uint32_t node : nodes)
            tell_owner(other, node);
    return named.own;
}

/// Its owner may die with this process, and nobody on that node has borrowed the object yet: a copy of its
/// row is to be there, too.
void LentRows::tell_owner(Entry* entry, uint32_t node) {
    const ProcessId owner = entry->owner;
    if (node == kStoreNode || owner.slot == kDaemonSlot || !endpoint_.segment.is_alive(owner) ||
        endpoint_.segment.node_of(owner.slot) == node + 1)
        return;
    std::vector<uint32_t>& told = entry->more().owner_told;
    if (std::find(told.begin(), told.end(), node) != told.end()) return;
    told.push_back(node);
    const records::DepositThere body{entry->id, node};
    endpoint_.send(owner, body.kind, &body, sizeof body);
}

void LentRows::on_deposit_there(Cursor cursor) {
    const auto [id, node, _] = cursor.take<records::DepositThere>();
    Entry* entry = objects_.find(id);
    if (entry == nullptr || entry->is_actor || node >= kStoreNode) return;
    if (entry->owned)
        deposit(entry, node);
    else
        tell_owner(entry, node);
}

void LentRows::owner_changed(Entry* entry) {
    if (!entry->extra) return;
    for (const uint32_t node : std::exchange(entry->extra->owner_told, {}))
        if (entry->owned)
            deposit(entry, node);
        else
            tell_owner(entry, node);
}

void LentRows::withdraw(Id id, const std::vector<uint32_t>& nodes) {
    Buffer out;
    out.add(id);
    out.append(nodes.data(), nodes.size() * sizeof(uint32_t));
    endpoint_.send_daemon(Kind::WITHDRAW, out.data(), out.size());
}

// ---- what outlives all processes names it ------------------------------------------------------------

void LentRows::keep(Entry* entry) {
    objects_.escape(entry);
    entry->more().keeps = true;
    if (entry->owned) return set_kept(entry, true);
    const records::Keep body{entry->id, 1};
    if (endpoint_.segment.is_alive(entry->owner)) endpoint_.send(entry->owner, body.kind, &body, sizeof body);
}

void LentRows::set_kept(Entry* entry, bool is_kept) {
    if (std::exchange(entry->more().is_kept, is_kept) == is_kept) return;
    if (is_kept) {
        hold(entry);
        need_row(entry);
        deposit(entry, kStoreNode);
    } else {
        need_row_no_more(entry);
        objects_.drop_locked(entry);
    }
}

void LentRows::need_row(Entry* entry) {
    ++lent_out_;
    ++entry->more().needed;  // as by another row
    if (entry->extra->row == 0) write_rows(entry);
}

void LentRows::need_row_no_more(Entry* entry) {
    --lent_out_;
    --entry->extra->needed;
    if (entry->extra->row != 0 && entry->extra->needed == 0 && entry->extra->borrowers.empty())
        erase_rows(entry);
}

void LentRows::on_keep(Cursor cursor) {
    const auto [id, is_kept, _] = cursor.take<records::Keep>();
    if (Entry* entry = objects_.find(id); entry != nullptr && entry->owned) set_kept(entry, is_kept != 0);
}

}  // namespace weft
