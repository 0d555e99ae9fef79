/// put, and promises: objects that this process makes without a task.
#include "py.hpp"

namespace weft {

namespace {

/// A value went into the arena. The mutex is held.
void record_put(Core& core, Id object, const Encoded& encoded) {
    EventLog& log = core.endpoint.log;
    log.add(Tally::put_objects, 1);
    if (encoded.where != Where::arena) return log.add(Tally::put_bytes, encoded.bytes);
    log.add(Tally::put_bytes, encoded.arena.bytes);
    if (!log.is_on()) return;
    Event event;
    event.at_ns = now_ns();
    event.duration_ns = 0;
    event.task = context != nullptr ? context->task : core.endpoint.root;
    event.other = object;
    event.bytes = encoded.arena.bytes;
    event.kind = EventKind::PUT;
    event.status = 0;
    event.attempt = 0;
    event.count = 1;
    log.record(event, {});
}

}  // namespace

PyObject* py_put_result(PyObject*, PyObject* value) {
    const Attached core;
    if (!core) return nullptr;
    Buffer scratch;
    Nested nested;
    Encoded encoded;
    if (!encode_value(*core, value, scratch, nested, core->self(), encoded, {})) {
        for (Entry* entry : nested.entries)
            core->objects.drop(entry);
        return nullptr;
    }
    if (core.is_over()) return raise_over(*core);
    Entry* entry;
    {
        std::lock_guard lock(core->mutex());
        entry = core->objects.new_entry(next_child(*core).object(0xffff));
        hold(entry);
        core->objects.publish_inner(entry, std::move(nested.entries));
        core->objects.complete(entry, encoded.where, scratch.data(), encoded.bytes, encoded.arena);
        record_put(*core, entry->id, encoded);
    }
    return make_ref(*core, ref_type, entry);
}

PyObject* py_put(PyObject* self, PyObject* value) {
    if (!is_ref(value)) return py_put_result(self, value);
    PyErr_SetString(PyExc_TypeError,
                    "Calling 'put' on an ObjectRef is not allowed. Pass the ref itself, or put it in a list: "
                    "put([ref]).");
    return nullptr;
}

PyObject* py_promise(PyObject*, PyObject*) {
    Core* core = attached();
    if (core == nullptr) return nullptr;
    Entry* entry;
    {
        std::lock_guard lock(core->mutex());
        entry = core->objects.new_entry(next_child(*core).object(0xffff));
        core->objects.escape(entry);  // so that PROMISE_KEPT finds it
        hold(entry);
        if (core->is_lost()) core->objects.fail(entry, node_lost_error());  // nobody is left to keep it
    }
    return make_ref(*core, ref_type, entry);
}

PyObject* py_keep_promise(PyObject*, PyObject* const* args, Py_ssize_t count) {
    if (count != 3 || !is_ref(args[0]) || !PyBytes_Check(args[2]))
        return PyErr_SetString(PyExc_TypeError, "keep_promise(ref, value, error value)"), nullptr;
    const Attached core;
    Entry* entry = core ? entry_of(args[0]) : nullptr;
    if (entry == nullptr) return nullptr;
    const std::string_view error(PyBytes_AS_STRING(args[2]), size_t(PyBytes_GET_SIZE(args[2])));
    Buffer scratch;
    Nested nested;
    Encoded encoded;
    if (error.empty() && !encode_value(*core, args[1], scratch, nested, core->self(), encoded, {})) {
        for (Entry* inner : nested.entries)
            core->objects.drop(inner);
        return nullptr;
    }
    if (core.is_over()) return raise_over(*core);
    {
        std::lock_guard lock(core->mutex());
        if (error.empty()) {
            core->objects.publish_inner(entry, std::move(nested.entries));
            core->objects.complete(entry, encoded.where, scratch.data(), encoded.bytes, encoded.arena);
        } else {
            core->objects.fail(entry, error);
        }
    }
    core->pump.wake_waiters();
    Py_RETURN_NONE;
}

}  // namespace weft
