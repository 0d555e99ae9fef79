/// A worker's life: take a task record, run the function, answer. Also calls of concurrent actors, which
/// finish on other threads.
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <set>
#include <unordered_map>

#include "py.hpp"
#include "title.hpp"

namespace weft {

namespace {

PyTypeObject* pending_type;
PyObject *name_bind, *name_load, *name_error, *name_create, *name_concurrent, *name_start;

/// What is known of a call while it runs.
struct Frame {
    ProcessId from;
    TaskHeader header;
    std::string name;
    std::string method;
    std::string retry_types;
    std::vector<Entry*> nested;
    std::string lost;  ///< why an argument's memory is gone
    int64_t started_ns = 0;
};

/// Decoded arguments: positional, then keyword values.
struct Arguments {
    std::vector<PyObject*> values;
    Owned names;
    size_t positional = 0;

    Arguments() = default;
    Arguments(const Arguments&) = delete;
    ~Arguments() { clear(); }
    void clear() {
        for (PyObject* value : values)
            Py_DECREF(value);
        values.clear();
    }
    PyObject* tuple() const {
        PyObject* tuple = PyTuple_New(Py_ssize_t(positional));
        for (size_t i = 0; tuple && i < positional; ++i)
            PyTuple_SET_ITEM(tuple, Py_ssize_t(i), Py_NewRef(values[i]));
        return tuple;
    }
    PyObject* dict() const {
        Owned dict(PyDict_New());
        for (size_t i = positional; dict && i < values.size(); ++i)
            if (PyDict_SetItem(dict.get(), PyTuple_GET_ITEM(names.get(), Py_ssize_t(i - positional)),
                               values[i]) != 0)
                return nullptr;
        return dict.release();
    }
};

class Worker {
  public:
    explicit Worker(std::shared_ptr<Core> core) : core_(std::move(core)) {}
    ~Worker() {
        for (auto& [key, function] : functions_)
            Py_DECREF(function);
        Py_XDECREF(actor_);
    }
    int run();

    /// Whether the task on the main thread was cancelled.
    bool is_cancelled() const { return cancel_.load(std::memory_order_acquire); }
    ProcessTitle title;

  private:
    void execute(Incoming& incoming);
    void fail(Frame& frame);
    void stream(Frame& frame, PyObject* result);
    void on_cancel(ProcessId from, uint64_t cookie, bool force, bool recursive);
    void create(Frame& frame, Arguments& arguments);
    PyObject* load(uint64_t key);
    bool bind_job();
    bool decode(Incoming& incoming, Frame& frame, Arguments& arguments);
    PyObject* call(Frame& frame, Arguments& arguments);

