#include "answer.hpp"

#include "py.hpp"

namespace weft {

namespace {

/// As a reply has it.
uint32_t shortened(int64_t spent_ns) {
    return uint32_t(std::min<int64_t>(spent_ns, 0xffffffffLL));
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
        core.borrowing.lend_ref(entry, to);
        out.add(PackedRef{entry->id, entry->owner, entry->is_actor, 0});
    }
    if (in_arena)
        out.add(value.encoded.arena);
    else
        out.append(data.data() + value.at, value.encoded.bytes);
}

/// The values of a task that returns several: of a sequence or a generator, each owned. An exception in the
/// midst of a generator is taken into `error` and stands for the rest; what it yields beyond them is not
/// taken. False with an exception set.
bool take_returns(const Core& core, const Frame& frame, PyObject* result, std::vector<Owned>& items,
                  std::string& error) {
    const size_t count = frame.header.returns;
    Owned iterator(PyObject_GetIter(result));
    if (!iterator) {
        if (PyErr_ExceptionMatches(PyExc_TypeError))
            PyErr_Format(
                PyExc_TypeError,
                "task %s has num_returns=%d but returned one value, of type %s: return a tuple of %d values",
                frame.name.c_str(), int(count), Py_TYPE(result)->tp_name, int(count));
        return false;
    }
    const bool is_generator = PyGen_Check(result);
    while (items.size() <= count) {
        Owned item(PyIter_Next(iterator.get()));
        if (item) {
            items.push_back(std::move(item));
            continue;
        }
        if (!PyErr_Occurred()) break;
        if (!is_generator) return false;
        error = dump_exception(core, frame).first;
        return true;
    }
    if (items.size() > count && is_generator) {
        items.pop_back();
        return PyErr_WarnFormat(PyExc_RuntimeWarning, 1,
                                "task %s has num_returns=%d but yields more values: only so many are taken",
                                frame.name.c_str(), int(count)) == 0;
    }
    if (items.size() == count) return true;
    PyErr_Format(PyExc_ValueError, "task %s has num_returns=%d but returned %s%zd values", frame.name.c_str(),
                 int(count), items.size() > count ? "at least " : "", Py_ssize_t(items.size()));
    return false;
}

/// False. The values are not sent.
bool discard(Core& core, const std::vector<Returned>& values) {
    for (const Returned& value : values) {
        for (Entry* entry : value.nested.entries)
            core.objects.drop(entry);
        if (value.encoded.where == Where::arena) core.arena().remove(value.encoded.arena);
    }
    return false;
}

/// Whether one record holds these values, and an error of so many bytes for each of the others. False with an
/// exception set.
bool fits_reply(const Frame& frame, const std::vector<Returned>& values, uint64_t bytes, uint64_t count,
                uint64_t error) {
    bytes += count * (sizeof(PackedValue) + sizeof(ArenaRef)) + (count - values.size()) * error;
    for (const Returned& value : values)
        bytes += value.nested.entries.size() * sizeof(PackedRef);
    if (bytes <= kMostRecordBytes) return true;
    PyErr_Format(
        PyExc_ValueError,
        "the %llu results of task %s take %llu bytes beside what is in the object store, and at most "
        "%llu can be sent: return fewer, or lists of them",
        static_cast<unsigned long long>(count), frame.name.c_str(), static_cast<unsigned long long>(bytes),
        static_cast<unsigned long long>(kMostRecordBytes));
    return false;
}

/// False with an exception set, and nothing sent.
bool encode_results(Core& core, Frame& frame, PyObject* result, std::vector<Returned>& values) {
    static thread_local Buffer data, out;
    const uint32_t count = frame.header.returns;
    std::vector<Owned> items;
    std::string error;
    if (count == 1 && !PyGen_CheckExact(result)) {
        items.emplace_back(Py_NewRef(result));
    } else if (count > 0 && !take_returns(core, frame, result, items, error)) {
        return false;
    }
    data.clear();
    values.resize(items.size());
    for (size_t i = 0; i < items.size(); ++i) {
        values[i].at = data.size();
        if (encode_value(core, items[i].get(), data, values[i].nested, frame.from, values[i].encoded,
                         {"result", count > 1 ? long(i) : -1, nullptr, frame.name}))
            continue;
        values.resize(i + 1);
        values[i].encoded = {};  // what it was given in the arena is given back
        return discard(core, values);
    }
    if (!fits_reply(frame, values, data.size(), count, error.size())) return discard(core, values);
    out.clear();
    const int64_t spent_ns = now_ns() - frame.started_ns;
    out.add(ReplyHeader{frame.header.cookie, uint32_t(Status::ok), shortened(spent_ns),
                        uint32_t(error.empty() ? values.size() : count), 0});
    std::lock_guard lock(core.mutex());
    for (const Returned& value : values)
        pack_encoded(core, out, data, value, frame.from);
    for (size_t i = values.size(); i < count && !error.empty(); ++i) {
        out.add(PackedValue{Where::error, 0, error.size()});
        out.append(error.data(), error.size());
    }
    record_run(core, frame, Status::ok, spent_ns);
    ++core.inbox.tasks_run;
    core.endpoint.send(frame.from, Kind::REPLY, out.data(), out.size());
    for (const Returned& value : values)
        for (Entry* entry : value.nested.entries)
            core.objects.drop_locked(entry);
    return true;
}

void start_item(Buffer& out, const Frame& frame, uint32_t index) {
    out.clear();
    out.add(records::StreamItem{frame.header.cookie, index});
}

void send_error_item(Core& core, Frame& frame, uint32_t index, std::string_view error) {
    Buffer out;
    start_item(out, frame, index);
    out.add(PackedValue{Where::error, 0, error.size()});
    out.append(error.data(), error.size());
    std::lock_guard lock(core.mutex());
    core.endpoint.send(frame.from, Kind::STREAM_ITEM, out.data(), out.size());
}

}  // namespace

