#include "small_frames.hpp"

namespace weft {

Known known;
Names names;

bool make_names() {
    const std::pair<PyObject**, const char*> all[] = {
        {&names.query_compiler, "_query_compiler"},
        {&names.pinned, "_pinned"},
        {&names.held_frame, "_frame"},
        {&names.held_series, "_series"},
        {&names.modin_frame, "_modin_frame"},
        {&names.as_series, "as_series"},
        {&names.shape_hint, "_shape_hint"},
        {&names.column, "column"},
        {&names.siblings, "_siblings"},
        {&names.parent, "_parent"},
        {&names.parent_axis, "_parent_axis"},
        {&names.manager, "_mgr"},
        {&names.axes, "axes"},
        {&names.is_copy, "_is_copy"},
        {&names.item_cache, "_item_cache"},
        {&names.rows, "rows"},
        {&names.inplace, "inplace"},
        {&names.query_compiler_key, "query_compiler"},
    };
    for (const auto& [name, text] : all)
        if ((*name = PyUnicode_InternFromString(text)) == nullptr) return false;
    return true;
}

namespace {

/// An object without what its constructor does with arguments.
Owned made_bare(PyTypeObject* type) {
    static PyObject* const no_arguments = PyTuple_New(0);
    return Owned(PyBaseObject_Type.tp_new(type, no_arguments, nullptr));
}

/// As Python sets an attribute. Modin's and pandas' classes look at the name first.
bool set(const Owned& object, PyObject* name, PyObject* value) {
    return PyObject_GenericSetAttr(object.get(), name, value) == 0;
}

/// A frame or series of Modin's around a compiler.
Owned around(PyTypeObject* type, PyObject* compiler) {
    Owned result = made_bare(type), siblings(PyList_New(0));
    if (!result || !siblings || !set(result, names.siblings, siblings.get()) ||
        !set(result, names.query_compiler, compiler))
        return {};
    return result;
}

/// A compiler that holds a series of pandas.
Owned compiler_of_series(PyObject* series) {
    Owned compiler = made_bare(known.compiler);
    if (!compiler || !set(compiler, names.held_series, series) ||
        !set(compiler, names.shape_hint, names.column))
        return {};
    return compiler;
}

Owned compiler_of_frame(PyObject* frame) {
    Owned compiler = made_bare(known.compiler);
    if (!compiler || !set(compiler, names.held_frame, frame)) return {};
    return compiler;
}

/// What a cut out of another frame is to pandas: writing into it would be warned of.
bool forget_origin(PyObject* made) {
    Owned origin(PyObject_GenericGetAttr(made, names.is_copy));
    if (!origin) return false;
    return origin.get() == Py_None || PyObject_GenericSetAttr(made, names.is_copy, Py_None) == 0;
}

/// 1, 0, or -1 with an error set.
int has_grown(PyObject* made) {
    Owned limit(PyObject_GetAttr(known.limit, names.rows));
    if (!limit) return -1;
    if (limit.get() == Py_None) return 0;
    const Py_ssize_t most = PyLong_AsSsize_t(limit.get());
    const Py_ssize_t rows = most == -1 && PyErr_Occurred() ? -1 : rows_of(made);
    return rows < 0 ? -1 : rows > most;
}

bool are_plain(PyObject* const* entries, Py_ssize_t count) {
    for (Py_ssize_t place = 0; place < count; ++place)
        if (PySet_Contains(known.plain_types, reinterpret_cast<PyObject*>(Py_TYPE(entries[place]))) != 1)
            return false;
    return true;
}

}  // namespace

Owned small_compiler(PyObject* data) {
    Owned compiler(PyObject_GenericGetAttr(data, names.query_compiler));
    if (!compiler) PyErr_Clear();  // an object that is being made has none yet
    return compiler && Py_TYPE(compiler.get()) == known.compiler ? std::move(compiler) : Owned();
}

Owned unpinned_compiler(PyObject* data) {
    Owned compiler = small_compiler(data);
    if (!compiler) return {};
    Owned pinned(PyObject_GenericGetAttr(data, names.pinned));
    if (!pinned) PyErr_Clear();
    return pinned.get() == Py_False ? std::move(compiler) : Owned();
}

Owned held_by(PyObject* compiler, bool as_series) {
    Owned series(PyObject_GenericGetAttr(compiler, names.held_series));
    if (!series) return {};
    const bool holds_series = series.get() != Py_None;
    if (as_series)
        return holds_series ? std::move(series) : Owned(PyObject_CallMethodNoArgs(compiler, names.as_series));
    return Owned(PyObject_GenericGetAttr(compiler, holds_series ? names.modin_frame : names.held_frame));
}

Owned axes_of(PyObject* data) {
    Owned manager(PyObject_GenericGetAttr(data, names.manager));
    Owned axes(manager ? PyObject_GetAttr(manager.get(), names.axes) : nullptr);
    if (axes && (!PyList_CheckExact(axes.get()) || PyList_GET_SIZE(axes.get()) == 0)) {
        PyErr_SetString(PyExc_TypeError, "weft.pandas: the axes of a block manager of pandas are not a list");
        return {};
    }
    return axes;
}

Py_ssize_t rows_of(PyObject* data) {
    Owned axes = axes_of(data);
    return axes ? PyObject_Size(PyList_GET_ITEM(axes.get(), PyList_GET_SIZE(axes.get()) - 1)) : -1;
}

PyObject* wrap(PyObject* made) {
    const bool is_frame = Py_TYPE(made) == known.frame;
    if (!is_frame && Py_TYPE(made) != known.series) return Py_NewRef(made);
    PyTypeObject* const type = is_frame ? known.modin_frame : known.modin_series;
    Owned compiler = is_frame ? compiler_of_frame(made) : compiler_of_series(made);
    if (!compiler || !forget_origin(made)) return nullptr;
    const int grown = has_grown(made);
    if (grown < 0) return nullptr;
    if (grown == 0) return around(type, compiler.get()).release();
    Owned moved(PyObject_CallOneArg(known.on_weft, compiler.get()));
    if (!moved) return nullptr;
    static PyObject* const keywords = PyTuple_Pack(1, names.query_compiler_key);
    PyObject* const value = moved.get();
    return PyObject_Vectorcall(reinterpret_cast<PyObject*>(type), &value, 0, keywords);
}

PyObject* column_of(PyObject* frame, PyObject* column) {
    Owned compiler = compiler_of_series(column);
    if (!compiler) return nullptr;
    Owned result = around(known.modin_series, compiler.get());
    static PyObject* const axis = PyLong_FromLong(1);
    if (!result || !set(result, names.parent, frame) || !set(result, names.parent_axis, axis)) return nullptr;
    return result.release();
}

Given plain_argument(PyObject* value, Owned& other) {
    if (are_plain(&value, 1)) return Given::as_it_is;
    PyTypeObject* const type = Py_TYPE(value);
    if (type == known.modin_series || type == known.modin_frame) {
        Owned compiler = unpinned_compiler(value);
        if (!compiler) return Given::by_modin;
        other = held_by(compiler.get(), type == known.modin_series);
        return other ? Given::changed : Given::failed;
    }
    const bool is_sequence = type == &PyTuple_Type || type == &PyList_Type;
    if (is_sequence && are_plain(PySequence_Fast_ITEMS(value), PySequence_Fast_GET_SIZE(value)))
        return Given::as_it_is;
    other = Owned(PyObject_CallOneArg(known.plain, value));
    if (!other) return Given::failed;
    return other.get() == known.unknown ? Given::by_modin : Given::changed;
}

}  // namespace weft
