/// Who owns an object, who borrows it, and when it goes (OWN-1 to OWN-3).
#include <sstream>

#include "arena_parts.hpp"
#include "fake_node.hpp"

using namespace weft;

namespace {

/// The owner's books: what it counts for that borrower.
int64_t count_of(Core& owner, Entry* entry, ProcessId borrower) {
    std::lock_guard lock(owner.mutex());
    if (!entry->extra) return 0;
    for (const auto& [key, count] : entry->extra->borrowers)
        if (key == borrower.key()) return count;
    return 0;
}

bool knows(Core& core, Id id) {
    std::lock_guard lock(core.mutex());
    return core.objects.find(id) != nullptr;
}

void lend(Core& owner, Entry* entry, ProcessId to) {
    std::lock_guard lock(owner.mutex());
    owner.borrowing.lend_ref(entry, to);
}

/// As one that came in a record: counted, and held once.
Entry* borrow(Core& core, Id id, ProcessId from, uint32_t tokens = 1) {
    std::lock_guard lock(core.mutex());
    Entry* entry = core.borrowing.borrow(id, from, false, tokens);
    hold(entry);
    return entry;
}

/// All entries are free exactly once: as many new ones as there are have as many addresses.
void check_free_entries(Core& core, size_t count) {
    std::vector<Entry*> fresh;
    for (size_t i = 0; i < count; ++i) {
        fresh.push_back(pending(core));
        CHECK(!fresh.back()->is_done());
        CHECK(fresh.back()->extra == nullptr);
    }
    std::vector<Entry*> sorted = fresh;
    std::sort(sorted.begin(), sorted.end());
    CHECK(std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end());
    CHECK_EQ(owned(core), count);
    for (Entry* entry : fresh)
        core.objects.drop(entry);
    CHECK_EQ(owned(core), 0u);
}

}  // namespace

TEST("an object that nobody was told of goes with its last hold") {
    FakeNode node;
    auto core = node.driver();
    Entry* entry = put(*core, "value");
    hold(entry);
    core->objects.drop(entry);
    CHECK_EQ(owned(*core), 1u);
    core->objects.drop(entry);
    CHECK_EQ(owned(*core), 0u);
}

TEST("a borrowed object stays until the borrower has returned all that it was given") {
    FakeNode node;
    auto core = node.driver();
    Puppet borrower(node);
    Entry* entry = put(*core, "value");
    const Id id = entry->id;
    for (int i = 0; i < 3; ++i)
        lend(*core, entry, borrower.id);
    core->objects.drop(entry);
    borrower.say(core->self(), Kind::BORROW_RELEASE, id, uint64_t(2));
    EVENTUALLY(count_of(*core, entry, borrower.id) == 1);
    CHECK_EQ(owned(*core), 1u);
    borrower.say(core->self(), Kind::BORROW_RELEASE, id, uint64_t(1));
    EVENTUALLY(owned(*core) == 0);
    CHECK(!knows(*core, id));
}

TEST("a return that overtakes its count does not free the object") {
    FakeNode node;
    auto core = node.driver();
    Puppet sender(node), borrower(node);
    Entry* entry = put(*core, "value");
    const Id id = entry->id;
    lend(*core, entry, sender.id);
    core->objects.drop(entry);
    // The sender has passed the ref on; the borrower is through with it before the owner hears of it.
    borrower.say(core->self(), Kind::BORROW_RELEASE, id, uint64_t(1));
    EVENTUALLY(count_of(*core, entry, borrower.id) == -1);
    CHECK(knows(*core, id));
    sender.say(core->self(), Kind::BORROW_ADD, id, borrower.id);
    EVENTUALLY(count_of(*core, entry, borrower.id) == 0);
    CHECK(knows(*core, id));  // the sender still has its own
    sender.say(core->self(), Kind::BORROW_RELEASE, id, uint64_t(1));
    EVENTUALLY(owned(*core) == 0);
}