    std::shared_ptr<Core> core_;
    std::unordered_map<uint64_t, PyObject*> functions_;
    std::unordered_map<uint64_t, PyObject*> method_names_;
    PyObject* actor_ = nullptr;
    bool concurrent_ = false;
    std::string idle_title_ = "idle";
    std::deque<Incoming> before_creation_;
    struct {
        ProcessId from;
        uint64_t cookie = 0;
        Id task;
    } running_;  ///< on the main thread; guarded by the core's mutex
    std::atomic<bool> cancel_{false};
    pthread_t main_thread_ = pthread_self();
};

Worker* the_worker = nullptr;

void drop_nested(Core& core, Frame& frame) {
    if (frame.nested.empty()) return;
    std::lock_guard lock(core.mutex());
    for (Entry* entry : frame.nested)
        core.drop_locked(entry);
    frame.nested.clear();
}

uint32_t took(const Frame& frame) {
    return uint32_t(std::min<int64_t>(now_ns() - frame.started_ns, 0xffffffffLL));
}

void reply_error(Core& core, Frame& frame, std::string_view error, Status status) {
    Buffer out;
    out.add(ReplyHeader{frame.header.cookie, uint32_t(status), took(frame), 1, 0});
    out.add(PackedValue{Where::error, 0, error.size()});
    out.append(error.data(), error.size());
    std::lock_guard lock(core.mutex());
    ++core.tasks_run;
    core.send(frame.from, Kind::REPLY, out.data(), out.size());
}

void reply_cancelled(Core& core, Frame& frame) {
    reply_error(core, frame,
                error_value(ErrorCode::cancelled, "task " + frame.name + " was cancelled while it ran"),
                Status::cancelled);
}

/// Its submitter makes the argument again, or knows why it can not.
void reply_lost(Core& core, const Frame& frame) {
    const ReplyHeader reply{frame.header.cookie, uint32_t(Status::lost), took(frame), 0, 0};
    std::lock_guard lock(core.mutex());
    core.send(frame.from, Kind::REPLY, &reply, sizeof reply);
}

/// The pending Python exception as an error value.
std::pair<std::string, bool> dump_exception(const Frame& frame) {
    PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (trace != nullptr) PyException_SetTraceback(value, trace);
    Owned type_owned(type), error(value), trace_owned(trace);
    Owned name(PyUnicode_FromStringAndSize(frame.name.data(), Py_ssize_t(frame.name.size())));
    Owned types(PyBytes_FromStringAndSize(frame.retry_types.data(), Py_ssize_t(frame.retry_types.size())));
    PyObject* args[] = {session().host, error.get(), name.get(), types.get()};
    Owned pair(PyObject_VectorcallMethod(name_error, args, 4 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
    if (!pair || !PyTuple_Check(pair.get()) || PyTuple_GET_SIZE(pair.get()) != 2) {
        PyErr_WriteUnraisable(error.get());
        return {error_value(ErrorCode::worker_crashed,
                            "task " + frame.name + " failed, and so did reporting why"),
                false};
    }
    PyObject* bytes = PyTuple_GET_ITEM(pair.get(), 0);
    const bool retry = PyObject_IsTrue(PyTuple_GET_ITEM(pair.get(), 1)) == 1;
    return {std::string(PyBytes_AS_STRING(bytes), size_t(PyBytes_GET_SIZE(bytes))), retry};
}

void reply_exception(Core& core, Frame& frame) {
    auto [error, retry] = dump_exception(frame);
    const bool again = retry && (frame.header.flags & kRetryErrors) != 0;
    reply_error(core, frame, error, again ? Status::retry : Status::failed);
}

/// One encoded return: its bytes in the buffer, or in the arena, and the refs in it.
struct Returned {
    Encoded encoded;
    size_t at;
    Nested nested;
};

/// Appends an encoded value as `to` shall see it. The mutex is held; the nested refs' holds stay.
void pack_encoded(Core& core, Buffer& out, const Buffer& data, const Returned& value, ProcessId to) {
    const bool in_arena = value.encoded.where == Where::arena;
    out.add(PackedValue{value.encoded.where, uint32_t(value.nested.entries.size()),
                        in_arena ? sizeof(ArenaRef) : value.encoded.bytes});
    for (Entry* entry : value.nested.entries) {
        core.lend_ref(entry, to);
        out.add(PackedRef{entry->id, entry->owner, entry->is_actor, 0});
    }
    if (in_arena)
        out.add(value.encoded.arena);
    else
        out.append(data.data() + value.at, value.encoded.bytes);
}

/// The values of a task that returns several: of a sequence or a generator, each owned. An exception in the
/// midst of a generator is taken into `error` and stands for the rest. False with an exception set.
bool take_returns(const Frame& frame, PyObject* result, std::vector<Owned>& items, std::string& error) {
    const size_t count = frame.header.returns;
    Owned iterator(PyObject_GetIter(result));
    if (!iterator) return false;
    const bool is_generator = PyGen_Check(result);
    while (items.size() <= count) {
        Owned item(PyIter_Next(iterator.get()));
        if (item) {
            items.push_back(std::move(item));
            continue;
        }
        if (!PyErr_Occurred()) break;
        if (!is_generator) return false;
        error = dump_exception(frame).first;
        return true;
    }
    if (items.size() == count) return true;
    PyErr_Format(PyExc_ValueError, "task %s has num_returns=%d but returned %s%zd values", frame.name.c_str(),
                 int(count), items.size() > count ? "at least " : "", Py_ssize_t(items.size()));
    return false;
}

/// Answers with the results; false with an exception set when they cannot be encoded.
bool reply_results(Core& core, Frame& frame, PyObject* result) {
    const uint16_t count = frame.header.returns;
    std::vector<Owned> items;
    std::string error;
    if (count == 1) {
        items.emplace_back(Py_NewRef(result));
    } else if (count > 1 && !take_returns(frame, result, items, error)) {
        return false;
    }
    static thread_local Buffer data, out;
    data.clear();
    std::vector<Returned> values(items.size());
    for (size_t i = 0; i < items.size(); ++i) {
        values[i].at = data.size();
        if (encode_value(core, items[i].get(), data, values[i].nested, frame.from, values[i].encoded,
                         {"result", count > 1 ? long(i) : -1, nullptr, frame.name}))
            continue;
        for (size_t k = 0; k <= i; ++k) {
            for (Entry* entry : values[k].nested.entries)
                core.drop(entry);
            if (k < i && values[k].encoded.where == Where::arena)
                core.arena().remove(values[k].encoded.arena);
        }
        return false;
    }
    out.clear();
    out.add(ReplyHeader{frame.header.cookie, uint32_t(Status::ok), took(frame),
                        uint32_t(error.empty() ? values.size() : count), 0});
    std::lock_guard lock(core.mutex());
    for (const Returned& value : values)
        pack_encoded(core, out, data, value, frame.from);
    for (size_t i = values.size(); i < count && !error.empty(); ++i) {
        out.add(PackedValue{Where::error, 0, error.size()});
        out.append(error.data(), error.size());
    }
    ++core.tasks_run;
    core.send(frame.from, Kind::REPLY, out.data(), out.size());
    for (const Returned& value : values)
        for (Entry* entry : value.nested.entries)
            core.drop_locked(entry);
    return true;
}

// ---- generators ------------------------------------------------------------------------------------

void start_item(Buffer& out, const Frame& frame, uint32_t index) {
    out.clear();
    out.add(frame.header.cookie);
    out.add(index);
    out.add(uint32_t(0));
}

/// Sends the index-th item; false with an exception set when it cannot be encoded.
bool send_item(Core& core, Frame& frame, uint32_t index, PyObject* value) {
    Buffer data, out;
    Returned item{};
    if (!encode_value(core, value, data, item.nested, frame.from, item.encoded,
                      {"item", long(index), nullptr, frame.name})) {
        for (Entry* entry : item.nested.entries)
            core.drop(entry);
        return false;
    }
    start_item(out, frame, index);
    std::lock_guard lock(core.mutex());
    pack_encoded(core, out, data, item, frame.from);
    core.send(frame.from, Kind::STREAM_ITEM, out.data(), out.size());
    for (Entry* entry : item.nested.entries)
        core.drop_locked(entry);
    return true;
}

void send_error_item(Core& core, Frame& frame, uint32_t index, std::string_view error) {
    Buffer out;
    start_item(out, frame, index);
    out.add(PackedValue{Where::error, 0, error.size()});
    out.append(error.data(), error.size());
    std::lock_guard lock(core.mutex());
    core.send(frame.from, Kind::STREAM_ITEM, out.data(), out.size());
}

uint32_t window_of(const Frame& frame) {
    return frame.header.window != 0 ? frame.header.window : kStreamWindow;
}

/// A retry begins behind what its consumer has taken of the first attempt.
bool has_room(uint32_t sent, const Credit& credit, uint32_t window) {
    return sent < uint64_t(credit.consumed.load(std::memory_order_acquire)) + window;
}

/// The stream ends with the exception that is set as its last item, or is tried again.
void end_stream_with_exception(Core& core, Frame& frame, uint32_t index) {
    auto [error, retry] = dump_exception(frame);
    if (retry && (frame.header.flags & kRetryErrors)) return reply_error(core, frame, error, Status::retry);
    send_error_item(core, frame, index, error);
    reply_results(core, frame, Py_None);
}

// ---- calls that finish elsewhere -------------------------------------------------------------------

struct PendingObject {
    PyObject_HEAD std::shared_ptr<Core> core;
    Frame* frame;  ///< null once answered
    std::shared_ptr<Credit> credit;
    uint32_t items;
};

/// The calls of concurrent actors that are under way, for cancelling. Guarded by the core's mutex.
std::map<std::pair<uint64_t, uint64_t>, Id> under_way;

std::unique_ptr<Frame> take_frame(PendingObject* pending) {
    std::unique_ptr<Frame> frame(std::exchange(pending->frame, nullptr));
    std::lock_guard lock(pending->core->mutex());
    under_way.erase({frame->from.key(), frame->header.cookie});
    if (pending->credit) pending->core->forget_credit(frame->from, frame->header.cookie);
    return frame;
}

/// 1 when more may be sent, 0 when the consumer must catch up first, -1 when it wants no more.
long stream_room(const PendingObject* pending) {
    if (pending->credit->closed.load(std::memory_order_acquire)) return -1;
    return has_room(pending->items, *pending->credit, window_of(*pending->frame));
}

PyObject* pending_item(PyObject* self, PyObject* value) {
    auto* pending = reinterpret_cast<PendingObject*>(self);
    if (pending->frame == nullptr || !pending->credit) {
        PyErr_SetString(PyExc_RuntimeError, "weft: this call does not stream, or was answered");
        return nullptr;
    }
    if (!send_item(*pending->core, *pending->frame, pending->items, value)) return nullptr;
    ++pending->items;
    return PyLong_FromLong(stream_room(pending));
}

PyObject* pending_room(PyObject* self, PyObject*) {
    auto* pending = reinterpret_cast<PendingObject*>(self);
    return PyLong_FromLong(pending->frame == nullptr || !pending->credit ? -1 : stream_room(pending));
}

PyObject* pending_streams(PyObject* self, PyObject*) {
    return PyBool_FromLong(bool(reinterpret_cast<PendingObject*>(self)->credit));
}

PyObject* pending_finish(PyObject* self, PyObject* value) {
    auto* pending = reinterpret_cast<PendingObject*>(self);
    if (pending->frame == nullptr) Py_RETURN_NONE;
    std::unique_ptr<Frame> frame = take_frame(pending);
    if (!reply_results(*pending->core, *frame, value)) reply_exception(*pending->core, *frame);
    drop_nested(*pending->core, *frame);
    Py_RETURN_NONE;
}

PyObject* pending_fail(PyObject* self, PyObject* error) {
    auto* pending = reinterpret_cast<PendingObject*>(self);
    if (pending->frame == nullptr) Py_RETURN_NONE;
    std::unique_ptr<Frame> frame = take_frame(pending);
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error)), error);
    if (pending->credit)
        end_stream_with_exception(*pending->core, *frame, pending->items);
    else
        reply_exception(*pending->core, *frame);
    drop_nested(*pending->core, *frame);
    Py_RETURN_NONE;
}

PyObject* pending_cancelled(PyObject* self, PyObject*) {
    auto* pending = reinterpret_cast<PendingObject*>(self);
    if (pending->frame == nullptr) Py_RETURN_NONE;
    std::unique_ptr<Frame> frame = take_frame(pending);
    reply_cancelled(*pending->core, *frame);
    drop_nested(*pending->core, *frame);
    Py_RETURN_NONE;
}

PyObject* pending_task(PyObject* self, PyObject*) {
    auto* pending = reinterpret_cast<PendingObject*>(self);
    if (pending->frame == nullptr) Py_RETURN_NONE;
    return Py_BuildValue("(y#s#)", reinterpret_cast<const char*>(&pending->frame->header.task),
                         Py_ssize_t(sizeof(Id)), pending->frame->name.data(),
                         Py_ssize_t(pending->frame->name.size()));
}

void pending_dealloc(PyObject* self) {
    auto* pending = reinterpret_cast<PendingObject*>(self);
    if (pending->frame != nullptr) {
        std::unique_ptr<Frame> frame = take_frame(pending);
        drop_nested(*pending->core, *frame);
    }
    pending->credit.~shared_ptr();
    pending->core.~shared_ptr();
    PyTypeObject* type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

PyMethodDef pending_methods[] = {
    {"finish", pending_finish, METH_O, "Answer with the result."},
    {"fail", pending_fail, METH_O, "Answer with the exception."},
    {"item", pending_item, METH_O, "Stream one value: 1 go on, 0 wait for room, -1 stop."},
    {"room", pending_room, METH_NOARGS, "As item(), without sending."},
    {"streams", pending_streams, METH_NOARGS, "Whether the caller wants a stream."},
    {"cancelled", pending_cancelled, METH_NOARGS, "Answer that it was cancelled."},
    {"task", pending_task, METH_NOARGS, "(task id, name), or None once answered."},
    {nullptr, nullptr, 0, nullptr},
};
PyType_Slot pending_slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(pending_dealloc)},
    {Py_tp_methods, pending_methods},
    {Py_tp_doc, const_cast<char*>("A call of a concurrent actor that is under way.")},
    {0, nullptr},
};
PyType_Spec pending_spec = {"weft._native.PendingCall", sizeof(PendingObject), 0,
                            Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, pending_slots};

