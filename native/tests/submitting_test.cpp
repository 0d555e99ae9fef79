/// From a submission to its answer: leases, dependencies, retries, hand-backs. The test plays the daemon and
/// the workers.
#include "fake_node.hpp"

using namespace weft;

namespace {

/// A driver and workers that are leased to it.
struct Office {
    FakeNode node;
    std::unique_ptr<Core> driver = node.driver();
    std::vector<std::unique_ptr<Core>> workers;
    std::vector<uint64_t> leases;

    explicit Office(int count) {
        for (int i = 0; i < count; ++i)
            workers.push_back(node.worker());
    }
    Core& worker(size_t i = 0) { return *workers.at(i); }
    void lease(size_t i = 0, uint32_t shape = 0) { leases.push_back(node.grant(*driver, worker(i), shape)); }
    std::string result(Entry* entry) {
        std::string value = get(*driver, entry);
        driver->objects.drop(entry);
        return value;
    }
};

uint32_t word(const std::string& bytes, size_t i) {
    uint32_t value = 0;
    memcpy(&value, bytes.data() + 4 * i, 4);
    return value;
}

}  // namespace

TEST("a task goes to a leased worker and its answer comes back") {
    Office office(1);
    Entry* result = submit(*office.driver);
    const Received asked = office.node.expect(Kind::LEASE_REQUEST);
    CHECK(asked.from == office.driver->self());
    CHECK_EQ(word(asked.payload, 0), 0u);
    CHECK_EQ(word(asked.payload, 1), 1u);
    office.lease();
    settle(*office.driver);
    const Task_ task = next_task(office.worker());
    CHECK(task.from == office.driver->self());
    CHECK_EQ(task.header.attempt, 0u);
    reply(office.worker(), task, {"seven"});
    CHECK_EQ(office.result(result), "seven");
    CHECK_EQ(owned(*office.driver), 0u);
    CHECK_EQ(counters(*office.driver).pending, 0u);
}

TEST("the function's code reaches a worker before its first task, once") {
    Office office(2);
    Entry* a = submit(*office.driver);
    Entry* b = submit(*office.driver);
    office.lease(0);
    office.lease(1);
    settle(*office.driver);
    for (size_t i = 0; i < 2; ++i) {
        const Task_ task = next_task(office.worker(i));
        std::lock_guard lock(office.worker(i).mutex());
        CHECK_EQ(office.worker(i).definitions.definition(7), "code");
        CHECK_EQ(task.header.function, 7u);
    }
    office.driver->objects.drop(a);
    office.driver->objects.drop(b);
}

TEST("many tasks run on few workers and each answer finds its own") {
    Office office(2);
    constexpr int kTasks = 3000;
    std::vector<Entry*> results;
    for (int i = 0; i < kTasks; ++i)
        results.push_back(submit(*office.driver));
    office.lease(0);
    office.lease(1);
    std::vector<std::thread> threads;
    std::atomic<int> left{kTasks};
    for (size_t w = 0; w < 2; ++w) {
        threads.emplace_back([&, w] {
            Core& worker = office.worker(w);
            while (left.load() > 0) {
                if (worker.pump.wait_until([&] { return worker.inbox.has_incoming() || left.load() <= 0; },
                                           now_us() * 1000 + 20'000'000,
                                           Pump::kNeverLend) == Pump::Waited::interrupted)
                    continue;
                if (!worker.inbox.has_incoming()) continue;
                const Task_ task = next_task(worker);
                reply(worker, task, {std::to_string(task.header.task.high)});
                if (left.fetch_sub(1) == 1)
                    for (auto& other : office.workers)
                        other->pump.request_exit();
            }
        });
    }
    for (Entry* result : results) {
        const uint64_t high = result->id.high;
        CHECK_EQ(office.result(result), std::to_string(high));
    }
    for (std::thread& thread : threads)
        thread.join();
    CHECK_EQ(owned(*office.driver), 0u);
    CHECK_EQ(counters(*office.driver).submitted, uint64_t(kTasks));
}

