/// The parts of a core one by one: an event goes in, and what comes out is in the part's own state and in
/// what it has sent. Those that need no neighbour have only an endpoint; the others are called in a whole
/// core, past its rings.
#include "fake_node.hpp"

using namespace weft;

namespace {

/// An endpoint without a core.
struct Alone {
    FakeNode node;
    ProcessId self = node.port.reserve_slot();
    Endpoint endpoint{Segment::attach(node.port.segment_fd()), node.port.event_fd(), self, Id{0, 1}, true};
};

template <class... Parts>
std::string body(const Parts&... parts) {
    Buffer out;
    (out.add(parts), ...);
    return {out.data(), out.size()};
}
Cursor cursor_of(const std::string& bytes) {
    return {bytes.data(), bytes.size()};
}

TaskHeader header_of(uint64_t cookie, uint32_t flags = 0) {
    TaskHeader header{};
    header.task = Id{9, uint32_t(cookie)};
    header.cookie = cookie;
    header.flags = flags;
    return header;
}

/// A worker that is told what comes by calls.
struct Desk {
    FakeNode node;
    std::unique_ptr<Core> worker = node.worker();
    Puppet caller{node};

    bool tell(const TaskHeader& header) {
        std::lock_guard lock(worker->mutex());
        return worker->inbox.on_task(caller.id, reinterpret_cast<const char*>(&header), sizeof header);
    }
    std::vector<Id> waiting() {
        std::lock_guard lock(worker->mutex());
        return worker->inbox.waiting(10);
    }
    uint64_t take() {
        Incoming incoming;
        return worker->inbox.take_incoming(incoming) ? incoming.cookie() : 0;
    }
};

}  // namespace

// ---- tasks -----------------------------------------------------------------------------------------

TEST("a cookie finds its task, and no later one in the same place") {
    Tasks tasks;
    Task* task = tasks.new_task();
    const uint64_t cookie = task->cookie();
    CHECK(tasks.task_at(cookie) == task);
    tasks.forget_cookie(task);
    CHECK(tasks.task_at(cookie) == nullptr);
    tasks.give_back(task);
    Task* next = tasks.new_task();
    CHECK(next == task);
    CHECK(next->cookie() != cookie);
    CHECK(tasks.task_at(cookie) == nullptr);
}

// ---- definitions -----------------------------------------------------------------------------------

TEST("a function is sent once to each process, and again to its successor") {
    Alone here;
    Puppet worker(here.node);
    Definitions definitions(here.endpoint);
    Function* function = definitions.define_function(7, "code");
    std::lock_guard lock(here.endpoint.mutex);
    definitions.send_function(worker.id, function);
    definitions.send_function(worker.id, function);
    CHECK_EQ(worker.hear(here.self, Kind::FUNCTION), body(uint64_t(7)) + "code");
    CHECK(!worker.has_heard(here.self, Kind::FUNCTION));
    CHECK_EQ(function->sent_to.at(worker.id.slot), worker.id.generation + 1);
}

TEST("a function without a user goes, and its workers are told") {
    Alone here;
    Puppet worker(here.node);
    Definitions definitions(here.endpoint);
    std::lock_guard lock(here.endpoint.mutex);
    Function* held = definitions.define_function(7, "held");
    ++held->holders;
    definitions.send_function(worker.id, definitions.define_function(8, "not held"));
    definitions.mark_held(false);
    definitions.forget_unused();
    CHECK(definitions.function(7) == held);
    CHECK(definitions.function(8) == nullptr);
    CHECK_EQ(worker.hear(here.self, Kind::FORGET_FUNCTION), body(uint64_t(8)));
}

TEST("what was sent here stays until the last of its senders is gone") {
    Alone here;
    Definitions definitions(here.endpoint);
    const ProcessId one{5, 1}, two{6, 1};
    const std::string code = body(uint64_t(7)) + "code";
    definitions.on_function(one, cursor_of(code));
    definitions.on_function(two, cursor_of(code));
    CHECK_EQ(definitions.definition(7), std::string("code"));
    definitions.loaded(7);
    CHECK(definitions.definition(7).empty());
    definitions.on_forget_function(one, 7);
    CHECK(definitions.take_forgotten().empty());
    definitions.sender_died(two);
    CHECK(definitions.take_forgotten() == std::vector<uint64_t>{7});
    CHECK_EQ(definitions.received(), 0u);
}

// ---- requests about the arena ----------------------------------------------------------------------

