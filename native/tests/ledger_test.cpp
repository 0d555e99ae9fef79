/// What a process has lent can be read after its death, whatever it was doing.
#include "ledger.hpp"

#include "fake_node.hpp"

using namespace weft;

namespace {

struct Desk {
    NodePort port{16 << 20};
    std::unique_ptr<Segment> segment = Segment::attach(port.segment_fd());
    ProcessId self = port.reserve_slot();
    Arena arena{*segment, self};
    Ledger ledger{*segment, arena, self};

    uint32_t write(uint64_t id, std::string_view body, bool is_lent = true, std::vector<Id> needs = {}) {
        RowHead head{};
        head.id = {id, 0};
        head.needs = uint32_t(needs.size());
        return ledger.write(head, needs, body, is_lent);
    }
    std::vector<uint64_t> ids() {
        std::vector<uint64_t> found;
        for (const FoundRow& row : read_ledger(*segment, self))
            found.push_back(row.head.id.high);
        return found;
    }
};

/// The first page, as words.
uint32_t* words_of(Desk& desk) {
    const uint64_t link = desk.segment->slot(desk.self.slot).ledger.load();
    const ObjectEntry& entry = desk.segment->object(uint32_t(link - 1));
    return reinterpret_cast<uint32_t*>(desk.segment->granule_data(entry.first_granule.load()));
}

}  // namespace

TEST("rows are read as they were written, with what they need and whether they are lent") {
    Desk desk;
    desk.write(1, "value", true, {Id{2, 0}, Id{3, 0}});
    const uint32_t second = desk.write(2, "needed", false);
    std::vector<FoundRow> rows = read_ledger(*desk.segment, desk.self);
    CHECK_EQ(rows.size(), 2u);
    CHECK_EQ(rows[0].head.id.high, 1u);
    CHECK(rows[0].is_lent);
    CHECK_EQ(rows[0].needs.size(), 2u);
    CHECK(rows[0].body.starts_with("value"));
    CHECK(!rows[1].is_lent);
    desk.ledger.set_lent(second, true);
    CHECK(read_ledger(*desk.segment, desk.self)[1].is_lent);
}

TEST("erased rows are not read, and an empty ledger begins anew in one page") {
    Desk desk;
    std::vector<uint32_t> rows;
    for (uint64_t i = 0; i < 200; ++i)
        rows.push_back(desk.write(i, std::string(1000, 'x')));
    CHECK(desk.ledger.pages() > 2);
    desk.ledger.erase(rows[0]);
    CHECK_EQ(desk.ids().size(), 199u);
    CHECK_EQ(desk.ids().front(), 1u);
    for (uint64_t i = 1; i < 200; ++i)
        desk.ledger.erase(rows[i]);
    CHECK(desk.ids().empty());
    CHECK_EQ(desk.ledger.pages(), 1u);
    desk.write(7, "again");
    CHECK(desk.ids() == std::vector<uint64_t>{7});
    CHECK_EQ(desk.ledger.rows(), 1u);
}

TEST("a ledger that is mostly erased is moved together, and the live rows stay") {
    Desk desk;
    const uint32_t kept = desk.write(1, "kept");
    for (uint64_t i = 2; i < 5000; ++i)
        desk.ledger.erase(desk.write(i, std::string(1000, 'x')));
    CHECK(desk.ledger.pages() < 8);
    CHECK(desk.ids() == std::vector<uint64_t>{1});
    desk.ledger.erase(kept);
    desk.ledger.let_go();
    CHECK_EQ(desk.port.statistics().objects, 0u);
}

TEST("a row larger than a page has one of its own") {
    Desk desk;
    desk.write(1, std::string(300'000, 'y'));
    desk.write(2, "small");
    CHECK(desk.ids() == (std::vector<uint64_t>{1, 2}));
    CHECK_EQ(read_ledger(*desk.segment, desk.self)[0].body.size() / 8, 300'000u / 8);
}

TEST("without room in the arena there is no row, and nothing else happens") {
    Desk desk;
    CHECK_EQ(desk.write(1, std::string(32 << 20, 'z')), 0u);
    CHECK(desk.ids().empty());
    desk.write(2, "small");
    CHECK(desk.ids() == std::vector<uint64_t>{2});
}

TEST("the daemon keeps a dead process's lent objects and frees its ledger") {
    Desk desk;
    ArenaRef lent, own;
    char* data = nullptr;
    CHECK(desk.arena.allocate(1000, desk.self, lent, data));
    desk.arena.seal(lent, true);
    CHECK(desk.arena.allocate(1000, desk.self, own, data));
    desk.arena.seal(own, true);
    RowHead head{};
    head.id = {1, 0};
    head.arena = lent;
    head.in_arena = 1;
    desk.ledger.write(head, {}, "row", true);
    CHECK_EQ(desk.port.take_ledger(desk.self).size(), 1u);
    desk.port.mark_dead(desk.self);
    CHECK(desk.port.exists(lent.entry, lent.generation));
    CHECK(!desk.port.exists(own.entry, own.generation));
    CHECK_EQ(desk.port.statistics().objects, 1u);
    desk.port.remove(lent.entry, lent.generation);
    CHECK_EQ(desk.port.statistics().objects, 0u);
    CHECK(desk.port.take_ledger(desk.self).empty());
}

TEST("a ledger that was written over is read to its end, whatever is in it") {
    Desk desk;
    desk.write(1, "first", true, {Id{9, 0}});
    desk.write(2, "second");
    uint32_t* words = words_of(desk);
    const std::vector<uint32_t> sound(words, words + 64);
    uint64_t before = 0, behind = 0;  // rows found, where one word of the first page was another
    for (size_t at = 0; at < sound.size(); ++at) {
        for (const uint32_t nonsense : {0u, 1u, 8u, 0x7ffffff8u, 0xffffffffu}) {
            words[at] = nonsense;
            for (const FoundRow& row : desk.port.take_ledger(desk.self))
                (row.head.id.high == 1 ? before : behind) += row.body.size() < kGranuleBytes ? 1 : 0;
            words[at] = sound[at];
        }
    }
    CHECK(before > 0);
    CHECK(behind > 0);
    CHECK(desk.ids() == (std::vector<uint64_t>{1, 2}));
    desk.segment->slot(desk.self.slot).ledger.store(0xffffffff'ffffffff);
    CHECK(desk.ids().empty());
}
