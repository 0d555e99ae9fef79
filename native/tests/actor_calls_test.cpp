/// The caller's side of actors: calls in order, restarts, and deaths. The test plays the daemon and the
/// actors.
#include "fake_node.hpp"

using namespace weft;

namespace {

/// A caller with a handle, and the actor's present incarnation.
struct Stage {
    FakeNode node;
    std::unique_ptr<Core> caller = node.driver();
    std::unique_ptr<Core> actor = node.worker();
    Entry* handle = nullptr;

    Stage() {
        handle = pending(*caller);
        handle->is_actor = true;
        actor->inbox.is_actor.store(true);
    }
    Id id() const { return handle->id; }
    void up() { node.actor_up(*caller, id(), *actor); }
    /// The incarnation dies and another takes its place.
    void restart(bool tell_up = true) {
        node.kill(actor);
        node.actor_down(*caller, id(), false, "restarting");
        actor = node.worker();
        actor->inbox.is_actor.store(true);
        if (tell_up) up();
    }
    std::string result(Entry* entry) {
        std::string value = get(*caller, entry);
        caller->objects.drop(entry);
        return value;
    }
    void complete(Entry* entry, std::string_view value) {
        std::lock_guard lock(caller->mutex());
        caller->objects.complete(entry, Where::inlined, value.data(), value.size(), {});
    }
    /// Nothing is left of any call.
    void check_over() {
        CHECK_EQ(counters(*caller).pending, 0u);
        caller->objects.drop(handle);
        CHECK_EQ(owned(*caller), 0u);
    }
};

}  // namespace

TEST("calls reach the actor in the order they were made") {
    Stage stage;
    std::vector<Entry*> results;
    for (int i = 0; i < 50; ++i)
        results.push_back(call_actor(*stage.caller, stage.handle));
    const Received watch = stage.node.expect(Kind::ACTOR_WATCH);
    CHECK(memcmp(watch.payload.data(), &stage.handle->id, sizeof(Id)) == 0);
    stage.up();
    for (int i = 50; i < 300; ++i)
        results.push_back(call_actor(*stage.caller, stage.handle));
    for (int i = 0; i < 300; ++i) {
        const Task_ task = next_task(*stage.actor);
        CHECK_EQ(task.header.task.high, results[size_t(i)]->id.high);
        CHECK(task.header.flags & kIsMethod);
        reply(*stage.actor, task, {std::to_string(i)});
    }
    for (int i = 0; i < 300; ++i)
        CHECK_EQ(stage.result(results[size_t(i)]), std::to_string(i));
    CHECK(!stage.node.has(Kind::ACTOR_WATCH));  // once is enough
    stage.check_over();
}

TEST("answers may come in any order") {
    Stage stage;
    stage.up();
    std::vector<Entry*> results;
    std::vector<Task_> tasks;
    for (int i = 0; i < 10; ++i)
        results.push_back(call_actor(*stage.caller, stage.handle));
    settle(*stage.caller);
    for (int i = 0; i < 10; ++i)
        tasks.push_back(next_task(*stage.actor));
    for (int i = 9; i >= 0; --i)
        reply(*stage.actor, tasks[size_t(i)], {std::to_string(i)});
    for (int i = 0; i < 10; ++i)
        CHECK_EQ(stage.result(results[size_t(i)]), std::to_string(i));
    stage.check_over();
}

TEST("a call whose dependency is missing holds up those behind it") {
    Stage stage;
    stage.up();
    Entry* later = pending(*stage.caller);
    Entry* first = call_actor(*stage.caller, stage.handle, {.deps = {later}});
    Entry* second = call_actor(*stage.caller, stage.handle);
    settle(*stage.caller);
    CHECK(!stage.actor->pump.has_mail());
    stage.complete(later, "later");
    const Task_ task = next_task(*stage.actor);
    CHECK_EQ(task.deps.at(0), "later");
    reply(*stage.actor, task, {"first"});
    reply(*stage.actor, next_task(*stage.actor), {"second"});
    CHECK_EQ(stage.result(first), "first");
    CHECK_EQ(stage.result(second), "second");
    stage.caller->objects.drop(later);
    stage.check_over();
}

TEST("a call that may be overtaken does not hold up those behind it") {
    Stage stage;
    stage.up();
    Entry* later = pending(*stage.caller);
    Entry* first = call_actor(*stage.caller, stage.handle, {.deps = {later}, .flags = kUnordered});
    Entry* second = call_actor(*stage.caller, stage.handle, {.flags = kUnordered});
    reply(*stage.actor, next_task(*stage.actor), {"second"});
    CHECK_EQ(stage.result(second), "second");
    stage.complete(later, "later");
    reply(*stage.actor, next_task(*stage.actor), {"first"});
    CHECK_EQ(stage.result(first), "first");
    stage.caller->objects.drop(later);
    stage.check_over();
}

