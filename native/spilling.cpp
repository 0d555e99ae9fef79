#include "spilling.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <random>
#include <system_error>
#include <utility>

#include "doorbell.hpp"

namespace weft {

namespace {
/// What it takes in the file: places begin where blocks of the disk do.
uint64_t in_blocks(uint64_t bytes) {
    return (bytes + 4095) & ~uint64_t(4095);
}

/// Written in a few milliseconds by any disk.
constexpr uint64_t kPieceBytes = 4 << 20;
constexpr uint64_t kBlockBytes = 512;  ///< what st_blocks counts in

/// Moves the bytes piece by piece; 0, an errno, or ECANCELED when `pause` said so.
template <class Move>
int in_pieces(uint64_t bytes, const SpillFile::Pause& pause, Move&& move) {
    for (uint64_t at = 0; at < bytes;) {
        const ssize_t moved = move(at, std::min(kPieceBytes, bytes - at));
        if (moved < 0 && errno == EINTR) continue;
        if (moved < 0) return errno;
        if (moved == 0) return EIO;
        at += uint64_t(moved);
        if (at < bytes && !pause()) return ECANCELED;
    }
    return 0;
}

SpillCode code_of(int error) {
    return error == 0 ? SpillCode::done : error == ECANCELED ? SpillCode::stopped : SpillCode::disk_failed;
}

/// A file without a name; -1 with errno.
int open_nameless(const std::string& folder) {
    const int file = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (file >= 0) return file;
    // Not every file system can make one.
    const std::string path =
        folder + "/weft-spill-" + std::to_string(std::random_device{}()) + "-" + std::to_string(getpid());
    const int named = ::open(path.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    if (named >= 0) unlink(path.c_str());
    return named;
}

int make_event_fd() {
    const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0) throw std::system_error(errno, std::generic_category(), "weft: eventfd");
    return fd;
}

}  // namespace

bool change_phase(Segment& segment, const ArenaRef& ref, Phase from, Phase to) {
    return !!change_word(segment.object(ref.entry), [&](EntryWord now) -> std::optional<EntryWord> {
        if (!now.is(ref.generation, from)) return std::nullopt;
        now = now.in(to);
        if (to == Phase::sealed) return now.with(EntryWord::kResident).without(EntryWord::kElsewhere);
        return to == Phase::spilled ? now.without(EntryWord::kResident) : now;
    });
}

// ---- the file --------------------------------------------------------------------------------------

SpillFile::SpillFile(Segment& segment, Arena& arena, std::vector<std::string> folders, uint64_t limit)
    : segment_(segment), arena_(arena), folders_(std::move(folders)), limit_(limit) {}

SpillFile::~SpillFile() {
    if (fd_ >= 0) close(fd_);
}

bool SpillFile::open(SpillResult& result) {
    for (size_t i = 0; fd_ < 0 && i < folders_.size(); ++i) {
        folder_ = folders_[i];
        fd_ = open_nameless(folder_);
        result.error = fd_ < 0 ? errno : 0;
    }
    if (fd_ < 0) result.code = SpillCode::disk_failed;
    return fd_ >= 0;
}

uint64_t SpillFile::disk_bytes() const {
    struct stat info{};
    return fstat(fd_, &info) == 0 ? uint64_t(info.st_blocks) * kBlockBytes : 0;
}

/// The first gap that is long enough, or the file's end.
SpillFile::Place SpillFile::claim(uint64_t bytes) {
    const uint64_t length = in_blocks(bytes);
    const auto gap =
        std::find_if(gaps_.begin(), gaps_.end(), [&](const auto& one) { return one.second >= length; });
    if (gap == gaps_.end()) return {std::exchange(end_, end_ + length), bytes};
    const auto [offset, found] = *gap;
    gaps_.erase(gap);
    if (found > length) gaps_.emplace(offset + length, found - length);
    return {offset, bytes};
}

void SpillFile::give_back(const Place& place) {
    uint64_t offset = place.offset, length = in_blocks(place.bytes);
    fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off_t(offset), off_t(length));
    auto next = gaps_.lower_bound(offset);
    if (next != gaps_.end() && next->first == offset + length) {
        length += next->second;
        next = gaps_.erase(next);
    }
    if (next != gaps_.begin()) {
        const auto before = std::prev(next);
        if (before->first + before->second == offset) {
            offset = before->first;
            length += before->second;
            gaps_.erase(before);
        }
    }
    if (offset + length == end_)
        end_ = offset;
    else
        gaps_.emplace(offset, length);
}

