#include "inbox.hpp"

#include <unordered_map>

#include "borrowing.hpp"

namespace weft {

bool Inbox::on_task(ProcessId from, const char* data, size_t bytes) {
    TaskHeader header;
    memcpy(&header, data, sizeof header);
    const bool is_creation = (header.flags & kIsCreation) != 0;
    if (is_creation != (from.slot == kDaemonSlot) || !endpoint_.is_worker) return false;
    inbox_.push_back({from, std::string(data, bytes)});
    if (is_indexed_) index_[{from.key(), inbox_.back().cookie()}] = &inbox_.back();
    changed();
    return true;
}

void Inbox::answer_refused(ProcessId from, const TaskHeader& header, std::string_view error) {
    Buffer out;
    if (header.flags & kIsCreation) {
        out.add(records::ActorState{header.actor});
        out.append(error.data(), error.size());
        return endpoint_.send_daemon(Kind::ACTOR_CREATED, out.data(), out.size());
    }
    out.add(ReplyHeader{header.cookie, uint32_t(Status::failed), 0, 1, 0});
    out.add(PackedValue{Where::error, 0, error.size()});
    out.append(error.data(), error.size());
    endpoint_.send(from, Kind::REPLY, out.data(), out.size());
}

bool Inbox::take_incoming(Incoming& out) {
    std::lock_guard lock(endpoint_.mutex);
    if (is_retired_) hand_back();
    bool is_found = false;
    while (!is_found && !inbox_.empty()) {
        is_found = !inbox_.front().bytes.empty();
        if (is_found && is_indexed_) index_.erase({inbox_.front().from.key(), inbox_.front().cookie()});
        if (is_found) out = std::move(inbox_.front());
        inbox_.pop_front();
    }
    if (is_found) take(out);
    if (is_indexed_ && inbox_.empty()) forget_index();
    changed();
    return is_found;
}

std::vector<Id> Inbox::waiting(size_t most) const {
    std::vector<Id> out;
    for (const Incoming& incoming : inbox_) {
        if (out.size() == most) break;
        if (incoming.bytes.empty()) continue;  // cancelled
        out.push_back(reinterpret_cast<const TaskHeader*>(incoming.bytes.data())->task);
    }
    return out;
}

void Inbox::hand_back() {
    if (inbox_.empty() || is_actor.load()) return;
    std::unordered_map<uint64_t, std::vector<uint64_t>> cookies;
    forget_index();
    std::erase_if(inbox_, [&](const Incoming& incoming) {
        if (incoming.bytes.empty()) return true;
        const auto* header = reinterpret_cast<const TaskHeader*>(incoming.bytes.data());
        if (header->flags & (kIsCreation | kIsMethod)) return false;
        cookies[incoming.from.key()].push_back(header->cookie);
        discard(incoming);
        return true;
    });
    changed();
    for (auto& [key, list] : cookies)
        endpoint_.send(ProcessId::from_key(key), Kind::HANDBACK, list.data(), list.size() * sizeof(uint64_t));
}

void Inbox::discard(const Incoming& incoming) {
    borrowing_.discard_task(incoming);
    if (!held_.empty()) let_go(incoming.from, incoming.cookie());
}

void Inbox::hold_orphans() {
    for (const Incoming& incoming : inbox_)
        hold_orphans(incoming);
    for (const Incoming& incoming : early)
        hold_orphans(incoming);
    if (taken_ != nullptr) hold_orphans(*taken_);
}

void Inbox::hold_orphans(const Incoming& incoming) {
    if (incoming.bytes.empty()) return;
    const std::vector<Entry*> orphans = borrowing_.hold_orphans(incoming);
    if (orphans.empty()) return;
    let_go(incoming.from, incoming.cookie());  // those of an earlier death are among these
    held_[{incoming.from.key(), incoming.cookie()}] = orphans;
}

void Inbox::let_go(ProcessId from, uint64_t cookie) {
    if (auto found = held_.extract({from.key(), cookie})) borrowing_.drop(found.mapped());
}

void Inbox::retire() {
    std::lock_guard lock(endpoint_.mutex);
    is_retired_ = true;
    endpoint_.send_daemon(Kind::RETIRES, nullptr, 0);
}

void Inbox::sender_died(ProcessId dead) {
    const auto credits = credits_.lower_bound({dead.key(), 0});
    auto after = credits;
    for (; after != credits_.end() && after->first.first == dead.key(); ++after)
        after->second->closed.store(true);  // its producer has it as long as it runs
    credits_.erase(credits, after);
    forget_index();
    std::erase_if(inbox_, [&](const Incoming& in) {
        if (in.from != dead) return false;
        if (!in.bytes.empty()) discard(in);
        return true;
    });
    changed();
}

void Inbox::on_cancel(ProcessId from, Cursor cursor) {
    const auto [cookie, how, _] = cursor.take<records::Cancel>();
    if (!cancel_incoming(from, cookie) && on_cancel_running)
        on_cancel_running(from, cookie, how & 1, how & 2);
}

/// One search through a long inbox finds the way to all that is in it.
Incoming* Inbox::find_incoming(ProcessId from, uint64_t cookie) {
    if (!is_indexed_ && !inbox_.empty()) {
        for (Incoming& in : inbox_)
            if (!in.bytes.empty()) index_[{in.from.key(), in.cookie()}] = &in;
        is_indexed_ = true;
    }
    const auto it = index_.find({from.key(), cookie});
    if (it == index_.end()) return nullptr;
    Incoming* found = it->second;
    index_.erase(it);
    return found;
}

bool Inbox::cancel_incoming(ProcessId from, uint64_t cookie) {
    Incoming* waiting = find_incoming(from, cookie);
    if (waiting != nullptr) answer_cancelled(*waiting);
    return waiting != nullptr;
}

void Inbox::answer_cancelled(Incoming& incoming) {
    const uint64_t cookie = incoming.cookie();
    discard(incoming);
    incoming.bytes.clear();  // it keeps its place, which is passed over
    const std::string error = error_value(ErrorCode::cancelled, "the task was cancelled before it started");
    Buffer out;
    out.add(ReplyHeader{cookie, uint32_t(Status::cancelled), 0, 1, 0});
    out.add(PackedValue{Where::error, 0, error.size()});
    out.append(error.data(), error.size());
    endpoint_.send(incoming.from, Kind::REPLY, out.data(), out.size());
}

std::string Inbox::take_binding() {
    std::lock_guard lock(endpoint_.mutex);
    std::string binding;
    binding.swap(binding_);
    return binding;
}

std::shared_ptr<Credit> Inbox::credit(ProcessId from, uint64_t cookie) {
    auto& place = credits_[{from.key(), cookie}];
    if (!place) {
        place = std::make_shared<Credit>();
        // Who is dead by now has been buried: nobody would close it later.
        place->closed.store(!endpoint_.segment.is_alive(from), std::memory_order_relaxed);
    }
    return place;
}

void Inbox::on_stream_credit(ProcessId from, Cursor cursor) {
    const auto [cookie, consumed, _] = cursor.take<records::StreamCredit>();
    // It may come before the task starts, or after it ended; the latter goes with the task's peer.
    std::shared_ptr<Credit> credit = this->credit(from, cookie);
    if (consumed == kNoMoreItems)
        credit->closed.store(true, std::memory_order_release);
    else
        credit->consumed.store(consumed, std::memory_order_release);
}

}  // namespace weft
