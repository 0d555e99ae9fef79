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
        Entry* got = borrower->borrow(id, named, false, 1);
        Core::hold(got);
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
    it.borrower->drop(it.entry);
    CHECK_EQ(it.returned(), 1u);
    CHECK_EQ(borrowed(*it.borrower), 0u);
}

TEST("who is told of a move twice was counted twice") {
    Succession it;
    it.tell_of_move();
    it.tell_of_move();
    it.borrower->drop(it.entry);
    CHECK_EQ(it.returned(), 2u);
}

TEST("a ref that names the dead owner and is read late brings no count") {
    Succession it;
    it.tell_of_move();
    CHECK(it.receive(it.owner.id) == it.entry);
    it.borrower->drop(it.entry);
    it.borrower->drop(it.entry);
    CHECK_EQ(it.returned(), 1u);
}

TEST("a ref that names the new owner may come before the word of the move") {
    Succession it;
    CHECK(it.receive(it.heir.id) == it.entry);
    it.tell_of_move();
    it.borrower->drop(it.entry);
    it.borrower->drop(it.entry);
    CHECK_EQ(it.returned(), 2u);
}

TEST("the word of a move that comes after the last hold went returns its count at once") {
    Succession it;
    it.borrower->drop(it.entry);
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
    it.borrower->drop(it.entry);
    uint64_t count = 0;
    memcpy(&count, second.hear(it.borrower->self(), Kind::BORROW_RELEASE).data() + sizeof(Id), sizeof count);
    CHECK_EQ(count, 1u);
}

TEST("an adopter is not told of itself") {
    Succession it;
    it.heir.say(it.borrower->self(), Kind::MOVED, it.id, it.borrower->self());
    settle(*it.borrower);
    it.borrower->drop(it.entry);
    CHECK_EQ(owned(*it.borrower), 0u);
    CHECK_EQ(borrowed(*it.borrower), 0u);
}
