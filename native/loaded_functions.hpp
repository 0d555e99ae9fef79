/// The functions and classes that a worker has loaded, and the job that it is of, set up before the first.
#pragma once

#include <unordered_map>

#include "py.hpp"

namespace weft {

class LoadedFunctions {
  public:
    /// `is_open`: whether the task may be interrupted; it may not while a job is set up.
    LoadedFunctions(Core& core, bool& is_open) : core_(core), is_open_(is_open) {}
    LoadedFunctions(const LoadedFunctions&) = delete;
    ~LoadedFunctions() {
        for (auto& [key, function] : loaded_)
            Py_DECREF(function);
    }
    /// Borrowed; null with an exception set.
    PyObject* load(uint64_t key);
    /// Sets the job up that the daemon has bound this worker to, once. False with an exception set.
    bool bind_job();

  private:
    Core& core_;
    bool& is_open_;
    std::unordered_map<uint64_t, PyObject*> loaded_;
};

}  // namespace weft
