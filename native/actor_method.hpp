/// A method of the actor that a worker is: looked for once, on its class.
#pragma once

#include <string_view>

#include "py.hpp"

namespace weft {

/// An attribute of the instance with the same name does not hide it; `bound_method` in Python finds the same.
/// It lives as long as its worker.
class ActorMethod {
  public:
    bool is_known() const { return name_ != nullptr; }

    /// False with an exception set.
    bool find(PyObject* actor, std::string_view name) {
        Owned text(PyUnicode_FromStringAndSize(name.data(), Py_ssize_t(name.size())));
        if (!text) return false;
        PyObject* const order = Py_TYPE(actor)->tp_mro;
        for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(order) && function_ == nullptr; ++at) {
            Owned names(PyObject_GetAttrString(PyTuple_GET_ITEM(order, at), "__dict__"));
            const int known = names ? PySequence_Contains(names.get(), text.get()) : -1;
            if (known < 0) return false;
            if (known == 0) continue;
            Owned found(PyObject_GetItem(names.get(), text.get()));
            if (!found) return false;
            if (!PyFunction_Check(found.get()))
                break;  // a static method or another descriptor binds by itself
            function_ = found.release();
        }
        name_ = text.release();
        return true;
    }

    /// `args` begin with the actor, which `positional` counts.
    PyObject* call(PyObject* const* args, size_t positional, PyObject* names) const {
        return function_ != nullptr ? PyObject_Vectorcall(function_, args, positional, names)
                                    : PyObject_VectorcallMethod(name_, args, positional, names);
    }

  private:
    PyObject* name_ = nullptr;      ///< null before it was looked for
    PyObject* function_ = nullptr;  ///< of the class; null: it is called by its name
};

}  // namespace weft
