/// What the Python-facing files share. Everything here needs the GIL unless it says otherwise.
#pragma once

#include <memory>
#include <optional>
#include <type_traits>

#include "core.hpp"
#include "owned.hpp"

namespace weft {

/// The process's attachment; null core when there is none.
struct Session {
    std::shared_ptr<Core> core;
    PyObject* host = nullptr;
    uint64_t number = 0;  ///< 0 when not attached
    uint64_t attaches = 0;
    bool is_fork = false;  ///< of a process that was attached; this one is not
    std::thread callbacks;
};
extern Session* const the_session;
inline Session& session() {
    return *the_session;
}
/// The core, or null with a RuntimeError set. It stays until Python code runs or the GIL is given up: who
/// does that in between is Attached.
Core* attached();
/// Sets the error of a call whose session was ended by another thread, or that goes on in a fork.
PyObject* raise_over(const Core& core);
/// New reference; null with a RuntimeError set when the session is over.
PyObject* host();

/// A call's hold on the core, for as long as it lives: another thread may shut the session down while this
/// one runs Python code or waits. Counted under the GIL, since two atomic operations are felt in each task.
class Attached {
  public:
    /// Empty, with a RuntimeError set, when the process is not attached.
    Attached() : core_(attached()) {
        if (core_ != nullptr) ++core_->calls;
    }
    Attached(const Attached&) = delete;
    Attached& operator=(const Attached&) = delete;
    ~Attached() {
        if (core_ != nullptr && --core_->calls == 0) core_->kept_for_calls.reset();
    }
    explicit operator bool() const { return core_ != nullptr; }
    Core& operator*() const { return *core_; }
    Core* operator->() const { return core_; }
    /// Whether its session is not this process's any more.
    bool is_over() const { return core_ != session().core.get(); }

  private:
    Core* const core_;
};

/// Runs the handlers of signals that have come. False with an exception set, also when one of them has forked
/// and this is the child.
bool look_for_signals(const Core& core);
/// A worker's answer is due, and this is a fork of the worker: it ends here, with the exception that is set.
void end_if_fork(const Core& core);
/// Sets the exception of an error value (through the host); returns null.
PyObject* raise_error(std::string_view error);
/// Turns a C++ exception into a Python one; returns null.
PyObject* translate_exception();
template <auto function>
struct FromPython;
template <class Result, class... Args, Result (*function)(Args...)>
struct FromPython<function> {
    static Result call(Args... args) {
        try {
            return function(args...);
        } catch (...) {
            translate_exception();
            if constexpr (std::is_pointer_v<Result>)
                return nullptr;
            else
                return -1;
        }
    }
};
/// A function as the interpreter may call it: what it throws, as when memory ends, is raised there, and
/// crosses no frame of C. Nothing may be thrown while the GIL is given up.
template <auto function>
constexpr auto* from_python = &FromPython<function>::call;

// ---- refs.cpp --------------------------------------------------------------------------------------

/// ObjectRef and ActorToken: one counted hold on an entry.
struct RefObject {
    PyObject_HEAD Entry* entry;
    uint64_t session;
    Id id;
    PyObject* weak_list;
};
extern PyTypeObject* ref_type;
extern PyTypeObject* token_type;
/// Takes over one hold of the core's entry. Null on error (the hold is dropped).
PyObject* make_ref(Core& core, PyTypeObject* type, Entry* entry);
/// The entry of a ref of this session, or null with an exception set.
Entry* entry_of(PyObject* ref);
inline bool is_ref(PyObject* object) {
    return Py_TYPE(object) == ref_type;
}
/// A ref of an object with nothing in it, whose refs are counted. Its id is the process's own and not the
/// task's: of two attempts each has marks of its own.
PyObject* py_mark(PyObject*, PyObject*);
bool add_ref_types(PyObject* module);

// ---- values.cpp, stored_values.cpp -----------------------------------------------------------------

/// Refs met while something is pickled for this core; each is held once for the collector.
struct Nested {
    std::vector<Entry*> entries;
    const Core* core = nullptr;
};
/// While one exists on a thread, pickled refs are collected in it.
class Collecting {
  public:
    explicit Collecting(Nested& nested);
    ~Collecting();
    static Nested* current();

  private:
    Nested* before_;
};

constexpr size_t kInlineBytes = 64 << 10;

/// Where an encoded value went: appended to the buffer, or into the arena.
struct Encoded {
    Where where = Where::inlined;
    size_t bytes = 0;  ///< appended
    ArenaRef arena;
};
/// Whose value it is, for the error when it cannot be pickled: "args[0] of task f".
struct Subject {
    const char* root = "value";
    long index = -1;
    PyObject* keyword = nullptr;
    std::string_view task;