TEST("a task waits for its dependencies and is sent their values") {
    Office office(1);
    Entry* there = put(*office.driver, "there");
    Entry* later = pending(*office.driver);
    Entry* result = submit(*office.driver, {.deps = {there, later, there}});
    office.lease();
    settle(*office.driver);
    CHECK(!office.worker().pump.has_mail());
    {
        std::lock_guard lock(office.driver->mutex());
        office.driver->objects.complete(later, Where::inlined, "later", 5, {});
    }
    const Task_ task = next_task(office.worker());
    CHECK(task.deps == std::vector<std::string>({"there", "later", "there"}));
    reply(office.worker(), task, {"ok"});
    office.driver->objects.drop(there);
    office.driver->objects.drop(later);
    CHECK_EQ(office.result(result), "ok");
    CHECK_EQ(owned(*office.driver), 0u);
}

TEST("a chain of tasks runs link by link") {
    Office office(1);
    Entry* last = put(*office.driver, "0");
    for (int i = 0; i < 50; ++i) {
        Entry* next = submit(*office.driver, {.deps = {last}});
        office.driver->objects.drop(last);
        last = next;
    }
    office.lease();
    settle(*office.driver);
    for (int i = 0; i < 50; ++i) {
        const Task_ task = next_task(office.worker());
        CHECK_EQ(task.deps.at(0), std::to_string(i));
        reply(office.worker(), task, {std::to_string(i + 1)});
        settle(*office.driver);
    }
    CHECK_EQ(office.result(last), "50");
    CHECK_EQ(owned(*office.driver), 0u);
}

TEST("a dependency that failed fails what waits for it, and what waits for that") {
    Office office(1);
    Entry* bad = pending(*office.driver);
    Entry* first = submit(*office.driver, {.deps = {bad}});
    Entry* second = submit(*office.driver, {.deps = {first, bad}, .returns = 1});
    {
        std::lock_guard lock(office.driver->mutex());
        office.driver->objects.fail(bad, "broken");
    }
    office.driver->objects.drop(bad);
    CHECK_EQ(office.result(first), "!broken");
    CHECK_EQ(office.result(second), "!broken");
    CHECK_EQ(owned(*office.driver), 0u);
    CHECK_EQ(counters(*office.driver).pending, 0u);
}

TEST("a task whose dependency's owner is dead already fails once nothing of it will move") {
    Office office(1);
    Entry* lost;
    {
        std::unique_ptr<Core> owner = office.node.driver();
        std::lock_guard lock(office.driver->mutex());
        lost = office.driver->borrowing.borrow(Id{9, 9}.object(1), owner->self(), false, 1);
        hold(lost);
    }
    office.node.port.mark_dead(lost->owner);
    Entry* result = submit(*office.driver, {.deps = {lost}});
    office.node.expect(Kind::ORPHAN_ASKED);
    CHECK(!result->is_done());
    Buffer answer;
    answer.add(lost->id);
    answer.add(uint64_t(0));
    answer.add(ProcessId{});
    office.node.port.send(office.driver->self(), Kind::ORPHAN_ANSWERED, answer.data(), answer.size());
    CHECK(get(*office.driver, result).find("died") != std::string::npos);
    office.driver->objects.drop(result);
    office.driver->objects.drop(lost);
    CHECK_EQ(counters(*office.driver).pending, 0u);
    CHECK_EQ(borrowed(*office.driver), 0u);
}

TEST("several results of one task arrive together, and one error stands for all") {
    Office office(1);
    const std::vector<Entry*> good = submit_many(*office.driver, {.returns = 3});
    const std::vector<Entry*> bad = submit_many(*office.driver, {.returns = 3});
    office.lease();
    settle(*office.driver);
    reply(office.worker(), next_task(office.worker()), {"a", "b", "c"});
    settle(*office.driver);
    reply(office.worker(), next_task(office.worker()), {"no"}, Status::failed);
    std::string all;
    for (Entry* entry : good)
        all += office.result(entry);
    for (Entry* entry : bad)
        all += office.result(entry);
    CHECK_EQ(all, "abc!no!no!no");
    CHECK_EQ(owned(*office.driver), 0u);
}

