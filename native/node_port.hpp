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
#include "recorder.hpp"
#include "relay.hpp"
#include "spilling.hpp"

namespace weft {

struct Received {
    ProcessId from;
    Kind kind;
    std::string payload;
};

/// Used by one thread.
class NodePort {
  public:
    explicit NodePort(uint64_t arena_bytes, uint32_t events = kEvents, uint32_t slots = kFewSlots);
    ~NodePort();
    NodePort(const NodePort&) = delete;

    int segment_fd() const { return segment_->fd(); }
    int event_fd() const { return event_fd_; }
    ProcessId reserve_slot();
    std::vector<Received> drain();
    /// Stays awake for a moment after a request, because the next one mostly follows it: whether something
    /// came, which the next drain() has. Gives up early when it was in vain the last times.
    bool linger(int64_t limit_ns);
    bool send(ProcessId to, Kind kind, const void* data, size_t bytes);
    /// What a process that is dead had lent. Its objects among that are the daemon's until somebody adopts
    /// them. Before mark_dead.
    std::vector<FoundRow> take_ledger(ProcessId dead);
    /// What a process of another node owned here; likewise.
    std::vector<ArenaRef> take_objects(ProcessId dead);
    std::vector<ProcessId> mark_dead(ProcessId dead);
    bool release_slot(ProcessId dead);

    // -- other nodes --
    /// A name for a process of another node, its *proxy* here. Throws std::runtime_error when there are too
    /// many.
    ProcessId add_proxy(const FarProcess& who);
    bool is_proxy(uint32_t slot) const { return relay_.is_known(slot); }
    bool is_alive(ProcessId process) const {
        return segment_->is_slot(process.slot) && segment_->is_alive(process);
    }
    /// Records between nodes; what was sent to proxies is in its batches after each drain().
    Forwarding& forwarding() { return forwarding_; }
    /// The link to that node takes more again: drain() will have something soon.
    void release_link(uint32_t node);
    /// An entry for an object whose bytes are on another node; readers ask for it to be restored.
    ArenaRef import_object(uint64_t bytes, ProcessId owner);
    /// Which node has them, for those who choose where a task runs.
    void set_node_of(uint32_t entry, uint32_t generation, uint32_t node) {
        arena_.set_node_of({entry, generation, 0}, node);
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
    void accept(uint32_t entry, uint32_t generation) {
        if (exists(entry, generation)) arena_.accept({entry, generation, 0});
    }
    void remove(uint32_t entry, uint32_t generation) {
        if (exists(entry, generation)) arena_.remove({entry, generation, 0});
    }

    // -- objects on disk: asked for by a ticket, done by another thread --
    void begin_spilling(std::vector<std::string> folders, uint64_t limit) {
        spill_thread_ = std::make_unique<SpillThread>(*segment_, arena_, std::move(folders), limit);
    }
    void end_spilling() { spill_thread_.reset(); }
    SpillThread& spill_thread() { return *spill_thread_; }
    std::vector<SpillDone> take_spilled();
    /// Whether the object table takes one more.
    bool has_entry() const { return arena_.has_entry(); }
    /// Whether what could not be spilled may be now or later: an object that nobody reads is there, a process
    /// other than that one reads one, or one is being written, moved or freed.
    bool room_may_come(uint32_t slot) const;
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
    /// From now on a thread keeps what the rings had, in a file of so many bytes at most.
    /// Does nothing where no events are recorded.
    void begin_recording(std::vector<std::string> folders, uint64_t limit) {
        if (segment_->header().events == 0) return;
        event_file_ = std::make_shared<EventFile>(std::move(folders), limit);
        recorder_ = std::make_unique<RecorderThread>(*segment_, event_file_);
    }
    void end_recording() { recorder_.reset(); }
    /// Null unless it records.
    RecorderThread* recorder() const { return recorder_.get(); }
    /// Who searches it in another thread has a share of it. Null unless something was recorded.
    std::shared_ptr<EventFile> event_file() const { return event_file_; }

  private:
    void receive_from(uint32_t slot);
    std::set<uint32_t> living_peers(uint32_t dead) const;
    void pass_on(ProcessId from, ProcessId to, uint16_t kind, uint16_t flags, const char* data, size_t bytes);
    void ask_for_rings();
    void wake_self();

    std::unique_ptr<Segment> segment_;
    ProcessId self_{kDaemonSlot, 1};
    int event_fd_;
    Arena arena_;
    Channels channels_;
    Relay relay_;
    Forwarding forwarding_;
    int64_t rings_asked_ns_ = 0;  ///< when idle rings were last asked for
    std::vector<bool> used_;
    std::vector<Received> received_;
    std::unique_ptr<SpillThread> spill_thread_;
    std::shared_ptr<EventFile> event_file_;
    std::unique_ptr<RecorderThread> recorder_;
    uint32_t vain_lingers_ = 0;  ///< in a row
};

}  // namespace weft
