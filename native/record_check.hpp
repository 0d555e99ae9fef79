/// Whether a record may be handled at all: who says it, and whether it is whole. One place for both, before
/// any state is touched, so that no handler meets a count, a slot or an index that was not looked at.
///
/// CHK-1  A record that is refused has changed nothing.
/// CHK-2  A refused record is told once for each sender and kind, and who waits for it gets an error, where
/// the
///        record says who that is.
#pragma once

#include <array>

#include "translate.hpp"

namespace weft {

constexpr std::array<Sayer, kKinds> kSayers = [] {
    std::array<Sayer, kKinds> all{};
    for (size_t i = 0; i < kKinds; ++i)
        all[i] = sayer(Kind(i));
    return all;
}();

inline bool may_say(ProcessId from, Kind kind) {
    const Sayer who = from.slot == kDaemonSlot ? Sayer::daemon : Sayer::peer;
    return size_t(kind) < kKinds && (uint8_t(kSayers[size_t(kind)]) & uint8_t(who)) != 0;
}

/// Whether all that a record's handler reads without another look is there: sizes, counts, slots of
/// processes, entries of objects.
inline bool is_whole(const Segment& segment, Kind kind, const char* data, size_t bytes) {
    bool are_known = true;
    const auto on_process = [&](const ProcessId& id) { are_known = are_known && segment.is_slot(id.slot); };
    const auto on_arena = [&](const ArenaRef& arena) {
        are_known = are_known && arena.entry < segment.header().objects;
    };
    detail::Walk<const char, decltype(on_process), decltype(on_arena)> walk(data, bytes, on_process,
                                                                            on_arena);
    return reads_whole(kind, walk, bytes) && are_known;
}

}  // namespace weft
