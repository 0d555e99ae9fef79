/// Generator tasks, seen from the consumer and from the producer (STR-1, STR-2).
#include "arena_parts.hpp"
#include "fake_node.hpp"

using namespace weft;

namespace {

constexpr uint32_t kWindow = 8;

/// A driver with a generator task that a leased worker has taken.
struct Flow {
    FakeNode node;
    std::unique_ptr<Core> driver = node.driver(), worker = node.worker();
    Entry* generator = nullptr;
    Entry* handle = nullptr;  ///< of the actor whose method it is, if it is one
    Task_ task;

    explicit Flow(int32_t retries = 0, bool is_method = false) {
        if (is_method) {
            handle = pending(*driver);
            handle->is_actor = true;
        }
        std::lock_guard lock(driver->mutex());
        Task* draft = weft::testing::draft(*driver, {.retries = retries, .flags = kStreaming},
                                           is_method ? handle->id : Id{});
        draft->header().window = kWindow;
        generator = draft->returns[0];
        generator->more().stream = std::make_unique<Stream>();
        if (is_method) {
            draft->actor_entry = handle;
            hold(handle);
            driver->actors.submit_call(draft, handle);
            return;
        }
        draft->function = driver->definitions.define_function(7, "code");
        draft->shape = driver->leases.shape(0);
        driver->submitter.submit(draft);
    }
    /// The task reaches its worker.
    void lease() {
        if (handle != nullptr)
            node.actor_up(*driver, handle->id, *worker);
        else
            node.grant(*driver, *worker);
        settle(*driver);
        task = next_task(*worker);
    }
    /// An item in the arena, filled with a letter.
    void send_large(uint32_t index, char letter) {
        ArenaRef arena;
        char* data = nullptr;
        CHECK(worker->arena().allocate(1000, task.from, arena, data));
        memset(data, letter, 1000);
        worker->arena().seal(arena, false);
        Buffer out;
        out.add(task.header.cookie);
        out.add(index);
        out.add(uint32_t(0));
        out.add(PackedValue{Where::arena, 0, sizeof arena});
        out.add(arena);
        std::lock_guard lock(worker->mutex());
        worker->endpoint.send(task.from, Kind::STREAM_ITEM, out.data(), out.size());
    }
    void send_error(uint32_t index, std::string_view error) {
        Buffer out;
        out.add(task.header.cookie);
        out.add(index);
        out.add(uint32_t(0));
        out.add(PackedValue{Where::error, 0, error.size()});
        out.append(error.data(), error.size());
        std::lock_guard lock(worker->mutex());
        worker->endpoint.send(task.from, Kind::STREAM_ITEM, out.data(), out.size());
    }
    void send_item(uint32_t index, std::string_view value, const std::vector<Entry*>& refs = {}) {
        Buffer out;
        out.add(task.header.cookie);
        out.add(index);
        out.add(uint32_t(0));
        out.add(PackedValue{Where::inlined, uint32_t(refs.size()), value.size()});
        std::lock_guard lock(worker->mutex());
        for (Entry* ref : refs) {
            worker->borrowing.lend_ref(ref, task.from);
            out.add(PackedRef{ref->id, ref->owner, 0, 0});
        }
        out.append(value.data(), value.size());
        worker->endpoint.send(task.from, Kind::STREAM_ITEM, out.data(), out.size());
    }
    uint32_t available() const { return generator->extra->stream->available.load(); }
    Entry* take_ref() {
        wait_until(*driver, [&] { return available() != 0; });
        std::lock_guard lock(driver->mutex());
        return driver->streams.take_item(generator);
    }
    std::string take() {
        Entry* item = take_ref();
        std::string value(item->value.view());
        driver->objects.drop(item);
        return value;
    }
    /// All items as large ones, taken, then the end.
    std::vector<Entry*> run_to_end(uint32_t items, char letter) {
        std::vector<Entry*> taken;
        for (uint32_t i = 0; i < items; ++i) {
            send_large(i, letter);
            taken.push_back(take_ref());
        }
        reply(*worker, task, {"end"});
        wait_until(*driver, [&] { return generator->is_done(); });
        return taken;
    }
    /// As if the node that had its bytes were gone, and then somebody reads it.
    bool lose(Entry* item) {
        const ArenaRef lost = drop_bytes(item);
        std::lock_guard lock(driver->mutex());
        return driver->lineage.recover(item, lost);
    }
    ArenaRef drop_bytes(Entry* item) {
        ArenaRef lost;
        {
            std::lock_guard lock(driver->mutex());
            lost = item->arena;
        }
        node.port.remove(lost.entry, lost.generation);
        return lost;
    }
    char letter(Entry* item) {
        wait_until(*driver, [&] { return item->is_done(); });
        CHECK(item->where == Where::arena);
        char* data = nullptr;
        CHECK(driver->arena().pin(item->arena, data) == PinResult::ok);
        const char found = data[999];
        driver->arena().unpin(item->arena);
        return found;
    }
    /// The next attempt is at the worker.
    void again() {
        EVENTUALLY(([&] {
            if (node.take(Kind::LEASE_RETURN)) node.grant(*driver, *worker);
            return worker->inbox.has_incoming();
        }()));
        task = next_task(*worker);
    }
    void restart_worker() {
        node.kill(worker);
        if (handle != nullptr) node.actor_down(*driver, handle->id, false, "restarting");
        settle(*driver);
        worker = node.worker();
        lease();
    }
    void drop_all(const std::vector<Entry*>& items) {
        for (Entry* item : items)
            driver->objects.drop(item);
        driver->objects.drop(generator);
        if (handle != nullptr) driver->objects.drop(handle);
        EVENTUALLY(owned(*driver) == 0);
        CHECK_EQ(counters(*driver).kept, 0u);
        CHECK_EQ(counters(*driver).kept_bytes, 0u);
        CHECK_EQ(counters(*driver).flushed_bytes, 0u);
    }
    std::shared_ptr<Credit> credit() {
        std::lock_guard lock(worker->mutex());
        return worker->inbox.credit(driver->self(), task.header.cookie);
    }
};

}  // namespace

