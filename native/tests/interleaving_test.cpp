/// Ring, doorbell and arena in every order that some processes can get in between each other, and with one of
/// them dead at any operation. Each check must also find the faults that are planted into the same code.
#include "interleaving.hpp"

// Behind the above, which puts its atomics into these.
#include "../arena.cpp"
#include "../events.cpp"
#include "../segment.cpp"
#include "doorbell.hpp"
#include "ring.hpp"

using namespace weft;
using weft::testing::Bounds;
using weft::testing::Interleaving;
using weft::testing::kCanInterleave;

namespace {

constexpr uint32_t kProducer = 1, kConsumer = 2;

/// A producer, a consumer, and the ring between them.
struct World {
    std::unique_ptr<Segment> segment = Segment::create(1 << 20);
    std::unique_ptr<char, decltype(&free)> block{static_cast<char*>(aligned_alloc(4096, kRingStride)), &free};
    RingHeader* ring = reinterpret_cast<RingHeader*>(block.get());
    uint32_t received = 0, sent = 0;
    bool is_told = false;  ///< the consumer, that the producer is dead

    void reset() {
        for (const uint32_t slot : {kProducer, kConsumer}) {
            Doorbell& bell = segment->bell(slot);
            take_ready(*segment, bell, [](uint32_t) {});
            bell.state.store(uint32_t(Bell::awake));
            bell.waiter_word.store(0);
            bell.background_word.store(0);
        }
        memset(static_cast<void*>(ring), 0, sizeof(RingHeader));
        received = sent = 0;
        is_told = false;
    }

    // ---- what the engine's processes do, by its own functions ----------------------------------------

    void send(RingWriter& out, uint32_t bytes) {
        char* to = out.reserve(bytes, 7);
        while (to == nullptr) {  // as Channels::flush, and then until the consumer rings back
            out.want_room();
            if ((to = out.reserve(bytes, 7)) != nullptr) break;
            sleep(kProducer);
            take_ready(*segment, segment->bell(kProducer), [](uint32_t) {});
            to = out.reserve(bytes, 7);
        }
        Interleaving::current()->wrote(to);
        memcpy(to, &sent, sizeof sent);
        ++sent;
        out.publish();
    }
    void produce(uint32_t count, uint32_t bytes) {
        RingWriter out(ring);
        for (uint32_t i = 0; i < count; ++i) {
            send(out, bytes);
            ring_bell(*segment, kProducer, kConsumer, -1);
        }
    }
    void drain(RingReader& in) {
        Record record{};
        while (in.next(record)) {
            Interleaving::current()->reads(record.data);
            uint32_t number = 0;
            memcpy(&number, record.data, sizeof number);
            if (number != received || record.kind != 7) Interleaving::failed("a record is not the next one");
            ++received;
        }
        if (in.release()) ring_bell(*segment, kConsumer, kProducer, -1);
    }
    /// As Core::wait_until: until so many have come, or the producer is known to be dead.
    void consume(uint32_t count) {
        RingReader in(ring);
        while (received < count && !is_told) {
            take_ready(*segment, segment->bell(kConsumer), [&](uint32_t) { drain(in); });
            if (received < count && !is_told) sleep(kConsumer);
        }
        if (is_told) drain(in);  // as Core::peer_died
    }
    void sleep(uint32_t slot) {
        Doorbell& bell = segment->bell(slot);
        const uint32_t word = bell.waiter_word.load(std::memory_order_seq_cst);
        bell.state.store(uint32_t(Bell::waiter_sleeps), std::memory_order_seq_cst);
        if (!has_ready(*segment, bell)) futex_wait(bell.waiter_word, word, -1);
        bell.state.store(uint32_t(Bell::awake), std::memory_order_seq_cst);
    }
    /// As the daemon: it wakes the dead one's peers (NodePort::mark_dead), and tells them.
    void bury(bool wakes) {
        Interleaving::current()->sleep([] { return Interleaving::is_dead(0) || Interleaving::is_over(1); });
        if (!Interleaving::is_dead(0)) return;
        Interleaving::current()->learn_of_death(0);
        if (wakes) wake_sleepers(segment->bell(kConsumer));
        is_told = true;
        ring_bell(*segment, kDaemonSlot, kConsumer, -1);
    }

