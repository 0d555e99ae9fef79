/// Python values to bytes and back. Plain values take the path here; everything else is pickled by the host
/// with protocol 5, its buffers out of band, so that an array is copied once on the way in and never on the
/// way out.
///
/// A value starts with a tag. 'P' is followed by PickleHeader, the buffers' lengths, the pickle and the
/// buffers, each at a multiple of 64 from the value's start.
#include <optional>
#include <string>

#include "copy.hpp"
#include "py.hpp"

namespace weft {

PyObject* device_lost;

namespace {

constexpr int kPlainDepth = 4;
constexpr Py_ssize_t kPlainItems = 256;
/// Of a list or tuple that has numbers only.
constexpr Py_ssize_t kPlainNumbers = 4096;
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

void add_tagged(Buffer& out, char tag, const void* data, size_t bytes) {
    char* at = out.extend(1 + bytes);
    *at = tag;
    memcpy(at + 1, data, bytes);
}

void add_sized(Buffer& out, char tag, const char* data, Py_ssize_t bytes) {
    char* at = out.extend(5 + size_t(bytes));
    *at = tag;
    const auto size = uint32_t(bytes);
    memcpy(at + 1, &size, sizeof size);
    memcpy(at + 5, data, size_t(bytes));
}

bool has_numbers_only(PyObject* sequence) {
    const Py_ssize_t count = PySequence_Fast_GET_SIZE(sequence);
    if (count > kPlainNumbers) return false;
    for (Py_ssize_t i = 0; i < count; ++i) {
        const PyTypeObject* type = Py_TYPE(PySequence_Fast_GET_ITEM(sequence, i));
        if (type != &PyLong_Type && type != &PyFloat_Type && type != &PyBool_Type) return false;
    }
    return true;
}

/// 1 when written, 0 when the value is not plain, -1 with an exception set.
/// Mutable containers hold only immutable things, so that no shared identity is lost.
int encode_plain(PyObject* value, Buffer& out, int depth) {
    if (value == Py_None) return out.add('N'), 1;
    if (value == Py_True) return out.add('T'), 1;
    if (value == Py_False) return out.add('F'), 1;
    PyTypeObject* type = Py_TYPE(value);
    if (type == &PyLong_Type) {
        int overflow = 0;
        const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
        if (overflow != 0) return 0;
        return add_tagged(out, 'i', &number, sizeof number), 1;
    }
    if (type == &PyFloat_Type) {
        const double number = PyFloat_AS_DOUBLE(value);
        return add_tagged(out, 'f', &number, sizeof number), 1;
    }
    if (type == &PyUnicode_Type) {
        Py_ssize_t bytes = 0;
        const char* text = PyUnicode_AsUTF8AndSize(value, &bytes);
        if (text == nullptr) return PyErr_Clear(), 0;  // lone surrogates: pickle keeps them
        if (size_t(bytes) > kInlineBytes / 2) return 0;
        return add_sized(out, 's', text, bytes), 1;
    }
    if (type == &PyBytes_Type) {
        if (size_t(PyBytes_GET_SIZE(value)) > kInlineBytes / 2) return 0;
        return add_sized(out, 'b', PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value)), 1;
    }
    if (depth == 0) return 0;
    const bool is_tuple = type == &PyTuple_Type;
    if (is_tuple || (type == &PyList_Type && depth == kPlainDepth)) {
        const Py_ssize_t count = PySequence_Fast_GET_SIZE(value);
        if (count > kPlainItems && (depth != kPlainDepth || !has_numbers_only(value))) return 0;
        const auto size = uint32_t(count);
        add_tagged(out, is_tuple ? 't' : 'l', &size, sizeof size);
        for (Py_ssize_t i = 0; i < count; ++i)
            if (const int done = encode_plain(PySequence_Fast_GET_ITEM(value, i), out, depth - 1); done != 1)
                return done;
        return 1;
    }
    if (type == &PyDict_Type && depth == kPlainDepth) {
        if (PyDict_GET_SIZE(value) > kPlainItems) return 0;
        const auto size = uint32_t(PyDict_GET_SIZE(value));
        add_tagged(out, 'd', &size, sizeof size);
        Py_ssize_t at = 0;
        PyObject *key = nullptr, *item = nullptr;
        while (PyDict_Next(value, &at, &key, &item)) {
            if (const int done = encode_plain(key, out, depth - 1); done != 1) return done;
            if (const int done = encode_plain(item, out, depth - 1); done != 1) return done;
        }
        return 1;
    }
    return 0;
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

PyObject* damaged() {
    PyErr_SetString(PyExc_RuntimeError, "weft: a value's bytes are damaged");
    return nullptr;
}

/// Throws Malformed at the end of the bytes.
struct PlainReader {
    Cursor bytes;

    template <class T>
    T take() {
        return bytes.take<T>();
    }
    /// Each item takes a byte or more: so many there can be.
    Py_ssize_t count() {
        const auto items = take<uint32_t>();
        if (items > bytes.left()) cut_short();
        return Py_ssize_t(items);
    }

