#include "blocking.hpp"

#include "py.hpp"

namespace weft {

bool start_fetching(Core& core, const std::vector<Entry*>& entries) {
    bool pending = false, borrowed = false;
    for (Entry* entry : entries) {
        if (entry->is_done()) continue;
        pending = true;
        borrowed = borrowed || !entry->owned;
    }
    if (borrowed) {
        std::lock_guard lock(core.mutex());
        for (Entry* entry : entries)
            if (!entry->is_done()) core.borrowing.fetch(entry);
    }
    return pending;
}

}  // namespace weft
