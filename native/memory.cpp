/// Memory of the arena as Python sees it: read in place, written as a copy of one's own, filled before it is
/// an object.
///
/// MEM-1  Shared pages are read-only to Python. Who may write has a mapping of its own, private to it: the
///        kernel copies a page when it is first written, and nobody else sees what was.
/// MEM-2  A private mapping shows the object's bytes as long as nobody gives their pages to another object.
///        So it is never without the pin.
/// MEM-3  What is being filled is mapped shared, apart from the segment's own mapping, so that it can become
///        private where it is when it is sealed, in a fork's child, and when the session ends.
/// MEM-4  A process without mappings left has no memory and no threads either. So at most half of what the
///        kernel gives it are made here. Beyond, bytes are copied.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <unordered_map>
#include <unordered_set>

#include "py.hpp"

namespace weft {

namespace {

struct PinObject {
    PyObject_HEAD std::shared_ptr<Core> core;
    ArenaRef arena;
    char* data;         ///< the bytes, shared
    char* own;          ///< the same, private, or shared while they are filled; null before the first need
    bool is_allocated;  ///< own is ordinary memory, where no mapping could be had
    bool is_filled;     ///< nobody else knows of it yet
};

PyTypeObject* pin_type;
PyTypeObject* memory_type;
/// Those that have a mapping of their own, and of these what is being filled, by where its bytes begin.
std::unordered_set<PinObject*> mapped;
std::unordered_map<const void*, PinObject*> filled;

PinObject* as_pin(PyObject* object) {
    return reinterpret_cast<PinObject*>(object);
}

size_t page_bytes() {
    static const auto bytes = size_t(sysconf(_SC_PAGESIZE));
    return bytes;
}

bool may_map() {
    static const size_t most = [] {
        size_t limit = 0;
        std::ifstream("/proc/sys/vm/max_map_count") >> limit;
        return (limit > 0 ? limit : 65530) / 2;
    }();
    return mapped.size() < most;
}

size_t whole_pages(size_t bytes) {
    return (bytes + page_bytes() - 1) & ~(page_bytes() - 1);
}

/// Once the session's memory is given to others, what was not written yet must not change either. By an
/// exchange of a byte with itself, since another thread may be writing.
void copy_all_pages(PinObject* pin) {
    for (size_t at = 0; at < pin->arena.bytes; at += page_bytes()) {
        char* byte = pin->own + at;
        char now = __atomic_load_n(byte, __ATOMIC_RELAXED);
        while (!__atomic_compare_exchange_n(byte, &now, now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
        }
    }
}

/// What is being filled is this process's alone from now on. False where there is no memory for that.
bool become_private(PinObject* pin) {
    return pin->core->endpoint.segment.map_private(pin->data, whole_pages(pin->arena.bytes), pin->own) !=
           nullptr;
}

/// For good: it will be no object.
void stop_filling(PinObject* pin) {
    if (!become_private(pin)) mprotect(pin->own, whole_pages(pin->arena.bytes), PROT_READ);
    pin->is_filled = false;
}

void pin_dealloc(PyObject* self) {
    PinObject* pin = as_pin(self);
    if (pin->own != nullptr) {
        mapped.erase(pin);
        if (const auto it = filled.find(pin->own + kFilledAt); it != filled.end() && it->second == pin)
            filled.erase(it);
        if (pin->is_allocated)
            free(pin->own);
        else
            munmap(pin->own, whole_pages(pin->arena.bytes));
    }
    // After a shutdown the slot that has the pin may be another process's. In a fork the pin is the parent's,
    // and so are the threads that the core would end.
    if (!pin->core->is_closed()) {
        if (pin->is_filled)
            pin->core->arena().abandon(pin->arena);
        else
            pin->core->arena().unpin(pin->arena);
    }
    if (pin->core->is_ours()) pin->core.~shared_ptr();
    PyTypeObject* type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

int pin_buffer(PyObject* self, Py_buffer* view, int flags) {
    PinObject* pin = as_pin(self);
    return PyBuffer_FillInfo(view, self, pin->data, Py_ssize_t(pin->arena.bytes), 1, flags);
}

PyType_Slot pin_slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(pin_dealloc)},
    {Py_bf_getbuffer, reinterpret_cast<void*>(pin_buffer)},
    {Py_tp_doc, const_cast<char*>("Keeps an object in the arena readable.")},
    {0, nullptr},
};
PyType_Spec pin_spec = {"weft._native.Pin", sizeof(PinObject), 0,
                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, pin_slots};

/// Bytes that may be written, and what keeps them.
struct MemoryObject {
    PyObject_HEAD PyObject* owner;
    char* data;
    Py_ssize_t bytes;
};

PyObject* make_memory(PyObject* owner, char* data, Py_ssize_t bytes) {
    auto* memory = PyObject_New(MemoryObject, memory_type);
    if (memory == nullptr) return nullptr;
    Py_INCREF(owner);
    memory->owner = owner;
    memory->data = data;
    memory->bytes = bytes;
    return reinterpret_cast<PyObject*>(memory);
}

void memory_dealloc(PyObject* self) {
    Py_DECREF(reinterpret_cast<MemoryObject*>(self)->owner);
    PyTypeObject* type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

int memory_buffer(PyObject* self, Py_buffer* view, int flags) {
    auto* memory = reinterpret_cast<MemoryObject*>(self);
    return PyBuffer_FillInfo(view, self, memory->data, memory->bytes, 0, flags);
}

PyType_Slot memory_slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(memory_dealloc)},
    {Py_bf_getbuffer, reinterpret_cast<void*>(memory_buffer)},
    {Py_tp_doc, const_cast<char*>("Bytes that may be written, and what keeps them.")},
    {0, nullptr},
};
PyType_Spec memory_spec = {"weft._native.Memory", sizeof(MemoryObject), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, memory_slots};

/// The pin's bytes, private from now on. False with an exception set.
bool map_own(PinObject* pin) {
    if (pin->own != nullptr) return true;
    // After a shutdown the segment's pages may be another object's: what `data` shows was kept.
    if (!pin->core->is_closed() && may_map())
        pin->own = pin->core->endpoint.segment.map_private(pin->data, whole_pages(pin->arena.bytes));
    if (pin->own != nullptr) {
        mapped.insert(pin);
        return true;
    }
    pin->own = static_cast<char*>(malloc(pin->arena.bytes));
    if (pin->own == nullptr) {
        PyErr_Format(PyExc_MemoryError,
                     "a value of %zu bytes cannot be read to be written to: this process has mapped %zu such "
                     "values, and has no memory for a copy. Let go of some of what it has read.",
                     size_t(pin->arena.bytes), mapped.size());
        return false;
    }
    pin->is_allocated = true;
    memcpy(pin->own, pin->data, pin->arena.bytes);
    return true;
}

/// Of the core that has the pin: the session may be over, or another one, by now.
PinObject* new_pin(Core& core, const ArenaRef& arena, char* data) {
    PinObject* pin = PyObject_New(PinObject, pin_type);
    if (pin == nullptr) return nullptr;
    new (&pin->core) std::shared_ptr<Core>(core.shared_from_this());
    pin->arena = arena;
    pin->data = data;
    pin->own = nullptr;
    pin->is_allocated = pin->is_filled = false;
    return pin;
}

}  // namespace

