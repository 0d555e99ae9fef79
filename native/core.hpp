/// One driver's or worker's share of the engine: its objects, tasks, leases, actors, peers and threads.
///
/// All state is guarded by `mutex_`, except where a member says otherwise. The thread that holds
/// `pump_mutex_` reads the rings. Lock order: pump_mutex_, mutex_. The GIL may be held when either is taken,
/// so nobody takes the GIL while holding one: what needs Python is queued for the callback thread.
///
/// OWN-1  An owned object is freed when no hold is left and every borrower's count is zero.
/// OWN-2  A process is sent a ref only after its count was added at the owner (or is on its way there,
///        earlier in the sender's one FIFO channel to the owner).
/// OWN-3  A borrower returns exactly the counts that it was given.
/// SUB-1  A task is in exactly one place: waiting for dependencies or for a larger shape, in the queue of
///        its shape, on a lease, in its actor's queue or flight, or kept as lineage.
/// LIN-1  A task is kept as lineage, in memory or in the lineage file, as long as an object in the arena that
///        it made is owned here.
/// LIN-2  An entry with a lineage hold stays, without its value when nobody has use for that and it can be
///        made again.
#pragma once

#include <pthread.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "arena.hpp"
#include "channels.hpp"
#include "doorbell.hpp"
#include "events.hpp"
#include "ledger.hpp"
#include "lineage_file.hpp"
#include "ring.hpp"
#include "wire.hpp"

typedef struct _object PyObject;

namespace weft {

struct Task;
struct Entry;

enum class ObjectState : uint8_t { pending, ready, failed };

/// The consumer's end of a generator task; hangs on the entry that the task completes at its end.
struct Stream {
    std::deque<Entry*> items;  ///< arrived and not taken; each is held
    uint32_t received = 0;     ///< items so far; one of a lower index is a retry's repetition
    uint32_t consumed = 0;
    uint32_t credited = 0;  ///< consumed, as the producer knows it
    bool closed = false;    ///< the consumer wants no more
    std::atomic<uint32_t> available{0};
    std::vector<PyObject*> callbacks;
};

/// The producer's end: what the consumer has taken.
struct Credit {
    std::atomic<uint32_t> consumed{0};
    std::atomic<bool> closed{false};
};

/// What few objects need.
struct EntryExtra {
    std::unique_ptr<Stream> stream;
    std::vector<Entry*> nested;      ///< refs inside the value; each is held
    std::vector<Task*> dependents;   ///< tasks of this process that wait for it
    std::vector<ProcessId> wanters;  ///< borrowers to send the value to
    std::vector<PyObject*> callbacks;
    std::vector<PyObject*> on_freed;                      ///< called when the object is gone
    std::vector<std::pair<uint64_t, int64_t>> borrowers;  ///< counts by process key; never a zero
    uint32_t row = 0;                                     ///< in the ledger, 0 for none
    uint32_t needed = 0;                                  ///< other rows that name it
    std::vector<Entry*> row_needs;                        ///< what its own row names
    std::vector<uint32_t> deposits;                       ///< nodes that have a copy of its row
    std::vector<ProcessId> late_lends;                    ///< who was sent the ref while its owner was dead
};

/// An object that this process owns or borrows.
struct Entry {
    Id id;
    /// Python refs, tasks and outer objects. Lock-free up and down; zero is acted on under the mutex.
    std::atomic<uint32_t> holds{0};
    /// An ObjectState; stored (release) after the value, loaded (acquire) before it is read.
    std::atomic<uint8_t> state{0};
    bool owned = true;
    bool in_table = false;  ///< findable by id: others may name it
    bool fetching = false;  ///< borrowed, and the owner was asked
    bool is_actor = false;
    bool marked = false;    ///< somebody waits for any of several
    bool is_input = false;  ///< its value is kept only because lineage needs it
    Where where = Where::none;
    ProcessId owner;
    uint32_t tokens = 0;         ///< counts given to this borrower
    uint32_t lineage_holds = 0;  ///< kept tasks that had it as an argument
    Task* lineage = nullptr;     ///< the kept task that can make it again
    uint64_t flushed = 0;        ///< where that task is in the lineage file, when it is not in memory
    uint64_t cookie = 0;         ///< of the task that makes it, while it is under way
    Blob value;                  ///< the inline value or the error
    ArenaRef arena;
    std::unique_ptr<EntryExtra> extra;

