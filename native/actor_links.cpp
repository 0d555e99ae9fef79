#include "actor_links.hpp"

#include <algorithm>

#include "streams.hpp"
#include "submitter.hpp"
#include "sweep.hpp"

namespace weft {

ActorLink* ActorLinks::link(Id actor) {
    auto& place = actors_[actor];
    if (!place) {
        place = std::make_unique<ActorLink>();
        place->id = actor;
    }
    return place.get();
}

void ActorLinks::submit_creation(Task* task) {
    // The creator hears of the actor by itself; no watch is needed.
    ActorLink* made = link(task->header().actor);
    if (endpoint_.is_lost()) return actor_is_dead(made, node_lost_error()), submitter_.finish_task(task);
    made->watching = true;
    made->creation = task;
    submitter_.submit(task);
}

void ActorLinks::submit_call(Task* task, Entry* actor) {
    ActorLink* to = link(actor->id);
    if (task->actor == nullptr) task->previous_call = std::exchange(to->last_call, task->id);
    task->actor = to;  // what an heir submits anew has one, and keeps its place
    if (endpoint_.is_lost() && to->state != ActorLink::dead)
        return submitter_.fail_task(task, node_lost_error());
    // A call that may not be repeated does not wait for a restart: its caller is told to come back.
    if (to->state == ActorLink::dead || (to->state == ActorLink::restarting && task->retries == 0)) {
        const std::string why = to->death;
        return submitter_.fail_task(task, why);
    }
    watch(to, actor->owner);
    to->queue.push_back(task);
    submitter_.submit(task);
}

void ActorLinks::watch(ActorLink* to, ProcessId owner) {
    if (std::exchange(to->watching, true)) return;
    const records::ActorWatch body{to->id, owner};
    endpoint_.send_daemon(body.kind, &body, sizeof body);
}

void ActorLinks::flush_actor(ActorLink* link) {
    if (link->state != ActorLink::up || link->queue.empty()) return;
    // It may have died before anything was sent to it, and then nobody has told.
    if (!endpoint_.is_alive(link->where)) return actor_out_of_reach(link);
    for (Task *task = link->queue.front(), *next; task != nullptr; task = next) {
        next = task->after;
        bool ready = task->missing == 0 && submitter_.has_arguments(task);
        for (Entry* entry : task->deps)
            ready = ready && entry->where != Where::error;  // enqueue() fails it
        if (!ready) {
            if ((task->flags & kUnordered) == 0) return;
            continue;
        }
        send_call(link, task);
    }
}

void ActorLinks::send_early(ActorLink* link, Task* task) {
    if (link->state != ActorLink::up) return;
    if (!endpoint_.is_alive(link->where)) return actor_out_of_reach(link);
    if (submitter_.has_arguments(task)) send_call(link, task);
}

void ActorLinks::send_call(ActorLink* link, Task* task) {
    link->queue.erase(task);
    link->flight.push_back(task);
    if (task->flags & kStreaming) streams_.aim(task);
    submitter_.write_task(link->where, task, Kind::TASK);
    if (task->flags & kStreaming) streams_.start_stream(task);
}

/// Its process is dead, or only the link to its node: the daemon knows which, and answers a watch.
void ActorLinks::actor_out_of_reach(ActorLink* to) {
    to->state = ActorLink::unknown;
    to->out_of_reach = true;
    const records::ActorWatch body{to->id, {}};
    endpoint_.send_daemon(body.kind, &body, sizeof body);
}

void ActorLinks::on_actor_up(Cursor cursor) {
    const auto up = cursor.take<records::ActorUp>();
    ActorLink* to = link(up.actor);
    const ProcessId where = up.worker;
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
    const auto [known, end] = actors_at_.equal_range(where.key());
    if (std::none_of(known, end, [&](const auto& at) { return at.second == to->id; }))
        actors_at_.emplace(where.key(), to->id);
    flush_actor(to);
}

/// What was sent and not answered goes back to the head of the queue where it may be repeated, else it fails.
void ActorLinks::settle_flight(ActorLink* to, bool may_retry, const std::string& error) {
    const std::vector<Task*> flight = to->flight.take_all();
    std::vector<Task*> failed;
    for (auto it = flight.rbegin(); it != flight.rend(); ++it) {
        if (may_retry && submitter_.retry(*it))
            to->queue.push_front(*it);
        else
            failed.push_back(*it);
    }
    for (auto it = failed.rbegin(); it != failed.rend(); ++it) {
        Task* task = *it;
        submitter_.fail_task(
            task, task->cancelled ? error_value(ErrorCode::cancelled, "task " + task->name + " was cancelled")
                                  : error);
    }
}

void ActorLinks::on_actor_down(Cursor cursor) {
    const auto down = cursor.take<records::ActorState>();
    ActorLink* to = link(down.actor);
    const bool is_dead = down.state != 0;
    const std::string error(cursor.rest());
    to->state = is_dead ? ActorLink::dead : ActorLink::restarting;
    to->death = error;
    if (std::exchange(to->out_of_reach, false) && !is_dead) fail_unsent(to, error);
    settle_flight(to, !is_dead, error);
    if (!is_dead) return;
    actor_is_dead(to, error);
    sweep_.may_be_unused();
}

/// Calls that were to be sent when the process was found dead: as those that come now, they do not wait for a
/// restart if they may not be repeated.
void ActorLinks::fail_unsent(ActorLink* to, const std::string& error) {
    std::vector<Task*> unsent;
    for (Task* task = to->queue.front(); task != nullptr; task = task->after)
        if (task->retries == 0 && task->header().attempt == 0 && task->missing == 0) unsent.push_back(task);
    for (Task* task : unsent) {
        to->queue.erase(task);
        submitter_.fail_task(task, error);
    }
}

void ActorLinks::actor_is_dead(ActorLink* to, const std::string& error) {
    to->state = ActorLink::dead;
    to->death = error;
    const std::vector<Task*> queue = to->queue.take_all();
    // Those that still wait for dependencies, maybe for each other, must not be found by them any more.
    for (Task* task : queue)
        ++task->generation;
    for (Task* task : queue)
        submitter_.fail_task(task, error);
    if (to->creation != nullptr) submitter_.finish_task(to->creation);
    to->creation = nullptr;
}

void ActorLinks::fail_creation(Task* task, const std::string& error) {
    ActorLink* to = link(task->header().actor);
    Buffer out;
    out.add(records::ActorState{to->id});
    out.append(error.data(), error.size());
    endpoint_.send_daemon(Kind::ACTOR_CREATED, out.data(), out.size());
    actor_is_dead(to, error);
}

void ActorLinks::process_died(ProcessId dead) {
    for (auto [at, end] = actors_at_.equal_range(dead.key()); at != end; ++at)
        if (const auto it = actors_.find(at->second);
            it != actors_.end() && it->second->state == ActorLink::up && it->second->where == dead)
            actor_out_of_reach(it->second.get());
    actors_at_.erase(dead.key());
}

void ActorLinks::mark_living(bool is_lineage_on_disk) {
    for (auto& [id, link] : actors_)
        link->is_used = link->state != ActorLink::dead || (link->is_flushed && is_lineage_on_disk);
}

void ActorLinks::mark_used(Id actor) {
    if (const auto it = actors_.find(actor); it != actors_.end()) it->second->is_used = true;
}

void ActorLinks::forget_unused() {
    std::erase_if(actors_, [](const auto& item) { return !item.second->is_used; });
}

}  // namespace weft