// ---- the worker ------------------------------------------------------------------------------------

bool Worker::bind_job() {
    const std::string binding = core_->take_binding();
    if (binding.empty()) return true;
    Owned bytes(PyBytes_FromStringAndSize(binding.data(), Py_ssize_t(binding.size())));
    return bytes && Owned(PyObject_CallMethodOneArg(session().host, name_bind, bytes.get()));
}

/// Borrowed; null with an exception set.
PyObject* Worker::load(uint64_t key) {
    if (const auto it = functions_.find(key); it != functions_.end()) return it->second;
    // The daemon bound this worker before it granted the lease, so what it sent is there by now.
    core_->poll();
    if (!bind_job()) return nullptr;
    std::string payload;
    {
        std::lock_guard lock(core_->mutex());
        const auto it = core_->definitions().find(key);
        if (it != core_->definitions().end()) payload = it->second;
    }
    if (payload.empty()) {
        PyErr_Format(PyExc_RuntimeError, "weft: function %llx never reached this worker",
                     static_cast<unsigned long long>(key));
        return nullptr;
    }
    Owned bytes(PyBytes_FromStringAndSize(payload.data(), Py_ssize_t(payload.size())));
    PyObject* function = bytes ? PyObject_CallMethodOneArg(session().host, name_load, bytes.get()) : nullptr;
    if (function == nullptr) return nullptr;
    functions_.emplace(key, function);
    std::lock_guard lock(core_->mutex());
    core_->definitions()[key] = std::string(1, '\0');  // known, and its pickle is no longer needed
    return function;
}

