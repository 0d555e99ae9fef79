/// Objects of the arena on disk.
///
/// SP-1  An object's memory goes once all its bytes are in the file. Until then it is read where it is, and
/// who
///       pins it keeps it there.
/// SP-2  An object's place in the file goes once all its bytes are in memory again, or it is gone.
/// SP-3  The file is touched by one thread, which is not the daemon's. Whoever wants an object back waits for
///       no more than a piece of what is being spilled.
/// SP-4  Places in the file that were given back are used again: it is never longer than what was in it at
/// once
///       and the gaps that were too short for what came later.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include "arena.hpp"

namespace weft {

enum class SpillCode : uint32_t {
    done = 0,
    no_room = 1,      ///< to restore: no free memory of that size
    nothing = 2,      ///< to make room: all that is left is being read
    gone = 3,         ///< the object is
    elsewhere = 4,    ///< the object's bytes are on another node
    disk_failed = 5,  ///< `error` says how
    over_limit = 6,   ///< no more may be spilled
    stopped = 7,
};

struct SpillResult {
    SpillCode code = SpillCode::done;
    uint64_t bytes = 0;  ///< written, or read, or, without room, to be read
    int error = 0;       ///< errno of the disk
    int64_t began_ns = 0, duration_ns = 0;
};

/// The entry's next phase, unless it is in another one by now. Whoever deletes it meanwhile is heard.
bool change_phase(Segment& segment, const ArenaRef& ref, Phase from, Phase to);

/// The file, and what is in it. Used by one thread.
class SpillFile {
  public:
    /// Called between two pieces of what is written or read; false: leave it.
    using Pause = std::function<bool()>;

    static constexpr uint64_t kNoLimit = uint64_t(1) << 62;

    /// The file is made at the first need in the first of the folders that lets it, and has no name. It may
    /// have `limit` bytes on disk.
    SpillFile(Segment& segment, Arena& arena, std::vector<std::string> folders, uint64_t limit);
    ~SpillFile();
    SpillFile(const SpillFile&) = delete;

    /// Spills so much, unless so much is free in one piece. Whoever finds it in several asks again.
    SpillResult make_room(uint64_t bytes, const Pause& pause);
    /// Spills objects of so many bytes at least.
    SpillResult spill(uint64_t bytes, const Pause& pause);
    SpillResult restore(const ArenaRef& ref, const Pause& pause);
    int fd() const { return fd_; }
    /// Of the file, or of the last folder that did not let it be made.
    const std::string& folder() const { return folder_; }

  private:
    struct Place {
        uint64_t offset, bytes;
    };
    bool open(SpillResult& result);
    std::vector<ArenaRef> candidates() const;
    void spill_one(const ArenaRef& ref, const Pause& pause, SpillResult& result);
    void forget_deleted();
    Place claim(uint64_t bytes);
    void give_back(const Place& place);
    uint64_t disk_bytes() const;

    Segment& segment_;
    Arena& arena_;
    const std::vector<std::string> folders_;
    const uint64_t limit_;
    std::string folder_;
    int fd_ = -1;
    uint64_t end_ = 0;
    std::map<uint64_t, uint64_t> gaps_;  ///< before it: offset and bytes, no two of them side by side
    std::unordered_map<uint64_t, Place> spilled_;  ///< by ArenaRef::key
};

/// What was asked for, done: one for each ticket.
struct SpillDone {
    uint64_t ticket;
    bool is_restore;
    SpillResult result;
    std::string folder;
};

/// The thread that works on the file, one request after the other; those who want an object back first. All
/// is called by the daemon's thread.
class SpillThread {
  public:
    SpillThread(Segment& segment, Arena& arena, std::vector<std::string> folders, uint64_t limit);
    /// What is under way is left as it was before, within a piece.
    ~SpillThread();
    SpillThread(const SpillThread&) = delete;

    uint64_t make_room(uint64_t bytes);
    uint64_t restore(const ArenaRef& ref);
    std::vector<SpillDone> take_done();
    /// Readable when take_done has something.
    int event_fd() const { return event_fd_; }

  private:
    struct Request {
        uint64_t ticket;
        ArenaRef ref;  ///< to restore; of no object, only its bytes, to make room
    };
    uint64_t ask(std::deque<Request>& queue, const ArenaRef& ref);
    void run();
    bool restore_waiting();
    void finished(const Request& request, bool is_restore, const SpillResult& result);

    SpillFile file_;
    const int event_fd_;
    std::mutex mutex_;
    std::condition_variable wanted_;
    std::deque<Request> restores_, rooms_;
    std::vector<SpillDone> done_;
    uint64_t tickets_ = 0;
    bool is_stopping_ = false;
    std::thread thread_;  ///< started at the first request
    pid_t started_in_ = 0;
};

}  // namespace weft
