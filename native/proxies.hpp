/// Processes of other nodes, as this segment sees them. Each has a slot here, a *proxy*, whose rings the node
/// daemon reads and writes: what a local process sends to it is passed to its node, what comes from there is
/// written in its name. So no process knows, or needs to know, on which node another one runs.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "channels.hpp"

namespace weft {

/// A record that a local process sent to a proxy.
struct Outbound {
    uint32_t proxy;  ///< slot
    ProcessId from;
    Kind kind;
    std::string payload;
};

/// Used by the daemon's one thread.
class Proxies {
  public:
    Proxies(Segment& segment, int event_fd) : segment_(segment), event_fd_(event_fd) {}

    /// The slot was reserved for a process of another node.
    void add(ProcessId proxy);
    /// It died, or its node did. What it had been sent is dropped.
    void remove(uint32_t slot) { channels_.erase(slot); }
    bool has(uint32_t slot) const { return channels_.contains(slot); }

    /// One record in the proxy's name; false when `to` is dead.
    bool send_as(uint32_t proxy, ProcessId to, Kind kind, const void* data, size_t bytes);
    /// A local peer of the proxy died: give the rings up.
    void forget(uint32_t proxy, ProcessId dead);
    /// All that local processes have sent to proxies, in order for each pair.
    void drain(std::vector<Outbound>& out);
    /// Whether a record came between the last drain and now.
    bool sleep();

  private:
    Segment& segment_;
    int event_fd_;
    std::map<uint32_t, std::unique_ptr<Channels>> channels_;
};

}  // namespace weft