TEST("a borrower returns exactly what it was given, when its last hold goes") {
    FakeNode node;
    auto core = node.driver();
    Puppet owner(node);
    Entry* entry = borrow(*core, Id{5, 5}, owner.id, 1);
    CHECK(borrow(*core, Id{5, 5}, owner.id, 2) == entry);
    core->objects.drop(entry);
    CHECK_EQ(borrowed(*core), 1u);
    core->objects.drop(entry);
    CHECK_EQ(borrowed(*core), 0u);
    const std::string release = owner.hear(core->self(), Kind::BORROW_RELEASE);
    uint64_t count = 0;
    memcpy(&count, release.data() + sizeof(Id), sizeof count);
    CHECK_EQ(count, 3u);
}

TEST("who passes a borrowed ref on tells the owner first, unless it goes to the owner") {
    FakeNode node;
    auto core = node.driver();
    Puppet owner(node), third(node);
    Entry* entry = borrow(*core, Id{5, 5}, owner.id);
    lend(*core, entry, owner.id);
    CHECK(!owner.has_heard(core->self(), Kind::BORROW_ADD));
    lend(*core, entry, third.id);
    const std::string add = owner.hear(core->self(), Kind::BORROW_ADD);
    CHECK(memcmp(add.data() + sizeof(Id), &third.id, sizeof third.id) == 0);
    core->objects.drop(entry);
    owner.hear(core->self(), Kind::BORROW_RELEASE);
}

TEST("refs go with a task to its worker and come home when it is done") {
    FakeNode node;
    auto driver = node.driver(), worker = node.worker();
    Entry* inner = put(*driver, "inner");
    Entry* outer = put(*driver, "outer", {inner});
    Entry* result = submit(*driver, {.deps = {outer}, .nested = {outer}});
    node.grant(*driver, *worker);
    settle(*driver);
    const Task_ task = next_task(*worker);
    CHECK_EQ(task.nested.size(), 2u);  // outer as a ref, inner inside outer's value
    CHECK_EQ(count_of(*driver, outer, worker->self()), 1);
    CHECK_EQ(count_of(*driver, inner, worker->self()), 1);
    CHECK_EQ(get(*worker, task.nested[0]), "outer");
    CHECK_EQ(get(*worker, task.nested[1]), "inner");
    reply(*worker, task, {"done"});
    driver->objects.drop(outer);
    driver->objects.drop(inner);
    CHECK_EQ(get(*driver, result), "done");
    driver->objects.drop(result);
    EVENTUALLY(owned(*driver) == 0);
    CHECK_EQ(borrowed(*worker), 0u);
}

TEST("a worker's object returned in a value belongs to the worker and is borrowed by the driver") {
    FakeNode node;
    auto driver = node.driver(), worker = node.worker();
    Entry* result = submit(*driver);
    node.grant(*driver, *worker);
    settle(*driver);
    Entry* made = put(*worker, "made by the worker");
    reply(*worker, next_task(*worker), {"look inside"}, Status::ok, 1000, {made});
    worker->objects.drop(made);
    CHECK_EQ(get(*driver, result), "look inside");
    CHECK_EQ(owned(*worker), 1u);
    Entry* inner = nullptr;
    {
        std::lock_guard lock(driver->mutex());
        inner = driver->objects.find(result->extra->nested.at(0)->id);
    }
    CHECK_EQ(get(*driver, inner), "made by the worker");
    driver->objects.drop(result);
    EVENTUALLY(owned(*worker) == 0);
    CHECK_EQ(borrowed(*driver), 0u);
}

TEST("a value that is not there yet is sent to all who want it when it comes") {
    FakeNode node;
    auto owner = node.driver(), a = node.driver(), b = node.driver();
    Entry* entry = pending(*owner);
    for (Core* core : {a.get(), b.get()})
        lend(*owner, entry, core->self());
    Entry* at_a = borrow(*a, entry->id, owner->self());
    Entry* at_b = borrow(*b, entry->id, owner->self());
    {
        std::lock_guard lock(a->mutex());
        a->borrowing.fetch(at_a);
        a->borrowing.fetch(at_a);  // asks once
    }
    {
        std::lock_guard lock(b->mutex());
        b->borrowing.fetch(at_b);
    }
    EVENTUALLY([&] {
        std::lock_guard lock(owner->mutex());
        return entry->extra->wanters.size() == 2;
    }());
    {
        std::lock_guard lock(owner->mutex());
        owner->objects.complete(entry, Where::inlined, "here", 4, {});
    }
    CHECK_EQ(get(*a, at_a), "here");
    CHECK_EQ(get(*b, at_b), "here");
    a->objects.drop(at_a);
    b->objects.drop(at_b);
    owner->objects.drop(entry);
    EVENTUALLY(owned(*owner) == 0);
}