    Interleaving::Result send_and_receive(Bounds bounds, uint32_t count, uint32_t bytes) {
        return Interleaving::explore(
            bounds, [&] { reset(); }, {[&] { produce(count, bytes); }, [&] { consume(count); }},
            [&] {
                if (received != count) Interleaving::failed("a record is missing");
            });
    }
};

/// While there is one, the faults are in the code.
struct Planted {
    explicit Planted(std::vector<const void*> weakened, bool has_no_fences = false) {
        Interleaving::weakened = std::move(weakened);
        Interleaving::has_no_fences = has_no_fences;
    }
    ~Planted() {
        Interleaving::weakened.clear();
        Interleaving::has_no_fences = false;
    }
};

void expect_good(const Interleaving::Result& result, uint64_t least_runs) {
    printf("           %llu runs\n", (unsigned long long)result.runs);
    fflush(stdout);
    CHECK_EQ(result.failure, "");
    CHECK(result.runs >= least_runs);
}

void expect_found(const Interleaving::Result& result, std::string_view what) {
    if (result.failure.find(what) == std::string::npos)
        weft::testing::fail(__FILE__, __LINE__,
                            "must be found: " + std::string(what) + ", but got: " + result.failure);
}

}  // namespace

TEST("every record comes, whole and in order, and no wake-up is lost") {
    if (!kCanInterleave) return;
    World world;
    expect_good(world.send_and_receive({.preemptions = 5, .delays = 1}, 2, 8), 1000);
}

TEST("a full ring's producer is rung when there is room") {
    if (!kCanInterleave) return;
    World world;
    expect_good(world.send_and_receive({.preemptions = 3, .delays = 1}, 4, kMaxRecord), 1000);
}

TEST("without the order of the tail a record is read before it is known to be written") {
    if (!kCanInterleave) return;
    World world;
    const Planted planted({&world.ring->tail});
    expect_found(world.send_and_receive({}, 2, 8), "not known to be written");
}

TEST("without the order of the head a record is overwritten before it is known to be read") {
    if (!kCanInterleave) return;
    World world;
    const Planted planted({&world.ring->head});
    expect_found(world.send_and_receive({}, 4, kMaxRecord), "not known to be read");
}

TEST("without the fence in ring_bell a wake-up is lost") {
    if (!kCanInterleave) return;
    World world;
    const Planted planted({}, true);
    expect_found(world.send_and_receive({.preemptions = 3}, 2, 8), "sleeps for ever");
}

TEST("without the order of the sleeper's state a wake-up is lost") {
    if (!kCanInterleave) return;
    World world;
    const Planted planted({&world.segment->bell(kConsumer).state});
    expect_found(world.send_and_receive({}, 2, 8), "sleeps for ever");
}

TEST("without the order of what wants room the producer is not rung") {
    if (!kCanInterleave) return;
    World world;
    const Planted planted({&world.ring->wants_room});
    expect_found(world.send_and_receive({}, 4, kMaxRecord), "sleeps for ever");
}

TEST("who rings before the record is there loses it") {
    if (!kCanInterleave) return;
    World world;
    const auto produce_swapped = [&] {
        RingWriter out(world.ring);
        char* to = out.reserve(8, 7);
        Interleaving::current()->wrote(to);
        memcpy(to, &world.sent, sizeof world.sent);
        ring_bell(*world.segment, kProducer, kConsumer, -1);
        out.publish();
    };
    expect_found(Interleaving::explore(
                     {}, [&] { world.reset(); }, {produce_swapped, [&] { world.consume(1); }}, [] {}),
                 "sleeps for ever");
}