bool Worker::decode(Incoming& incoming, Frame& frame, Arguments& arguments) {
    Cursor cursor(incoming.bytes.data(), incoming.bytes.size());
    frame.from = incoming.from;
    frame.header = cursor.take<TaskHeader>();
    const TaskHeader& header = frame.header;
    frame.name = cursor.text(header.name_bytes);
    frame.method = cursor.text(header.method_bytes);
    frame.retry_types = cursor.text(header.retry_bytes);
    const size_t prefix = header.name_bytes + header.method_bytes + header.retry_bytes;
    const size_t refs = header.nested * sizeof(PackedRef);
    Cursor args(cursor.skip(header.static_bytes - prefix - refs), header.static_bytes - prefix - refs);

    struct Dependency {
        PackedValue value;
        const char* data;
    };
    std::vector<Dependency> deps(header.deps);
    if (header.nested != 0 || header.deps != 0) {
        const bool self_borrow = (header.flags & kSelfBorrow) != 0;
        std::lock_guard lock(core_->mutex());
        frame.nested = core_->unpack_refs(cursor, header.nested, self_borrow);
        for (Dependency& dep : deps) {
            dep.value = cursor.take<PackedValue>();
            std::vector<Entry*> inner = core_->unpack_refs(cursor, dep.value.nested, self_borrow);
            frame.nested.insert(frame.nested.end(), inner.begin(), inner.end());
            dep.data = cursor.skip(dep.value.bytes);
        }
    }
    const auto argument = [&]() -> PyObject* {
        if (args.take<char>() == 'R') {
            const Dependency& dep = deps[args.take<uint16_t>()];
            if (dep.value.where != Where::arena) return decode_value(dep.data, dep.value.bytes, nullptr);
            ArenaRef arena;
            memcpy(&arena, dep.data, sizeof arena);
            return value_in_arena(*core_, arena, frame.lost);
        }
        const auto bytes = args.take<uint32_t>();
        return decode_value(args.skip(bytes), bytes, nullptr);
    };
    arguments.positional = header.args;
    arguments.values.reserve(size_t(header.args) + header.keywords);
    for (int i = 0; i < header.args; ++i) {
        PyObject* value = argument();
        if (value == nullptr) return false;
        arguments.values.push_back(value);
    }
    if (header.keywords == 0) return true;
    arguments.names = Owned(PyTuple_New(header.keywords));
    for (int i = 0; arguments.names && i < header.keywords; ++i) {
        const auto bytes = args.take<uint16_t>();
        const char* text = args.skip(bytes);
        PyObject* name = PyUnicode_FromStringAndSize(text, bytes);
        if (name == nullptr) return false;
        PyTuple_SET_ITEM(arguments.names.get(), i, name);
        PyObject* value = argument();
        if (value == nullptr) return false;
        arguments.values.push_back(value);
    }
    return bool(arguments.names);
}

