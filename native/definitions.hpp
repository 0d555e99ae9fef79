/// Functions and classes: sent once to each process that needs them, and forgotten when nobody can need them.
///
/// DEF-1  A function stays as long as Python holds it, a task has it, or lineage on disk names it. What does
///        not stay goes in a sweep (sweep.hpp).
///
/// DEF-2  A worker keeps what it was sent until all who sent it have said that they will not need it, or
///        died.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "endpoint.hpp"

namespace weft {

/// A function or class, and how long its tasks take.
struct Function {
    uint64_t key;
    std::string payload;
    int64_t estimate_ns = -1;       ///< a decayed maximum; -1 when unknown
    std::vector<uint32_t> sent_to;  ///< by slot, of this node: the generation that has it, plus one
    std::unordered_map<uint32_t, uint32_t> sent_far;  ///< the same, of other nodes
    uint32_t holders = 0;                             ///< of Python, who may call it again
    bool is_flushed = false;                          ///< lineage on disk may name it
    bool is_used = false;                             ///< as the last sweep saw it
};

/// A function or class that others have sent here, to be run.
struct Definition {
    std::string pickle;  ///< until it is loaded
    bool is_loaded = false;
    std::vector<ProcessId> senders;  ///< those who have not given it up
};

class Definitions {
  public:
    explicit Definitions(Endpoint& endpoint) : endpoint_(endpoint) {}

    // Those of this process.
    Function* define_function(uint64_t key, std::string payload);
    Function* function(uint64_t key);
    /// Before the first record that needs it, in the one channel there.
    void send_function(ProcessId to, Function* function);
    /// Those that are held or on disk are in use, whoever else looks at them.
    void mark_held(bool is_lineage_on_disk);
    /// Those without that mark go, here and at the workers.
    void forget_unused();
    size_t functions() const { return functions_.size(); }

    // Those that others have sent here.
    void on_function(ProcessId from, Cursor cursor);
    void on_forget_function(ProcessId from, uint64_t key);
    void sender_died(ProcessId dead);
    /// The pickle of a function that was sent here; empty when none was.
    std::string definition(uint64_t key);
    /// It is loaded, so its pickle may go.
    void loaded(uint64_t key);
    /// Functions that nobody who sent them will call again, each told of once.
    std::vector<uint64_t> take_forgotten() { return std::exchange(forgotten_, {}); }
    size_t received() const { return received_.size(); }

  private:
    void forget_at_workers(const Function& function);

    Endpoint& endpoint_;
    std::unordered_map<uint64_t, std::unique_ptr<Function>> functions_;
    std::unordered_map<uint64_t, Definition> received_;
    std::vector<uint64_t> forgotten_;  ///< keys that were in received_
};

}  // namespace weft
