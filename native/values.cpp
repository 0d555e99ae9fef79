/// Python values to bytes and back. Plain values are written as plain_values.cpp says; everything else is
/// pickled by the host with protocol 5, its buffers out of band, so that an array is copied once on the way
/// in and never on the way out.
///
/// A value starts with a tag. 'P' is followed by PickleHeader, the buffers' lengths, the pickle and the
/// buffers, each at a multiple of 64 from the value's start.
#include <optional>
#include <string>

#include "copy.hpp"
#include "plain_values.hpp"
#include "py.hpp"

namespace weft {

PyObject* device_lost;

namespace {

constexpr size_t kAlign = 64;
/// Buffers of a smaller value lie where the allocator puts them.
constexpr size_t kAlignedBytes = 1024;
/// So long a shutdown waits for others to finish what they write: the function that writes a LateArray may
/// itself wait for the shutdown.
constexpr int64_t kLateWriterNs = 5'000'000'000;

struct PickleHeader {
    char tag;
    char pad[3];
    uint32_t buffers;
    uint64_t bytes;
};
static_assert(sizeof(PickleHeader) == 16);

PyObject* pickle_loads;
PyObject* buffers_keyword;  // ("buffers",)
PyObject* name_serialize;
PyObject* name_load_writable;

size_t aligned(size_t at) {
    return (at + kAlign - 1) & ~(kAlign - 1);
}

/// Buffers of a pickle, exported while they are written. In the place of one there may be a pair: how many
/// bytes there will be, and a function of Python that writes them into the memory that it is given.
class Views {
  public:
    ~Views() {
        for (Py_buffer& view : views_)
            PyBuffer_Release(&view);
    }
    bool open(PyObject* list) {
        const Py_ssize_t count = PyList_GET_SIZE(list);
        views_.reserve(size_t(count));
        for (Py_ssize_t i = 0; i < count; ++i) {
            Py_buffer view{};
            PyObject* item = PyList_GET_ITEM(list, i);
            if (PyTuple_CheckExact(item)) {
                view.len = PyLong_AsSsize_t(PyTuple_GET_ITEM(item, 0));
                view.internal = PyTuple_GET_ITEM(item, 1);  // kept by the list
                if (view.len < 0) return false;
            } else if (PyObject_GetBuffer(item, &view, PyBUF_ANY_CONTIGUOUS) != 0) {
                return false;
            }
            views_.push_back(view);
        }
        return true;
    }
    const std::vector<Py_buffer>& all() const { return views_; }
    /// What writes this one; null where its bytes are there.
    static PyObject* writer(const Py_buffer& view) {
        return view.obj == nullptr ? static_cast<PyObject*>(view.internal) : nullptr;
    }

  private:
    std::vector<Py_buffer> views_;
};

size_t pickled_size(size_t pickle, const Views& views) {
    size_t at = sizeof(PickleHeader) + views.all().size() * sizeof(uint64_t) + pickle;
    for (const Py_buffer& view : views.all())
        at = aligned(at) + size_t(view.len);
    return at;
}

/// Have a function of Python write so many bytes. False with an exception set.
bool write_late(char* to, const Py_buffer& view) {
    Owned memory(PyMemoryView_FromMemory(to, view.len, PyBUF_WRITE));
    Owned done(memory ? PyObject_CallOneArg(Views::writer(view), memory.get()) : nullptr);
    if (!done) return false;
    if (Py_REFCNT(memory.get()) == 1) return true;
    PyErr_SetString(PyExc_BufferError,
                    "the function that writes a LateArray kept the array, or a view of it: once it is stored "
                    "nobody may write to it. Let go of it before the function returns");
    return false;
}

/// Of memory that stays, so that others may run meanwhile: it is exported, or pinned.
void finish(Copies&& copies) {
    if (copies.bytes() <= (1 << 20)) return copies.finish();
    Py_BEGIN_ALLOW_THREADS;
    copies.finish();
    Py_END_ALLOW_THREADS;
}

/// False with an exception set.
bool write_pickled(char* to, const char* pickle, size_t bytes, const Views& views) {
    const PickleHeader header{'P', {}, uint32_t(views.all().size()), bytes};
    memcpy(to, &header, sizeof header);
    size_t at = sizeof header;
    for (const Py_buffer& view : views.all()) {
        const auto length = uint64_t(view.len);
        memcpy(to + at, &length, sizeof length);
        at += sizeof length;
    }
    memcpy(to + at, pickle, bytes);
    at += bytes;
    Copies copies;
    for (const Py_buffer& view : views.all()) {
        const size_t start = aligned(at);
        memset(to + at, 0, start - at);
        if (Views::writer(view) == nullptr)
            copies.add(to + start, static_cast<const char*>(view.buf), size_t(view.len));
        else if (!write_late(to + start, view))
            return false;
        at = start + size_t(view.len);
    }
    finish(std::move(copies));
    return true;
}

thread_local uint32_t own_writers = 0;

/// While one exists, a shutdown by another thread waits: the arena's memory would be given to others.
class Writing {
  public:
    explicit Writing(Core& core) : core_(core) {
        core_.writers.fetch_add(1);
        ++own_writers;
    }
    Writing(const Writing&) = delete;
    ~Writing() {
        --own_writers;
        core_.writers.fetch_sub(1);
        if (core_.is_closed()) futex_wake(core_.writers);  // partner: wait_for_writers
    }

