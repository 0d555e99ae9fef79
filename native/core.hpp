/// One driver's or worker's share of the engine, as a composition of parts. Each part has its own state and
/// is told in its own header; here is who knows whom. A record that comes is handed to the part that it
/// concerns (core.cpp); what a part has to say it sends through the endpoint, where the one lock is, too, and
/// why there is one.
#pragma once

#include <memory>
#include <set>

#include "actor_links.hpp"
#include "borrowing.hpp"
#include "definitions.hpp"
#include "endpoint.hpp"
#include "flushing.hpp"
#include "inbox.hpp"
#include "inheritance.hpp"
#include "kept_inputs.hpp"
#include "leases.hpp"
#include "lent_rows.hpp"
#include "lineage.hpp"
#include "long_waits.hpp"
#include "objects.hpp"
#include "pump.hpp"
#include "store_requests.hpp"
#include "streams.hpp"
#include "submitter.hpp"
#include "sweep.hpp"
#include "tasks.hpp"

namespace weft {

class Core final : public std::enable_shared_from_this<Core>, private Pumped {
  public:
    /// With `simulated` it has no threads, and all that it hears is what it is given by handle().
    Core(std::shared_ptr<Segment> segment, int event_fd, ProcessId self, Id root, bool is_worker,
         Outside* simulated = nullptr);
    ~Core() { close(); }
    /// Nothing is sent or recorded from now on. The slot may go once nobody calls in with the GIL and
    /// `writers` is zero.
    void close();
    /// In a fork's child.
    void become_private();

    std::mutex& mutex() { return endpoint.mutex; }
    Arena& arena() { return endpoint.arena; }
    ProcessId self() const { return endpoint.self; }
    bool is_closed() const { return endpoint.is_closed(); }
    bool is_lost() const { return endpoint.is_lost(); }
    bool is_ours() const { return endpoint.is_ours(); }

    /// One record: to the part that it concerns. The mutex is held.
    void handle(ProcessId from, Kind kind, const char* data, size_t bytes);

    Endpoint endpoint;  ///< segment, rings, arena, the lock, events for Python

    // What is waited for, and by whom.
    Pump pump{endpoint, inbox, *this};
    LongWaits long_waits{endpoint, pump};
    StoreRequests store_requests{endpoint};

    // Objects: ownership, borrowing, lineage, inheritance.
    Objects objects{endpoint, borrowing, lineage, flushing, kept_inputs, lent_rows, submitter};
    Borrowing borrowing{endpoint, objects, lent_rows, lineage, inheritance};
    Lineage lineage{endpoint, tasks,   objects,  borrowing,   submitter,
                    actors,   streams, flushing, kept_inputs, lent_rows};
    Flushing flushing{endpoint, tasks, objects, borrowing, lineage, submitter, actors, leases, definitions};
    KeptInputs kept_inputs{endpoint, objects, flushing};
    LentRows lent_rows{endpoint, tasks, objects, flushing, definitions};
    Inheritance inheritance{endpoint,  tasks,  objects, borrowing,   lent_rows, lineage,
                            submitter, actors, leases,  definitions, inbox};

    // Submitting: tasks, shapes and leases, actors, generators.
    Tasks tasks;
    Submitter submitter{endpoint, tasks, objects, borrowing, leases, actors, streams, lineage, definitions};
    Leases leases{endpoint, tasks, submitter, streams, definitions};
    ActorLinks actors{endpoint, submitter, streams, sweep};
    Streams streams{endpoint, tasks, objects, borrowing, submitter, lineage, lent_rows};
    Definitions definitions{endpoint};
    Sweep sweep{tasks, objects, definitions, actors, flushing};

    // A worker's side.
    Inbox inbox{endpoint, borrowing};

    uint64_t session = 0;  ///< its number in this process, by which a ref knows whose it is
    /// Calls of Python that use this core now, and what keeps it for them after a shutdown; both guarded by
    /// the GIL.
    uint32_t calls = 0;
    std::shared_ptr<Core> kept_for_calls;
    /// Threads that write into the arena, which is theirs as long as this process has its slot: a shutdown
    /// waits for them.
    Shared<uint32_t> writers{0};

  private:
    size_t drain_peer(uint32_t slot) override;
    void found_dead(ProcessId dead) override;
    int64_t tick_work() override;
    bool may_owe_a_tick() const override { return leases.count() != 0; }
    void daemon_lost() override;
    void drain_all();
    void handle_daemon(Kind kind, const char* data, size_t bytes);
    void peer_died(const PeerDeath& death, std::string_view reason);
    void complain(ProcessId from, Kind kind, const char* why);
    void refuse(ProcessId from, Kind kind, const char* data, size_t bytes, const char* why);
    void may_not_say(ProcessId from, Kind kind, const char* data, size_t bytes);
    void no_memory_for(ProcessId from, Kind kind, const char* data, size_t bytes);
    void fail_waiting(ProcessId from, Kind kind, const char* data, size_t bytes, const std::string& what);

    std::set<std::pair<uint64_t, Kind>> complained_;  ///< senders, and kinds of theirs that were dropped
};

}  // namespace weft