    bool is_done() const { return state.load(std::memory_order_acquire) != uint8_t(ObjectState::pending); }
    EntryExtra& more() {
        if (!extra) extra = std::make_unique<EntryExtra>();
        return *extra;
    }
};

/// A function or class, and how long its tasks take.
struct Function {
    uint64_t key;
    std::string payload;
    int64_t estimate_ns = -1;       ///< a decayed maximum; -1 when unknown
    std::vector<uint32_t> sent_to;  ///< by slot: the generation that has it, plus one
    uint32_t holders = 0;           ///< of Python, who may call it again
    bool is_flushed = false;        ///< lineage on disk may name it
    bool is_used = false;           ///< as the last sweep saw it
};

/// A function or class that others have sent here, to be run.
struct Definition {
    std::string pickle;  ///< until it is loaded
    bool is_loaded = false;
    std::vector<ProcessId> senders;  ///< those who have not given it up
};

struct Lease {
    uint64_t id;
    ProcessId worker;
    struct Shape* shape;
    std::deque<Task*> flight;  ///< pushed, in order; the first one runs
    int64_t expected_ns = 0;   ///< of what is in flight
    bool revoked = false;
    bool blocked = false;  ///< it handed work back; nothing is pushed before its next reply
    bool used = false;     ///< something was pushed
    int64_t idle_since_ns = 0;
};

/// Tasks that need the same resources and environment.
struct Shape {
    uint32_t id;
    std::deque<Task*> queue;
    std::vector<Lease*> leases;
    uint32_t asked = 0;           ///< leases requested and not yet granted
    std::string refusal;          ///< the error value, when no node can ever hold it
    bool is_far = false;          ///< some task of the queue may have large inputs on another node
    std::vector<uint32_t> unfit;  ///< numbers + 1 of nodes that can never serve it, whatever inputs they have
};

struct ActorLink {
    Id id;
    enum { unknown, up, restarting, dead } state = unknown;
    bool watching = false;
    bool out_of_reach =
        false;  ///< where it was is dead to this process; the daemon has been asked what that means
    ProcessId where;
    std::deque<Task*> queue;   ///< in order; the head may wait for its dependencies
    std::deque<Task*> flight;  ///< sent and not answered
    std::string death;         ///< the error value
    Task* creation = nullptr;  ///< in the creator: held until it is dead, for restarts
    bool is_flushed = false;   ///< lineage on disk may name it
    bool is_used = false;      ///< as the last sweep saw it
};

struct Task {
    uint32_t near = 0;  ///< number + 1 of the node that has most of its large inputs; 0: this one, or none
    uint32_t index;
    uint32_t generation;
    Id id;
    Function* function = nullptr;
    Shape* shape = nullptr;
    Lease* lease = nullptr;
    ActorLink* actor = nullptr;
    Entry* actor_entry = nullptr;  ///< held while the call is under way
    Buffer record;                 ///< TaskHeader and static part
    std::string spec;              ///< of an actor's creation: ActorSpec
    std::vector<Entry*> deps;      ///< held
    std::vector<Entry*> nested;    ///< held
    std::vector<Entry*> returns;   ///< held; as lineage not, and null for those that are gone
    uint32_t missing = 0;          ///< dependencies that are pending
    int32_t retries = 0;           ///< left; -1 for ever
    uint32_t flags = 0;
    int64_t expected_ns = 0;
    Id parent;               ///< the task that submitted it
    bool cancelled = false;  ///< not to be tried again
    uint32_t kept_for = 0;   ///< as lineage: how many of its returns are left
    std::string name;
    uint64_t cookie() const { return (uint64_t(generation) << 32) | index; }
    TaskHeader& header() { return *reinterpret_cast<TaskHeader*>(record.data()); }
};

/// A task record that waits to be run here.
struct Incoming {
    ProcessId from;
    std::string bytes;
};

/// The kind of the event that tells of the first long wait.
constexpr uint16_t kWaitsLong = 0xfffe;
/// The kind of the event that tells of a task whose worker was stopped for memory: u64 cookie, u32 shape, u32
/// 0, the reason. It waits for retry_in().
constexpr uint16_t kWantsMemory = 0xfffc;
/// The kind of the event that tells, in words, that lineage had to be forgotten.
constexpr uint16_t kLineageForgotten = 0xfffd;

struct CoreEvent {
    uint16_t kind;
    std::string payload;
    PyObject* callback = nullptr;
};

/// A task that this process has submitted, for listings.
struct TaskStory {
    Id id, parent, actor{};
    std::string name, state;
    uint32_t attempt = 0;
    ProcessId worker{};
    int64_t shape = -1;         ///< what a lease for it must hold; -1 of an actor's call
    std::vector<Id> waits_for;  ///< some of the arguments that are not there yet
};

/// An object's story so far, as this process knows it.
struct Explanation {
    std::string state;
    std::string task;
    bool is_owned = true, owner_alive = true;
    ProcessId owner, worker;
    Id actor;
    uint64_t bytes = 0;
    size_t borrowers = 0, holds = 0, ahead = 0, leases = 0;
    uint32_t attempt = 0;
    int32_t retries_left = 0;
    int64_t shape = -1;
    std::vector<Id> waits_for;
};

/// An object that this process owns or borrows, for a person who asks what is held and by whom.
struct Held {
    Id id;
    std::string state;
    bool is_owned = true, is_actor = false;
    ProcessId owner;
    uint64_t bytes = 0;
    size_t holds = 0;
    std::vector<std::pair<ProcessId, int64_t>> borrowers;
};

/// A wait without a deadline that has lasted: what it is for, for who looks for deadlocks.
struct LongWait {
    uint64_t number = 0;
    uint64_t thread = 0;  ///< as Python names it
    double began_s = 0;   ///< by the wall clock
    std::string name;     ///< of the task that waits; empty outside of one
    Entry* const* entries = nullptr;
    size_t count = 0;
    std::atomic<bool> is_broken{false};
    std::string error;  ///< to be raised once it is broken
};

/// Why an object of this process's own is not there.
struct Hindrance {
    Id object;
    char kind = '?';  ///< 't' a task elsewhere, 'o' other objects, 'a' an actor, 's' a worker, '?' unknown
    std::vector<Id> what;  ///< the task, all the objects, or the actor
    uint32_t shape = 0;
    std::string task;
};

/// What a kept task takes.
size_t lineage_bytes(const Task* task);
/// For threads that Python knows nothing of.
void block_signals();

class Core {
  public:
    Core(std::unique_ptr<Segment> segment, int event_fd, ProcessId self, Id root, bool is_worker);
    ~Core();

