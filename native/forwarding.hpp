/// Records between this node's processes and those of other nodes, in batches, without Python.
///
/// Out: what a process writes to a proxy is appended to the batch of the proxy's node, in the link's names.
/// In: a batch is taken apart, translated and written into rings in the proxies' names. Only what needs a
/// decision stops it: a name that is new here, or a record from or to a daemon.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "link_names.hpp"
#include "proxies.hpp"

namespace weft {

/// In a batch: this header, then the record's bytes. Both processes are named as their own node does.
struct LinkRecord {
    uint32_t bytes;
    uint16_t kind;
    uint16_t reserved;
    ProcessId from;
    ProcessId to;
};
static_assert(sizeof(LinkRecord) == 24);
/// Kinds that only daemons say to each other: stop, or go on, sending what `to` says to `from`.
constexpr uint16_t kKeepTheRest = 0xff01, kSendTheRest = 0xff02;

/// How far a batch was delivered, and what has to be decided before the rest.
struct Delivery {
    enum class Stop { none, names, record };
    size_t consumed = 0;
    Stop stop = Stop::none;
    /// Names: what the record at `consumed` speaks of and this node does not know.
    std::vector<FarProcess> processes;
    std::vector<FarObject> objects;
    /// Record: one from or to a daemon, translated. It is consumed.
    ProcessId from, to;
    Kind kind{};
    std::string payload;
};

/// Used by the daemon's one thread.
class Forwarding {
  public:
    Forwarding(Segment& segment, Arena& arena, Proxies& proxies)
        : segment_(segment), arena_(arena), proxies_(proxies) {}

    LinkNames names;

    /// A record of a local process, or of this daemon, to a process of another node (or its daemon, slot 0).
    /// False when it is malformed: then nothing is sent.
    bool pass_on(uint32_t node, ProcessId from, ProcessId to, Kind kind, const char* data, size_t bytes);
    /// The same for what came out of a proxy's ring, once commit() is called. Dropped when the proxy is dead.
    void pass_on_to(uint32_t proxy, ProcessId from, Kind kind, const char* data, size_t bytes);
    /// What came out of rings may be sent: all that the same processes had told this daemon before is
    /// handled.
    void commit();
    /// Whether more may be read for that proxy's node.
    bool can_take(uint32_t proxy) const;
    /// What is to be sent to the node, as one batch; empty when there is nothing.
    std::string take_batch(uint32_t node);
    std::vector<uint32_t> nodes_with_output() const;
    /// The node's link is full, or takes more again.
    void hold(uint32_t node, bool is_full) { links_[node].is_held = is_full; }
    /// The node is gone.
    void remove_link(uint32_t node) { links_.erase(node); }

    /// One batch of that node. std::invalid_argument when it is none.
    Delivery deliver(uint32_t node, const char* data, size_t bytes);
    /// The body of a row of a ledger, in the link's names; and in this node's, where what the dead process
    /// (of slot 0: any of that node) owned has no owner. `out` has the names that are not known here.
    std::string row_out(std::string body);
    std::string row_in(std::string body, const FarProcess& dead, Delivery& out);
    /// Records of other nodes to that process are dropped from now on: it is about to end.
    void refuse(ProcessId dying) { refused_[dying.slot] = dying.generation; }
    /// Tell the nodes of proxies whose readers here have enough, or go on.
    void tell_changes();

  private:
    struct Link {
        Buffer batch;
        Buffer staged;  ///< follows the batch at commit()
        bool is_held = false;
    };
    void name_outside(ArenaRef& arena);
    bool append(Buffer& batch, const LinkRecord& record, const char* data);
    bool is_here(ProcessId process) const;
    bool translate_in(Delivery& out, Kind kind, const char* data, size_t bytes);
    void write(ProcessId sender, const LinkRecord& record, const char* payload);
    void flow(uint32_t node, const LinkRecord& record);
    void add_plain(uint32_t node, uint16_t kind, ProcessId from, ProcessId to);

    Segment& segment_;
    Arena& arena_;
    Proxies& proxies_;
    std::unordered_map<uint32_t, Link> links_;
    std::unordered_map<uint32_t, uint32_t> refused_;
    std::string scratch_;
};

}  // namespace weft
