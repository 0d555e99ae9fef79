/// get, wait, and the next item of a generator.
#include "blocking.hpp"
#include "py.hpp"

namespace weft {

namespace {

/// What one wait() has done to have the bytes of values here that are on other nodes.
class Bytes {
  public:
    Bytes(Core& core, const std::vector<Entry*>& entries)
        : core_(core), entries_(entries), is_ready_(entries.size()), asked_(entries.size()) {}
    Bytes(const Bytes&) = delete;
    ~Bytes() {
        std::lock_guard lock(core_.mutex());
        for (const std::optional<uint64_t>& key : asked_)
            if (key) core_.store_requests.end_restore(*key);
    }

    /// How many are done and here. Asks for those that are done and elsewhere, once.
    size_t look() {
        std::lock_guard lock(core_.mutex());
        done_seen_ = core_.objects.marked_done.load();
        answers_seen_ = core_.store_requests.restore_answers.load();
        size_t count = 0;
        for (size_t i = 0; i < entries_.size(); ++i) {
            entries_[i]->marked = true;
            is_ready_[i] = entries_[i]->is_done() && is_here(i);
            count += is_ready_[i] ? 1 : 0;
        }
        return count;
    }
    bool is_ready(size_t i) const { return is_ready_[i]; }
    /// Whether there may be more since the last look. Called with and without the mutex.
    bool has_changed() const {
        return core_.objects.marked_done.load(std::memory_order_acquire) != done_seen_ ||
               core_.store_requests.restore_answers.load(std::memory_order_acquire) != answers_seen_;
    }

    /// With the mutex held.
    static bool is_elsewhere(Core& core, const Entry* entry) {
        return entry->where == Where::arena && core.arena().is_elsewhere(entry->arena);
    }

  private:
    bool is_here(size_t i) {
        if (!is_elsewhere(core_, entries_[i])) return true;
        const ArenaRef& arena = entries_[i]->arena;
        const uint64_t key = arena.key();
        if (asked_[i] == key) return !core_.store_requests.restoring.at(key).error.empty();  // get() says why
        if (asked_[i]) core_.store_requests.end_restore(*asked_[i]);  // it was made again meanwhile
        asked_[i] = key;
        core_.store_requests.ask_restore(key);
        return false;
    }

