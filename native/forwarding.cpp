#include "forwarding.hpp"

#include <cstdio>
#include <stdexcept>

#include "translate.hpp"

namespace weft {

namespace {
/// A batch that is longer is sent before more is read.
constexpr size_t kBatchBytes = 1 << 20;

/// Records that name neither processes nor objects need not be copied to be translated.
bool has_names(Kind kind) {
    switch (kind) {
        case Kind::TASK:
        case Kind::CREATE_ACTOR:
        case Kind::REPLY:
        case Kind::VALUE:
        case Kind::STREAM_ITEM:
        case Kind::BORROW_ADD:
        case Kind::MOVED:
        case Kind::ACTOR_UP:
        case Kind::ACTOR_WATCH:
        case Kind::LEASE_GRANT:
            return true;
        default:
            return false;
    }
}
}  // namespace

// ---- out -------------------------------------------------------------------------------------------

bool Forwarding::append(Buffer& batch, const LinkRecord& record, const char* data) {
    const size_t before = batch.size();
    batch.add(record);
    char* copy = batch.extend(record.bytes);
    if (record.bytes != 0) memcpy(copy, data, record.bytes);
    // A process may have written anything; a name that has no room on the link would become another's.
    bool are_ours = true;
    const bool is_whole = walk_names(
        Kind(record.kind), copy, record.bytes,
        [&](ProcessId& id) {
            are_ours = are_ours && segment_.is_slot(id.slot);
            id = to_link(names.far(id));
        },
        [&](ArenaRef& arena) {
            are_ours = are_ours && arena.bytes >> kSizeBits == 0;
            name_outside(arena);
        });
    if (!is_whole || !are_ours) batch.resize(before);
    return is_whole && are_ours;
}

std::optional<ArenaRef> Forwarding::here(const FarObject& what) const {
    const auto local = names.local(what);
    if (local && local->entry >= segment_.header().objects)
        throw std::invalid_argument("a record names an object that this node cannot have");
    return local;
}

std::optional<ProcessId> Forwarding::here(const FarProcess& who) const {
    const auto local = names.local(who);
    if (local && !segment_.is_slot(local->slot))
        throw std::invalid_argument("a record names a process that this node cannot have");
    return local;
}

void Forwarding::name_outside(ArenaRef& arena) {
    if (const auto origin = names.origin(arena.entry, arena.generation)) {
        arena = to_link(*origin);
        return;
    }
    // Its owner may be elsewhere, and will know of it: it must not die with its writer.
    if (arena_.exists(arena)) arena_.accept(arena);
    arena = to_link(FarObject{names.node, arena.entry, arena.generation, arena.bytes});
}

std::string Forwarding::record_out(Kind kind, const char* data, size_t bytes) {
    constexpr ProcessId kDaemon{kDaemonSlot, 1};
    Buffer batch;
    if (bytes > kMostLinkBytes ||
        !append(batch, {uint32_t(bytes), uint16_t(kind), 0, kDaemon, kDaemon}, data))
        throw std::invalid_argument("a record is malformed");
    return {batch.data(), batch.size()};
}

std::string Forwarding::row_out(std::string body) {
    const bool is_whole = walk_row_names(
        body.data(), body.size(), [this](ProcessId& id) { id = to_link(names.far(id)); },
        [this](ArenaRef& arena) { name_outside(arena); });
    if (!is_whole) throw std::invalid_argument("a row is cut short");
    return body;
}

std::string Forwarding::row_in(std::string body, const FarProcess& dead, Delivery& out) {
    const bool is_whole = walk_row_names(
        body.data(), body.size(),
        [&](ProcessId& id) {
            const FarProcess who = process_from_link(id);
            if (who.node == dead.node && who.id == dead.id)
                id = {kDaemonSlot, 0};  // what it owned is inherited, too, by this process or another
            else if (const auto local = here(who))
                id = *local;
            else
                out.processes.push_back(who);
        },
        [&](ArenaRef& arena) {
            const FarObject what = object_from_link(arena);
            if (const auto local = here(what))
                arena = {local->entry, local->generation, what.bytes};
            else
                out.objects.push_back(what);
        });
    if (!is_whole) throw std::invalid_argument("a row is cut short");
    return body;
}

bool Forwarding::pass_on(uint32_t node, ProcessId from, ProcessId to, Kind kind, const char* data,
                         size_t bytes) {
    return bytes <= kMostLinkBytes &&
           append(links_[node].batch, {uint32_t(bytes), uint16_t(kind), 0, from, to}, data);
}

void Forwarding::commit() {
    for (auto& [node, link] : links_) {
        if (link.staged.size() == 0) continue;
        link.batch.append(link.staged.data(), link.staged.size());
        link.staged.clear();
    }
}

void Forwarding::pass_on_to(ProcessId proxy, ProcessId from, Kind kind, const char* data, size_t bytes) {
    const auto who = names.of_proxy(proxy);
    if (!who) return;
    Link& link = links_[who->node];
    if (bytes > kMostLinkBytes ||
        !append(link.staged, {uint32_t(bytes), uint16_t(kind), 0, from, who->id}, data))
        fprintf(stderr, "weft: a malformed record (kind %u) of slot %u is not sent to node %u\n",
                unsigned(kind), from.slot, who->node);
    if (has_enough(link) && from.slot != kDaemonSlot && link.kept.insert({from.key(), proxy.key()}).second)
        relay_.keep(from, proxy, true, kLinkIsFull);
}

bool Forwarding::has_enough(const Link& link) {
    return link.is_held || link.batch.size() + link.staged.size() >= kBatchBytes;
}

void Forwarding::send_the_rest(Link& link) {
    for (const auto& [from, proxy] : std::exchange(link.kept, {}))
        relay_.keep(ProcessId::from_key(from), ProcessId::from_key(proxy), false, kLinkIsFull);
}

void Forwarding::hold(uint32_t node, bool is_full) {
    Link& link = links_[node];
    link.is_held = is_full;
    if (!has_enough(link)) send_the_rest(link);
}

/// What was kept for it is dropped by who kept it, once that is told that its receivers are dead.
void Forwarding::remove_link(uint32_t node) {
    const auto link = links_.find(node);
    if (link == links_.end()) return;
    send_the_rest(link->second);
    links_.erase(link);
}

std::string Forwarding::take_batch(uint32_t node) {
    const auto link = links_.find(node);
    if (link == links_.end()) return {};
    Buffer& all = link->second.batch;
    size_t taken = all.size();
    if (taken > kMostLinkBytes) {  // whole records, as many as fit, and one at least
        taken = 0;
        for (LinkRecord record; taken < all.size(); taken += sizeof record + record.bytes) {
            memcpy(&record, all.data() + taken, sizeof record);
            if (taken != 0 && taken + sizeof record + record.bytes > kMostLinkBytes) break;
        }
    }
    std::string batch(all.data(), taken);
    if (taken != all.size()) memmove(all.data(), all.data() + taken, all.size() - taken);
    all.resize(all.size() - taken);
    if (!has_enough(link->second)) send_the_rest(link->second);
    return batch;
}

std::vector<uint32_t> Forwarding::nodes_with_output() const {
    std::vector<uint32_t> nodes;
    for (const auto& [node, link] : links_)
        if (link.batch.size() != 0) nodes.push_back(node);
    return nodes;
}

void Forwarding::add_plain(uint32_t node, uint16_t kind, ProcessId from, ProcessId to) {
    links_[node].batch.add(LinkRecord{0, kind, 0, from, to});
}

void Forwarding::tell_changes() {
    for (const Relay::Change& change : relay_.take_changes())
        if (const auto who = names.of_proxy(change.from))
            add_plain(who->node, change.is_full ? kKeepTheRest : kSendTheRest, change.to, who->id);
        else if (!is_far(change.from.slot))
            relay_.keep(change.from, change.to, change.is_full, kReceiverIsFull);
}

// ---- in --------------------------------------------------------------------------------------------

bool Forwarding::is_here(ProcessId process) const {
    if (is_far(process.slot) || !segment_.is_alive(process)) return false;
    const auto it = refused_.find(process.slot);
    return it == refused_.end() || it->second != process.generation;
}

/// The record in this node's names, in scratch_. False when `out` holds names that are not known here.
bool Forwarding::translate_in(Delivery& out, Kind kind, const char* data, size_t bytes) {
    scratch_.assign(data, bytes);
    unnamed_.clear();
    const bool is_whole = walk_names(
        kind, scratch_.data(), bytes,
        [&](ProcessId& id) {
            const FarProcess who = process_from_link(id);
            if (const auto local = here(who))
                id = *local;
            else
                out.processes.push_back(who);
        },
        [&](ArenaRef& arena, char* head, char* ref) {
            const FarObject what = object_from_link(arena);
            const auto local = here(what);
            const bool exists = local && (what.node == names.node || arena_.exists(*local));
            if (exists) {
                arena = {local->entry, local->generation, what.bytes};
            } else {
                out.objects.push_back(what);
                unnamed_.emplace_back(head - scratch_.data(), ref - scratch_.data());
            }
        });
    if (!is_whole) throw std::invalid_argument("a record is cut short");
    return out.processes.empty() && out.objects.empty();
}

/// An error in the place of each, so that who waits for it does not wait for good. The refs in it, which were
/// counted for its receiver, stay. Beyond a length the errors are without words: the record must not outgrow
/// what a record may have.
void Forwarding::refuse_unnamed(std::string_view refusal) {
    constexpr size_t kWithWords = 1 << 20;
    std::string told;
    size_t copied = 0;
    for (const auto& [head, ref] : unnamed_) {
        PackedValue value;
        memcpy(&value, scratch_.data() + head, sizeof value);
        const std::string_view error =
            told.size() < copied + kWithWords ? refusal : refusal.substr(0, kErrorCodeBytes);
        value = {Where::error, value.nested, error.size()};
        memcpy(scratch_.data() + head, &value, sizeof value);
        told.append(scratch_, copied, ref - copied).append(error);
        copied = ref + sizeof(ArenaRef);
    }
    scratch_ = told.append(scratch_, copied);
}

Delivery Forwarding::deliver(uint32_t node, const char* data, size_t bytes, std::string_view refusal) {
    Delivery out;
    while (out.consumed < bytes) {
        LinkRecord record;
        const size_t left = bytes - out.consumed;
        if (left < sizeof record) throw std::invalid_argument("a batch ends in the middle of a record");
        memcpy(&record, data + out.consumed, sizeof record);
        if (left - sizeof record < record.bytes || record.from.slot >= kMostSlots ||
            record.to.slot >= segment_.header().slots)
            throw std::invalid_argument("a batch holds what is no record");
        const char* payload = data + out.consumed + sizeof record;
        const size_t next = out.consumed + sizeof record + record.bytes;
        const auto kind = Kind(record.kind);
        if (record.to.slot != 0 && !is_here(record.to)) {
            out.consumed = next;
            continue;
        }
        const auto sender = names.local(FarProcess{node, record.from});
        if (!sender) out.processes.push_back({node, record.from});
        const bool is_plain = !has_names(kind);
        bool is_known = is_plain || translate_in(out, kind, payload, record.bytes);
        if (!is_known && !refusal.empty() && out.processes.empty()) {
            refuse_unnamed(refusal);
            out.objects.clear();
            is_known = true;
        }
        refusal = {};
        if (!is_known || !sender) {
            out.stop = Delivery::Stop::names;
            out.to = record.to;
            out.kind = kind;
            return out;
        }
        out.consumed = next;
        if (record.kind == kKeepTheRest || record.kind == kSendTheRest) {
            flow(node, record);
        } else if (record.from.slot == 0 || record.to.slot == 0) {
            out.stop = Delivery::Stop::record;
            out.from = record.from;
            out.to = record.to;
            out.kind = kind;
            out.payload = is_plain ? std::string(payload, record.bytes) : scratch_;
            return out;
        } else {
            write(*sender, record, is_plain ? std::string_view(payload, record.bytes) : scratch_);
        }
    }
    tell_changes();
    return out;
}

void Forwarding::write(ProcessId sender, const LinkRecord& record, std::string_view payload) {
    relay_.acquaint(sender, record.to);
    relay_.send_as(sender, record.to, record.kind, 0, payload.data(), payload.size());
}

void Forwarding::flow(uint32_t node, const LinkRecord& record) {
    if (const auto proxy = names.local(FarProcess{node, record.from}); proxy && is_far(proxy->slot))
        relay_.keep(record.to, *proxy, record.kind == kKeepTheRest, kReceiverIsFull);
}

}  // namespace weft
