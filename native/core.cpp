/// Which part a record concerns, and in which order the parts hear of a death and of the end.
#include "core.hpp"

#include <algorithm>
#include <cstring>

#include "record_check.hpp"

namespace weft {

Core::Core(std::shared_ptr<Segment> segment, int event_fd, ProcessId self, Id root, bool is_worker,
           Outside* simulated)
    : endpoint(std::move(segment), event_fd, self, root, is_worker, simulated) {
    if (simulated == nullptr) pump.start();
}

void Core::close() {
    if (!endpoint.close()) return;
    pump.wake_all();
    flushing.wake();
    endpoint.wake_event_reader();
    pump.end_threads();
    flushing.end_thread();
    pump.wait_for_others();
}

void Core::become_private() {
    endpoint.become_private();
    pump.become_private();
}

// ---- receiving ----------------------------------------------------------------------------------

size_t Core::drain_peer(uint32_t slot) {
    return endpoint.channels.receive(
        is_far(slot) ? kRelaySlot : slot, [this](ProcessId from, Kind kind, const char* data, size_t bytes) {
            try {
                if (!may_say(from, kind)) [[unlikely]]
                    return may_not_say(from, kind, data, bytes);
                if (!is_whole(endpoint.segment, kind, data, bytes)) [[unlikely]]
                    return refuse(from, kind, data, bytes, "it is cut short, or names what there is not");
                handle(from, kind, data, bytes);
            } catch (const std::bad_alloc&) {
                no_memory_for(from, kind, data, bytes);
            } catch (
                const std::exception& error) {  // whoever drains must go on: it is a thread's main loop, or C
                refuse(from, kind, data, bytes, error.what());
            }
        });
}

void Core::drain_all() {
    endpoint.segment.blocks_of(endpoint.self.slot, [this](uint32_t, uint64_t ends) {
        const uint32_t from = RingEnds(ends).from;
        if (from != endpoint.self.slot && from != kDaemonSlot) drain_peer(from);
    });
}

void Core::complain(ProcessId from, Kind kind, const char* why) {
    if (!complained_.emplace(from.key(), kind).second) return;
    fprintf(stderr, "weft: a record (kind %u) of the process in slot %u, generation %u, was dropped: %s\n",
            unsigned(kind), from.slot, from.generation, why);
}

void Core::may_not_say(ProcessId from, Kind kind, const char* data, size_t bytes) {
    const auto cut = Kind(uint16_t(kind) & ~kCut);
    if (cut != kind && may_say(from, cut)) return no_memory_for(from, cut, data, bytes);
    complain(from, kind, "it is not for that sender to say");
}

void Core::no_memory_for(ProcessId from, Kind kind, const char* data, size_t bytes) {
    complain(from, kind, "there is no memory for it");
    fail_waiting(from, kind, data, bytes, "finds no memory here: pass less at once");
}

/// Drops a record that makes no sense. Who waits for it, here or where it came from, gets an error (CHK-2).
void Core::refuse(ProcessId from, Kind kind, const char* data, size_t bytes, const char* why) {
    complain(from, kind, why);
    fail_waiting(
        from, kind, data, bytes,
        std::string("makes no sense: ") + why + ". A process of another version of Weft, or damaged memory?");
}

void Core::fail_waiting(ProcessId from, Kind kind, const char* data, size_t bytes, const std::string& what) {
    const std::string error =
        error_value(ErrorCode::bad_record, "the record (kind " + std::to_string(unsigned(kind)) +
                                               ") that was to tell the result " + what);
    uint64_t cookie = 0;
    Id id;
    TaskHeader header;
    switch (kind) {
        case Kind::REPLY:
        case Kind::STREAM_ITEM:  // both begin with it
            if (bytes < sizeof cookie) return;
            memcpy(&cookie, data, sizeof cookie);
            if (Task* task = tasks.task_at(cookie); task != nullptr && Submitter::runs_at(task, from))
                submitter.fail_in_flight(task, error);
            return;
        case Kind::VALUE:
            if (bytes < sizeof id) return;
            memcpy(&id, data, sizeof id);
            if (Entry* entry = objects.find(id); entry != nullptr && !entry->owned && entry->owner == from)
                objects.fail(entry, error);
            return;
        case Kind::TASK:
            if (bytes < sizeof header) return;
            memcpy(&header, data, sizeof header);
            return inbox.answer_refused(from, header, error);
        default:
            return;
    }
}

void Core::handle(ProcessId from, Kind kind, const char* data, size_t bytes) {
    Cursor cursor(data, bytes);
    switch (kind) {
        case Kind::REPLY:
            return submitter.on_reply(from, cursor);
        case Kind::TASK:
            if (inbox.on_task(from, data, bytes)) return;
            return refuse(from, kind, data, bytes,
                          "it is not for that sender to say, or not to this process");
        case Kind::FUNCTION:
            return definitions.on_function(from, cursor);
        case Kind::FORGET_FUNCTION:
            return definitions.on_forget_function(from, cursor.take<uint64_t>());
        case Kind::HANDBACK:
            return leases.on_handback(from, cursor);
        case Kind::BORROW_ADD:
            return borrowing.on_borrow_add(cursor);
        case Kind::BORROW_RELEASE:
            return borrowing.on_borrow_release(from, cursor);
        case Kind::WANT:
            return borrowing.on_want(from, cursor);
        case Kind::VALUE:
            return borrowing.on_value(from, cursor);
        case Kind::CANCEL:
            return inbox.on_cancel(from, cursor);
        case Kind::CANCEL_OBJECT:
            return submitter.on_cancel_object(cursor);
        case Kind::KEEP:
            return lent_rows.on_keep(cursor);
        case Kind::DEPOSIT_THERE:
            return lent_rows.on_deposit_there(cursor);
        case Kind::MOVED:
            return inheritance.on_moved(cursor);
        case Kind::STREAM_ITEM:
            return streams.on_stream_item(from, cursor);
        case Kind::STREAM_CREDIT:
            return inbox.on_stream_credit(from, cursor);
        default:
            return handle_daemon(kind, data, bytes);
    }
}

void Core::handle_daemon(Kind kind, const char* data, size_t bytes) {
    Cursor cursor(data, bytes);
    switch (kind) {
        case Kind::CONTROL:
            return endpoint.push_event({uint16_t(kind), std::string(data, bytes)});
        case Kind::BIND_JOB:
            return inbox.bind(data, bytes);
        case Kind::LEASE_GRANT:
            leases.on_grant(cursor);
            return pump.owe_a_tick();
        case Kind::LEASE_REVOKE:
            return leases.on_revoke(cursor.take<uint64_t>());
        case Kind::SHAPE_REFUSED:
            return leases.on_refused(cursor);
        case Kind::NOT_NEAR:
            return leases.on_not_near(cursor);
        case Kind::PEER_DIED: {
            const auto death = cursor.take<PeerDeath>();
            return peer_died(death, cursor.rest());
        }
        case Kind::SPARE_RINGS:
            return endpoint.channels.return_idle();
        case Kind::FIND_ORPHANS:
            drain_all();
            return inheritance.on_find_orphans(cursor);
        case Kind::ADOPT:
            drain_all();
            return inheritance.on_adopt(cursor);
        case Kind::SETTLED:
            drain_all();
            return inheritance.on_settled(cursor);
        case Kind::ORPHAN_ANSWERED:
            return inheritance.on_orphan_answered(cursor);
        case Kind::ACTOR_UP:
            return actors.on_actor_up(cursor);
        case Kind::ACTOR_DOWN:
            return actors.on_actor_down(cursor);
        case Kind::PROMISE_KEPT:
            return objects.on_promise_kept(cursor.take<Id>());
        case Kind::SPACE:
            return store_requests.on_space(cursor);
        case Kind::RESTORED:
            return store_requests.on_restored(cursor);
        default:
            return;  // ACQUAINT says nothing
    }
}

// ---- deaths ----------------------------------------------------------------------------------------

void Core::peer_died(const PeerDeath& death, std::string_view reason) {
    const ProcessId dead = death.dead;
    const std::string why(reason);
    if (!endpoint.is_simulated()) {
        drain_peer(dead.slot);  // what it had published still counts, also if it was its first word
        endpoint.channels.forget(dead);
    }
    leases.worker_died(death, why);
    actors.process_died(dead);
    // Values that it wanted are not sent when they come (Objects::complete).
    definitions.sender_died(dead);
    inbox.sender_died(dead);
    endpoint.send_daemon(Kind::PEER_DETACHED, &dead, sizeof dead);
}

void Core::found_dead(ProcessId dead) {
    peer_died({dead}, "it died before it was reached");
}

void Core::daemon_lost() {
    const std::string error = node_lost_error();
    submitter.fail_all(error);
    objects.fail_pending(error);
    store_requests.daemon_lost();
}

// ---- now and then ----------------------------------------------------------------------------------

int64_t Core::tick_work() {
    inheritance.answer_when_flushed();
    submitter.forget_index();
    tasks.trim();
    const int64_t ledger = lent_rows.let_go_when_idle();
    const int64_t lease = leases.return_idle();
    return ledger < 0 ? lease : lease < 0 ? ledger : std::min(ledger, lease);
}

}  // namespace weft
