#include "arena.hpp"

#include <sys/mman.h>

#include <algorithm>

namespace weft {

namespace {

/// From 4 MiB on: to look through a table of 100,000 granules takes less than a tenth of copying so much.
constexpr uint32_t kLargeRun = (4 << 20) / kGranuleBytes;

uint32_t granules_for(uint64_t bytes) {
    return uint32_t(std::max<uint64_t>(1, (bytes + kGranuleBytes - 1) / kGranuleBytes));
}

uint32_t phase(Phase p) {
    return uint32_t(p);
}

uint32_t phase_of(uint32_t state) {
    return state & 0xff;
}

uint32_t held(Phase p, uint32_t slot) {
    return phase(p) | (slot + 1) << kHolderShift;
}

/// Put an entry that this caller moved to reclaiming back on the free list.
void retire(ObjectEntry& entry) {
    entry.owner.store(0, std::memory_order_relaxed);
    entry.writer.store(0, std::memory_order_relaxed);
    entry.generation.fetch_add(1, std::memory_order_seq_cst);
    entry.state.store(phase(Phase::free), std::memory_order_seq_cst);  // partner: take_entry
}

}  // namespace

bool no_pins(const ObjectEntry& entry) {
    for (const auto& word : entry.pins)
        if (word.load(std::memory_order_seq_cst) != 0) return false;
    return true;
}

bool Arena::claim_at(uint32_t first, uint32_t count) {
    const uint32_t mine = self_.slot + 1;
    for (uint32_t i = 0; i < count; ++i) {
        uint32_t nobody = 0;
        if (segment_.granule(first + i).compare_exchange_strong(nobody, mine, std::memory_order_acq_rel))
            continue;
        while (i-- > 0)
            segment_.granule(first + i).store(0, std::memory_order_release);
        return false;
    }
    return true;
}

bool Arena::claim(uint32_t count, Run& run) {
    Header& header = segment_.header();
    const uint32_t total = header.granules;
    if (count > total) return false;
    // A large run is looked for from the bottom: what was freed there is in memory, and mapped by those who
    // wrote it. Going round after the hint it would walk through pages that nobody has touched yet.
    const bool is_large = count >= kLargeRun;
    const uint32_t start = is_large ? 0 : header.granule_hint.load(std::memory_order_relaxed) % total;
    // One lap from the hint, then from the beginning; a run does not wrap round the end.
    for (int lap = 0; lap < 2; ++lap) {
        uint32_t at = lap == 0 ? start : 0;
        const uint32_t end = lap == 0 ? total : std::min<uint64_t>(total, uint64_t(start) + count);
        uint32_t found = 0;
        for (; at < end; ++at) {
            if (segment_.granule(at).load(std::memory_order_relaxed) != 0) {
                found = 0;
                continue;
            }
            if (++found < count) continue;
            const uint32_t first = at + 1 - count;
            if (claim_at(first, count)) {
                if (!is_large) header.granule_hint.store(at + 1, std::memory_order_relaxed);
                run = {first, count};
                return true;
            }
            found = 0;
        }
    }
    return false;
}

void Arena::release(Run run) {
    for (uint32_t i = 0; i < run.count; ++i)
        segment_.granule(run.first + i).store(0, std::memory_order_release);  // partner: claim_at
    // The next claim begins here: these pages are in memory, and likely in the cache. Not where a large run
    // was: a small one at its beginning would keep the next large one from it.
    if (run.count < kLargeRun) segment_.header().granule_hint.store(run.first, std::memory_order_relaxed);
}

uint32_t Arena::take_entry() {
    Header& header = segment_.header();
    const uint32_t start = header.object_hint.load(std::memory_order_relaxed);
    for (uint32_t i = 0; i < header.objects; ++i) {
        const uint32_t index = (start + i) % header.objects;
        ObjectEntry& entry = segment_.object(index);
        uint32_t free = phase(Phase::free);
        if (entry.state.load(std::memory_order_relaxed) != free) continue;
        if (!entry.state.compare_exchange_strong(free, held(Phase::building, self_.slot))) continue;
        header.object_hint.store(index + 1 < header.objects ? index + 1 : 0, std::memory_order_relaxed);
        return index;
    }
    return header.objects;
}

bool Arena::allocate(uint64_t bytes, ProcessId owner, ArenaRef& ref, char*& data) {
    const uint32_t count = granules_for(bytes);
    std::lock_guard lock(mutex_);
    Run run{};
    if (!claim(count, run)) return false;
    const uint32_t index = take_entry();
    if (index == segment_.header().objects) {
        release(run);
        return false;
    }
    ObjectEntry& entry = segment_.object(index);
    entry.writer.store(self_.key(), std::memory_order_relaxed);
    entry.owner.store(owner.key(), std::memory_order_relaxed);
    entry.accepted.store(0, std::memory_order_relaxed);
    entry.is_elsewhere.store(0, std::memory_order_relaxed);
    entry.first_granule.store(run.first, std::memory_order_relaxed);
    entry.granules.store(run.count, std::memory_order_relaxed);
    entry.bytes = bytes;
    ref = {index, entry.generation.load(std::memory_order_relaxed), bytes};
    data = segment_.granule_data(run.first);
    return true;
}

void Arena::seal(const ArenaRef& ref, bool accepted) {
    ObjectEntry& entry = segment_.object(ref.entry);
    entry.accepted.store(accepted ? 1 : 0, std::memory_order_relaxed);
    entry.state.store(phase(Phase::sealed), std::memory_order_seq_cst);  // partner: pin
    // Its owner died while it was written, and what it owned was deleted before this was there to be found.
    if (!segment_.is_alive(ProcessId::from_key(entry.owner.load()))) remove(ref);
}

void Arena::abandon(const ArenaRef& ref) {
    seal(ref, false);  // still its writer's: it goes, should the writer die before the next line
    remove(ref);
}

void Arena::accept(const ArenaRef& ref) {
    segment_.object(ref.entry).accepted.store(1, std::memory_order_release);
}

void Arena::adopt(const ArenaRef& ref) {
    ObjectEntry& entry = segment_.object(ref.entry);
    if (entry.generation.load(std::memory_order_seq_cst) == ref.generation) entry.owner.store(self_.key());
}

void Arena::remove(const ArenaRef& ref) {
    ObjectEntry& entry = segment_.object(ref.entry);
    if (entry.generation.load(std::memory_order_seq_cst) != ref.generation) return;
    entry.state.fetch_or(kDeleted, std::memory_order_seq_cst);
    std::lock_guard lock(mutex_);
    try_reclaim(ref.entry);
}

void Arena::try_reclaim(uint32_t index) {
    ObjectEntry& entry = segment_.object(index);
    uint32_t state = entry.state.load(std::memory_order_seq_cst);
    const bool in_arena = state == (phase(Phase::sealed) | kDeleted);
    if (!in_arena && state != (phase(Phase::spilled) | kDeleted)) return;
    if (!no_pins(entry)) return;  // whoever holds the last pin reclaims
    if (!entry.state.compare_exchange_strong(state, held(Phase::reclaiming, self_.slot))) return;
    const Run run{entry.first_granule, entry.granules};
    if (in_arena) {
        for (uint32_t i = 0; i < run.count; ++i)
            segment_.granule(run.first + i).store(self_.slot + 1, std::memory_order_release);
    }
    retire(entry);
    if (in_arena) release(run);
}

PinResult Arena::pin(const ArenaRef& ref, char*& data) {
    ObjectEntry& entry = segment_.object(ref.entry);
    std::lock_guard lock(mutex_);
    if (const auto held = pins_.find(ref.entry); held != pins_.end()) {
        // What is pinned here stays: a ref to what the entry was before has no say in it.
        if (entry.generation.load(std::memory_order_seq_cst) != ref.generation) return PinResult::lost;
        ++held->second;
        data = segment_.granule_data(entry.first_granule);
        return PinResult::ok;
    }
    const uint64_t bit = 1ULL << (self_.slot % 64);
    entry.pins[self_.slot / 64].fetch_or(bit, std::memory_order_seq_cst);
    const uint32_t state = entry.state.load(std::memory_order_seq_cst);  // partner: remove, spill
    const bool same = entry.generation.load(std::memory_order_seq_cst) == ref.generation;
    if (same && state == phase(Phase::sealed)) {
        pins_.emplace(ref.entry, 1);
        data = segment_.granule_data(entry.first_granule);
        return PinResult::ok;
    }
    entry.pins[self_.slot / 64].fetch_and(~bit, std::memory_order_seq_cst);
    try_reclaim(ref.entry);
    const bool on_disk = same && (state == phase(Phase::spilling) || state == phase(Phase::spilled) ||
                                  state == phase(Phase::restoring));
    return on_disk ? PinResult::spilled : PinResult::lost;
}

void Arena::unpin(const ArenaRef& ref) {
    ObjectEntry& entry = segment_.object(ref.entry);
    std::lock_guard lock(mutex_);
    const auto it = pins_.find(ref.entry);
    if (it == pins_.end()) return;
    if (--it->second > 0) return;
    pins_.erase(it);
    entry.pins[self_.slot / 64].fetch_and(~(1ULL << (self_.slot % 64)), std::memory_order_seq_cst);
    if (entry.state.load(std::memory_order_seq_cst) & kDeleted) try_reclaim(ref.entry);
}

bool Arena::import_entry(uint64_t bytes, ProcessId owner, ArenaRef& ref) {
    std::lock_guard lock(mutex_);
    const uint32_t index = take_entry();
    if (index == segment_.header().objects) return false;
    ObjectEntry& entry = segment_.object(index);
    entry.writer.store(self_.key(), std::memory_order_relaxed);
    entry.owner.store(owner.key(), std::memory_order_relaxed);
    entry.accepted.store(1, std::memory_order_relaxed);
    entry.first_granule = 0;
    entry.granules = 0;
    entry.bytes = bytes;
    entry.is_elsewhere.store(1, std::memory_order_relaxed);
    entry.file_offset = 0;
    ref = {index, entry.generation.load(std::memory_order_relaxed), bytes};
    entry.state.store(phase(Phase::spilled), std::memory_order_seq_cst);
    return true;
}

uint32_t Arena::node_of(const ArenaRef& ref) const {
    const ObjectEntry& entry = segment_.object(ref.entry);
    if ((entry.state.load(std::memory_order_acquire) & 0xff) != phase(Phase::spilled)) return 0;
    const uint64_t offset = entry.file_offset;
    return (offset & kFarBytes) != 0 ? uint32_t(offset & ~kFarBytes) + 1 : 0;
}

bool Arena::claim_run(uint32_t granules, uint32_t& first) {
    std::lock_guard lock(mutex_);
    Run run{};
    if (!claim(granules, run)) return false;
    first = run.first;
    return true;
}

void Arena::release_run(uint32_t first, uint32_t granules) {
    release({first, granules});
}

void Arena::reclaim_if_deleted(uint32_t entry) {
    if ((segment_.object(entry).state.load(std::memory_order_seq_cst) & kDeleted) == 0) return;
    std::lock_guard lock(mutex_);
    try_reclaim(entry);
}

void remove_objects_of(Segment& segment, ProcessId dead) {
    const uint32_t objects = segment.header().objects;
    for (uint32_t i = 0; i < objects; ++i) {
        ObjectEntry& entry = segment.object(i);
        const uint32_t state = entry.state.load(std::memory_order_seq_cst);
        if (state == phase(Phase::free) || entry.owner.load() != dead.key()) continue;
        // One that is deleted already may go, and come back as another's, at any moment.
        if ((state & kDeleted) != 0 || state >> kHolderShift != 0) continue;
        entry.state.fetch_or(kDeleted);
    }
}

void reclaim_after_death(Segment& segment, ProcessId dead, bool unaccepted) {
    Header& header = segment.header();
    const uint64_t key = dead.key();
    const uint64_t bit = 1ULL << (dead.slot % 64);
    std::vector<bool> covered(header.granules, false);
    const auto free_granules = [&](const ObjectEntry& entry) {
        for (uint32_t g = 0; g < entry.granules; ++g)
            segment.granule(entry.first_granule + g).store(0, std::memory_order_release);
    };
    for (uint32_t i = 0; i < header.objects; ++i) {
        ObjectEntry& entry = segment.object(i);
        // Also on one that is free: it may have died with a stale ref in its hand. Before the state is read:
        // who deletes it now sees the pin gone, or is seen.
        if (entry.pins[dead.slot / 64].load() & bit) entry.pins[dead.slot / 64].fetch_and(~bit);
        const uint32_t generation = entry.generation.load(std::memory_order_seq_cst);
        uint32_t state = entry.state.load(std::memory_order_seq_cst);
        if (state == phase(Phase::free)) continue;
        if (state >> kHolderShift == dead.slot + 1) {
            // Of what it was building nothing but its name is sure; the memory is in its name and is swept
            // below.
            if (phase_of(state) == phase(Phase::reclaiming)) free_granules(entry);
            retire(entry);
            continue;
        }
        if (phase_of(state) == phase(Phase::building)) continue;
        const bool wrote = entry.writer.load() == key;
        if (wrote && unaccepted && entry.accepted.load() == 0)
            state = entry.state.fetch_or(kDeleted) | kDeleted;
        if ((state & kDeleted) != 0 && no_pins(entry)) {
            const bool in_arena = state == (phase(Phase::sealed) | kDeleted);
            const bool on_disk = state == (phase(Phase::spilled) | kDeleted);
            if ((in_arena || on_disk) &&
                entry.state.compare_exchange_strong(state, held(Phase::reclaiming, kDaemonSlot))) {
                if (in_arena) free_granules(entry);
                retire(entry);
                continue;
            }
        }
        const uint32_t first = entry.first_granule, count = entry.granules;
        // Whoever has reclaimed it meanwhile has put its own name on the memory first.
        if (entry.generation.load(std::memory_order_seq_cst) != generation) continue;
        for (uint32_t g = 0; g < count; ++g)
            covered[first + g] = true;
    }
    for (uint32_t g = 0; g < header.granules; ++g) {
        uint32_t mine = dead.slot + 1;
        if (!covered[g] && segment.granule(g).load(std::memory_order_relaxed) == mine)
            segment.granule(g).compare_exchange_strong(mine, 0);
    }
}

}  // namespace weft
