/// Whoever has a ref to an object that goes meanwhile leaves what comes to its entry next alone, wherever
/// between two instructions it is overtaken.
#include <optional>

#include "arena_parts.hpp"
#include "node_port.hpp"
#include "stepping.hpp"

using namespace weft;

namespace {

constexpr ProcessId kOwner{2, 1}, kLate{70, 1};

/// The next life of an entry: another object, whole or still being written.
struct NextLife {
    ArenaRef ref;
    ObjectEntry entry;  ///< as it was left
    bool is_sealed = false;

    /// Does nothing while the entry's object is still there.
    NextLife(Segment& segment, Arena& arena, const ArenaRef& before, bool sealed) : is_sealed(sealed) {
        if (!is_gone(segment, before)) return;
        segment.header().object_hint.store(before.entry);
        char* data = nullptr;
        CHECK(arena.allocate(3 * kGranuleBytes, kOwner, ref, data));
        CHECK_EQ(ref.entry, before.entry);
        write_pattern(data, ref);
        if (sealed) arena.seal(ref, false);
        memcpy(static_cast<void*>(&entry), &segment.object(ref.entry), sizeof entry);
    }
    bool is_there() const { return ref.bytes != 0; }
    void check_untouched(Segment& segment, Arena& arena) {
        CHECK(memcmp(static_cast<void*>(&entry), &segment.object(ref.entry), sizeof entry) == 0);
        if (!is_sealed) arena.seal(ref, false);
        check_readable(arena, ref);
        arena.remove(ref);
        CHECK_EQ(check_books(segment), 0u);
    }
};

/// What is overtaken, and by whom; each time anew.
struct Race {
    std::function<ArenaRef()> begin;
    std::function<void(const ArenaRef&)> late;      ///< with a your_turn() before and after what is overtaken
    std::function<void(const ArenaRef&)> overtake;  ///< ends the object, if it may be ended
};

/// Once for each instruction of `late`, and for each thing that may come next to the entry.
void overtake_everywhere(Segment& segment, const Race& race,
                         const std::vector<bool>& sealed_next = {false, true}) {
    Arena owner(segment, kOwner);
    const auto clean = [&](const ArenaRef& ref) {
        owner.remove(ref);
        CHECK_EQ(check_books(segment), 0u);
    };
    std::vector<uint64_t> instructions;
    for (int i = 0; i < 2; ++i) {  // what is linked at the first call is not looked at
        const ArenaRef ref = race.begin();
        instructions = instructions_of([&] { race.late(ref); });
        clean(ref);
    }
    for (const bool sealed : sealed_next) {
        int overtaken = 0;
        for (const uint64_t instruction : instructions) {
            const ArenaRef ref = race.begin();
            std::optional<NextLife> next;
            interrupt_at(
                instruction, [&] { race.late(ref); },
                [&] {
                    race.overtake(ref);
                    next.emplace(segment, owner, ref, sealed);
                });
            if (next && next->is_there()) {
                ++overtaken;
                next->check_untouched(segment, owner);
            } else {
                clean(ref);
            }
        }
        CHECK(overtaken > 5);
    }
}

/// What another process does with an object that its owner deletes.
void overtake_reader(const std::function<void(Arena&, const ArenaRef&)>& late) {
    if (!kCanStep) return;
    auto segment = inhabited(12 * kGranuleBytes);
    Arena owner(*segment, kOwner);
    overtake_everywhere(*segment, {[&] { return make(owner, 2, kOwner, false); },
                                   [&](const ArenaRef& ref) {
                                       Arena mine(*segment, kLate);
                                       your_turn();
                                       late(mine, ref);
                                       your_turn();
                                   },
                                   [&](const ArenaRef& ref) { owner.remove(ref); }});
}

}  // namespace

TEST("who deletes an object that another has deleted does not delete the next") {
    overtake_reader([](Arena& arena, const ArenaRef& ref) { arena.remove(ref); });
}

TEST("who accepts an object that is gone does not accept the next") {
    overtake_reader([](Arena& arena, const ArenaRef& ref) { arena.accept(ref); });
}

TEST("who adopts an object that is gone does not adopt the next") {
    overtake_reader([](Arena& arena, const ArenaRef& ref) { arena.adopt(ref); });
}

TEST("who pins an object that is gone does not keep the next") {
    overtake_reader([](Arena& arena, const ArenaRef& ref) {
        char* data = nullptr;
        if (arena.pin(ref, data) == PinResult::ok) arena.unpin(ref);
        arena.unpin(ref);  // one too many
    });
}

TEST("what is read and deleted while it is being spilled leaves its memory to the next") {
    if (!kCanStep) return;
    auto segment = inhabited(12 * kGranuleBytes);
    Arena owner(*segment, kOwner), reader(*segment, kLate), daemon(*segment, {kDaemonSlot, 1});
    overtake_everywhere(*segment,
                        {[&] { return make(owner, 2, kOwner); },
                         [&](const ArenaRef&) {
                             SpillFile file(*segment, daemon, {"/tmp"}, SpillFile::kNoLimit);
                             your_turn();
                             file.spill(1, [] { return true; });
                             your_turn();
                         },
                         [&](const ArenaRef& ref) {
                             char* data = nullptr;
                             if (reader.pin(ref, data) == PinResult::ok) reader.unpin(ref);
                             owner.remove(ref);
                         }},
                        {false});  // a whole one is spilled in its turn
}

TEST("who is taken for dead while it writes does not seal what comes next") {
    if (!kCanStep) return;
    auto segment = inhabited(12 * kGranuleBytes);
    overtake_everywhere(*segment, {[&] {
                                       Arena writer(*segment, kLate);
                                       ArenaRef ref;
                                       char* data = nullptr;
                                       CHECK(writer.allocate(kGranuleBytes, kOwner, ref, data));
                                       return ref;
                                   },
                                   [&](const ArenaRef& ref) {
                                       Arena writer(*segment, kLate);
                                       your_turn();
                                       writer.seal(ref, true);
                                       your_turn();
                                   },
                                   [&](const ArenaRef&) { reclaim_after_death(*segment, kLate, true); }});
}

namespace {

/// What the daemon does with an import that its owner deletes.
void overtake_daemon(const std::function<void(NodePort&, const ArenaRef&)>& late) {
    if (!kCanStep) return;
    NodePort port(12 * kGranuleBytes);
    CHECK(port.reserve_slot() == kOwner);
    auto segment = Segment::attach(port.segment_fd());
    Arena owner(*segment, kOwner);
    overtake_everywhere(*segment, {[&] { return port.import_object(2 * kGranuleBytes, kOwner); },
                                   [&](const ArenaRef& ref) {
                                       your_turn();
                                       late(port, ref);
                                       your_turn();
                                   },
                                   [&](const ArenaRef& ref) { owner.remove(ref); }});
}

}  // namespace

TEST("the daemon receives nothing into the next object of an import's entry") {
    overtake_daemon([](NodePort& port, const ArenaRef& ref) {
        if (port.begin_receiving(ref.entry, ref.generation) != nullptr)
            port.end_receiving(ref.entry, ref.generation, true);
    });
}

TEST("an import that does not come leaves the next object of its entry alone") {
    overtake_daemon([](NodePort& port, const ArenaRef& ref) {
        if (port.begin_receiving(ref.entry, ref.generation) != nullptr)
            port.end_receiving(ref.entry, ref.generation, false);
    });
}
