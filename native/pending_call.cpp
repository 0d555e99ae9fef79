#include "pending_call.hpp"

#include "py.hpp"

namespace weft {

namespace {

PyTypeObject* pending_type;
PyObject* name_start;

struct PendingObject {
    PyObject_HEAD std::shared_ptr<Core> core;
    Frame* frame;  ///< null once answered
    std::shared_ptr<Credit> credit;
    uint32_t items;
};

struct UnderWay {
    Id task;
    bool is_cancelled_with_children = false;
};
/// The calls of concurrent actors that are under way, for cancelling. Guarded by the core's mutex.
std::map<std::pair<uint64_t, uint64_t>, UnderWay> under_way;

std::unique_ptr<Frame> take_frame(PendingObject* pending) {
    end_if_fork(*pending->core);
    std::unique_ptr<Frame> frame(std::exchange(pending->frame, nullptr));
    std::lock_guard lock(pending->core->mutex());
    under_way.erase({frame->from.key(), frame->header.cookie});
    if (pending->credit) pending->core->inbox.forget_credit(frame->from, frame->header.cookie);
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

/// What it has submitted since the word of its cancel came, and before it is stopped.
PyObject* pending_cancel_children(PyObject* self, PyObject*) {
    const auto* pending = reinterpret_cast<PendingObject*>(self);
    if (pending->frame == nullptr) Py_RETURN_NONE;
    Core& core = *pending->core;
    {
        std::lock_guard lock(core.mutex());
        const auto it = under_way.find({pending->frame->from.key(), pending->frame->header.cookie});
        if (it == under_way.end() || !it->second.is_cancelled_with_children) Py_RETURN_NONE;
        core.submitter.cancel_children(it->second.task, false);
    }
    core.pump.wake_waiters();
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
    if (pending->core->is_ours()) {  // a fork's copy is nobody's to answer
        if (pending->frame != nullptr) {
            std::unique_ptr<Frame> frame = take_frame(pending);
            drop_nested(*pending->core, *frame);
        }
        pending->credit.~shared_ptr();
        pending->core.~shared_ptr();
    }
    PyTypeObject* type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

PyMethodDef pending_methods[] = {
    {"finish", from_python<pending_finish>, METH_O, "Answer with the result."},
    {"fail", from_python<pending_fail>, METH_O, "Answer with the exception."},
    {"item", from_python<pending_item>, METH_O, "Stream one value: 1 go on, 0 wait for room, -1 stop."},
    {"room", from_python<pending_room>, METH_NOARGS, "As item(), without sending."},
    {"streams", from_python<pending_streams>, METH_NOARGS, "Whether the caller wants a stream."},
    {"cancelled", from_python<pending_cancelled>, METH_NOARGS, "Answer that it was cancelled."},
    {"cancel_children", from_python<pending_cancel_children>, METH_NOARGS,
     "Cancel what it has submitted, if its caller wants that."},
    {"task", from_python<pending_task>, METH_NOARGS, "(task id, name), or None once answered."},
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

}  // namespace

void start_pending_call(const std::shared_ptr<Core>& core, std::unique_ptr<Frame> frame, PyObject* args,
                        PyObject* kwargs) {
    const TaskHeader header = frame->header;
    const ProcessId from = frame->from;
    Owned method(PyUnicode_FromStringAndSize(frame->method.data(), Py_ssize_t(frame->method.size())));
    auto* pending = PyObject_New(PendingObject, pending_type);
    new (&pending->core) std::shared_ptr<Core>(core);
    new (&pending->credit) std::shared_ptr<Credit>;
    pending->items = 0;
    pending->frame = frame.release();
    {
        std::lock_guard lock(core->mutex());
        under_way[{from.key(), header.cookie}] = {header.task};
        if (header.flags & kStreaming) pending->credit = core->inbox.credit(from, header.cookie);
    }
    Owned call(reinterpret_cast<PyObject*>(pending));
    Owned to(args && kwargs && method ? host() : nullptr);
    PyObject* all[] = {to.get(), call.get(), method.get(), args, kwargs};
    Owned started(to ? PyObject_VectorcallMethod(name_start, all, 5 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr)
                     : nullptr);
    if (started) return;
    PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    Owned type_owned(type), error(value), trace_owned(trace);
    Owned done(pending_fail(call.get(), error.get()));
}

bool cancel_pending_call(Core& core, ProcessId from, uint64_t cookie, bool force, bool recursive) {
    const auto it = under_way.find({from.key(), cookie});
    if (it == under_way.end()) return false;
    UnderWay& call = it->second;
    call.is_cancelled_with_children = recursive;
    if (recursive) core.submitter.cancel_children(call.task, force);
    core.endpoint.push_event(
        {uint16_t(Kind::CANCEL), std::string(reinterpret_cast<const char*>(&call.task), sizeof(Id))});
    return true;
}

bool add_pending_type(PyObject* module) {
    pending_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&pending_spec));
    name_start = PyUnicode_InternFromString("start_call");
    return pending_type && name_start &&
           PyModule_AddObjectRef(module, "PendingCall", reinterpret_cast<PyObject*>(pending_type)) == 0;
}

}  // namespace weft
