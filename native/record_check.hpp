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

/// Who may say a kind to a driver or worker. `engine/wire/kinds.py` has the same for what a daemon is told.
/// One bit for the daemon, one for all others.
enum class Sayer : uint8_t { nobody = 0, daemon = 1, peer = 2, anyone = 3 };

constexpr Sayer sayer(Kind kind) {
    switch (kind) {
        case Kind::CONTROL:
        case Kind::BIND_JOB:
        case Kind::LEASE_GRANT:
        case Kind::LEASE_REVOKE:
        case Kind::SHAPE_REFUSED:
        case Kind::NOT_NEAR:
        case Kind::PEER_DIED:
        case Kind::SPARE_RINGS:
        case Kind::FIND_ORPHANS:
        case Kind::ADOPT:
        case Kind::SETTLED:
        case Kind::ORPHAN_ANSWERED:
        case Kind::ACTOR_UP:
        case Kind::ACTOR_DOWN:
        case Kind::PROMISE_KEPT:
        case Kind::SPACE:
        case Kind::RESTORED:
            return Sayer::daemon;
        // Those that answer something (REPLY, STREAM_ITEM, HANDBACK, VALUE) must come from whom it was asked
        // of: their handlers know who that is.
        case Kind::REPLY:
        case Kind::HANDBACK:
        case Kind::BORROW_ADD:
        case Kind::BORROW_RELEASE:
        case Kind::WANT:
        case Kind::VALUE:
        case Kind::CANCEL:
        case Kind::STREAM_ITEM:
        case Kind::STREAM_CREDIT:
        case Kind::ACQUAINT:
        case Kind::CANCEL_OBJECT:
        case Kind::MOVED:
        case Kind::FORGET_FUNCTION:
        case Kind::DEPOSIT_THERE:
            return Sayer::peer;
        case Kind::KEEP:
        case Kind::FUNCTION:
        case Kind::TASK:  // the daemon says creations, and nobody else does
            return Sayer::anyone;
        default:
            return Sayer::nobody;
    }
}

constexpr size_t kKinds = 128;
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
    constexpr size_t kWord = sizeof(uint32_t), kLong = sizeof(uint64_t);
    uint32_t counts[2];
    const auto reads = [&] {
        switch (kind) {
            case Kind::TASK:
                return walk.task();
            case Kind::REPLY:
                return walk.reply();
            case Kind::VALUE:
                return walk.skip(sizeof(Id)) && walk.value();
            case Kind::STREAM_ITEM:
                return walk.skip(kLong + 2 * kWord) && walk.value();
            case Kind::BORROW_ADD:
            case Kind::MOVED:
            case Kind::ACTOR_UP:
                return walk.skip(sizeof(Id)) && walk.process();
            case Kind::BORROW_RELEASE:
            case Kind::ACTOR_DOWN:
                return walk.skip(sizeof(Id) + kLong);
            case Kind::CANCEL_OBJECT:
            case Kind::KEEP:
            case Kind::DEPOSIT_THERE:
                return walk.skip(sizeof(Id) + kWord);
            case Kind::WANT:
            case Kind::PROMISE_KEPT:
                return walk.skip(sizeof(Id));
            case Kind::FUNCTION:
            case Kind::FORGET_FUNCTION:
            case Kind::LEASE_REVOKE:
            case Kind::SHAPE_REFUSED:
                return walk.skip(kLong);
            case Kind::CANCEL:
            case Kind::STREAM_CREDIT:
            case Kind::NOT_NEAR:
                return walk.skip(3 * kWord);
            case Kind::SPACE:
            case Kind::RESTORED:
                return walk.skip(2 * kLong);
            case Kind::HANDBACK:
                return bytes % kLong == 0;
            case Kind::LEASE_GRANT:
                return walk.skip(kLong + kWord) && walk.process();
            case Kind::PEER_DIED:
                return walk.process() && walk.skip(sizeof(PeerDeath) - sizeof(ProcessId));
            case Kind::FIND_ORPHANS:
                return walk.skip(kLong) && walk.take(counts) && walk.processes(counts[1]);
            case Kind::SETTLED:
                return walk.take(counts) && walk.processes(counts[0]);
            case Kind::ORPHAN_ANSWERED:
                return walk.skip(sizeof(Id) + kLong) && walk.process();
            case Kind::ADOPT:
                return walk.adoption();
            default:  // its bytes are somebody else's: messages in MessagePack, or none at all
                return true;
        }
    };
    return reads() && are_known;
}

}  // namespace weft
