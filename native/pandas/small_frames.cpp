#include "small_frames.hpp"

#include <algorithm>

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
        {&names.own, "_own"},
        {&names.show, "show"},
        {&names.shape_hint, "_shape_hint"},
        {&names.column, "column"},
        {&names.siblings, "_siblings"},
        {&names.parent, "_parent"},
        {&names.parent_axis, "_parent_axis"},
        {&names.manager, "_mgr"},
        {&names.axes, "axes"},
        {&names.is_copy, "_is_copy"},
        {&names.item_cache, "_item_cache"},
        {&names.columns, "columns"},
        {&names.index, "index"},
        {&names.blocks, "blocks"},
        {&names.values, "values"},
        {&names.ndarray, "_ndarray"},
        {&names.base, "base"},
        {&names.flags, "flags"},
        {&names.writeable, "writeable"},
        {&names.few_rows, "few_rows"},
        {&names.makes_small, "makes_small"},
        {&names.inplace, "inplace"},
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
bool set(PyObject* object, PyObject* name, PyObject* value) {
    return PyObject_GenericSetAttr(object, name, value) == 0;
}

/// A frame or series of Modin's around a compiler.
Owned around(PyTypeObject* type, PyObject* compiler) {
    Owned result = made_bare(type), siblings(PyList_New(0));
    if (!result || !siblings || !set(result.get(), names.siblings, siblings.get()) ||
        !set(result.get(), names.query_compiler, compiler))
        return {};
    return result;
}

/// A compiler that holds a series of pandas.
Owned compiler_of_series(PyObject* series) {
    Owned compiler = made_bare(known.compiler);
    if (!compiler || !set(compiler.get(), names.held_series, series) ||
        !set(compiler.get(), names.shape_hint, names.column))
        return {};
    return compiler;
}

Owned compiler_of_frame(PyObject* frame) {
    Owned compiler = made_bare(known.compiler);
    if (!compiler || !set(compiler.get(), names.held_frame, frame)) return {};
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
    const int has_more = has_more_than_few_rows(made);
    if (has_more != 1) return has_more;
    const Owned grown(PyObject_CallOneArg(known.has_grown, made));
    return grown ? PyObject_IsTrue(grown.get()) : -1;
}

bool is_of(PyObject* types, PyObject* value) {
    return PySet_Contains(types, reinterpret_cast<PyObject*>(Py_TYPE(value))) == 1;
}

bool has_plain_type(PyObject* value) {
    return is_of(known.plain_types, value);
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
    if (series.get() != Py_None)
        return as_series ? std::move(series) : Owned(PyObject_GenericGetAttr(compiler, names.modin_frame));
    if (as_series) return Owned(PyObject_CallMethodNoArgs(compiler, names.as_series));
    Owned frame(PyObject_GenericGetAttr(compiler, names.held_frame));
    if (frame.get() != Py_None) return frame;
    return Owned(PyObject_GenericGetAttr(compiler, names.modin_frame));
}

Owned own_in(PyObject* compiler, bool as_series) {
    Owned own(PyObject_GenericGetAttr(compiler, names.own));
    return own && Py_TYPE(own.get()) == (as_series ? known.series : known.frame) ? std::move(own) : Owned();
}

Owned glanced_at(PyObject* compiler, bool as_series) {
    Owned own = own_in(compiler, as_series);
    return own || PyErr_Occurred() ? std::move(own) : held_by(compiler, as_series);
}

namespace {

/// The compiler of a small frame that nobody else shares.
Owned sole_compiler(PyObject* data) {
    Owned compiler = unpinned_compiler(data);
    return compiler && Py_REFCNT(compiler.get()) == 2 ? std::move(compiler)
                                                      : Owned();  // the attribute, and this
}

}  // namespace

Owned own_of(PyObject* data) {
    const Owned compiler = sole_compiler(data);
    Owned own(compiler ? PyObject_GenericGetAttr(compiler.get(), names.own) : nullptr);
    return own.get() != Py_None ? std::move(own) : Owned();
}

namespace {

/// Whether an object is held by what it was read from and by the reader alone.
bool is_held_once(const Owned& object) {
    return object && Py_REFCNT(object.get()) == 2;
}

/// Whether nobody else sees the memory of an array: a view of it holds it, or what it is itself a view of.
bool is_unseen(const Owned& array) {
    if (!is_held_once(array) || Py_TYPE(array.get()) != known.array) return false;
    const Owned base(PyObject_GetAttr(array.get(), names.base));
    const Owned flags(PyObject_GetAttr(array.get(), names.flags));
    const Owned writeable(flags ? PyObject_GetAttr(flags.get(), names.writeable) : nullptr);
    if (!base || writeable.get() != Py_True) return false;
    return base.get() == Py_None || (Py_TYPE(base.get()) == known.array && is_held_once(base));
}

/// The same of all values of a frame or series of pandas. Times and categories have an array inside; what
/// else is no array counts as seen.
bool has_unseen_values(PyObject* held) {
    const Owned manager(PyObject_GenericGetAttr(held, names.manager));
    const Owned blocks(is_held_once(manager) ? PyObject_GetAttr(manager.get(), names.blocks) : nullptr);
    if (!blocks || !PyTuple_CheckExact(blocks.get())) return false;
    for (Py_ssize_t place = 0; place < PyTuple_GET_SIZE(blocks.get()); ++place) {
        PyObject* const block = PyTuple_GET_ITEM(blocks.get(), place);
        const Owned values(Py_REFCNT(block) == 1 ? PyObject_GetAttr(block, names.values) : nullptr);
        if (!is_held_once(values)) return false;
        const bool is_array = Py_TYPE(values.get()) == known.array;
        if (is_array ? !is_unseen(values) : !is_unseen(Owned(PyObject_GetAttr(values.get(), names.ndarray))))
            return false;
    }
    return true;
}

}  // namespace

