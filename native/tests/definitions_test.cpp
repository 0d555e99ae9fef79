/// What a long life must not heap up: functions that nobody can call again, here and at the workers that were
/// sent them, links to dead actors, and the names of the dead.
#include "fake_node.hpp"

using namespace weft;

namespace {

constexpr uint64_t kMany = 1000;
/// More than a sweep leaves when next to nothing else is there.
constexpr uint64_t kFew = 200;

/// A driver with one worker, which is leased to it when it has a task: a lease that is idle for long goes
/// back.
struct Shop {
    FakeNode node;
    std::unique_ptr<Core> driver = node.driver();
    std::unique_ptr<Core> worker = node.worker();

    void export_function(uint64_t key) {
        std::lock_guard lock(driver->mutex());
        ++driver->definitions.define_function(key, "code")->holders;
    }
    void give_up(uint64_t key) {
        std::lock_guard lock(driver->mutex());
        driver->sweep.give_up(driver->definitions.function(key));
    }
    /// So many functions come and go unused that each that has no user is swept.
    void give_up_many() {
        for (uint64_t key = 1'000'000; key < 1'000'000 + kMany; ++key) {
            export_function(key);
            give_up(key);
        }
    }
    bool has_function(uint64_t key) {
        std::lock_guard lock(driver->mutex());
        return driver->definitions.function(key) != nullptr;
    }
    Task_ next() {
        node.grant(*driver, *worker);
        return next_task(*worker);
    }
    std::string run(uint64_t key) {
        Entry* result = submit(*driver, {.function = key});
        const Task_ task = next();
        CHECK_EQ(task.header.function, key);
        CHECK_EQ(code(*worker, key), "code");
        reply(*worker, task, {"done"});
        const std::string value = get(*driver, result);
        driver->objects.drop(result);
        return value;
    }
    static std::string code(Core& core, uint64_t key) {
        std::lock_guard lock(core.mutex());
        return core.definitions.definition(key);
    }
};

void tell_function(Puppet& sender, Core& to, uint64_t key) {
    sender.say(to.self(), Kind::FUNCTION, key, uint32_t(0x65646f63));
}

}  // namespace

TEST("functions that nobody can call again are forgotten, here and by the workers that ran them") {
    Shop shop;
    for (uint64_t key = 1; key <= kMany; ++key) {
        shop.export_function(key);
        CHECK_EQ(shop.run(key), "done");
        shop.give_up(key);
    }
    CHECK(counters(*shop.driver).functions < kFew);
    EVENTUALLY(counters(*shop.worker).definitions < kFew);
}

TEST("a worker that has loaded a function is told once that it may go") {
    Shop shop;
    shop.export_function(7);
    CHECK_EQ(shop.run(7), "done");
    {
        std::lock_guard lock(shop.worker->mutex());
        shop.worker->definitions.loaded(7);
        CHECK(shop.worker->definitions.take_forgotten().empty());
    }
    shop.give_up(7);
    shop.give_up_many();
    EVENTUALLY(counters(*shop.worker).definitions == 0);
    std::lock_guard lock(shop.worker->mutex());
    CHECK(shop.worker->definitions.take_forgotten() == std::vector<uint64_t>{7});
    CHECK(shop.worker->definitions.take_forgotten().empty());
}

TEST("a function that was forgotten and is called again is sent again") {
    Shop shop;
    for (int round = 0; round < 3; ++round) {
        shop.export_function(7);
        CHECK_EQ(shop.run(7), "done");
        shop.give_up(7);
        shop.give_up_many();
        CHECK(!shop.has_function(7));
    }
}

TEST("a function stays as long as a task waits for it, and another call of it is held") {
    Shop shop;
    shop.export_function(7);
    Entry* later = pending(*shop.driver);
    Entry* result = submit(*shop.driver, {.deps = {later}, .function = 7});
    shop.give_up(7);
    shop.give_up_many();
    CHECK(shop.has_function(7));
    {
        std::lock_guard lock(shop.driver->mutex());
        shop.driver->objects.complete(later, Where::inlined, "later", 5, {});
    }
    shop.export_function(7);
    const Task_ task = shop.next();
    CHECK_EQ(Shop::code(*shop.worker, 7), "code");
    reply(*shop.worker, task, {"done"});
    CHECK_EQ(get(*shop.driver, result), "done");
    shop.give_up_many();
    CHECK(shop.has_function(7));
    shop.give_up(7);
    shop.give_up_many();
    CHECK(!shop.has_function(7));
    shop.driver->objects.drop(result);
    shop.driver->objects.drop(later);
}