PyObject* Worker::call(Frame& frame, Arguments& arguments) {
    if ((frame.header.flags & kIsMethod) == 0) {
        PyObject* function = load(frame.header.function);
        if (function == nullptr) return nullptr;
        return PyObject_Vectorcall(function, arguments.values.data(), arguments.positional,
                                   arguments.names.get());
    }
    PyObject*& method = method_names_[frame.header.function];
    if (method == nullptr)
        method = PyUnicode_FromStringAndSize(frame.method.data(), Py_ssize_t(frame.method.size()));
    if (method == nullptr) return nullptr;
    std::vector<PyObject*> with_self{actor_};
    with_self.insert(with_self.end(), arguments.values.begin(), arguments.values.end());
    return PyObject_VectorcallMethod(method, with_self.data(), arguments.positional + 1,
                                     arguments.names.get());
}

void Worker::create(Frame& frame, Arguments& arguments) {
    core_->is_actor.store(true);
    PyObject* cls = load(frame.header.function);
    Owned args(cls ? arguments.tuple() : nullptr), kwargs(args ? arguments.dict() : nullptr);
    Owned id(PyBytes_FromStringAndSize(reinterpret_cast<const char*>(&frame.header.actor), sizeof(Id)));
    if (kwargs && id) {
        PyObject* all[] = {session().host, cls, args.get(), kwargs.get(), id.get()};
        actor_ = PyObject_VectorcallMethod(name_create, all, 5 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
    }
    if (actor_ != nullptr) {
        idle_title_ = frame.name.substr(0, frame.name.rfind('.'));
        Owned answer(PyObject_CallMethodNoArgs(session().host, name_concurrent));
        if (answer) {
            concurrent_ = PyObject_IsTrue(answer.get()) == 1;
        } else {
            Py_CLEAR(actor_);
        }
    }
    Buffer out;
    out.add(frame.header.actor);
    out.add(uint32_t(actor_ != nullptr));
    out.add(uint32_t(0));
    if (actor_ == nullptr) {
        const std::string error = dump_exception(frame).first;
        out.append(error.data(), error.size());
    }
    std::lock_guard lock(core_->mutex());
    core_->send_daemon(Kind::ACTOR_CREATED, out.data(), out.size());
}

void Worker::execute(Incoming& incoming) {
    auto frame = std::make_unique<Frame>();
    frame->started_ns = now_ns();
    Arguments arguments;
    Context here;
    context = &here;
    core_->begin_task();
    {
        std::lock_guard lock(core_->mutex());
        const auto* header = reinterpret_cast<const TaskHeader*>(incoming.bytes.data());
        running_ = {incoming.from, header->cookie, header->task};
    }
    bool decoded;
    {
        // Unpickling may import user modules: the job must be set up before.
        const auto* header = reinterpret_cast<const TaskHeader*>(incoming.bytes.data());
        here.task = header->task;
        here.actor = header->actor;
        here.attempt = header->attempt;
        decoded = bind_job() && decode(incoming, *frame, arguments);
        here.name = frame->name;
    }
    const uint32_t flags = frame->header.flags;
    // A call in the engine's own group runs beside the others, on a serial actor too.
    const bool beside = concurrent_ || ((flags & kUnordered) && frame->method.find(':') != std::string::npos);
    if (!beside) title.show(frame->name);
    bool answered = true;
    if (flags & kIsCreation) {
        if (decoded) {
            create(*frame, arguments);
        } else {
            if (!frame->lost.empty()) raise_error(frame->lost);
            Buffer out;
            out.add(frame->header.actor);
            out.add(uint64_t(0));
            const std::string error = dump_exception(*frame).first;
            out.append(error.data(), error.size());
            std::lock_guard lock(core_->mutex());
            core_->send_daemon(Kind::ACTOR_CREATED, out.data(), out.size());
        }
    } else if (!decoded && !frame->lost.empty()) {
        reply_lost(*core_, *frame);
    } else if (!decoded) {
        fail(*frame);
    } else if ((flags & kIsMethod) && beside) {
        Owned args(arguments.tuple()), kwargs(arguments.dict());
        Owned method(PyUnicode_FromStringAndSize(frame->method.data(), Py_ssize_t(frame->method.size())));
        auto* pending = PyObject_New(PendingObject, pending_type);
        new (&pending->core) std::shared_ptr<Core>(core_);
        new (&pending->credit) std::shared_ptr<Credit>;
        pending->items = 0;
        pending->frame = frame.release();
        {
            std::lock_guard lock(core_->mutex());
            const TaskHeader& header = pending->frame->header;
            under_way[{pending->frame->from.key(), header.cookie}] = header.task;
            if (flags & kStreaming) pending->credit = core_->credit(pending->frame->from, header.cookie);
        }
        Owned call(reinterpret_cast<PyObject*>(pending));
        PyObject* all[] = {session().host, call.get(), method.get(), args.get(), kwargs.get()};
        Owned started(
            args && kwargs && method
                ? PyObject_VectorcallMethod(name_start, all, 5 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr)
                : nullptr);
        answered = false;
        if (!started) {
            PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
            PyErr_Fetch(&type, &value, &trace);
            PyErr_NormalizeException(&type, &value, &trace);
            Owned a(type), b(value), c(trace);
            Owned done(pending_fail(call.get(), value));
        }
    } else {
        Owned result(call(*frame, arguments));
        arguments.clear();
        if (result && core_->is_actor.load() && is_cancelled())
            reply_cancelled(*core_, *frame);  // it could not be stopped; its caller has given it up
        else if (result && (flags & kStreaming))
            stream(*frame, result.get());
        else if (!result || !reply_results(*core_, *frame, result.get()))
            fail(*frame);
    }
    {
        std::lock_guard lock(core_->mutex());
        running_ = {};
        cancel_.store(false);
    }
    core_->running_task.store(false, std::memory_order_relaxed);
    context = nullptr;
    if (answered && frame) drop_nested(*core_, *frame);
    core_->advance_epoch();
}

/// Answers with the exception that is set.
void Worker::fail(Frame& frame) {
    if (is_cancelled() && !core_->is_actor.load()) {
        PyErr_Clear();
        return reply_cancelled(*core_, frame);
    }
    reply_exception(*core_, frame);
}

/// Runs a generator, sending its items as they come, at most a window ahead of the consumer (STR-2).
void Worker::stream(Frame& frame, PyObject* result) {
    Owned iterator(PyObject_GetIter(result));
    if (!iterator) return fail(frame);
    std::shared_ptr<Credit> credit;
    {
        std::lock_guard lock(core_->mutex());
        credit = core_->credit(frame.from, frame.header.cookie);
    }
    const uint32_t window = window_of(frame);
    uint32_t sent = 0;
    bool failed = false;
    while (!credit->closed.load(std::memory_order_acquire)) {
        Owned item(PyIter_Next(iterator.get()));
        if (!item) {
            failed = PyErr_Occurred() != nullptr;
            break;
        }
        if ((failed = !send_item(*core_, frame, sent, item.get()))) break;
        ++sent;
        core_->advance_epoch();
        const auto may_send = [&] {
            return credit->closed.load(std::memory_order_acquire) || has_room(sent, *credit, window);
        };
        while (!may_send()) {
            Py_BEGIN_ALLOW_THREADS;
            core_->wait_until(may_send, -1, Core::kLendAtOnce);
            Py_END_ALLOW_THREADS;
            if (core_->is_closed() || (failed = PyErr_CheckSignals() != 0)) break;
        }
        if (failed || core_->is_closed()) break;
    }
    if (failed && is_cancelled()) {
        PyErr_Clear();
        reply_cancelled(*core_, frame);
    } else if (failed) {
        end_stream_with_exception(*core_, frame, sent);
    } else {
        reply_results(*core_, frame, Py_None);
    }
    std::lock_guard lock(core_->mutex());
    core_->forget_credit(frame.from, frame.header.cookie);
}

/// A caller wants a task that has been taken from the inbox to stop. The mutex is held.
void Worker::on_cancel(ProcessId from, uint64_t cookie, bool force, bool recursive) {
    if (const auto it = under_way.find({from.key(), cookie}); it != under_way.end()) {
        if (recursive) core_->cancel_children(it->second, force);
        core_->push_event(
            {uint16_t(Kind::CANCEL), std::string(reinterpret_cast<const char*>(&it->second), sizeof(Id))});
        return;
    }
    if (running_.cookie != cookie || running_.from != from) return;
    if (recursive) core_->cancel_children(running_.task, force);
    if (force) _exit(1);
    cancel_.store(true, std::memory_order_release);
    // The main thread's handler asks is_cancelled(); a late signal finds it false and is ignored.
    if (core_->is_actor.load()) return;
    pthread_kill(main_thread_, SIGUSR1);
    core_->interrupt(main_thread_);  // it may be the one that reads this record, inside a get
}

int Worker::run() {
    {
        std::lock_guard lock(core_->mutex());
        core_->on_cancel = [this](ProcessId from, uint64_t cookie, bool force, bool recursive) {
            on_cancel(from, cookie, force, recursive);
        };
    }
    while (!core_->exit_requested() && !core_->is_closed()) {
        Incoming incoming;
        if (actor_ != nullptr && !before_creation_.empty()) {
            incoming = std::move(before_creation_.front());
            before_creation_.pop_front();
        } else if (!core_->take_incoming(incoming)) {
            core_->poll();
            if (!core_->take_incoming(incoming)) {
                core_->tell_lending();
                title.show(idle_title_);
                Core::Waited waited;
                Py_BEGIN_ALLOW_THREADS;
                waited =
                    core_->wait_until([this] { return core_->has_incoming() || core_->exit_requested(); }, -1,
                                      Core::kNeverLend);
                Py_END_ALLOW_THREADS;
                if (waited == Core::Waited::interrupted && PyErr_CheckSignals() != 0)
                    PyErr_WriteUnraisable(nullptr);
                continue;
            }
        }
        const auto* header = reinterpret_cast<const TaskHeader*>(incoming.bytes.data());
        if ((header->flags & kIsMethod) && actor_ == nullptr) {
            before_creation_.push_back(std::move(incoming));
            continue;
        }
        execute(incoming);
    }
    return 0;
}

}  // namespace