Owned claim(PyObject* data) {
    Owned own = own_of(data);
    const Owned compiler = own || PyErr_Occurred() ? Owned() : sole_compiler(data);
    if (!compiler) return own;
    Owned held(PyObject_GenericGetAttr(compiler.get(), names.held_series));
    const bool is_series = held && held.get() != Py_None;
    if (!is_series) held = Owned(PyObject_GenericGetAttr(compiler.get(), names.held_frame));
    if (!is_held_once(held) || held.get() == Py_None) return {};
    if (!is_series) {
        const Owned columns(
            PyObject_GenericGetAttr(held.get(), names.item_cache));  // those that were asked for
        if (columns) PyDict_Clear(columns.get());
    }
    const bool is_unseen = has_unseen_values(held.get());
    PyErr_Clear();  // what has not the form that is known counts as seen
    if (!is_unseen || !set(compiler.get(), names.own, held.get()) ||
        !set(compiler.get(), is_series ? names.held_series : names.held_frame, Py_None))
        return {};
    return held;
}

Owned sole_frame_of(PyObject* data) {
    const Owned compiler = sole_compiler(data);
    Owned own(compiler ? PyObject_GenericGetAttr(compiler.get(), names.own) : nullptr);
    if (own && own.get() != Py_None) return own;
    Owned frame(compiler ? PyObject_GenericGetAttr(compiler.get(), names.held_frame) : nullptr);
    return frame && frame.get() != Py_None && Py_REFCNT(frame.get()) == 2 ? std::move(frame) : Owned();
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

int has_more_than_few_rows(PyObject* data) {
    const Owned limit(PyObject_GetAttr(known.limit, names.few_rows));
    const Py_ssize_t few = limit ? PyLong_AsSsize_t(limit.get()) : -1;
    const Py_ssize_t rows = few == -1 && PyErr_Occurred() ? -1 : rows_of(data);
    return rows < 0 ? -1 : rows > few;
}

Py_ssize_t rows_of(PyObject* data) {
    Owned axes = axes_of(data);
    return axes ? PyObject_Size(PyList_GET_ITEM(axes.get(), PyList_GET_SIZE(axes.get()) - 1)) : -1;
}

namespace {

/// A compiler of what pandas made, on Weft where it has grown.
Owned compiler_of(PyObject* made) {
    Owned compiler = Py_TYPE(made) == known.frame ? compiler_of_frame(made) : compiler_of_series(made);
    const int grown = compiler && forget_origin(made) ? has_grown(made) : -1;
    if (grown < 0) return {};
    return grown == 0 ? std::move(compiler) : Owned(PyObject_CallOneArg(known.on_weft, compiler.get()));
}

}  // namespace

PyObject* wrap(PyObject* made) {
    const bool is_frame = Py_TYPE(made) == known.frame;
    if (!is_frame && Py_TYPE(made) != known.series) return Py_NewRef(made);
    const Owned compiler = compiler_of(made);
    if (!compiler) return nullptr;
    return around(is_frame ? known.modin_frame : known.modin_series, compiler.get()).release();
}

bool adopt(PyObject* data, PyObject* made) {
    const Owned compiler = Py_TYPE(made) == known.frame ? compiler_of_frame(made) : compiler_of_series(made);
    const Owned siblings(PyList_New(0));
    return compiler && siblings && set(data, names.siblings, siblings.get()) &&
           set(data, names.query_compiler, compiler.get());
}

PyObject* column_of(PyObject* frame, PyObject* column) {
    Owned compiler = compiler_of_series(column);
    if (!compiler) return nullptr;
    Owned result = around(known.modin_series, compiler.get());
    static PyObject* const axis = PyLong_FromLong(1);
    if (!result || !set(result.get(), names.parent, frame) || !set(result.get(), names.parent_axis, axis))
        return nullptr;
    return result.release();
}

bool is_scalar(PyObject* made) {
    return is_of(known.scalar_types, made);
}

bool is_plain(PyObject* value) {
    if (has_plain_type(value)) return true;
    if (!PyTuple_CheckExact(value) && !PyList_CheckExact(value)) return false;
    PyObject* const* const entries = PySequence_Fast_ITEMS(value);
    return std::all_of(entries, entries + PySequence_Fast_GET_SIZE(value), has_plain_type);
}

Given plain_argument(PyObject* value, Owned& other) {
    if (is_plain(value)) return Given::as_it_is;
    PyTypeObject* const type = Py_TYPE(value);
    if (type == known.modin_series || type == known.modin_frame) {
        const Owned compiler = unpinned_compiler(value);
        if (!compiler) return Given::by_modin;
        other = held_by(compiler.get(), type == known.modin_series);
        return other ? Given::changed : Given::failed;
    }
    other = Owned(PyObject_CallOneArg(known.plain, value));
    if (!other) return Given::failed;
    return other.get() == known.unknown ? Given::by_modin : Given::changed;
}

}  // namespace weft
