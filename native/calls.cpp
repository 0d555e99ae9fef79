/// `f.remote(...)`, `handle.method.remote(...)` and the creation of actors: one native call that encodes the
/// arguments, makes the refs and sends one record.

#include <cstddef>

#include "draft.hpp"
#include "py.hpp"

namespace weft {

thread_local Context* context = nullptr;

Id next_child(Core& core) {
    if (context != nullptr) return context->task.child(context->counter++);
    return core.endpoint.root.child(core.endpoint.root_counter.fetch_add(1, std::memory_order_relaxed));
}

namespace {

/// The context variable with the call whose coroutine runs; null where there is no event loop of an actor.
PyObject* loop_task = nullptr;

/// Which task the calling code belongs to. Coroutines of many calls share a thread, which has no context.
Id calling_task(const Core& core) {
    if (context != nullptr) return context->task;
    if (loop_task == nullptr) return core.endpoint.root;
    PyObject* value = nullptr;
    if (PyContextVar_Get(loop_task, nullptr, &value) < 0) PyErr_Clear();
    const Owned held(value);
    Id found = core.endpoint.root;
    if (value != nullptr && PyTuple_Check(value)) {
        PyObject* id = PyTuple_GET_ITEM(value, 0);
        memcpy(&found, PyBytes_AS_STRING(id), sizeof found);
    }
    return found;
}

PyTypeObject* remote_call_type;
PyTypeObject* actor_call_type;

/// The refs of a task that was submitted: None, one, or a list.
PyObject* refs_for(Core& core, Entry* const* entries, uint32_t count) {
    if (count == 0) Py_RETURN_NONE;
    if (count == 1) return make_ref(core, ref_type, entries[0]);
    Owned list(PyList_New(count));
    for (uint32_t i = 0; i < count; ++i) {
        PyObject* ref = list ? make_ref(core, ref_type, entries[i]) : nullptr;
        if (ref == nullptr) return nullptr;
        PyList_SET_ITEM(list.get(), i, ref);
    }
    return list.release();
}

/// Whether arguments fit the signature: counted here, and only when that does not settle it asked of Python.
struct ArgumentCheck {
    PyObject* function;  ///< raises TypeError; null: anything goes
    uint32_t least, most;

    bool passes(PyObject* const* args, size_t count, PyObject* keywords) const {
        if (function == nullptr || (keywords == nullptr && count >= least && count <= most)) return true;
        return bool(Owned(PyObject_Vectorcall(function, args, count, keywords)));
    }
    /// (function, least, most) or None.
    bool set(PyObject* given) {
        if (given == nullptr || given == Py_None) return true;
        if (!PyArg_ParseTuple(given, "OII", &function, &least, &most)) return false;
        Py_INCREF(function);
        return true;
    }
};

/// What all calls of one remote function or one method have in common.
struct CallSpec {
    std::string name, method, retry_types;
    uint32_t returns = 1;
    int32_t retries = 0;
    uint32_t flags = 0;
    uint32_t window = kStreamWindow;

    /// A negative number of returns asks for a stream.
    void set_returns(int count) {
        returns = count < 0 ? 1u : uint32_t(count);
        if (count < 0) flags |= kStreaming;
    }
};

constinit thread_local bool is_scratch_used = false;

/// Where a record is built. Pickling an argument may itself call a remote function, which then needs another.
class Scratch {
  public:
    Scratch() : is_nested_(std::exchange(is_scratch_used, true)) {}
    ~Scratch() { is_scratch_used = is_nested_; }
    Buffer& buffer() {
        static thread_local Buffer shared;
        return is_nested_ ? own_ : shared;
    }

