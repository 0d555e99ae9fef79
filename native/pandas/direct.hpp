/// A callable that stands in the place of one of Modin's: what all kinds of them share.
#pragma once

#include "small_frames.hpp"

namespace weft {

/// A callable that is an attribute of one of Modin's classes.
struct Direct {
    PyObject_HEAD vectorcallfunc call;
    PyObject* function;   ///< of pandas; or what else the kind of callable needs
    PyObject* otherwise;  ///< Modin's way
    PyObject* extended;   ///< look_up only: names of which there are extensions
    bool is_series;
    PyObject* attributes;  ///< __name__, __doc__, __wrapped__
};

inline Direct& direct_of(PyObject* self) {
    return *reinterpret_cast<Direct*>(self);
}

/// The call as it came, for Modin; not where an error is set already.
inline PyObject* by_modin(const Direct& direct, PyObject* const* args, Py_ssize_t count, PyObject* named) {
    return PyErr_Occurred() ? nullptr : PyObject_Vectorcall(direct.otherwise, args, size_t(count), named);
}

/// The getter of `loc` and the like; `function` is the name of the attribute.
PyObject* call_indexer(PyObject* self, PyObject* const* args, size_t flagged_count, PyObject* named);
bool make_indexer_type();

}  // namespace weft