TEST("items come in order, then the end") {
    Flow flow;
    flow.lease();
    for (uint32_t i = 0; i < 5; ++i)
        flow.send_item(i, std::to_string(i));
    reply(*flow.worker, flow.task, {"end"});
    for (uint32_t i = 0; i < 5; ++i)
        CHECK_EQ(flow.take(), std::to_string(i));
    CHECK_EQ(get(*flow.driver, flow.generator), "end");
    CHECK_EQ(flow.available(), 0u);
    flow.driver->objects.drop(flow.generator);
    CHECK_EQ(owned(*flow.driver), 0u);
}

TEST("the producer is told of what was taken before it runs dry, and not for each item") {
    Flow flow;
    flow.lease();
    const std::shared_ptr<Credit> credit = flow.credit();
    for (uint32_t i = 0; i < kWindow; ++i)
        flow.send_item(i, "x");
    for (uint32_t i = 0; i < kWindow / 2 - 1; ++i)
        flow.take();
    settle(*flow.worker);
    CHECK_EQ(credit->consumed.load(), 0u);
    flow.take();
    wait_until(*flow.worker, [&] { return credit->consumed.load() == kWindow / 2; });
    flow.driver->objects.drop(flow.generator);
}

TEST("a retry's repetition of an item is dropped, with the refs in it") {
    Flow flow(1);
    flow.lease();
    for (uint32_t i = 0; i < 3; ++i)
        flow.send_item(i, "first " + std::to_string(i));
    CHECK_EQ(flow.take(), "first 0");
    wait_until(*flow.driver, [&] { return flow.available() == 2; });
    flow.node.kill(flow.worker);
    settle(*flow.driver);
    flow.worker = flow.node.worker();
    flow.lease();
    CHECK_EQ(flow.task.header.attempt, 1u);
    CHECK_EQ(flow.credit()->consumed.load(), 1u);  // told with the task
    Entry* inside = put(*flow.worker, "inside");
    for (uint32_t i = 0; i < 5; ++i)
        flow.send_item(i, "second " + std::to_string(i), {inside});
    CHECK_EQ(flow.take(), "first 1");
    CHECK_EQ(flow.take(), "first 2");
    CHECK_EQ(flow.take(), "second 3");
    CHECK_EQ(flow.take(), "second 4");
    flow.worker->objects.drop(inside);
    EVENTUALLY(owned(*flow.worker) == 0);
    flow.driver->objects.drop(flow.generator);
}

