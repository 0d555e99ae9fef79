/// The module `weft.pandas.modin._direct`: calls of small frames that go straight to pandas, past Modin's
/// layers.
///
/// What pandas does with a small frame takes some microseconds, so what is around it may take tenths of one:
/// too few for functions of Python. Each callable here is the attribute of one of Modin's classes, and knows
/// the way that it goes where the object is no small frame, or the arguments are not plain.
#include <array>

#include "direct.hpp"

namespace weft {
namespace {

constexpr Py_ssize_t kMostArguments = 24;  ///< of a call; one with more goes Modin's way

PyTypeObject* direct_type;

/// What is held by the small frame that a callable was given first; none, with no error, where it goes
/// Modin's way.
Owned source_of(const Direct& direct, PyObject* const* args, Py_ssize_t count) {
    const Owned compiler = count < 1 ? Owned() : unpinned_compiler(args[0]);
    return compiler ? held_by(compiler.get(), direct.is_series) : Owned();
}

/// The same, for who only looks at its labels.
Owned glance(const Direct& direct, PyObject* const* args, Py_ssize_t count) {
    const Owned compiler = count < 1 ? Owned() : unpinned_compiler(args[0]);
    return compiler ? glanced_at(compiler.get(), direct.is_series) : Owned();
}

/// Whether what pandas raised may have another meaning in Modin, whose own code calls these methods too, some
/// with arguments that pandas does not know. Such an error is forgotten.
bool was_misunderstood() {
    if (!PyErr_ExceptionMatches(PyExc_TypeError) && !PyErr_ExceptionMatches(PyExc_ValueError)) return false;
    PyErr_Clear();
    return true;
}

/// The arguments of a call of pandas, in the place of those of a call of Modin.
class Arguments {
  public:
    /// The frame is the first of `args`; `source` stands for it.
    Given fill(PyObject* source, PyObject* const* args, Py_ssize_t count, PyObject* names_of_named) {
        const Py_ssize_t named = names_of_named == nullptr ? 0 : PyTuple_GET_SIZE(names_of_named);
        if (count + named > kMostArguments) return Given::by_modin;
        given_[1] = source;
        for (Py_ssize_t place = 1; place < count + named; ++place) {
            PyObject* const value = args[place];
            if (place >= count) {
                const int inplace = is_inplace(PyTuple_GET_ITEM(names_of_named, place - count), value);
                if (inplace != 0) return inplace < 0 ? Given::failed : Given::by_modin;
            }
            const Given given = plain_argument(value, others_[size_t(place)]);
            if (given == Given::by_modin || given == Given::failed) return given;
            given_[size_t(place) + 1] = given == Given::changed ? others_[size_t(place)].get() : value;
        }
        return Given::as_it_is;
    }
    PyObject* call(PyObject* function, Py_ssize_t count, PyObject* names_of_named) {
        return PyObject_Vectorcall(function, &given_[1], size_t(count) | PY_VECTORCALL_ARGUMENTS_OFFSET,
                                   names_of_named);
    }

    /// Without the first one.
    PyObject* call_behind(PyObject* function, Py_ssize_t count, PyObject* names_of_named) {
        return PyObject_Vectorcall(function, &given_[2], size_t(count - 1) | PY_VECTORCALL_ARGUMENTS_OFFSET,
                                   names_of_named);
    }

  private:
    static int is_inplace(PyObject* name, PyObject* value) {
        const bool is_named = name == names.inplace || PyUnicode_Compare(name, names.inplace) == 0;
        return is_named ? PyObject_IsTrue(value) : 0;
    }