    // -- pump.cpp: rings, threads, waiting --
    using Predicate = std::function<bool()>;
    enum class Waited { done, timed_out, interrupted, closed };
    /// Blocks until the predicate holds, pumping. Called without the GIL. A task's get lends its CPUs when it
    /// has waited for `lend_after_ns`; never when that is negative. It spins for `due_ns` first, when the
    /// daemon is about to answer.
    Waited wait_until(const Predicate& done, int64_t deadline_ns, int64_t lend_after_ns, int64_t due_ns = 0);
    static constexpr int64_t kNeverLend = -1;
    static constexpr int64_t kLendAtOnce = 0;
    /// Reads what has come, if nobody else is at it.
    void poll();
    bool has_mail() const { return has_ready(*segment_, segment_->bell(self_.slot)); }
    void send(ProcessId to, Kind kind, const void* data, size_t bytes);
    void send_daemon(Kind kind, const void* data, size_t bytes) { send(daemon_, kind, data, bytes); }
    void watch_daemon(int socket_fd);
    void close();
    bool is_closed() const { return closed_.load(std::memory_order_acquire); }
    static std::string node_lost_error();
    /// Whether the daemon is gone.
    bool is_lost() const { return lost_.load(std::memory_order_acquire); }
    bool next_event(CoreEvent& event);
    void push_event(CoreEvent event);