TEST("a consumer that wants no more says so, and what it had not taken goes") {
    Flow flow;
    flow.lease();
    const std::shared_ptr<Credit> credit = flow.credit();
    Entry* inside = put(*flow.worker, "inside");
    for (uint32_t i = 0; i < 4; ++i)
        flow.send_item(i, "x", {inside});
    wait_until(*flow.driver, [&] { return flow.available() == 4; });
    {
        std::lock_guard lock(flow.driver->mutex());
        flow.driver->streams.close_stream(flow.generator);
    }
    wait_until(*flow.worker, [&] { return credit->closed.load(); });
    flow.send_item(4, "too late", {inside});
    reply(*flow.worker, flow.task, {"end"});
    CHECK_EQ(get(*flow.driver, flow.generator), "end");
    flow.worker->objects.drop(inside);
    EVENTUALLY(owned(*flow.worker) == 0);
    flow.driver->objects.drop(flow.generator);
    CHECK_EQ(owned(*flow.driver), 0u);
    CHECK_EQ(borrowed(*flow.driver), 0u);
}

TEST("items that nobody takes go with the generator") {
    Flow flow;
    flow.lease();
    for (uint32_t i = 0; i < 4; ++i)
        flow.send_item(i, "x");
    reply(*flow.worker, flow.task, {"end"});
    CHECK_EQ(get(*flow.driver, flow.generator), "end");
    CHECK_EQ(owned(*flow.driver), 5u);
    flow.driver->objects.drop(flow.generator);
    CHECK_EQ(owned(*flow.driver), 0u);
}

TEST("an item in the arena is accepted, or removed when it is a repetition") {
    Flow flow;
    flow.lease();
    std::vector<ArenaRef> refs;
    for (const uint32_t index : {0u, 0u, 1u}) {
        refs.push_back(make(flow.worker->arena(), 2, flow.driver->self(), false));
        Buffer out;
        out.add(flow.task.header.cookie);
        out.add(index);
        out.add(uint32_t(0));
        out.add(PackedValue{Where::arena, 0, sizeof(ArenaRef)});
        out.add(refs.back());
        std::lock_guard lock(flow.worker->mutex());
        flow.worker->endpoint.send(flow.task.from, Kind::STREAM_ITEM, out.data(), out.size());
    }
    wait_until(*flow.driver, [&] { return flow.available() == 2; });
    Segment& segment = flow.driver->endpoint.segment;
    CHECK(!is_gone(segment, refs[0]) && is_gone(segment, refs[1]) && !is_gone(segment, refs[2]));
    CHECK(word_of(segment, refs[0].entry).has(EntryWord::kAccepted));
    flow.driver->objects.drop(flow.generator);
    reply(*flow.worker, flow.task, {"end"});
    EVENTUALLY(owned(*flow.driver) == 0);
    CHECK_EQ(check_books(segment), 0u);
}

TEST("a generator whose worker dies for good keeps what has come and fails at its end") {
    Flow flow;
    flow.lease();
    flow.send_item(0, "x");
    wait_until(*flow.driver, [&] { return flow.available() == 1; });
    flow.node.kill(flow.worker);
    CHECK(get(*flow.driver, flow.generator).find("lost its worker") != std::string::npos);
    CHECK_EQ(flow.take(), "x");
    flow.driver->objects.drop(flow.generator);
    CHECK_EQ(owned(*flow.driver), 0u);
}

TEST("a producer whose consumer died stops") {
    Flow flow;
    flow.lease();
    const std::shared_ptr<Credit> credit = flow.credit();
    flow.node.kill(flow.driver);
    wait_until(*flow.worker, [&] { return credit->closed.load(); });
}

// ---- items whose bytes are gone --------------------------------------------------------------------