TEST("who looks into the ring before it clears the bit loses what comes in between") {
    if (!kCanInterleave) return;
    World world;
    const auto consume_swapped = [&] {
        RingReader in(world.ring);
        while (world.received < 2) {
            world.drain(in);
            take_ready(*world.segment, world.segment->bell(kConsumer), [](uint32_t) {});
            if (world.received < 2) world.sleep(kConsumer);
        }
    };
    expect_found(Interleaving::explore(
                     {}, [&] { world.reset(); }, {[&] { world.produce(2, 8); }, consume_swapped}, [] {}),
                 "sleeps for ever");
}

namespace {

/// The producer may die at any operation; then the consumer has a prefix, whole, and is told.
Interleaving::Result with_death(World& world, bool wakes) {
    return Interleaving::explore(
        {.preemptions = 2, .delays = 1, .deaths = 1}, [&] { world.reset(); },
        {[&] { world.produce(1, 8); }, [&] { world.consume(1); }, [&] { world.bury(wakes); }},
        [&] {
            if (world.received > world.sent) Interleaving::failed("a record came that nobody sent");
        });
}

}  // namespace

TEST("a producer that dies anywhere leaves whole records, and a consumer that hears of it") {
    if (!kCanInterleave) return;
    World world;
    expect_good(with_death(world, true), 1000);
}

TEST("a producer that dies between the bell and the wake-up must not leave its consumer asleep") {
    if (!kCanInterleave) return;
    World world;
    expect_found(with_death(world, false), "process 1 sleeps for ever");
}

// ---- the arena ---------------------------------------------------------------------------------------

namespace {

constexpr ProcessId kOwner{1, 1}, kReader{2, 1};

/// An object that fills the arena, its owner, and a reader that has its ref.
struct Store {
    std::unique_ptr<Segment> segment = Segment::create(2 * kGranuleBytes);
    ArenaRef ref;
    bool was_read = false;

    Store() {
        segment->header().objects = 2;
        // Of the pins' words those of other slots are always 0.
        for (uint32_t i = 0; i < 2; ++i)
            for (Shared<uint64_t>& word : pins_of(*segment, i).subspan(1))
                Interleaving::unshared.push_back(&word);
    }
    ~Store() { Interleaving::unshared.clear(); }

    void reset() {
        Header& header = segment->header();
        header.granule_hint.store(0);
        header.object_hint.store(0);
        header.objects_used.store(2);
        for (uint32_t i = 0; i < header.granules; ++i)
            segment->granule(i).store(0);
        memset(static_cast<void*>(&segment->object(0)), 0, 2 * sizeof(ObjectEntry));
        for (const ProcessId& process : {kOwner, kReader}) {
            segment->slot(process.slot).alive.store(1);
            segment->slot(process.slot).generation.store(process.generation);
        }
        was_read = false;
        Arena arena(*segment, kOwner);
        char* data = nullptr;
        CHECK(arena.allocate(2 * kGranuleBytes, kOwner, ref, data));
        *data = 'a';
        Interleaving::current()->was_written(data);
        arena.seal(ref, true);
    }