    // -- ownership.cpp --
    Entry* new_entry(Id id);
    Entry* find(Id id);
    /// An entry for an actor that does not keep it alive, even if this process owns it.
    Entry* weak_actor(Id id);
    Entry* borrow(Id id, ProcessId owner, bool is_actor, uint32_t tokens);
    static void hold(Entry* entry) { entry->holds.fetch_add(1, std::memory_order_relaxed); }
    /// Gives one hold up. Takes the mutex when it was the last.
    void drop(Entry* entry);
    void drop_locked(Entry* entry);
    void complete(Entry* entry, Where where, const char* data, size_t bytes, const ArenaRef& arena);
    void fail(Entry* entry, std::string_view error);
    /// Asks the owner of a borrowed object for its value, once.
    void fetch(Entry* entry);
    void add_borrower(Entry* entry, ProcessId borrower, int64_t count);
    /// Counts `to` in for a ref that is about to be sent to it (OWN-2).
    void lend_ref(Entry* entry, ProcessId to);
    /// Tells the owner that the borrower was given one more count.
    void count_in(Id id, ProcessId owner, ProcessId borrower);
    void return_counts(Id id, ProcessId owner, uint64_t count);
    void escape(Entry* entry);
    void pack_value(Buffer& out, Entry* entry, ProcessId to);
    std::vector<Entry*> unpack_refs(Cursor& cursor, uint32_t count, bool self_borrow);
    void publish_inner(Entry* entry, std::vector<Entry*> nested);

    // -- lineage.cpp --
    /// A reader found the object's memory gone. True when its value comes again (it is pending then), or has
    /// come already; else the entry has failed, or is as it was.
    bool recover(Entry* entry, const ArenaRef& lost);
    static std::string lost_for_good();
    /// Why it can not be made again, as an error value.
    std::string why_lost(const Entry* entry) const;

    // -- flushing.cpp --
    /// So much lineage stays in memory, so much goes to disk. The mutex is held.
    void limit_lineage(size_t memory_bytes, uint64_t disk_bytes);
    /// So many bytes of inputs that nothing can make again stay for the sake of lineage. The mutex is held.
    void limit_inputs(uint64_t bytes);

    // -- definitions.cpp --
    Function* define_function(uint64_t key, std::string payload);
    Function* function(uint64_t key);
    /// One of its holders is gone. The mutex is held.
    void give_up(Function* function);
    /// Worker: the pickle of a function that was sent here; empty when none was.
    std::string definition(uint64_t key);
    /// Worker: it is loaded, so its pickle may go.
    void loaded(uint64_t key);
    /// Worker: functions that nobody who sent them will call again, each told of once.
    std::vector<uint64_t> take_forgotten() { return std::exchange(forgotten_, {}); }

    // -- submit.cpp --
    Shape* shape(uint32_t id);
    Task* new_task();
    void submit(Task* task);
    void submit_call(Task* task, Entry* actor);
    void submit_creation(Task* task);
    /// A task that waits for a larger shape is queued there. The mutex is held.
    void retry_in(uint64_t cookie, uint32_t shape);
    uint64_t ask_space(uint64_t bytes);