TEST("lost items of a stream that is over are made again, and the others stay as they are") {
    Flow flow(-1);
    flow.lease();
    const std::vector<Entry*> items = flow.run_to_end(5, 'a');
    CHECK_EQ(counters(*flow.driver).kept, 1u);
    flow.drop_bytes(items[1]);
    CHECK(flow.lose(items[3]));
    flow.again();
    CHECK_EQ(flow.task.header.attempt, 1u);
    CHECK_EQ(flow.task.header.window, 4u);  // it waits behind the last one that is wanted
    const std::shared_ptr<Credit> credit = flow.credit();
    for (uint32_t i = 0; i < 4; ++i) {
        CHECK(!credit->closed.load());
        flow.send_large(i, 'b');
    }
    wait_until(*flow.worker, [&] { return credit->closed.load(); });
    reply(*flow.worker, flow.task, {"end"});
    CHECK_EQ(flow.letter(items[3]), 'b');
    CHECK_EQ(flow.letter(items[1]), 'b');
    for (const int i : {0, 2, 4})
        CHECK_EQ(flow.letter(items[i]), 'a');
    CHECK_EQ(flow.available(), 0u);
    EVENTUALLY(counters(*flow.driver).kept == 1);
    EVENTUALLY(flow.node.port.statistics().objects == 5);
    flow.drop_all(items);
}

TEST("an item that was freed is neither kept nor delivered again") {
    Flow flow(-1);
    flow.lease();
    std::vector<Entry*> items = flow.run_to_end(3, 'a');
    flow.driver->objects.drop(items[0]);
    flow.driver->objects.drop(items[2]);
    CHECK(flow.lose(items[1]));
    flow.again();
    CHECK_EQ(flow.task.header.window, 2u);
    flow.send_large(0, 'b');
    flow.send_large(1, 'b');
    CHECK_EQ(flow.letter(items[1]), 'b');
    reply(*flow.worker, flow.task, {"end"});
    EVENTUALLY(counters(*flow.driver).kept == 1);
    EVENTUALLY(flow.node.port.statistics().objects == 1);
    flow.drop_all({items[1]});
}

TEST("lineage goes with the last item that is in the arena") {
    Flow flow(-1);
    flow.lease();
    flow.send_item(0, "small");
    flow.send_large(1, 'a');
    Entry* small = flow.take_ref();
    Entry* large = flow.take_ref();
    reply(*flow.worker, flow.task, {"end"});
    wait_until(*flow.driver, [&] { return flow.generator->is_done(); });
    CHECK_EQ(counters(*flow.driver).kept, 1u);
    flow.driver->objects.drop(large);
    CHECK_EQ(counters(*flow.driver).kept, 0u);
    flow.drop_all({small});
}

TEST("a retry's repetition takes the place of an item that is lost by then") {
    Flow flow(1);
    flow.lease();
    flow.send_large(0, 'a');
    flow.send_large(1, 'a');
    Entry* first = flow.take_ref();
    Entry* second = flow.take_ref();
    flow.drop_bytes(first);  // nobody has noticed
    flow.restart_worker();
    flow.send_large(0, 'b');
    flow.send_large(1, 'b');
    flow.send_large(2, 'b');
    Entry* third = flow.take_ref();
    CHECK_EQ(flow.letter(first), 'b');
    CHECK_EQ(flow.letter(second), 'a');
    CHECK_EQ(flow.letter(third), 'b');
    reply(*flow.worker, flow.task, {"end"});
    CHECK_EQ(get(*flow.driver, flow.generator), "end");
    flow.drop_all({first, second, third});
}

TEST("an item that is lost before the attempt under way has sent it comes with that attempt") {
    Flow flow(1);
    flow.lease();
    flow.send_large(0, 'a');
    Entry* item = flow.take_ref();
    flow.restart_worker();
    CHECK(flow.lose(item));
    CHECK(!item->is_done());
    flow.send_large(0, 'b');
    CHECK_EQ(flow.letter(item), 'b');
    CHECK_EQ(counters(*flow.driver).rebuilt, 0u);
    reply(*flow.worker, flow.task, {"end"});
    CHECK_EQ(get(*flow.driver, flow.generator), "end");
    flow.drop_all({item});
}

