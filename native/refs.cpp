/// ObjectRef and ActorToken: what Python holds of an entry.

#include <cstddef>

#include "py.hpp"

namespace weft {

PyTypeObject* ref_type;
PyTypeObject* token_type;

namespace {

PyObject* restore_ref;    // the module's _restore_ref
PyObject* restore_token;  // the module's _restore_token

RefObject* as_ref(PyObject* self) {
    return reinterpret_cast<RefObject*>(self);
}

void ref_dealloc(PyObject* self) {
    RefObject* ref = as_ref(self);
    if (ref->weak_list != nullptr) PyObject_ClearWeakRefs(self);
    if (ref->entry != nullptr && ref->session == session().number) session().core->objects.drop(ref->entry);
    PyTypeObject* type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

PyObject* ref_binary(PyObject* self, PyObject*) {
    return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(&as_ref(self)->id), sizeof(Id));
}

PyObject* ref_hex(PyObject* self, PyObject*) {
    Owned bytes(ref_binary(self, nullptr));
    return bytes ? PyObject_CallMethod(bytes.get(), "hex", nullptr) : nullptr;
}

PyObject* ref_is_ready(PyObject* self, PyObject*) {
    Entry* entry = entry_of(self);
    if (entry == nullptr) return nullptr;
    session().core->pump.poll();
    return PyBool_FromLong(entry->is_done());
}

PyObject* ref_owner(PyObject* self, PyObject*) {
    Entry* entry = entry_of(self);
    return entry ? Py_BuildValue("(II)", entry->owner.slot, entry->owner.generation) : nullptr;
}

Py_hash_t ref_hash(PyObject* self) {
    const auto hash = Py_hash_t(IdHash{}(as_ref(self)->id));
    return hash == -1 ? -2 : hash;
}

/// A number or a text beside a ref: the value was meant. `==` stays what Python makes of it, with a warning,
/// since lists and sets of mixed things compare, too.
PyObject* compare_with_value(int op) {
    static const char equal[] =
        "a ref is compared with a plain value, which is never equal: use weft.get(ref) for the ref's value";
    static const char order[] =
        "a ref has no order: it names a value that is made elsewhere. Use weft.get(ref) for the value";
    if (op != Py_EQ && op != Py_NE) {
        PyErr_SetString(PyExc_TypeError, order);
        return nullptr;
    }
    if (PyErr_WarnEx(PyExc_UserWarning, equal, 1) < 0) return nullptr;
    Py_RETURN_NOTIMPLEMENTED;
}

PyObject* ref_compare(PyObject* self, PyObject* other, int op) {
    if (Py_TYPE(self) != Py_TYPE(other) && Py_TYPE(self) == ref_type &&
        (PyLong_Check(other) || PyFloat_Check(other) || PyUnicode_Check(other)))
        return compare_with_value(op);
    if (Py_TYPE(self) != Py_TYPE(other) || (op != Py_EQ && op != Py_NE)) Py_RETURN_NOTIMPLEMENTED;
    const bool same = as_ref(self)->id == as_ref(other)->id;
    return PyBool_FromLong(same == (op == Py_EQ));
}

PyObject* ref_repr(PyObject* self) {
    Owned text(ref_hex(self, nullptr));
    const char* name = Py_TYPE(self) == ref_type ? "ObjectRef" : "ActorToken";
    return text ? PyUnicode_FromFormat("%s(%U)", name, text.get()) : nullptr;
}

PyObject* ref_reduce(PyObject* self, PyObject*) {
    Entry* entry = entry_of(self);
    if (entry == nullptr) return nullptr;
    Core& core = *session().core;
    Nested* nested = Collecting::current();
    // A value may take so long to pickle that another session has begun meanwhile.
    if (nested != nullptr && nested->core != &core) return raise_over(core);
    hold(entry);
    if (nested != nullptr) {
        nested->entries.push_back(entry);
    } else {
        // Pickled by somebody else: nobody can count that copy, so this process keeps the object for good.
        std::lock_guard lock(core.mutex());
        core.objects.escape(entry);
    }
    PyObject* restore = Py_TYPE(self) == ref_type ? restore_ref : restore_token;
    return Py_BuildValue("O(y#K)", restore, reinterpret_cast<const char*>(&entry->id), Py_ssize_t(sizeof(Id)),
                         static_cast<unsigned long long>(entry->owner.key()));
}

PyObject* restore(PyTypeObject* type, PyObject* args) {
    const char* bytes = nullptr;
    Py_ssize_t size = 0;
    unsigned long long owner_key = 0;
    if (!PyArg_ParseTuple(args, "y#K", &bytes, &size, &owner_key)) return nullptr;
    if (size != Py_ssize_t(sizeof(Id))) return PyErr_SetString(PyExc_ValueError, "not a ref"), nullptr;
    Core* core = attached();
    if (core == nullptr) return nullptr;
    Id id;
    memcpy(&id, bytes, sizeof id);
    const ProcessId owner = ProcessId::from_key(owner_key);
    Entry* entry;
    {
        std::lock_guard lock(core->mutex());
        const bool is_weak = type == token_type && owner.slot == kDaemonSlot;
        entry = is_weak ? core->borrowing.weak_actor(id) : core->objects.find(id);
        if (entry == nullptr || (is_weak_actor(entry) && !is_weak)) {
            // It did not come in a record of ours: count ourselves in.
            const bool counted = owner.slot != kDaemonSlot && owner != core->self();
            entry = core->borrowing.borrow(id, owner, type == token_type, counted ? 1 : 0);
            if (owner == core->self() && type == ref_type)
                core->objects.fail(
                    entry,
                    error_value(ErrorCode::object_lost,
                                "every counted reference to the object was dropped before this copy of a "
                                "reference, which was pickled outside of weft, was read"));
            if (counted) core->borrowing.count_in(id, owner, core->self());
        }
        hold(entry);
    }
    return make_ref(*core, type, entry);
}

PyObject* py_restore_ref(PyObject*, PyObject* args) {
    return restore(ref_type, args);
}
PyObject* py_restore_token(PyObject*, PyObject* args) {
    return restore(token_type, args);
}

PyObject* token_weak(PyObject* self, PyObject*) {
    Py_INCREF(self);
    return self;
}

PyObject* class_getitem(PyObject* type, PyObject* item) {
    return Py_GenericAlias(type, item);
}

PyMethodDef ref_methods[] = {
    {"binary", from_python<ref_binary>, METH_NOARGS, "The id's 16 bytes."},
    {"hex", from_python<ref_hex>, METH_NOARGS, "The id in hexadecimal."},
    {"is_ready", from_python<ref_is_ready>, METH_NOARGS, "Whether a value or an error is there."},
    {"owner", from_python<ref_owner>, METH_NOARGS, "(slot, generation) of the owning process."},
    {"__reduce__", from_python<ref_reduce>, METH_NOARGS, nullptr},
    {"__class_getitem__", class_getitem, METH_O | METH_CLASS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyMethodDef token_methods[] = {
    {"binary", from_python<ref_binary>, METH_NOARGS, "The actor id's 16 bytes."},
    {"hex", from_python<ref_hex>, METH_NOARGS, "The actor id in hexadecimal."},
    {"weak", token_weak, METH_NOARGS, "The same actor."},
    {"__reduce__", from_python<ref_reduce>, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyMemberDef ref_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(RefObject, weak_list), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot ref_slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(ref_dealloc)},
    {Py_tp_hash, reinterpret_cast<void*>(ref_hash)},
    {Py_tp_richcompare, reinterpret_cast<void*>(ref_compare)},
    {Py_tp_repr, reinterpret_cast<void*>(ref_repr)},
    {Py_tp_methods, ref_methods},
    {Py_tp_members, ref_members},
    {Py_tp_doc, const_cast<char*>("A reference to a value that exists or will.")},
    {0, nullptr},
};
PyType_Slot token_slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(ref_dealloc)},
    {Py_tp_hash, reinterpret_cast<void*>(ref_hash)},
    {Py_tp_richcompare, reinterpret_cast<void*>(ref_compare)},
    {Py_tp_repr, reinterpret_cast<void*>(ref_repr)},
    {Py_tp_methods, token_methods},
    {Py_tp_members, ref_members},
    {Py_tp_doc, const_cast<char*>("One counted reference to an actor.")},
    {0, nullptr},
};
PyType_Spec ref_spec = {"weft.ObjectRef", sizeof(RefObject), 0,
                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, ref_slots};
PyType_Spec token_spec = {"weft._native.ActorToken", sizeof(RefObject), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, token_slots};

PyMethodDef module_functions[] = {
    {"_restore_ref", from_python<py_restore_ref>, METH_VARARGS, nullptr},
    {"_restore_token", from_python<py_restore_token>, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

PyObject* make_ref(Core& core, PyTypeObject* type, Entry* entry) {
    auto* ref = PyObject_New(RefObject, type);
    if (ref == nullptr) {
        core.objects.drop(entry);
        return nullptr;
    }
    ref->entry = entry;
    ref->session = core.session;
    ref->id = entry->id;
    ref->weak_list = nullptr;
    return reinterpret_cast<PyObject*>(ref);
}

Entry* entry_of(PyObject* self) {
    RefObject* ref = as_ref(self);
    if (ref->session == session().number && ref->session != 0) return ref->entry;
    if (attached() == nullptr) return nullptr;
    PyErr_SetString(
        PyExc_RuntimeError,
        "this reference, or a frame of weft.pandas that is made of such, belongs to an earlier weft.init(): "
        "its value went with that session. Make it again, or take its value before weft.shutdown().");
    return nullptr;
}

static thread_local Nested* collecting = nullptr;

Collecting::Collecting(Nested& nested) : before_(collecting) {
    collecting = &nested;
}
Collecting::~Collecting() {
    collecting = before_;
}
Nested* Collecting::current() {
    return collecting;
}

PyObject* py_mark(PyObject*, PyObject*) {
    Core* core = attached();
    if (core == nullptr) return nullptr;
    Entry* entry;
    {
        std::lock_guard lock(core->mutex());
        const uint64_t number = core->endpoint.root_counter.fetch_add(1, std::memory_order_relaxed);
        entry = core->objects.new_entry(core->endpoint.root.child(number).object(0xffff));
        hold(entry);
        core->objects.complete(entry, Where::inlined, "N", 1, {});
    }
    return make_ref(*core, ref_type, entry);
}

bool add_ref_types(PyObject* module) {
    ref_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&ref_spec));
    token_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&token_spec));
    if (ref_type == nullptr || token_type == nullptr) return false;
    if (PyModule_AddFunctions(module, module_functions) != 0) return false;
    restore_ref = PyObject_GetAttrString(module, "_restore_ref");
    restore_token = PyObject_GetAttrString(module, "_restore_token");
    return restore_ref && restore_token &&
           PyModule_AddObjectRef(module, "ObjectRef", reinterpret_cast<PyObject*>(ref_type)) == 0 &&
           PyModule_AddObjectRef(module, "ActorToken", reinterpret_cast<PyObject*>(token_type)) == 0;
}

}  // namespace weft