    /// Removes it and takes the memory for the next one.
    void replace() {
        Arena arena(*segment, kOwner);
        arena.remove(ref);
        ArenaRef next;
        char* data = nullptr;
        if (!arena.allocate(2 * kGranuleBytes, kOwner, next, data)) return;
        Interleaving::current()->wrote(data);
        *data = 'b';
        arena.seal(next, true);
        arena.remove(next);
    }
    void read() {
        Arena arena(*segment, kReader);
        char* data = nullptr;
        if (arena.pin(ref, data) != PinResult::ok) return;
        look(data);
        arena.unpin(ref);
    }
    /// As pin(), with its two halves exchanged.
    void read_swapped() {
        if (!word_of(*segment, ref.entry).is(ref.generation, Phase::sealed)) return;
        pins_of(*segment, ref.entry)[0].fetch_or(1ULL << kReader.slot);
        look(segment->granule_data(segment->object(ref.entry).first_granule.load()));
    }
    void look(const char* data) {
        for (int i = 0; i < 2; ++i) {
            Interleaving::current()->reads(data);
            if (*data != 'a') Interleaving::failed("what is pinned has changed");
            segment->slot(3).alive.load();  // somebody may come in between
        }
        was_read = true;
    }
    /// As the daemon, when one of the two dies.
    void bury() {
        Interleaving::current()->sleep([] {
            return Interleaving::is_dead(0) || Interleaving::is_dead(1) ||
                   (Interleaving::is_over(0) && Interleaving::is_over(1));
        });
        if (!Interleaving::is_dead(0) && !Interleaving::is_dead(1)) return;
        const ProcessId dead = Interleaving::is_dead(0) ? kOwner : kReader;
        Interleaving::current()->learn_of_death(dead == kOwner ? 0 : 1);
        segment->slot(dead.slot).alive.store(0);
        remove_objects_of(*segment, dead);
        reclaim_after_death(*segment, dead, false);
        reclaim_after_death(*segment, dead, true);
    }
    void check_empty() {
        for (uint32_t i = 0; i < 2; ++i) {
            if (segment->granule(i).load() != 0) Interleaving::failed("memory is left");
            if (word_of(*segment, i).phase() != Phase::free) Interleaving::failed("an entry is left");
            if (!no_pins(*segment, i)) Interleaving::failed("a pin is left");
        }
    }
    Interleaving::Result replace_and_read(Bounds bounds) {
        return Interleaving::explore(
            bounds, [&] { reset(); }, {[&] { replace(); }, [&] { read(); }}, [&] { check_empty(); });
    }
};

}  // namespace

TEST("what is pinned stays as it is, and is reclaimed by whoever lets go last") {
    if (!kCanInterleave) return;
    Store store;
    expect_good(store.replace_and_read({.preemptions = 4, .delays = 0}), 1000);
    expect_good(store.replace_and_read({.preemptions = 1, .delays = 1}), 1000);
}

TEST("an owner or a reader that dies anywhere leaves nothing behind, and nothing of the other's goes") {
    if (!kCanInterleave) return;
    Store store;
    const auto result = Interleaving::explore(
        {.preemptions = 1, .delays = 0, .deaths = 1, .mortals = 3}, [&] { store.reset(); },
        {[&] { store.replace(); }, [&] { store.read(); }, [&] { store.bury(); }},
        [&] { store.check_empty(); });
    expect_good(result, 1000);
}

TEST("without the order of the pins memory is used again before its reader is known to be through") {
    if (!kCanInterleave) return;
    Store store;
    const Planted planted({&pins_of(*store.segment, 0)[0], &pins_of(*store.segment, 1)[0]});
    expect_found(store.replace_and_read({.delays = 0}), "not known to be read");
}

TEST("without the order of the word an object is read before it is known to be written") {
    if (!kCanInterleave) return;
    Store store;
    const Planted planted({&store.segment->object(0).word, &store.segment->object(1).word});
    const auto make_and_read = [&] {
        return Interleaving::explore(
            {}, [&] { store.reset(); },
            {[&] {
                 Arena arena(*store.segment, kOwner);
                 arena.remove(store.ref);
                 char* data = nullptr;
                 if (!arena.allocate(1, kOwner, store.ref, data)) return;
                 Interleaving::current()->wrote(data);
                 *data = 'a';
                 arena.seal(store.ref, true);
             },
             [&] { store.read(); }},
            [] {});
    };
    expect_found(make_and_read(), "not known to be written");
}

TEST("a reader that looks before it pins reads what is another's by then") {
    if (!kCanInterleave) return;
    Store store;
    expect_found(Interleaving::explore(
                     {.delays = 0}, [&] { store.reset(); },
                     {[&] { store.replace(); }, [&] { store.read_swapped(); }}, [] {}),
                 "not known to be");
}

// ---- values in one process ---------------------------------------------------------------------------

