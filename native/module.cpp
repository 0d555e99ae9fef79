/// The module `weft._native`: attaching, the callback thread, and the bindings.
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "bindings.hpp"
#include "py.hpp"

namespace weft {

Session* const the_session = new Session;  // never destroyed: threads and refs may outlive main

namespace {

constexpr const char* kForked =
    "this process is a fork of one that is attached to weft, and has no attachment of its own: refs, actors "
    "and "
    "tasks belong to the process that forked. Call weft.init() in the child of a driver; start other "
    "programs "
    "with subprocess, or multiprocessing's spawn method";

/// Raised by calls that the end of their session met: a RuntimeError that others tell from those of misuse.
PyObject* session_ended = nullptr;

}  // namespace

Core* attached() {
    if (session().number != 0) return session().core.get();
    PyErr_SetString(
        PyExc_RuntimeError,
        session().is_fork ? kForked : "weft is not initialised in this process: call weft.init() first");
    return nullptr;
}

PyObject* raise_over(const Core& core) {
    if (!core.is_ours())
        PyErr_SetString(PyExc_RuntimeError, kForked);
    else
        PyErr_SetString(session_ended, "weft was shut down while this call was running");
    return nullptr;
}

PyObject* host() {
    if (session().host != nullptr) return Py_NewRef(session().host);
    if (session().is_fork)
        PyErr_SetString(PyExc_RuntimeError, kForked);
    else
        PyErr_SetString(session_ended, "weft was shut down while this call was running");
    return nullptr;
}

bool look_for_signals(const Core& core) {
    if (PyErr_CheckSignals() != 0) return false;
    if (!core.is_ours()) raise_over(core);
    return core.is_ours();
}

void end_if_fork(const Core& core) {
    if (core.is_ours()) return;
    PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (trace != nullptr) PyException_SetTraceback(value, trace);
    Owned lifecycle(PyImport_ImportModule("weft.engine.process.worker.lifecycle"));
    if (lifecycle) Owned none(PyObject_CallMethod(lifecycle.get(), "end_fork", "O", value ? value : Py_None));
    _exit(1);  // end_fork() does not return
}

PyObject* raise_error(std::string_view error) {
    Owned bytes(PyBytes_FromStringAndSize(error.data(), Py_ssize_t(error.size())));
    Owned to(bytes ? host() : nullptr);
    if (!to) return nullptr;
    Owned none(PyObject_CallMethod(to.get(), "raise_error", "O", bytes.get()));
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

nb::bytes as_bytes(const Id& id) {
    return nb::bytes(reinterpret_cast<const char*>(&id), sizeof id);
}

Core& need() {
    if (attached() == nullptr) throw nb::python_error();
    return *session().core;
}

namespace {

/// Runs what needs Python: control messages and ready callbacks.
void callback_loop(std::shared_ptr<Core> core, PyObject* host) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    pthread_setname_np(pthread_self(), "weft-callbacks");
    CoreEvent event;
    while (core->endpoint.next_event(event)) {
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

/// A forked child has the memory but not the threads: it is not attached. Its copies of arrays, refs and
/// calls touch nothing when they go; arrays stay readable for as long as the process that forked keeps them.
void after_fork_in_child() {
    ++forks;
    Session& s = session();
    if (s.number == 0) return;
    s.core->become_private();
    keep_filled_private();
    s.is_fork = true;
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
    if (daemon_socket_fd >= 0) core->pump.watch_daemon(daemon_socket_fd);
    s.core = core;
    s.host = host.inc_ref().ptr();
    s.number = core->session = ++s.attaches;
    s.is_fork = false;
    s.callbacks = std::thread(callback_loop, core, s.host);
}

/// What was to be called when a value or an item is there, and will not be: none comes any more.
nb::list take_callbacks(Core& core) {
    std::vector<PyObject*> left;
    const auto take = [&left](std::vector<PyObject*>& callbacks) {
        left.insert(left.end(), callbacks.begin(), callbacks.end());
        callbacks.clear();
    };
    {
        std::lock_guard lock(core.mutex());
        core.objects.each([&](Entry* entry) {
            if (!entry->extra) return;
            take(entry->extra->callbacks);
            if (entry->extra->stream) take(entry->extra->stream->callbacks);
        });
    }
    nb::list taken;
    for (PyObject* callback : left)
        taken.append(nb::steal(callback));
    return taken;
}

/// `keeps_arrays`: the node goes on, and would give their memory to others. Returns the callbacks that were
/// not called, for whoever ends the session: what they tell of finds that it is over.
nb::list detach(bool keeps_arrays) {
    Session& s = session();
    if (s.number == 0) return {};
    s.number = 0;
    std::shared_ptr<Core> core = std::move(s.core);
    s.core.reset();
    std::thread callbacks = std::move(s.callbacks);
    PyObject* host = std::exchange(s.host, nullptr);
    const bool is_lost = core->is_lost();
    if (core->calls != 0) core->kept_for_calls = core;
    {
        nb::gil_scoped_release release;
        core->close();
        wait_for_writers(*core);
        if (callbacks.get_id() == std::this_thread::get_id()) {
            callbacks.detach();
            host = nullptr;  // what is left of the events goes to it when this one is done
        } else {
            callbacks.join();
        }
    }
    Py_XDECREF(host);
    const bool is_given_away = keeps_arrays && !is_lost;
    keep_own_memory(*core, is_given_away);
    if (is_given_away) core->arena().keep_pinned();
    return take_callbacks(*core);
}

/// What a ref stands for in this session.
Entry* entry_behind(nb::handle ref, const char* who) {
    if (!is_ref(ref.ptr())) throw nb::type_error((std::string(who) + " wants an ObjectRef").c_str());
    Entry* entry = entry_of(ref.ptr());
    if (entry == nullptr) throw nb::python_error();
    return entry;
}

void on_freed(nb::handle ref, nb::object callback) {
    Entry* entry = entry_behind(ref, "on_freed");
    Core& core = need();
    PyObject* owned = callback.inc_ref().ptr();
    std::lock_guard lock(core.mutex());
    entry->more().on_freed.push_back(owned);
}

void keep(nb::handle ref) {
    Entry* entry = entry_behind(ref, "keep");
    Core& core = need();
    std::lock_guard lock(core.mutex());
    core.lent_rows.keep(entry);
}

void on_ready(nb::handle ref, nb::object callback) {
    Entry* entry = entry_behind(ref, "on_ready");
    Core& core = need();
    PyObject* owned = callback.inc_ref().ptr();
    {
        std::lock_guard lock(core.mutex());
        core.borrowing.fetch(entry);
        if (!entry->is_done()) {
            entry->more().callbacks.push_back(owned);
            return;
        }
    }
    core.endpoint.push_event({0xffff, {}, owned});
}

int cancel(nb::handle ref, bool force, bool recursive) {
    Entry* entry = entry_behind(ref, "cancel");
    Core& core = need();
    Submitter::Cancelled cancelled;
    {
        std::lock_guard lock(core.mutex());
        cancelled = core.submitter.cancel(entry, force, recursive);
    }
    core.pump.wake_waiters();  // what had not started is done, and this thread need not be the one that pumps
    return int(cancelled);
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
    core.streams.close_stream(entry);
}

/// Run the callback once an item or the end has come.
void on_item(nb::handle ref, nb::object callback) {
    Entry* entry = entry_behind(ref, "on_item");
    Core& core = need();
    PyObject* owned = callback.inc_ref().ptr();
    {
        std::lock_guard lock(core.mutex());
        Stream* stream = stream_of(entry);
        if (stream != nullptr && stream->items.empty() && !entry->is_done()) {
            stream->callbacks.push_back(owned);
            return;
        }
    }
    core.endpoint.push_event({0xffff, {}, owned});
}

nb::object new_actor() {
    Core& core = need();
    Entry* entry;
    {
        std::lock_guard lock(core.mutex());
        // Of the process and not of the task: when the task runs again elsewhere, what it creates is another
        // actor, since the first one has died with its creator.
        const Id creation =
            core.endpoint.root.child(core.endpoint.root_counter.fetch_add(1, std::memory_order_relaxed));
        entry = core.objects.new_entry(creation.object(0xfffe));
        entry->is_actor = true;
        core.objects.escape(entry);
        hold(entry);
    }
    PyObject* token = make_ref(core, token_type, entry);
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
        entry = core.borrowing.weak_actor(id);
        hold(entry);
    }
    PyObject* token = make_ref(core, token_type, entry);
    if (token == nullptr) throw nb::python_error();
    return nb::steal(token);
}

nb::object current_task() {
    if (context == nullptr) {
        const Id root = session().number != 0 ? session().core->endpoint.root : Id{};
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

template <auto function>
PyCFunction as_function() {
    return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(from_python<function>));
}

/// A definition that the core keeps for as long as this lives.
struct Exported {
    const uint64_t key;

    Exported(uint64_t definition, nb::bytes payload) : key(definition), session_(session().number) {
        Core& core = need();
        std::lock_guard lock(core.mutex());
        function_ = core.definitions.define_function(key, std::string(payload.c_str(), payload.size()));
        ++function_->holders;
    }
    Exported(const Exported&) = delete;
    Exported& operator=(const Exported&) = delete;
    ~Exported() {
        if (session_ == 0 || session_ != session().number) return;
        Core& core = *session().core;
        std::lock_guard lock(core.mutex());
        core.sweep.give_up(function_);
    }

  private:
    const uint64_t session_;
    Function* function_ = nullptr;
};

PyMethodDef hot_functions[] = {
    {"put", from_python<py_put>, METH_O, "Store a value; its ref. TypeError for a ref."},
    {"put_result", from_python<py_put_result>, METH_O, "Store what a task gave, maybe a ref; its ref."},
    {"mark", from_python<py_mark>, METH_NOARGS, "An object with nothing in it; its ref."},
    {"promise", from_python<py_promise>, METH_NOARGS, "The ref of a value that this process will give."},
    {"keep_promise", as_function<py_keep_promise>(), METH_FASTCALL,
     "keep_promise(ref, value, error): give a promise its value, or an error value that is not empty."},
    {"get", as_function<py_get>(), METH_FASTCALL, "get(refs, timeout_s=-1, writable=False): values."},
    {"set_loop_variable", from_python<py_set_loop_variable>, METH_O, "Where coroutines name their call."},
    {"allocate", from_python<py_allocate>, METH_O, "Memory for an array, filled where it will be stored."},
    {"own_memory", from_python<py_own_memory>, METH_O, "A buffer's bytes, writable and nobody else's."},
    {"memory_of", as_function<py_memory_of>(), METH_FASTCALL,
     "memory_of(owner, address, bytes): that memory as a buffer, which keeps the owner."},
    {"wait", as_function<py_wait>(), METH_FASTCALL,
     "wait(refs, num_returns, timeout_s=-1, due_ns=0, fetch_local=True): (ready, rest)."},
    {"next_item", as_function<py_next_item>(), METH_FASTCALL,
     "next_item(ref, timeout_s=-1): an item's ref, or None at the end."},
    {"create_actor", as_function<py_create_actor>(), METH_FASTCALL,
     "create_actor(token, spec, class_key, name, args, kwargs)"},
    {"run_worker", from_python<py_run_worker>, METH_NOARGS, "A worker's life; its exit status."},
    {"ring_when_idle", from_python<py_ring_when_idle>, METH_O,
     "Write to that eventfd when the main thread, which calls, needs the GIL no longer."},
    {"title_prefix", from_python<py_title_prefix>, METH_O, "What is before a task's name in the title."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

NB_MODULE(_native, m) {
    nb::set_leak_warnings(false);  // what a program still refers to at its end is no leak to tell of
    if (!init_values() || !init_memory() || !add_ref_types(m.ptr()) || !add_call_types(m.ptr()) ||
        !add_worker_types(m.ptr()) || PyModule_AddFunctions(m.ptr(), hot_functions) != 0)
        throw nb::python_error();
    session_ended = PyErr_NewException("weft._native.SessionEnded", PyExc_RuntimeError, nullptr);
    if (session_ended == nullptr) throw nb::python_error();
    m.attr("SessionEnded") = nb::handle(session_ended);
    pthread_atfork(nullptr, nullptr, after_fork_in_child);

    m.attr("DeviceLost") = nb::borrow(device_lost);
    m.def("attach", &attach, nb::arg("segment_fd"), nb::arg("event_fd"), nb::arg("slot"),
          nb::arg("generation"), nb::arg("host"), nb::arg("root_task"), nb::arg("is_worker"),
          nb::arg("daemon_socket_fd") = -1);
    m.def("detach", &detach, nb::arg("keeps_arrays") = false);
    m.def("is_attached", [] { return session().number != 0; });
    m.def("is_fork", [] { return session().is_fork; });
    m.def("is_lost", [] { return session().number != 0 && session().core->is_lost(); });
    m.def("session", [] { return session().number; });
    nb::class_<Exported>(m, "Exported")
        .def(nb::init<uint64_t, nb::bytes>(), nb::arg("key"), nb::arg("payload"))
        .def_ro("key", &Exported::key);
    m.def("on_ready", &on_ready);
    m.def("on_freed", &on_freed);
    m.def("keep", &keep);
    m.def("retry_in", [](uint64_t cookie, uint32_t shape) {
        Core& core = need();
        {
            std::lock_guard lock(core.mutex());
            core.leases.retry_in(cookie, shape);
        }
        core.pump.wake_waiters();  // it may have failed: no node holds the larger shape
    });
    m.def("send", [](int kind, nb::bytes payload) {
        Core& core = need();
        std::lock_guard lock(core.mutex());
        core.endpoint.send_daemon(Kind(kind), payload.c_str(), payload.size());
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
            entry = core.objects.new_entry(next_child(core).object(0xffff));
            hold(entry);
            core.objects.fail(entry, {error.c_str(), error.size()});
        }
        PyObject* ref = make_ref(core, ref_type, entry);
        if (ref == nullptr) throw nb::python_error();
        return nb::steal(ref);
    });
    m.def("current_task", &current_task);
    m.def("set_current_task", &set_current_task);
    m.def("is_cancelled", &is_cancelled);
    m.def("take_interrupt", &take_interrupt);
    m.def("interrupt_again", &interrupt_again);
    m.def("cancel", &cancel);
    m.def("close_stream", &close_stream);
    m.def("on_item", &on_item);
    m.def("has_item", [](nb::handle ref) {
        Entry* entry = entry_behind(ref, "has_item");
        Core& core = need();
        core.pump.poll();
        std::lock_guard lock(core.mutex());
        const Stream* stream = stream_of(entry);
        return stream != nullptr && stream->available.load(std::memory_order_acquire) != 0;
    });
    m.def("exit_worker", [] { need().pump.request_exit(); });
    m.def("resign", [] {
        if (context != nullptr) context->has_resigned = true;
    });
    m.def("retire_worker", [] { need().inbox.retire(); });
    m.def("limit_lineage", [](uint64_t memory_bytes, uint64_t disk_bytes) {
        Core& core = need();
        std::lock_guard lock(core.mutex());
        core.flushing.limit_lineage(memory_bytes, disk_bytes);
    });
    m.def("spin_limit_us", [](int64_t us) { need().pump.set_spin_limit(us * 1000); });

    add_inspection(m);
    add_node_port(m);
    add_group_member(m);
    add_virtual_process(m);
}

}  // namespace weft