  private:
    const bool is_nested_;
    Buffer own_;
};

/// Encodes a call and makes its task; `send` gives the task what it still lacks and submits it. The refs.
template <class Send>
PyObject* submit_task(const Attached& attached, const CallSpec& spec, uint64_t function, Id actor,
                      PyObject* const* args, size_t count, PyObject* keywords, const Send& send) {
    Core& core = *attached;
    Scratch scratch;
    Draft draft(core, scratch.buffer());
    TaskHeader header{};
    header.function = function;
    header.actor = actor;
    header.flags = spec.flags;
    header.returns = spec.returns;
    header.args = uint32_t(count);
    header.keywords = uint32_t(keywords == nullptr ? 0 : PyTuple_GET_SIZE(keywords));
    header.name_bytes = uint32_t(spec.name.size());
    header.method_bytes = uint32_t(spec.method.size());
    header.retry_bytes = uint32_t(spec.retry_types.size());
    header.window = spec.window;
    header.task = next_child(core);
    draft.start(header, spec.name, spec.method, spec.retry_types);
    if (!encode_call(draft, args, count, keywords, spec.name)) return nullptr;
    if (attached.is_over()) return raise_over(core);

    const Id parent = calling_task(core);
    core.pump.advance_epoch();
    Entry* few[8];
    std::vector<Entry*> many;
    Entry** entries = few;
    try {
        if (spec.returns > std::size(few)) {
            many.resize(spec.returns);
            entries = many.data();
        }
        std::lock_guard lock(core.mutex());
        Task* task = core.tasks.new_task();
        draft.finish(task);
        task->id = header.task;
        task->flags = spec.flags;
        task->retries = spec.retries;
        task->name = spec.name;
        for (uint32_t i = 0; i < spec.returns; ++i) {
            entries[i] = core.objects.new_entry(header.task.object(i + 1));
            entries[i]->holds.store(2, std::memory_order_relaxed);  // the task's and the ref's
            task->returns.push_back(entries[i]);
        }
        task->parent = parent;
        if (spec.flags & kStreaming) entries[0]->more().stream = std::make_unique<Stream>();
        send(task);
    } catch (...) {
        return translate_exception();
    }
    core.pump.poll();
    return refs_for(core, entries, spec.returns);
}

// ---- calls of remote functions ---------------------------------------------------------------------

struct RemoteCall {
    PyObject_HEAD vectorcallfunc call;
    PyObject* prepare;
    PyObject* weak_list;
    uint64_t session;
    Function* function;
    Shape* shape;
    CallSpec* spec;
    ArgumentCheck check;
};

PyObject* remote_call(PyObject* self, PyObject* const* args, size_t nargs, PyObject* keywords) {
    auto* call = reinterpret_cast<RemoteCall*>(self);
    const auto count = size_t(PyVectorcall_NARGS(nargs));
    if (!call->check.passes(args, count, keywords)) return nullptr;
    if (call->session != session().number || call->session == 0) {
        Owned done(PyObject_CallOneArg(call->prepare, self));
        if (!done) return nullptr;
        if (done.get() != Py_None) return PyObject_Vectorcall(done.get(), args, nargs, keywords);
        if (call->session != session().number) {
            PyErr_SetString(PyExc_RuntimeError, "weft: prepare() did not bind the remote function");
            return nullptr;
        }
    }
    const Attached core;
    // Bound to this core for as long as its session lasts, and that is looked at before the task is made.
    return submit_task(core, *call->spec, call->function->key, {}, args, count, keywords, [&](Task* task) {
        task->function = call->function;
        task->shape = call->shape;
        core->submitter.submit(task);
    });
}

/// It no longer keeps the function that it was bound to, if that is of this session.
void release_function(RemoteCall* call) {
    if (call->session == 0 || call->session != session().number) return;
    Core& core = *session().core;
    std::lock_guard lock(core.mutex());
    core.sweep.give_up(call->function);
}

int remote_call_init(PyObject* self, PyObject* args, PyObject* kwargs) {
    auto* call = reinterpret_cast<RemoteCall*>(self);
    static const char* names[] = {"prepare",     "name",   "num_returns", "max_retries", "retry_exceptions",
                                  "retry_types", "window", "check",       "writable",    nullptr};
    PyObject* prepare = nullptr;
    const char *name = nullptr, *types = nullptr;
    Py_ssize_t name_bytes = 0, types_bytes = 0;
    int returns = 1, retries = 0, retry = 0, writable = 0;
    unsigned window = kStreamWindow;
    PyObject* check = nullptr;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "Os#iipy#|IOp", const_cast<char**>(names), &prepare, &name,
                                     &name_bytes, &returns, &retries, &retry, &types, &types_bytes, &window,
                                     &check, &writable))
        return -1;
    if (call->spec != nullptr) return PyErr_SetString(PyExc_TypeError, "it is made already"), -1;
    call->call = from_python<remote_call>;
    Py_INCREF(prepare);
    call->prepare = prepare;
    call->session = 0;
    call->spec = new CallSpec{{name, size_t(name_bytes)}, {}, {types, size_t(types_bytes)}};
    call->spec->retries = retries;
    call->spec->flags = (retry ? uint32_t(kRetryErrors) : 0u) | (writable ? uint32_t(kWritable) : 0u);
    call->spec->set_returns(returns);
    call->spec->window = std::max(1u, window);
    return call->check.set(check) ? 0 : -1;
}

int remote_call_traverse(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(reinterpret_cast<RemoteCall*>(self)->prepare);
    Py_VISIT(reinterpret_cast<RemoteCall*>(self)->check.function);
    return 0;
}