    Core& core_;
    const std::vector<Entry*>& entries_;
    std::vector<bool> is_ready_;
    std::vector<std::optional<uint64_t>> asked_;  ///< keys of what is on its way
    uint64_t done_seen_ = 0, answers_seen_ = 0;
};

/// Waits until so many are done and here. False with an exception set.
bool have_here(Core& core, const std::vector<Entry*>& entries, Bytes& bytes, size_t wanted,
               int64_t deadline) {
    const auto changed = [&] { return bytes.has_changed(); };
    while (bytes.look() < wanted && !core.is_lost()) {
        start_fetching(core, entries);
        if (!block(core, changed, deadline, true)) return !PyErr_Occurred();
    }
    return true;
}

/// Whether a value that is done is to be brought here first.
bool is_elsewhere(Core& core, const Entry* entry) {
    if (entry->now() != ObjectState::in_arena) return false;
    std::lock_guard lock(core.mutex());
    return Bytes::is_elsewhere(core, entry);
}

/// The entries of refs that the caller keeps: in a tuple of its own, since another thread, or what runs when
/// a value is unpickled, may change the list and so end what only the list held.
bool collect(PyObject* refs, std::vector<Entry*>& entries) {
    const Py_ssize_t count = PyTuple_GET_SIZE(refs);
    entries.reserve(size_t(count));
    for (Py_ssize_t i = 0; i < count; ++i) {
        PyObject* item = PyTuple_GET_ITEM(refs, i);
        if (!is_ref(item)) {
            PyErr_Format(PyExc_TypeError, "expected a list of ObjectRefs, but item %zd is a %s", i,
                         Py_TYPE(item)->tp_name);
            return false;
        }
        Entry* entry = entry_of(item);
        if (entry == nullptr) return false;
        entries.push_back(entry);
    }
    return true;
}

PyObject* timed_out(size_t pending, size_t count, double seconds) {
    char text[160];
    snprintf(text, sizeof text,
             "get() waited %g s and %zu of %zu objects are still not there. weft.explain(ref) tells why",
             seconds, pending, count);
    return raise_error(error_value(ErrorCode::get_timed_out, text));
}

PyObject* get_one(Core& core, PyObject* ref, double seconds, bool writable) {
    Entry* entry = entry_of(ref);
    if (entry == nullptr) return nullptr;
    core.pump.advance_epoch();
    const int64_t deadline = deadline_after(seconds);
    if (!entry->is_done()) {
        core.pump.poll();
        if (!entry->is_done()) {
            if (!entry->owned) start_fetching(core, {entry});
            const RecordedWait recorded(core, entry->id, 1);
            if (!block(core, [entry] { return entry->is_done(); }, deadline, !entry->owned, 0, {&entry, 1}))
                return PyErr_Occurred() ? nullptr : timed_out(1, 1, seconds);
        }
    }
    return value_of(core, entry, deadline, writable);
}

/// Of values that are done: those whose bytes are on other nodes, unless there is only one.
void ask_for_all(Core& core, const std::vector<Entry*>& entries, AskedAhead& ahead) {
    const auto in_arena = [](const Entry* entry) { return entry->now() == ObjectState::in_arena; };
    if (entries.size() < 2 || std::none_of(entries.begin(), entries.end(), in_arena)) return;
    std::lock_guard lock(core.mutex());
    for (const Entry* entry : entries)
        if (in_arena(entry)) ahead.ask(entry->arena);
}

PyObject* get_many(Core& core, PyObject* list, double seconds, bool writable) {
    Owned kept(PyList_AsTuple(list));
    std::vector<Entry*> entries;
    if (!kept || !collect(kept.get(), entries)) return nullptr;
    core.pump.advance_epoch();
    const int64_t deadline = deadline_after(seconds);
    const size_t count = entries.size();
    size_t done = 0;
    uint64_t failures = core.objects.failures.load(std::memory_order_acquire);
    bool failed = false;
    const auto all_done = [&] {
        // One that failed ends the wait, even when others never come, before it or behind.
        for (; done < count && !failed && entries[done]->is_done(); ++done)
            failed = entries[done]->now() == ObjectState::failed;
        if (failed || done == count) return true;
        const uint64_t now = core.objects.failures.load(std::memory_order_acquire);
        if (now != failures) {
            failures = now;
            for (size_t i = done; i < count && !failed; ++i)
                failed = entries[i]->now() == ObjectState::failed;
        }
        return failed;
    };
    if (start_fetching(core, entries)) {
        for (Entry* entry : entries)
            failed = failed || entry->now() == ObjectState::failed;
        const bool fetching_only =
            std::all_of(entries.begin(), entries.end(), [](Entry* e) { return !e->owned || e->is_done(); });
        if (!all_done()) {
            const RecordedWait recorded(core, entries[count - 1]->id, count);
            if (!block(core, all_done, deadline, fetching_only, 0, {entries.data(), count}))
                return PyErr_Occurred() ? nullptr : timed_out(count - done, count, seconds);
        }
    }
    if (failed)
        for (Entry* entry : entries)
            if (entry->now() == ObjectState::failed) return value_of(core, entry);
    AskedAhead ahead(core);
    ask_for_all(core, entries, ahead);
    Owned values(PyList_New(Py_ssize_t(count)));
    for (size_t i = 0; values && i < count; ++i) {
        PyObject* value = value_of(core, entries[i], deadline, writable);
        if (value == nullptr) return nullptr;
        PyList_SET_ITEM(values.get(), Py_ssize_t(i), value);
    }
    return values.release();
}

}  // namespace

PyObject* py_get(PyObject*, PyObject* const* args, Py_ssize_t count) {
    if (count < 1 || count > 3)
        return PyErr_SetString(PyExc_TypeError, "get(refs, timeout_s=-1, writable=False)"), nullptr;
    const double seconds = count > 1 ? PyFloat_AsDouble(args[1]) : -1;
    if (seconds == -1 && PyErr_Occurred()) return nullptr;
    const bool writable = count == 3 && args[2] == Py_True;
    const Attached core;
    if (!core) return nullptr;
    if (is_ref(args[0])) return get_one(*core, args[0], seconds, writable);
    if (PyList_Check(args[0])) return get_many(*core, args[0], seconds, writable);
    PyErr_Format(PyExc_TypeError, "expected an ObjectRef or a list of them, but got a %s",
                 Py_TYPE(args[0])->tp_name);
    return nullptr;
}

PyObject* py_wait(PyObject*, PyObject* const* args, Py_ssize_t count) {
    if (count < 2 || count > 5 || !PyList_Check(args[0]))
        return PyErr_SetString(PyExc_TypeError,
                               "wait(list of refs, num_returns, timeout_s=-1, due_ns=0, fetch_local=True)"),
               nullptr;
    Py_ssize_t wanted = PyLong_AsSsize_t(args[1]);
    const double seconds = count > 2 ? PyFloat_AsDouble(args[2]) : -1;
    const int64_t due_ns = count > 3 ? PyLong_AsLongLong(args[3]) : 0;
    const bool fetch = count <= 4 || args[4] == Py_True;
    if (PyErr_Occurred()) return nullptr;
    const Attached core;
    if (!core) return nullptr;
    core->pump.advance_epoch();
    core->pump.poll();
    PyObject* list = args[0];
    Py_ssize_t size = PyList_GET_SIZE(list);

    // The common case in a loop over many: the first ones are there, and nothing else is looked at.
    Py_ssize_t first = 0;
    while (first < size && first < wanted) {
        PyObject* item = PyList_GET_ITEM(list, first);
        if (!is_ref(item)) break;
        Entry* entry = entry_of(item);
        if (entry == nullptr) return nullptr;
        if (!entry->is_done() || (fetch && is_elsewhere(*core, entry))) break;
        ++first;
    }
    if (first == wanted) {
        Owned ready(PyList_GetSlice(list, 0, first)), rest(PyList_GetSlice(list, first, size));
        return ready && rest ? PyTuple_Pack(2, ready.get(), rest.get()) : nullptr;
    }

    Owned kept(PyList_AsTuple(list));
    std::vector<Entry*> entries;
    if (!kept || !collect(kept.get(), entries)) return nullptr;
    size = PyTuple_GET_SIZE(kept.get());
    wanted = std::min(wanted, size);  // another thread may have made the list shorter
    const auto count_done = [&] {
        size_t done = 0;
        for (Entry* entry : entries)
            done += entry->is_done() ? 1 : 0;
        return done;
    };
    size_t done = count_done();
    const int64_t deadline = deadline_after(seconds);
    if (done < size_t(wanted) && seconds != 0) {
        start_fetching(*core, entries);
        uint64_t seen;
        {
            std::lock_guard lock(core->mutex());
            for (Entry* entry : entries)
                entry->marked = true;
            seen = core->objects.marked_done.load();
        }
        const auto enough = [&] {
            const uint64_t now = core->objects.marked_done.load(std::memory_order_acquire);
            if (done < size_t(wanted) && now - seen < size_t(wanted) - done) return false;
            seen = now;
            done = count_done();
            return done >= size_t(wanted);
        };
        done = count_done();
        if (done < size_t(wanted)) {
            const RecordedWait recorded(*core, entries[0]->id, entries.size());
            if (!block(*core, enough, deadline, false, due_ns, {entries.data(), entries.size()}) &&
                PyErr_Occurred())
                return nullptr;
        }
    }
    if (core.is_over()) return raise_over(*core);
    const bool looks = fetch && std::any_of(entries.begin(), entries.end(), [&](Entry* entry) {
                           return entry->is_done() && is_elsewhere(*core, entry);
                       });
    std::optional<Bytes> bytes;
    if (looks && !have_here(*core, entries, bytes.emplace(*core, entries), size_t(wanted), deadline))
        return nullptr;
    Owned ready(PyList_New(0)), rest(PyList_New(0));
    if (!ready || !rest) return nullptr;
    for (Py_ssize_t i = 0; i < size; ++i) {
        const bool is_ready = bytes ? bytes->is_ready(size_t(i)) : entries[size_t(i)]->is_done();
        const bool take = is_ready && PyList_GET_SIZE(ready.get()) < wanted;
        if (PyList_Append(take ? ready.get() : rest.get(), PyTuple_GET_ITEM(kept.get(), i)) != 0)
            return nullptr;
    }
    return PyTuple_Pack(2, ready.get(), rest.get());
}

/// next_item(generator ref, timeout_s): the next item's ref; None at the end; a timeout raises.
PyObject* py_next_item(PyObject*, PyObject* const* args, Py_ssize_t count) {
    if (count < 1 || count > 2 || !is_ref(args[0]))
        return PyErr_SetString(PyExc_TypeError, "next_item(ref of a generator task, timeout_s=-1)"), nullptr;
    const double seconds = count == 2 ? PyFloat_AsDouble(args[1]) : -1;
    if (PyErr_Occurred()) return nullptr;
    const Attached core;
    Entry* generator = core ? entry_of(args[0]) : nullptr;
    if (generator == nullptr) return nullptr;
    core->pump.advance_epoch();
    Stream* stream;
    {
        std::lock_guard lock(core->mutex());
        stream = stream_of(generator);
    }
    if (stream == nullptr)
        return PyErr_SetString(PyExc_ValueError, "the ref is not of a generator task"), nullptr;
    const auto done = [&] {
        return stream->available.load(std::memory_order_acquire) != 0 || generator->is_done();
    };
    core->pump.poll();
    if (!done() && !block(*core, done, deadline_after(seconds), false, 0, {&generator, 1}))
        return PyErr_Occurred() ? nullptr : timed_out(1, 1, seconds);
    if (core.is_over()) return raise_over(*core);
    Entry* item;
    {
        std::lock_guard lock(core->mutex());
        item = core->streams.take_item(generator);
    }
    if (item != nullptr) return make_ref(*core, ref_type, item);
    if (generator->now() == ObjectState::failed) return value_of(*core, generator);
    Py_RETURN_NONE;
}

}  // namespace weft
