#include "arguments.hpp"

#include "py.hpp"

namespace weft {

namespace {

bool read_record(Core& core, const Incoming& incoming, Frame& frame, Arguments& arguments) {
    Cursor cursor(incoming.bytes.data(), incoming.bytes.size());
    frame.from = incoming.from;
    frame.header = cursor.take<TaskHeader>();
    const TaskHeader& header = frame.header;
    frame.name = cursor.text(header.name_bytes);
    frame.method = cursor.text(header.method_bytes);
    frame.retry_types = cursor.text(header.retry_bytes);
    // It was looked at when it came (record_check.hpp); what is in the arguments' bytes is checked here.
    const size_t args_bytes = header.static_bytes - header.nested * sizeof(PackedRef) - frame.name.size() -
                              frame.method.size() - frame.retry_types.size();
    Cursor args(cursor.skip(args_bytes), args_bytes);
    if (uint64_t(header.args) + header.keywords > args_bytes / kLeastArgument) cut_short();

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
    AskedAhead ahead(core);
    if (header.nested != 0 || header.deps != 0) {
        const bool self_borrow = (header.flags & kSelfBorrow) != 0;
        std::lock_guard lock(core.mutex());
        frame.nested = core.borrowing.unpack_refs(cursor, header.nested, self_borrow);
        for (Dependency& dep : deps) {
            dep.value = cursor.take<PackedValue>();
            std::vector<Entry*> inner = core.borrowing.unpack_refs(cursor, dep.value.nested, self_borrow);
            frame.nested.insert(frame.nested.end(), inner.begin(), inner.end());
            dep.data = cursor.skip(dep.value.bytes);
            if (header.deps > 1 && dep.value.where == Where::arena) ahead.ask(dep.arena());
        }
        core.inbox.unpacked();
    }
    const bool writable = (header.flags & kWritable) != 0;
    const auto argument = [&]() -> PyObject* {
        if (args.take<char>() == 'R') {
            const auto index = args.take<uint32_t>();
            if (index >= deps.size()) throw Malformed("it names an argument that did not come with it");
            const Dependency& dep = deps[index];
            if (dep.value.where == Where::error) [[unlikely]] {  // its node had no room for it
                raise_error({dep.data, dep.value.bytes});
                return nullptr;
            }
            if (dep.value.where != Where::arena)
                return decode_value(dep.data, dep.value.bytes, nullptr, writable);
            return value_in_arena(core, dep.arena(), frame.lost, writable);
        }
        const auto bytes = args.take<uint32_t>();
        return decode_value(args.skip(bytes), bytes, nullptr, writable);
    };
    arguments.positional = header.args;
    arguments.values.reserve(size_t(header.args) + header.keywords);
    for (uint32_t i = 0; i < header.args; ++i) {
        PyObject* value = argument();
        if (value == nullptr) return false;
        arguments.values.push_back(value);
    }
    if (header.keywords == 0) return true;
    arguments.names = Owned(PyTuple_New(header.keywords));
    for (uint32_t i = 0; arguments.names && i < header.keywords; ++i) {
        const auto bytes = args.take<uint32_t>();
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

}  // namespace

bool decode_arguments(Core& core, const Incoming& incoming, Frame& frame, Arguments& arguments) {
    try {
        return read_record(core, incoming, frame, arguments);
    } catch (const Malformed& error) {
        PyErr_Format(PyExc_RuntimeError,
                     "weft: the record of task %.200s, from the process in slot %u, makes no "
                     "sense: %s",
                     frame.name.c_str(), incoming.from.slot, error.what());
    } catch (const std::exception&) {
        translate_exception();
    }
    return false;
}

void show_inputs(PyObject* what, PyObject* args, PyObject* kwargs) {
    static PyObject* const name_keep = PyUnicode_InternFromString("keep_inputs");
    PyObject *type = nullptr, *error = nullptr, *trace = nullptr;
    PyErr_Fetch(&type, &error, &trace);
    Owned to(host());
    PyObject* all[] = {to.get(), what, args, kwargs};
    if (!to || !Owned(PyObject_VectorcallMethod(name_keep, all, 4 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr)))
        PyErr_Clear();  // there is nothing to replay
    PyErr_Restore(type, error, trace);
}

}  // namespace weft
