/// Objects whose bytes are gone are made again from what made them. The test plays the daemon and the worker.
#include <signal.h>
#include <sys/resource.h>

#include "fake_node.hpp"

using namespace weft;

namespace {

struct Farm {
    FakeNode node;
    std::unique_ptr<Core> driver = node.driver();
    std::unique_ptr<Core> worker = node.worker();

    Farm() { node.grant(*driver, *worker); }

    /// The next task; the driver gets its lease again if it has given it back meanwhile.
    Task_ next() {
        EVENTUALLY(([&] {
            if (node.take(Kind::LEASE_RETURN)) node.grant(*driver, *worker);
            return worker->inbox.has_incoming();
        }()));
        return next_task(*worker);
    }
    Entry* submit(const Call& call) { return weft::testing::submit(*driver, call); }
    /// Takes the next task and answers with objects in the arena, filled with a letter.
    Task_ answer_large(char letter, int values = 1) {
        const Task_ task = next();
        Buffer out;
        out.add(ReplyHeader{task.header.cookie, uint32_t(Status::ok), 1000, uint32_t(values), 0});
        for (int i = 0; i < values; ++i) {
            ArenaRef arena;
            char* data = nullptr;
            CHECK(worker->arena().allocate(1000, task.from, arena, data));
            memset(data, letter, 1000);
            worker->arena().seal(arena, false);
            out.add(PackedValue{Where::arena, 0, sizeof arena});
            out.add(arena);
        }
        std::lock_guard lock(worker->mutex());
        worker->endpoint.send(task.from, Kind::REPLY, out.data(), out.size());
        worker->pump.advance_epoch();
        return task;
    }
    /// A task that has run, and whose results are in the arena.
    Entry* make(const Call& call, char letter = 'a') {
        Entry* entry = submit(call);
        answer_large(letter);
        wait(entry);
        return entry;
    }
    /// A task that takes an object which nobody else refers to.
    Entry* follow(Entry* input, char letter) {
        Entry* entry = submit({.deps = {input}, .retries = 3});
        driver->objects.drop(input);
        answer_large(letter);
        wait(entry);
        return entry;
    }
    void limit(size_t memory_bytes, uint64_t disk_bytes = uint64_t(1) << 30) {
        std::lock_guard lock(driver->mutex());
        driver->flushing.limit_lineage(memory_bytes, disk_bytes);
    }
    void wait(Entry* entry) {
        wait_until(*driver, [&] { return entry->is_done(); });
    }
    ArenaRef where(Entry* entry) {
        std::lock_guard lock(driver->mutex());
        return entry->arena;
    }
    /// As if the node that had the bytes were gone.
    ArenaRef lose(Entry* entry) {
        const ArenaRef arena = where(entry);
        node.port.remove(arena.entry, arena.generation);
        return arena;
    }
    bool recover(Entry* entry, const ArenaRef& lost) {
        std::lock_guard lock(driver->mutex());
        return driver->lineage.recover(entry, lost);
    }
    char letter(Entry* entry) {
        char* data = nullptr;
        const ArenaRef arena = where(entry);
        CHECK(driver->arena().pin(arena, data) == PinResult::ok);
        const char found = data[999];
        driver->arena().unpin(arena);
        return found;
    }
};

const Call retried{.retries = 3};

}  // namespace

TEST("a lost object is made again by the task that made it") {
    Farm farm;
    Entry* entry = farm.submit(retried);
    const Id task = farm.answer_large('a').header.task;
    farm.wait(entry);
    CHECK_EQ(counters(*farm.driver).kept, 1u);
    CHECK_EQ(counters(*farm.driver).pending, 0u);
    CHECK(farm.recover(entry, farm.lose(entry)));
    CHECK(!entry->is_done());
    CHECK_EQ(counters(*farm.driver).pending, 1u);
    const Task_ again = farm.answer_large('b');
    CHECK(again.header.task == task);
    CHECK_EQ(again.header.attempt, 1u);
    farm.wait(entry);
    CHECK_EQ(farm.letter(entry), 'b');
    farm.driver->objects.drop(entry);
    CHECK_EQ(owned(*farm.driver), 0u);
    CHECK_EQ(counters(*farm.driver).kept, 0u);
    CHECK_EQ(counters(*farm.driver).kept_bytes, 0u);
}