TEST("an attempt that has sent a lost item already begins anew, and the stream goes on") {
    Flow flow(-1);
    flow.lease();
    const std::shared_ptr<Credit> credit = flow.credit();
    for (uint32_t i = 0; i < 3; ++i)
        flow.send_large(i, 'a');
    std::vector<Entry*> items{flow.take_ref(), flow.take_ref()};
    CHECK(flow.lose(items[0]));
    wait_until(*flow.worker, [&] { return credit->closed.load(); });
    reply(*flow.worker, flow.task, {"end"});
    flow.again();
    CHECK(!flow.generator->is_done());
    CHECK(!flow.credit()->closed.load());
    CHECK_EQ(flow.credit()->consumed.load(), 2u);
    CHECK_EQ(flow.task.header.window, kWindow);
    for (uint32_t i = 0; i < 4; ++i)
        flow.send_large(i, 'b');
    items.push_back(flow.take_ref());
    items.push_back(flow.take_ref());
    CHECK_EQ(flow.letter(items[0]), 'b');
    CHECK_EQ(flow.letter(items[1]), 'a');
    CHECK_EQ(flow.letter(items[2]), 'a');
    CHECK_EQ(flow.letter(items[3]), 'b');
    reply(*flow.worker, flow.task, {"end"});
    CHECK_EQ(get(*flow.driver, flow.generator), "end");
    flow.drop_all(items);
}

TEST("a stream that is closed while an item of it is made again stops behind that") {
    Flow flow(2);
    flow.lease();
    for (uint32_t i = 0; i < 3; ++i)
        flow.send_large(i, 'a');
    std::vector<Entry*> items{flow.take_ref(), flow.take_ref()};
    wait_until(*flow.driver, [&] { return flow.available() == 1; });
    flow.restart_worker();
    CHECK(flow.lose(items[1]));
    {
        std::lock_guard lock(flow.driver->mutex());
        flow.driver->streams.close_stream(flow.generator);
    }
    const std::shared_ptr<Credit> credit = flow.credit();
    flow.send_large(0, 'b');
    settle(*flow.driver);
    settle(*flow.worker);
    CHECK(!credit->closed.load());
    flow.send_large(1, 'b');
    wait_until(*flow.worker, [&] { return credit->closed.load(); });
    reply(*flow.worker, flow.task, {"end"});
    CHECK_EQ(flow.letter(items[1]), 'b');
    CHECK_EQ(flow.letter(items[0]), 'a');
    CHECK_EQ(get(*flow.driver, flow.generator), "end");
    flow.drop_all(items);
}

TEST("items that are lost while others are made again are made too, also behind the last one") {
    Flow flow(-1);
    flow.lease();
    const std::vector<Entry*> items = flow.run_to_end(4, 'a');
    CHECK(flow.lose(items[1]));
    flow.again();
    CHECK_EQ(flow.task.header.window, 2u);
    const std::shared_ptr<Credit> credit = flow.credit();
    CHECK(flow.lose(items[3]));
    flow.send_large(0, 'b');
    flow.send_large(1, 'b');
    wait_until(*flow.worker, [&] { return credit->consumed.load() == 2; });  // two more than the window
    flow.send_large(2, 'b');
    CHECK(flow.lose(items[0]));  // this attempt has passed it
    wait_until(*flow.worker, [&] { return credit->closed.load(); });
    reply(*flow.worker, flow.task, {"end"});
    flow.again();
    CHECK_EQ(flow.task.header.window, 4u);
    for (uint32_t i = 0; i < 4; ++i)
        flow.send_large(i, 'c');
    CHECK_EQ(flow.letter(items[0]), 'c');
    CHECK_EQ(flow.letter(items[1]), 'b');
    CHECK_EQ(flow.letter(items[2]), 'a');
    CHECK_EQ(flow.letter(items[3]), 'c');
    reply(*flow.worker, flow.task, {"end"});
    EVENTUALLY(counters(*flow.driver).kept == 1);
    flow.drop_all(items);
}

TEST("what makes an item again may be killed too, as often as the task may be retried") {
    Flow flow(2);
    flow.lease();
    const std::vector<Entry*> items = flow.run_to_end(2, 'a');
    CHECK(flow.lose(items[1]));
    flow.again();
    flow.send_large(0, 'b');
    flow.restart_worker();
    CHECK_EQ(flow.task.header.attempt, 2u);
    flow.node.kill(flow.worker);
    const std::string error = get(*flow.driver, items[1]);
    CHECK(error.find("item 1 of generator task f") != std::string::npos);
    CHECK(error.find("retries are used up") != std::string::npos);
    CHECK_EQ(flow.letter(items[0]), 'a');
    CHECK(!flow.lose(items[0]));
    {
        std::lock_guard lock(flow.driver->mutex());
        CHECK(flow.driver->lineage.knows_why_lost(items[0]));
        CHECK(flow.driver->lineage.why_lost(items[0]).find("item 0 of generator task f") !=
              std::string::npos);
        CHECK(flow.driver->lineage.why_lost(items[0]).find("used up") != std::string::npos);
    }
    flow.drop_all(items);
}