TEST("a result that nobody waits for any more is dropped when it comes") {
    Office office(1);
    office.driver->objects.drop(submit(*office.driver));
    office.lease();
    settle(*office.driver);
    CHECK_EQ(owned(*office.driver), 1u);  // the task's
    reply(office.worker(), next_task(office.worker()), {"unheard"});
    EVENTUALLY(owned(*office.driver) == 0);
}

TEST("a task whose worker dies is tried again elsewhere, as often as it may") {
    Office office(3);
    Entry* result = submit(*office.driver, {.retries = 1});
    office.lease(0);
    settle(*office.driver);
    CHECK_EQ(next_task(office.worker(0)).header.attempt, 0u);
    office.node.kill(office.workers[0]);
    settle(*office.driver);
    CHECK(office.node.expect(Kind::PEER_DETACHED).from == office.driver->self());
    office.lease(1);
    settle(*office.driver);
    CHECK_EQ(next_task(office.worker(1)).header.attempt, 1u);
    office.node.kill(office.workers[1]);
    const std::string error = office.result(result);
    CHECK(error.find("lost its worker") != std::string::npos && error.find("attempt 2") != std::string::npos);
    CHECK_EQ(owned(*office.driver), 0u);
    CHECK_EQ(counters(*office.driver).leases, 0u);
}

TEST("an answer that the dead worker had published still counts") {
    Office office(1);
    Entry* result = submit(*office.driver);
    office.lease();
    settle(*office.driver);
    const Task_ task = next_task(office.worker());
    {
        // The driver is not looking: the answer and the news of the death are there before it does.
        std::lock_guard busy(office.driver->mutex());
        reply(office.worker(), task, {"last words"});
        office.node.kill(office.workers[0]);
    }
    CHECK_EQ(office.result(result), "last words");
}

TEST("what was queued behind a task on a dead worker has not run and costs no retry") {
    Office office(2);
    Entry* first = submit(*office.driver);
    office.lease(0);
    settle(*office.driver);
    reply(office.worker(), next_task(office.worker()), {"short"});  // now it is known to be short
    CHECK_EQ(office.result(first), "short");
    std::vector<Entry*> results;
    for (int i = 0; i < 5; ++i)
        results.push_back(submit(*office.driver));
    settle(*office.driver);
    next_task(office.worker());
    office.node.kill(office.workers[0]);
    CHECK(get(*office.driver, results[0]).find("lost its worker") != std::string::npos);
    office.lease(1);
    settle(*office.driver);
    for (int i = 1; i < 5; ++i) {
        const Task_ task = next_task(office.worker(1));
        CHECK_EQ(task.header.attempt, 0u);
        CHECK_EQ(task.header.task.high, results[size_t(i)]->id.high);  // in their order
        reply(office.worker(1), task, {"done"});
        settle(*office.driver);
    }
    for (Entry* entry : results)
        office.result(entry);
    CHECK_EQ(owned(*office.driver), 0u);
}

TEST("an error that is worth a retry is tried again until the retries are used up") {
    Office office(1);
    Entry* result = submit(*office.driver, {.retries = 2, .flags = kRetryErrors});
    office.lease();
    for (uint32_t attempt = 0; attempt < 3; ++attempt) {
        settle(*office.driver);
        const Task_ task = next_task(office.worker());
        CHECK_EQ(task.header.attempt, attempt);
        reply(office.worker(), task, {"again " + std::to_string(attempt)}, Status::retry);
    }
    CHECK_EQ(office.result(result), "!again 2");
    CHECK_EQ(owned(*office.driver), 0u);
}

