/// The arguments of a task that this process runs, read from its record.
#pragma once

#include "answer.hpp"

namespace weft {

/// Decoded arguments: positional, then keyword values.
struct Arguments {
    std::vector<PyObject*> values;
    Owned names;
    size_t positional = 0;

    Arguments() = default;
    Arguments(const Arguments&) = delete;
    ~Arguments() { clear(); }
    void clear() {
        for (PyObject* value : values)
            Py_DECREF(value);
        values.clear();
    }
    PyObject* tuple() const {
        PyObject* tuple = PyTuple_New(Py_ssize_t(positional));
        for (size_t i = 0; tuple && i < positional; ++i)
            PyTuple_SET_ITEM(tuple, Py_ssize_t(i), Py_NewRef(values[i]));
        return tuple;
    }
    PyObject* dict() const {
        Owned dict(PyDict_New());
        for (size_t i = positional; dict && i < values.size(); ++i)
            if (PyDict_SetItem(dict.get(), PyTuple_GET_ITEM(names.get(), Py_ssize_t(i - positional)),
                               values[i]) != 0)
                return nullptr;
        return dict.release();
    }
};

/// Fills in the frame, takes over the refs inside the arguments, and waits for what is elsewhere. False with
/// an exception set, or with `frame.lost` set where an argument's memory is gone.
bool decode_arguments(Core& core, const Incoming& incoming, Frame& frame, Arguments& arguments);
/// The host is given what failed (a function, a class, or a method's name) and its arguments, for a replay;
/// the exception that is set stays.
void show_inputs(PyObject* what, PyObject* args, PyObject* kwargs);

}  // namespace weft
