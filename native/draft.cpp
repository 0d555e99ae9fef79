#include "draft.hpp"

#include "py.hpp"

namespace weft {

bool Draft::argument(PyObject* value, const Subject& subject) {
    if (!fits(subject.task)) return false;
    if (is_ref(value)) {
        Entry* entry = entry_of(value);
        if (entry == nullptr) return false;
        if (core.is_closed()) return raise_over(core) != nullptr;  // an entry of the next session
        hold(entry);
        return add_dep(entry);
    }
    const size_t start = record.size();
    record.extend(kLeastArgument);
    Encoded encoded;
    const size_t refs_before = nested.entries.size();
    if (!encode_value(core, value, record, nested, core.self(), encoded, subject)) return false;
    if (encoded.where == Where::inlined) {
        record.data()[start] = 'V';
        const auto bytes = uint32_t(encoded.bytes);
        memcpy(record.data() + start + 1, &bytes, sizeof bytes);
        return true;
    }
    // Large: an object of its own that only this task refers to.
    record.resize(start);
    if (core.is_closed()) return raise_over(core) != nullptr;
    std::lock_guard lock(core.mutex());
    Entry* entry = core.objects.new_entry(next_child(core).object(1));
    core.objects.publish_inner(entry, {nested.entries.begin() + long(refs_before), nested.entries.end()});
    nested.entries.resize(refs_before);
    core.objects.complete(entry, Where::arena, nullptr, 0, encoded.arena);
    hold(entry);
    return add_dep(entry);
}

bool Draft::too_long(std::string_view task) {
    PyErr_Format(PyExc_ValueError,
                 "the arguments of %.200s take more than %llu bytes, all in all: put() what is large, or "
                 "what is many in one list, and pass the ref",
                 std::string(task).c_str(), static_cast<unsigned long long>(kMostRecordBytes));
    return false;
}

bool Draft::keyword(PyObject* name, PyObject* value, std::string_view task) {
    Py_ssize_t bytes = 0;
    const char* text = PyUnicode_AsUTF8AndSize(name, &bytes);
    if (text == nullptr) return false;
    if (record.size() + size_t(bytes) > kMostRecordBytes) return too_long(task);
    record.add(uint32_t(bytes));
    record.append(text, size_t(bytes));
    return argument(value, {"kwargs", -1, name, task});
}

void Draft::finish(Task* task) {
    for (Entry* entry : nested.entries) {
        core.objects.escape(entry);
        record.add(PackedRef{entry->id, entry->owner, entry->is_actor, 0});
    }
    auto& header = *reinterpret_cast<TaskHeader*>(record.data());
    header.deps = uint32_t(deps.size());
    header.nested = uint32_t(nested.entries.size());
    header.static_bytes = uint32_t(record.size() - sizeof header);
    try {
        task->record.append(record.data(), record.size());
    } catch (...) {
        core.tasks.give_back(task);
        throw;
    }
    task->deps.swap(deps);
    task->nested.swap(nested.entries);
    deps.clear();
    nested.entries.clear();
}

bool encode_call(Draft& draft, PyObject* const* args, size_t count, PyObject* keywords,
                 std::string_view task) {
    for (size_t i = 0; i < count; ++i)
        if (!draft.argument(args[i], {"args", long(i), nullptr, task})) return false;
    const Py_ssize_t names = keywords == nullptr ? 0 : PyTuple_GET_SIZE(keywords);
    for (Py_ssize_t i = 0; i < names; ++i)
        if (!draft.keyword(PyTuple_GET_ITEM(keywords, i), args[count + size_t(i)], task)) return false;
    return draft.fits(task);
}

}  // namespace weft
