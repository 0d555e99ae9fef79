/// What the arena's tests share: objects with a pattern in them, and the books of an arena.
#pragma once

#include "arena.hpp"
#include "check.hpp"

namespace weft::testing {

/// A segment in which every slot is somebody's, of the first generation.
inline std::unique_ptr<Segment> inhabited(uint64_t arena_bytes) {
    auto segment = Segment::create(arena_bytes);
    segment->header().ready_words.store(segment->header().slots / 64);
    for (uint32_t slot = 0; slot < segment->header().slots; ++slot) {
        segment->slot(slot).generation.store(1);
        segment->slot(slot).alive.store(1);
    }
    return segment;
}

inline uint32_t granules_of(const Segment& segment, const ArenaRef& ref) {
    return segment.object(ref.entry).granules.load();
}

/// Marks the first and last word of each granule with the name of the object that it belongs to.
inline void write_pattern(char* data, const ArenaRef& ref) {
    const uint64_t granules = std::max<uint64_t>(1, (ref.bytes + kGranuleBytes - 1) / kGranuleBytes);
    for (uint64_t g = 0; g < granules; ++g) {
        const uint64_t words[2] = {Id::mix(uint64_t(ref.generation) << 32 | ref.entry), ~g};
        memcpy(data + g * kGranuleBytes, words, sizeof words);
        memcpy(data + (g + 1) * kGranuleBytes - sizeof words, words, sizeof words);
    }
}

inline bool has_pattern(const char* data, const ArenaRef& ref) {
    const uint64_t granules = std::max<uint64_t>(1, (ref.bytes + kGranuleBytes - 1) / kGranuleBytes);
    for (uint64_t g = 0; g < granules; ++g) {
        const uint64_t words[2] = {Id::mix(uint64_t(ref.generation) << 32 | ref.entry), ~g};
        if (memcmp(data + g * kGranuleBytes, words, sizeof words) != 0) return false;
        if (memcmp(data + (g + 1) * kGranuleBytes - sizeof words, words, sizeof words) != 0) return false;
    }
    return true;
}

/// A sealed object of so many granules.
inline ArenaRef make(Arena& arena, uint32_t granules, ProcessId owner, bool accepted = true) {
    ArenaRef ref;
    char* data = nullptr;
    CHECK(arena.allocate(granules * kGranuleBytes, owner, ref, data));
    write_pattern(data, ref);
    arena.seal(ref, accepted);
    return ref;
}

inline void check_readable(Arena& arena, const ArenaRef& ref) {
    char* data = nullptr;
    CHECK(arena.pin(ref, data) == PinResult::ok);
    CHECK(has_pattern(data, ref));
    arena.unpin(ref);
}

inline bool is_gone(const Segment& segment, const ArenaRef& ref) {
    return word_of(segment, ref.entry).generation() != ref.generation;
}

/// AR-1 to AR-3 at rest: objects do not overlap, exactly what they cover is claimed, and it is counted.
/// Returns how many objects there are.
inline uint32_t check_books(const Segment& segment) {
    const Header& header = segment.header();
    std::vector<uint32_t> covered(header.granules, 0);
    uint32_t objects = 0;
    for (uint32_t i = 0; i < header.objects_used.load(); ++i) {
        const ObjectEntry& entry = segment.object(i);
        const EntryWord word = word_of(segment, i);
        if (word.phase() == Phase::free) {
            CHECK_EQ(uint32_t(word.bits), 0u);
            CHECK(no_pins(segment, i));
            continue;
        }
        ++objects;
        CHECK(word.phase() == Phase::sealed || word.phase() == Phase::spilled);
        CHECK_EQ(word.has(EntryWord::kResident), word.phase() == Phase::sealed);
        if (word.phase() == Phase::spilled) continue;
        for (uint32_t g = entry.first_granule; g < entry.first_granule + entry.granules; ++g) {
            CHECK(g < header.granules);
            CHECK_EQ(covered[g], 0u);
            covered[g] = i + 1;
            CHECK(segment.granule(g).load() != 0);
        }
    }
    for (uint32_t g = 0; g < header.granules; ++g)
        if (covered[g] == 0) CHECK_EQ(segment.granule(g).load(), 0u);
    return objects;
}

}  // namespace weft::testing