/// Give the disk space of objects that are gone back.
void SpillFile::forget_deleted() {
    std::erase_if(spilled_, [&](const auto& item) {
        if (arena_.exists({uint32_t(item.first), uint32_t(item.first >> 32), 0})) return false;
        give_back(item.second);
        return true;
    });
}

/// The largest first: fewest objects pay the way to disk and back.
std::vector<ArenaRef> SpillFile::candidates() const {
    std::vector<ArenaRef> found;
    const uint32_t objects = segment_.header().objects_used.load(std::memory_order_acquire);
    for (uint32_t i = 0; i < objects; ++i) {
        const EntryWord word = word_of(segment_, i);
        if (word.phase() == Phase::sealed && !word.has(EntryWord::kDeleted) && no_pins(segment_, i))
            found.push_back({i, word.generation(), segment_.object(i).bytes.load()});
    }
    std::sort(found.begin(), found.end(),
              [](const ArenaRef& a, const ArenaRef& b) { return a.bytes > b.bytes; });
    return found;
}

void SpillFile::spill_one(const ArenaRef& ref, const Pause& pause, SpillResult& result) {
    if (!change_phase(segment_, ref, Phase::sealed, Phase::spilling)) return;
    const ObjectEntry& entry = segment_.object(ref.entry);
    const uint32_t first = entry.first_granule.load(), count = entry.granules.load();
    const Place place = claim(ref.bytes);
    int error = ECANCELED;
    if (no_pins(segment_, ref.entry)) {
        const char* data = segment_.granule_data(first);
        bool is_wanted = true;
        const auto go_on = [&] {
            const EntryWord word = word_of(segment_, ref.entry);
            is_wanted = word.is(ref.generation, Phase::spilling) && !word.has(EntryWord::kDeleted);
            return is_wanted && pause();
        };
        error = in_pieces(ref.bytes, go_on, [&](uint64_t at, uint64_t bytes) {
            return pwrite(fd_, data + at, bytes, off_t(place.offset + at));
        });
        if (error != 0 && is_wanted) result.code = code_of(error), result.error = error;
    }
    // Not so when somebody has pinned it meanwhile: then its memory may be another object's by now.
    if (error == 0 && change_phase(segment_, ref, Phase::spilling, Phase::moving)) {
        arena_.take_run(first, count);  // or its writer's death could free it before this does
        spilled_[ref.key()] = place;
        result.bytes += ref.bytes;
        change_phase(segment_, ref, Phase::moving, Phase::spilled);
        arena_.release_run(first, count);
    } else {
        change_phase(segment_, ref, Phase::spilling, Phase::sealed);
        give_back(place);  // what was written of it
    }
    arena_.reclaim_if_deleted(ref.entry);
}

SpillResult SpillFile::spill(uint64_t wanted, const Pause& pause) {
    SpillResult result;
    result.began_ns = now_ns();
    if (!open(result)) return result;
    forget_deleted();
    if (disk_bytes() + wanted > limit_) {
        result.code = SpillCode::over_limit;
        return result;
    }
    for (const ArenaRef& ref : candidates()) {
        if (result.bytes >= wanted || result.code != SpillCode::done) break;
        spill_one(ref, pause, result);
    }
    if (result.bytes != 0 && result.code == SpillCode::disk_failed) result.code = SpillCode::done;
    if (result.bytes == 0 && result.code == SpillCode::done) result.code = SpillCode::nothing;
    result.duration_ns = now_ns() - result.began_ns;
    return result;
}

SpillResult SpillFile::make_room(uint64_t bytes, const Pause& pause) {
    const auto is_free = [&] { return arena_.has_run(granules_for(bytes)); };
    SpillResult result;
    if (!is_free()) result = spill(bytes, pause);
    if (result.code != SpillCode::done && result.code != SpillCode::stopped && is_free())
        result.code = SpillCode::done;  // somebody else has freed it meanwhile
    return result;
}