TEST("a call whose dependency failed fails, and those behind it go on") {
    Stage stage;
    stage.up();
    Entry* bad = pending(*stage.caller);
    Entry* first = call_actor(*stage.caller, stage.handle, {.deps = {bad}});
    Entry* chained = call_actor(*stage.caller, stage.handle, {.deps = {first, bad}});
    Entry* last = call_actor(*stage.caller, stage.handle);
    {
        std::lock_guard lock(stage.caller->mutex());
        stage.caller->objects.fail(bad, "bad");
    }
    CHECK_EQ(stage.result(first), "!bad");
    CHECK_EQ(stage.result(chained), "!bad");
    reply(*stage.actor, next_task(*stage.actor), {"last"});
    CHECK_EQ(stage.result(last), "last");
    stage.caller->objects.drop(bad);
    stage.check_over();
}

TEST("two callers each have their own order") {
    Stage stage;
    auto other = stage.node.driver();
    Entry* theirs = nullptr;
    {
        std::lock_guard lock(other->mutex());
        theirs = other->borrowing.borrow(stage.id(), stage.caller->self(), true, 0);
        hold(theirs);
    }
    stage.up();
    stage.node.actor_up(*other, stage.id(), *stage.actor);
    std::vector<Entry*> mine, others;
    for (int i = 0; i < 100; ++i) {
        mine.push_back(call_actor(*stage.caller, stage.handle));
        others.push_back(call_actor(*other, theirs));
    }
    settle(*stage.caller);
    settle(*other);
    size_t next_mine = 0, next_other = 0;
    for (int i = 0; i < 200; ++i) {
        const Task_ task = next_task(*stage.actor);
        Entry* expected = task.from == stage.caller->self() ? mine[next_mine++] : others[next_other++];
        CHECK_EQ(task.header.task.high, expected->id.high);
        reply(*stage.actor, task, {"x"});
    }
    for (Entry* entry : mine)
        CHECK_EQ(stage.result(entry), "x");
    for (Entry* entry : others) {
        CHECK_EQ(get(*other, entry), "x");
        other->objects.drop(entry);
    }
    other->objects.drop(theirs);
    stage.check_over();
}

TEST("a restarted actor gets again what it had not answered, in order; what may not be retried fails") {
    Stage stage;
    stage.up();
    Entry* answered = call_actor(*stage.caller, stage.handle, {.retries = 1});
    Entry* once = call_actor(*stage.caller, stage.handle);
    Entry* again = call_actor(*stage.caller, stage.handle, {.retries = 1});
    Entry* forever = call_actor(*stage.caller, stage.handle, {.retries = -1});
    settle(*stage.caller);
    reply(*stage.actor, next_task(*stage.actor), {"answered"});
    CHECK_EQ(stage.result(answered), "answered");
    stage.restart(false);
    CHECK_EQ(stage.result(once), "!restarting");
    Entry* refused = call_actor(*stage.caller, stage.handle);
    CHECK_EQ(stage.result(refused), "!restarting");  // it may not be repeated, so it does not wait
    Entry* fresh = call_actor(*stage.caller, stage.handle, {.retries = 1});
    stage.up();
    settle(*stage.caller);
    for (Entry* expected : {again, forever, fresh}) {
        const Task_ task = next_task(*stage.actor);
        CHECK_EQ(task.header.task.high, expected->id.high);
        CHECK_EQ(task.header.attempt, expected == fresh ? 0u : 1u);
        if (expected != forever) reply(*stage.actor, task, {"second life"});
    }
    CHECK_EQ(stage.result(again), "second life");
    CHECK_EQ(stage.result(fresh), "second life");
    stage.restart();
    const Task_ third = next_task(*stage.actor);
    CHECK_EQ(third.header.attempt, 2u);
    reply(*stage.actor, third, {"third life"});
    CHECK_EQ(stage.result(forever), "third life");
    stage.check_over();
}

TEST("an actor that is known by two names is missed under both when its process dies") {
    Stage stage;
    Entry* alias = pending(*stage.caller);
    alias->is_actor = true;
    stage.up();
    stage.up();  // told again: it is one actor all the same
    stage.node.actor_up(*stage.caller, alias->id, *stage.actor);
    settle(*stage.caller);
    stage.node.kill(stage.actor, {stage.caller->self()});
    std::set<uint64_t> watched;
    for (int i = 0; i < 2; ++i) {
        Id id;
        memcpy(&id, stage.node.expect(Kind::ACTOR_WATCH).payload.data(), sizeof id);
        watched.insert(id.high);
    }
    CHECK(watched == (std::set<uint64_t>{stage.id().high, alias->id.high}));
    CHECK(!stage.node.has(Kind::ACTOR_WATCH));
    stage.caller->objects.drop(alias);
    stage.check_over();
}

TEST("an answer that the actor had published before it died counts") {
    Stage stage;
    stage.up();
    Entry* result = call_actor(*stage.caller, stage.handle);
    settle(*stage.caller);
    const Task_ task = next_task(*stage.actor);
    {
        std::lock_guard busy(stage.caller->mutex());
        reply(*stage.actor, task, {"last words"});
        stage.node.kill(stage.actor);
        stage.node.actor_down(*stage.caller, stage.id(), true, "dead");
    }
    CHECK_EQ(stage.result(result), "last words");
    stage.check_over();
}

