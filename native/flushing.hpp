/// Lineage past its share of memory goes to disk, the oldest first, and comes back when something must be
/// made again (docs/design/0010).
///
/// A task that goes names its inputs by where *their* lineage is in the file, which was written before, so
/// their entries go with it: a chain costs memory only for its newest part. An input that nothing can make
/// again stays in the arena (kept_inputs.hpp).
#pragma once

#include <condition_variable>
#include <thread>

#include "endpoint.hpp"
#include "lineage_file.hpp"
#include "task.hpp"

namespace weft {

class ActorLinks;
class Borrowing;
class Definitions;
class Leases;
class Lineage;
class Objects;
class Submitter;
class Tasks;

class Flushing {
  public:
    Flushing(Endpoint& endpoint, Tasks& tasks, Objects& objects, Borrowing& borrowing, Lineage& lineage,
             Submitter& submitter, ActorLinks& actors, Leases& leases, Definitions& definitions)
        : endpoint_(endpoint),
          tasks_(tasks),
          objects_(objects),
          borrowing_(borrowing),
          lineage_(lineage),
          submitter_(submitter),
          actors_(actors),
          leases_(leases),
          definitions_(definitions) {}

    /// So much lineage stays in memory, so much goes to disk.
    void limit_lineage(size_t memory_bytes, uint64_t disk_bytes);
    /// A task is kept: a thread takes what is too much to disk; who makes lineage faster than that does it
    /// himself.
    void lineage_has_grown();
    /// The entry is about to go.
    void forget_flushed(Entry* entry);
    /// No batch needs it any more; how many did.
    uint32_t forget_input(Entry* entry) { return lineage_file_.forget_input(entry); }
    /// The task that can make it again, in memory from now on; null when there is none.
    Task* lineage_of(Entry* entry);
    /// For a row: it comes back only while memory has room for it.
    Task* lineage_to_tell(Entry* entry);
    /// Why what was flushed is not on disk any more.
    std::string why_forgotten() const;
    bool is_any_on_disk() const { return lineage_file_.batches() != 0; }
    uint64_t disk_bytes() const { return lineage_file_.bytes(); }

    /// The endpoint is closed: the thread ends.
    void wake();
    void end_thread();

  private:
    void flush_loop();
    LineageFile::Shared flush_oldest();
    void flush_with_needs(LineageFile::Batch& batch, Task* task);
    void flush(LineageFile::Batch& batch, Task* task);
    bool describe_need(LineageFile::Batch& batch, Entry* entry, Buffer& out);
    void flush_written(const LineageFile::Shared& batch, int error);
    Task* read_back(uint64_t position);
    Entry* need_again(Cursor& cursor);

    Endpoint& endpoint_;
    Tasks& tasks_;
    Objects& objects_;
    Borrowing& borrowing_;
    Lineage& lineage_;
    Submitter& submitter_;
    ActorLinks& actors_;
    Leases& leases_;
    Definitions& definitions_;
    size_t most_lineage_bytes_ = 64 << 20;
    LineageFile lineage_file_;
    bool is_flushing_ = false;              ///< the thread below is at it, or about to be
    bool told_forgotten_ = false;           ///< the user
    std::thread flush_thread_;              ///< begins when memory has no room for lineage
    std::condition_variable flush_wanted_;  ///< with the endpoint's mutex
};

}  // namespace weft