TEST("what a blocked worker hands back runs elsewhere") {
    Office office(2);
    Entry* first = submit(*office.driver);
    office.lease(0);
    settle(*office.driver);
    reply(office.worker(), next_task(office.worker()), {"short"});
    office.result(first);
    std::vector<Entry*> results;
    for (int i = 0; i < 4; ++i)
        results.push_back(submit(*office.driver));
    settle(*office.driver);
    const Task_ running = next_task(office.worker(0));
    {
        // It waits for something itself, and says so.
        std::thread waits([&] {
            office.worker(0).pump.wait_until([] { return false; }, now_us() * 1000 + 50'000'000,
                                             Pump::kLendAtOnce);
        });
        office.node.expect(Kind::BLOCKED);
        waits.join();
        office.node.expect(Kind::UNBLOCKED);
    }
    CHECK(!office.worker(0).inbox.has_incoming());
    settle(*office.driver);
    CHECK(!office.worker(0).pump.has_mail());  // nothing is pushed to it before it answers
    office.lease(1);
    settle(*office.driver);
    for (int i = 1; i < 4; ++i) {
        const Task_ task = next_task(office.worker(1));
        CHECK_EQ(task.header.task.high, results[size_t(i)]->id.high);
        reply(office.worker(1), task, {"elsewhere"});
        settle(*office.driver);
    }
    reply(office.worker(0), running, {"at last"});
    CHECK_EQ(office.result(results[0]), "at last");
    for (int i = 1; i < 4; ++i)
        CHECK_EQ(office.result(results[size_t(i)]), "elsewhere");
    CHECK_EQ(owned(*office.driver), 0u);
}

TEST("a revoked lease goes back when its work is done") {
    Office office(1);
    Entry* result = submit(*office.driver);
    office.lease();
    settle(*office.driver);
    const Task_ task = next_task(office.worker());
    office.node.revoke(*office.driver, office.leases[0]);
    settle(*office.driver);
    CHECK(!office.node.has(Kind::LEASE_RETURN));
    Entry* next = submit(*office.driver);
    settle(*office.driver);
    CHECK(!office.worker().pump.has_mail());  // no more for this one
    reply(office.worker(), task, {"done"});
    CHECK_EQ(office.result(result), "done");
    const Received returned = office.node.expect(Kind::LEASE_RETURN);
    CHECK(memcmp(returned.payload.data(), &office.leases[0], 8) == 0);
    CHECK_EQ(counters(*office.driver).leases, 0u);
    office.driver->objects.drop(next);
}

TEST("a revoked lease goes back when the last of its work is handed back") {
    FakeNode node;
    std::unique_ptr<Core> driver = node.driver();
    Puppet worker(node);
    const auto answer = [&] {
        TaskHeader task{};
        const std::string record = worker.hear(driver->self(), Kind::TASK);
        memcpy(&task, record.data(), sizeof task);
        worker.say(driver->self(), Kind::REPLY, ReplyHeader{task.cookie, uint32_t(Status::ok), 1000, 1, 0},
                   PackedValue{Where::inlined, 0, 1}, 'a');
    };
    Entry* first = submit(*driver);  // which tells how long such a task takes: the next ones are queued
    const uint64_t lease = node.grant(driver->self(), worker.id);
    settle(*driver);
    answer();
    CHECK_EQ(get(*driver, first), "a");
    Entry* runs = submit(*driver);
    Entry* waits = submit(*driver);
    settle(*driver);
    node.revoke(*driver, lease);
    settle(*driver);
    answer();
    TaskHeader task{};
    memcpy(&task, worker.hear(driver->self(), Kind::TASK).data(), sizeof task);
    worker.say(driver->self(), Kind::HANDBACK, task.cookie);
    CHECK_EQ(get(*driver, runs), "a");
    node.expect(Kind::LEASE_RETURN);
    CHECK_EQ(counters(*driver).leases, 0u);
    for (Entry* entry : {first, runs, waits})
        driver->objects.drop(entry);
}

TEST("an idle lease goes back by itself") {
    Office office(1);
    Entry* result = submit(*office.driver);
    office.lease();
    settle(*office.driver);
    reply(office.worker(), next_task(office.worker()), {"done"});
    CHECK_EQ(office.result(result), "done");
    office.node.expect(Kind::LEASE_RETURN);
    CHECK_EQ(counters(*office.driver).leases, 0u);
}

