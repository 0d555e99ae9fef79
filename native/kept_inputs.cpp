#include "kept_inputs.hpp"

#include <algorithm>

#include "flushing.hpp"
#include "objects.hpp"

namespace weft {

namespace {
/// One part in so many of the arena may be inputs that stay only for the sake of lineage.
constexpr uint64_t kShareOfInputs = 4;
}  // namespace

KeptInputs::KeptInputs(Endpoint& endpoint, Objects& objects, Flushing& flushing)
    : objects_(objects),
      flushing_(flushing),
      most_input_bytes_(endpoint.segment.header().arena_bytes / kShareOfInputs) {}

bool KeptInputs::keep_input(Entry* entry) {
    if (entry->is_input) return true;
    if (entry->arena.bytes > most_input_bytes_ || objects_.is_lost_in_arena(entry)) return false;
    entry->is_input = true;
    inputs_.push_back(entry);
    input_bytes_ += entry->arena.bytes;
    while (input_bytes_ > most_input_bytes_) {
        Entry* oldest = inputs_.front();
        forget_input(oldest);
        oldest->lineage_holds -= flushing_.forget_input(oldest);
        const bool is_used = oldest->holds.load(std::memory_order_acquire) != 0 ||
                             (oldest->extra && !oldest->extra->borrowers.empty());
        if (is_used) continue;
        if (oldest->lineage_holds == 0)
            objects_.release_entry(oldest);
        else
            objects_.let_value_go(oldest);
    }
    return true;
}

void KeptInputs::forget_input(Entry* entry) {
    entry->is_input = false;
    input_bytes_ -= entry->arena.bytes;
    inputs_.erase(std::find(inputs_.begin(), inputs_.end(), entry));
}

}  // namespace weft
