/// A worker's life: take a task record, run the function, answer.
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <unordered_map>

#include "actor_method.hpp"
#include "arguments.hpp"
#include "loaded_functions.hpp"
#include "openness.hpp"
#include "pending_call.hpp"
#include "py.hpp"
#include "repeated_signal.hpp"
#include "title.hpp"

namespace weft {

namespace {

PyObject *name_create, *name_concurrent;

class Worker {
  public:
    explicit Worker(std::shared_ptr<Core> core) : core_(std::move(core)) {}
    ~Worker() { Py_XDECREF(actor_); }
    int run();

    /// Whether the task on the main thread was cancelled.
    bool is_cancelled() const { return cancel_.load(std::memory_order_acquire); }
    /// On the main thread, by the signal's handler: whether to raise now. Once for a cancelled task, and only
    /// in the task's own code: what it catches it may tidy up after, and the engine's code is not to be cut.
    bool take_interrupt() {
        if (!is_cancelled() || !is_open_) return false;
        {
            std::lock_guard lock(core_->mutex());
            if (!std::exchange(is_interrupt_due_, false)) return false;
            signals_.stop();
            if (is_cancel_recursive_)
                core_->submitter.cancel_children(running_.task, false);  // its last ones
        }
        core_->pump.wake_waiters();
        return true;
    }
    /// What was raised went nowhere, as in a destructor: it is raised again.
    void interrupt_again() {
        std::lock_guard lock(core_->mutex());
        if (!is_cancelled() || std::exchange(is_interrupt_due_, true)) return;
        signals_.start();
    }
    ProcessTitle title;
    /// The task on the main thread; the mutex is held.
    Id running() const { return running_.task; }
    /// Write to an eventfd once the main thread, which calls this, needs the GIL no longer. False on others.
    bool ring_when_idle(int fd) {
        if (!pthread_equal(pthread_self(), main_thread_)) return false;
        to_ring_.push_back(fd);
        return true;
    }

  private:
    void execute(Incoming& incoming);
    void answer(Incoming& incoming, std::unique_ptr<Frame> frame, Context& here);
    bool reply(Frame& frame, PyObject* result);
    void fail(Frame& frame);
    void stream(Incoming& incoming, Frame& frame, PyObject* result);
    bool send_items(Frame& frame, PyObject* result, uint32_t& sent);
    void on_cancel(ProcessId from, uint64_t cookie, bool force, bool recursive);
    void create(Frame& frame, Arguments& arguments);
    void answer_creation(const Frame& frame);
    PyObject* call(Frame& frame, Arguments& arguments);
    void keep_inputs(Incoming& incoming, const Frame& frame, const Arguments* live = nullptr);
    void end_cancel();
    bool take_early(Incoming& incoming);
    void ring();

