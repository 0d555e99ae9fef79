/// Ids are 128 bits and deterministic: 12 bytes name a task (derived from its parent and a counter), the last
/// four an object of it, so that a re-execution makes the same ids. A process is a slot and its generation.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>

namespace weft {

struct Id {
    uint64_t high = 0;
    uint64_t low = 0;

    bool operator==(const Id&) const = default;
    bool is_nil() const { return high == 0 && low == 0; }

    /// The index-th object of this task.
    Id object(uint32_t index) const { return {high, (low & 0xffffffffULL) | (uint64_t(index) << 32)}; }
    Id task() const { return {high, low & 0xffffffffULL}; }
    uint32_t index() const { return uint32_t(low >> 32); }

    /// The counter-th child of this task.
    Id child(uint64_t counter) const {
        const uint64_t a = mix(high ^ mix(counter + 0x9e3779b97f4a7c15ULL));
        const uint64_t b = mix(a ^ mix((low & 0xffffffffULL) + counter));
        return {a, b & 0xffffffffULL};
    }

    static uint64_t mix(uint64_t x) {
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
        return x ^ (x >> 31);
    }
};
static_assert(sizeof(Id) == 16);

struct IdHash {
    size_t operator()(const Id& id) const { return size_t(id.high ^ Id::mix(id.low)); }
};

struct ProcessId {
    uint32_t slot = 0;
    uint32_t generation = 0;

    bool operator==(const ProcessId&) const = default;
    uint64_t key() const { return (uint64_t(generation) << 32) | slot; }
    static ProcessId from_key(uint64_t key) { return {uint32_t(key), uint32_t(key >> 32)}; }
};
static_assert(sizeof(ProcessId) == 8);

}  // namespace weft
