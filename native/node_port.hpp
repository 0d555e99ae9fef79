/// The node daemon's end of the segment: it makes it, names its slots, and cleans up after the dead.
#pragma once

#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "channels.hpp"
#include "events.hpp"
#include "forwarding.hpp"
#include "ledger.hpp"
#include "proxies.hpp"

namespace weft {

struct Received {
    ProcessId from;
    Kind kind;
    std::string payload;
};

/// Used by one thread.
class NodePort {
  public:
    explicit NodePort(uint64_t arena_bytes, uint32_t events = kEvents);
    ~NodePort();
    NodePort(const NodePort&) = delete;

    int segment_fd() const { return segment_->fd(); }
    int event_fd() const { return event_fd_; }
    ProcessId reserve_slot();
    std::vector<Received> drain();
    /// Stays awake for a moment after a request, because the next one mostly follows it: whether something
    /// came, which the next drain() has. Gives up early when it was in vain the last times.
    bool linger(int64_t limit_ns);
    bool send(ProcessId to, Kind kind, const void* data, size_t bytes) {
        return channels_.send(to, kind, data, bytes);
    }
    /// What a process that is dead had lent. Its objects among that are the daemon's until somebody adopts
    /// them. Before mark_dead.
    std::vector<FoundRow> take_ledger(ProcessId dead);
    std::vector<ProcessId> mark_dead(ProcessId dead);
    bool release_slot(ProcessId dead);

    // -- other nodes --
    /// A slot that stands for a process of another node.
    ProcessId reserve_proxy();
    bool is_proxy(uint32_t slot) const { return proxies_.has(slot); }
    bool is_alive(ProcessId process) const { return segment_->is_alive(process); }
    /// Records between nodes; what was sent to proxies is in its batches after each drain().
    Forwarding& forwarding() { return forwarding_; }
    bool send_as(uint32_t proxy, ProcessId to, Kind kind, const void* data, size_t bytes) {
        return proxies_.send_as(proxy, to, kind, data, bytes);
    }
    /// Dead local processes whose rings with a proxy are gone now, since the last call.
    std::vector<ProcessId> take_detached() { return std::exchange(detached_, {}); }
    /// The link to that node takes more again: drain() will have something soon.
    void release_link(uint32_t node);
    /// An entry for an object whose bytes are on another node; readers ask for it to be restored.
    ArenaRef import_object(uint64_t bytes, ProcessId owner);
    /// Which node has them, for those who choose where a task runs.
    void set_node_of(uint32_t entry, uint32_t generation, uint32_t node);
    void set_node_of_proxy(ProcessId proxy, uint32_t node) {
        segment_->slot(proxy.slot).node.store(node + 1);
    }
    /// Memory to receive its bytes into, or null when there is no room (or it is gone, or here).
    char* begin_receiving(uint32_t entry, uint32_t generation);
    void end_receiving(uint32_t entry, uint32_t generation, bool arrived);
    /// The bytes of an object of this node, pinned until end_sending; null when it is spilled or gone.
    const char* begin_sending(uint32_t entry, uint32_t generation, uint64_t& bytes);
    void end_sending(uint32_t entry, uint32_t generation);
    /// Whether that object still exists, deleted or not.
    bool exists(uint32_t entry, uint32_t generation) const;
    /// The owner, on another node, knows of it now; or has no more use for it.
    void accept(uint32_t entry, uint32_t generation) { arena_.accept({entry, generation, 0}); }
    void remove(uint32_t entry, uint32_t generation) { arena_.remove({entry, generation, 0}); }

    uint64_t spill(uint64_t wanted_bytes, int file);
    /// What the disk refused the last spill with; 0 when it took all.
    int spill_errno() const { return spill_errno_; }
    std::pair<bool, std::string> restore(uint32_t entry, uint32_t generation, int file);
    /// Give the memory of free granules back to the system; how many bytes were looked at.
    uint64_t trim();
    /// Whether a run of so many bytes is free now.
    bool has_room(uint64_t bytes);
    /// Whether a process other than that one reads an object, so that it can not be spilled now.
    bool is_read_by_others(uint32_t slot) const;
    std::vector<std::tuple<uint64_t, uint32_t, uint32_t>> largest_objects(size_t count) const;
    struct Statistics {
        uint64_t arena_bytes, used_bytes, objects, slots_used, ring_blocks_used, spilled_objects;
    };
    Statistics statistics() const;

    // -- events --
    /// One of the daemon's own.
    void record(EventKind kind, int64_t at_ns, int64_t duration_ns, uint64_t bytes, std::string_view name);
    /// Slots that have recorded anything, and how much.
    std::vector<std::pair<uint32_t, uint64_t>> event_counts() const;
    EventLog::Read events(uint32_t slot, uint64_t since, size_t most) const;
    /// The sums of all processes that ever were, in the order of Tally.
    std::vector<uint64_t> tallies() const;

  private:
    struct Spilled {
        uint32_t entry, generation;
        uint64_t offset, bytes;
    };
    void receive_from(uint32_t slot);
    std::set<uint32_t> living_peers(uint32_t dead) const;
    void forward(uint32_t proxy, ProcessId from, Kind kind, const char* data, size_t bytes);
    void forget_dead_peers();
    void wake_self();
    bool spill_one(uint32_t entry, int file);
    void forget_deleted(int file);

    std::unique_ptr<Segment> segment_;
    ProcessId self_{kDaemonSlot, 1};
    int event_fd_;
    Arena arena_;
    Channels channels_;
    Proxies proxies_;
    Forwarding forwarding_;
    std::vector<std::pair<uint32_t, ProcessId>> dead_peers_;  ///< of a proxy (slot)
    std::vector<ProcessId> detached_;
    std::vector<bool> used_;
    std::vector<Received> received_;
    std::vector<Spilled> spilled_;
    uint64_t file_end_ = 0;
    int spill_errno_ = 0;
    uint32_t vain_lingers_ = 0;  ///< in a row
};

}  // namespace weft
