#include "loaded_functions.hpp"

#include "openness.hpp"
#include "py.hpp"

namespace weft {

bool LoadedFunctions::bind_job() {
    const std::string binding = core_.inbox.take_binding();
    if (binding.empty()) return true;
    static PyObject* const name_bind = PyUnicode_InternFromString("bind_job");
    const Openness closed(is_open_, false);  // else the tasks behind this one find half a job
    Owned bytes(PyBytes_FromStringAndSize(binding.data(), Py_ssize_t(binding.size())));
    Owned to(bytes ? host() : nullptr);
    return to && Owned(PyObject_CallMethodOneArg(to.get(), name_bind, bytes.get()));
}

PyObject* LoadedFunctions::load(uint64_t key) {
    if (const auto it = loaded_.find(key); it != loaded_.end()) return it->second;
    // The daemon bound this worker before it granted the lease, so what it sent is there by now.
    core_.pump.poll();
    if (!bind_job()) return nullptr;
    std::vector<uint64_t> forgotten;
    std::string payload;
    {
        std::lock_guard lock(core_.mutex());
        forgotten = core_.definitions.take_forgotten();
        payload = core_.definitions.definition(key);
    }
    for (const uint64_t unused : forgotten)
        if (auto gone = loaded_.extract(unused)) Py_DECREF(gone.mapped());
    if (payload.empty()) {
        PyErr_Format(PyExc_RuntimeError, "weft: function %llx never reached this worker",
                     static_cast<unsigned long long>(key));
        return nullptr;
    }
    static PyObject* const name_load = PyUnicode_InternFromString("load_function");
    Owned bytes(PyBytes_FromStringAndSize(payload.data(), Py_ssize_t(payload.size())));
    Owned to(bytes ? host() : nullptr);
    PyObject* function = to ? PyObject_CallMethodOneArg(to.get(), name_load, bytes.get()) : nullptr;
    if (function == nullptr) return nullptr;
    loaded_.emplace(key, function);
    std::lock_guard lock(core_.mutex());
    core_.definitions.loaded(key);
    return function;
}

}  // namespace weft
