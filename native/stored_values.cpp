/// Values in the arena: room for them, which the daemon makes by spilling, and reading them, for which they
/// may have to be brought from disk or another node, or made again.
#include "plain_values.hpp"
#include "py.hpp"

namespace weft {

namespace {

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

/// A task that waits for what must be made again lends its CPUs at once: it may need them.
int64_t rebuild_lend(const Core& core) {
    return core.endpoint.is_worker && context != nullptr ? Pump::kLendAtOnce : Pump::kNeverLend;
}

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

}  // namespace weft
