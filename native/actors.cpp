/// The caller's side of actors: where each one is, and its calls in order.
#include <algorithm>

#include "core.hpp"

namespace weft {

ActorLink* Core::link(Id actor) {
    auto& place = actors_[actor];
    if (!place) {
        place = std::make_unique<ActorLink>();
        place->id = actor;
    }
    return place.get();
}

void Core::submit_creation(Task* task) {
    // The creator hears of the actor by itself; no watch is needed.
    ActorLink* made = link(task->header().actor);
    if (is_lost()) return actor_is_dead(made, node_lost_error()), finish_task(task);
    made->watching = true;
    made->creation = task;
    submit(task);
}

void Core::submit_call(Task* task, Entry* actor) {
    ActorLink* to = link(actor->id);
    task->actor = to;
    if (is_lost() && to->state != ActorLink::dead) return fail_task(task, node_lost_error());
    // A call that may not be repeated does not wait for a restart: its caller is told to come back.
    if (to->state == ActorLink::dead || (to->state == ActorLink::restarting && task->retries == 0)) {
        const std::string why = to->death;
        return fail_task(task, why);
    }
    watch(to, actor->owner);
    to->queue.push_back(task);
    submit(task);
}

/// Have the daemon tell where it is, from now on.
void Core::watch(ActorLink* to, ProcessId owner) {
    if (std::exchange(to->watching, true)) return;
    struct {
        Id id;
        ProcessId owner;
    } body{to->id, owner};
    send(daemon_, Kind::ACTOR_WATCH, &body, sizeof body);
}

/// Send what can go, in order: a call whose dependencies are missing holds up those behind it, unless they
/// may overtake it.
void Core::flush_actor(ActorLink* link) {
    if (link->state != ActorLink::up || link->queue.empty()) return;
    // It may have died before anything was sent to it, and then nobody has told.
    if (!segment_->is_alive(link->where)) return actor_out_of_reach(link);
    for (auto next = link->queue.begin(); next != link->queue.end();) {
        Task* task = *next;
        bool ready = task->missing == 0 && has_arguments(task);
        for (Entry* entry : task->deps)
            ready = ready && entry->where != Where::error;  // enqueue() fails it
        if (!ready) {
            if ((task->flags & kUnordered) == 0) return;
            ++next;
            continue;
        }
        next = link->queue.erase(next);
        link->flight.push_back(task);
        write_task(link->where, task, Kind::TASK);
        if (task->flags & kStreaming) send_credit(task, stream_of(task->returns[0]));
    }
}

/// Its process is dead, or only the link to its node: the daemon knows which, and answers a watch.
void Core::actor_out_of_reach(ActorLink* to) {
    to->state = ActorLink::unknown;
    to->out_of_reach = true;
    struct {
        Id id;
        ProcessId owner;
    } body{to->id, {}};
    send(daemon_, Kind::ACTOR_WATCH, &body, sizeof body);
}

void Core::on_actor_up(Cursor cursor) {
    ActorLink* to = link(cursor.take<Id>());
    const auto where = cursor.take<ProcessId>();
    if (to->out_of_reach) {  // it lives: what was under way when the link to it broke may have been done or
                             // not
        to->out_of_reach = false;
        settle_flight(
            to, true,
            error_value(ErrorCode::actor_unavailable,
                        "the link to the actor's node broke while the call was under way; whether "
                        "it was done is not known. Call again, or give the actor max_task_retries"));
    }
    to->where = where;
    to->state = ActorLink::up;
    flush_actor(to);
}

/// What was sent and not answered goes back to the head of the queue where it may be repeated, else it fails.
void Core::settle_flight(ActorLink* to, bool may_retry, const std::string& error) {
    std::deque<Task*> flight = std::move(to->flight);
    to->flight.clear();
    std::vector<Task*> failed;
    for (auto it = flight.rbegin(); it != flight.rend(); ++it) {
        if (may_retry && retry(*it))
            to->queue.push_front(*it);
        else
            failed.push_back(*it);
    }
    for (auto it = failed.rbegin(); it != failed.rend(); ++it)
        fail_task(*it, error);
}

void Core::on_actor_down(Cursor cursor) {
    ActorLink* to = link(cursor.take<Id>());
    const bool is_dead = cursor.take<uint32_t>() != 0;
    cursor.take<uint32_t>();
    const std::string error(cursor.rest());
    to->state = is_dead ? ActorLink::dead : ActorLink::restarting;
    to->out_of_reach = false;
    settle_flight(to, !is_dead, error);
    to->death = error;
    if (!is_dead) return;
    actor_is_dead(to, error);
    may_be_unused();
}

void Core::actor_is_dead(ActorLink* to, const std::string& error) {
    to->state = ActorLink::dead;
    to->death = error;
    std::deque<Task*> queue = std::move(to->queue);
    to->queue.clear();
    // Those that still wait for dependencies, maybe for each other, must not be found by them any more.
    for (Task* task : queue)
        for (Entry* entry : task->deps)
            if (entry->extra) std::erase(entry->extra->dependents, task);
    for (Task* task : queue)
        fail_task(task, error);
    if (to->creation != nullptr) finish_task(to->creation);
    to->creation = nullptr;
}

/// An argument of the constructor failed: tell those who watch the actor through the daemon, too.
void Core::fail_creation(Task* task, const std::string& error) {
    ActorLink* to = link(task->header().actor);
    Buffer out;
    out.add(to->id);
    out.add(uint64_t(0));
    out.append(error.data(), error.size());
    send(daemon_, Kind::ACTOR_CREATED, out.data(), out.size());
    actor_is_dead(to, error);
}

}  // namespace weft