void drop_nested(Core& core, Frame& frame) {
    if (frame.nested.empty()) return;
    std::lock_guard lock(core.mutex());
    for (Entry* entry : frame.nested)
        core.objects.drop_locked(entry);
    frame.nested.clear();
}

void record_run(Core& core, const Frame& frame, Status status, int64_t spent_ns) {
    EventLog& log = core.endpoint.log;
    log.add(Tally::run_ns, uint64_t(spent_ns));
    if (!log.counts(status == Status::ok ? Tally::finished : Tally::failed, frame.header.task)) return;
    Event event;
    event.at_ns = frame.started_ns;
    event.duration_ns = spent_ns;
    event.task = frame.header.task;
    event.other = frame.header.actor;
    event.bytes = 0;
    event.kind = EventKind::RAN;
    event.status = uint8_t(status);
    event.attempt = uint16_t(std::min<uint32_t>(frame.header.attempt, 0xffff));
    event.count = frame.header.returns;
    log.record(event, frame.name);
}

void reply_error(Core& core, Frame& frame, std::string_view error, Status status) {
    Buffer out;
    const int64_t spent_ns = now_ns() - frame.started_ns;
    out.add(ReplyHeader{frame.header.cookie, uint32_t(status), shortened(spent_ns), 1, 0});
    out.add(PackedValue{Where::error, 0, error.size()});
    out.append(error.data(), error.size());
    std::lock_guard lock(core.mutex());
    ++core.inbox.tasks_run;
    record_run(core, frame, status, spent_ns);
    core.endpoint.send(frame.from, Kind::REPLY, out.data(), out.size());
}

void reply_cancelled(Core& core, Frame& frame) {
    reply_error(core, frame,
                error_value(ErrorCode::cancelled, "task " + frame.name + " was cancelled while it ran"),
                Status::cancelled);
}

void reply_lost(Core& core, const Frame& frame) {
    const int64_t spent_ns = now_ns() - frame.started_ns;
    const ReplyHeader reply{frame.header.cookie, uint32_t(Status::lost), shortened(spent_ns), 0, 0};
    std::lock_guard lock(core.mutex());
    record_run(core, frame, Status::lost, spent_ns);
    core.endpoint.send(frame.from, Kind::REPLY, &reply, sizeof reply);
}

std::pair<std::string, bool> dump_exception(const Core& core, const Frame& frame) {
    end_if_fork(core);
    PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (trace != nullptr) PyException_SetTraceback(value, trace);
    Owned type_owned(type), error(value), trace_owned(trace);
    Owned name(PyUnicode_FromStringAndSize(frame.name.data(), Py_ssize_t(frame.name.size())));
    Owned types(PyBytes_FromStringAndSize(frame.retry_types.data(), Py_ssize_t(frame.retry_types.size())));
    Owned to(host());
    PyObject* args[] = {to.get(), error.get(), name.get(), types.get()};
    static PyObject* const name_error = PyUnicode_InternFromString("dump_error");
    Owned pair(to ? PyObject_VectorcallMethod(name_error, args, 4 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr)
                  : nullptr);
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
    auto [error, retry] = dump_exception(core, frame);
    const bool again = retry && (frame.header.flags & kRetryErrors) != 0;
    reply_error(core, frame, error, again ? Status::retry : Status::failed);
}

bool reply_results(Core& core, Frame& frame, PyObject* result) {
    end_if_fork(core);
    std::vector<Returned> values;
    try {
        return encode_results(core, frame, result, values);
    } catch (...) {
        translate_exception();
        return discard(core, values);
    }
}

bool send_item(Core& core, Frame& frame, uint32_t index, PyObject* value) try {
    end_if_fork(core);
    if (index >= kMostItems) {
        PyErr_Format(PyExc_OverflowError,
                     "the stream of task %s has had %u items, and no more can be numbered",
                     frame.name.c_str(), unsigned(kMostItems));
        return false;
    }
    Buffer data, out;
    Returned item{};
    if (!encode_value(core, value, data, item.nested, frame.from, item.encoded,
                      {"item", long(index), nullptr, frame.name})) {
        for (Entry* entry : item.nested.entries)
            core.objects.drop(entry);
        return false;
    }
    start_item(out, frame, index);
    std::lock_guard lock(core.mutex());
    pack_encoded(core, out, data, item, frame.from);
    core.endpoint.send(frame.from, Kind::STREAM_ITEM, out.data(), out.size());
    for (Entry* entry : item.nested.entries)
        core.objects.drop_locked(entry);
    return true;
} catch (...) {
    return translate_exception() != nullptr;
}

uint32_t window_of(const Frame& frame) {
    return frame.header.window != 0 ? frame.header.window : kStreamWindow;
}

bool has_room(uint32_t sent, const Credit& credit, uint32_t window) {
    return sent < uint64_t(credit.consumed.load(std::memory_order_acquire)) + window;
}

void end_stream_with_exception(Core& core, Frame& frame, uint32_t index) {
    auto [error, retry] = dump_exception(core, frame);
    if (retry && (frame.header.flags & kRetryErrors)) return reply_error(core, frame, error, Status::retry);
    send_error_item(core, frame, index, error);
    reply_results(core, frame, Py_None);
}

}  // namespace weft