TEST("what a reader found lost and is there by then is not made again") {
    Farm farm;
    Entry* entry = farm.make(retried);
    const ArenaRef lost = farm.lose(entry);
    CHECK(farm.recover(entry, lost));
    CHECK(farm.recover(entry, lost));
    farm.answer_large('b');
    farm.wait(entry);
    CHECK(farm.recover(entry, lost));
    CHECK(entry->is_done());
    CHECK_EQ(counters(*farm.driver).rebuilt, 1u);
    farm.driver->objects.drop(entry);
}

TEST("a task that may not be retried leaves no lineage, and small results need none") {
    Farm farm;
    Entry* once = farm.make({});
    CHECK(!farm.recover(once, farm.lose(once)));
    Entry* small = farm.submit(retried);
    reply(*farm.worker, farm.next(), {"small"});
    farm.wait(small);
    CHECK_EQ(counters(*farm.driver).kept, 0u);
    farm.driver->objects.drop(once);
    farm.driver->objects.drop(small);
    CHECK_EQ(owned(*farm.driver), 0u);
}

TEST("an argument that nobody needs gives its memory back and is made again for its dependent") {
    Farm farm;
    Entry* first = farm.make(retried);
    const ArenaRef memory = farm.where(first);
    Entry* second = farm.follow(first, 'b');
    CHECK(!farm.node.port.exists(memory.entry, memory.generation));
    CHECK_EQ(owned(*farm.driver), 2u);
    CHECK(farm.recover(second, farm.lose(second)));
    farm.answer_large('c');  // the first, again
    const Task_ again = farm.answer_large('d');
    CHECK_EQ(again.deps.size(), 1u);
    farm.wait(second);
    CHECK_EQ(farm.letter(second), 'd');
    CHECK_EQ(counters(*farm.driver).rebuilt, 2u);
    farm.driver->objects.drop(second);
    CHECK_EQ(owned(*farm.driver), 0u);
    CHECK_EQ(counters(*farm.driver).kept, 0u);
}

TEST("a long chain is made again from its beginning, and forgotten with its end") {
    Farm farm;
    constexpr int kLinks = 1000;
    Entry* last = farm.make(retried);
    for (int i = 0; i < kLinks; ++i) {
        last = farm.follow(last, 'b');
    }
    CHECK_EQ(owned(*farm.driver), uint64_t(kLinks + 1));
    CHECK(farm.recover(last, farm.lose(last)));
    for (int i = 0; i <= kLinks; ++i)
        farm.answer_large('c');
    farm.wait(last);
    CHECK_EQ(counters(*farm.driver).rebuilt, uint64_t(kLinks + 1));
    farm.driver->objects.drop(last);
    CHECK_EQ(owned(*farm.driver), 0u);
    CHECK_EQ(counters(*farm.driver).kept, 0u);
}

TEST("of several returns those that are left are made again, and the freed ones are not kept") {
    Farm farm;
    std::vector<Entry*> pair = submit_many(*farm.driver, {.returns = 2, .retries = 3});
    farm.answer_large('a', 2);
    farm.wait(pair[1]);
    farm.driver->objects.drop(pair[0]);
    CHECK(farm.recover(pair[1], farm.lose(pair[1])));
    farm.answer_large('b', 2);
    farm.wait(pair[1]);
    CHECK_EQ(farm.letter(pair[1]), 'b');
    CHECK_EQ(farm.node.port.statistics().objects, 1u);
    farm.driver->objects.drop(pair[1]);
    CHECK_EQ(owned(*farm.driver), 0u);
    CHECK_EQ(farm.node.port.statistics().objects, 0u);
}

TEST("a worker that finds an argument gone has it made again, and then runs the task") {
    Farm farm;
    Entry* first = farm.make(retried);
    farm.lose(first);
    Entry* second = farm.submit({.deps = {first}});
    reply(*farm.worker, farm.next(), {}, Status::lost);
    settle(*farm.driver);
    farm.answer_large('b');
    reply(*farm.worker, farm.next(), {"made"});
    CHECK_EQ(get(*farm.driver, second), "made");
    farm.driver->objects.drop(first);
    farm.driver->objects.drop(second);
    CHECK_EQ(owned(*farm.driver), 0u);
}

TEST("a task fails when an argument is gone that nothing can make") {
    Farm farm;
    Entry* once = farm.make({});
    farm.lose(once);
    Entry* second = farm.submit({.deps = {once}});
    reply(*farm.worker, farm.next(), {}, Status::lost);
    CHECK(get(*farm.driver, second).find("max_retries=0") != std::string::npos);
    farm.driver->objects.drop(once);
    farm.driver->objects.drop(second);
}

