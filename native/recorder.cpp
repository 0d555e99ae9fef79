#include "recorder.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>

#include "doorbell.hpp"
#include "wire.hpp"

namespace weft {

namespace {

int64_t end_of(const Event& event) {
    return event.at_ns + event.duration_ns;
}

bool is_ok(const Event& event) {
    return event.status == uint8_t(Status::ok);
}

std::string_view name_of(const Event& event) {
    return {event.name, std::min<size_t>(event.name_bytes, kEventName)};
}

bool matches(const Event& event, const RunsWanted& wanted) {
    return event.kind == EventKind::RAN && end_of(event) >= wanted.from_ns && end_of(event) < wanted.to_ns &&
           (!wanted.is_unwell || !is_ok(event)) && (wanted.name.empty() || name_of(event) == wanted.name);
}

}  // namespace

// ---- the file --------------------------------------------------------------------------------------

EventFile::EventFile(std::vector<std::string> folders, uint64_t limit)
    : folders_(std::move(folders)), chunks_(limit / kChunkBytes) {}

EventFile::~EventFile() {
    if (fd_ >= 0) close(fd_);
}

bool EventFile::open() {
    for (const std::string& folder : folders_) {
        if (fd_ >= 0) break;
        fd_ = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    }
    return fd_ >= 0;
}

uint64_t EventFile::refused() const {
    std::lock_guard lock(mutex_);
    return refused_;
}

void EventFile::append(const Event& event) {
    if (chunks_ == 0) return;
    std::unique_lock lock(mutex_);
    filling_.push_back(event);
    if (filling_.size() < kChunkEvents) return;
    lock.unlock();
    write_chunk();
}

/// Only this thread changes what is being filled: readers wait for no disk.
void EventFile::write_chunk() {
    Chunk chunk{written_, INT64_MAX, INT64_MIN, open()};
    for (const Event& event : filling_) {
        chunk.oldest_ns = std::min(chunk.oldest_ns, end_of(event));
        chunk.newest_ns = std::max(chunk.newest_ns, end_of(event));
    }
    {
        // Nobody reads what is about to be overwritten.
        std::lock_guard lock(mutex_);
        while (!index_.empty() && index_.front().number + chunks_ <= written_)
            index_.pop_front();
    }
    const char* data = reinterpret_cast<const char*>(filling_.data());
    const off_t at = off_t(written_ % chunks_ * kChunkBytes);
    for (size_t done = 0; chunk.is_there && done < kChunkBytes;) {
        const ssize_t wrote = pwrite(fd_, data + done, kChunkBytes - done, at + off_t(done));
        if (wrote > 0)
            done += size_t(wrote);
        else if (wrote == 0 || errno != EINTR)
            chunk.is_there = false;
    }
    std::lock_guard lock(mutex_);
    if (chunk.is_there)
        index_.push_back(chunk);
    else
        refused_ += filling_.size();
    ++written_;
    filling_.clear();
}

std::vector<Event> EventFile::read_chunk(const Chunk& chunk) const {
    std::vector<Event> events(kChunkEvents);
    char* data = reinterpret_cast<char*>(events.data());
    const off_t at = off_t(chunk.number % chunks_ * kChunkBytes);
    for (size_t done = 0; done < kChunkBytes;) {
        const ssize_t got = pread(fd_, data + done, kChunkBytes - done, at + off_t(done));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return {};
        done += size_t(got);
    }
    // It may have been overwritten meanwhile; then it is not in the index any more.
    std::lock_guard lock(mutex_);
    if (index_.empty() || index_.front().number > chunk.number) return {};
    return events;
}

std::vector<Event> EventFile::find(const RunsWanted& wanted) const {
    std::vector<Event> found;
    const auto is_longer = [](const Event& a, const Event& b) { return a.duration_ns > b.duration_ns; };
    const auto take = [&](const std::vector<Event>& events) {
        for (auto event = events.rbegin(); event != events.rend(); ++event) {
            if (!matches(*event, wanted)) continue;
            if (found.size() < wanted.most) {
                found.push_back(*event);
                if (wanted.is_longest) std::push_heap(found.begin(), found.end(), is_longer);
            } else if (wanted.is_longest && !found.empty() && is_longer(*event, found.front())) {
                std::pop_heap(found.begin(), found.end(), is_longer);
                found.back() = *event;
                std::push_heap(found.begin(), found.end(), is_longer);
            }
        }
    };
    std::deque<Chunk> index;
    std::vector<Event> newest;
    {
        std::lock_guard lock(mutex_);
        index = index_;
        newest = filling_;
    }
    take(newest);
    for (auto chunk = index.rbegin(); chunk != index.rend(); ++chunk) {
        if (!wanted.is_longest && found.size() >= wanted.most) break;
        if (chunk->newest_ns < wanted.from_ns || chunk->oldest_ns >= wanted.to_ns) continue;
        take(read_chunk(*chunk));
    }
    if (wanted.is_longest) std::sort_heap(found.begin(), found.end(), is_longer);
    return found;
}

// ---- reading the rings -----------------------------------------------------------------------------

Recorder::Recorder(const Segment& segment, std::shared_ptr<EventFile> file)
    : segment_(segment),
      file_(std::move(file)),
      next_(segment.header().slots, 0),
      skipped_(segment.header().slots, 0),
      budget_(double(file_->chunks() * EventFile::kChunkEvents) / 4),
      most_budget_(budget_),
      per_ns_(3 * budget_ / double(kLastsNs)) {}

bool Recorder::look(int64_t now_ns) {
    budget_ = std::min(most_budget_, budget_ + per_ns_ * double(now_ns - std::exchange(looked_ns_, now_ns)));
    Sums fresh;
    for (uint32_t slot = 0; slot < next_.size(); ++slot) {
        if (segment_.slot(slot).generation.load() == 0) continue;  // never used: a look would take memory
        const EventLog::Read read = EventLog(segment_, slot).read(next_[slot], SIZE_MAX);
        fresh.missed += read.first - std::exchange(next_[slot], read.written) + read.skipped -
                        std::exchange(skipped_[slot], read.skipped);
        fresh.recorded += read.events.size();
        for (const Event& event : read.events) {
            fresh.add(event);
            fresh.thinned += keep(event) ? 0 : 1;
        }
    }
    if (fresh.recorded == 0 && fresh.missed == 0) return false;
    std::lock_guard lock(mutex_);  // not while the disk writes: who takes the sums waits for none
    sums_.add(fresh);
    return true;
}

/// Into the file, if it shall be there: false when it is thinned out.
bool Recorder::keep(const Event& event) {
    if (event.kind != EventKind::RAN && event.kind != EventKind::SUBMITTED) return true;
    const bool is_unwell = event.kind == EventKind::RAN && !is_ok(event);
    const bool is_chosen = (event.task.high >> 8) % kOneIn == 0;  // not the bits that choose in EventLog
    if (budget_ < 1 || (budget_ < most_budget_ / 2 && !is_unwell && !is_chosen)) return false;
    budget_ -= 1;
    file_->append(event);
    return true;
}

FunctionSums& Recorder::Sums::of(std::string_view name) {
    const auto found = functions.find(std::string(name));
    if (found != functions.end()) return found->second;
    return functions[functions.size() < kMostFunctions ? std::string(name) : std::string()];
}

void Recorder::Sums::add(const Event& event) {
    if (event.kind != EventKind::RAN) return;
    const uint64_t ns = uint64_t(std::max<int64_t>(event.duration_ns, 0));
    of(name_of(event))
        .add({1, event.status == uint8_t(Status::failed), event.status == uint8_t(Status::retry), ns, ns});
}

void Recorder::Sums::add(const Sums& more) {
    for (const auto& [name, sums] : more.functions)
        of(name).add(sums);
    recorded += more.recorded;
    missed += more.missed;
    thinned += more.thinned;
}

Recorder::Sums Recorder::take_sums() {
    std::lock_guard lock(mutex_);
    return std::exchange(sums_, {});
}

// ---- the thread ------------------------------------------------------------------------------------

RecorderThread::RecorderThread(const Segment& segment, std::shared_ptr<EventFile> file)
    : recorder_(segment, std::move(file)), started_in_(getpid()) {
    sigset_t all, before;  // signals are for the daemon's thread
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::thread([this] { run(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

RecorderThread::~RecorderThread() {
    if (started_in_ != getpid()) {
        thread_.detach();  // a fork has no such thread
        return;
    }
    {
        std::lock_guard lock(mutex_);
        is_stopping_ = true;
    }
    wanted_.notify_one();
    thread_.join();
}

void RecorderThread::run() {
    for (bool is_news = false;;) {
        {
            std::unique_lock lock(mutex_);
            const std::chrono::milliseconds pause(is_news ? kBusyMs : kIdleMs);
            if (wanted_.wait_for(lock, pause, [this] { return is_stopping_; })) return;
        }
        is_news = recorder_.look(now_ns());
    }
}

}  // namespace weft