TEST("a function that two have sent stays until one has given it up and the other has died") {
    FakeNode node;
    auto worker = node.worker();
    Puppet one(node), other(node);
    for (Puppet* sender : {&one, &other})
        tell_function(*sender, *worker, 7);
    EVENTUALLY(Shop::code(*worker, 7) == "code");
    one.say(worker->self(), Kind::FORGET_FUNCTION, uint64_t(7));
    settle(*worker);
    CHECK_EQ(Shop::code(*worker, 7), "code");
    one.say(worker->self(), Kind::FORGET_FUNCTION, uint64_t(7));  // it has no say any more
    settle(*worker);
    CHECK_EQ(Shop::code(*worker, 7), "code");
    node.port.mark_dead(other.id);
    node.tell_death(worker->self(), other.id);
    EVENTUALLY(counters(*worker).definitions == 0);
}

TEST("a function whose sender dies while it is loaded goes as well") {
    FakeNode node;
    auto worker = node.worker();
    Puppet sender(node);
    tell_function(sender, *worker, 7);
    EVENTUALLY(counters(*worker).definitions == 1);
    node.port.mark_dead(sender.id);
    node.tell_death(worker->self(), sender.id);
    EVENTUALLY(counters(*worker).definitions == 0);
    std::lock_guard lock(worker->mutex());
    worker->definitions.loaded(7);
    CHECK(worker->definitions.take_forgotten() == std::vector<uint64_t>{7});
}

TEST("dead actors that nobody has a handle of are forgotten, and why the others died is not") {
    FakeNode node;
    auto driver = node.driver();
    auto where = node.worker();
    const auto actor = [&] {
        std::lock_guard lock(driver->mutex());
        Entry* entry = driver->objects.new_entry(
            driver->endpoint.root.child(driver->endpoint.root_counter.fetch_add(1)).object(1));
        entry->is_actor = true;
        driver->objects.escape(entry);
        hold(entry);
        return entry;
    };
    Entry* kept = actor();
    node.actor_up(*driver, kept->id, *where);
    node.actor_down(*driver, kept->id, true, "!first");
    for (uint64_t i = 0; i < kMany; ++i) {
        Entry* entry = actor();
        node.actor_up(*driver, entry->id, *where);
        node.actor_down(*driver, entry->id, true, "!gone");
        driver->objects.drop(entry);
        settle(*driver);
    }
    EVENTUALLY(counters(*driver).actors < kFew);
    Entry* result = call_actor(*driver, kept);
    CHECK_EQ(get(*driver, result), "!!first");
    driver->objects.drop(result);
    driver->objects.drop(kept);
}

TEST("who lends what is lost with its owner waits for no other one") {
    FakeNode node;
    auto borrower = node.worker();
    const ProcessId third = node.port.reserve_slot();
    const auto borrow = [&](ProcessId owner) {
        std::lock_guard lock(borrower->mutex());
        Entry* entry = borrower->borrowing.borrow(Id{owner.generation, 77}, owner, false, 1);
        hold(entry);
        return entry;
    };
    // Who waits to hear of a new owner once there is one; of a settled death there is nothing to wait for.
    const auto late_lends = [&](Entry* entry) {
        std::lock_guard lock(borrower->mutex());
        borrower->borrowing.lend_ref(entry, third);
        return entry->extra ? entry->extra->late_lends.size() : 0;
    };
    const auto settled = [&](ProcessId id, const Entry* of_it) {
        node.settle_death(borrower->self(), id);
        EVENTUALLY(of_it->is_done());  // it is lost
    };
    const ProcessId first = node.port.reserve_slot();
    Entry* old = borrow(first);
    node.port.mark_dead(first);
    CHECK_EQ(late_lends(old), 1u);
    settled(first, old);
    CHECK_EQ(late_lends(old), 1u);
    CHECK(node.port.release_slot(first));
    const ProcessId second = node.port.reserve_slot();
    CHECK_EQ(second.slot, first.slot);
    Entry* young = borrow(second);
    node.port.mark_dead(second);
    settled(second, young);
    CHECK_EQ(late_lends(young), 0u);
    borrower->objects.drop(old);
    borrower->objects.drop(young);
}
