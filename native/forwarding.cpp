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
    const bool is_whole = walk_names(
        Kind(record.kind), copy, record.bytes, [this](ProcessId& id) { id = to_link(names.far(id)); },
        [this](ArenaRef& arena) { name_outside(arena); });
    if (!is_whole) batch.resize(before);
    return is_whole;
}

void Forwarding::name_outside(ArenaRef& arena) {
    if (const auto origin = names.origin(arena.entry, arena.generation)) {
        arena = to_link(*origin);
        return;
    }
    // Its owner may be elsewhere, and will know of it: it must not die with its writer.
    if (arena.entry < segment_.header().objects &&
        segment_.object(arena.entry).generation.load() == arena.generation)
        arena_.accept(arena);
    arena = to_link(FarObject{names.node, arena.entry, arena.generation, arena.bytes});
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
            if (who.node == dead.node && who.id.slot != 0 && (dead.id.slot == 0 || who.id == dead.id))
                id = {kDaemonSlot, 0};  // what it owned is adopted, too
            else if (const auto local = names.local(who))
                id = *local;
            else
                out.processes.push_back(who);
        },
        [&](ArenaRef& arena) {
            const FarObject what = object_from_link(arena);
            if (const auto local = names.local(what))
                arena = {local->entry, local->generation, what.bytes};
            else
                out.objects.push_back(what);
        });
    if (!is_whole) throw std::invalid_argument("a row is cut short");
    return body;
}

bool Forwarding::pass_on(uint32_t node, ProcessId from, ProcessId to, Kind kind, const char* data,
                         size_t bytes) {
    return append(links_[node].batch, {uint32_t(bytes), uint16_t(kind), 0, from, to}, data);
}

void Forwarding::commit() {
    for (auto& [node, link] : links_) {
        if (link.staged.size() == 0) continue;
        link.batch.append(link.staged.data(), link.staged.size());
        link.staged.clear();
    }
}

void Forwarding::pass_on_to(uint32_t proxy, ProcessId from, Kind kind, const char* data, size_t bytes) {
    const auto& who = names.of_proxy(proxy);
    if (who && !append(links_[who->node].staged, {uint32_t(bytes), uint16_t(kind), 0, from, who->id}, data))
        fprintf(stderr, "weft: a malformed record (kind %u) of slot %u is not sent to node %u\n",
                unsigned(kind), from.slot, who->node);
}

bool Forwarding::can_take(uint32_t proxy) const {
    const auto& who = names.of_proxy(proxy);
    if (!who) return true;
    const auto link = links_.find(who->node);
    if (link == links_.end()) return true;
    const Link& l = link->second;
    return !l.is_held && l.batch.size() + l.staged.size() < kBatchBytes;
}

std::string Forwarding::take_batch(uint32_t node) {
    const auto link = links_.find(node);
    if (link == links_.end()) return {};
    std::string batch(link->second.batch.data(), link->second.batch.size());
    link->second.batch.clear();
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
    for (const Proxies::Change& change : proxies_.take_changes())
        if (const auto& who = names.of_proxy(change.proxy))
            add_plain(who->node, change.is_full ? kKeepTheRest : kSendTheRest, change.to, who->id);
}

// ---- in --------------------------------------------------------------------------------------------

bool Forwarding::is_here(ProcessId process) const {
    if (!segment_.is_alive(process) || proxies_.has(process.slot)) return false;
    const auto it = refused_.find(process.slot);
    return it == refused_.end() || it->second != process.generation;
}

/// The record in this node's names, in scratch_. False when `out` holds names that are not known here.
bool Forwarding::translate_in(Delivery& out, Kind kind, const char* data, size_t bytes) {
    scratch_.assign(data, bytes);
    const bool is_whole = walk_names(
        kind, scratch_.data(), bytes,
        [&](ProcessId& id) {
            const FarProcess who = process_from_link(id);
            if (const auto local = names.local(who))
                id = *local;
            else
                out.processes.push_back(who);
        },
        [&](ArenaRef& arena) {
            const FarObject what = object_from_link(arena);
            const auto local = names.local(what);
            const bool exists =
                local && (what.node == names.node ||
                          segment_.object(local->entry).generation.load() == local->generation);
            if (exists)
                arena = {local->entry, local->generation, what.bytes};
            else
                out.objects.push_back(what);
        });
    if (!is_whole) throw std::invalid_argument("a record is cut short");
    return out.processes.empty() && out.objects.empty();
}

Delivery Forwarding::deliver(uint32_t node, const char* data, size_t bytes) {
    Delivery out;
    while (out.consumed < bytes) {
        LinkRecord record;
        const size_t left = bytes - out.consumed;
        if (left < sizeof record) throw std::invalid_argument("a batch ends in the middle of a record");
        memcpy(&record, data + out.consumed, sizeof record);
        if (left - sizeof record < record.bytes || record.from.slot >= kSlots || record.to.slot >= kSlots)
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
        if ((!is_plain && !translate_in(out, kind, payload, record.bytes)) || !sender) {
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
            write(*sender, record, is_plain ? payload : scratch_.data());
        }
    }
    tell_changes();
    return out;
}

void Forwarding::write(ProcessId sender, const LinkRecord& record, const char* payload) {
    try {
        proxies_.send_as(sender.slot, record.to, Kind(record.kind), payload, record.bytes);
    } catch (const std::runtime_error& error) {  // no ring is free
        fprintf(stderr, "weft: a record (kind %u) for slot %u was dropped: %s\n", unsigned(record.kind),
                record.to.slot, error.what());
    }
}

void Forwarding::flow(uint32_t node, const LinkRecord& record) {
    const auto proxy = names.local(FarProcess{node, record.from});
    if (!proxy || !proxies_.has(proxy->slot)) return;
    if (record.kind == kKeepTheRest)
        proxies_.pause(proxy->slot, record.to.slot);
    else
        proxies_.resume(proxy->slot, record.to.slot);
}

}  // namespace weft
