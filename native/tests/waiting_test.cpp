/// Whoever waits, pumps: several threads that wait at once, the background thread, and the ends of waiting.
#include <sys/socket.h>

#include "fake_node.hpp"

using namespace weft;

namespace {

int64_t in_us(int64_t us) {
    return (now_us() + us) * 1000;
}

uint32_t bell_state(Core& core) {
    return core.endpoint.segment.bell(core.self().slot).state.load();
}

/// Answers each task of a worker until it is told to stop.
class Servant {
  public:
    explicit Servant(Core& worker) : worker_(worker), thread_([this] { run(); }) {}
    ~Servant() {
        stop_.store(true);
        worker_.pump.request_exit();
        thread_.join();
    }

  private:
    void run() {
        while (!stop_.load()) {
            worker_.pump.wait_until([&] { return worker_.inbox.has_incoming() || stop_.load(); },
                                    in_us(1'000'000), Pump::kNeverLend);
            while (worker_.inbox.has_incoming())
                reply(worker_, next_task(worker_), {"served"}, Status::ok, 10'000);
        }
    }
    Core& worker_;
    std::atomic<bool> stop_{false};
    std::thread thread_;
};

}  // namespace

TEST("a wait ends at its deadline, and at once when there is nothing to wait for") {
    FakeNode node;
    auto core = node.driver();
    CHECK(core->pump.wait_until([] { return true; }, -1, Pump::kNeverLend) == Pump::Waited::done);
    CHECK(core->pump.wait_until([] { return false; }, 0, Pump::kNeverLend) == Pump::Waited::timed_out);
    const int64_t start = now_us();
    CHECK(core->pump.wait_until([] { return false; }, in_us(20'000), Pump::kNeverLend) ==
          Pump::Waited::timed_out);
    CHECK(now_us() - start >= 20'000);
}

TEST("many threads submit and wait at once, and every answer finds its waiter") {
    FakeNode node;
    auto driver = node.driver(), worker = node.worker();
    constexpr int kThreads = 4, kTasks = 400;
    {
        Servant servant(*worker);
        std::vector<std::thread> threads;
        std::atomic<int> left{kThreads};
        for (int t = 0; t < kThreads; ++t) {
            threads.emplace_back([&] {
                for (int i = 0; i < kTasks; ++i) {
                    Entry* result = submit(*driver);
                    if (i % 3 == 0) driver->pump.poll();
                    CHECK_EQ(get(*driver, result), "served");
                    driver->objects.drop(result);
                }
                left.fetch_sub(1);
            });
        }
        while (left.load() > 0) {  // the daemon: lease the one worker whenever it is free
            if (node.take(Kind::LEASE_REQUEST)) {
                if (counters(*driver).leases == 0) node.grant(*driver, *worker);
            } else {
                pause_us(100);
            }
            while (node.take(Kind::LEASE_RETURN))
                node.grant(*driver, *worker);
        }
        for (std::thread& thread : threads)
            thread.join();
    }
    CHECK_EQ(owned(*driver), 0u);
}

TEST("a wait ends when the session is closed, for who pumps and for who does not") {
    for (int round = 0; round < 30; ++round) {
        FakeNode node;
        auto core = node.driver();
        std::vector<std::thread> threads;
        std::atomic<int> closed{0}, started{0};
        for (int t = 0; t < 4; ++t) {
            threads.emplace_back([&] {
                started.fetch_add(1);
                for (;;) {
                    const Pump::Waited waited =
                        core->pump.wait_until([] { return false; }, -1, Pump::kNeverLend);
                    if (waited == Pump::Waited::closed) break;
                    CHECK(waited == Pump::Waited::interrupted);
                }
                closed.fetch_add(1);
            });
        }
        EVENTUALLY(started.load() == 4);
        if (round % 2 == 0) pause_us(100 * (round + 1));  // asleep, spinning, or not even there
        core->close();
        for (std::thread& thread : threads)
            thread.join();
        CHECK_EQ(closed.load(), 4);
        core->close();  // twice is once
    }
}

TEST("who waits is woken by a word from another thread, whenever it comes") {
    // request_exit() wakes a waiter whose condition another thread has made true; a wake-up that is lost
    // hangs.
    FakeNode node;
    auto core = node.worker();
    std::atomic<uint32_t> wanted{0}, reached{0};
    constexpr uint32_t kRounds = 3000;
    std::thread waiter([&] {
        for (uint32_t n = 1; n <= kRounds; ++n) {
            const int64_t deadline = in_us(20'000'000);
            for (;;) {
                const Pump::Waited waited =
                    core->pump.wait_until([&] { return wanted.load() >= n; }, deadline, Pump::kNeverLend);
                CHECK(waited != Pump::Waited::timed_out);
                if (waited == Pump::Waited::done) break;
            }
            reached.store(n);
            reached.notify_one();
        }
    });
    Random random(3);
    for (uint32_t n = 1; n <= kRounds; ++n) {
        const int64_t until =
            now_us() + int64_t(random.below(80));  // about as long as it spins before it sleeps
        while (now_us() < until) {
        }
        wanted.store(n);
        core->pump.request_exit();
        reached.wait(n - 1);
    }
    waiter.join();
}

TEST("the daemon's end fails what is pending and wakes who waits for it") {
    for (int round = 0; round < 40; ++round) {
        FakeNode node;
        auto core = node.driver();
        int ends[2];
        CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
        core->pump.watch_daemon(ends[0]);
        Entry* result = submit(*core);
        Entry* behind = submit(*core, {.deps = {result}, .nested = {result}});
        std::atomic<bool> waits{false};
        std::thread waiter([&] {
            waits.store(true);
            CHECK(get(*core, behind).find("daemon ended") != std::string::npos);
        });
        EVENTUALLY(waits.load());
        const int64_t until = now_us() + round * 2;
        while (now_us() < until) {
        }
        close(ends[1]);
        waiter.join();
        CHECK(get(*core, result).find("daemon ended") != std::string::npos);
        CHECK(core->is_lost());
        CoreEvent event{};
        CHECK(core->endpoint.next_event(event));
        CHECK_EQ(event.kind, 0);
        core->close();
        CHECK(!core->endpoint.next_event(event));
        close(ends[0]);
    }
}

TEST("what comes while nobody waits is read all the same, and then the process sleeps") {
    FakeNode node;
    auto core = node.driver();
    Puppet peer(node);
    for (int i = 0; i < 20; ++i) {
        peer.say(core->self(), Kind::WANT, Id{1, uint64_t(i)});
        peer.hear(core->self(), Kind::VALUE);
    }
    EVENTUALLY(bell_state(*core) == uint32_t(Bell::background_sleeps));
}

TEST("a worker busy with a task hands back what comes meanwhile, but an actor keeps its calls") {
    FakeNode node;
    auto worker = node.worker();
    Puppet driver(node);
    TaskHeader task{}, call{};
    task.cookie = 11;
    call.cookie = 22;
    call.flags = kIsMethod;
    worker->pump.running_task.store(true);
    driver.say(worker->self(), Kind::TASK, call);
    driver.say(worker->self(), Kind::TASK, task);
    const std::string back = driver.hear(worker->self(), Kind::HANDBACK);
    CHECK_EQ(back.size(), sizeof(uint64_t));
    CHECK(memcmp(back.data(), &task.cookie, sizeof task.cookie) == 0);
    Incoming kept;
    CHECK(worker->inbox.take_incoming(kept));
    CHECK_EQ(reinterpret_cast<const TaskHeader*>(kept.bytes.data())->cookie, 22u);
}

TEST("a worker that retires tells the daemon, and hands back what has come and what comes") {
    FakeNode node;
    auto worker = node.worker();
    Puppet driver(node);
    TaskHeader task{};
    Incoming taken;
    const auto comes_back = [&] {
        const std::string back = driver.hear(worker->self(), Kind::HANDBACK);
        CHECK(memcmp(back.data(), &task.cookie, sizeof task.cookie) == 0);
    };
    task.cookie = 11;
    driver.say(worker->self(), Kind::TASK, task);
    EVENTUALLY((worker->pump.poll(), worker->inbox.has_incoming()));
    worker->inbox.retire();
    node.expect(Kind::RETIRES);
    CHECK(!worker->inbox.take_incoming(taken));
    comes_back();
    task.cookie = 12;
    driver.say(worker->self(), Kind::TASK, task);
    EVENTUALLY((worker->pump.poll(), worker->inbox.has_incoming()));
    CHECK(!worker->inbox.take_incoming(taken));
    comes_back();
}

TEST("one who waits inside a task lends its CPU once, and takes it back") {
    FakeNode node;
    auto worker = node.worker();
    CHECK(worker->pump.wait_until([] { return false; }, in_us(3000), 100'000'000) == Pump::Waited::timed_out);
    CHECK(!node.has(Kind::BLOCKED));
    CHECK(worker->pump.wait_until([] { return false; }, in_us(3000), Pump::kLendAtOnce) ==
          Pump::Waited::timed_out);
    node.expect(Kind::BLOCKED);
    node.expect(Kind::UNBLOCKED);
    CHECK(!node.has(Kind::BLOCKED));
}

TEST("records for Python wait in order until they are taken") {
    FakeNode node;
    auto core = node.driver();
    for (int i = 0; i < 100; ++i)
        CHECK(node.port.send(core->self(), Kind::CONTROL, &i, sizeof i));
    for (int i = 0; i < 100; ++i) {
        CoreEvent event{};
        CHECK(core->endpoint.next_event(event));
        CHECK_EQ(event.kind, uint16_t(Kind::CONTROL));
        CHECK(memcmp(event.payload.data(), &i, sizeof i) == 0);
    }
}

TEST("an idle session can be closed in any state of its background thread") {
    FakeNode node;
    for (int i = 0; i < 60; ++i) {
        auto core = node.driver();
        if (i % 3 == 1) EVENTUALLY(bell_state(*core) == uint32_t(Bell::background_sleeps));
        if (i % 3 == 2) pause_us(i * 50);
        core->close();
        node.kill(core);
    }
}
