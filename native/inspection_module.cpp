/// Looking into the core from Python: tasks, objects, waits. Nothing here is on the way of a task.
#include "bindings.hpp"
#include "inspection.hpp"
#include "py.hpp"

namespace weft {

namespace {

nb::dict explain(nb::handle ref) {
    if (!is_ref(ref.ptr())) throw nb::type_error("explain wants an ObjectRef");
    Entry* entry = entry_of(ref.ptr());
    if (entry == nullptr) throw nb::python_error();
    Core& core = need();
    core.pump.poll();
    Explanation e;
    ArenaRef arena;
    {
        std::lock_guard lock(core.mutex());
        e = Inspection(core).explain(entry);
        if (entry->is_done() && entry->where == Where::arena) arena = entry->arena;
    }
    nb::dict out;
    out["arena"] = nb::make_tuple(arena.entry, arena.generation);
    out["is_elsewhere"] = core.arena().is_elsewhere(arena);
    out["refs"] = e.refs;
    out["state"] = e.state;
    out["task"] = e.task;
    out["is_owned"] = e.is_owned;
    out["owner"] = nb::make_tuple(e.owner.slot, e.owner.generation);
    out["owner_alive"] = e.owner_alive;
    out["worker"] = nb::make_tuple(e.worker.slot, e.worker.generation);
    out["actor"] = e.actor.is_nil() ? nb::bytes("", 0) : as_bytes(e.actor);
    out["bytes"] = e.bytes;
    out["borrowers"] = e.borrowers;
    out["holds"] = e.holds;
    out["ahead"] = e.ahead;
    out["leases"] = e.leases;
    out["attempt"] = e.attempt;
    out["retries_left"] = e.retries_left;
    out["shape"] = e.shape;
    nb::list waits;
    for (const Id& id : e.waits_for)
        waits.append(as_bytes(id));
    out["waits_for"] = waits;
    return out;
}

nb::list as_list(const std::vector<Id>& ids) {
    nb::list out;
    for (const Id& id : ids)
        out.append(as_bytes(id));
    return out;
}

nb::list submitted_tasks(size_t most) {
    Core& core = need();
    std::vector<TaskStory> tasks;
    {
        std::lock_guard lock(core.mutex());
        tasks = Inspection(core).tasks(most);
    }
    nb::list out;
    for (const TaskStory& one : tasks) {
        nb::dict row;
        row["task"] = as_bytes(one.id);
        row["parent"] = as_bytes(one.parent);
        row["actor"] = one.actor.is_nil() ? nb::bytes("", 0) : as_bytes(one.actor);
        row["name"] = one.name;
        row["state"] = one.state;
        row["attempt"] = one.attempt;
        row["worker"] = nb::make_tuple(one.worker.slot, one.worker.generation);
        row["shape"] = one.shape;
        row["waits_for"] = as_list(one.waits_for);
        out.append(row);
    }
    return out;
}

/// ([(number, thread, began_s, name, object ids)], [(object id, kind, ids, shape, task)])
nb::tuple long_waits(std::vector<nb::bytes> asked) {
    Core& core = need();
    struct Told {
        uint64_t number, thread;
        double began_s;
        std::string name;
        std::vector<Id> objects;
    };
    std::vector<Told> told;
    std::vector<Hindrance> found;
    {
        std::lock_guard lock(core.mutex());
        std::vector<Entry*> first;
        for (const LongWait* wait : core.long_waits.all()) {
            const std::vector<Entry*> entries = Inspection(core).waited_for(*wait);
            std::vector<Id> ids;
            for (const Entry* entry : entries)
                ids.push_back(entry->id);
            told.push_back({wait->number, wait->thread, wait->began_s, wait->name, std::move(ids)});
            first.insert(first.end(), entries.begin(), entries.end());
        }
        for (const nb::bytes& one : asked) {
            Id id;
            if (one.size() != sizeof id) continue;
            memcpy(&id, one.c_str(), sizeof id);
            if (Entry* entry = core.objects.find(id)) first.push_back(entry);
        }
        found = Inspection(core).hindrances(std::move(first));
    }
    nb::list waits, hindrances;
    for (const Told& one : told)
        waits.append(nb::make_tuple(one.number, one.thread, one.began_s, one.name, as_list(one.objects)));
    for (const Hindrance& one : found)
        hindrances.append(nb::make_tuple(as_bytes(one.object), std::string(1, one.kind), as_list(one.what),
                                         one.shape, one.task));
    return nb::make_tuple(waits, hindrances);
}

nb::tuple waiting_tasks(size_t most) {
    Core& core = need();
    Id running;
    std::vector<Id> inbox;
    {
        std::lock_guard lock(core.mutex());
        running = running_task();
        inbox = core.inbox.waiting(most);
    }
    return nb::make_tuple(running == Id{} ? nb::bytes("", 0) : as_bytes(running), as_list(inbox));
}

nb::list held_objects(size_t most) {
    Core& core = need();
    core.pump.poll();
    std::vector<Held> held;
    {
        std::lock_guard lock(core.mutex());
        held = Inspection(core).held(most);
    }
    nb::list out;
    for (const Held& one : held) {
        nb::dict row;
        row["id"] = as_bytes(one.id);
        row["state"] = one.state;
        row["is_owned"] = one.is_owned;
        row["is_actor"] = one.is_actor;
        row["owner"] = nb::make_tuple(one.owner.slot, one.owner.generation);
        row["bytes"] = one.bytes;
        row["holds"] = one.holds;
        nb::list borrowers;
        for (const auto& [id, count] : one.borrowers)
            borrowers.append(nb::make_tuple(id.slot, id.generation, count));
        row["borrowers"] = borrowers;
        out.append(row);
    }
    return out;
}

nb::dict statistics() {
    const Counters c = Inspection(need()).counters();
    nb::dict out;
    out["tasks_submitted"] = c.submitted;
    out["tasks_run"] = c.run;
    out["objects_owned"] = c.owned;
    out["objects_borrowed"] = c.borrowed;
    out["pending_tasks"] = c.pending;
    out["leases"] = c.leases;
    out["lineage_tasks"] = c.kept;
    out["lineage_bytes"] = c.kept_bytes;
    out["lineage_disk_bytes"] = c.flushed_bytes;
    out["lineage_input_bytes"] = c.input_bytes;
    out["tasks_rebuilt"] = c.rebuilt;
    out["functions"] = c.functions;
    out["definitions"] = c.definitions;
    out["actors"] = c.actors;
    return out;
}

}  // namespace

void add_inspection(nb::module_& m) {
    m.def("explain", &explain);
    m.def("statistics", &statistics);
    m.def("held_objects", &held_objects);
    m.def("submitted_tasks", &submitted_tasks);
    m.def("long_waits", &long_waits);
    m.def("waiting_tasks", &waiting_tasks);
    m.def("break_wait", [](uint64_t number, nb::bytes error) {
        return need().long_waits.break_wait(number, std::string(error.c_str(), error.size()));
    });
}

}  // namespace weft
