#include "endpoint.hpp"

#include <pthread.h>
#include <signal.h>

namespace weft {

void block_signals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
}

std::string node_lost_error() {
    return error_value(
        ErrorCode::node_lost,
        "the node daemon ended, and with it everything that was running. Call weft.init() again.");
}

Endpoint::Endpoint(std::shared_ptr<Segment> mapped, int event_fd, ProcessId self_id, Id root_id,
                   bool is_workers, Outside* simulated)
    : mapped_(std::move(mapped)),
      simulated_(simulated),
      way_(simulated == nullptr ? Way::rings : Way::simulated),
      segment(*mapped_),
      self(self_id),
      daemon{kDaemonSlot, segment.slot(kDaemonSlot).generation.load()},
      is_worker(is_workers),
      root(root_id),
      arena(segment, self),
      channels(segment, self, event_fd),
      log(segment, self.slot) {}

void Endpoint::become_private() {
    segment.become_private();
    arena.become_private();
    new (&mutex) std::mutex;
    new (&events_mutex_) std::mutex;
    closed_.store(true);
    be_lost();
}

void Endpoint::send_elsewhere(ProcessId to, Kind kind, const void* data, size_t bytes) {
    if (!is_lost()) simulated_->send(to, kind, static_cast<const char*>(data), bytes);
}

void Endpoint::push_event(CoreEvent event) {
    std::lock_guard lock(events_mutex_);
    events_.push_back(std::move(event));
    events_ready_.notify_one();
}

bool Endpoint::next_event(CoreEvent& event) {
    std::unique_lock lock(events_mutex_);
    events_ready_.wait(lock, [&] { return closed_.load() || !events_.empty(); });
    if (events_.empty()) return false;
    event = std::move(events_.front());
    events_.pop_front();
    return true;
}

void Endpoint::wake_event_reader() {
    std::lock_guard lock(events_mutex_);
    events_ready_.notify_all();
}

}  // namespace weft