TEST("a borrower that finds the object gone asks its owner, who makes it again") {
    Farm farm;
    Entry* entry = farm.make(retried);
    Puppet reader(farm.node);
    {
        std::lock_guard lock(farm.driver->mutex());
        farm.driver->borrowing.lend_ref(entry, reader.id);
    }
    farm.lose(entry);
    reader.say(farm.driver->self(), Kind::WANT, entry->id);
    farm.answer_large('b');
    const std::string value = reader.hear(farm.driver->self(), Kind::VALUE);
    CHECK_EQ(value.size(), sizeof(Id) + sizeof(PackedValue) + sizeof(ArenaRef));
    farm.driver->objects.drop(entry);
    reader.say(farm.driver->self(), Kind::BORROW_RELEASE, entry->id, uint64_t(1));
    EVENTUALLY(owned(*farm.driver) == 0);
}

TEST("lineage past both limits is forgotten, and the error says which") {
    Farm farm;
    farm.limit(1, 1);
    Entry* entry = farm.make(retried);
    CHECK_EQ(counters(*farm.driver).kept, 0u);
    CHECK_EQ(counters(*farm.driver).flushed_bytes, 0u);
    CHECK(!farm.recover(entry, farm.lose(entry)));
    {
        std::lock_guard lock(farm.driver->mutex());
        CHECK(farm.driver->lineage.why_lost(entry).find("WEFT_LINEAGE_DISK") != std::string::npos);
    }
    farm.driver->objects.drop(entry);
    CHECK_EQ(owned(*farm.driver), 0u);
}

TEST("a disk that takes nothing costs the lineage that it was to keep, and says so") {
    Farm farm;
    farm.limit(1);
    signal(SIGXFSZ, SIG_IGN);
    rlimit before{};
    getrlimit(RLIMIT_FSIZE, &before);
    const rlimit none{0, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &none);
    Entry* entry = farm.make(retried);
    setrlimit(RLIMIT_FSIZE, &before);
    CHECK_EQ(counters(*farm.driver).flushed_bytes, 0u);
    CHECK(!farm.recover(entry, farm.lose(entry)));
    {
        std::lock_guard lock(farm.driver->mutex());
        CHECK(farm.driver->lineage.why_lost(entry).find("File too large") != std::string::npos);
    }
    CoreEvent event;
    CHECK(farm.driver->endpoint.next_event(event));
    CHECK_EQ(event.kind, kLineageForgotten);
    Entry* later = farm.make(retried);  // there is room again
    CHECK(counters(*farm.driver).flushed_bytes > 0);
    farm.driver->objects.drop(entry);
    farm.driver->objects.drop(later);
    CHECK_EQ(owned(*farm.driver), 0u);
}

TEST("lineage past its share of memory is on disk, and a lost object is made again from there") {
    Farm farm;
    farm.limit(1);
    Entry* entry = farm.submit(retried);
    const Id task = farm.answer_large('a').header.task;
    farm.wait(entry);
    CHECK_EQ(counters(*farm.driver).kept, 0u);
    CHECK(counters(*farm.driver).flushed_bytes > 0);
    CHECK(farm.recover(entry, farm.lose(entry)));
    const Task_ again = farm.answer_large('b');
    CHECK(again.header.task == task);
    farm.wait(entry);
    CHECK_EQ(farm.letter(entry), 'b');
    farm.driver->objects.drop(entry);
    CHECK_EQ(owned(*farm.driver), 0u);
    CHECK_EQ(counters(*farm.driver).flushed_bytes, 0u);
}

TEST("a long chain on disk takes no memory, and is made again from its beginning") {
    Farm farm;
    farm.limit(1);
    constexpr int kLinks = 300;
    Entry* small = put(*farm.driver, "small");
    Entry* last = farm.submit({.deps = {small}, .retries = 3});
    farm.driver->objects.drop(small);
    farm.answer_large('a');
    farm.wait(last);
    for (int i = 0; i < kLinks; ++i) {
        last = farm.follow(last, 'b');
        CHECK_EQ(owned(*farm.driver), 1u);
    }
    CHECK(counters(*farm.driver).flushed_bytes > kLinks * sizeof(TaskHeader));
    CHECK(farm.recover(last, farm.lose(last)));
    const Task_ first = farm.answer_large('c');
    CHECK_EQ(first.deps.size(), 1u);
    for (int i = 0; i < kLinks; ++i)
        farm.answer_large('c');
    farm.wait(last);
    CHECK_EQ(farm.letter(last), 'c');
    CHECK_EQ(counters(*farm.driver).rebuilt, uint64_t(kLinks + 1));
    farm.driver->objects.drop(last);
    CHECK_EQ(owned(*farm.driver), 0u);
    CHECK_EQ(counters(*farm.driver).flushed_bytes, 0u);
}