TEST("an answer about room is for the request that it names") {
    Alone here;
    StoreRequests requests(here.endpoint);
    std::lock_guard lock(here.endpoint.mutex);
    const uint64_t first = requests.ask_space(100), second = requests.ask_space(200);
    CHECK_EQ(here.node.expect(Kind::NEED_SPACE).payload, body(uint64_t(100), first));
    CHECK_EQ(here.node.expect(Kind::NEED_SPACE).payload, body(uint64_t(200), second));
    requests.on_space(cursor_of(body(uint64_t(0), second) + "all is pinned"));
    CHECK(!requests.space.at(first).is_answered);
    CHECK_EQ(requests.space.at(second).text, std::string("all is pinned"));
    CHECK_EQ(requests.space_answers.load(), 1u);
    requests.daemon_lost();
    CHECK(requests.space.at(first).is_answered);
    CHECK_EQ(requests.space.at(first).freed, 0u);
}

TEST("an answer about bytes stays as long as somebody waits for it") {
    Alone here;
    StoreRequests requests(here.endpoint);
    std::lock_guard lock(here.endpoint.mutex);
    requests.ask_restore(5);
    requests.ask_restore(5);
    requests.on_restored(cursor_of(body(uint64_t(5), uint32_t(0), uint32_t(0)) + "the disk is gone"));
    requests.end_restore(5);
    CHECK_EQ(requests.restoring.at(5).error, std::string("the disk is gone"));
    requests.end_restore(5);
    CHECK(requests.restoring.empty());
    requests.on_restored(cursor_of(body(uint64_t(5), uint32_t(1), uint32_t(0))));  // nobody waits any more
    CHECK(requests.restoring.empty());
}

// ---- inbox -----------------------------------------------------------------------------------------

TEST("tasks are taken in the order in which they came") {
    Desk desk;
    for (const uint64_t cookie : {1, 2, 3})
        CHECK(desk.tell(header_of(cookie)));
    CHECK(desk.worker->inbox.has_incoming());
    CHECK_EQ(desk.waiting().size(), 3u);
    CHECK_EQ(desk.take(), 1u);
    CHECK_EQ(desk.take(), 2u);
    CHECK_EQ(desk.take(), 3u);
    CHECK_EQ(desk.take(), 0u);
    CHECK(!desk.worker->inbox.has_incoming());
}

TEST("an actor is created by the daemon only, and a driver runs nothing") {
    Desk desk;
    CHECK(!desk.tell(header_of(1, kIsCreation)));
    const auto driver = desk.node.driver();
    const TaskHeader header = header_of(1);
    std::lock_guard lock(driver->mutex());
    CHECK(!driver->inbox.on_task(desk.caller.id, reinterpret_cast<const char*>(&header), sizeof header));
}

TEST("a task that is cancelled before it starts is passed over and answered") {
    Desk desk;
    for (const uint64_t cookie : {1, 2, 3})
        desk.tell(header_of(cookie));
    {
        std::lock_guard lock(desk.worker->mutex());
        desk.worker->inbox.on_cancel(desk.caller.id, cursor_of(body(records::Cancel{2})));
    }
    ReplyHeader reply;
    memcpy(&reply, desk.caller.hear(desk.worker->self(), Kind::REPLY).data(), sizeof reply);
    CHECK_EQ(reply.cookie, 2u);
    CHECK(Status(reply.status) == Status::cancelled);
    CHECK_EQ(desk.take(), 1u);
    CHECK_EQ(desk.take(), 3u);
}

TEST("what was not started is handed back, but for an actor's calls") {
    Desk desk;
    desk.tell(header_of(1));
    desk.tell(header_of(2, kIsMethod));
    desk.tell(header_of(3));
    {
        std::lock_guard lock(desk.worker->mutex());
        desk.worker->inbox.hand_back();
    }
    CHECK_EQ(desk.caller.hear(desk.worker->self(), Kind::HANDBACK), body(uint64_t(1), uint64_t(3)));
    CHECK_EQ(desk.take(), 2u);
}

TEST("with a caller go its tasks and its credits") {
    Desk desk;
    desk.tell(header_of(1));
    std::lock_guard lock(desk.worker->mutex());
    const std::shared_ptr<Credit> credit = desk.worker->inbox.credit(desk.caller.id, 1);
    desk.worker->inbox.on_stream_credit(desk.caller.id, cursor_of(body(records::StreamCredit{1, 5})));
    CHECK_EQ(credit->consumed.load(), 5u);
    desk.worker->inbox.sender_died(desk.caller.id);
    CHECK(credit->closed.load());
    CHECK(!desk.worker->inbox.has_incoming());
}