    PyObject* read(int depth = kPlainDepth) {
        if (depth < 0) return damaged();
        switch (take<char>()) {
            case 'N':
                Py_RETURN_NONE;
            case 'T':
                Py_RETURN_TRUE;
            case 'F':
                Py_RETURN_FALSE;
            case 'i':
                return PyLong_FromLongLong(take<long long>());
            case 'f':
                return PyFloat_FromDouble(take<double>());
            case 's': {
                const auto size = take<uint32_t>();
                return PyUnicode_DecodeUTF8(bytes.skip(size), size, nullptr);
            }
            case 'b': {
                const auto size = take<uint32_t>();
                return PyBytes_FromStringAndSize(bytes.skip(size), size);
            }
            case 't': {
                const Py_ssize_t size = count();
                Owned tuple(PyTuple_New(size));
                for (Py_ssize_t i = 0; tuple && i < size; ++i) {
                    PyObject* item = read(depth - 1);
                    if (item == nullptr) return nullptr;
                    PyTuple_SET_ITEM(tuple.get(), i, item);
                }
                return tuple.release();
            }
            case 'l': {
                const Py_ssize_t size = count();
                Owned list(PyList_New(size));
                for (Py_ssize_t i = 0; list && i < size; ++i) {
                    PyObject* item = read(depth - 1);
                    if (item == nullptr) return nullptr;
                    PyList_SET_ITEM(list.get(), i, item);
                }
                return list.release();
            }
            case 'd': {
                const Py_ssize_t size = count();
                Owned dict(PyDict_New());
                for (Py_ssize_t i = 0; dict && i < size; ++i) {
                    Owned key(read(depth - 1));
                    if (!key) return nullptr;
                    Owned item(read(depth - 1));
                    if (!item || PyDict_SetItem(dict.get(), key.get(), item.get()) != 0) return nullptr;
                }
                return dict.release();
            }
            default:
                return damaged();
        }
    }
};

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

/// Blocks without the GIL until the daemon has answered once more. False with an exception set.
bool wait_for_answer(Core& core, const std::atomic<uint64_t>& answers, uint64_t before) {
    for (;;) {
        Pump::Waited result;
        Py_BEGIN_ALLOW_THREADS;
        result = core.pump.wait_until([&] { return answers.load(std::memory_order_acquire) != before; }, -1,
                                      Pump::kNeverLend);
        Py_END_ALLOW_THREADS;
        if (result == Pump::Waited::done) return true;
        if (result == Pump::Waited::closed) return raise_over(core) != nullptr;
        if (!look_for_signals(core)) return false;
    }
}

/// Ask the daemon for room and wait for what it says. False with an exception set.
bool ask_for_room(Core& core, uint64_t bytes, StoreRequests::Space& answer) {
    uint64_t before = 0, number = 0;
    {
        std::lock_guard lock(core.mutex());
        before = core.store_requests.space_answers.load();
        number = core.store_requests.ask_space(bytes);
    }
    answer = {};
    bool is_whole = !core.is_lost();
    while (is_whole && !answer.is_answered) {  // an answer may be another thread's
        is_whole = wait_for_answer(core, core.store_requests.space_answers, before);
        std::lock_guard lock(core.mutex());
        before = core.store_requests.space_answers.load();
        answer = core.store_requests.space[number];
    }
    {
        std::lock_guard lock(core.mutex());
        core.store_requests.space.erase(number);
    }
    if (core.is_lost() && PyErr_Occurred() == nullptr) raise_error(node_lost_error());
    return is_whole && !core.is_lost();
}

bool no_room(Core& core, uint64_t bytes, const std::string& text) {
    raise_error(
        error_value(ErrorCode::out_of_memory,
                    "no room for an object of " + std::to_string(bytes) + " bytes in the object store of " +
                        std::to_string(core.endpoint.segment.header().arena_bytes) + " bytes. " + text));
    return false;
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

bool allocate(Core& core, uint64_t bytes, ProcessId owner, ArenaRef& ref, char*& data) {
    // Others may take what was freed; as long as something is freed, asking again is worth it.
    StoreRequests::Space answer{true, 1, ""};
    while (!core.arena().allocate(bytes, owner, ref, data)) {
        if (core.is_closed()) return raise_over(core) != nullptr;
        if (answer.freed == 0) return no_room(core, bytes, answer.text);
        if (!ask_for_room(core, bytes, answer)) return false;
    }
    return true;
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
    const int plain = encode_plain(value, out, kPlainDepth);
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
        if (*data != 'B') return PlainReader{whole}.read();
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

namespace {

/// A task that waits for what must be made again lends its CPUs at once: it may need them.
int64_t rebuild_lend(const Core& core) {
    return core.endpoint.is_worker && context != nullptr ? Pump::kLendAtOnce : Pump::kNeverLend;
}

}  // namespace

AskedAhead::~AskedAhead() {
    if (keys_.empty()) return;
    std::lock_guard lock(core_.mutex());
    for (const uint64_t key : keys_)
        core_.store_requests.end_restore(key);
}

void AskedAhead::ask(const ArenaRef& arena) {
    if (!core_.arena().is_elsewhere(arena)) return;
    keys_.push_back(arena.key());
    core_.store_requests.ask_restore(keys_.back());
}

namespace {

/// Waits until the bytes are here, or a problem why they cannot be. False with an exception set.
bool restore(Core& core, uint64_t key, std::string& problem) {
    uint64_t before;
    uint32_t answers;
    {
        std::lock_guard lock(core.mutex());
        before = core.store_requests.restore_answers.load();
        core.store_requests.ask_restore(key);
        answers = core.store_requests.restoring[key].answers;
    }
    bool is_interrupted = false;
    for (bool answered = false; !answered && !is_interrupted;) {
        is_interrupted =
            !core.is_lost() && !wait_for_answer(core, core.store_requests.restore_answers, before);
        std::lock_guard lock(core.mutex());
        before = core.store_requests.restore_answers.load();
        const StoreRequests::Restoring& state = core.store_requests.restoring[key];
        answered = core.is_lost() || state.answers != answers;
        if (state.answers != answers)
            problem = state.error;
        else if (core.is_lost())
            problem = node_lost_error();
        if (answered || is_interrupted) core.store_requests.end_restore(key);
    }
    return !is_interrupted;
}

}  // namespace

PyObject* value_in_arena(Core& core, const ArenaRef& arena, std::string& lost, bool writable) {
    for (;;) {
        if (core.is_closed()) return raise_over(core);
        char* data = nullptr;
        switch (core.arena().pin(arena, data)) {
            case PinResult::ok: {
                const bool is_inside = arena.bytes <= core.endpoint.segment.object(arena.entry).bytes;
                Owned keeper(is_inside ? make_pin(core, arena, data) : damaged());
                if (!keeper) {
                    core.arena().unpin(arena);
                    return nullptr;
                }
                PyObject* value = decode_value(data, arena.bytes, keeper.get(), writable);
                if (value == nullptr && PyErr_ExceptionMatches(device_lost)) {
                    PyErr_Clear();
                    const uint64_t key = arena.key();
                    const bool is_import = core.arena().is_import(arena);
                    std::lock_guard lock(core.mutex());
                    if (is_import) core.endpoint.send_daemon(Kind::DEVICE_LOST, &key, sizeof key);
                    core.arena().remove(arena);  // for all who have it: its owner has it made again
                    lost = lost_for_good();
                }
                return value;
            }
            case PinResult::spilled: {
                std::string problem;
                if (!restore(core, arena.key(), problem)) return nullptr;
                if (is_error_value(problem)) return lost = problem, nullptr;
                if (!problem.empty()) return raise_error(error_value(ErrorCode::out_of_memory, problem));
                continue;
            }
            case PinResult::lost:
                lost = lost_for_good();
                return nullptr;
        }
    }
}

namespace {

/// Waits for an object that is being made again. False with an exception set.
bool comes_again(Core& core, const Entry* entry, int64_t deadline_ns) {
    for (;;) {
        Pump::Waited waited;
        Py_BEGIN_ALLOW_THREADS;
        waited = core.pump.wait_until([entry] { return entry->is_done(); }, deadline_ns, rebuild_lend(core));
        Py_END_ALLOW_THREADS;
        if (waited == Pump::Waited::done) return true;
        if (waited == Pump::Waited::timed_out)
            return raise_error(error_value(ErrorCode::get_timed_out,
                                           "the object was lost and is being made again, which takes "
                                           "longer than get() was to wait")) != nullptr;
        if (waited == Pump::Waited::closed) return raise_over(core) != nullptr;
        if (!look_for_signals(core)) return false;
    }
}

}  // namespace

PyObject* value_of(Core& core, Entry* entry, int64_t deadline_ns, bool writable) {
    for (;;) {
        switch (entry->now()) {
            case ObjectState::failed:
                return raise_error(entry->value.view());
            case ObjectState::inlined:
                return decode_value(entry->value.data(), entry->value.size(), nullptr, writable);
            case ObjectState::pending:
                if (!comes_again(core, entry, deadline_ns)) return nullptr;
                continue;
            case ObjectState::in_arena:
                break;
        }
        ArenaRef arena;
        {
            std::lock_guard lock(core.mutex());
            if (entry->now() != ObjectState::in_arena) continue;
            arena = entry->arena;
        }
        std::string lost;
        PyObject* value = value_in_arena(core, arena, lost, writable);
        if (value != nullptr || lost.empty()) return value;
        bool is_rebuilt;
        {
            std::lock_guard lock(core.mutex());
            is_rebuilt = core.lineage.recover(entry, arena);
            if (!is_rebuilt && core.lineage.knows_why_lost(entry)) lost = core.lineage.why_lost(entry);
        }
        core.pump.wake_waiters();  // for others it may have failed
        if (!is_rebuilt) return raise_error(lost);
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
