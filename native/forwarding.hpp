/// Records between this node's processes and those of other nodes, in batches, without Python.
///
/// Out: what a process writes to one of another node (a proxy here) is appended to the batch of that node, in
/// the link's names. In: a batch is taken apart, translated and passed to the relay in the proxies' names.
/// Only what needs a decision stops it: a name that is new here, or a record from or to a daemon.
#pragma once

#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "link_names.hpp"
#include "relay.hpp"

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
/// Of a record, and of a batch unless it is one record. With its header it is within LARGEST_MESSAGE of
/// `engine/wire/link.py`, and each length within 32 bits.
constexpr uint64_t kMostLinkBytes = (1u << 30) - sizeof(LinkRecord);
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
    Forwarding(Segment& segment, Arena& arena, Relay& relay)
        : segment_(segment), arena_(arena), relay_(relay) {}

    LinkNames names;

    /// A record of a local process, or of this daemon, to a process of another node (or its daemon, slot 0).
    /// False when it is malformed: then nothing is sent.
    bool pass_on(uint32_t node, ProcessId from, ProcessId to, Kind kind, const char* data, size_t bytes);
    /// The same for what a process of this node has sent to a proxy, once commit() is called. Dropped when
    /// the proxy is dead. When the node's link has enough, the sender is told to keep the rest.
    void pass_on_to(ProcessId proxy, ProcessId from, Kind kind, const char* data, size_t bytes);
    /// What came out of rings may be sent: all that the same processes had told this daemon before is
    /// handled.
    void commit();
    /// What is to be sent to the node, as one batch; empty when there is nothing.
    std::string take_batch(uint32_t node);
    std::vector<uint32_t> nodes_with_output() const;
    /// The node's link is full, or takes more again.
    void hold(uint32_t node, bool is_full);
    /// The node is gone.
    void remove_link(uint32_t node);

    /// One batch of that node. std::invalid_argument when it is none. Where there is a `refusal`, an error
    /// value, it stands in the first record for each object that has no name here.
    Delivery deliver(uint32_t node, const char* data, size_t bytes, std::string_view refusal = {});
    /// A record of this daemon to a daemon, as a batch of one. std::invalid_argument when it is malformed.
    std::string record_out(Kind kind, const char* data, size_t bytes);
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
        /// Senders, and whom they send to, who were told to keep the rest.
        std::set<std::pair<uint64_t, uint64_t>> kept;
    };
    static bool has_enough(const Link& link);
    void send_the_rest(Link& link);
    void name_outside(ArenaRef& arena);
    /// This node's names for them, when it has some. std::invalid_argument when those cannot be.
    std::optional<ArenaRef> here(const FarObject& what) const;
    std::optional<ProcessId> here(const FarProcess& who) const;
    bool append(Buffer& batch, const LinkRecord& record, const char* data);
    bool is_here(ProcessId process) const;
    bool translate_in(Delivery& out, Kind kind, const char* data, size_t bytes);
    void refuse_unnamed(std::string_view refusal);
    void write(ProcessId sender, const LinkRecord& record, std::string_view payload);
    void flow(uint32_t node, const LinkRecord& record);
    void add_plain(uint32_t node, uint16_t kind, ProcessId from, ProcessId to);

    Segment& segment_;
    Arena& arena_;
    Relay& relay_;
    std::unordered_map<uint32_t, Link> links_;
    std::unordered_map<uint32_t, uint32_t> refused_;
    std::string scratch_;
    /// Values in scratch_ whose objects have no name here: where their headers are, and their refs.
    std::vector<std::pair<size_t, size_t>> unnamed_;
};

}  // namespace weft
