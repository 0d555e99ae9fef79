/// Waits that have lasted, and ending one that waits in vain (engine/state/deadlock.py). What they wait for
/// is told by inspection.hpp.
///
/// Nothing here runs before a wait has lasted for a second.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "endpoint.hpp"

namespace weft {

class Pump;
struct Entry;

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

class LongWaits {
  public:
    LongWaits(Endpoint& endpoint, Pump& pump) : endpoint_(endpoint), pump_(pump) {}

    // These take the mutex.
    void begin(LongWait& wait);
    void end(LongWait& wait);
    /// False when there is none of that number.
    bool break_wait(uint64_t number, std::string error);
    /// The mutex is held.
    const std::vector<LongWait*>& all() const { return all_; }

  private:
    Endpoint& endpoint_;
    Pump& pump_;
    std::vector<LongWait*> all_;  ///< each on its thread's stack
    uint64_t last_number_ = 0;
};

}  // namespace weft