    PyObject* text() const;
};
/// False with an exception set. `owner` is who will own it if it goes to the arena (sealed, not accepted).
bool encode_value(Core& core, PyObject* value, Buffer& out, Nested& nested, ProcessId owner, Encoded& encoded,
                  const Subject& subject);
/// New reference. `keeper` (may be null) is what keeps `data` valid; without one, buffers are copied. Buffers
/// of a writable value are private to it.
PyObject* decode_value(const char* data, size_t bytes, PyObject* keeper, bool writable = false);
/// The value of an object that is done, or null with its error set. Takes the mutex; may wait for a restore.
/// Waits until `deadline_ns` when its memory is gone and it must be made again.
PyObject* value_of(Core& core, Entry* entry, int64_t deadline_ns = -1, bool writable = false);
/// Null with an exception set; with `lost` set and none when its memory is gone.
PyObject* value_in_arena(Core& core, const ArenaRef& arena, std::string& lost, bool writable = false);
/// Has the bytes of values brought here that are on other nodes, all at the same time: who then reads one
/// after the other waits for the slowest, not for the sum. Ask with the core's mutex held.
class AskedAhead {
  public:
    explicit AskedAhead(Core& core) : core_(core) {}
    AskedAhead(const AskedAhead&) = delete;
    ~AskedAhead();
    void ask(const ArenaRef& arena);

  private:
    Core& core_;
    std::vector<uint64_t> keys_;  ///< of what was asked for
};
/// Until no other thread writes into the arena; the core is closed. Without the GIL.
void wait_for_writers(Core& core);
/// Room in the arena, asking the daemon to spill when there is none. False with an exception set.
bool allocate(Core& core, uint64_t bytes, ProcessId owner, ArenaRef& ref, char*& data);
/// Raised while a value is read whose bytes were in memory of a device, and are gone with their process.
extern PyObject* device_lost;
bool init_values();

// ---- memory.cpp ------------------------------------------------------------------------------------

/// Where the bytes of an array that is filled in place begin in its object: before them is room for its
/// pickle.
constexpr size_t kFilledAt = 4096;

/// A read-only view of an object in the core's arena; it takes over a pin.
PyObject* make_pin(Core& core, const ArenaRef& arena, char* data);
/// The bytes of a pin, or a copy of other bytes, private to who asks and writable.
PyObject* writable_memory(PyObject* keeper);
/// The session is over: what Python holds of it stays as it is, though the node, when it goes on, gives the
/// memory to others.
void keep_own_memory(const Core& core, bool is_given_away);
/// In a fork's child: what its parent fills, it does not.
void keep_filled_private();
/// Makes an object of the array that was filled in place, if the bytes are such a one's: `arena` is to be
/// sealed. False with an exception set.
bool take_filled(Core& core, const Py_buffer& bytes, std::string_view pickle, ProcessId owner,
                 std::optional<ArenaRef>& arena);
/// values.cpp: writes what stands before the bytes. False when the pickle is too long.
bool write_filled_head(char* to, std::string_view pickle, uint64_t bytes);
PyObject* py_set_loop_variable(PyObject*, PyObject* variable);
PyObject* py_allocate(PyObject*, PyObject* bytes);
PyObject* py_own_memory(PyObject*, PyObject* buffer);
PyObject* py_memory_of(PyObject*, PyObject* const* args, Py_ssize_t count);
bool init_memory();

// ---- calls.cpp, put.cpp, waiting.cpp, worker.cpp ---------------------------------------------------

/// What ids derive from on this thread, and what a person calls it.
struct Context {
    Id task;
    Id actor;
    uint64_t counter = 0;
    uint32_t attempt = 0;
    bool has_resigned = false;  ///< the actor ends with this call, also where its code catches that
    std::string name;
};
extern thread_local Context* context;
Id next_child(Core& core);

bool add_call_types(PyObject* module);
PyObject* py_put(PyObject*, PyObject* value);
PyObject* py_put_result(PyObject*, PyObject* value);
PyObject* py_promise(PyObject*, PyObject*);
PyObject* py_keep_promise(PyObject*, PyObject* const* args, Py_ssize_t count);
PyObject* py_get(PyObject*, PyObject* const* args, Py_ssize_t count);
PyObject* py_wait(PyObject*, PyObject* const* args, Py_ssize_t count);
PyObject* py_create_actor(PyObject*, PyObject* const* args, Py_ssize_t count);
PyObject* py_run_worker(PyObject*, PyObject*);
PyObject* py_ring_when_idle(PyObject*, PyObject* fd);
PyObject* py_title_prefix(PyObject*, PyObject*);
bool add_worker_types(PyObject* module);
/// Whether the task that runs on this worker's main thread was cancelled.
bool is_cancelled();
/// Whether it is to be interrupted now. Once for each time that it is cancelled, but for those that got lost.
bool take_interrupt();
void interrupt_again();
/// The task that runs on it, or none; the core's mutex is held.
Id running_task();
PyObject* py_next_item(PyObject*, PyObject* const* args, Py_ssize_t count);

}  // namespace weft
