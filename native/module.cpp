/// The module `weft._native`: attaching, the callback thread, and the bindings.
#define PY_SSIZE_T_CLEAN
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unordered_map.h>
#include <nanobind/stl/vector.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "node_port.hpp"
#include "py.hpp"

namespace nb = nanobind;

namespace weft {

/// collective_module.cpp
void add_group_member(nb::module_& m);

Session& session() {
    static Session* const instance = new Session;  // never destroyed: threads and refs may outlive main
    return *instance;
}

Core* attached() {
    if (session().number != 0) return session().core.get();
    PyErr_SetString(PyExc_RuntimeError, "weft is not initialised in this process: call weft.init() first");
    return nullptr;
}

PyObject* raise_error(std::string_view error) {
    Owned bytes(PyBytes_FromStringAndSize(error.data(), Py_ssize_t(error.size())));
    if (!bytes) return nullptr;
    Owned none(PyObject_CallMethod(session().host, "raise_error", "O", bytes.get()));
    if (none) PyErr_SetString(PyExc_RuntimeError, "weft: an error value raised nothing");
    return nullptr;
}

PyObject* translate_exception() {
    try {
        throw;
    } catch (const std::bad_alloc&) {
        PyErr_NoMemory();
    } catch (const std::exception& error) {
        PyErr_SetString(PyExc_RuntimeError, error.what());
    }
    return nullptr;
}

namespace {

/// Runs what needs Python: control messages and ready callbacks.
void callback_loop(std::shared_ptr<Core> core, PyObject* host) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    pthread_setname_np(pthread_self(), "weft-callbacks");
    CoreEvent event;
    while (core->next_event(event)) {
        const PyGILState_STATE state = PyGILState_Ensure();
        PyObject* result;
        if (event.callback != nullptr) {
            result = PyObject_CallNoArgs(event.callback);
            Py_DECREF(event.callback);
            event.callback = nullptr;
        } else if (event.kind == 0) {
            result = PyObject_CallMethod(host, "on_daemon_lost", nullptr);
        } else {
            result = PyObject_CallMethod(host, "on_event", "Hy#", event.kind, event.payload.data(),
                                         Py_ssize_t(event.payload.size()));
        }
        if (result == nullptr) PyErr_WriteUnraisable(host);
        Py_XDECREF(result);
        PyGILState_Release(state);
    }
}

/// A forked child has the memory but not the threads: it is not attached.
void after_fork_in_child() {
    Session& s = session();
    if (s.number == 0) return;
    new std::shared_ptr<Core>(std::move(s.core));  // leaked on purpose: its threads are not here
    s.core.reset();
    s.number = 0;
    new std::thread(std::move(s.callbacks));
    s.host = nullptr;
}

void attach(int segment_fd, int event_fd, uint32_t slot, uint32_t generation, nb::object host,
            nb::bytes root_task, bool is_worker, int daemon_socket_fd) {
    Session& s = session();
    if (s.number != 0) throw std::runtime_error("weft: this process is attached already");
    if (root_task.size() < 12) throw std::invalid_argument("weft: root_task must have 12 bytes");
    Id root;
    memcpy(&root, root_task.c_str(), 12);
    auto core = std::make_shared<Core>(Segment::attach(segment_fd), event_fd, ProcessId{slot, generation},
                                       root, is_worker);
    if (daemon_socket_fd >= 0) core->watch_daemon(daemon_socket_fd);
    s.core = core;
    s.host = host.inc_ref().ptr();
    s.number = ++s.attaches;
    s.callbacks = std::thread(callback_loop, core, s.host);
}

void detach() {
    Session& s = session();
    if (s.number == 0) return;
    s.number = 0;
    std::shared_ptr<Core> core = std::move(s.core);
    s.core.reset();
    std::thread callbacks = std::move(s.callbacks);
    PyObject* host = std::exchange(s.host, nullptr);
    {
        nb::gil_scoped_release release;
        core->close();
        if (callbacks.get_id() == std::this_thread::get_id())
            callbacks.detach();
        else
            callbacks.join();
    }
    Py_XDECREF(host);
}

Core& need() {
    if (attached() == nullptr) throw nb::python_error();
    return *session().core;
}

void on_ready(nb::handle ref, nb::object callback) {
    if (!is_ref(ref.ptr())) throw nb::type_error("on_ready wants an ObjectRef");
    Entry* entry = entry_of(ref.ptr());
    if (entry == nullptr) throw nb::python_error();
    Core& core = need();
    PyObject* owned = callback.inc_ref().ptr();
    {
        std::lock_guard lock(core.mutex());
        core.fetch(entry);
        if (!entry->is_done()) {
            entry->more().callbacks.push_back(owned);
            return;
        }
    }
    core.push_event({0xffff, {}, owned});
}

int cancel(nb::handle ref, bool force, bool recursive) {
    if (!is_ref(ref.ptr())) throw nb::type_error("cancel wants an ObjectRef");
    Entry* entry = entry_of(ref.ptr());
    if (entry == nullptr) throw nb::python_error();
    Core& core = need();
    std::lock_guard lock(core.mutex());
    return int(core.cancel(entry, force, recursive));
}

void close_stream(nb::handle ref) {
    if (!is_ref(ref.ptr()) || session().number == 0) return;
    Entry* entry = entry_of(ref.ptr());
    if (entry == nullptr) {
        PyErr_Clear();
        return;
    }
    Core& core = need();
    std::lock_guard lock(core.mutex());
    core.close_stream(entry);
}

/// Run the callback once an item or the end has come.
void on_item(nb::handle ref, nb::object callback) {
    if (!is_ref(ref.ptr())) throw nb::type_error("on_item wants an ObjectRef");
    Entry* entry = entry_of(ref.ptr());
    if (entry == nullptr) throw nb::python_error();
    Core& core = need();
    PyObject* owned = callback.inc_ref().ptr();
    {
        std::lock_guard lock(core.mutex());
        Stream* stream = core.stream_of(entry);
        if (stream != nullptr && stream->items.empty() && !entry->is_done()) {
            stream->callbacks.push_back(owned);
            return;
        }
    }
    core.push_event({0xffff, {}, owned});
}

nb::object new_actor() {
    Core& core = need();
    Entry* entry;
    {
        std::lock_guard lock(core.mutex());
        entry = core.new_entry(next_child(core).object(0xfffe));
        entry->is_actor = true;
        core.escape(entry);
        Core::hold(entry);
    }
    PyObject* token = make_ref(token_type, entry);
    if (token == nullptr) throw nb::python_error();
    return nb::steal(token);
}

nb::object actor_token(nb::bytes id_bytes) {
    Core& core = need();
    if (id_bytes.size() != sizeof(Id)) throw nb::value_error("an actor id has 16 bytes");
    Id id;
    memcpy(&id, id_bytes.c_str(), sizeof id);
    Entry* entry;
    {
        std::lock_guard lock(core.mutex());
        entry = core.weak_actor(id);
        Core::hold(entry);
    }
    PyObject* token = make_ref(token_type, entry);
    if (token == nullptr) throw nb::python_error();
    return nb::steal(token);
}

nb::object current_task() {
    if (context == nullptr) {
        const Id root = session().core ? session().core->root : Id{};
        return nb::make_tuple(nb::bytes(reinterpret_cast<const char*>(&root), sizeof root), 0, nb::str(""),
                              nb::bytes("", 0));
    }
    nb::bytes actor = context->actor.is_nil()
                          ? nb::bytes("", 0)
                          : nb::bytes(reinterpret_cast<const char*>(&context->actor), sizeof(Id));
    return nb::make_tuple(nb::bytes(reinterpret_cast<const char*>(&context->task), sizeof(Id)),
                          int(context->attempt), nb::str(context->name.data(), context->name.size()), actor);
}

void set_current_task(nb::bytes task, nb::str name) {
    static thread_local Context own;
    if (task.size() != sizeof(Id)) throw nb::value_error("a task id has 16 bytes");
    const Context* before = context;
    if (before != nullptr && before != &own) own.actor = before->actor;
    memcpy(&own.task, task.c_str(), sizeof(Id));
    own.name = name.c_str();
    own.counter = 0;
    context = &own;
}

nb::bytes as_bytes(const Id& id) {
    return nb::bytes(reinterpret_cast<const char*>(&id), sizeof id);
}

nb::dict explain(nb::handle ref) {
    if (!is_ref(ref.ptr())) throw nb::type_error("explain wants an ObjectRef");
    Entry* entry = entry_of(ref.ptr());
    if (entry == nullptr) throw nb::python_error();
    Core& core = need();
    core.poll();
    Explanation e;
    {
        std::lock_guard lock(core.mutex());
        e = core.explain(entry);
    }
    nb::dict out;
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

nb::list submitted_tasks(size_t most) {
    Core& core = need();
    std::vector<TaskStory> tasks;
    {
        std::lock_guard lock(core.mutex());
        tasks = core.tasks(most);
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
        out.append(row);
    }
    return out;
}

nb::list as_list(const std::vector<Id>& ids) {
    nb::list out;
    for (const Id& id : ids)
        out.append(as_bytes(id));
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
        for (const LongWait* wait : core.long_waits()) {
            const std::vector<Entry*> entries = core.waited_for(*wait);
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
            if (Entry* entry = core.find(id)) first.push_back(entry);
        }
        found = core.hindrances(std::move(first));
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
        inbox = core.inbox(most);
    }
    return nb::make_tuple(running == Id{} ? nb::bytes("", 0) : as_bytes(running), as_list(inbox));
}

nb::list held_objects(size_t most) {
    Core& core = need();
    core.poll();
    std::vector<Held> held;
    {
        std::lock_guard lock(core.mutex());
        held = core.held(most);
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
    const Core::Counters c = need().counters();
    nb::dict out;
    out["tasks_submitted"] = c.submitted;
    out["tasks_run"] = c.run;
    out["objects_owned"] = c.owned;
    out["objects_borrowed"] = c.borrowed;
    out["pending_tasks"] = c.pending;
    out["leases"] = c.leases;
    out["lineage_tasks"] = c.kept;
    out["lineage_bytes"] = c.kept_bytes;
    out["tasks_rebuilt"] = c.rebuilt;
    return out;
}

nb::list drain(NodePort& port) {
    nb::list out;
    for (const Received& r : port.drain())
        out.append(nb::make_tuple(r.from.slot, r.from.generation, int(r.kind),
                                  nb::bytes(r.payload.data(), r.payload.size())));
    return out;
}

/// (id, is it lent, function, shape, ids that it needs, (entry, generation) or None, body) for each row.
nb::list take_ledger(NodePort& port, uint32_t slot, uint32_t generation) {
    nb::list out;
    for (const FoundRow& row : port.take_ledger({slot, generation})) {
        nb::list needs;
        for (const Id& id : row.needs)
            needs.append(as_bytes(id));
        nb::object arena = nb::none();
        if (row.head.in_arena != 0) arena = nb::make_tuple(row.head.arena.entry, row.head.arena.generation);
        out.append(nb::make_tuple(as_bytes(row.head.id), row.is_lent, row.head.function, row.head.shape,
                                  needs, arena, nb::bytes(row.body.data(), row.body.size())));
    }
    return out;
}

nb::list mark_dead(NodePort& port, uint32_t slot, uint32_t generation) {
    nb::list out;
    for (const ProcessId& peer : port.mark_dead({slot, generation}))
        out.append(nb::make_tuple(peer.slot, peer.generation));
    return out;
}

nb::dict port_statistics(const NodePort& port) {
    const NodePort::Statistics s = port.statistics();
    nb::dict out;
    out["arena_bytes"] = s.arena_bytes;
    out["used_bytes"] = s.used_bytes;
    out["objects"] = s.objects;
    out["spilled_objects"] = s.spilled_objects;
    out["slots_used"] = s.slots_used;
    out["ring_blocks_used"] = s.ring_blocks_used;
    return out;
}

/// [(slot, skipped, first, written, bytes)]: of each slot, the events from the number that is given for it
/// on.
nb::list port_events(const NodePort& port, const std::unordered_map<uint32_t, uint64_t>& since, size_t most) {
    nb::list out;
    for (const auto& [slot, written] : port.event_counts()) {
        const auto it = since.find(slot);
        const EventLog::Read read = port.events(slot, it == since.end() ? 0 : it->second, most);
        out.append(nb::make_tuple(slot, read.skipped, read.first, read.written,
                                  nb::bytes(reinterpret_cast<const char*>(read.events.data()),
                                            read.events.size() * sizeof(Event))));
    }
    return out;
}

// ---- records between nodes -------------------------------------------------------------------------

nb::bytes take_batch(NodePort& port, uint32_t node) {
    const std::string batch = port.forwarding().take_batch(node);
    return nb::bytes(batch.data(), batch.size());
}

/// (consumed, None | (processes, objects, to, kind) | (from, to, kind, payload)).
nb::tuple deliver(NodePort& port, uint32_t node, nb::handle batch, size_t at) {
    Py_buffer view;
    if (PyObject_GetBuffer(batch.ptr(), &view, PyBUF_SIMPLE) != 0) throw nb::python_error();
    const std::unique_ptr<Py_buffer, void (*)(Py_buffer*)> guard(&view, PyBuffer_Release);
    if (at > size_t(view.len)) throw nb::value_error("beyond the end of the batch");
    const Delivery d =
        port.forwarding().deliver(node, static_cast<const char*>(view.buf) + at, size_t(view.len) - at);
    const size_t consumed = at + d.consumed;
    if (d.stop == Delivery::Stop::none) return nb::make_tuple(consumed, nb::none());
    const nb::tuple to = nb::make_tuple(d.to.slot, d.to.generation);
    if (d.stop == Delivery::Stop::record)
        return nb::make_tuple(consumed,
                              nb::make_tuple(nb::make_tuple(d.from.slot, d.from.generation), to, int(d.kind),
                                             nb::bytes(d.payload.data(), d.payload.size())));
    nb::list processes, objects;
    for (const FarProcess& p : d.processes)
        processes.append(nb::make_tuple(p.node, p.id.slot, p.id.generation));
    for (const FarObject& o : d.objects)
        objects.append(nb::make_tuple(o.node, o.entry, o.generation, o.bytes));
    return nb::make_tuple(consumed, nb::make_tuple(processes, objects, to, int(d.kind)));
}

nb::object begin_receiving(NodePort& port, uint32_t entry, uint32_t generation, uint64_t bytes) {
    char* data = port.begin_receiving(entry, generation);
    if (data == nullptr) return nb::none();
    return nb::steal(PyMemoryView_FromMemory(data, Py_ssize_t(bytes), PyBUF_WRITE));
}

nb::object begin_sending(NodePort& port, uint32_t entry, uint32_t generation) {
    uint64_t bytes = 0;
    const char* data = port.begin_sending(entry, generation, bytes);
    if (data == nullptr) return nb::none();
    return nb::steal(PyMemoryView_FromMemory(const_cast<char*>(data), Py_ssize_t(bytes), PyBUF_READ));
}

template <class F>
PyCFunction as_function(F* function) {
    return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef hot_functions[] = {
    {"put", py_put, METH_O, "Store a value; its ref."},
    {"promise", py_promise, METH_NOARGS, "The ref of a value that this process will give."},
    {"keep_promise", as_function(py_keep_promise), METH_FASTCALL,
     "keep_promise(ref, value, error): give a promise its value, or an error value that is not empty."},
    {"get", as_function(py_get), METH_FASTCALL, "get(refs, timeout_s=-1): the value or the list of values."},
    {"wait", as_function(py_wait), METH_FASTCALL,
     "wait(refs, num_returns, timeout_s=-1, due_ns=0, fetch_local=True): (ready, rest)."},
    {"next_item", as_function(py_next_item), METH_FASTCALL,
     "next_item(ref, timeout_s=-1): an item's ref, or None at the end."},
    {"create_actor", as_function(py_create_actor), METH_FASTCALL,
     "create_actor(token, spec, class_key, name, args, kwargs)"},
    {"run_worker", py_run_worker, METH_NOARGS, "A worker's life; its exit status."},
    {"title_prefix", py_title_prefix, METH_O, "What stands before a task's name in this worker's title."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

NB_MODULE(_native, m) {
    if (!init_values() || !add_ref_types(m.ptr()) || !add_call_types(m.ptr()) || !add_worker_types(m.ptr()) ||
        PyModule_AddFunctions(m.ptr(), hot_functions) != 0)
        throw nb::python_error();
    pthread_atfork(nullptr, nullptr, after_fork_in_child);

    m.def("attach", &attach, nb::arg("segment_fd"), nb::arg("event_fd"), nb::arg("slot"),
          nb::arg("generation"), nb::arg("host"), nb::arg("root_task"), nb::arg("is_worker"),
          nb::arg("daemon_socket_fd") = -1);
    m.def("detach", &detach);
    m.def("is_attached", [] { return session().number != 0; });
    m.def("is_lost", [] { return session().number != 0 && session().core->is_lost(); });
    m.def("session", [] { return session().number; });
    m.def("export_function", [](uint64_t key, nb::bytes payload) {
        Core& core = need();
        std::lock_guard lock(core.mutex());
        core.define_function(key, std::string(payload.c_str(), payload.size()));
    });
    m.def("on_ready", &on_ready);
    m.def("send", [](int kind, nb::bytes payload) {
        Core& core = need();
        std::lock_guard lock(core.mutex());
        core.send_daemon(Kind(kind), payload.c_str(), payload.size());
    });
    m.def("new_actor", &new_actor);
    m.def("actor_token", &actor_token);
    m.def("error_value", [](int code, nb::bytes text) {
        const std::string value = error_value(ErrorCode(code), {text.c_str(), text.size()});
        return nb::bytes(value.data(), value.size());
    });
    m.def("error_value", [](int code, std::string text) {
        const std::string value = error_value(ErrorCode(code), text);
        return nb::bytes(value.data(), value.size());
    });
    m.def("put_error", [](nb::bytes error) {
        Core& core = need();
        Entry* entry;
        {
            std::lock_guard lock(core.mutex());
            entry = core.new_entry(next_child(core).object(0xffff));
            Core::hold(entry);
            core.fail(entry, {error.c_str(), error.size()});
        }
        PyObject* ref = make_ref(ref_type, entry);
        if (ref == nullptr) throw nb::python_error();
        return nb::steal(ref);
    });
    m.def("current_task", &current_task);
    m.def("set_current_task", &set_current_task);
    m.def("is_cancelled", &is_cancelled);
    m.def("cancel", &cancel);
    m.def("close_stream", &close_stream);
    m.def("on_item", &on_item);
    m.def("has_item", [](nb::handle ref) {
        Entry* entry = is_ref(ref.ptr()) ? entry_of(ref.ptr()) : nullptr;
        if (entry == nullptr) throw nb::python_error();
        need().poll();
        const Stream* stream = need().stream_of(entry);
        return stream != nullptr && stream->available.load(std::memory_order_acquire) != 0;
    });
    m.def("exit_worker", [] { need().request_exit(); });
    m.def("explain", &explain);
    m.def("statistics", &statistics);
    m.def("held_objects", &held_objects);
    m.def("submitted_tasks", &submitted_tasks);
    m.def("long_waits", &long_waits);
    m.def("waiting_tasks", &waiting_tasks);
    m.def("break_wait", [](uint64_t number, nb::bytes error) {
        return need().break_wait(number, std::string(error.c_str(), error.size()));
    });
    m.def("spin_limit_us", [](int64_t us) { need().set_spin_limit(us * 1000); });

    nb::class_<NodePort>(m, "NodePort")
        .def(nb::init<uint64_t, uint32_t>(), nb::arg("arena_bytes"), nb::arg("events") = kEvents)
        .def_prop_ro("segment_fd", &NodePort::segment_fd)
        .def_prop_ro("event_fd", &NodePort::event_fd)
        .def("reserve_slot",
             [](NodePort& p) {
                 const ProcessId id = p.reserve_slot();
                 return nb::make_tuple(id.slot, id.generation);
             })
        .def("drain", &drain)
        .def("linger", &NodePort::linger, nb::arg("limit_ns"))
        .def("send",
             [](NodePort& p, uint32_t slot, uint32_t generation, int kind, nb::bytes payload) {
                 return p.send({slot, generation}, Kind(kind), payload.c_str(), payload.size());
             })
        .def("mark_dead", &mark_dead)
        .def("release_slot", [](NodePort& p, uint32_t slot,
                                uint32_t generation) { return p.release_slot({slot, generation}); })
        .def("take_ledger", &take_ledger)
        .def("statistics", &port_statistics)
        .def("events", &port_events, nb::arg("since"), nb::arg("most"))
        .def("tallies", &NodePort::tallies)
        .def(
            "record",
            [](NodePort& p, int kind, int64_t at_ns, int64_t duration_ns, uint64_t bytes, std::string name) {
                p.record(EventKind(kind), at_ns, duration_ns, bytes, name);
            },
            nb::arg("kind"), nb::arg("at_ns"), nb::arg("duration_ns"), nb::arg("bytes"), nb::arg("name") = "")
        .def("spill", &NodePort::spill, nb::call_guard<nb::gil_scoped_release>())
        .def("restore", &NodePort::restore, nb::call_guard<nb::gil_scoped_release>())
        .def("reserve_proxy",
             [](NodePort& p) {
                 const ProcessId id = p.reserve_proxy();
                 return nb::make_tuple(id.slot, id.generation);
             })
        .def("is_proxy", &NodePort::is_proxy)
        .def("set_node", [](NodePort& p, uint32_t node) { p.forwarding().names.node = node; })
        .def("name_proxy",
             [](NodePort& p, uint32_t slot, uint32_t generation, uint32_t node, uint32_t far_slot,
                uint32_t far_generation) {
                 if (node > kMaxNode) throw nb::value_error("no node has that number");
                 p.forwarding().names.add_proxy({slot, generation}, {node, {far_slot, far_generation}});
                 p.set_node_of_proxy({slot, generation}, node);
             })
        .def("far_name",
             [](NodePort& p, uint32_t slot, uint32_t generation) {
                 const FarProcess who = p.forwarding().names.far({slot, generation});
                 return nb::make_tuple(who.node, who.id.slot, who.id.generation);
             })
        .def("name_import",
             [](NodePort& p, uint32_t entry, uint32_t generation, uint32_t node, uint32_t far_entry,
                uint32_t far_generation, uint64_t bytes) {
                 p.forwarding().names.add_import({entry, generation, bytes},
                                                 {node, far_entry, far_generation, bytes});
                 p.set_node_of(entry, generation, node);
             })
        .def("forget_import",
             [](NodePort& p, uint32_t entry, uint32_t generation) {
                 p.forwarding().names.remove_import(entry, generation);
             })
        .def("pass_on",
             [](NodePort& p, uint32_t node, std::pair<uint32_t, uint32_t> from,
                std::pair<uint32_t, uint32_t> to, int kind, nb::bytes payload) {
                 if (!p.forwarding().pass_on(node, {from.first, from.second}, {to.first, to.second},
                                             Kind(kind), payload.c_str(), payload.size()))
                     throw nb::value_error("the record is cut short");
             })
        .def("nodes_with_output",
             [](NodePort& p) {
                 p.forwarding().commit();
                 return p.forwarding().nodes_with_output();
             })
        .def("take_batch", &take_batch)
        .def("hold_link", [](NodePort& p, uint32_t node) { p.forwarding().hold(node, true); })
        .def("release_link", &NodePort::release_link)
        .def("remove_link", [](NodePort& p, uint32_t node) { p.forwarding().remove_link(node); })
        .def("deliver", &deliver)
        .def("refuse_records", [](NodePort& p, uint32_t slot,
                                  uint32_t generation) { p.forwarding().refuse({slot, generation}); })
        .def("take_detached",
             [](NodePort& p) {
                 nb::list out;
                 for (const ProcessId& dead : p.take_detached())
                     out.append(nb::make_tuple(dead.slot, dead.generation));
                 return out;
             })
        .def("import_object",
             [](NodePort& p, uint64_t bytes, uint32_t slot, uint32_t generation) {
                 const ArenaRef ref = p.import_object(bytes, {slot, generation});
                 return nb::make_tuple(ref.entry, ref.generation);
             })
        .def("begin_receiving", &begin_receiving)
        .def("end_receiving", &NodePort::end_receiving)
        .def("begin_sending", &begin_sending)
        .def("end_sending", &NodePort::end_sending)
        .def("exists", &NodePort::exists)
        .def("accept", &NodePort::accept)
        .def("remove", &NodePort::remove)
        .def("trim", &NodePort::trim)
        .def("largest_objects", &NodePort::largest_objects)
        .def("close", [](NodePort&) {});

    add_group_member(m);
}

}  // namespace weft
