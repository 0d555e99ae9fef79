/// A dead owner's object passes on: each count that the new owner gives is returned once, in whatever order
/// refs and the word of the move arrive.
#include "fake_node.hpp"

using namespace weft;

namespace {

/// A borrower of an object whose owner is dead, and the one that has it now.
struct Succession {
    FakeNode node;
    std::unique_ptr<Core> borrower = node.driver();
    Puppet owner{node}, heir{node};
    Id id = Id{77, 1}.object(1);
    Entry* entry = nullptr;

    Succession() {
        entry = receive(owner.id);
        node.port.mark_dead(owner.id);
    }
    /// As if a record had brought the ref.
    Entry* receive(ProcessId named) {
        std::lock_guard lock(borrower->mutex());
        Entry* got = borrower->borrowing.borrow(id, named, false, 1);
        hold(got);
        return got;
    }
    void tell_of_move() {
        heir.say(borrower->self(), Kind::MOVED, id, heir.id);
        settle(*borrower);
    }
    uint64_t returned() {
        uint64_t count = 0;
        const std::string record = heir.hear(borrower->self(), Kind::BORROW_RELEASE);
        memcpy(&count, record.data() + sizeof(Id), sizeof count);
        return count;
    }
};

}  // namespace

TEST("the counts of a dead owner are void, the new one's are returned") {
    Succession it;
    it.tell_of_move();
    it.borrower->objects.drop(it.entry);
    CHECK_EQ(it.returned(), 1u);
    CHECK_EQ(borrowed(*it.borrower), 0u);
}

TEST("who is told of a move twice was counted twice") {
    Succession it;
    it.tell_of_move();
    it.tell_of_move();
    it.borrower->objects.drop(it.entry);
    CHECK_EQ(it.returned(), 2u);
}

TEST("a ref that names the dead owner and is read late brings no count") {
    Succession it;
    it.tell_of_move();
    CHECK(it.receive(it.owner.id) == it.entry);
    it.borrower->objects.drop(it.entry);
    it.borrower->objects.drop(it.entry);
    CHECK_EQ(it.returned(), 1u);
}

TEST("a ref that names the new owner may come before the word of the move") {
    Succession it;
    CHECK(it.receive(it.heir.id) == it.entry);
    it.tell_of_move();
    it.borrower->objects.drop(it.entry);
    it.borrower->objects.drop(it.entry);
    CHECK_EQ(it.returned(), 2u);
}

TEST("the word of a move that comes after the last hold went returns its count at once") {
    Succession it;
    it.borrower->objects.drop(it.entry);
    it.tell_of_move();
    CHECK_EQ(it.returned(), 1u);
}

TEST("a late word of the move before changes nothing") {
    Succession it;
    Puppet second(it.node);
    it.tell_of_move();
    it.node.port.mark_dead(it.heir.id);
    second.say(it.borrower->self(), Kind::MOVED, it.id, second.id);
    settle(*it.borrower);
    second.say(it.borrower->self(), Kind::MOVED, it.id, it.heir.id);
    settle(*it.borrower);
    it.borrower->objects.drop(it.entry);
    uint64_t count = 0;
    memcpy(&count, second.hear(it.borrower->self(), Kind::BORROW_RELEASE).data() + sizeof(Id), sizeof count);
    CHECK_EQ(count, 1u);
}

TEST("an adopter is not told of itself") {
    Succession it;
    it.heir.say(it.borrower->self(), Kind::MOVED, it.id, it.borrower->self());
    settle(*it.borrower);
    it.borrower->objects.drop(it.entry);
    CHECK_EQ(owned(*it.borrower), 0u);
    CHECK_EQ(borrowed(*it.borrower), 0u);
}

TEST("an heir asks where a ref is whose owner died after the row was written") {
    FakeNode node;
    const std::unique_ptr<Core> heir = node.driver();
    Puppet gone(node), other(node);
    node.port.mark_dead(gone.id);
    const Id inner = Id{77, 1}.object(1);
    Buffer row;
    row.add(uint32_t(kValueRow));
    row.add(uint32_t(0));
    row.add(PackedValue{Where::inlined, 1, 0});
    row.add(PackedRef{inner, gone.id, 0, 0});
    Buffer record;
    record.add(uint64_t(1));
    record.add(uint32_t(1));
    record.add(uint32_t(0));
    record.add(Id{78, 1}.object(1));
    record.add(uint32_t(row.size()));
    record.add(uint32_t(0));
    record.append(row.data(), row.size());
    CHECK(node.port.send(heir->self(), Kind::ADOPT, record.data(), record.size()));
    const Received asked = node.expect(Kind::ORPHAN_ASKED);
    CHECK(asked.payload.substr(0, sizeof gone.id) ==
          std::string_view(reinterpret_cast<const char*>(&gone.id), 8));
    Buffer answer;
    answer.add(inner);
    answer.add(uint32_t(1));
    answer.add(uint32_t(0));
    answer.add(other.id);
    CHECK(node.port.send(heir->self(), Kind::ORPHAN_ANSWERED, answer.data(), answer.size()));
    const std::string counted = other.hear(heir->self(), Kind::BORROW_ADD);
    CHECK(counted.substr(0, sizeof inner) ==
          std::string_view(reinterpret_cast<const char*>(&inner), sizeof inner));
}