TEST("an object that its owner does not know any more is lost") {
    FakeNode node;
    auto owner = node.driver(), borrower = node.driver();
    Entry* entry = borrow(*borrower, Id{1, 2}, owner->self(), 0);
    CHECK(get(*borrower, entry).find("no longer knows") != std::string::npos);
    borrower->objects.drop(entry);
}

TEST("a list of refs in refs may be longer than a stack is deep") {
    FakeNode node;
    auto core = node.driver();
    Entry* last = put(*core, "end");
    for (int i = 0; i < 200'000; ++i) {
        Entry* next = put(*core, "link", {last});
        core->objects.drop(last);
        last = next;
    }
    core->objects.drop(last);
    CHECK_EQ(owned(*core), 0u);
}

TEST("the creator's refs are counted by the actor itself") {
    FakeNode node;
    auto driver = node.driver(), worker = node.worker();
    Entry* inner = put(*driver, "inner");
    {
        std::lock_guard lock(driver->mutex());
        Task* task =
            draft(*driver, {.nested = {inner}, .returns = 0, .flags = kIsCreation | kSelfBorrow}, Id{3, 4});
        driver->actors.submit_creation(task);
    }
    const Received record = node.expect(Kind::CREATE_ACTOR);
    CHECK(node.port.send(worker->self(), Kind::TASK, record.payload.data() + 4, record.payload.size() - 4));
    const Task_ task = next_task(*worker);
    CHECK(task.header.actor == (Id{3, 4}));
    EVENTUALLY(count_of(*driver, inner, worker->self()) == 1);
    {
        std::lock_guard lock(worker->mutex());
        worker->objects.drop_locked(task.nested.at(0));
    }
    EVENTUALLY(count_of(*driver, inner, worker->self()) == 0);
    driver->objects.drop(inner);
    CHECK_EQ(owned(*driver), 1u);  // a restart would need it
    node.actor_down(*driver, Id{3, 4}, true, "over");
    EVENTUALLY(owned(*driver) == 0);
}

TEST("an actor's last handle ends it") {
    FakeNode node;
    auto driver = node.driver();
    Entry* handle = pending(*driver);
    handle->is_actor = true;
    driver->objects.drop(handle);
    node.expect(Kind::ACTOR_DROP);
    CHECK_EQ(owned(*driver), 0u);
}

TEST("an object in the arena goes with its entry") {
    FakeNode node;
    auto driver = node.driver(), worker = node.worker();
    Entry* result = submit(*driver);
    node.grant(*driver, *worker);
    settle(*driver);
    const Task_ task = next_task(*worker);
    const ArenaRef ref = make(worker->arena(), 3, driver->self(), false);
    {
        Buffer out;
        out.add(ReplyHeader{task.header.cookie, uint32_t(Status::ok), 1000, 1, 0});
        out.add(PackedValue{Where::arena, 0, sizeof ref});
        out.add(ref);
        std::lock_guard lock(worker->mutex());
        worker->endpoint.send(task.from, Kind::REPLY, out.data(), out.size());
    }
    wait_until(*driver, [&] { return result->is_done(); });
    check_readable(driver->arena(), result->arena);
    CHECK(word_of(driver->endpoint.segment, ref.entry).has(EntryWord::kAccepted));
    driver->objects.drop(result);
    CHECK(is_gone(driver->endpoint.segment, ref));
    CHECK_EQ(check_books(driver->endpoint.segment), 0u);
}

// ---- tasks that do not run where they came -----------------------------------------------------------

namespace {

/// A task in a worker's inbox with two refs of a third process: one beside and one inside a dependency.
struct Parcel {
    FakeNode node;
    std::unique_ptr<Core> owner = node.driver(), submitter = node.driver(), worker = node.worker();
    Entry* beside = put(*owner, "beside");
    Entry* inside = put(*owner, "inside");
    Entry* result = nullptr;

