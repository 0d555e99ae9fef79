#include "events.hpp"

namespace weft {

uint64_t EventLog::skipped() const {
    // What is admitted meanwhile only looks left out until the next reading: its tally is stored before.
    const uint64_t admitted = ring_->admitted.load(std::memory_order_acquire);
    const uint64_t seen = sum(Tally::submitted) + sum(Tally::finished) + sum(Tally::failed);
    return seen - admitted + ring_->skipped_waits.load(std::memory_order_relaxed);
}

EventLog::Read EventLog::read(uint64_t since, size_t most) const {
    Read out;
    out.skipped = skipped();
    out.written = ring_->written.load(std::memory_order_acquire);
    const uint64_t oldest = out.written > events_ ? out.written - events_ : 0;
    out.first =
        std::max({std::min(since, out.written), oldest, out.written - std::min(out.written, uint64_t(most))});
    out.events.resize(size_t(out.written - out.first));
    std::array<uint64_t, kEventWords> words;
    for (uint64_t number = out.first; number < out.written; ++number) {
        const Shared<uint64_t>* from = words_ + (number % events_) * kEventWords;
        for (size_t i = 0; i < kEventWords; ++i)
            words[i] = from[i].load(std::memory_order_relaxed);
        memcpy(static_cast<void*>(&out.events[size_t(number - out.first)]), words.data(), sizeof(Event));
    }
    std::atomic_thread_fence(std::memory_order_acquire);
    // What was overwritten meanwhile, and what is just being, may be torn.
    const uint64_t now = ring_->written.load(std::memory_order_relaxed);
    const uint64_t whole = now + 1 > events_ ? now + 1 - events_ : 0;
    if (whole > out.first) {
        const uint64_t torn = std::min(whole, out.written) - out.first;
        out.events.erase(out.events.begin(), out.events.begin() + long(torn));
        out.first += torn;
    }
    return out;
}

}  // namespace weft