TEST("what is flushed while it is held names it, and finds it again when it is needed") {
    Farm farm;
    farm.limit(1);
    Entry* first = farm.make(retried);
    std::vector<Entry*> pair = submit_many(*farm.driver, {.deps = {first}, .returns = 2, .retries = 3});
    farm.answer_large('b', 2);
    farm.wait(pair[1]);
    CHECK(farm.recover(pair[0], farm.lose(pair[0])));
    CHECK_EQ(farm.answer_large('c', 2).deps.size(), 1u);
    farm.wait(pair[0]);
    CHECK_EQ(counters(*farm.driver).rebuilt, 1u);  // the first was there
    farm.driver->objects.drop(first);
    CHECK(farm.recover(pair[0], farm.lose(pair[0])));
    farm.answer_large('d');
    farm.answer_large('e', 2);
    farm.wait(pair[0]);
    CHECK_EQ(farm.letter(pair[0]), 'e');
    CHECK_EQ(farm.letter(pair[1]), 'b');
    CHECK_EQ(counters(*farm.driver).rebuilt, 3u);
    farm.driver->objects.drop(pair[0]);
    farm.driver->objects.drop(pair[1]);
    CHECK_EQ(owned(*farm.driver), 0u);
    CHECK_EQ(counters(*farm.driver).flushed_bytes, 0u);
}

TEST("the thread that takes lineage to disk keeps memory at its limit") {
    Farm farm;
    constexpr size_t limit = 8 << 10;
    constexpr int kMade = 50;  // as many as the arena has room for
    farm.limit(limit);
    std::vector<Entry*> made;
    for (int i = 0; i < kMade; ++i) {
        made.push_back(farm.make(retried));
        CHECK(counters(*farm.driver).kept_bytes <= 2 * limit);
    }
    EVENTUALLY(counters(*farm.driver).kept_bytes <= limit);
    CHECK(farm.recover(made[0], farm.lose(made[0])));
    farm.answer_large('b');
    farm.wait(made[0]);
    CHECK_EQ(farm.letter(made[0]), 'b');
    for (Entry* entry : made)
        farm.driver->objects.drop(entry);
    CHECK_EQ(owned(*farm.driver), 0u);
    CHECK_EQ(counters(*farm.driver).kept_bytes, 0u);
    CHECK_EQ(counters(*farm.driver).flushed_bytes, 0u);
}

TEST("an input that nothing can make again stays as long as lineage needs it") {
    for (const size_t limit : {size_t(64) << 20, size_t(1)}) {
        Farm farm;
        farm.limit(limit);
        Entry* once = farm.make({});
        const ArenaRef memory = farm.where(once);
        Entry* second = farm.follow(once, 'b');
        CHECK(farm.node.port.exists(memory.entry, memory.generation));
        CHECK_EQ(counters(*farm.driver).input_bytes, memory.bytes);
        CHECK(farm.recover(second, farm.lose(second)));
        CHECK_EQ(farm.answer_large('c').deps.size(), 1u);
        farm.wait(second);
        farm.driver->objects.drop(second);
        CHECK_EQ(owned(*farm.driver), 0u);
        CHECK_EQ(counters(*farm.driver).input_bytes, 0u);
        CHECK(!farm.node.port.exists(memory.entry, memory.generation));
    }
}

TEST("inputs past their limit go, the oldest first, and what needs them is lost") {
    Farm farm;
    farm.limit(1);
    {
        std::lock_guard lock(farm.driver->mutex());
        farm.driver->kept_inputs.limit_inputs(2500);
    }
    std::vector<Entry*> made;
    for (int i = 0; i < 3; ++i) {
        Entry* once = farm.make({});
        made.push_back(farm.follow(once, 'b'));
    }
    CHECK_EQ(counters(*farm.driver).input_bytes, 2000u);
    CHECK_EQ(owned(*farm.driver), 5u);
    CHECK(farm.recover(made[2], farm.lose(made[2])));
    farm.answer_large('c');
    farm.wait(made[2]);
    CHECK_EQ(farm.letter(made[2]), 'c');
    CHECK(farm.recover(made[0], farm.lose(made[0])));
    CHECK(get(*farm.driver, made[0]).find("put()") != std::string::npos);
    for (Entry* entry : made)
        farm.driver->objects.drop(entry);
    CHECK_EQ(owned(*farm.driver), 0u);
}
