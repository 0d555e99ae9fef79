/// loc, iloc, at and iat of a small frame.
#include "direct.hpp"

namespace weft {
namespace {

PyTypeObject* indexer_type;

/// What a frame's `loc` and the like give; anything but reading by plain keys is left to Modin's own.
struct Indexer {
    PyObject_HEAD PyObject* data;  ///< a frame or series of Modin's
    PyObject* direct;              ///< the getter that made this one
};

Indexer& indexer_of(PyObject* self) {
    return *reinterpret_cast<Indexer*>(self);
}

Owned modins_indexer(PyObject* self) {
    return Owned(PyObject_CallOneArg(direct_of(indexer_of(self).direct).otherwise, indexer_of(self).data));
}

PyObject* indexer_get(PyObject* self, PyObject* key) {
    const Direct& direct = direct_of(indexer_of(self).direct);
    PyObject* const data = indexer_of(self).data;
    const bool is_function = PyFunction_Check(key);
    const Owned called(is_function ? PyObject_CallOneArg(key, data) : nullptr);
    if (is_function && !called) return nullptr;
    if (is_function) key = called.get();
    const Owned compiler = unpinned_compiler(data);
    const Owned own = compiler ? own_in(compiler.get(), direct.is_series) : Owned();  // stays so for a number
    Owned other;
    const Owned source = !compiler ? Owned()
                         : own     ? Owned(Py_NewRef(own.get()))
                                   : held_by(compiler.get(), direct.is_series);
    const Given given = source ? plain_argument(key, other) : Given::by_modin;
    if (given == Given::as_it_is || given == Given::changed) {
        const Owned theirs(PyObject_GetAttr(source.get(), direct.function));
        const Owned made(theirs ? PyObject_GetItem(theirs.get(), given == Given::changed ? other.get() : key)
                                : nullptr);
        if (!made) return nullptr;
        if (own && !is_scalar(made.get()) && !Owned(PyObject_CallMethodNoArgs(compiler.get(), names.show)))
            return nullptr;
        if (made.get() != source.get()) return wrap(made.get());
    }
    if (PyErr_Occurred()) return nullptr;
    const Owned modins = modins_indexer(self);
    return modins ? PyObject_GetItem(modins.get(), key) : nullptr;
}

int indexer_set(PyObject* self, PyObject* key, PyObject* value) {
    const Indexer& indexer = indexer_of(self);
    const Direct& direct = direct_of(indexer.direct);
    if (value != nullptr) {
        const Owned own = direct.is_series ? Owned() : own_of(indexer.data);
        if (own && is_plain(key) && is_plain(value)) {
            const Owned theirs(PyObject_GetAttr(own.get(), direct.function));
            return theirs ? PyObject_SetItem(theirs.get(), key, value) : -1;
        }
        PyObject* const args[] = {indexer.data, direct.function, key, value};
        const Owned written(PyObject_Vectorcall(known.write, args, 4, nullptr));
        if (!written) return -1;
        if (written.get() == Py_True) return 0;
    }
    const Owned modins = modins_indexer(self);
    if (!modins) return -1;
    return value == nullptr ? PyObject_DelItem(modins.get(), key)
                            : PyObject_SetItem(modins.get(), key, value);
}

PyObject* indexer_call(PyObject* self, PyObject* args, PyObject* keywords) {
    const Owned modins = modins_indexer(self);
    return modins ? PyObject_Call(modins.get(), args, keywords) : nullptr;
}

PyObject* indexer_attribute(PyObject* self, PyObject* name) {
    PyObject* const found = PyObject_GenericGetAttr(self, name);
    if (found != nullptr || !PyErr_ExceptionMatches(PyExc_AttributeError)) return found;
    PyErr_Clear();
    const Owned modins = modins_indexer(self);
    return modins ? PyObject_GetAttr(modins.get(), name) : nullptr;
}

int indexer_traverse(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(indexer_of(self).data);
    Py_VISIT(indexer_of(self).direct);
    return 0;
}

void indexer_dealloc(PyObject* self) {
    PyObject_GC_UnTrack(self);
    Py_XDECREF(indexer_of(self).data);
    Py_XDECREF(indexer_of(self).direct);
    PyTypeObject* const type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

PyType_Slot indexer_slots[] = {
    {Py_mp_subscript, reinterpret_cast<void*>(indexer_get)},
    {Py_mp_ass_subscript, reinterpret_cast<void*>(indexer_set)},
    {Py_tp_call, reinterpret_cast<void*>(indexer_call)},
    {Py_tp_getattro, reinterpret_cast<void*>(indexer_attribute)},
    {Py_tp_traverse, reinterpret_cast<void*>(indexer_traverse)},
    {Py_tp_dealloc, reinterpret_cast<void*>(indexer_dealloc)},
    {Py_tp_doc, const_cast<char*>("What loc, iloc, at or iat of a small frame gives.")},
    {0, nullptr},
};
PyType_Spec indexer_spec = {"weft.pandas.modin._direct.Indexer", sizeof(Indexer), 0,
                            Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                            indexer_slots};

}  // namespace

PyObject* call_indexer(PyObject* self, PyObject* const* args, size_t flagged_count, PyObject* named) {
    const Py_ssize_t count = PyVectorcall_NARGS(flagged_count);
    if (count < 1 || !unpinned_compiler(args[0])) return by_modin(direct_of(self), args, count, named);
    PyObject* const made = indexer_type->tp_alloc(indexer_type, 0);
    if (made == nullptr) return nullptr;
    indexer_of(made) = {indexer_of(made).ob_base, Py_NewRef(args[0]), Py_NewRef(self)};
    return made;
}

bool make_indexer_type() {
    indexer_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&indexer_spec));
    return indexer_type != nullptr;
}

}  // namespace weft
