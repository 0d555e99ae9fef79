/// A worker's life: take a task record, run the function, answer.
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <unordered_map>

#include "pending_call.hpp"
#include "py.hpp"
#include "title.hpp"

namespace weft {

namespace {

PyObject *name_bind, *name_load, *name_create, *name_concurrent;

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
    /// The task on the main thread; the mutex is held.
    Id running() const { return running_.task; }

  private:
    void execute(Incoming& incoming);
    void answer(Incoming& incoming, std::unique_ptr<Frame> frame, Context& here);
    void fail(Frame& frame);
    void stream(Incoming& incoming, Frame& frame, PyObject* result);
    void on_cancel(ProcessId from, uint64_t cookie, bool force, bool recursive);
    void create(Frame& frame, Arguments& arguments);
    void answer_creation(const Frame& frame);
    PyObject* load(uint64_t key);
    bool bind_job();
    bool decode(Incoming& incoming, Frame& frame, Arguments& arguments);
    PyObject* call(Frame& frame, Arguments& arguments);
    void keep_inputs(Incoming& incoming, const Frame& frame, const Arguments* live = nullptr);

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
    std::vector<uint64_t> forgotten;
    std::string payload;
    {
        std::lock_guard lock(core_->mutex());
        forgotten = core_->take_forgotten();
        payload = core_->definition(key);
    }
    for (const uint64_t unused : forgotten)
        if (auto gone = functions_.extract(unused)) Py_DECREF(gone.mapped());
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
    core_->loaded(key);
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
        ArenaRef arena() const {
            ArenaRef ref;
            memcpy(&ref, data, sizeof ref);
            return ref;
        }
    };
    std::vector<Dependency> deps(header.deps);
    AskedAhead ahead(*core_);
    if (header.nested != 0 || header.deps != 0) {
        const bool self_borrow = (header.flags & kSelfBorrow) != 0;
        std::lock_guard lock(core_->mutex());
        frame.nested = core_->unpack_refs(cursor, header.nested, self_borrow);
        for (Dependency& dep : deps) {
            dep.value = cursor.take<PackedValue>();
            std::vector<Entry*> inner = core_->unpack_refs(cursor, dep.value.nested, self_borrow);
            frame.nested.insert(frame.nested.end(), inner.begin(), inner.end());
            dep.data = cursor.skip(dep.value.bytes);
            if (header.deps > 1 && dep.value.where == Where::arena) ahead.ask(dep.arena());
        }
    }
    const auto argument = [&]() -> PyObject* {
        if (args.take<char>() == 'R') {
            const Dependency& dep = deps[args.take<uint16_t>()];
            if (dep.value.where != Where::arena) return decode_value(dep.data, dep.value.bytes, nullptr);
            return value_in_arena(*core_, dep.arena(), frame.lost);
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

/// The host is given what failed (a function, a class, or a method's name) and its arguments, for a replay;
/// the exception that is set stays.
void show_inputs(PyObject* what, PyObject* args, PyObject* kwargs) {
    static PyObject* const name_keep = PyUnicode_InternFromString("keep_inputs");
    PyObject *type = nullptr, *error = nullptr, *trace = nullptr;
    PyErr_Fetch(&type, &error, &trace);
    PyObject* all[] = {session().host, what, args, kwargs};
    if (!Owned(PyObject_VectorcallMethod(name_keep, all, 4 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr)))
        PyErr_Clear();  // there is nothing to replay
    PyErr_Restore(type, error, trace);
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
    if (actor_ == nullptr && kwargs) show_inputs(cls, args.get(), kwargs.get());
    answer_creation(frame);
}

/// To the daemon: the actor lives, or the exception that is set.
void Worker::answer_creation(const Frame& frame) {
    Buffer out;
    out.add(frame.header.actor);
    out.add(uint32_t(actor_ != nullptr));
    out.add(uint32_t(0));
    if (actor_ == nullptr) {
        const std::string error = dump_exception(frame).first;
        out.append(error.data(), error.size());
    }
    std::lock_guard lock(core_->mutex());
    record_run(*core_, frame, actor_ != nullptr ? Status::ok : Status::failed, now_ns() - frame.started_ns);
    core_->send_daemon(Kind::ACTOR_CREATED, out.data(), out.size());
}

void Worker::execute(Incoming& incoming) {
    auto frame = std::make_unique<Frame>();
    frame->started_ns = now_ns();
    Context here;
    context = &here;
    core_->begin_task();
    const auto* header = reinterpret_cast<const TaskHeader*>(incoming.bytes.data());
    {
        std::lock_guard lock(core_->mutex());
        running_ = {incoming.from, header->cookie, header->task};
    }
    here.task = header->task;
    here.actor = header->actor;
    here.attempt = header->attempt;
    answer(incoming, std::move(frame), here);
    {
        std::lock_guard lock(core_->mutex());
        running_ = {};
        cancel_.store(false);
    }
    core_->running_task.store(false, std::memory_order_relaxed);
    context = nullptr;
    core_->advance_epoch();
}

/// Runs the call and answers it; one of a concurrent actor is only started.
void Worker::answer(Incoming& incoming, std::unique_ptr<Frame> frame, Context& here) {
    Arguments arguments;
    // Unpickling may import user modules: the job must be set up before.
    const bool decoded = bind_job() && decode(incoming, *frame, arguments);
    here.name = frame->name;
    const uint32_t flags = frame->header.flags;
    // A call in the engine's own group runs beside the others, on a serial actor too.
    const bool beside = concurrent_ || ((flags & kUnordered) && frame->method.find(':') != std::string::npos);
    if (!beside) title.show(frame->name);
    if (decoded && (flags & kIsMethod) && beside) {
        Owned args(arguments.tuple()), kwargs(arguments.dict());
        return start_pending_call(core_, std::move(frame), args.get(), kwargs.get());
    }
    if (flags & kIsCreation) {
        if (!decoded && !frame->lost.empty()) raise_error(frame->lost);
        if (decoded)
            create(*frame, arguments);
        else
            answer_creation(*frame);
    } else if (!decoded && !frame->lost.empty()) {
        reply_lost(*core_, *frame);
    } else if (!decoded) {
        fail(*frame);
    } else {
        Owned result(call(*frame, arguments));
        const bool has_raised = !result;
        if (!has_raised) arguments.clear();
        if (result && core_->is_actor.load() && is_cancelled())
            reply_cancelled(*core_, *frame);  // it could not be stopped; its caller has given it up
        else if (result && (flags & kStreaming))
            stream(incoming, *frame, result.get());
        else if (!result || !reply_results(*core_, *frame, result.get())) {
            keep_inputs(incoming, *frame, has_raised ? &arguments : nullptr);
            arguments.clear();
            fail(*frame);
        }
    }
    drop_nested(*core_, *frame);
}

/// Of a task or call that failed: its arguments as they came, or, where refs inside them were counted once
/// already, as they are now (`live`).
void Worker::keep_inputs(Incoming& incoming, const Frame& frame, const Arguments* live) {
    const TaskHeader& header = frame.header;
    if ((header.flags & kIsCreation) != 0 || is_cancelled()) return;
    bool has_refs = header.nested != 0;
    Cursor deps(incoming.bytes.data() + sizeof(TaskHeader) + header.static_bytes,
                incoming.bytes.size() - sizeof(TaskHeader) - header.static_bytes);
    for (int i = 0; i < header.deps; ++i) {
        const auto value = deps.take<PackedValue>();
        has_refs = has_refs || value.nested != 0;
        deps.skip(value.bytes);
    }
    if (has_refs && live == nullptr) return;
    PyObject *type = nullptr, *error = nullptr, *trace = nullptr;
    PyErr_Fetch(&type, &error, &trace);
    {
        Frame again;
        Arguments decoded;
        Owned args, kwargs;
        Owned what((header.flags & kIsMethod) != 0
                       ? PyUnicode_FromStringAndSize(frame.method.data(), Py_ssize_t(frame.method.size()))
                       : Py_XNewRef(load(header.function)));
        if (what && (has_refs || decode(incoming, again, decoded))) {
            const Arguments& found = has_refs ? *live : decoded;
            args = Owned(found.tuple());
            kwargs = Owned(found.dict());
        }
        if (args && kwargs)
            show_inputs(what.get(), args.get(), kwargs.get());
        else
            PyErr_Clear();  // an argument whose memory is gone: there is nothing to replay
    }
    PyErr_Restore(type, error, trace);
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
void Worker::stream(Incoming& incoming, Frame& frame, PyObject* result) {
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
        keep_inputs(incoming, frame);
        end_stream_with_exception(*core_, frame, sent);
    } else {
        reply_results(*core_, frame, Py_None);
    }
    std::lock_guard lock(core_->mutex());
    core_->forget_credit(frame.from, frame.header.cookie);
}

/// A caller wants a task that has been taken from the inbox to stop. The mutex is held.
void Worker::on_cancel(ProcessId from, uint64_t cookie, bool force, bool recursive) {
    if (cancel_pending_call(*core_, from, cookie, force, recursive)) return;
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

Id running_task() {
    return the_worker != nullptr ? the_worker->running() : Id{};
}

bool add_worker_types(PyObject* module) {
    name_bind = PyUnicode_InternFromString("bind_job");
    name_load = PyUnicode_InternFromString("load_function");
    name_create = PyUnicode_InternFromString("create_actor");
    name_concurrent = PyUnicode_InternFromString("is_concurrent");
    return name_concurrent && add_pending_type(module);
}

}  // namespace weft
