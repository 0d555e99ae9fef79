/// Every name in a record is found, and no record, however cut, is read beyond its end.
#include "translate.hpp"

#include <algorithm>

#include "check.hpp"

using namespace weft;

namespace {

struct Names {
    std::vector<ProcessId> processes;
    std::vector<uint32_t> objects;
};

bool collect(Kind kind, std::string& record, Names& names) {
    return walk_names(
        kind, record.data(), record.size(), [&](ProcessId& id) { names.processes.push_back(id); },
        [&](ArenaRef& arena) { names.objects.push_back(arena.entry); });
}

void add_ref(Buffer& out, uint32_t slot) {
    out.add(PackedRef{Id{slot, slot}, {slot, 1}, 0, 0});
}

/// A value with refs to the owners from `slot` on, inline or in the arena.
void add_value(Buffer& out, uint32_t refs, uint32_t slot, bool in_arena) {
    out.add(PackedValue{in_arena ? Where::arena : Where::inlined, refs, in_arena ? sizeof(ArenaRef) : 5});
    for (uint32_t i = 0; i < refs; ++i)
        add_ref(out, slot + i);
    if (in_arena)
        out.add(ArenaRef{slot * 100, 1, 70'000});
    else
        out.append("value", 5);
}

void add_task(Buffer& out) {
    TaskHeader header{};
    header.nested = 2;
    header.deps = 3;
    header.name_bytes = 3;
    header.static_bytes = 3 + 7 + 2 * sizeof(PackedRef);
    out.add(header);
    out.append("fun", 3);
    out.append("argumen", 7);
    add_ref(out, 1);
    add_ref(out, 2);
    add_value(out, 1, 3, true);
    add_value(out, 0, 0, false);
    add_value(out, 2, 4, true);
}

std::vector<std::pair<Kind, std::string>> samples() {
    std::vector<std::pair<Kind, std::string>> all;
    const auto add = [&](Kind kind, auto&& build) {
        Buffer out;
        build(out);
        all.emplace_back(kind, std::string(out.data(), out.size()));
    };
    add(Kind::TASK, add_task);
    add(Kind::CREATE_ACTOR, [](Buffer& out) {
        out.add(uint32_t(9));
        out.append("some spec", 9);
        add_task(out);
    });
    add(Kind::REPLY, [](Buffer& out) {
        out.add(ReplyHeader{1, 0, 0, 2, 0});
        add_value(out, 2, 1, true);
        add_value(out, 1, 3, false);
    });
    add(Kind::VALUE, [](Buffer& out) {
        out.add(Id{1, 2});
        add_value(out, 2, 1, true);
    });
    add(Kind::STREAM_ITEM, [](Buffer& out) {
        out.add(uint64_t(1));
        out.add(uint64_t(2));
        add_value(out, 1, 1, true);
    });
    add(Kind::BORROW_ADD, [](Buffer& out) {
        out.add(Id{1, 2});
        out.add(ProcessId{1, 1});
    });
    return all;
}

}  // namespace

TEST("all processes and objects of a record are found, in its order") {
    const std::vector<std::pair<uint32_t, std::vector<uint32_t>>> expected{
        {5, {300, 400}}, {5, {300, 400}}, {3, {100}}, {2, {100}}, {1, {100}}, {1, {}}};
    size_t i = 0;
    for (auto [kind, record] : samples()) {
        Names names;
        CHECK(collect(kind, record, names));
        CHECK_EQ(names.processes.size(), expected[i].first);
        for (uint32_t p = 0; p < names.processes.size(); ++p)
            CHECK(names.processes[p] == (ProcessId{p + 1, 1}));
        CHECK(names.objects == expected[i].second);
        ++i;
    }
}

TEST("what is changed on the way is changed in the record, and nothing else is") {
    for (auto [kind, record] : samples()) {
        const std::string before = record;
        const auto shift = [](std::string& text, Kind what, uint32_t by) {
            return walk_names(
                what, text.data(), text.size(), [&](ProcessId& id) { id.slot += by; },
                [&](ArenaRef& arena) { arena.entry += by; });
        };
        CHECK(shift(record, kind, 7));
        Names names;
        CHECK(collect(kind, record, names));
        for (uint32_t p = 0; p < names.processes.size(); ++p)
            CHECK_EQ(names.processes[p].slot, p + 8);
        CHECK(shift(record, kind, 0u - 7));
        CHECK(record == before);
    }
}

TEST("a record that is cut short is told, and not read beyond its end") {
    for (const auto& [kind, whole] : samples()) {
        for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
            // In memory of exactly that size, so that a read beyond it is seen.
            auto cut = std::make_unique<char[]>(bytes);
            std::copy_n(whole.data(), bytes, cut.get());
            CHECK(!walk_names(kind, cut.get(), bytes, [](ProcessId&) {}, [](ArenaRef&) {}));
        }
    }
}

TEST("counts that promise more than there is do no harm") {
    for (const auto& [kind, whole] : samples()) {
        for (size_t at = 0; at < whole.size(); ++at) {
            auto bent = std::make_unique<char[]>(whole.size());
            std::copy_n(whole.data(), whole.size(), bent.get());
            bent[at] = char(0xff);
            walk_names(kind, bent.get(), whole.size(), [](ProcessId&) {}, [](ArenaRef&) {});
        }
    }
}

namespace {

void add_task_row(Buffer& out, uint32_t kind, uint32_t edges = 1) {
    TaskHeader header{};
    header.nested = 2;
    header.returns = 1;
    header.deps = 1;
    header.static_bytes = 7 + 2 * sizeof(PackedRef);
    out.add(TaskRow{kind, 0, 3, 0, uint32_t(sizeof header + header.static_bytes), 3, 1, edges});
    out.add(header);
    out.append("argumen", 7);
    add_ref(out, 2);
    add_ref(out, 3);
    out.append("fun", 3);
    add_ref(out, 4);
    if (edges != 0) out.add(TaskEdges{{1, 2}, {3, 4}});
}

/// Rows of a ledger, and how many processes and objects each names.
std::vector<std::pair<std::string, std::pair<size_t, size_t>>> rows() {
    std::vector<std::pair<std::string, std::pair<size_t, size_t>>> all;
    const auto add = [&](size_t processes, size_t objects, auto&& build) {
        Buffer out;
        build(out);
        all.push_back({std::string(out.data(), out.size()), {processes, objects}});
    };
    const auto add_value_row = [](Buffer& out, bool has_lineage) {
        out.add(uint32_t(kValueRow));
        out.add(uint32_t(has_lineage));
        add_value(out, 1, 1, true);
        if (has_lineage) add_task_row(out, kTaskRow);
    };
    add(1, 1, [&](Buffer& out) { add_value_row(out, false); });
    add(4, 1, [&](Buffer& out) { add_value_row(out, true); });
    add(3, 0, [](Buffer& out) { add_task_row(out, kTaskRow); });
    add(3, 0, [](Buffer& out) { add_task_row(out, kLineageRow); });
    add(3, 0, [](Buffer& out) { add_task_row(out, kLineageRow, 0); });
    return all;
}

}  // namespace

TEST("all names in a row of a ledger are found, and none beyond its end") {
    for (auto [whole, expected] : rows()) {
        size_t processes = 0, objects = 0;
        const auto walk = [&](char* data, size_t bytes) {
            return walk_row_names(
                data, bytes, [&](ProcessId&) { ++processes; }, [&](ArenaRef&) { ++objects; });
        };
        CHECK(walk(whole.data(), whole.size()));
        CHECK_EQ(processes, expected.first);
        CHECK_EQ(objects, expected.second);
        for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
            auto cut = std::make_unique<char[]>(bytes);
            std::copy_n(whole.data(), bytes, cut.get());
            CHECK(!walk(cut.get(), bytes));
        }
        for (size_t at = 0; at < whole.size(); ++at) {
            auto bent = std::make_unique<char[]>(whole.size());
            std::copy_n(whole.data(), whole.size(), bent.get());
            bent[at] = char(0xff);
            walk(bent.get(), whole.size());
        }
    }
}