TEST("an answer that comes after its call was given to another incarnation is ignored") {
    Stage stage;
    stage.up();
    Entry* result = call_actor(*stage.caller, stage.handle, {.retries = 1});
    settle(*stage.caller);
    const Task_ task = next_task(*stage.actor);
    stage.node.actor_down(*stage.caller, stage.id(), false, "restarting");
    settle(*stage.caller);
    reply(*stage.actor, task, {"too late"});
    settle(*stage.caller);
    stage.node.kill(stage.actor);
    stage.actor = stage.node.worker();
    stage.actor->inbox.is_actor.store(true);
    stage.up();
    settle(*stage.caller);
    reply(*stage.actor, next_task(*stage.actor), {"in time"});
    CHECK_EQ(stage.result(result), "in time");
    stage.check_over();
}

TEST("a dead actor fails all its calls, sent or not, and those to come") {
    Stage stage;
    stage.up();
    std::vector<Entry*> results;
    for (int i = 0; i < 5; ++i)
        results.push_back(call_actor(*stage.caller, stage.handle, {.retries = -1}));
    Entry* never = pending(*stage.caller);
    results.push_back(call_actor(*stage.caller, stage.handle, {.deps = {never}}));
    results.push_back(call_actor(*stage.caller, stage.handle));
    settle(*stage.caller);
    next_task(*stage.actor);
    stage.node.kill(stage.actor);
    stage.node.actor_down(*stage.caller, stage.id(), true, "dead");
    for (Entry* entry : results)
        CHECK_EQ(stage.result(entry), "!dead");
    CHECK_EQ(stage.result(call_actor(*stage.caller, stage.handle)), "!dead");
    stage.complete(never, "too late");  // and nobody is waiting for it
    stage.caller->objects.drop(never);
    stage.check_over();
}

TEST("calls that wait for each other's results end once each when the actor dies") {
    for (const bool was_up : {false, true}) {
        Stage stage;
        if (was_up) stage.up();
        std::vector<Entry*> results{call_actor(*stage.caller, stage.handle)};
        for (int i = 0; i < 20; ++i)
            results.push_back(
                call_actor(*stage.caller, stage.handle, {.deps = {results.back(), results.front()}}));
        stage.node.actor_down(*stage.caller, stage.id(), true, "dead");
        for (Entry* entry : results)
            CHECK_EQ(stage.result(entry), "!dead");
        CHECK_EQ(counters(*stage.caller).pending, 0u);
        // Each task is free once: as many new ones have as many names.
        std::vector<Entry*> fresh;
        for (int i = 0; i < 40; ++i)
            fresh.push_back(submit(*stage.caller));
        std::vector<uint64_t> cookies;
        for (Entry* entry : fresh)
            cookies.push_back(entry->cookie & 0xffffffff);
        std::sort(cookies.begin(), cookies.end());
        CHECK(std::adjacent_find(cookies.begin(), cookies.end()) == cookies.end());
        for (Entry* entry : fresh)
            stage.caller->objects.drop(entry);
    }
}

TEST("an actor whose constructor's argument failed is dead to its callers") {
    Stage stage;
    Entry* bad = pending(*stage.caller);
    {
        std::lock_guard lock(stage.caller->mutex());
        Task* task = draft(*stage.caller, {.deps = {bad}, .returns = 0, .flags = kIsCreation | kSelfBorrow},
                           stage.id());
        stage.caller->actors.submit_creation(task);
    }
    Entry* call = call_actor(*stage.caller, stage.handle);
    {
        std::lock_guard lock(stage.caller->mutex());
        stage.caller->objects.fail(bad, "bad argument");
    }
    CHECK_EQ(stage.result(call), "!bad argument");
    CHECK(!stage.node.has(Kind::CREATE_ACTOR));
    stage.caller->objects.drop(bad);
    stage.check_over();
}

TEST("a creation waits for its arguments and is kept until the actor is dead") {
    Stage stage;
    Entry* argument = pending(*stage.caller);
    {
        std::lock_guard lock(stage.caller->mutex());
        Task* task =
            draft(*stage.caller, {.deps = {argument}, .returns = 0, .flags = kIsCreation | kSelfBorrow},
                  stage.id());
        stage.caller->actors.submit_creation(task);
    }
    Entry* call = call_actor(*stage.caller, stage.handle);
    CHECK(!stage.node.has(Kind::CREATE_ACTOR));
    stage.complete(argument, "argument");
    stage.caller->objects.drop(argument);
    stage.node.expect(Kind::CREATE_ACTOR);
    CHECK(!stage.node.has(Kind::ACTOR_WATCH));  // the creator hears of it by itself
    stage.up();
    settle(*stage.caller);
    reply(*stage.actor, next_task(*stage.actor), {"alive"});
    CHECK_EQ(stage.result(call), "alive");
    CHECK_EQ(counters(*stage.caller).pending, 1u);
    stage.node.kill(stage.actor);
    stage.node.actor_down(*stage.caller, stage.id(), true, "dead");
    EVENTUALLY(counters(*stage.caller).pending == 0);
    stage.check_over();
}
