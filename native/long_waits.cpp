#include "long_waits.hpp"

#include <time.h>

#include <algorithm>

#include "pump.hpp"

namespace weft {

void LongWaits::begin(LongWait& wait) {
    timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    wait.began_s = double(now.tv_sec) + double(now.tv_nsec) * 1e-9;
    {
        std::lock_guard lock(endpoint_.mutex);
        wait.number = ++last_number_;
        all_.push_back(&wait);
    }
    endpoint_.push_event({kWaitsLong, {}});
}

void LongWaits::end(LongWait& wait) {
    std::lock_guard lock(endpoint_.mutex);
    std::erase(all_, &wait);
}

bool LongWaits::break_wait(uint64_t number, std::string error) {
    {
        std::lock_guard lock(endpoint_.mutex);
        const auto it = std::find_if(all_.begin(), all_.end(),
                                     [&](const LongWait* wait) { return wait->number == number; });
        if (it == all_.end()) return false;
        (*it)->error = std::move(error);
        (*it)->is_broken.store(true, std::memory_order_release);
    }
    pump_.wake_waiters();
    return true;
}

}  // namespace weft