PyObject* make_pin(Core& core, const ArenaRef& arena, char* data) {
    return reinterpret_cast<PyObject*>(new_pin(core, arena, data));
}

PyObject* writable_memory(PyObject* keeper) {
    if (Py_TYPE(keeper) != pin_type) return PyByteArray_FromObject(keeper);
    PinObject* pin = as_pin(keeper);
    return map_own(pin) ? make_memory(keeper, pin->own, Py_ssize_t(pin->arena.bytes)) : nullptr;
}

void keep_own_memory(const Core& core, bool is_given_away) {
    for (PinObject* pin : mapped) {
        if (pin->core.get() != &core) continue;
        if (pin->is_filled) stop_filling(pin);
        if (is_given_away) copy_all_pages(pin);
    }
}

void keep_filled_private() {
    for (const auto& [data, pin] : filled)
        if (pin->is_filled) stop_filling(pin);
}

bool take_filled(Core& core, const Py_buffer& bytes, std::string_view pickle, ProcessId owner,
                 std::optional<ArenaRef>& arena) {
    const auto found = filled.empty() ? filled.end() : filled.find(bytes.buf);
    if (found == filled.end()) return true;
    PinObject* pin = found->second;
    const bool is_whole = pin->is_filled && pin->core.get() == &core && !core.is_closed() &&
                          kFilledAt + uint64_t(bytes.len) == pin->arena.bytes;
    if (!is_whole || !write_filled_head(pin->own, pickle, uint64_t(bytes.len))) return true;
    if (!become_private(pin)) return PyErr_NoMemory() != nullptr;
    core.arena().hand_over(pin->arena, owner);
    pin->is_filled = false;
    filled.erase(found);
    arena = pin->arena;
    return true;
}