PyObject* py_run_worker(PyObject*, PyObject*) {
    if (attached() == nullptr) return nullptr;
    int status;
    {
        Worker worker(session().core);
        the_worker = &worker;
        status = worker.run();
        the_worker = nullptr;
        std::lock_guard lock(session().core->mutex());
        session().core->on_cancel = nullptr;
    }
    return PyLong_FromLong(status);
}

PyObject* py_title_prefix(PyObject*, PyObject* prefix) {
    Py_ssize_t bytes = 0;
    const char* text = PyUnicode_AsUTF8AndSize(prefix, &bytes);
    if (text == nullptr) return nullptr;
    if (the_worker != nullptr) the_worker->title.set_prefix({text, size_t(bytes)});
    Py_RETURN_NONE;
}

bool is_cancelled() {
    return the_worker != nullptr && the_worker->is_cancelled();
}

bool add_worker_types(PyObject* module) {
    pending_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&pending_spec));
    name_bind = PyUnicode_InternFromString("bind_job");
    name_load = PyUnicode_InternFromString("load_function");
    name_error = PyUnicode_InternFromString("dump_error");
    name_create = PyUnicode_InternFromString("create_actor");
    name_concurrent = PyUnicode_InternFromString("is_concurrent");
    name_start = PyUnicode_InternFromString("start_call");
    return pending_type && name_start &&
           PyModule_AddObjectRef(module, "PendingCall", reinterpret_cast<PyObject*>(pending_type)) == 0;
}

}  // namespace weft