    Parcel() {
        for (Entry* entry : {beside, inside})
            lend(*owner, entry, submitter->self());
        Entry* a = borrow(*submitter, beside->id, owner->self());
        Entry* b = borrow(*submitter, inside->id, owner->self());
        Entry* dep = put(*submitter, "dep", {b});
        result = submit(*submitter, {.deps = {dep}, .nested = {a}});
        for (Entry* entry : {a, b, dep})
            submitter->objects.drop(entry);
        node.grant(*submitter, *worker);
        settle(*submitter);
        wait_until(*worker, [&] { return worker->inbox.has_incoming(); });
        EVENTUALLY(of_worker() == 2);
    }
    int64_t of_worker() {
        return count_of(*owner, beside, worker->self()) + count_of(*owner, inside, worker->self());
    }
    /// When all the others let go, so does the owner.
    void check_over() {
        owner->objects.drop(beside);
        owner->objects.drop(inside);
        EVENTUALLY(owned(*owner) == 0);
        CHECK_EQ(borrowed(*worker), 0u);
    }
};

}  // namespace

TEST("a task that is handed back takes its refs with it") {
    Parcel parcel;
    parcel.worker->pump.begin_task();
    EVENTUALLY(!parcel.worker->inbox.has_incoming());
    EVENTUALLY(parcel.of_worker() == 0);
    parcel.submitter->objects.drop(parcel.result);
    parcel.node.kill(parcel.submitter);
    parcel.check_over();
}

TEST("a task that is cancelled before it starts takes its refs with it") {
    Parcel parcel;
    {
        std::lock_guard lock(parcel.submitter->mutex());
        CHECK(parcel.submitter->submitter.cancel(parcel.result, false, false) == Submitter::Cancelled::asked);
    }
    CHECK(get(*parcel.submitter, parcel.result).find("cancelled") != std::string::npos);
    EVENTUALLY(parcel.of_worker() == 0);
    parcel.submitter->objects.drop(parcel.result);
    parcel.check_over();
}

TEST("a task whose submitter dies before it starts takes its refs with it") {
    Parcel parcel;
    parcel.node.kill(parcel.submitter);
    EVENTUALLY(parcel.of_worker() == 0);
    EVENTUALLY(!parcel.worker->inbox.has_incoming());
    parcel.check_over();
}

TEST("an answer that nobody waits for gives its refs and its memory back") {
    FakeNode node;
    auto driver = node.driver(), worker = node.worker();
    Entry* handle = pending(*driver);
    handle->is_actor = true;
    node.actor_up(*driver, handle->id, *worker);
    Entry* call = call_actor(*driver, handle);
    settle(*driver);
    Task_ task = next_task(*worker);
    node.actor_down(*driver, handle->id, true, "given up");
    CHECK_EQ(get(*driver, call), "!given up");
    driver->objects.drop(call);
    Entry* inner = put(*worker, "inner");
    const ArenaRef ref = make(worker->arena(), 2, driver->self(), false);
    {
        Buffer out;
        out.add(ReplyHeader{task.header.cookie, uint32_t(Status::ok), 1000, 2, 0});
        out.add(PackedValue{Where::inlined, 1, 0});
        std::lock_guard lock(worker->mutex());
        worker->borrowing.lend_ref(inner, task.from);
        out.add(PackedRef{inner->id, inner->owner, 0, 0});
        out.add(PackedValue{Where::arena, 0, sizeof ref});
        out.add(ref);
        worker->endpoint.send(task.from, Kind::REPLY, out.data(), out.size());
    }
    worker->objects.drop(inner);
    EVENTUALLY(owned(*worker) == 0);
    EVENTUALLY(is_gone(driver->endpoint.segment, ref));
    driver->objects.drop(handle);
}

// ---- deaths ----------------------------------------------------------------------------------------