PyObject* py_allocate(PyObject*, PyObject* bytes) {
    const Py_ssize_t wanted = PyLong_AsSsize_t(bytes);
    if (wanted < 0) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "an array cannot have less than 0 bytes");
        return nullptr;
    }
    const Attached core;
    if (!core) return nullptr;
    if (!may_map()) Py_RETURN_NONE;
    ArenaRef arena;
    char* data = nullptr;
    if (!allocate(*core, kFilledAt + uint64_t(wanted), core->self(), arena, data)) return nullptr;
    if (core.is_over()) return raise_over(*core);
    PinObject* pin = new_pin(*core, arena, data);
    char* own = pin ? core->endpoint.segment.map_shared(data, whole_pages(arena.bytes)) : nullptr;
    if (own == nullptr) {
        if (pin == nullptr) return core->arena().abandon(arena), nullptr;
        pin->is_filled = false;
        core->arena().abandon(arena);
        Py_DECREF(pin);  // its unpin finds no pin
        return PyErr_NoMemory();
    }
    pin->own = own;
    pin->is_filled = true;
    Owned owner(reinterpret_cast<PyObject*>(pin));
    mapped.insert(pin);
    filled.emplace(own + kFilledAt, pin);
    return make_memory(owner.get(), own + kFilledAt, wanted);
}

PyObject* py_own_memory(PyObject*, PyObject* buffer) {
    if (!PyMemoryView_Check(buffer)) {
        if (PyByteArray_CheckExact(buffer)) return Py_NewRef(buffer);
        return PyByteArray_FromObject(buffer);
    }
    const Py_buffer* view = PyMemoryView_GET_BUFFER(buffer);
    if (!view->readonly) return Py_NewRef(buffer);
    if (view->obj == nullptr || Py_TYPE(view->obj) != pin_type) return PyByteArray_FromObject(buffer);
    PinObject* pin = as_pin(view->obj);
    if (!map_own(pin)) return nullptr;
    return make_memory(view->obj, pin->own + (static_cast<char*>(view->buf) - pin->data), view->len);
}

PyObject* py_memory_of(PyObject*, PyObject* const* args, Py_ssize_t count) {
    if (count != 3) return PyErr_SetString(PyExc_TypeError, "memory_of(owner, address, bytes)"), nullptr;
    void* address = PyLong_AsVoidPtr(args[1]);
    const Py_ssize_t bytes = PyLong_AsSsize_t(args[2]);
    if (PyErr_Occurred()) return nullptr;
    return make_memory(args[0], static_cast<char*>(address), bytes);
}

bool init_memory() {
    pin_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&pin_spec));
    memory_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&memory_spec));
    return pin_type && memory_type;
}

}  // namespace weft
