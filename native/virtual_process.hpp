/// A driver or a worker of a simulation, as far as it submits: the same core as in a real process (leases,
/// pipelining, hand-backs, retries, actors), in which events come as calls and what it sends is taken by its
/// caller. It has no segment, no thread, no clock and no Python.
///
/// Tasks are known by their bunch and their index in it, which are their ids, too. Processes have one number
/// in the whole simulation. Not modelled here: arguments, values, definitions, who waits.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core.hpp"

namespace weft {

/// What it has to say since it was asked last, in order for each receiver.
struct VirtualSent {
    uint32_t to = 0;     ///< a process's number; 0 for the daemon
    uint16_t kind = 0;   ///< to the daemon
    std::string bytes;   ///< to the daemon
    uint64_t bunch = 0;  ///< to others: so many tasks of it
    std::vector<uint32_t> indices;
};

struct VirtualDone {
    uint64_t bunch;
    uint32_t index;
    bool has_failed;
};

class VirtualProcess final : private Outside {
  public:
    /// `is_alive`: whether its node takes a process for alive.
    VirtualProcess(std::shared_ptr<Segment> unused, std::function<bool(uint32_t)> is_alive);

    // Each of these is an event, at the time that was set last.
    void set_time(int64_t now_ns) { now_ns_ = now_ns; }
    void submit(uint64_t bunch, uint32_t count, uint64_t function, uint32_t shape, int32_t retries);
    void create_actor(Id actor, std::string spec, Id task);
    void call(Id actor, uint64_t bunch, uint32_t count, int32_t retries);
    /// A record of the daemon's, in which processes are named by their numbers.
    void hear(Kind kind, std::string_view bytes);
    /// A worker has run these, each for so long; how many of them it was to run, as far as is known here.
    uint32_t answered(uint32_t worker, uint64_t bunch, const std::vector<uint32_t>& indices, int64_t took_ns);
    void handed_back(uint32_t worker, uint64_t bunch, const std::vector<uint32_t>& indices);
    /// Idle leases go back; in how many nanoseconds the next one is due, -1 for none.
    int64_t return_idle();

    std::vector<VirtualSent> take_sent();
    /// Tasks that have a result, or an error, since this was asked last.
    std::vector<VirtualDone> take_done() { return std::exchange(done_, {}); }
    size_t leases() const { return core_.leases.count(); }

  private:
    void send(ProcessId to, Kind kind, const char* data, size_t bytes) override;
    bool is_alive(ProcessId process) const override { return is_alive_(process.slot - kFarSlots); }
    int64_t now_ns() const override { return now_ns_; }
    Task* draft(Id id, uint32_t flags, int32_t retries, Id actor);
    void settle(std::unordered_map<Id, Entry*, IdHash>::iterator at);
    void settle_all();

    const std::function<bool(uint32_t)> is_alive_;
    int64_t now_ns_ = 0;
    std::vector<VirtualSent> sent_;
    std::unordered_map<uint32_t, size_t>
        last_sent_;  ///< a process's number to the last of sent_ that is for it
    std::vector<VirtualDone> done_;
    std::unordered_map<Id, Entry*, IdHash> pending_;  ///< by task; each is held
    std::unordered_map<Id, Entry*, IdHash> actors_;   ///< each is held
    Core core_;
};

}  // namespace weft