int remote_call_clear(PyObject* self) {
    Py_CLEAR(reinterpret_cast<RemoteCall*>(self)->prepare);
    Py_CLEAR(reinterpret_cast<RemoteCall*>(self)->check.function);
    return 0;
}

void remote_call_dealloc(PyObject* self) {
    auto* call = reinterpret_cast<RemoteCall*>(self);
    PyObject_GC_UnTrack(self);
    if (call->weak_list != nullptr) PyObject_ClearWeakRefs(self);
    remote_call_clear(self);
    release_function(call);
    delete call->spec;
    PyTypeObject* type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

PyObject* remote_call_bind(PyObject* self, PyObject* args) {
    auto* call = reinterpret_cast<RemoteCall*>(self);
    unsigned long long key = 0;
    unsigned shape = 0;
    if (!PyArg_ParseTuple(args, "KI", &key, &shape)) return nullptr;
    Core* core = attached();
    if (core == nullptr) return nullptr;
    {
        std::lock_guard lock(core->mutex());
        if (Function* function = core->definitions.function(key)) {
            ++function->holders;
            if (call->session == session().number) core->sweep.give_up(call->function);
            call->function = function;
            call->shape = core->leases.shape(shape);
            call->session = session().number;
            Py_RETURN_NONE;
        }
    }
    // Without the mutex: making an exception may collect garbage, and refs among it want the mutex.
    PyErr_SetString(PyExc_KeyError, "weft: the function was not exported");
    return nullptr;
}

PyMethodDef remote_call_methods[] = {
    {"bind", from_python<remote_call_bind>, METH_VARARGS,
     "Tie it to an exported function and a shape of this session."},
    {nullptr, nullptr, 0, nullptr},
};
PyMemberDef remote_call_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(RemoteCall, call), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(RemoteCall, weak_list), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};
PyType_Slot remote_call_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(PyType_GenericNew)},
    {Py_tp_init, reinterpret_cast<void*>(from_python<remote_call_init>)},
    {Py_tp_dealloc, reinterpret_cast<void*>(remote_call_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(remote_call_traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(remote_call_clear)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_methods, remote_call_methods},
    {Py_tp_members, remote_call_members},
    {Py_tp_doc, const_cast<char*>("Submits a task at each call.")},
    {0, nullptr},
};
PyType_Spec remote_call_spec = {"weft._native.RemoteCall", sizeof(RemoteCall), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
                                remote_call_slots};

// ---- calls on actors -------------------------------------------------------------------------------

struct ActorCall {
    PyObject_HEAD vectorcallfunc call;
    PyObject* token;
    PyObject* weak_list;
    CallSpec* spec;
    uint64_t key;
    ArgumentCheck check;
};

PyObject* actor_call(PyObject* self, PyObject* const* args, size_t nargs, PyObject* keywords) {
    auto* call = reinterpret_cast<ActorCall*>(self);
    const auto count = size_t(PyVectorcall_NARGS(nargs));
    if (!call->check.passes(args, count, keywords)) return nullptr;
    const Attached core;
    Entry* actor = core ? entry_of(call->token) : nullptr;
    if (actor == nullptr) return nullptr;
    return submit_task(core, *call->spec, call->key, actor->id, args, count, keywords, [&](Task* task) {
        task->actor_entry = actor;
        hold(actor);
        core->actors.submit_call(task, actor);
    });
}

int actor_call_init(PyObject* self, PyObject* args, PyObject* kwargs) {
    auto* call = reinterpret_cast<ActorCall*>(self);
    static const char* names[] = {"actor",    "method", "num_returns", "max_retries", "retry_exceptions",
                                  "name",     "window", "check",       "ordered",     "retry_types",
                                  "writable", nullptr};
    PyObject* token = nullptr;
    const char *method = nullptr, *name = nullptr;
    int ordered = 1;
    const char* types = "";
    Py_ssize_t types_bytes = 0;
    int returns = 1, retries = 0, retry = 0, writable = 0;
    unsigned window = kStreamWindow;
    PyObject* check = nullptr;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!siips|IOpy#p", const_cast<char**>(names), token_type,
                                     &token, &method, &returns, &retries, &retry, &name, &window, &check,
                                     &ordered, &types, &types_bytes, &writable))
        return -1;
    if (call->spec != nullptr) return PyErr_SetString(PyExc_TypeError, "it is made already"), -1;
    call->call = from_python<actor_call>;
    Py_INCREF(token);
    call->token = token;
    call->spec = new CallSpec{name, method, {types, size_t(types_bytes)}};
    call->key = std::hash<std::string>{}(call->spec->method);
    call->spec->retries = retries;
    call->spec->flags = uint32_t(kIsMethod) | (retry ? uint32_t(kRetryErrors) : 0u) |
                        (ordered ? 0u : uint32_t(kUnordered)) | (writable ? uint32_t(kWritable) : 0u);
    call->spec->set_returns(returns);
    call->spec->window = std::max(1u, window);
    return call->check.set(check) ? 0 : -1;
}