TEST("a lost item of a generator that may not be retried says so, also while that runs") {
    Flow flow(0);
    flow.lease();
    flow.send_large(0, 'a');
    flow.send_large(1, 'a');
    std::vector<Entry*> items{flow.take_ref(), flow.take_ref()};
    flow.lose(items[0]);
    CHECK(get(*flow.driver, items[0]).find("item 0 of generator task f") != std::string::npos);
    CHECK(get(*flow.driver, items[0]).find("max_retries=0") != std::string::npos);
    reply(*flow.worker, flow.task, {"end"});
    CHECK_EQ(get(*flow.driver, flow.generator), "end");
    CHECK(!flow.lose(items[1]));
    {
        std::lock_guard lock(flow.driver->mutex());
        CHECK(flow.driver->lineage.why_lost(items[1]).find("item 1 of generator task f") !=
              std::string::npos);
    }
    flow.drop_all(items);
}

TEST("a generator that yields fewer items than before fails those that are wanted") {
    Flow flow(-1);
    flow.lease();
    const std::vector<Entry*> items = flow.run_to_end(3, 'a');
    CHECK(flow.lose(items[2]));
    flow.again();
    flow.send_large(0, 'b');
    reply(*flow.worker, flow.task, {"end"});
    const std::string error = get(*flow.driver, items[2]);
    CHECK(error.find("item 2 of generator task f") != std::string::npos);
    CHECK(error.find("ended after 1 items") != std::string::npos);
    CHECK_EQ(flow.letter(items[0]), 'a');
    flow.drop_all(items);
}

TEST("what a generator raises when it is run again is the error of the items that are wanted") {
    Flow flow(-1);
    flow.lease();
    const std::vector<Entry*> items = flow.run_to_end(3, 'a');
    flow.drop_bytes(items[1]);
    CHECK(flow.lose(items[2]));
    flow.again();
    flow.send_large(0, 'b');
    flow.send_error(1, "Praised");
    reply(*flow.worker, flow.task, {"end"});
    CHECK_EQ(get(*flow.driver, items[1]), "!Praised");
    CHECK_EQ(get(*flow.driver, items[2]), "!Praised");
    CHECK_EQ(flow.letter(items[0]), 'a');
    flow.drop_all(items);
}

TEST("a retry that fails earlier than the attempt before it ends the stream with that error, once") {
    Flow flow(1);
    flow.lease();
    for (uint32_t i = 0; i < 3; ++i)
        flow.send_item(i, std::to_string(i));
    wait_until(*flow.driver, [&] { return flow.available() == 3; });
    flow.restart_worker();
    flow.send_item(0, "0");
    flow.send_error(1, "Praised");
    reply(*flow.worker, flow.task, {"end"});
    CHECK_EQ(get(*flow.driver, flow.generator), "end");
    for (uint32_t i = 0; i < 3; ++i)
        CHECK_EQ(flow.take(), std::to_string(i));
    CHECK_EQ(flow.take(), "Praised");
    CHECK_EQ(flow.available(), 0u);
    flow.drop_all({});
}

TEST("an item that only lineage needs gives its memory back and is made again for its dependent") {
    Flow flow(-1);
    flow.lease();
    std::vector<Entry*> items = flow.run_to_end(2, 'a');
    Entry* second = submit(*flow.driver, {.deps = {items[1]}, .retries = -1});
    const ArenaRef memory = items[1]->arena;
    flow.driver->objects.drop(items[1]);
    flow.again();
    Task_ dependent = flow.task;
    ArenaRef result = make(flow.worker->arena(), 2, flow.driver->self(), false);
    Buffer out;
    out.add(ReplyHeader{dependent.header.cookie, uint32_t(Status::ok), 1000, 1, 0});
    out.add(PackedValue{Where::arena, 0, sizeof result});
    out.add(result);
    {
        std::lock_guard lock(flow.worker->mutex());
        flow.worker->endpoint.send(dependent.from, Kind::REPLY, out.data(), out.size());
    }
    wait_until(*flow.driver, [&] { return second->is_done(); });
    CHECK(!flow.node.port.exists(memory.entry, memory.generation));
    CHECK(flow.lose(second));
    flow.again();
    CHECK_EQ(flow.task.header.window, 2u);
    flow.send_large(0, 'b');
    flow.send_large(1, 'b');
    reply(*flow.worker, flow.task, {"end"});
    flow.again();
    CHECK_EQ(flow.task.deps.size(), 1u);
    reply(*flow.worker, flow.task, {"made"});
    CHECK_EQ(get(*flow.driver, second), "made");
    flow.driver->objects.drop(second);
    flow.drop_all({items[0]});
}

