#include "ledger.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "wire.hpp"

namespace weft {

namespace {

/// In shared memory, at the start of a page.
struct PageHead {
    Shared<uint32_t> used;  ///< stored (release) by the owner once a row is whole; read by the daemon
    uint32_t reserved;
    Shared<uint64_t> next;  ///< of the next page, as in ProcessSlot::ledger
};

enum RowState : uint32_t { kVoid = 0, kLent = 1, kNeeded = 2 };

/// In shared memory, before each row: then RowHead, its needs, the body.
struct RowPrefix {
    uint32_t bytes;  ///< of all, this included
    Shared<uint32_t> state;
};

constexpr uint32_t kPageBytes = kGranuleBytes;
/// Below this nothing is worth being moved together.
constexpr size_t kSmallBytes = 4 * kPageBytes;

uint32_t padded(size_t bytes) {
    return uint32_t((bytes + 7) & ~size_t(7));
}

PageHead& head_of(char* page) {
    return *reinterpret_cast<PageHead*>(page);
}

RowPrefix& prefix_of(char* row) {
    return *reinterpret_cast<RowPrefix*>(row);
}

/// Never 0, so that 0 is none.
uint64_t link_to(const ArenaRef& arena) {
    return (uint64_t(arena.generation) << 32 | arena.entry) + 1;
}

}  // namespace

char* Ledger::reserve(uint32_t bytes) {
    if (pages_.empty() || pages_.back().capacity - head_of(pages_.back().data).used.load() < bytes)
        if (!add_page(bytes)) return nullptr;
    Page& page = pages_.back();
    return page.data + head_of(page.data).used.load(std::memory_order_relaxed);
}

bool Ledger::add_page(uint32_t bytes) {
    const uint32_t capacity = std::max<uint32_t>(kPageBytes, bytes + sizeof(PageHead));
    Page page{{}, nullptr, capacity};
    if (!arena_.allocate(capacity, self_, page.arena, page.data)) return false;
    new (page.data) PageHead{};
    head_of(page.data).used.store(sizeof(PageHead), std::memory_order_relaxed);
    arena_.seal(page.arena, true);
    char* pinned = nullptr;
    if (arena_.pin(page.arena, pinned) != PinResult::ok) return false;  // this process is taken for dead
    Shared<uint64_t>& link = pages_.empty() ? *first_page_ : head_of(pages_.back().data).next;
    link.store(link_to(page.arena), std::memory_order_release);  // partner: read_ledger
    pages_.push_back(page);
    return true;
}

uint32_t Ledger::write(const RowHead& head, const std::vector<Id>& needs, std::string_view body,
                       bool is_lent) {
    const uint32_t bytes = padded(sizeof(RowPrefix) + sizeof head + needs.size() * sizeof(Id) + body.size());
    if (used_bytes_ > kSmallBytes && live_bytes_ < used_bytes_ / 2) compact();
    char* row = reserve(bytes);
    if (row == nullptr) return 0;
    RowPrefix& prefix = *new (row) RowPrefix{bytes, {}};
    prefix.state.store(is_lent ? kLent : kNeeded, std::memory_order_relaxed);
    char* at = row + sizeof prefix;
    memcpy(at, &head, sizeof head);
    at += sizeof head;
    if (!needs.empty()) memcpy(at, needs.data(), needs.size() * sizeof(Id));
    at += needs.size() * sizeof(Id);
    memcpy(at, body.data(), body.size());
    head_of(pages_.back().data).used.fetch_add(bytes, std::memory_order_release);  // partner: read_ledger
    ++live_;
    live_bytes_ += bytes;
    used_bytes_ += bytes;
    if (free_.empty()) {
        rows_.push_back(row);
        return uint32_t(rows_.size());
    }
    const uint32_t handle = free_.back();
    free_.pop_back();
    rows_[handle - 1] = row;
    return handle;
}

void Ledger::set_lent(uint32_t row, bool is_lent) {
    prefix_of(rows_[row - 1]).state.store(is_lent ? kLent : kNeeded, std::memory_order_release);
}

void Ledger::erase(uint32_t row) {
    RowPrefix& prefix = prefix_of(rows_[row - 1]);
    prefix.state.store(kVoid, std::memory_order_release);
    rows_[row - 1] = nullptr;
    free_.push_back(row);
    --live_;
    live_bytes_ -= prefix.bytes;
    if (live_ != 0) return;
    // Nothing is lent: begin anew in the first page.
    head_of(pages_.front().data).used.store(sizeof(PageHead), std::memory_order_release);
    used_bytes_ = 0;
    if (pages_.size() == 1) return;
    head_of(pages_.front().data).next.store(0, std::memory_order_release);
    std::vector<Page> rest(pages_.begin() + 1, pages_.end());
    pages_.resize(1);
    let_go(rest);
}

void Ledger::let_go() {
    first_page_->store(0, std::memory_order_release);
    std::vector<Page> all = std::exchange(pages_, {});
    let_go(all);
    rows_.clear();
    free_.clear();
}

void Ledger::let_go(std::vector<Page>& pages) {
    for (const Page& page : pages) {
        arena_.unpin(page.arena);
        arena_.remove(page.arena);
    }
}

/// Live rows move to pages of their own; until the slot names these, the old ones count.
void Ledger::compact() {
    std::vector<Page> old = std::exchange(pages_, {});
    Shared<uint64_t> aside{0};
    Shared<uint64_t>* named = std::exchange(first_page_, &aside);
    std::vector<char*> moved(rows_.size(), nullptr);
    bool fits = true;
    for (size_t i = 0; i < rows_.size() && fits; ++i) {
        if (rows_[i] == nullptr) continue;
        const uint32_t bytes = prefix_of(rows_[i]).bytes;
        moved[i] = reserve(bytes);
        if (!(fits = moved[i] != nullptr)) break;
        memcpy(moved[i], rows_[i], bytes);
        head_of(pages_.back().data).used.fetch_add(bytes, std::memory_order_release);
    }
    first_page_ = named;
    if (fits) {
        named->store(aside.load(), std::memory_order_release);  // partner: read_ledger
        rows_ = std::move(moved);
        used_bytes_ = live_bytes_;
    } else {
        std::swap(pages_, old);
    }
    let_go(old);
}

namespace {

/// A page as it lies in the arena; empty when its name is stale, or names nothing that there can be.
std::string_view page_of(Segment& segment, uint64_t link) {
    const auto entry = uint32_t(link - 1), generation = uint32_t((link - 1) >> 32);
    if (entry >= segment.header().objects || word_of(segment, entry).generation() != generation) return {};
    const uint32_t first = segment.object(entry).first_granule.load();
    const uint32_t count = segment.object(entry).granules.load();
    const uint32_t all = segment.header().granules;
    if (count == 0 || count > all || first > all - count) return {};
    return {segment.granule_data(first), size_t(count) * kGranuleBytes};
}

/// Appends the rows of one page. What is behind a row that makes no sense cannot be found.
void read_page(const Segment& segment, std::string_view page, std::vector<FoundRow>& found) {
    auto* head = reinterpret_cast<const PageHead*>(page.data());
    const size_t used = std::min<size_t>(head->used.load(std::memory_order_acquire), page.size());
    for (size_t at = sizeof(PageHead); at + sizeof(RowPrefix) <= used;) {
        const auto& prefix = *reinterpret_cast<const RowPrefix*>(page.data() + at);
        const size_t bytes = prefix.bytes;
        if (bytes < sizeof prefix + sizeof(RowHead) || bytes % 8 != 0 || bytes > used - at) return;
        Cursor row(page.data() + at + sizeof prefix, bytes - sizeof prefix);
        at += bytes;
        const uint32_t state = prefix.state.load(std::memory_order_acquire);
        if (state == kVoid) continue;
        const auto about = row.take<RowHead>();
        if (about.needs > row.left() / sizeof(Id)) return;
        if (about.in_arena != 0 && about.arena.entry >= segment.header().objects) return;
        FoundRow& one = found.emplace_back();
        one.head = about;
        one.is_lent = state == kLent;
        for (uint32_t i = 0; i < about.needs; ++i)
            one.needs.push_back(row.take<Id>());
        one.body = row.rest();
    }
}

}  // namespace

std::vector<FoundRow> read_ledger(Segment& segment, ProcessId dead) {
    std::vector<FoundRow> found;
    uint64_t link = segment.slot(dead.slot).ledger.load(std::memory_order_acquire);
    for (uint32_t pages = 0; link != 0 && pages < segment.header().granules; ++pages) {
        const std::string_view page = page_of(segment, link);
        if (page.empty()) break;
        read_page(segment, page, found);
        link = reinterpret_cast<const PageHead*>(page.data())->next.load(std::memory_order_acquire);
    }
    return found;
}

}  // namespace weft
