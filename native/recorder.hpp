/// What a node did in the last hours: events of all its rings in a file, and sums for each function.
///
/// REC-1  Who records knows nothing of it: it reads the rings as any observer does (EVT-3).
/// REC-2  It is bounded: the oldest chunk of the file gives way, and what comes faster than the file shall
///         last is thinned out by task, so that a task's submission and its run are both there or both not.
/// REC-3  Sums of functions are of all events that were read, thinned out or not; what was not read is
/// counted. REC-4  A disk that refuses costs events, which are counted, and never more than that.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>

#include "events.hpp"

namespace weft {

/// Which runs of tasks are wanted of the file. Times are those of the run's end, on the monotonic clock.
struct RunsWanted {
    int64_t from_ns = 0, to_ns = INT64_MAX;
    std::string name{};       ///< of the function; empty: of all
    bool is_unwell = false;   ///< only those that did not end in Status::ok
    bool is_longest = false;  ///< those that took longest; else the newest
    size_t most = 1000;
};

/// Events in a file without a name, in chunks that take turns. Appended to by one thread, read by any.
class EventFile {
  public:
    static constexpr size_t kChunkEvents = 4096;
    static constexpr size_t kChunkBytes = kChunkEvents * sizeof(Event);

    /// Made at the first need, in the first of the folders that lets it be made; of so many bytes at most.
    EventFile(std::vector<std::string> folders, uint64_t limit);
    ~EventFile();
    EventFile(const EventFile&) = delete;

    void append(const Event& event);
    std::vector<Event> find(const RunsWanted& wanted) const;
    /// Events that the disk has not taken.
    uint64_t refused() const;
    uint64_t chunks() const { return chunks_; }

  private:
    struct Chunk {
        uint64_t number;
        int64_t oldest_ns, newest_ns;  ///< ends of what is in it
        bool is_there;                 ///< false: the disk refused it
    };
    bool open();
    void write_chunk();
    std::vector<Event> read_chunk(const Chunk& chunk) const;

    const std::vector<std::string> folders_;
    const uint64_t chunks_;
    mutable std::mutex mutex_;
    int fd_ = -1;
    std::deque<Chunk> index_;     ///< of what is in the file, the oldest first
    std::vector<Event> filling_;  ///< the chunk that is not in the file yet
    uint64_t written_ = 0;        ///< chunks
    uint64_t refused_ = 0;
};

/// Of one function, since they were taken the last time.
struct FunctionSums {
    uint64_t runs = 0, failed = 0, retried = 0, run_ns = 0, longest_ns = 0;

    void add(const FunctionSums& more) {
        runs += more.runs;
        failed += more.failed;
        retried += more.retried;
        run_ns += more.run_ns;
        longest_ns = std::max(longest_ns, more.longest_ns);
    }
};

/// Reads the rings and keeps what they had.
class Recorder {
  public:
    struct Sums {
        std::unordered_map<std::string, FunctionSums> functions;
        uint64_t recorded = 0, missed = 0,
                 thinned = 0;  ///< events; `thinned` are in no file, but counted here

        void add(const Event& event);
        void add(const Sums& more);

      private:
        FunctionSums& of(std::string_view name);
    };
    /// Names that are kept apart; what other functions do is told under the empty name.
    static constexpr size_t kMostFunctions = 256;
    /// The file lasts so long at least, whatever happens; a quarter of it may be filled at any speed.
    static constexpr int64_t kLastsNs = 2 * 3600 * int64_t(1'000'000'000);
    /// When less than half of that quarter is free, one task in so many goes to the file.
    static constexpr uint64_t kOneIn = 16;

    Recorder(const Segment& segment, std::shared_ptr<EventFile> file);

    /// Everything that is new: whether there was anything. Called by one thread.
    bool look(int64_t now_ns);
    Sums take_sums();

  private:
    bool keep(const Event& event);

    const Segment& segment_;
    const std::shared_ptr<EventFile> file_;
    std::vector<uint64_t> next_, skipped_;  ///< by slot: the event to read next, and what was left out so far
    double budget_, most_budget_, per_ns_;
    int64_t looked_ns_ = 0;
    std::mutex mutex_;
    Sums sums_;
};

/// The thread that looks.
class RecorderThread {
  public:
    RecorderThread(const Segment& segment, std::shared_ptr<EventFile> file);
    ~RecorderThread();
    RecorderThread(const RecorderThread&) = delete;

    Recorder::Sums take_sums() { return recorder_.take_sums(); }

  private:
    /// A ring of 8,192 events takes 0.6 s at the most that a process records. Without news it looks less
    /// often.
    static constexpr int64_t kBusyMs = 250, kIdleMs = 1000;
    void run();

    Recorder recorder_;
    std::mutex mutex_;
    std::condition_variable wanted_;
    bool is_stopping_ = false;
    std::thread thread_;
    pid_t started_in_;
};

}  // namespace weft