TEST("a shape that no node can hold fails its tasks, those that wait and those to come") {
    Office office(1);
    Entry* waiting = submit(*office.driver, {.shape = 3});
    Entry* behind = submit(*office.driver, {.deps = {waiting}, .shape = 3});
    office.node.refuse(*office.driver, 3, "too large");
    CHECK_EQ(office.result(waiting), "!too large");
    CHECK_EQ(office.result(behind), "!too large");
    CHECK_EQ(office.result(submit(*office.driver, {.shape = 3})), "!too large");
    CHECK_EQ(owned(*office.driver), 0u);
}

TEST("a chain that fails may be longer than a stack is deep") {
    Office office(1);
    Entry* bad = pending(*office.driver);
    Entry* last = bad;
    hold(last);
    for (int i = 0; i < 100'000; ++i) {
        Entry* next = submit(*office.driver, {.deps = {last}});
        office.driver->objects.drop(last);
        last = next;
    }
    {
        std::lock_guard lock(office.driver->mutex());
        office.driver->objects.fail(bad, "bad");
    }
    office.driver->objects.drop(bad);
    CHECK_EQ(office.result(last), "!bad");
    CHECK_EQ(counters(*office.driver).pending, 0u);
    CHECK_EQ(owned(*office.driver), 0u);
}

TEST("a task can be cancelled wherever it is") {
    Office office(1);
    const auto cancel = [&](Entry* entry) {
        std::lock_guard lock(office.driver->mutex());
        return office.driver->submitter.cancel(entry, false, false);
    };
    Entry* never = pending(*office.driver);
    Entry* waits = submit(*office.driver, {.deps = {never}});
    Entry* queued = submit(*office.driver);
    Entry* behind = submit(*office.driver, {.deps = {queued}});
    CHECK(cancel(waits) == Submitter::Cancelled::done);
    CHECK(cancel(queued) == Submitter::Cancelled::done);
    CHECK(get(*office.driver, behind).find("cancelled") != std::string::npos);
    Entry* running = submit(*office.driver);
    office.lease();
    settle(*office.driver);
    const Task_ task = next_task(office.worker());
    std::atomic<uint64_t> asked{0};
    {
        std::lock_guard lock(office.worker().mutex());
        office.worker().inbox.on_cancel_running = [&](ProcessId, uint64_t cookie, bool, bool) {
            asked = cookie;
        };
    }
    CHECK(cancel(running) == Submitter::Cancelled::asked);
    wait_until(office.worker(), [&] { return asked == task.header.cookie; });
    reply(office.worker(), task, {"stopped"}, Status::cancelled);
    CHECK_EQ(get(*office.driver, running), "!stopped");
    CHECK(cancel(running) == Submitter::Cancelled::too_late);
    for (Entry* entry : {never, waits, queued, behind, running})
        office.driver->objects.drop(entry);
    CHECK_EQ(owned(*office.driver), 0u);
    CHECK_EQ(counters(*office.driver).pending, 0u);
}

namespace {

constexpr uint32_t kThere = 4;  ///< another node's number

/// A large value whose bytes are there.
Entry* far_object(Office& office) {
    const ProcessId owner = office.node.port.add_proxy({kThere, {6, 60}});
    const ArenaRef ref = office.node.port.import_object(2 << 20, owner);
    office.node.port.set_node_of(ref.entry, ref.generation, kThere);
    Entry* entry = pending(*office.driver);
    std::lock_guard lock(office.driver->mutex());
    office.driver->objects.complete(entry, Where::arena, nullptr, 0, ref);
    return entry;
}

void say_not_near(Office& office, bool for_good) {
    Buffer answer;
    for (const uint32_t part : {0u, kThere, uint32_t(for_good)})  // the first is the shape
        answer.add(part);
    office.node.port.send(office.driver->self(), Kind::NOT_NEAR, answer.data(), answer.size());
}

}  // namespace