    // -- explain.cpp --
    Explanation explain(Entry* entry);
    /// At most so many of the objects that are held here.
    std::vector<TaskStory> tasks(size_t most);
    std::vector<Held> held(size_t most);

    // -- long_waits.cpp --
    void begin_long_wait(LongWait& wait);
    void end_long_wait(LongWait& wait);
    bool break_wait(uint64_t number, std::string error);
    const std::vector<LongWait*>& long_waits() const { return long_waits_; }
    /// One object for each thing that the wait depends on; nothing when there are too many to tell.
    std::vector<Entry*> waited_for(const LongWait& wait);
    /// Why these are not there, and whatever of this process's own they need.
    std::vector<Hindrance> hindrances(std::vector<Entry*> entries);
    /// The tasks that wait to be run here.
    std::vector<Id> inbox(size_t most);

    // -- cancel.cpp --
    enum class Cancelled { done, asked, too_late, refused };
    /// Ends the task that makes the object: at once when it has not started, else by asking its worker.
    Cancelled cancel(Entry* entry, bool force, bool recursive);
    void cancel_children(Id parent, bool force);
    /// Worker: drop a task that has not started and answer for it. False when it is not in the inbox.
    bool cancel_incoming(ProcessId from, uint64_t cookie);

    // -- streams.cpp --
    Stream* stream_of(Entry* entry) { return entry->extra ? entry->extra->stream.get() : nullptr; }
    /// The next item's entry (its hold passes to the caller), or null when none has come.
    Entry* take_item(Entry* generator);
    void close_stream(Entry* generator);
    std::shared_ptr<Credit> credit(ProcessId from, uint64_t cookie);
    void forget_credit(ProcessId from, uint64_t cookie);

    // -- execute.cpp --
    bool take_incoming(Incoming& out);
    /// No task is taken any more; what has come and will come goes back to who sent it.
    void retire();
    /// Before an idle worker sleeps: the daemon must not end one whose objects others refer to.
    void tell_lending();
    /// A task is about to run on the main thread: what waits behind it is handed back unless it is short.
    void begin_task();
    bool has_incoming() const { return incoming_.load(std::memory_order_acquire) != 0; }
    bool exit_requested() const { return exit_.load(std::memory_order_acquire); }
    /// After a value was given by a thread other than the one that pumps: whoever waits looks again.
    void wake_waiters();
    void request_exit();
    /// Makes a wait of that thread return `interrupted`, so that it looks for signals. The mutex is held.
    void interrupt(pthread_t thread);

    Segment& segment() { return *segment_; }
    /// Recorded into with the mutex held.
    EventLog& log() { return log_; }
    Arena& arena() { return arena_; }
    ProcessId self() const { return self_; }
    bool is_worker() const { return is_worker_; }
    std::mutex& mutex() { return mutex_; }
    void advance_epoch() { epoch_.fetch_add(1, std::memory_order_relaxed); }
    uint64_t epoch() const { return epoch_.load(std::memory_order_relaxed); }
    std::string take_binding();

    struct Counters {
        uint64_t submitted = 0, run = 0, owned = 0, borrowed = 0, pending = 0, leases = 0;
        uint64_t kept = 0, kept_bytes = 0, rebuilt = 0;
        uint64_t flushed_bytes = 0;  ///< of lineage on disk
        uint64_t input_bytes = 0;    ///< kept for the sake of lineage
        uint64_t functions = 0, definitions = 0, actors = 0;
    };
    Counters counters();
    void set_spin_limit(int64_t ns) { spin_ns_ = ns; }