  private:
    Core& core_;
};

bool place(Core& core, size_t bytes, Buffer& out, ProcessId owner, Encoded& encoded, char*& to,
           bool in_arena = false) {
    if (bytes <= kInlineBytes && !in_arena) {
        encoded.bytes = bytes;
        to = out.extend(bytes);
        return true;
    }
    encoded.where = Where::arena;
    return allocate(core, bytes, owner, encoded.arena, to);
}

PyObject* decode_pickled(const char* data, size_t bytes, PyObject* keeper, bool writable) {
    Cursor head(data, bytes);
    const auto header = head.take<PickleHeader>();
    Cursor buffers(head.skip(header.buffers * sizeof(uint64_t)), header.buffers * sizeof(uint64_t));
    head.skip(header.bytes);
    if (header.buffers == 0) {
        Owned view(PyMemoryView_FromMemory(const_cast<char*>(data + sizeof header), Py_ssize_t(header.bytes),
                                           PyBUF_READ));
        if (!view) return nullptr;
        return PyObject_CallOneArg(pickle_loads, view.get());
    }
    Owned copy;
    size_t before = 0;  // so many bytes of the copy lie before the value, whose buffers are aligned thereby
    if (keeper == nullptr) {
        const auto room = Py_ssize_t(bytes < kAlignedBytes ? bytes : bytes + kAlign);
        copy = Owned(writable ? PyByteArray_FromStringAndSize(nullptr, room)
                              : PyBytes_FromStringAndSize(nullptr, room));
        if (!copy) return nullptr;
        keeper = copy.get();
        char* to = writable ? PyByteArray_AS_STRING(keeper) : PyBytes_AS_STRING(keeper);
        if (bytes >= kAlignedBytes)
            before = aligned(reinterpret_cast<size_t>(to)) - reinterpret_cast<size_t>(to);
        memcpy(to + before, data, bytes);
    }
    Owned own;
    if (writable && !copy) {
        own = Owned(writable_memory(keeper));
        if (!own) return nullptr;
        keeper = own.get();
    }
    Owned whole(PyMemoryView_FromObject(keeper));
    Owned list(PyList_New(header.buffers));
    if (!whole || !list) return nullptr;
    const size_t pickle = sizeof header + header.buffers * sizeof(uint64_t);
    size_t at = pickle + header.bytes;
    const auto slice = [&](size_t start, size_t size) -> PyObject* {
        Owned from(PyLong_FromSize_t(before + start)), to(PyLong_FromSize_t(before + start + size));
        if (!from || !to) return nullptr;
        Owned range(PySlice_New(from.get(), to.get(), nullptr));
        return range ? PyObject_GetItem(whole.get(), range.get()) : nullptr;
    };
    for (uint32_t i = 0; i < header.buffers; ++i) {
        const auto length = buffers.take<uint64_t>();
        at = aligned(at);
        if (at > bytes || length > bytes - at) cut_short();
        PyObject* view = slice(at, length);
        if (view == nullptr) return nullptr;
        PyList_SET_ITEM(list.get(), i, view);
        at += length;
    }
    Owned view(slice(pickle, header.bytes));
    if (!view) return nullptr;
    if (writable) {
        Owned to_host(host());
        PyObject* args[] = {to_host.get(), view.get(), list.get()};
        return to_host ? PyObject_VectorcallMethod(name_load_writable, args,
                                                   3 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr)
                       : nullptr;
    }
    PyObject* args[] = {view.get(), list.get()};
    return PyObject_Vectorcall(pickle_loads, args, 1, buffers_keyword);
}

}  // namespace

bool write_filled_head(char* to, std::string_view pickle, uint64_t bytes) {
    constexpr size_t kBefore = sizeof(PickleHeader) + sizeof bytes;
    static_assert(kFilledAt % kAlign == 0);
    if (pickle.size() > kFilledAt - kBefore) return false;
    // What follows a pickle's end is not read.
    const PickleHeader header{'P', {}, 1, kFilledAt - kBefore};
    memcpy(to, &header, sizeof header);
    memcpy(to + sizeof header, &bytes, sizeof bytes);
    memcpy(to + kBefore, pickle.data(), pickle.size());
    memset(to + kBefore + pickle.size(), 0, kFilledAt - kBefore - pickle.size());
    return true;
}

void wait_for_writers(Core& core) {
    const int64_t until = now_ns() + kLateWriterNs;
    uint32_t left;
    while ((left = core.writers.load()) > own_writers && now_ns() < until)
        futex_wait(core.writers, left, until - now_ns());
}

PyObject* Subject::text() const {
    const std::string of = task.empty() ? "" : " of task " + std::string(task);
    if (keyword != nullptr) return PyUnicode_FromFormat("%s[%R]%s", root, keyword, of.c_str());
    if (index >= 0) return PyUnicode_FromFormat("%s[%ld]%s", root, index, of.c_str());
    return PyUnicode_FromFormat("%s%s", root, of.c_str());
}

bool encode_value(Core& core, PyObject* value, Buffer& out, Nested& nested, ProcessId owner, Encoded& encoded,
                  const Subject& subject) {
    encoded = {};
    const size_t start = out.size();
    const int plain = encode_plain(value, out);
    if (plain < 0) return false;
    if (plain == 1 && out.size() - start <= kInlineBytes) {
        encoded.bytes = out.size() - start;
        return true;
    }
    out.resize(start);
    char* to = nullptr;
    std::optional<Writing> writing;
    if (PyBytes_CheckExact(value)) {
        const auto bytes = uint64_t(PyBytes_GET_SIZE(value));
        writing.emplace(core);
        if (!place(core, 1 + sizeof bytes + bytes, out, owner, encoded, to)) return false;
        *to = 'B';
        memcpy(to + 1, &bytes, sizeof bytes);
        finish({to + 1 + sizeof bytes, PyBytes_AS_STRING(value), bytes});
    } else {
        nested.core = &core;
        const size_t refs_before = nested.entries.size();
        Collecting scope(nested);
        Owned text(subject.text()), to_host(text ? host() : nullptr);
        PyObject* args[] = {to_host.get(), value, text.get()};
        Owned pair(to_host ? PyObject_VectorcallMethod(name_serialize, args,
                                                       3 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr)
                           : nullptr);
        if (!pair) return false;
        if (core.is_closed()) return raise_over(core) != nullptr;
        if (nested.entries.size() - refs_before > kMostNested) {
            PyErr_Format(PyExc_ValueError, "%U holds %zu refs, and a value can hold %zu: split it",
                         text.get(), nested.entries.size() - refs_before, kMostNested);
            return false;
        }
        Views views;
        PyObject* pickle = PyTuple_GET_ITEM(pair.get(), 0);
        if (!views.open(PyTuple_GET_ITEM(pair.get(), 1))) return false;
        const auto bytes = size_t(PyBytes_GET_SIZE(pickle));
        writing.emplace(core);
        std::optional<ArenaRef> filled;
        if (views.all().size() == 1 &&
            !take_filled(core, views.all()[0], {PyBytes_AS_STRING(pickle), bytes}, owner, filled))
            return false;
        if (filled) {
            encoded.where = Where::arena;
            encoded.arena = *filled;
            core.arena().seal(encoded.arena, owner == core.self());
            return true;
        }
        const bool in_arena = PyTuple_GET_SIZE(pair.get()) == 3;  // it can be lost, so it needs lineage
        if (!place(core, pickled_size(bytes, views), out, owner, encoded, to, in_arena)) return false;
        const bool is_written = write_pickled(to, PyBytes_AS_STRING(pickle), bytes, views);
        if (!is_written || core.is_closed()) {
            if (encoded.where == Where::arena) core.arena().abandon(encoded.arena);
            return is_written && raise_over(core) != nullptr;
        }
    }
    if (encoded.where == Where::arena) core.arena().seal(encoded.arena, owner == core.self());
    return true;
}

PyObject* decode_value(const char* data, size_t bytes, PyObject* keeper, bool writable) {
    if (bytes == 0) Py_RETURN_NONE;
    try {
        if (*data == 'P') return decode_pickled(data, bytes, keeper, writable);
        Cursor whole(data, bytes);
        if (*data != 'B') return decode_plain(whole);
        whole.skip(1);
        const auto length = whole.take<uint64_t>();
        const char* from = whole.skip(length);
        Owned copy(PyBytes_FromStringAndSize(nullptr, Py_ssize_t(length)));
        if (copy) finish({PyBytes_AS_STRING(copy.get()), from, length});
        return copy.release();
    } catch (const Malformed&) {
        return damaged();
    }
}

bool init_values() {
    Owned pickle(PyImport_ImportModule("pickle"));
    if (!pickle) return false;
    pickle_loads = PyObject_GetAttrString(pickle.get(), "loads");
    buffers_keyword = Py_BuildValue("(s)", "buffers");
    name_serialize = PyUnicode_InternFromString("serialize");
    name_load_writable = PyUnicode_InternFromString("load_writable");
    device_lost = PyErr_NewException("weft._native.DeviceLost", nullptr, nullptr);
    return pickle_loads && buffers_keyword && name_serialize && name_load_writable && device_lost;
}

}  // namespace weft