TEST(
    "where the node that has a task's inputs cannot run it, the worker that is leased does, and nobody is "
    "asked again") {
    Office office(1);
    Entry* quick = submit(*office.driver);  // its worker's queue may hold more from now on
    office.node.expect(Kind::LEASE_REQUEST);
    office.lease();
    reply(office.worker(), next_task(office.worker()), {"quick"});
    CHECK_EQ(office.result(quick), "quick");
    Entry* running = submit(*office.driver);  // so that the lease is not returned for being idle
    const Task_ task = next_task(office.worker());

    Entry* inputs[] = {far_object(office), far_object(office)};
    Entry* first = submit(*office.driver, {.deps = {inputs[0]}});
    const Received asked = office.node.expect(Kind::LEASE_REQUEST);
    CHECK_EQ(word(asked.payload, 1), 1u);
    CHECK_EQ(word(asked.payload, 2), kThere);
    say_not_near(office, true);
    const Received withdrawn = office.node.expect(Kind::LEASE_REQUEST);
    CHECK_EQ(word(withdrawn.payload, 1), 0u);

    Entry* second = submit(*office.driver, {.deps = {inputs[1]}});
    settle(*office.driver);
    CHECK(!office.node.has(Kind::LEASE_REQUEST));
    reply(office.worker(), task, {"ran"});
    for (int i = 0; i < 2; ++i)
        reply(office.worker(), next_task(office.worker()), {"near enough"});
    CHECK_EQ(office.result(running), "ran");
    CHECK_EQ(office.result(first), "near enough");
    CHECK_EQ(office.result(second), "near enough");
    for (Entry* input : inputs)
        office.driver->objects.drop(input);
    CHECK_EQ(owned(*office.driver), 0u);
}

TEST("who has a worker where its inputs are waits for that one, though the node is full") {
    Office office(1);
    const FarProcess there{kThere, {5, 50}};
    const ProcessId far = office.node.port.add_proxy(there);
    Forwarding& forwarding = office.node.port.forwarding();
    const auto next_cookie = [&] {
        TaskHeader header{};
        EVENTUALLY((settle(*office.driver), office.node.has(Kind::TASK), forwarding.commit(), [&] {
            const std::string batch = forwarding.take_batch(kThere);
            for (size_t at = 0; at < batch.size();) {
                LinkRecord record;
                memcpy(&record, batch.data() + at, sizeof record);
                at += sizeof record;
                if (Kind(record.kind) == Kind::TASK) memcpy(&header, batch.data() + at, sizeof header);
                at += record.bytes;
            }
            return header.cookie != 0;
        }()));
        return header.cookie;
    };
    const auto answer = [&](uint64_t cookie) {
        Buffer body, batch;
        body.add(ReplyHeader{cookie, uint32_t(Status::ok), 1000, 1, 0});
        body.add(PackedValue{Where::inlined, 0, 5});
        body.append("there", 5);
        const ProcessId driver = office.driver->self();
        batch.add(LinkRecord{uint32_t(body.size()), uint16_t(Kind::REPLY), 0, there.id, driver});
        batch.append(body.data(), body.size());
        CHECK(forwarding.deliver(kThere, batch.data(), batch.size()).stop == Delivery::Stop::none);
    };
    Entry* quick = submit(*office.driver);
    office.node.expect(Kind::LEASE_REQUEST);
    office.lease(0);
    reply(office.worker(0), next_task(office.worker(0)), {"quick"});
    CHECK_EQ(office.result(quick), "quick");

    Entry* inputs[] = {far_object(office), far_object(office)};
    Entry* results[] = {submit(*office.driver, {.deps = {inputs[0]}}),
                        submit(*office.driver, {.deps = {inputs[1]}})};
    office.node.expect(Kind::LEASE_REQUEST);
    office.node.grant(office.driver->self(), far);
    const uint64_t first = next_cookie();
    say_not_near(office, false);
    settle(*office.driver);
    answer(first);
    answer(next_cookie());
    for (int i = 0; i < 2; ++i) {
        CHECK_EQ(office.result(results[i]), "there");
        office.driver->objects.drop(inputs[i]);
    }
    CHECK_EQ(owned(*office.driver), 0u);
}