    Id root;
    std::atomic<uint64_t> root_counter{0};
    std::atomic<uint64_t> failures{0};     ///< objects that ended in an error
    std::atomic<uint64_t> marked_done{0};  ///< completions of entries that somebody marked
    /// Set while this worker's main thread runs a task; what arrives meanwhile is handed back.
    std::atomic<bool> running_task{false};
    std::atomic<bool> is_actor{false};
    // How often NEED_SPACE and RESTORE were answered, and who waits for which answer, under the mutex.
    std::atomic<uint64_t> space_answers{0};
    std::atomic<uint64_t> restore_answers{0};
    struct SpaceRequest {
        bool is_answered = false;
        uint64_t freed = 0;
        std::string text;  ///< why nothing was freed
    };
    std::unordered_map<uint64_t, SpaceRequest> space_requests;  ///< by the request's number
    uint64_t last_space_request = 0;
    /// Objects that are being brought back or here, as long as somebody waits for that; with the mutex held.
    struct Restoring {
        uint32_t askers = 0, answers = 0;
        std::string error;  ///< of the last answer; empty when it worked
    };
    std::unordered_map<uint64_t, Restoring> restoring;  ///< by the key of the arena's entry
    void ask_restore(uint64_t key);
    void end_restore(uint64_t key);
    /// Worker: called with the mutex held when a task that runs here shall stop.
    std::function<void(ProcessId from, uint64_t cookie, bool force, bool recursive)> on_cancel;
    uint64_t tasks_run = 0;