    std::array<PyObject*, kMostArguments + 2> given_;  ///< the first is for who is called to use
    std::array<Owned, kMostArguments> others_;
};

// ---- the kinds of callables ------------------------------------------------------------------------

/// A method of pandas, which frames of pandas may be given to too, as functions of the user's are; with
/// `gives_columns` a frame's `__getitem__`.
template <bool gives_columns>
PyObject* call_method(PyObject* self, PyObject* const* args, size_t flagged_count, PyObject* named) {
    const Direct& direct = direct_of(self);
    const Py_ssize_t count = PyVectorcall_NARGS(flagged_count);
    const Owned source = source_of(direct, args, count);
    const bool is_pandas =
        !source && count > 0 && (Py_TYPE(args[0]) == known.frame || Py_TYPE(args[0]) == known.series);
    if (is_pandas) return PyObject_Vectorcall(direct.function, args, size_t(count), named);
    if (!source) return by_modin(direct, args, count, named);
    Arguments arguments;
    const Given given = arguments.fill(source.get(), args, count, named);
    if (given != Given::as_it_is) return by_modin(direct, args, count, named);
    const Owned made(arguments.call(direct.function, count, named));
    if (!made) return was_misunderstood() ? by_modin(direct, args, count, named) : nullptr;
    if (made.get() == Py_NotImplemented || made.get() == source.get())
        return by_modin(direct, args, count, named);
    if (gives_columns && Py_TYPE(made.get()) == known.series) return column_of(args[0], made.get());
    return wrap(made.get());
}

/// A frame's `__getitem__` or `__getattr__`, of a column that was asked for before: pandas keeps those.
PyObject* call_column(PyObject* self, PyObject* const* args, size_t flagged_count, PyObject* named) {
    const Direct& direct = direct_of(self);
    const Py_ssize_t count = PyVectorcall_NARGS(flagged_count);
    if (count == 2 && named == nullptr && PyUnicode_CheckExact(args[1])) {
        const Owned source = source_of(direct, args, count);
        const Owned cache(source ? PyObject_GenericGetAttr(source.get(), names.item_cache) : nullptr);
        PyObject* const column = cache ? PyDict_GetItemWithError(cache.get(), args[1]) : nullptr;
        if (column != nullptr && Py_TYPE(column) == known.series)
            return column_of(args[0], Owned(Py_NewRef(column)).get());
    }
    return by_modin(direct, args, count, named);
}

/// `__len__`.
PyObject* call_length(PyObject* self, PyObject* const* args, size_t flagged_count, PyObject* named) {
    const Direct& direct = direct_of(self);
    const Py_ssize_t count = PyVectorcall_NARGS(flagged_count);
    const Owned source = glance(direct, args, count);
    if (!source) return by_modin(direct, args, count, named);
    const Py_ssize_t rows = rows_of(source.get());
    return rows < 0 ? nullptr : PyLong_FromSsize_t(rows);
}

/// The getter of `shape`.
PyObject* call_shape(PyObject* self, PyObject* const* args, size_t flagged_count, PyObject* named) {
    const Direct& direct = direct_of(self);
    const Py_ssize_t count = PyVectorcall_NARGS(flagged_count);
    const Owned source = glance(direct, args, count);
    if (!source) return by_modin(direct, args, count, named);
    const Owned axes = axes_of(source.get());
    if (!axes) return nullptr;
    const Py_ssize_t number = PyList_GET_SIZE(axes.get());
    Owned shape(PyTuple_New(number));
    for (Py_ssize_t place = 0; shape && place < number; ++place) {
        const Py_ssize_t length = PyObject_Size(PyList_GET_ITEM(axes.get(), number - 1 - place));
        PyObject* const item = length < 0 ? nullptr : PyLong_FromSsize_t(length);
        if (item == nullptr) return nullptr;
        PyTuple_SET_ITEM(shape.get(), place, item);
    }
    return shape.release();
}

/// The getter of an attribute of pandas; `function` is its name.
PyObject* call_read(PyObject* self, PyObject* const* args, size_t flagged_count, PyObject* named) {
    const Direct& direct = direct_of(self);
    const Py_ssize_t count = PyVectorcall_NARGS(flagged_count);
    const Owned source = source_of(direct, args, count);
    if (!source) return by_modin(direct, args, count, named);
    return PyObject_GetAttr(source.get(), direct.function);
}

/// A frame's `__setitem__`, of a column into a frame of pandas that nobody else holds: others may share its
/// values, but a column is exchanged and not written.
PyObject* call_set_column(PyObject* self, PyObject* const* args, size_t flagged_count, PyObject* named) {
    const Direct& direct = direct_of(self);
    const Py_ssize_t count = PyVectorcall_NARGS(flagged_count);
    Owned other;
    const bool is_column = count == 3 && named == nullptr && PyUnicode_CheckExact(args[1]);
    const Given given = is_column ? plain_argument(args[2], other) : Given::by_modin;
    if (given == Given::as_it_is || given == Given::changed) {
        const Owned sole = sole_frame_of(args[0]);
        const Py_ssize_t rows = sole ? rows_of(sole.get()) : 0;
        if (rows < 0) return nullptr;
        if (rows > 0) {
            PyObject* const value = given == Given::changed ? other.get() : args[2];
            return PyObject_SetItem(sole.get(), args[1], value) == 0 ? Py_NewRef(Py_None) : nullptr;
        }
    }
    return by_modin(direct, args, count, named);
}

/// A frame's `__setattr__`, of labels into a frame of pandas that nobody else holds.
PyObject* call_set_labels(PyObject* self, PyObject* const* args, size_t flagged_count, PyObject* named) {
    const Direct& direct = direct_of(self);
    const Py_ssize_t count = PyVectorcall_NARGS(flagged_count);
    const bool are_labels =
        count == 3 && named == nullptr && (args[1] == names.columns || args[1] == names.index);
    if (are_labels && is_plain(args[2])) {
        const Owned sole = sole_frame_of(args[0]);
        const Py_ssize_t rows = sole ? rows_of(sole.get()) : 0;
        if (rows < 0) return nullptr;
        if (rows > 0)
            return PyObject_SetAttr(sole.get(), args[1], args[2]) == 0 ? Py_NewRef(Py_None) : nullptr;
    }
    return by_modin(direct, args, count, named);
}

/// `__init__`, of what pandas makes of plain arguments; `function` is pandas' class. Where it is not told to
/// make small frames, is given a compiler, or a frame to share, and where it is of another class, it goes
/// Modin's way.
PyObject* call_make(PyObject* self, PyObject* const* args, size_t flagged_count, PyObject* named) {
    const Direct& direct = direct_of(self);
    const Py_ssize_t count = PyVectorcall_NARGS(flagged_count);
    PyTypeObject* const ours = direct.is_series ? known.modin_series : known.modin_frame;
    const Owned makes_small(PyObject_GetAttr(known.limit, names.makes_small));
    if (!makes_small) return nullptr;
    const bool is_new = makes_small.get() == Py_True && count > 0 && Py_TYPE(args[0]) == ours &&
                        (count == 1 || !PyObject_TypeCheck(args[1], ours));
    Arguments arguments;
    const Given given = is_new ? arguments.fill(nullptr, args, count, named) : Given::by_modin;
    if (given != Given::as_it_is) return by_modin(direct, args, count, named);
    const Owned made(arguments.call_behind(direct.function, count, named));
    if (!made || !adopt(args[0], made.get())) return nullptr;
    const int is_large = has_more_than_few_rows(made.get());
    if (is_large < 0) return nullptr;
    return is_large ? PyObject_CallOneArg(known.move_large, args[0]) : Py_NewRef(Py_None);
}

/// `__getattribute__`. An attribute of a small frame that has cells is what its class says, unless an
/// extension has its name: Modin looks for those, and whether the frame is empty, at each access of each
/// attribute.
PyObject* call_look_up(PyObject* self, PyObject* const* args, size_t flagged_count, PyObject* named) {
    const Direct& direct = direct_of(self);
    const Py_ssize_t count = PyVectorcall_NARGS(flagged_count);
    if (count == 2 && named == nullptr) {
        int is_plain = PySet_Contains(direct.function, args[1]);
        if (is_plain == 0) {
            const Owned compiler = small_compiler(args[0]);
            const int is_extended = compiler ? PySet_Contains(direct.extended, args[1]) : 1;
            if (is_extended < 0) return nullptr;
            if (is_extended == 0) {
                const Owned source = glanced_at(compiler.get(), direct.is_series);
                const Owned axes = source ? axes_of(source.get()) : Owned();
                if (!axes) return nullptr;
                is_plain = 1;
                for (Py_ssize_t place = 0; is_plain == 1 && place < PyList_GET_SIZE(axes.get()); ++place) {
                    const Py_ssize_t length = PyObject_Size(PyList_GET_ITEM(axes.get(), place));
                    is_plain = length < 0 ? -1 : length > 0;
                }
            }
        }
        if (is_plain < 0) return nullptr;
        if (is_plain == 1) return PyObject_GenericGetAttr(args[0], args[1]);
    }
    return by_modin(direct, args, count, named);
}

/// A function of the user's that pandas calls: a frame of Modin's that it gives is pandas' again.
PyObject* call_unwrapping(PyObject* self, PyObject* const* args, size_t flagged_count, PyObject* named) {
    Owned made(PyObject_Vectorcall(direct_of(self).function, args, flagged_count, named)), other;
    if (!made || (Py_TYPE(made.get()) != known.modin_frame && Py_TYPE(made.get()) != known.modin_series))
        return made.release();
    const Given given = plain_argument(made.get(), other);
    return given == Given::changed ? other.release() : given == Given::failed ? nullptr : made.release();
}

// ---- the type of all callables ---------------------------------------------------------------------

PyObject* direct_get(PyObject* self, PyObject* instance, PyObject*) {
    return instance == nullptr || instance == Py_None ? Py_NewRef(self) : PyMethod_New(self, instance);
}

int direct_traverse(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(direct_of(self).function);
    Py_VISIT(direct_of(self).otherwise);
    Py_VISIT(direct_of(self).extended);
    Py_VISIT(direct_of(self).attributes);
    return 0;
}

int direct_clear(PyObject* self) {
    Py_CLEAR(direct_of(self).function);
    Py_CLEAR(direct_of(self).otherwise);
    Py_CLEAR(direct_of(self).extended);
    Py_CLEAR(direct_of(self).attributes);
    return 0;
}

void direct_dealloc(PyObject* self) {
    PyObject_GC_UnTrack(self);
    direct_clear(self);
    PyTypeObject* const type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

PyMemberDef direct_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Direct, call), READONLY, nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(Direct, attributes), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};
PyGetSetDef direct_attributes[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyType_Slot direct_slots[] = {
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_descr_get, reinterpret_cast<void*>(direct_get)},
    {Py_tp_traverse, reinterpret_cast<void*>(direct_traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(direct_clear)},
    {Py_tp_dealloc, reinterpret_cast<void*>(direct_dealloc)},
    {Py_tp_members, direct_members},
    {Py_tp_getset, direct_attributes},
    {0, nullptr},
};
PyType_Spec direct_spec = {"weft.pandas.modin._direct.Direct", sizeof(Direct), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                               Py_TPFLAGS_METHOD_DESCRIPTOR | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                           direct_slots};

PyObject* new_direct(vectorcallfunc call, PyObject* function, PyObject* otherwise, int is_series,
                     PyObject* extended = nullptr) {
    PyObject* const made = direct_type->tp_alloc(direct_type, 0);
    if (made == nullptr) return nullptr;
    Direct& direct = direct_of(made);
    direct.call = call;
    direct.function = Py_NewRef(function);
    direct.otherwise = Py_NewRef(otherwise);
    direct.extended = Py_XNewRef(extended);
    direct.is_series = is_series != 0;
    return made;
}

// ---- the module ------------------------------------------------------------------------------------

template <vectorcallfunc call>
PyObject* py_new(PyObject*, PyObject* args) {
    PyObject *function, *otherwise;
    int is_series;
    if (!PyArg_ParseTuple(args, "OOp", &function, &otherwise, &is_series)) return nullptr;
    return new_direct(call, function, otherwise, is_series);
}

PyObject* py_look_up(PyObject*, PyObject* args) {
    PyObject *as_class_says, *extended, *otherwise;
    int is_series;
    if (!PyArg_ParseTuple(args, "O!O!Op", &PySet_Type, &as_class_says, &PySet_Type, &extended, &otherwise,
                          &is_series))
        return nullptr;
    return new_direct(call_look_up, as_class_says, otherwise, is_series, extended);
}

PyObject* py_wrapped(PyObject*, PyObject* made) {
    return wrap(made);
}

PyObject* py_column_of(PyObject*, PyObject* args) {
    PyObject *frame, *column;
    if (!PyArg_ParseTuple(args, "OO", &frame, &column)) return nullptr;
    return column_of(frame, column);
}

PyObject* or_none(Owned found) {
    if (found || PyErr_Occurred()) return found.release();
    Py_RETURN_NONE;
}

PyObject* py_claim(PyObject*, PyObject* data) {
    return or_none(claim(data));
}

PyObject* py_sole_frame(PyObject*, PyObject* data) {
    return or_none(sole_frame_of(data));
}

/// Pickled and inspected as the function itself would be; what it gives is pandas' where it was Modin's.
PyObject* py_unwrapping(PyObject*, PyObject* function) {
    return new_direct(call_unwrapping, function, Py_None, 0);
}

PyObject* py_know(PyObject*, PyObject* args) {
    Known told;
    if (!PyArg_ParseTuple(args, "O!O!O!O!O!O!O!O!OOOOOOO", &PyType_Type, &told.compiler, &PyType_Type,
                          &told.modin_frame, &PyType_Type, &told.modin_series, &PyType_Type, &told.frame,
                          &PyType_Type, &told.series, &PyType_Type, &told.array, &PyFrozenSet_Type,
                          &told.scalar_types, &PyFrozenSet_Type, &told.plain_types, &told.plain,
                          &told.unknown, &told.limit, &told.has_grown, &told.on_weft, &told.move_large,
                          &told.write))
        return nullptr;
    for (PyObject* each :
         {reinterpret_cast<PyObject*>(told.compiler), reinterpret_cast<PyObject*>(told.modin_frame),
          reinterpret_cast<PyObject*>(told.modin_series), reinterpret_cast<PyObject*>(told.frame),
          reinterpret_cast<PyObject*>(told.series), reinterpret_cast<PyObject*>(told.array),
          told.scalar_types, told.plain_types, told.plain, told.unknown, told.limit, told.has_grown,
          told.on_weft, told.move_large, told.write})
        Py_INCREF(each);  // for good: a process has one Modin
    known = told;
    Py_RETURN_NONE;
}

PyMethodDef functions[] = {
    {"know", py_know, METH_VARARGS, nullptr},
    {"method", py_new<call_method<false>>, METH_VARARGS, nullptr},
    {"item", py_new<call_method<true>>, METH_VARARGS, nullptr},
    {"column", py_new<call_column>, METH_VARARGS, nullptr},
    {"set_column", py_new<call_set_column>, METH_VARARGS, nullptr},
    {"set_labels", py_new<call_set_labels>, METH_VARARGS, nullptr},
    {"make", py_new<call_make>, METH_VARARGS, nullptr},
    {"length", py_new<call_length>, METH_VARARGS, nullptr},
    {"shape", py_new<call_shape>, METH_VARARGS, nullptr},
    {"read", py_new<call_read>, METH_VARARGS, nullptr},
    {"indexer", py_new<call_indexer>, METH_VARARGS, nullptr},
    {"look_up", py_look_up, METH_VARARGS, nullptr},
    {"wrapped", py_wrapped, METH_O, nullptr},
    {"column_of", py_column_of, METH_VARARGS, nullptr},
    {"unwrapping", py_unwrapping, METH_O, nullptr},
    {"claim", py_claim, METH_O, nullptr},
    {"sole_frame", py_sole_frame, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_direct", nullptr, -1, functions, nullptr, nullptr, nullptr, nullptr};

}  // namespace
}  // namespace weft

PyMODINIT_FUNC PyInit__direct() {
    using namespace weft;
    direct_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&direct_spec));
    return direct_type && make_indexer_type() && make_names() ? PyModule_Create(&module) : nullptr;
}
