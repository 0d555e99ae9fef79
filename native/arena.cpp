#include "arena.hpp"

#include <sys/mman.h>

#include <algorithm>

namespace weft {

namespace {

/// From 4 MiB on: to look through a table of 100,000 granules takes less than a tenth of copying so much.
constexpr uint32_t kLargeRun = (4 << 20) / kGranuleBytes;

/// Put an entry that this caller moved to reclaiming back on the free list. False when the caller was taken
/// for dead, and its entry retired by the daemon.
bool retire(ObjectEntry& entry, EntryWord word) {
    return entry.word.compare_exchange_strong(word.bits, word.retired().bits);  // partner: take_entry
}

}  // namespace

bool no_pins(const Segment& segment, uint32_t entry) {
    for (const auto& word : pins_of(segment, entry))
        if (word.load(std::memory_order_seq_cst) != 0) return false;
    return true;
}

uint32_t count_pins(const Segment& segment, uint32_t entry) {
    uint32_t count = 0;
    for (const auto& word : pins_of(segment, entry))
        count += uint32_t(__builtin_popcountll(word.load(std::memory_order_relaxed)));
    return count;
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
    // was: a small one at its beginning would keep the next large one from it. And not where what is before
    // it is free, too: who gives back many in the order in which they were made would go on behind the last
    // one, and walk through pages that nobody has touched yet.
    if (run.count >= kLargeRun) return;
    Shared<uint32_t>& hint = segment_.header().granule_hint;
    const bool follows = hint.load(std::memory_order_relaxed) < run.first &&
                         segment_.granule(run.first - 1).load(std::memory_order_relaxed) == 0;
    if (!follows) hint.store(run.first, std::memory_order_relaxed);
}

bool Arena::take_entry(uint32_t& index, uint32_t& generation) {
    Header& header = segment_.header();
    for (;;) {
        uint32_t used = header.objects_used.load(std::memory_order_acquire);
        const uint32_t start = header.object_hint.load(std::memory_order_relaxed);
        for (uint32_t i = 0; i < used; ++i) {
            index = (start + i) % used;
            Shared<uint64_t>& shared = segment_.object(index).word;
            EntryWord word{shared.load(std::memory_order_relaxed)};
            if (word.phase() != Phase::free) continue;
            generation = word.generation();
            if (!shared.compare_exchange_strong(word.bits, word.held(Phase::building, self_.slot).bits))
                continue;
            header.object_hint.store(index + 1, std::memory_order_relaxed);
            return true;
        }
        if (used == header.objects) return false;
        // By so many that the next ones need not look through the whole table again.
        const uint32_t more = std::min(header.objects, used + std::max(64u, used / 2));
        if (header.objects_used.compare_exchange_strong(used, more))
            header.object_hint.store(used, std::memory_order_relaxed);
    }
}

bool Arena::allocate(uint64_t bytes, ProcessId owner, ArenaRef& ref, char*& data) {
    const uint32_t count = granules_for(bytes);
    std::lock_guard lock(mutex_);
    Run run{};
    if (!claim(count, run)) return false;
    uint32_t index = 0, generation = 0;
    if (!take_entry(index, generation)) {
        release(run);
        return false;
    }
    ObjectEntry& entry = segment_.object(index);
    entry.writer.store(self_.key(), std::memory_order_relaxed);
    entry.owner.store(OwnerWord::pack(owner, generation), std::memory_order_relaxed);
    entry.first_granule.store(run.first, std::memory_order_relaxed);
    entry.granules.store(run.count, std::memory_order_relaxed);
    entry.bytes.store(bytes, std::memory_order_relaxed);
    ref = {index, generation, bytes};
    data = segment_.granule_data(run.first);
    return true;
}

void Arena::hand_over(const ArenaRef& ref, ProcessId owner) {
    segment_.object(ref.entry).owner.store(OwnerWord::pack(owner, ref.generation));
    std::lock_guard lock(mutex_);
    pins_.emplace(ref.entry, Pin{ref.generation, 1});
    pins_of(segment_, ref.entry)[self_.slot / 64].fetch_or(1ULL << (self_.slot % 64),
                                                           std::memory_order_seq_cst);
}

void Arena::seal(const ArenaRef& ref, bool accepted) {
    ObjectEntry& entry = segment_.object(ref.entry);
    const uint64_t flags = EntryWord::kResident | (accepted ? EntryWord::kAccepted : 0);
    const auto sealed = change_word(entry, [&](EntryWord now) -> std::optional<EntryWord> {
        // Not so when this process was taken for dead.
        const bool is_mine = now.is(ref.generation, Phase::building) && now.holder() == self_.slot + 1;
        return is_mine ? std::optional(now.in(Phase::sealed).with(flags)) : std::nullopt;  // partner: pin
    });
    // Its owner died while it was written, and what it owned was deleted before this was there to be found.
    if (sealed && !OwnerWord{entry.owner.load()}.is_alive(segment_)) remove(ref);
}

void Arena::abandon(const ArenaRef& ref) {
    seal(ref, false);  // still its writer's: it goes, should the writer die before the next line
    remove(ref);
}

void Arena::accept(const ArenaRef& ref) {
    change_word(segment_.object(ref.entry), [&](EntryWord now) -> std::optional<EntryWord> {
        const bool is_due = now.is_whole(ref.generation) && !now.has(EntryWord::kAccepted);
        return is_due ? std::optional(now.with(EntryWord::kAccepted)) : std::nullopt;
    });
}

void Arena::adopt(const ArenaRef& ref) {
    if (!exists(ref)) return;
    Shared<uint64_t>& shared = segment_.object(ref.entry).owner;
    OwnerWord owner{shared.load()};
    while (owner.is_of(ref.generation) &&
           !shared.compare_exchange_weak(owner.bits, OwnerWord::pack(self_, ref.generation))) {
    }
}

void Arena::remove(const ArenaRef& ref) {
    const auto marked =
        change_word(segment_.object(ref.entry), [&](EntryWord now) -> std::optional<EntryWord> {
            const bool is_due = now.is_whole(ref.generation) && !now.has(EntryWord::kDeleted);
            return is_due ? std::optional(now.with(EntryWord::kDeleted)) : std::nullopt;
        });
    if (!marked) return;
    std::lock_guard lock(mutex_);
    try_reclaim(ref.entry);
}

void Arena::try_reclaim(uint32_t index) {
    ObjectEntry& entry = segment_.object(index);
    const auto mine = change_word(entry, [&](EntryWord now) -> std::optional<EntryWord> {
        // Whoever holds the last pin reclaims.
        if (!now.is_reclaimable() || !no_pins(segment_, index)) return std::nullopt;
        return now.held(Phase::reclaiming, self_.slot);
    });
    if (!mine) return;
    if (!mine->has(EntryWord::kResident)) {
        retire(entry, *mine);
        return;
    }
    const Run run{entry.first_granule.load(std::memory_order_relaxed),
                  entry.granules.load(std::memory_order_relaxed)};
    put_name_on(run);
    if (retire(entry, *mine)) release(run);
}

void Arena::put_name_on(Run run) {
    for (uint32_t i = 0; i < run.count; ++i)
        segment_.granule(run.first + i).store(self_.slot + 1, std::memory_order_release);
}

PinResult Arena::pin(const ArenaRef& ref, char*& data) {
    ObjectEntry& entry = segment_.object(ref.entry);
    std::lock_guard lock(mutex_);
    if (const auto held = pins_.find(ref.entry); held != pins_.end()) {
        // What is pinned here stays: a ref to what the entry was before has no say in it.
        if (held->second.generation != ref.generation) return PinResult::lost;
        ++held->second.count;
        data = segment_.granule_data(entry.first_granule.load(std::memory_order_relaxed));
        return PinResult::ok;
    }
    if (!exists(ref)) return PinResult::lost;
    const uint64_t bit = 1ULL << (self_.slot % 64);
    Shared<uint64_t>& pins = pins_of(segment_, ref.entry)[self_.slot / 64];
    pins.fetch_or(bit, std::memory_order_seq_cst);
    EntryWord word = word_of(segment_, ref.entry);  // partner: remove, spill
    // Its bytes are here as long as the spiller has not changed the word, which this hinders.
    while (word.is(ref.generation, Phase::spilling) && !word.has(EntryWord::kDeleted)) {
        const EntryWord kept = word.in(Phase::sealed);
        if (entry.word.compare_exchange_weak(word.bits, kept.bits, std::memory_order_seq_cst)) word = kept;
    }
    if (word.is(ref.generation, Phase::sealed) && !word.has(EntryWord::kDeleted)) {
        pins_.emplace(ref.entry, Pin{ref.generation, 1});
        data = segment_.granule_data(entry.first_granule.load(std::memory_order_relaxed));
        return PinResult::ok;
    }
    pins.fetch_and(~bit, std::memory_order_seq_cst);
    try_reclaim(ref.entry);
    const bool comes_back = !word.has(EntryWord::kDeleted) && (word.is(ref.generation, Phase::spilled) ||
                                                               word.is(ref.generation, Phase::moving));
    return comes_back ? PinResult::spilled : PinResult::lost;
}

void Arena::unpin(const ArenaRef& ref) {
    std::lock_guard lock(mutex_);
    const auto it = pins_.find(ref.entry);
    if (it == pins_.end() || it->second.generation != ref.generation) return;
    if (--it->second.count > 0) return;
    pins_.erase(it);
    const uint64_t bit = 1ULL << (self_.slot % 64);
    pins_of(segment_, ref.entry)[self_.slot / 64].fetch_and(~bit, std::memory_order_seq_cst);
    try_reclaim(ref.entry);
}

void Arena::keep_pinned() {
    std::lock_guard lock(mutex_);
    for (const auto& [index, count] : pins_) {
        const ObjectEntry& entry = segment_.object(index);
        segment_.keep_copy(entry.first_granule, entry.granules);
    }
}

bool Arena::import_entry(uint64_t bytes, ProcessId owner, ArenaRef& ref) {
    std::lock_guard lock(mutex_);
    uint32_t index = 0, generation = 0;
    if (!take_entry(index, generation)) return false;
    ObjectEntry& entry = segment_.object(index);
    entry.writer.store(self_.key(), std::memory_order_relaxed);
    entry.owner.store(OwnerWord::pack(owner, generation), std::memory_order_relaxed);
    entry.bytes.store(bytes, std::memory_order_relaxed);
    entry.node.store(0, std::memory_order_relaxed);
    ref = {index, generation, bytes};
    change_word(entry, [](EntryWord now) {
        return std::optional(now.in(Phase::spilled).with(EntryWord::kAccepted | EntryWord::kElsewhere));
    });
    return true;
}

void Arena::set_node_of(const ArenaRef& ref, uint32_t node) {
    if (exists(ref))
        segment_.object(ref.entry).node.store(uint64_t(ref.generation) << 32 | (node + 1),
                                              std::memory_order_relaxed);
}

uint32_t Arena::node_of(const ArenaRef& ref) const {
    const EntryWord word = word_of(segment_, ref.entry);
    if (!word.is(ref.generation, Phase::spilled) || !word.has(EntryWord::kElsewhere)) return 0;
    const uint64_t node = segment_.object(ref.entry).node.load(std::memory_order_relaxed);
    return node >> 32 == ref.generation ? uint32_t(node) : 0;
}

bool Arena::is_import(const ArenaRef& ref) const {
    return exists(ref) &&
           segment_.object(ref.entry).node.load(std::memory_order_relaxed) >> 32 == ref.generation;
}

bool Arena::has_run(uint32_t granules) const {
    const uint32_t total = segment_.header().granules;
    for (uint32_t at = 0, found = 0; at < total; ++at) {
        found = segment_.granule(at).load(std::memory_order_relaxed) == 0 ? found + 1 : 0;
        if (found == granules) return true;
    }
    return false;
}

bool Arena::has_entry() const {
    const Header& header = segment_.header();
    const uint32_t used = header.objects_used.load(std::memory_order_acquire);
    for (uint32_t i = 0; used == header.objects && i < used; ++i)
        if (word_of(segment_, i).phase() == Phase::free) return true;
    return used < header.objects;
}

bool Arena::claim_run(uint32_t granules, uint32_t& first) {
    std::lock_guard lock(mutex_);
    Run run{};
    if (!claim(granules, run)) return false;
    first = run.first;
    return true;
}

void Arena::take_run(uint32_t first, uint32_t granules) {
    put_name_on({first, granules});
}

void Arena::release_run(uint32_t first, uint32_t granules) {
    release({first, granules});
}

void Arena::reclaim_if_deleted(uint32_t entry) {
    if (!word_of(segment_, entry).has(EntryWord::kDeleted)) return;
    std::lock_guard lock(mutex_);
    try_reclaim(entry);
}

namespace {

bool is_owned_by(const ObjectEntry& entry, EntryWord word, ProcessId owner) {
    return word.is_whole(word.generation()) && !word.has(EntryWord::kDeleted) &&
           OwnerWord{entry.owner.load()}.is(owner, word.generation());
}

}  // namespace

std::vector<ArenaRef> objects_of(Segment& segment, ProcessId owner) {
    std::vector<ArenaRef> found;
    const uint32_t objects = segment.header().objects_used.load(std::memory_order_acquire);
    for (uint32_t i = 0; i < objects; ++i) {
        const EntryWord word = word_of(segment, i);
        const ObjectEntry& entry = segment.object(i);
        if (is_owned_by(entry, word, owner)) found.push_back({i, word.generation(), entry.bytes.load()});
    }
    return found;
}

void remove_objects_of(Segment& segment, ProcessId dead) {
    const uint32_t objects = segment.header().objects_used.load(std::memory_order_acquire);
    for (uint32_t i = 0; i < objects; ++i) {
        ObjectEntry& entry = segment.object(i);
        change_word(entry, [&](EntryWord now) -> std::optional<EntryWord> {
            return is_owned_by(entry, now, dead) ? std::optional(now.with(EntryWord::kDeleted))
                                                 : std::nullopt;
        });
    }
}

namespace {

/// Whether the entry is retired now: the dead held it, or it was the last thing that kept it.
bool reclaim_entry(Segment& segment, uint32_t index, ProcessId dead, bool unaccepted) {
    ObjectEntry& entry = segment.object(index);
    const auto taken = change_word(entry, [&](EntryWord now) -> std::optional<EntryWord> {
        if (now.holder() == dead.slot + 1) return now.held(now.phase(), kDaemonSlot);
        if (!now.is_whole(now.generation())) return std::nullopt;
        if (unaccepted && !now.has(EntryWord::kAccepted) && entry.writer.load() == dead.key())
            now = now.with(EntryWord::kDeleted);
        if (!now.has(EntryWord::kDeleted)) return std::nullopt;
        return now.is_reclaimable() && no_pins(segment, index) ? now.held(Phase::reclaiming, kDaemonSlot)
                                                               : now;
    });
    if (!taken || taken->holder() == 0) return false;
    // Of what it was building nothing but its name is sure; the memory is in its name, and is swept later.
    if (taken->has(EntryWord::kResident)) {
        const uint32_t first = entry.first_granule.load(), count = entry.granules.load();
        for (uint32_t g = 0; g < count; ++g)
            segment.granule(first + g).store(0, std::memory_order_release);
    }
    retire(entry, *taken);
    return true;
}

}  // namespace

void reclaim_after_death(Segment& segment, ProcessId dead, bool unaccepted) {
    Header& header = segment.header();
    const uint64_t bit = 1ULL << (dead.slot % 64);
    std::vector<bool> covered(header.granules, false);
    const uint32_t objects = header.objects_used.load(std::memory_order_acquire);
    for (uint32_t i = 0; i < objects; ++i) {
        // Also on one that is free: it may have died with a stale ref in its hand. Before the word is read:
        // who deletes it now sees the pin gone, or is seen.
        if (!is_far(dead.slot)) {
            Shared<uint64_t>& pins = pins_of(segment, i)[dead.slot / 64];
            if (pins.load() & bit) pins.fetch_and(~bit);
        }
        if (reclaim_entry(segment, i, dead, unaccepted)) continue;
        const EntryWord word = word_of(segment, i);
        if (!word.has(EntryWord::kResident)) continue;
        const ObjectEntry& entry = segment.object(i);
        const uint32_t first = entry.first_granule.load(), count = entry.granules.load();
        // Whoever has reclaimed it meanwhile has put its own name on the memory first.
        if (word_of(segment, i).generation() != word.generation()) continue;
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