  private:
    // pump.cpp
    size_t drain();
    bool is_interrupted();
    size_t drain_peer(uint32_t slot);
    void handle(ProcessId from, Kind kind, const char* data, size_t bytes);
    void handle_daemon(Kind kind, const char* data, size_t bytes);
    void background();
    /// `is_due`: the answer is under way, so earlier spins in vain say nothing.
    bool spin(int64_t limit_ns, bool is_due = false);
    int64_t tick_work();
    void leave_pump();
    void hand_back_locked();
    void inbox_changed() { incoming_.store(uint32_t(inbox_.size()), std::memory_order_release); }
    void daemon_lost();
    void callback_loop();
    // ownership.cpp
    void release_entry(Entry* entry);
    void drop_rest();
    void finish_entry(Entry* entry);
    void on_value(Cursor cursor);
    void discard_values(Cursor& cursor, uint32_t count, bool owns_memory);
    void discard_task(const Incoming& incoming);
    // lineage.cpp
    bool can_make_again(const Task* task) const;
    void keep(Task* task);
    void forget_return(Entry* entry);
    void forget_kept(Task* task);
    void hold_as_lineage(Entry* entry);
    void drop_lineage(Entry* entry);
    void evict(Entry* entry);
    void let_value_go(Entry* entry);
    bool is_lost_in_arena(const Entry* entry) const;
    void rebuild(Entry* entry);
    void run_again(Task* task, std::vector<Entry*>& missing);
    void wait_for_arguments(Task* task);
    bool has_arguments(Task* task);
    void arguments_lost(Task* task);
    // flushing.cpp
    void lineage_has_grown();
    void flush_loop();
    LineageFile::Shared flush_oldest();
    void flush_with_needs(LineageFile::Batch& batch, Task* task);
    void flush(LineageFile::Batch& batch, Task* task);
    bool describe_need(LineageFile::Batch& batch, Entry* entry, Buffer& out);
    void flush_written(const LineageFile::Shared& batch, int error);
    void forget_flushed(Entry* entry);
    Task* lineage_of(Entry* entry);
    Task* lineage_to_tell(Entry* entry);
    Task* read_back(uint64_t position);
    Entry* need_again(Cursor& cursor);
    bool keep_input(Entry* entry);
    void forget_input(Entry* entry);
    // custody.cpp
    struct Adoption;
    struct AdoptedRow;
    void became_lent(Entry* entry);
    void no_longer_lent(Entry* entry);
    void write_rows(Entry* first);
    std::vector<Entry*> write_row(Entry* entry);
    bool describe(Entry* entry, RowHead& head, Buffer& body, std::vector<Entry*>& needs);
    void describe_task(Entry* entry, Task* task, RowKind kind, Buffer& body, std::vector<Entry*>& needs);
    void deposit(Entry* first, uint32_t node);
    void deposit_again(Entry* entry);
    std::vector<Entry*> send_deposit(Entry* entry, const std::vector<uint32_t>& nodes);
    void withdraw(Id id, const std::vector<uint32_t>& nodes);
    void erase_rows(Entry* first);
    void renew_row(Entry* entry);
    void drain_all();
    // long_waits.cpp
    Hindrance hindrance(const Entry* entry, std::vector<Entry*>& needs);
    void on_find_orphans(Cursor cursor);
    void on_moved(Cursor cursor);
    void moved_to(Entry* entry, ProcessId owner);
    void send_moved(Id id, ProcessId owner, ProcessId to);
    void ask_where(Entry* entry);
    void on_orphan_answered(Cursor cursor);
    void on_settled(Cursor cursor);
    void bury(ProcessId dead, bool has_moved);
    void fail_orphan(Entry* entry);
    void on_adopt(Cursor cursor);
    void confirm_adoptions();
    Entry* own_from_now(Id id);
    void adopt_row(Adoption& all, const AdoptedRow& row);
    void adopt_task(Adoption& all, const AdoptedRow& row, Cursor body);
    Entry* take_over(const PackedRef& ref);
    // definitions.cpp
    void send_function(ProcessId to, Function* function);
    void may_be_unused();
    void sweep();
    void forget_at_workers(const Function& function);
    void on_function(ProcessId from, Cursor cursor);
    void on_forget_function(ProcessId from, uint64_t key);
    void sender_died(ProcessId dead);
    // submit.cpp
    void record_submission(const Task* task);
    void dependency_done(Task* task);
    void enqueue(Task* task);
    void push(Lease* lease, Task* task);
    void pump_shape(Shape* shape);
    Lease* pick(Shape* shape, const Task* task);
    uint32_t near(const Task* task) const;
    uint32_t node_of(const Lease* lease) const;  ///< number + 1; 0 for this node
    void pump_far(Shape* shape);
    void ask_leases(Shape* shape, const std::vector<uint32_t>& near);
    void write_task(ProcessId to, Task* task, Kind kind);
    void on_grant(Cursor cursor);
    void on_revoke(uint64_t lease);
    void on_refused(Cursor cursor);
    void on_not_near(Cursor cursor);
    void on_reply(Cursor cursor);
    void on_handback(Cursor cursor);
    void settle(Task* task, const ReplyHeader& reply, Cursor cursor);
    void finish_task(Task* task);
    void fail_task(Task* task, std::string_view error);
    void return_lease(Lease* lease);
    void leave_flight(Task* task);
    void lease_lost(Lease* lease, const std::string& reason);
    Task* task_at(uint64_t cookie);
    bool retry(Task* task);
    void resend(Task* task);
    void on_stream_item(Cursor cursor);
    void on_stream_credit(ProcessId from, Cursor cursor);
    void send_credit(Task* task, Stream* stream);
    void wake_stream(Stream* stream);
    // actors.cpp
    ActorLink* link(Id actor);
    void watch(ActorLink* to, ProcessId owner);
    void flush_actor(ActorLink* link);
    void fail_creation(Task* task, const std::string& error);
    void actor_is_dead(ActorLink* link, const std::string& error);
    void on_actor_up(Cursor cursor);
    void actor_out_of_reach(ActorLink* to);
    void settle_flight(ActorLink* to, bool may_retry, const std::string& error);
    void on_actor_down(Cursor cursor);
    // death of a peer
    void peer_died(ProcessId dead, std::string_view reason);

    std::unique_ptr<Segment> segment_;
    ProcessId self_;
    ProcessId daemon_;
    bool is_worker_;
    Arena arena_;
    Channels channels_;
    Ledger ledger_;
    EventLog log_;
    int64_t ledger_empty_since_ns_ = 0;