namespace {

/// One that has inherited an object, to which only others refer, and the borrower of it that is told so.
struct Heritage {
    FakeNode node;
    std::unique_ptr<Core> heir = node.driver();
    Puppet borrower{node}, gone{node};
    Id id = Id{77, 1}.object(1);

    explicit Heritage(bool is_named = false, RowKind kind = kValueRow, bool has_ref = false) {
        Buffer row;
        if (has_ref) {
            std::lock_guard lock(heir->mutex());
            hold(heir->borrowing.borrow(id, gone.id, false, 1));
        }
        if (kind == kValueRow) {
            row.add(uint32_t(kValueRow));
            row.add(uint32_t(0));
            row.add(PackedValue{Where::inlined, 0, 0});
        } else {  // of a call that may be repeated
            TaskHeader header{};
            header.task = id.task();
            header.actor = Id{79, 1};
            header.returns = 1;
            row.add(TaskRow{kind, 0, 3, kIsMethod, sizeof header, 0, 0, 0});
            row.add(header);
        }
        adopt(&row, is_named);
        if (is_named) node.expect(Kind::DEPOSIT);
        node.expect(Kind::ADOPTED);
    }
    uint64_t rebuilt() {
        std::lock_guard lock(heir->mutex());
        return heir->lineage.rebuilt();
    }
    /// Without a row: what it was given may go.
    void adopt(const Buffer* row, bool is_named = false) {
        Buffer record;
        record.add(uint64_t(1));
        record.add(uint32_t(row != nullptr));
        record.add(uint32_t(0));
        if (row != nullptr) {
            record.add(id);
            record.add(uint32_t(row->size()));
            record.add(uint32_t(0));
            record.append(row->data(), row->size());
        }
        if (is_named) record.add(id);
        CHECK(node.port.send(heir->self(), Kind::ADOPT, record.data(), record.size()));
    }
    bool knows() {
        std::lock_guard lock(heir->mutex());
        return heir->objects.find(id) != nullptr;
    }
};

}  // namespace

TEST("who counted himself in at an heir before it may let go is counted, whose ring it reads first or not") {
    Heritage it;
    Puppet third(it.node);
    {
        // The heir has looked which rings have something, and waits for its mutex: it sees the next two at
        // once.
        std::lock_guard lock(it.heir->mutex());
        third.say(it.heir->self(), Kind::BORROW_RELEASE, Id{1, 1}, uint64_t(1));
        EVENTUALLY(
            !has_ready(it.heir->endpoint.segment, it.heir->endpoint.segment.bell(it.heir->self().slot)));
        it.borrower.say(it.heir->self(), Kind::BORROW_ADD, it.id, it.borrower.id);
        it.adopt(nullptr);
    }
    settle(*it.heir);
    CHECK(it.knows());
    it.borrower.say(it.heir->self(), Kind::BORROW_RELEASE, it.id, uint64_t(1));
    EVENTUALLY(!it.knows());
}

TEST("who has been asked for orphans answers when what it said before is in the rings") {
    Succession it;
    Buffer question;
    question.add(uint64_t(1));
    question.add(uint32_t(2));
    question.add(uint32_t(1));
    question.add(it.owner.id);
    {
        std::lock_guard lock(it.borrower->mutex());
        while (it.borrower->endpoint.channels.is_flushed())
            it.borrower->borrowing.count_in(it.id, it.heir.id, it.owner.id);
    }
    CHECK(it.node.port.send(it.borrower->self(), Kind::FIND_ORPHANS, question.data(), question.size()));
    settle(*it.borrower);
    CHECK(!it.node.has(Kind::ORPHANS));
    it.heir.hear(it.borrower->self(), Kind::BORROW_ADD);
    it.node.expect(Kind::ORPHANS);
}

TEST("a ref to an object of this very process that it does not know any more is lost") {
    FakeNode node;
    const std::unique_ptr<Core> core = node.driver();
    std::lock_guard lock(core->mutex());
    Entry* entry = core->borrowing.borrow(Id{77, 1}.object(1), core->self(), false, 0);
    hold(entry);
    core->borrowing.fetch(entry);
    CHECK(entry->where == Where::error);
    core->objects.drop_locked(entry);
}

TEST("an heir holds from the beginning what something that outlives all processes names") {
    Heritage it(true);
    CHECK(read_ledger(it.heir->endpoint.segment, it.heir->self()).size() == 1);
    it.adopt(nullptr);
    settle(*it.heir);
    CHECK(it.knows());
    struct {
        Id id;
        uint32_t is_kept, reserved;
    } word{it.id, 0, 0};
    CHECK(it.node.port.send(it.heir->self(), Kind::KEEP, &word, sizeof word));
    EVENTUALLY(!it.knows());
}

