/// Inputs of lineage that nothing can make again (put(), or a task that may not be retried): they stay in the
/// arena, up to a share of it, and are spilled like all else there.
#pragma once

#include <deque>

#include "endpoint.hpp"
#include "entry.hpp"

namespace weft {

class Flushing;
class Objects;

class KeptInputs {
  public:
    KeptInputs(Endpoint& endpoint, Objects& objects, Flushing& flushing);

    /// So many bytes of them stay.
    void limit_inputs(uint64_t bytes) { most_input_bytes_ = bytes; }
    /// Whether its value stays. The oldest ones go when there are too many.
    bool keep_input(Entry* entry);
    void forget_input(Entry* entry);
    uint64_t bytes() const { return input_bytes_; }

  private:
    Objects& objects_;
    Flushing& flushing_;
    std::deque<Entry*> inputs_;  ///< values that are kept for the sake of lineage, oldest first
    uint64_t input_bytes_ = 0, most_input_bytes_;
};

}  // namespace weft