TEST("a dead borrower's counts go as a whole, positive or negative") {
    FakeNode node;
    auto core = node.driver();
    std::optional<Puppet> dead(std::in_place, node);
    Puppet other(node);
    Entry* a = put(*core, "a");
    Entry* b = put(*core, "b");
    for (int i = 0; i < 5; ++i)
        lend(*core, a, dead->id);
    lend(*core, b, other.id);
    dead->say(core->self(), Kind::BORROW_RELEASE, b->id, uint64_t(1));
    EVENTUALLY(count_of(*core, b, dead->id) == -1);
    core->objects.drop(a);
    node.port.mark_dead(dead->id);
    node.tell_death(core->self(), dead->id);
    EVENTUALLY(owned(*core) == 1);
    CHECK_EQ(count_of(*core, b, dead->id), 0);
    // The sender's word for the dead comes late and must not count.
    other.say(core->self(), Kind::BORROW_ADD, b->id, dead->id);
    other.say(core->self(), Kind::BORROW_RELEASE, b->id, uint64_t(1));
    EVENTUALLY(count_of(*core, b, other.id) == 0);
    CHECK_EQ(count_of(*core, b, dead->id), 0);
    core->objects.drop(b);
    CHECK_EQ(owned(*core), 0u);
}

TEST("who is known to be dead borrows nothing") {
    FakeNode node;
    auto core = node.driver();
    Puppet dead(node);
    Entry* entry = put(*core, "value");
    dead.say(core->self(), Kind::WANT, entry->id);
    dead.hear(core->self(), Kind::VALUE);
    node.port.mark_dead(dead.id);
    node.tell_death(core->self(), dead.id);
    node.expect(Kind::PEER_DETACHED);
    lend(*core, entry, dead.id);  // in an answer to what it had asked for
    CHECK_EQ(count_of(*core, entry, dead.id), 0);
    core->objects.drop(entry);
    CHECK_EQ(owned(*core), 0u);
}

TEST("a value that comes when who wanted it is dead is not sent, and what is in it is not lent") {
    FakeNode node;
    auto core = node.driver();
    Puppet dead(node), other(node);
    Entry* entry = pending(*core);
    Entry* inner = put(*core, "inner");
    for (Puppet* wanter : {&dead, &other}) {
        lend(*core, entry, wanter->id);
        wanter->say(core->self(), Kind::WANT, entry->id);
    }
    EVENTUALLY([&] {
        std::lock_guard lock(core->mutex());
        return entry->extra && entry->extra->wanters.size() == 2;
    }());
    node.port.mark_dead(dead.id);
    node.tell_death(core->self(), dead.id);
    node.expect(Kind::PEER_DETACHED);
    {
        std::lock_guard lock(core->mutex());
        hold(inner);
        core->objects.publish_inner(entry, {inner});
        core->objects.complete(entry, Where::inlined, "here", 4, {});
    }
    other.hear(core->self(), Kind::VALUE);
    CHECK_EQ(count_of(*core, inner, other.id), 1);
    CHECK_EQ(count_of(*core, inner, dead.id), 0);
    core->objects.drop(entry);
    core->objects.drop(inner);
}

TEST("the owner hears of the death of a borrower that it never talked to") {
    FakeNode node;
    auto core = node.driver();
    Puppet sender(node), borrower(node);
    Entry* entry = put(*core, "value");
    lend(*core, entry, sender.id);
    sender.say(core->self(), Kind::BORROW_ADD, entry->id, borrower.id);
    EVENTUALLY(count_of(*core, entry, borrower.id) == 1);
    const std::vector<ProcessId> told = node.port.mark_dead(borrower.id);
    CHECK(told == std::vector<ProcessId>{core->self()});
    node.tell_death(core->self(), borrower.id);
    EVENTUALLY(count_of(*core, entry, borrower.id) == 0);
    core->objects.drop(entry);
    CHECK_EQ(owned(*core), 1u);  // the sender's
    sender.say(core->self(), Kind::BORROW_RELEASE, entry->id, uint64_t(1));
    EVENTUALLY(owned(*core) == 0);
}

TEST("an object and the ref inside it, both borrowed by the dead, are freed once each") {
    FakeNode node;
    auto core = node.driver();
    Puppet dead(node);
    std::vector<Entry*> chain{put(*core, "0")};
    for (int i = 1; i < 6; ++i)
        chain.push_back(put(*core, std::to_string(i), {chain.back()}));
    for (Entry* entry : chain) {
        lend(*core, entry, dead.id);
        core->objects.drop(entry);
    }
    CHECK_EQ(owned(*core), 6u);
    node.port.mark_dead(dead.id);
    node.tell_death(core->self(), dead.id);
    EVENTUALLY(owned(*core) == 0);
    check_free_entries(*core, 12);
}