TEST("an heir that was only told how an object is made makes it when another process wants it") {
    Heritage it(false, kLineageRow);
    it.borrower.say(it.heir->self(), Kind::BORROW_ADD, it.id, it.borrower.id);
    settle(*it.heir);
    CHECK_EQ(it.rebuilt(), 0u);
    it.borrower.say(it.heir->self(), Kind::WANT, it.id);
    EVENTUALLY(it.rebuilt() == 1);
    it.borrower.say(it.heir->self(), Kind::WANT, it.id);
    settle(*it.heir);
    CHECK_EQ(it.rebuilt(), 1u);
}

TEST("an heir that was only told how an object is made makes it when a ref to it comes") {
    Heritage it(false, kLineageRow);
    {
        std::lock_guard lock(it.heir->mutex());
        it.heir->borrowing.borrow(it.id, it.heir->self(), false, 0);
    }
    CHECK_EQ(it.rebuilt(), 1u);
}

TEST("an heir that was only told how an object is made makes it when it has a ref to it") {
    Heritage it(false, kLineageRow, true);
    CHECK_EQ(it.rebuilt(), 1u);
}

TEST("an heir has written down what it was given before anybody is counted in") {
    Heritage it;
    CHECK_EQ(read_ledger(it.heir->endpoint.segment, it.heir->self()).size(), 1u);
    it.adopt(nullptr);
    EVENTUALLY(!it.knows());
    CHECK_EQ(read_ledger(it.heir->endpoint.segment, it.heir->self()).size(), 0u);
}

namespace {

/// A task that waits in a worker's inbox; it brings a ref whose owner is dead by now.
struct Waiting {
    FakeNode node;
    std::unique_ptr<Core> driver = node.driver(), worker = node.worker();
    Puppet owner{node}, heir{node};
    Id id = Id{77, 1}.object(1);

    Waiting() {
        Entry* ref = nullptr;
        {
            std::lock_guard lock(driver->mutex());
            ref = driver->borrowing.borrow(id, owner.id, false, 1);
            hold(ref);
        }
        Call call;
        call.nested = {ref};
        submit(*driver, call);
        node.expect(Kind::LEASE_REQUEST);
        node.grant(*driver, *worker);
        wait_until(*worker, [&] { return worker->inbox.has_incoming(); });
        node.port.mark_dead(owner.id);
    }
    /// The task runs, keeps the ref for a while, and drops it: how many counts the heir gets back.
    uint64_t returned() {
        const Task_ task = next_task(*worker);
        CHECK(!heir.has_heard(worker->self(), Kind::BORROW_RELEASE));
        {
            std::lock_guard lock(worker->mutex());
            worker->borrowing.drop(task.nested);
        }
        uint64_t count = 0;
        const std::string record = heir.hear(worker->self(), Kind::BORROW_RELEASE);
        memcpy(&count, record.data() + sizeof(Id), sizeof count);
        return count;
    }
};

}  // namespace

TEST("a ref that waits in an inbox while its owner dies is named, and counted in at the heir") {
    Waiting it;
    Buffer question;
    question.add(uint64_t(1));
    question.add(uint32_t(1));
    question.add(uint32_t(1));
    question.add(it.owner.id);
    CHECK(it.node.port.send(it.worker->self(), Kind::FIND_ORPHANS, question.data(), question.size()));
    const Received named = it.node.expect(Kind::ORPHANS);
    CHECK_EQ(named.payload.size(), 16 + sizeof(Id) + sizeof(ProcessId));
    Buffer answer;
    answer.add(it.id);
    answer.add(uint32_t(1));
    answer.add(uint32_t(0));
    answer.add(it.heir.id);
    CHECK(it.node.port.send(it.worker->self(), Kind::ORPHAN_ANSWERED, answer.data(), answer.size()));
    it.heir.hear(it.worker->self(), Kind::BORROW_ADD);
    CHECK_EQ(it.returned(), 1u);
}

TEST("the word of a move may come while the ref waits in an inbox") {
    Waiting it;
    it.heir.say(it.worker->self(), Kind::MOVED, it.id, it.heir.id);
    settle(*it.worker);
    CHECK_EQ(it.returned(), 1u);
}

TEST("what a task brings is let go when it is handed back") {
    Waiting it;
    it.heir.say(it.worker->self(), Kind::MOVED, it.id, it.heir.id);
    settle(*it.worker);
    {
        std::lock_guard lock(it.worker->mutex());
        it.worker->inbox.hand_back();
    }
    it.heir.hear(it.worker->self(), Kind::BORROW_RELEASE);
    CHECK_EQ(borrowed(*it.worker), 0u);
}

TEST("who gets a ref of a dead owner asks at once who has it now") {
    FakeNode node;
    const std::unique_ptr<Core> borrower = node.driver();
    Puppet owner(node);
    node.port.mark_dead(owner.id);
    std::lock_guard lock(borrower->mutex());
    Entry* entry = borrower->borrowing.borrow(Id{77, 1}.object(1), owner.id, false, 1);
    hold(entry);
    node.expect(Kind::ORPHAN_ASKED);
    borrower->objects.drop_locked(entry);
}
