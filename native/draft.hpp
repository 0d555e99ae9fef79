/// A call while its arguments are encoded.
#pragma once

#include "py.hpp"

namespace weft {

/// A call on its way into a Task: everything that needs Python happens before the core is locked.
struct Draft {
    Core& core;
    Buffer& record;
    std::vector<Entry*> deps;
    Nested nested;

    Draft(Core& to, Buffer& scratch) : core(to), record(scratch) { record.clear(); }
    Draft(const Draft&) = delete;
    ~Draft() {
        for (Entry* entry : deps)
            core.objects.drop(entry);
        for (Entry* entry : nested.entries)
            core.objects.drop(entry);
    }

    void start(const TaskHeader& header, std::string_view name, std::string_view method,
               std::string_view retry) {
        record.add(header);
        record.append(name.data(), name.size());
        record.append(method.data(), method.size());
        record.append(retry.data(), retry.size());
    }

    bool add_dep(Entry* entry) {
        const auto index = uint32_t(deps.size());
        deps.push_back(entry);
        record.add(char('R'));
        record.add(index);
        return true;
    }

    /// 'R' and the index of a dependency, or 'V', a length and the value.
    bool argument(PyObject* value, const Subject& subject);

    /// Each argument takes five bytes or more: what is within the record's limit is within each count's.
    bool fits(std::string_view task) const {
        return record.size() + nested.entries.size() * sizeof(PackedRef) <= kMostRecordBytes ||
               too_long(task);
    }
    static bool too_long(std::string_view task);

    bool keyword(PyObject* name, PyObject* value, std::string_view task);

    /// Everything is encoded: move it into the task. The mutex is held.
    void finish(Task* task);
};

/// All arguments of a vectorcall; false with an exception set.
bool encode_call(Draft& draft, PyObject* const* args, size_t count, PyObject* keywords,
                 std::string_view task);

}  // namespace weft
