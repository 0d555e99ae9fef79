/// Where a process meets the others: who it is, its segment, its arena, its rings, the record of what it did,
/// and the queue of what Python shall do. The parts of a core (core.hpp) send through it, and only through
/// it.
///
/// One lock, `mutex`, guards the state of all parts. They are parts of one transition: a reply completes
/// objects, which unblocks tasks, which takes leases and lends refs, which writes rows. With a lock of its
/// own each would be taken and given on the way of every task, in an order that these calls do not have. Only
/// what waits or computes without the state has a lock of its own: who pumps (pump.hpp), the events below,
/// the lineage file's write.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>

#include "arena.hpp"
#include "channels.hpp"
#include "doorbell.hpp"
#include "events.hpp"
#include "outside.hpp"
#include "wire.hpp"

typedef struct _object PyObject;

namespace weft {

/// How many forks this process is away from the first; a fork's child counts itself in (module.cpp).
inline uint32_t forks = 0;

struct CoreEvent {
    uint16_t kind;
    std::string payload;
    PyObject* callback = nullptr;
};

/// For threads that Python knows nothing of.
void block_signals();
/// What is told of everything that the node daemon took with it.
std::string node_lost_error();

class Endpoint {
  public:
    /// With `simulated` what is sent goes there, and the time comes from there; the segment is not used.
    Endpoint(std::shared_ptr<Segment> mapped, int event_fd, ProcessId self, Id root, bool is_worker,
             Outside* simulated = nullptr);

    /// The mutex is held. To a dead process, and once the daemon is gone, nothing is sent.
    void send(ProcessId to, Kind kind, const void* data, size_t bytes) {
        if (way_.load(std::memory_order_relaxed) != Way::rings) [[unlikely]]
            return send_elsewhere(to, kind, data, bytes);
        channels.send(to, kind, data, bytes);
    }
    void send_daemon(Kind kind, const void* data, size_t bytes) { send(daemon, kind, data, bytes); }
    /// A record that is answered: who is dead by now is found dead, since without a word of it the answer
    /// would be waited for without an end.
    void send_to_be_answered(ProcessId to, Kind kind, const void* data, size_t bytes) {
        if (way_.load(std::memory_order_relaxed) != Way::rings) [[unlikely]]
            return send_elsewhere(to, kind, data, bytes);
        if (!channels.send(to, kind, data, bytes)) channels.found_dead(to);
    }

    /// Whether the daemon is gone.
    bool is_lost() const { return way_.load(std::memory_order_acquire) == Way::nowhere; }
    void be_lost() { way_.store(Way::nowhere); }
    bool is_simulated() const { return simulated_ != nullptr; }
    bool is_alive(ProcessId process) const {
        return simulated_ == nullptr ? segment.is_alive(process) : simulated_->is_alive(process);
    }
    int64_t now_ns() const { return simulated_ == nullptr ? weft::now_ns() : simulated_->now_ns(); }
    /// Nothing is sent or recorded from now on. False when that was so already.
    bool close() { return !closed_.exchange(true); }
    bool is_closed() const { return closed_.load(std::memory_order_acquire); }
    /// Not in a fork of the process that attached: there nothing of it may be used.
    bool is_ours() const { return made_after_ == forks; }
    /// In a fork's child: what it still does with this copy is seen by nobody else and waits for no thread,
    /// since those are not here.
    void become_private();

    /// What needs Python is left to the callback thread: nobody takes the GIL while holding a lock. By any
    /// thread, with the mutex or without.
    void push_event(CoreEvent event);
    /// Blocks; false when the endpoint is closed.
    bool next_event(CoreEvent& event);
    void wake_event_reader();

  private:
    enum class Way : uint8_t { rings, nowhere, simulated };  ///< of what is sent
    [[gnu::cold]] void send_elsewhere(ProcessId to, Kind kind, const void* data, size_t bytes);

    const uint32_t made_after_ = forks;
    const std::shared_ptr<Segment> mapped_;
    Outside* const simulated_;
    std::atomic<bool> closed_{false};
    std::atomic<Way> way_;
    std::mutex events_mutex_;
    std::condition_variable events_ready_;
    std::deque<CoreEvent> events_;

  public:
    Segment& segment;
    const ProcessId self;
    const ProcessId daemon;
    const bool is_worker;
    const Id root;                          ///< what ids derive from outside of tasks
    std::atomic<uint64_t> root_counter{0};  ///< how many have
    std::mutex mutex;
    Arena arena;
    Channels channels;
    EventLog log;  ///< recorded into with the mutex held
};

}  // namespace weft