TEST("a generator's lineage goes to disk, and its items are made again from there") {
    Flow flow(-1);
    {
        std::lock_guard lock(flow.driver->mutex());
        flow.driver->flushing.limit_lineage(1, uint64_t(1) << 30);
    }
    flow.lease();
    std::vector<Entry*> items = flow.run_to_end(3, 'a');
    CHECK_EQ(counters(*flow.driver).kept, 0u);
    CHECK(counters(*flow.driver).flushed_bytes > 0);
    flow.driver->objects.drop(items[2]);
    items.pop_back();
    CHECK(flow.lose(items[1]));
    flow.again();
    CHECK_EQ(flow.task.header.window, 2u);
    flow.send_large(0, 'b');
    flow.send_large(1, 'b');
    reply(*flow.worker, flow.task, {"end"});
    CHECK_EQ(flow.letter(items[0]), 'a');
    CHECK_EQ(flow.letter(items[1]), 'b');
    EVENTUALLY(counters(*flow.driver).flushed_bytes > 0);
    flow.drop_all(items);
}

TEST("a method's lost items are made again by the actor, also by its next incarnation") {
    Flow flow(-1, true);
    flow.lease();
    const std::vector<Entry*> items = flow.run_to_end(2, 'a');
    CHECK(flow.lose(items[1]));
    flow.task = next_task(*flow.worker);
    CHECK_EQ(flow.task.header.window, 2u);
    flow.send_large(0, 'b');
    flow.restart_worker();
    flow.send_large(0, 'c');
    flow.send_large(1, 'c');
    reply(*flow.worker, flow.task, {"end"});
    CHECK_EQ(flow.letter(items[0]), 'a');
    CHECK_EQ(flow.letter(items[1]), 'c');
    flow.drop_all(items);
}

TEST("a lost item of a method whose stream still runs is made again, though the actor is busy with that") {
    Flow flow(-1, true);
    flow.lease();
    const std::shared_ptr<Credit> credit = flow.credit();
    flow.send_large(0, 'a');
    Entry* item = flow.take_ref();
    CHECK(flow.lose(item));
    wait_until(*flow.worker, [&] { return credit->closed.load(); });
    reply(*flow.worker, flow.task, {"end"});
    flow.task = next_task(*flow.worker);
    flow.send_large(0, 'b');
    flow.send_item(1, "next");
    CHECK_EQ(flow.letter(item), 'b');
    CHECK_EQ(flow.take(), "next");
    reply(*flow.worker, flow.task, {"end"});
    CHECK_EQ(get(*flow.driver, flow.generator), "end");
    flow.drop_all({item});
}

TEST("items of an actor that is gone for good are lost with it, and say so") {
    Flow flow(-1, true);
    flow.lease();
    const std::vector<Entry*> items = flow.run_to_end(2, 'a');
    const Id actor = flow.handle->id;
    flow.node.kill(flow.worker);
    flow.node.actor_down(*flow.driver, actor, true, error_value(ErrorCode::actor_died, "it was ended"));
    settle(*flow.driver);
    CHECK(flow.lose(items[1]));
    const std::string error = get(*flow.driver, items[1]);
    CHECK(error.find("item 1 of generator task f") != std::string::npos);
    CHECK(error.find("it was ended") != std::string::npos);
    CHECK(!flow.lose(items[0]));
    {
        std::lock_guard lock(flow.driver->mutex());
        const std::string lost = flow.driver->lineage.why_lost(items[0]);
        CHECK(ErrorCode(lost[1]) == ErrorCode::actor_died);
        CHECK(lost.find("item 0 of generator task f") != std::string::npos);
        CHECK(lost.find("it was ended") != std::string::npos);
    }
    flow.drop_all(items);
}