    std::shared_ptr<Core> core_;
    std::unordered_map<uint64_t, ActorMethod> methods_;
    PyObject* actor_ = nullptr;
    bool concurrent_ = false;
    std::string idle_title_ = "idle";
    struct {
        ProcessId from;
        uint64_t cookie = 0;
        Id task;
    } running_;  ///< on the main thread; guarded by the core's mutex
    std::atomic<bool> cancel_{false};
    bool is_open_ = false;  ///< to an interrupt, because the task's own code runs; the main thread's
    LoadedFunctions functions_{*core_, is_open_};
    bool is_interrupt_due_ = false, is_cancel_recursive_ = false;  ///< guarded by the core's mutex
    RepeatedSignal signals_{SIGUSR1};
    /// Of loops that have calls to begin. They are rung without the GIL: a loop that wakes while this thread
    /// holds it takes it from this thread in the middle, and each waits for the other.
    std::vector<int> to_ring_;
    pthread_t main_thread_ = pthread_self();
};

Worker* the_worker = nullptr;

PyObject* Worker::call(Frame& frame, Arguments& arguments) {
    if ((frame.header.flags & kIsMethod) == 0) {
        PyObject* function = functions_.load(frame.header.function);
        if (function == nullptr) return nullptr;
        return PyObject_Vectorcall(function, arguments.values.data(), arguments.positional,
                                   arguments.names.get());
    }
    ActorMethod& method = methods_[frame.header.function];
    if (!method.is_known() && !method.find(actor_, frame.method)) return nullptr;
    std::vector<PyObject*> with_self{actor_};
    with_self.insert(with_self.end(), arguments.values.begin(), arguments.values.end());
    return method.call(with_self.data(), arguments.positional + 1, arguments.names.get());
}

void Worker::create(Frame& frame, Arguments& arguments) {
    core_->inbox.is_actor.store(true);
    PyObject* cls = functions_.load(frame.header.function);
    Owned args(cls ? arguments.tuple() : nullptr), kwargs(args ? arguments.dict() : nullptr);
    Owned id(PyBytes_FromStringAndSize(reinterpret_cast<const char*>(&frame.header.actor), sizeof(Id)));
    Owned to(kwargs && id ? host() : nullptr);
    if (to) {
        PyObject* all[] = {to.get(), cls, args.get(), kwargs.get(), id.get()};
        actor_ = PyObject_VectorcallMethod(name_create, all, 5 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
    }
    end_if_fork(*core_);
    if (actor_ != nullptr) {
        idle_title_ = frame.name.substr(0, frame.name.rfind('.'));
        Owned answer(PyObject_CallMethodNoArgs(to.get(), name_concurrent));
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
    out.add(records::ActorState{frame.header.actor, actor_ != nullptr});
    if (actor_ == nullptr) {
        const std::string error = dump_exception(*core_, frame).first;
        out.append(error.data(), error.size());
    }
    std::lock_guard lock(core_->mutex());
    record_run(*core_, frame, actor_ != nullptr ? Status::ok : Status::failed, now_ns() - frame.started_ns);
    core_->endpoint.send_daemon(Kind::ACTOR_CREATED, out.data(), out.size());
}

void Worker::execute(Incoming& incoming) {
    auto frame = std::make_unique<Frame>();
    frame->started_ns = now_ns();
    Context here;
    context = &here;
    core_->pump.begin_task();
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
        core_->inbox.forget_taken();
        if (is_cancelled()) end_cancel();
    }
    core_->pump.end_task();
    context = nullptr;
    core_->pump.advance_epoch();
}

/// Who cancels it from now on is too late. The mutex is held.
void Worker::end_cancel() {
    cancel_.store(false);
    is_interrupt_due_ = is_cancel_recursive_ = false;
    signals_.stop();
}

/// Runs the call and answers it; one of a concurrent actor is only started.
void Worker::answer(Incoming& incoming, std::unique_ptr<Frame> frame, Context& here) {
    Arguments arguments;
    // Unpickling may import user modules: the job must be set up before.
    bool decoded = functions_.bind_job();
    if (decoded) {
        const Openness open(is_open_, true);
        decoded = decode_arguments(*core_, incoming, *frame, arguments);
    }
    here.name = frame->name;
    const uint32_t flags = frame->header.flags;
    // A call in the engine's own group runs beside the others, on a serial actor too.
    const bool beside = concurrent_ || ((flags & kUnordered) && frame->method.find(':') != std::string::npos);
    if (!beside) title.show(frame->name);
    if (decoded && (flags & kIsMethod) && beside) {
        Owned args(arguments.tuple()), kwargs(arguments.dict());
        const uint64_t cookie = frame->header.cookie;
        start_pending_call(core_, std::move(frame), args.get(), kwargs.get());
        if (!is_cancelled()) return;
        std::lock_guard lock(core_->mutex());  // it was cancelled before it could be found under way
        cancel_pending_call(*core_, incoming.from, cookie, false, is_cancel_recursive_);
        return;
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
    } else if (is_cancelled() && !core_->inbox.is_actor.load()) {
        reply_cancelled(*core_, *frame);
    } else {
        Owned result;
        {
            const Openness open(is_open_, true);
            result = Owned(call(*frame, arguments));
        }
        end_if_fork(*core_);
        if (result && here.has_resigned) {
            PyErr_SetNone(PyExc_SystemExit);
            result = Owned();
        }
        const bool has_raised = !result;
        if (!has_raised) arguments.clear();
        if (result && core_->inbox.is_actor.load() && is_cancelled())
            reply_cancelled(*core_, *frame);  // it could not be stopped; its caller has given it up
        else if (result && (flags & kStreaming))
            stream(incoming, *frame, result.get());
        else if (!result || !reply(*frame, result.get())) {
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
    for (uint32_t i = 0; i < header.deps; ++i) {
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
                       : Py_XNewRef(functions_.load(header.function)));
        if (what && (has_refs || decode_arguments(*core_, incoming, again, decoded))) {
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

bool Worker::reply(Frame& frame, PyObject* result) {
    const Openness open(is_open_, true);
    return reply_results(*core_, frame, result);
}

/// Answers with the exception that is set.
void Worker::fail(Frame& frame) {
    if (is_cancelled() && !core_->inbox.is_actor.load()) {
        PyErr_Clear();
        return reply_cancelled(*core_, frame);
    }
    reply_exception(*core_, frame);
}

/// Runs a generator, sending its items as they come, at most a window ahead of the consumer (STR-2).
void Worker::stream(Incoming& incoming, Frame& frame, PyObject* result) {
    uint32_t sent = 0;
    const bool failed = !send_items(frame, result, sent);
    if (failed && is_cancelled()) {
        PyErr_Clear();
        reply_cancelled(*core_, frame);
    } else if (failed) {
        keep_inputs(incoming, frame);
        end_stream_with_exception(*core_, frame, sent);
    } else {
        reply_results(*core_, frame, Py_None);
    }
}

/// False with an exception set.
bool Worker::send_items(Frame& frame, PyObject* result, uint32_t& sent) {
    const Openness open(is_open_, true);
    Owned iterator(PyObject_GetIter(result));
    if (!iterator) return false;
    std::shared_ptr<Credit> credit;
    {
        std::lock_guard lock(core_->mutex());
        credit = core_->inbox.credit(frame.from, frame.header.cookie);
    }
    const uint32_t window = window_of(frame);
    bool failed = false;
    while (!credit->closed.load(std::memory_order_acquire)) {
        Owned item(PyIter_Next(iterator.get()));
        end_if_fork(*core_);
        if (!item) {
            failed = PyErr_Occurred() != nullptr;
            break;
        }
        if ((failed = !send_item(*core_, frame, sent, item.get()))) break;
        ++sent;
        core_->pump.advance_epoch();
        const auto may_send = [&] {
            return credit->closed.load(std::memory_order_acquire) || has_room(sent, *credit, window);
        };
        while (!may_send()) {
            Py_BEGIN_ALLOW_THREADS;
            core_->pump.wait_until(may_send, -1, Pump::kLendAtOnce);
            Py_END_ALLOW_THREADS;
            if (core_->is_closed() || (failed = PyErr_CheckSignals() != 0)) break;
        }
        if (failed || core_->is_closed()) break;
    }
    // Before the answer: the caller's next attempt may have the same cookie, and credits of its own.
    std::lock_guard lock(core_->mutex());
    core_->inbox.forget_credit(frame.from, frame.header.cookie);
    return !failed;
}

/// A caller wants a task that has been taken from the inbox to stop. The mutex is held.
void Worker::on_cancel(ProcessId from, uint64_t cookie, bool force, bool recursive) {
    if (cancel_pending_call(*core_, from, cookie, force, recursive)) return;
    for (Incoming& early : core_->inbox.early)
        if (!early.bytes.empty() && early.from == from && early.cookie() == cookie)
            return core_->inbox.answer_cancelled(early);
    const bool is_running = running_.cookie == cookie && running_.from == from;
    if (!is_running && !core_->inbox.was_taken_last(from, cookie)) return;
    if (recursive && is_running) core_->submitter.cancel_children(running_.task, force);
    if (force) _exit(1);
    cancel_.store(true, std::memory_order_release);
    is_cancel_recursive_ = recursive;
    if (core_->inbox.is_actor.load()) return;
    // The main thread's handler asks take_interrupt(); a late signal finds nothing due and is ignored.
    is_interrupt_due_ = true;
    signals_.start();
    core_->pump.interrupt(main_thread_);  // it may be the one that reads this record, inside a get
}

void Worker::ring() {
    for (const int fd : to_ring_) {
        const uint64_t one = 1;
        if (write(fd, &one, sizeof one) < 0) continue;  // a counter that is full wakes as well
    }
    to_ring_.clear();
}

/// A call that came before its actor was created, once it is.
bool Worker::take_early(Incoming& incoming) {
    std::deque<Incoming>& early = core_->inbox.early;
    if (actor_ == nullptr || early.empty()) return false;  // this thread alone adds and takes
    std::lock_guard lock(core_->mutex());
    incoming = std::move(early.front());
    early.pop_front();
    if (!incoming.bytes.empty()) core_->inbox.take(incoming);
    return true;
}

int Worker::run() {
    {
        std::lock_guard lock(core_->mutex());
        core_->inbox.on_cancel_running = [this](ProcessId from, uint64_t cookie, bool force, bool recursive) {
            on_cancel(from, cookie, force, recursive);
        };
    }
    while (!core_->pump.exit_requested() && !core_->is_closed()) {
        Incoming incoming;
        if (take_early(incoming)) {
            if (incoming.bytes.empty()) continue;  // it was cancelled
        } else if (!core_->inbox.take_incoming(incoming)) {
            core_->pump.poll();
            if (!core_->inbox.take_incoming(incoming)) {
                core_->lent_rows.tell_lending();
                title.show(idle_title_);
                Pump::Waited waited;
                Py_BEGIN_ALLOW_THREADS;
                ring();
                waited = core_->pump.wait_until(
                    [this] { return core_->inbox.has_incoming() || core_->pump.exit_requested(); }, -1,
                    Pump::kNeverLend);
                Py_END_ALLOW_THREADS;
                if (waited == Pump::Waited::interrupted && PyErr_CheckSignals() != 0)
                    PyErr_WriteUnraisable(nullptr);
                continue;
            }
        }
        const auto* header = reinterpret_cast<const TaskHeader*>(incoming.bytes.data());
        if ((header->flags & kIsMethod) && actor_ == nullptr) {
            std::lock_guard lock(core_->mutex());
            if (is_cancelled())
                core_->inbox.answer_cancelled(incoming), core_->inbox.forget_taken(), end_cancel();
            else
                core_->inbox.put_off(std::move(incoming));
            continue;
        }
        if (!to_ring_.empty()) {  // this one's arguments may take long, or wait for what another call does
            Py_BEGIN_ALLOW_THREADS;
            ring();
            Py_END_ALLOW_THREADS;
        }
        execute(incoming);
    }
    return 0;
}

}  // namespace

PyObject* py_run_worker(PyObject*, PyObject*) {
    if (attached() == nullptr) return nullptr;
    const std::shared_ptr<Core> core = session().core;
    int status;
    {
        Worker worker(core);
        the_worker = &worker;
        status = worker.run();
        the_worker = nullptr;
        std::lock_guard lock(core->mutex());
        core->inbox.on_cancel_running = nullptr;
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

PyObject* py_ring_when_idle(PyObject*, PyObject* fd) {
    const long number = PyLong_AsLong(fd);
    if (number == -1 && PyErr_Occurred() != nullptr) return nullptr;
    return PyBool_FromLong(the_worker != nullptr && the_worker->ring_when_idle(int(number)));
}

bool take_interrupt() {
    return the_worker != nullptr && the_worker->take_interrupt();
}

void interrupt_again() {
    if (the_worker != nullptr) the_worker->interrupt_again();
}

bool is_cancelled() {
    return the_worker != nullptr && the_worker->is_cancelled();
}

Id running_task() {
    return the_worker != nullptr ? the_worker->running() : Id{};
}

bool add_worker_types(PyObject* module) {
    name_create = PyUnicode_InternFromString("create_actor");
    name_concurrent = PyUnicode_InternFromString("is_concurrent");
    return name_concurrent && add_pending_type(module);
}

}  // namespace weft