void actor_call_dealloc(PyObject* self) {
    auto* call = reinterpret_cast<ActorCall*>(self);
    if (call->weak_list != nullptr) PyObject_ClearWeakRefs(self);
    Py_CLEAR(call->token);
    Py_CLEAR(call->check.function);
    delete call->spec;
    PyTypeObject* type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

PyMemberDef actor_call_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(ActorCall, call), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(ActorCall, weak_list), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};
PyType_Slot actor_call_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(PyType_GenericNew)},
    {Py_tp_init, reinterpret_cast<void*>(from_python<actor_call_init>)},
    {Py_tp_dealloc, reinterpret_cast<void*>(actor_call_dealloc)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_members, actor_call_members},
    {Py_tp_doc, const_cast<char*>("Submits a call of one method of one actor at each call.")},
    {0, nullptr},
};
PyType_Spec actor_call_spec = {"weft._native.ActorCall", sizeof(ActorCall), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL, actor_call_slots};

}  // namespace

PyObject* py_create_actor(PyObject*, PyObject* const* args, Py_ssize_t count) {
    if (count != 6 || Py_TYPE(args[0]) != token_type || !PyBytes_Check(args[1]) || !PyTuple_Check(args[4]) ||
        !PyDict_Check(args[5])) {
        PyErr_SetString(PyExc_TypeError, "create_actor(token, spec, class_key, name, args, kwargs)");
        return nullptr;
    }
    const Attached core;
    Entry* actor = core ? entry_of(args[0]) : nullptr;
    if (actor == nullptr) return nullptr;
    const uint64_t key = PyLong_AsUnsignedLongLong(args[2]);
    const char* name = PyUnicode_AsUTF8(args[3]);
    if (name == nullptr || PyErr_Occurred()) return nullptr;
    Owned keywords(PyDict_Copy(args[5]));  // what runs while arguments are pickled may change it
    if (!keywords) return nullptr;
    Buffer scratch;
    Draft draft(*core, scratch);
    TaskHeader header{};
    header.function = key;
    header.flags = kIsCreation | kSelfBorrow;
    header.actor = actor->id;
    header.args = uint32_t(PyTuple_GET_SIZE(args[4]));
    header.keywords = uint32_t(PyDict_GET_SIZE(keywords.get()));
    header.name_bytes = uint32_t(strlen(name));
    header.task = next_child(*core);
    draft.start(header, name, "", "");
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args[4]); ++i)
        if (!draft.argument(PyTuple_GET_ITEM(args[4], i), {"args", i, nullptr, name})) return nullptr;
    Py_ssize_t at = 0;
    PyObject *key_object = nullptr, *value = nullptr;
    while (PyDict_Next(keywords.get(), &at, &key_object, &value))
        if (!draft.keyword(key_object, value, name)) return nullptr;
    if (!draft.fits(name)) return nullptr;
    if (core.is_over()) return raise_over(*core);
    const Id parent = calling_task(*core);
    try {
        std::lock_guard lock(core->mutex());
        Task* task = core->tasks.new_task();
        draft.finish(task);
        task->id = header.task;
        task->flags = header.flags;
        task->function = core->definitions.function(key);
        task->name = name;
        task->parent = parent;
        task->spec.assign(PyBytes_AS_STRING(args[1]), size_t(PyBytes_GET_SIZE(args[1])));
        core->actors.submit_creation(task);
    } catch (...) {
        return translate_exception();
    }
    Py_RETURN_NONE;
}

PyObject* py_set_loop_variable(PyObject*, PyObject* variable) {
    Py_XSETREF(loop_task, Py_NewRef(variable));
    Py_RETURN_NONE;
}

bool add_call_types(PyObject* module) {
    remote_call_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&remote_call_spec));
    actor_call_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&actor_call_spec));
    return remote_call_type && actor_call_type &&
           PyModule_AddObjectRef(module, "RemoteCall", reinterpret_cast<PyObject*>(remote_call_type)) == 0 &&
           PyModule_AddObjectRef(module, "ActorCall", reinterpret_cast<PyObject*>(actor_call_type)) == 0;
}

}  // namespace weft