SpillResult SpillFile::restore(const ArenaRef& ref, const Pause& pause) {
    SpillResult result;
    result.began_ns = now_ns();
    const auto ended = [&](SpillCode code) {
        result.code = code;
        return result;
    };
    const EntryWord word = arena_.exists(ref) ? word_of(segment_, ref.entry) : EntryWord{};
    if (!word.is_whole(ref.generation) || word.has(EntryWord::kDeleted)) return ended(SpillCode::gone);
    if (arena_.is_elsewhere(ref)) return ended(SpillCode::elsewhere);
    // What is about to be spilled stays.
    if (change_phase(segment_, ref, Phase::spilling, Phase::sealed)) return ended(SpillCode::done);
    if (word_of(segment_, ref.entry).is(ref.generation, Phase::sealed)) return ended(SpillCode::done);
    const auto found = spilled_.find(ref.key());
    if (found == spilled_.end()) return ended(SpillCode::gone);
    const Place place = found->second;
    const uint32_t count = granules_for(place.bytes);
    uint32_t first = 0;
    result.bytes = place.bytes;
    if (!arena_.claim_run(count, first)) return ended(SpillCode::no_room);
    if (!change_phase(segment_, ref, Phase::spilled, Phase::moving)) {
        arena_.release_run(first, count);
        return ended(SpillCode::gone);
    }
    char* data = segment_.granule_data(first);
    result.error = in_pieces(place.bytes, pause, [&](uint64_t at, uint64_t bytes) {
        return pread(fd_, data + at, bytes, off_t(place.offset + at));
    });
    if (result.error == 0) {
        ObjectEntry& entry = segment_.object(ref.entry);
        entry.first_granule.store(first);
        entry.granules.store(count);
        spilled_.erase(found);
        change_phase(segment_, ref, Phase::moving, Phase::sealed);
        give_back(place);
    } else {
        change_phase(segment_, ref, Phase::moving, Phase::spilled);
        arena_.release_run(first, count);
    }
    arena_.reclaim_if_deleted(ref.entry);
    result.duration_ns = now_ns() - result.began_ns;
    return ended(code_of(result.error));
}

// ---- the thread ------------------------------------------------------------------------------------

SpillThread::SpillThread(Segment& segment, Arena& arena, std::vector<std::string> folders, uint64_t limit)
    : file_(segment, arena, std::move(folders), limit), event_fd_(make_event_fd()) {}

SpillThread::~SpillThread() {
    {
        std::lock_guard lock(mutex_);
        is_stopping_ = true;
    }
    wanted_.notify_one();
    if (thread_.joinable()) {
        // A fork has no such thread.
        if (started_in_ == getpid())
            thread_.join();
        else
            thread_.detach();
    }
    close(event_fd_);
}

uint64_t SpillThread::ask(std::deque<Request>& queue, const ArenaRef& ref) {
    std::lock_guard lock(mutex_);
    queue.push_back({++tickets_, ref});
    if (!thread_.joinable()) {
        sigset_t all, before;  // signals are for the daemon's thread
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        thread_ = std::thread([this] { run(); });
        started_in_ = getpid();
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }
    wanted_.notify_one();
    return tickets_;
}

uint64_t SpillThread::make_room(uint64_t bytes) {
    return ask(rooms_, {0, 0, bytes});
}

uint64_t SpillThread::restore(const ArenaRef& ref) {
    return ask(restores_, ref);
}

std::vector<SpillDone> SpillThread::take_done() {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = read(event_fd_, &count, sizeof count);
    std::lock_guard lock(mutex_);
    return std::exchange(done_, {});
}

void SpillThread::finished(const Request& request, bool is_restore, const SpillResult& result) {
    {
        std::lock_guard lock(mutex_);
        done_.push_back({request.ticket, is_restore, result, file_.folder()});
    }
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(event_fd_, &one, sizeof one);
}

/// All that is asked for by now; false: the thread is to end.
bool SpillThread::restore_waiting() {
    const auto is_going_on = [this] {
        std::lock_guard lock(mutex_);
        return !is_stopping_;
    };
    for (;;) {
        Request next{};
        {
            std::lock_guard lock(mutex_);
            if (is_stopping_ || restores_.empty()) return !is_stopping_;
            next = restores_.front();
            restores_.pop_front();
        }
        finished(next, true, file_.restore(next.ref, is_going_on));
    }
}

void SpillThread::run() {
    while (restore_waiting()) {
        Request next{};
        {
            std::unique_lock lock(mutex_);
            wanted_.wait(lock, [this] { return is_stopping_ || !restores_.empty() || !rooms_.empty(); });
            if (rooms_.empty()) continue;
            next = rooms_.front();
            rooms_.pop_front();
        }
        finished(next, false, file_.make_room(next.ref.bytes, [this] { return restore_waiting(); }));
    }
}

}  // namespace weft