TEST("a pending object whose owner dies fails, with all that waits for it") {
    FakeNode node;
    auto core = node.driver();
    Puppet owner(node);
    Entry* lost = borrow(*core, Id{7, 1}, owner.id);
    Entry* waits = submit(*core, {.deps = {lost}});
    CHECK_EQ(owner.hear(core->self(), Kind::WANT).size(), sizeof(Id));
    node.port.mark_dead(owner.id);
    node.tell_death(core->self(), owner.id);
    CHECK(get(*core, lost).find("owned it died") != std::string::npos);
    CHECK(get(*core, waits).find("owned it died") != std::string::npos);
    core->objects.drop(lost);
    core->objects.drop(waits);
    CHECK_EQ(borrowed(*core) + owned(*core), 0u);
}

TEST("objects that go because others fail are freed once each") {
    // A task waits for one object of the dead and has another inside its arguments; nobody else holds either,
    // and the task's own object was lent to the dead.
    FakeNode node;
    auto core = node.driver();
    Puppet dead(node);
    for (uint64_t round = 1; round <= 20; ++round) {
        Entry* waited = borrow(*core, Id{round, 1}, dead.id);
        Entry* inside = borrow(*core, Id{round, 2}, dead.id);
        Entry* mine = put(*core, "mine");
        lend(*core, mine, dead.id);
        Entry* result = submit(*core, {.deps = {waited}, .nested = {inside, mine}});
        for (Entry* entry : {waited, inside, mine, result})
            core->objects.drop(entry);
    }
    node.port.mark_dead(dead.id);
    node.tell_death(core->self(), dead.id);
    EVENTUALLY(borrowed(*core) == 0);  // it hears of the death first, and then that it is settled
    CHECK_EQ(owned(*core), 0u);
    CHECK_EQ(counters(*core).pending, 0u);
    check_free_entries(*core, 200);
}

TEST("what one said for the first time before it died is heard, and its slot can be used again") {
    FakeNode node;
    for (int round = 0; round < 20; ++round) {
        auto core = node.driver();
        Puppet other(node), stranger(node);
        Entry* entry = put(*core, "value");
        const Id id = entry->id;
        lend(*core, entry, other.id);
        {
            // Both are there when the owner looks: a stranger's return, and the news of its death.
            std::lock_guard busy(core->mutex());
            stranger.say(core->self(), Kind::BORROW_RELEASE, id, uint64_t(1));
            for (const ProcessId& peer : node.port.mark_dead(stranger.id))
                node.tell_death(peer, stranger.id);
        }
        const Received detached = node.expect(Kind::PEER_DETACHED);
        CHECK(detached.from == core->self());
        CHECK_EQ(count_of(*core, entry, stranger.id), 0);
        EVENTUALLY(node.port.release_slot(stranger.id));
        core->objects.drop(entry);
        other.say(core->self(), Kind::BORROW_RELEASE, id, uint64_t(1));
        EVENTUALLY(owned(*core) == 0);
        node.kill(core);
    }
}

TEST("the owner's last hold and the borrower's return may meet") {
    FakeNode node;
    auto core = node.driver();
    Puppet borrower(node);
    for (int round = 0; round < 30; ++round) {
        constexpr size_t kObjects = 400;
        std::vector<Entry*> entries;
        std::vector<Id> ids;
        for (size_t i = 0; i < kObjects; ++i) {
            entries.push_back(put(*core, "value"));
            ids.push_back(entries.back()->id);
            lend(*core, entries.back(), borrower.id);
        }
        std::atomic<bool> go{false};
        std::thread user([&] {
            while (!go.load()) {
            }
            for (Entry* entry : entries)
                core->objects.drop(entry);
        });
        std::thread pump([&] {
            while (!go.load()) {
            }
            while (owned(*core) != 0)
                core->pump.poll();
        });
        go.store(true);
        for (const Id& id : ids)
            borrower.say(core->self(), Kind::BORROW_RELEASE, id, uint64_t(1));
        user.join();
        pump.join();
        CHECK_EQ(owned(*core), 0u);
    }
    check_free_entries(*core, 1000);
}