    std::mutex mutex_;
    /// By slot: the generation that was settled last. Of an earlier one it is forgotten that nothing comes
    /// any more from it, and nothing does.
    std::vector<uint32_t> buried_ = std::vector<uint32_t>(kSlots);
    std::vector<uint64_t> adopted_;      ///< custodies to be confirmed
    std::vector<LongWait*> long_waits_;  ///< each on its thread's stack
    uint64_t last_long_wait_ = 0;
    std::unordered_map<Id, Entry*, IdHash> table_;
    std::unordered_map<uint64_t, std::unique_ptr<Function>> functions_;
    size_t given_up_ = 0;  ///< functions and actors since the last sweep
    std::vector<std::unique_ptr<Shape>> shapes_;
    std::unordered_map<uint64_t, std::unique_ptr<Lease>> leases_;
    std::unordered_map<Id, std::unique_ptr<ActorLink>, IdHash> actors_;
    std::vector<std::unique_ptr<Task>> tasks_;
    std::vector<uint32_t> free_tasks_;
    std::deque<Entry> entries_;  ///< all that ever were; addresses stay
    std::vector<Entry*> free_entries_;
    // What follows from a completion or a drop is left to the outermost one: chains are longer than stacks.
    std::deque<uint64_t> unblocked_;  ///< cookies of tasks, one for each dependency that was done
    std::vector<Entry*> dropped_;     ///< holds that freed entries had on others
    std::vector<Entry*> unneeded_;    ///< lineage holds that forgotten tasks had
    bool is_unblocking_ = false, is_dropping_ = false;
    uint64_t owned_ = 0, borrowed_ = 0, submitted_ = 0;
    std::deque<uint64_t>
        kept_;  ///< cookies of tasks kept as lineage, oldest first; some are forgotten by now
    uint64_t kept_count_ = 0, kept_bytes_ = 0, rebuilt_ = 0;
    size_t most_lineage_bytes_ = 64 << 20;
    LineageFile lineage_file_;
    bool is_flushing_ = false;              ///< the thread below is at it, or about to be
    bool told_forgotten_ = false;           ///< the user
    std::thread flush_thread_;              ///< begins when memory has no room for lineage
    std::condition_variable flush_wanted_;  ///< with mutex_
    std::deque<Entry*> inputs_;             ///< values that are kept for the sake of lineage, oldest first
    uint64_t input_bytes_ = 0, most_input_bytes_ = 0;
    uint64_t lent_out_ = 0;      ///< owned objects that have a borrower
    bool told_lending_ = false;  ///< what the daemon knows of that

    // Worker's side.
    std::deque<Incoming> inbox_;
    std::atomic<uint32_t> incoming_{0};  ///< its length, for waiters
    bool is_retired_ = false;
    std::unordered_map<uint64_t, Definition> definitions_;
    std::vector<uint64_t> forgotten_;  ///< keys that were in definitions_
    std::string binding_;
    std::map<std::pair<uint64_t, uint64_t>, std::shared_ptr<Credit>> credits_;
    std::atomic<bool> exit_{false};

    // Waiting and threads.
    std::mutex pump_mutex_;
    std::condition_variable others_;  ///< waiters that do not pump, with mutex_
    std::atomic<uint32_t> other_waiters_{0};
    std::atomic<uint64_t> epoch_{0};
    std::atomic<uint64_t> progress_{0};
    std::atomic<bool> background_waits_{false};
    std::atomic<bool> interrupt_{false};  ///< for interrupted_thread_
    std::atomic<pthread_t> interrupted_thread_{};
    std::atomic<bool> closed_{false};
    std::atomic<bool> lost_{false};
    std::atomic<int64_t> spin_ns_{30'000};
    uint32_t vain_spins_ = 0;  ///< in a row; guarded by pump_mutex_
    std::thread background_thread_;
    std::thread watch_thread_;
    int watch_fd_ = -1;
    int watch_stop_fd_ = -1;

    std::mutex events_mutex_;
    std::condition_variable events_ready_;
    std::deque<CoreEvent> events_;
};

}  // namespace weft
