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
    Task_ task;

    explicit Flow(int32_t retries = 0) {
        std::lock_guard lock(driver->mutex());
        Task* draft = weft::testing::draft(*driver, {.retries = retries, .flags = kStreaming});
        draft->header().window = kWindow;
        draft->function = driver->define_function(7, "code");
        draft->shape = driver->shape(0);
        generator = draft->returns[0];
        generator->more().stream = std::make_unique<Stream>();
        driver->submit(draft);
    }
    void lease() {
        node.grant(*driver, *worker);
        settle(*driver);
        task = next_task(*worker);
    }
    void send_item(uint32_t index, std::string_view value, const std::vector<Entry*>& refs = {}) {
        Buffer out;
        out.add(task.header.cookie);
        out.add(index);
        out.add(uint32_t(0));
        out.add(PackedValue{Where::inlined, uint32_t(refs.size()), value.size()});
        std::lock_guard lock(worker->mutex());
        for (Entry* ref : refs) {
            worker->lend_ref(ref, task.from);
            out.add(PackedRef{ref->id, ref->owner, 0, 0});
        }
        out.append(value.data(), value.size());
        worker->send(task.from, Kind::STREAM_ITEM, out.data(), out.size());
    }
    uint32_t available() const { return generator->extra->stream->available.load(); }
    std::string take() {
        wait_until(*driver, [&] { return available() != 0; });
        Entry* item = nullptr;
        {
            std::lock_guard lock(driver->mutex());
            item = driver->take_item(generator);
        }
        std::string value(item->value.view());
        driver->drop(item);
        return value;
    }
    std::shared_ptr<Credit> credit() {
        std::lock_guard lock(worker->mutex());
        return worker->credit(driver->self(), task.header.cookie);
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
    flow.driver->drop(flow.generator);
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
    flow.driver->drop(flow.generator);
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
    CHECK_EQ(flow.task.header.attempt, 1);
    CHECK_EQ(flow.credit()->consumed.load(), 1u);  // told with the task
    Entry* inside = put(*flow.worker, "inside");
    for (uint32_t i = 0; i < 5; ++i)
        flow.send_item(i, "second " + std::to_string(i), {inside});
    CHECK_EQ(flow.take(), "first 1");
    CHECK_EQ(flow.take(), "first 2");
    CHECK_EQ(flow.take(), "second 3");
    CHECK_EQ(flow.take(), "second 4");
    flow.worker->drop(inside);
    EVENTUALLY(owned(*flow.worker) == 0);
    flow.driver->drop(flow.generator);
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
        flow.driver->close_stream(flow.generator);
    }
    wait_until(*flow.worker, [&] { return credit->closed.load(); });
    flow.send_item(4, "too late", {inside});
    reply(*flow.worker, flow.task, {"end"});
    CHECK_EQ(get(*flow.driver, flow.generator), "end");
    flow.worker->drop(inside);
    EVENTUALLY(owned(*flow.worker) == 0);
    flow.driver->drop(flow.generator);
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
    flow.driver->drop(flow.generator);
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
        flow.worker->send(flow.task.from, Kind::STREAM_ITEM, out.data(), out.size());
    }
    wait_until(*flow.driver, [&] { return flow.available() == 2; });
    Segment& segment = flow.driver->segment();
    CHECK(!is_gone(segment, refs[0]) && is_gone(segment, refs[1]) && !is_gone(segment, refs[2]));
    CHECK_EQ(segment.object(refs[0].entry).accepted.load(), 1u);
    flow.driver->drop(flow.generator);
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
    flow.driver->drop(flow.generator);
    CHECK_EQ(owned(*flow.driver), 0u);
}

TEST("a producer whose consumer died stops") {
    Flow flow;
    flow.lease();
    const std::shared_ptr<Credit> credit = flow.credit();
    flow.node.kill(flow.driver);
    wait_until(*flow.worker, [&] { return credit->closed.load(); });
}