namespace {

/// What of an Entry is read without the mutex, as complete(), rebuild() and value_of() have it. The mutex is
/// left out: the reader is the one who does not take it.
struct OneValue {
    enum State : uint32_t { pending, inlined, in_arena };
    enum Where : uint32_t { none, in_entry, elsewhere };
    Shared<uint32_t> state, where;
    uint32_t value = 0;
    bool was_read = false;

    void reset() {
        where.store(elsewhere);
        state.store(in_arena);
        Interleaving::current()->was_written(&value);
        value = 0;
        was_read = false;
    }
    /// Its memory is lost and it is made again, small this time.
    void rebuild() {
        where.store(none, std::memory_order_relaxed);
        state.store(pending, std::memory_order_release);
        Interleaving::current()->wrote(&value);
        value = 7;
        where.store(in_entry, std::memory_order_relaxed);
        state.store(inlined, std::memory_order_release);
    }
    void look() {
        Interleaving::current()->reads(&value);
        if (value != 7) Interleaving::failed("a value that is not the object's");
        was_read = true;
    }
    void read_by_state() {
        const uint32_t now = state.load(std::memory_order_acquire);
        if (now == inlined) look();
    }
    /// Whether it is there by one word, and where by another.
    void read_by_two_words() {
        if (state.load(std::memory_order_acquire) == pending) return;
        const uint32_t place = where.load(std::memory_order_relaxed);
        if (place == none) Interleaving::failed("an object that is there is None");
        if (place == in_entry) look();
    }
    Interleaving::Result read_meanwhile(void (OneValue::*read)()) {
        return Interleaving::explore(
            {.preemptions = 3, .delays = 1}, [this] { reset(); },
            {[this] { rebuild(); }, [this, read] { (this->*read)(); }}, [] {});
    }
};

/// A thread that sleeps in get(), and another that ends what it waits for without being the one that pumps:
/// as Core::wait_until, and as `cancel` and `retry_in` of the module.
struct Sleeper {
    std::unique_ptr<Segment> segment = Segment::create(1 << 20);
    Shared<uint32_t> is_done;

    void reset() {
        Doorbell& bell = segment->bell(kConsumer);
        bell.state.store(uint32_t(Bell::awake));
        bell.waiter_word.store(0);
        is_done.store(0);
    }
    void wait() {
        Doorbell& bell = segment->bell(kConsumer);
        while (is_done.load(std::memory_order_acquire) == 0) {
            const uint32_t word = bell.waiter_word.load(std::memory_order_seq_cst);
            bell.state.store(uint32_t(Bell::waiter_sleeps), std::memory_order_seq_cst);
            if (is_done.load(std::memory_order_acquire) == 0) futex_wait(bell.waiter_word, word, -1);
            bell.state.store(uint32_t(Bell::awake), std::memory_order_seq_cst);
        }
    }
    void end(bool wakes) {
        is_done.store(1, std::memory_order_release);
        if (!wakes) return;
        Doorbell& bell = segment->bell(kConsumer);
        bell.waiter_word.fetch_add(1);
        futex_wake(bell.waiter_word, 16);
    }
    Interleaving::Result end_meanwhile(bool wakes) {
        return Interleaving::explore(
            {.preemptions = 3, .delays = 1}, [this] { reset(); },
            {[this] { wait(); }, [this, wakes] { end(wakes); }}, [] {});
    }
};

}  // namespace

TEST("who reads a value by one word sees it whole, while it is made again") {
    if (!kCanInterleave) return;
    OneValue value;
    expect_good(value.read_meanwhile(&OneValue::read_by_state), 20);
}

TEST("who reads by one word that a value is there, and by another where, finds None in between") {
    if (!kCanInterleave) return;
    OneValue value;
    expect_found(value.read_meanwhile(&OneValue::read_by_two_words), "is None");
}

TEST("who ends what another thread waits for wakes it, whenever that falls asleep") {
    if (!kCanInterleave) return;
    Sleeper sleeper;
    expect_good(sleeper.end_meanwhile(true), 20);
    expect_found(sleeper.end_meanwhile(false), "process 0 sleeps for ever");
}