// ---- leases ----------------------------------------------------------------------------------------

TEST("leases are asked for as the queue grows, used when granted, and returned when revoked") {
    FakeNode node;
    const auto driver = node.driver();
    Puppet worker(node);
    std::vector<Entry*> results;
    for (int i = 0; i < 2; ++i)
        results.push_back(submit(*driver, {.shape = 4}));
    CHECK_EQ(node.expect(Kind::LEASE_REQUEST).payload, body(uint32_t(4), uint32_t(1)));
    CHECK_EQ(node.expect(Kind::LEASE_REQUEST).payload, body(uint32_t(4), uint32_t(2)));
    std::lock_guard lock(driver->mutex());
    driver->leases.on_grant(cursor_of(body(records::LeaseGrant{1, 4, worker.id})));
    CHECK_EQ(driver->leases.count(), 1u);
    TaskHeader sent;
    memcpy(&sent, worker.hear(driver->self(), Kind::TASK).data(), sizeof sent);
    CHECK(!worker.has_heard(driver->self(), Kind::TASK));  // how long one takes is not known yet
    driver->leases.on_revoke(1);
    CHECK_EQ(driver->leases.count(), 1u);  // it runs a task
    driver->submitter.on_reply(worker.id,
                               cursor_of(body(ReplyHeader{sent.cookie, uint32_t(Status::failed), 0, 0, 0})));
    CHECK_EQ(driver->leases.count(), 0u);
    CHECK_EQ(node.expect(Kind::LEASE_RETURN).payload, body(uint64_t(1)));
    CHECK(results.at(0)->is_done());
    CHECK(!results.at(1)->is_done());
}

TEST("what a worker had not started when it died is queued again, what it ran is retried or fails") {
    FakeNode node;
    const auto driver = node.driver();
    Puppet worker(node);
    Entry* result = submit(*driver, {.retries = 0});
    std::lock_guard lock(driver->mutex());
    driver->leases.on_grant(cursor_of(body(records::LeaseGrant{1, 0, worker.id})));
    driver->leases.worker_died({worker.id}, "the test said so");
    CHECK_EQ(driver->leases.count(), 0u);
    CHECK(result->now() == ObjectState::failed);
    CHECK(result->value.view().find("the test said so") != std::string_view::npos);
}

TEST("a task whose worker was stopped for memory waits for a larger shape, and tells what was held") {
    FakeNode node;
    const auto driver = node.driver();
    Puppet worker(node);
    Entry* result = submit(*driver, {.retries = 1, .shape = 4});
    std::lock_guard lock(driver->mutex());
    driver->leases.on_grant(cursor_of(body(records::LeaseGrant{1, 4, worker.id})));
    TaskHeader sent;
    memcpy(&sent, worker.hear(driver->self(), Kind::TASK).data(), sizeof sent);
    driver->leases.worker_died({worker.id, DeathCause::stopped_for_memory, 0, 300}, "for a person");
    CoreEvent event;
    CHECK(driver->endpoint.next_event(event));
    CHECK_EQ(event.kind, kWantsMemory);
    CHECK_EQ(event.payload, body(sent.cookie, uint32_t(4), uint32_t(0), uint64_t(300)));
    CHECK(!result->is_done());
    driver->leases.retry_in(sent.cookie, 5);
    driver->leases.on_grant(cursor_of(body(records::LeaseGrant{2, 5, worker.id})));
    CHECK(worker.has_heard(driver->self(), Kind::TASK));
}

// ---- long waits ------------------------------------------------------------------------------------

TEST("a long wait is told of, and broken by its number") {
    FakeNode node;
    const auto driver = node.driver();
    LongWait wait;
    driver->long_waits.begin(wait);
    CoreEvent event;
    CHECK(driver->endpoint.next_event(event));
    CHECK_EQ(event.kind, kWaitsLong);
    CHECK(!driver->long_waits.break_wait(wait.number + 1, "no"));
    CHECK(driver->long_waits.break_wait(wait.number, "a deadlock"));
    CHECK(wait.is_broken.load());
    CHECK_EQ(wait.error, std::string("a deadlock"));
    driver->long_waits.end(wait);
    CHECK(driver->long_waits.all().empty());
}
