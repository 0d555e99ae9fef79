#include "tasks.hpp"

#include <malloc.h>

namespace weft {

namespace {
/// What so many chunks of tasks had in the heap is worth the search for pages that are free.
constexpr uint64_t kChunksBeforeTrim = 64;
}  // namespace

void Tasks::trim() {
    if (pool_.let_go_count() < trimmed_at_ + kChunksBeforeTrim) return;
    trimmed_at_ = pool_.let_go_count();
    malloc_trim(0);
}

}  // namespace weft
