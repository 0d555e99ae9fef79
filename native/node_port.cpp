#include "node_port.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <stdexcept>
#include <system_error>

namespace weft {

namespace {

uint32_t phase(Phase p) {
    return uint32_t(p);
}

bool write_all(int file, const char* data, uint64_t bytes, uint64_t offset) {
    while (bytes != 0) {
        const ssize_t written = pwrite(file, data, bytes, off_t(offset));
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return false;
        data += written;
        offset += uint64_t(written);
        bytes -= uint64_t(written);
    }
    return true;
}

bool read_all(int file, char* data, uint64_t bytes, uint64_t offset) {
    while (bytes != 0) {
        const ssize_t got = pread(file, data, bytes, off_t(offset));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        data += got;
        offset += uint64_t(got);
        bytes -= uint64_t(got);
    }
    return true;
}

/// After so many times in vain in a row it is tried only once in so many.
constexpr uint32_t kVainLingers = 32;
constexpr uint32_t kRetryLinger = 8;
constexpr uint32_t kYieldEvery = 64;

int make_event_fd() {
    const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0) throw std::system_error(errno, std::generic_category(), "weft: eventfd");
    return fd;
}

}  // namespace

NodePort::NodePort(uint64_t arena_bytes, uint32_t events)
    : segment_(Segment::create(arena_bytes, events)),
      event_fd_(make_event_fd()),
      arena_(*segment_, self_),
      channels_(*segment_, self_, event_fd_),
      proxies_(*segment_, event_fd_),
      forwarding_(*segment_, arena_, proxies_),
      used_(kSlots, false) {
    used_[kDaemonSlot] = true;
    ProcessSlot& mine = segment_->slot(kDaemonSlot);
    mine.generation.store(self_.generation);
    mine.alive.store(1);
    mine.bell.state.store(uint32_t(Bell::eventfd_sleeps));
}

NodePort::~NodePort() {
    close(event_fd_);
}

ProcessId NodePort::reserve_slot() {
    for (uint32_t i = 1; i < kSlots; ++i) {
        if (used_[i]) continue;
        used_[i] = true;
        ProcessSlot& slot = segment_->slot(i);
        Doorbell& bell = slot.bell;
        for (auto& word : bell.ready)
            word.store(0);
        bell.state.store(uint32_t(Bell::awake));
        bell.waiter_word.store(0);
        bell.background_word.store(0);
        bell.spinning.store(0);
        slot.ledger.store(0);
        slot.node.store(0);
        const uint32_t generation = slot.generation.fetch_add(1) + 1;
        slot.alive.store(1);
        Header& header = segment_->header();
        if (header.ready_words.load() < i / 64 + 1) header.ready_words.store(i / 64 + 1);
        return {i, generation};
    }
    throw std::runtime_error("weft: this node has no room for another process (1023 are attached)");
}

void NodePort::receive_from(uint32_t slot) {
    channels_.receive(slot, [this](ProcessId from, Kind kind, const char* data, size_t bytes) {
        received_.push_back({from, kind, std::string(data, bytes)});
    });
}

std::vector<Received> NodePort::drain() {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = read(event_fd_, &count, sizeof count);
    Doorbell& bell = segment_->bell(kDaemonSlot);
    bell.state.store(uint32_t(Bell::awake), std::memory_order_seq_cst);
    const auto can_take = [this](uint32_t proxy) { return forwarding_.can_take(proxy); };
    bool left = false;
    do {
        left = false;
        take_ready(*segment_, bell, [this](uint32_t slot) { receive_from(slot); });
        proxies_.drain(can_take, [this](auto&&... record) { forward(record...); });
        bell.state.store(uint32_t(Bell::eventfd_sleeps), std::memory_order_seq_cst);  // partner: ring_bell
    } while (has_ready(*segment_, bell) | proxies_.sleep(can_take, left));
    forget_dead_peers();
    forwarding_.tell_changes();
    if (left) wake_self();
    return std::exchange(received_, {});
}

bool NodePort::linger(int64_t limit_ns) {
    Doorbell& bell = segment_->bell(kDaemonSlot);
    Header& header = segment_->header();
    if (has_ready(*segment_, bell)) return true;
    if (vain_lingers_ >= kVainLingers && ++vain_lingers_ % kRetryLinger != 0) return false;
    bool found = false;
    if (header.spinners.fetch_add(1) < header.cores) {
        bell.state.store(uint32_t(Bell::awake), std::memory_order_seq_cst);
        const int64_t until = now_ns() + limit_ns;
        for (uint32_t i = 1; !(found = has_ready(*segment_, bell)); ++i) {
            __builtin_ia32_pause();
            if (i % 32 != 0) continue;
            if (now_ns() >= until) break;
            if (i % kYieldEvery == 0) sched_yield();  // who is waited for may be waiting for this very core
        }
        bell.state.store(uint32_t(Bell::eventfd_sleeps), std::memory_order_seq_cst);  // partner: ring_bell
        found = found || has_ready(*segment_, bell);
        vain_lingers_ = found ? 0 : vain_lingers_ + 1;
    }
    header.spinners.fetch_sub(1);
    return found;
}

void NodePort::forward(uint32_t proxy, ProcessId from, Kind kind, const char* data, size_t bytes) {
    if (from.slot == kDaemonSlot && kind == Kind::PEER_DIED) {
        ProcessId dead;
        memcpy(&dead, data, sizeof dead);
        dead_peers_.emplace_back(proxy, dead);
    } else {
        forwarding_.pass_on_to(proxy, from, kind, data, bytes);
    }
}

/// Not while the rings are being read: some of them go.
void NodePort::forget_dead_peers() {
    for (const auto& [proxy, dead] : std::exchange(dead_peers_, {})) {
        proxies_.forget(proxy, dead);
        detached_.push_back(dead);
    }
}

void NodePort::wake_self() {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(event_fd_, &one, sizeof one);
}

void NodePort::release_link(uint32_t node) {
    forwarding_.hold(node, false);
    wake_self();
}

std::vector<FoundRow> NodePort::take_ledger(ProcessId dead) {
    const ProcessSlot& slot = segment_->slot(dead.slot);
    if (slot.generation.load() != dead.generation || slot.alive.load() == 0) return {};
    std::vector<FoundRow> rows = read_ledger(*segment_, dead);
    for (const FoundRow& row : rows)
        if (row.head.in_arena != 0) arena_.adopt(row.head.arena);
    return rows;
}

std::vector<ProcessId> NodePort::mark_dead(ProcessId dead) {
    ProcessSlot& slot = segment_->slot(dead.slot);
    if (slot.generation.load() != dead.generation || slot.alive.exchange(0) == 0) return {};
    // Partner: Channels::write opens a ring, then looks at `alive`.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    receive_from(dead.slot);  // also if it was its first word
    proxies_.drain_from(dead.slot, [this](auto&&... record) { forward(record...); });
    channels_.forget(dead);
    proxies_.remove(dead.slot);
    forwarding_.names.remove_proxy(dead);
    if (slot.bell.spinning.exchange(0) != 0) segment_->header().spinners.fetch_sub(1);
    remove_objects_of(*segment_, dead);
    reclaim_after_death(*segment_, dead, false);
    std::vector<ProcessId> peers;
    for (const uint32_t peer : living_peers(dead.slot))
        peers.push_back({peer, segment_->slot(peer).generation.load()});
    return peers;
}

/// Slots of the living that have a ring with this dead one, or are about to; the daemon let go in mark_dead.
/// One that the dead had only begun to open is no ring.
std::set<uint32_t> NodePort::living_peers(uint32_t dead) const {
    std::set<uint32_t> peers;
    segment_->blocks_of(dead, [&](uint32_t, uint64_t word) {
        const RingEnds ends(word);
        const uint32_t other = ends.other(dead);
        if (other == kDaemonSlot || segment_->slot(other).alive.load() == 0) return;
        if (ends.from == other || segment_->ring_of(dead, other).load() != 0) peers.insert(other);
    });
    return peers;
}

bool NodePort::release_slot(ProcessId dead) {
    if (segment_->slot(dead.slot).generation.load() != dead.generation || !used_[dead.slot]) return true;
    if (!living_peers(dead.slot).empty()) return false;
    segment_->blocks_of(dead.slot, [this](uint32_t block, uint64_t word) {
        const RingEnds ends(word);
        segment_->ring_of(ends.from, ends.to).store(0);
        segment_->free_block(block, word);
    });
    reclaim_after_death(*segment_, dead, true);
    used_[dead.slot] = false;
    return true;
}

// ---- other nodes -----------------------------------------------------------------------------------

ProcessId NodePort::reserve_proxy() {
    const ProcessId proxy = reserve_slot();
    proxies_.add(proxy);
    return proxy;
}

ArenaRef NodePort::import_object(uint64_t bytes, ProcessId owner) {
    ArenaRef ref;
    if (!arena_.import_entry(bytes, owner, ref))
        throw std::runtime_error("weft: the object table of this node is full");
    return ref;
}

bool NodePort::exists(uint32_t entry, uint32_t generation) const {
    return entry < segment_->header().objects && segment_->object(entry).generation.load() == generation;
}

void NodePort::set_node_of(uint32_t index, uint32_t generation, uint32_t node) {
    if (!exists(index, generation)) return;
    ObjectEntry& entry = segment_->object(index);
    if ((entry.state.load() & 0xff) == phase(Phase::spilled) && (entry.file_offset & ~kFarBytes) < kMaxNode)
        entry.file_offset = kFarBytes | node;
}

char* NodePort::begin_receiving(uint32_t index, uint32_t generation) {
    if (!exists(index, generation)) return nullptr;
    ObjectEntry& entry = segment_->object(index);
    const auto count = uint32_t((entry.bytes + kGranuleBytes - 1) / kGranuleBytes);
    uint32_t first = 0;
    if (!arena_.claim_run(count, first)) return nullptr;
    uint32_t spilled = phase(Phase::spilled);
    if (!entry.state.compare_exchange_strong(spilled, phase(Phase::restoring))) {
        arena_.release_run(first, count);
        return nullptr;
    }
    entry.first_granule = first;
    entry.granules = count;
    return segment_->granule_data(first);
}

void NodePort::end_receiving(uint32_t index, uint32_t generation, bool arrived) {
    if (!exists(index, generation)) return;
    ObjectEntry& entry = segment_->object(index);
    if (!arrived) {
        const uint32_t first = entry.first_granule, count = entry.granules;
        entry.granules = 0;
        arena_.release_run(first, count);
    } else {
        entry.is_elsewhere.store(0, std::memory_order_release);  // partner: Arena::is_elsewhere
    }
    const uint32_t next = phase(arrived ? Phase::sealed : Phase::spilled);
    uint32_t state = entry.state.load();
    while (!entry.state.compare_exchange_weak(state, (state & kDeleted) | next)) {
    }
    arena_.reclaim_if_deleted(index);
}

const char* NodePort::begin_sending(uint32_t entry, uint32_t generation, uint64_t& bytes) {
    if (!exists(entry, generation)) return nullptr;
    char* data = nullptr;
    bytes = segment_->object(entry).bytes;
    return arena_.pin({entry, generation, bytes}, data) == PinResult::ok ? data : nullptr;
}

void NodePort::end_sending(uint32_t entry, uint32_t generation) {
    arena_.unpin({entry, generation, 0});
}

// ---- spilling --------------------------------------------------------------------------------------

/// Give the disk space of objects that are gone back.
void NodePort::forget_deleted(int file) {
    std::erase_if(spilled_, [&](const Spilled& s) {
        if (segment_->object(s.entry).generation.load() == s.generation) return false;
        fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off_t(s.offset), off_t(s.bytes));
        return true;
    });
    if (spilled_.empty()) file_end_ = 0;
}

bool NodePort::spill_one(uint32_t index, int file) {
    ObjectEntry& entry = segment_->object(index);
    uint32_t sealed = phase(Phase::sealed);
    if (!entry.state.compare_exchange_strong(sealed, phase(Phase::spilling))) return false;
    const uint32_t generation = entry.generation.load();
    const uint64_t offset = file_end_;
    bool moved = no_pins(entry);
    if (moved && !write_all(file, segment_->granule_data(entry.first_granule), entry.bytes, offset)) {
        spill_errno_ = errno;
        moved = false;
    }
    entry.file_offset = offset;
    // The owner may have deleted it meanwhile: its flag stays.
    const uint32_t next = phase(moved ? Phase::spilled : Phase::sealed);
    uint32_t state = entry.state.load();
    const uint32_t first = entry.first_granule, count = entry.granules;
    if (moved) entry.granules = 0;
    while (!entry.state.compare_exchange_weak(state, (state & kDeleted) | next)) {
    }
    if (moved) {
        for (uint32_t g = 0; g < count; ++g)
            segment_->granule(first + g).store(0, std::memory_order_release);
        spilled_.push_back({index, generation, offset, entry.bytes});
        file_end_ += (entry.bytes + 4095) & ~uint64_t(4095);
    }
    arena_.reclaim_if_deleted(index);
    return moved;
}

uint64_t NodePort::spill(uint64_t wanted_bytes, int file) {
    forget_deleted(file);
    std::vector<std::pair<uint64_t, uint32_t>> candidates;
    for (uint32_t i = 0; i < segment_->header().objects; ++i) {
        const ObjectEntry& entry = segment_->object(i);
        if (entry.state.load() == phase(Phase::sealed) && no_pins(entry))
            candidates.emplace_back(entry.bytes, i);
    }
    // The largest first: fewest objects pay the way to disk and back.
    std::sort(candidates.begin(), candidates.end(), std::greater<>());
    uint64_t freed = 0;
    spill_errno_ = 0;
    const int64_t began_ns = now_ns();
    for (const auto& [bytes, index] : candidates) {
        if (freed >= wanted_bytes || spill_errno_ != 0) break;
        if (spill_one(index, file)) freed += bytes;
    }
    if (freed != 0) record(EventKind::SPILLED, began_ns, now_ns() - began_ns, freed, {});
    return freed;
}

std::pair<bool, std::string> NodePort::restore(uint32_t index, uint32_t generation, int file) {
    if (index >= segment_->header().objects) return {false, "no such object"};
    ObjectEntry& entry = segment_->object(index);
    if (entry.generation.load() != generation) return {false, "the object is gone"};
    if (entry.state.load() == phase(Phase::sealed)) return {true, ""};
    uint32_t first = 0;
    const auto count = uint32_t((entry.bytes + kGranuleBytes - 1) / kGranuleBytes);
    if (!arena_.claim_run(count, first)) return {false, "no room in the object store"};
    uint32_t spilled = phase(Phase::spilled);
    if (!entry.state.compare_exchange_strong(spilled, phase(Phase::restoring))) {
        arena_.release_run(first, count);
        return {false, "the object is gone"};
    }
    const int64_t began_ns = now_ns();
    const bool read = read_all(file, segment_->granule_data(first), entry.bytes, entry.file_offset);
    if (read) {
        record(EventKind::RESTORED, began_ns, now_ns() - began_ns, entry.bytes, {});
        entry.first_granule = first;
        entry.granules = count;
    } else {
        arena_.release_run(first, count);
    }
    uint32_t state = entry.state.load();
    const uint32_t next = phase(read ? Phase::sealed : Phase::spilled);
    while (!entry.state.compare_exchange_weak(state, (state & kDeleted) | next)) {
    }
    if (read) {
        std::erase_if(spilled_, [&](const Spilled& s) {
            if (s.entry != index || s.generation != generation) return false;
            fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off_t(s.offset), off_t(s.bytes));
            return true;
        });
    }
    arena_.reclaim_if_deleted(index);
    return {read, read ? "" : "the spill file could not be read"};
}

uint64_t NodePort::trim() {
    const uint32_t total = segment_->header().granules;
    uint64_t bytes = 0;
    for (uint32_t at = 0; at < total;) {
        // Claim a run so that nobody else does while its pages go.
        uint32_t count = 0;
        for (uint32_t nobody = 0; at + count < total && count < 1024; ++count, nobody = 0)
            if (!segment_->granule(at + count).compare_exchange_strong(nobody, kDaemonSlot + 1)) break;
        if (count != 0) {
            const auto offset = off_t(segment_->header().arena_at + at * kGranuleBytes);
            fallocate(segment_->fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset,
                      off_t(count * kGranuleBytes));
            for (uint32_t i = 0; i < count; ++i)
                segment_->granule(at + i).store(0, std::memory_order_release);
            bytes += count * kGranuleBytes;
        }
        at += count + 1;
    }
    return bytes;
}

bool NodePort::has_room(uint64_t bytes) {
    const auto count = uint32_t((bytes + kGranuleBytes - 1) / kGranuleBytes);
    uint32_t first = 0;
    if (!arena_.claim_run(count, first)) return false;
    arena_.release_run(first, count);
    return true;
}

bool NodePort::is_read_by_others(uint32_t slot) const {
    for (uint32_t i = 0; i < segment_->header().objects; ++i) {
        const ObjectEntry& entry = segment_->object(i);
        if ((entry.state.load() & 0xff) != phase(Phase::sealed)) continue;
        for (uint32_t word = 0; word < std::size(entry.pins); ++word) {
            const uint64_t own = word == slot / 64 ? 1ULL << (slot % 64) : 0;
            if ((entry.pins[word].load() & ~own) != 0) return true;
        }
    }
    return false;
}

std::vector<std::tuple<uint64_t, uint32_t, uint32_t>> NodePort::largest_objects(size_t count) const {
    std::vector<std::tuple<uint64_t, uint32_t, uint32_t>> all;
    for (uint32_t i = 0; i < segment_->header().objects; ++i) {
        const ObjectEntry& entry = segment_->object(i);
        if ((entry.state.load() & 0xff) != phase(Phase::sealed)) continue;
        uint32_t pins = 0;
        for (const auto& word : entry.pins)
            pins += uint32_t(__builtin_popcountll(word.load()));
        all.emplace_back(entry.bytes, ProcessId::from_key(entry.owner.load()).slot, pins);
    }
    std::sort(all.begin(), all.end(), std::greater<>());
    if (all.size() > count) all.resize(count);
    return all;
}

NodePort::Statistics NodePort::statistics() const {
    const Header& header = segment_->header();
    Statistics s{header.arena_bytes, 0, 0, 0, 0, 0};
    for (uint32_t g = 0; g < header.granules; ++g)
        s.used_bytes += segment_->granule(g).load() != 0 ? kGranuleBytes : 0;
    for (uint32_t i = 0; i < header.objects; ++i) {
        const uint32_t state = segment_->object(i).state.load() & 0xff;
        s.objects += state != 0 ? 1 : 0;
        s.spilled_objects += state == phase(Phase::spilled) ? 1 : 0;
    }
    for (const bool used : used_)
        s.slots_used += used ? 1 : 0;
    for (uint32_t i = 0; i < kRingBlocks; ++i)
        s.ring_blocks_used += segment_->block_owner(i).load() != 0 ? 1 : 0;
    return s;
}

// ---- events ----------------------------------------------------------------------------------------

void NodePort::record(EventKind kind, int64_t at_ns, int64_t duration_ns, uint64_t bytes,
                      std::string_view name) {
    EventLog log(*segment_, kDaemonSlot);
    if (kind == EventKind::SPILLED) log.add(Tally::spilled_bytes, bytes);
    if (kind == EventKind::RESTORED) log.add(Tally::restored_bytes, bytes);
    if (kind == EventKind::RECEIVED) log.add(Tally::received_bytes, bytes);
    if (kind == EventKind::SENT) log.add(Tally::sent_bytes, bytes);
    if (!log.is_on()) return;
    Event event{};
    event.at_ns = at_ns;
    event.duration_ns = duration_ns;
    event.bytes = bytes;
    event.kind = kind;
    log.record(event, name);
}

std::vector<std::pair<uint32_t, uint64_t>> NodePort::event_counts() const {
    std::vector<std::pair<uint32_t, uint64_t>> out;
    for (uint32_t slot = 0; slot < kSlots; ++slot) {
        if (segment_->slot(slot).generation.load() == 0) continue;  // never used: a look would take memory
        const auto* ring = reinterpret_cast<const EventRing*>(segment_->event_ring(slot));
        if (const uint64_t written = ring->written.load(std::memory_order_relaxed))
            out.emplace_back(slot, written);
    }
    return out;
}

EventLog::Read NodePort::events(uint32_t slot, uint64_t since, size_t most) const {
    const EventLog log(*segment_, std::min(slot, kSlots - 1));
    return log.is_on() ? log.read(since, most) : EventLog::Read{};
}

std::vector<uint64_t> NodePort::tallies() const {
    std::vector<uint64_t> sums(size_t(Tally::count));
    for (uint32_t slot = 0; slot < kSlots; ++slot) {
        if (segment_->slot(slot).generation.load() == 0) continue;
        const EventLog log(*segment_, slot);
        for (size_t i = 0; i < sums.size(); ++i)
            sums[i] += log.sum(Tally(i));
    }
    return sums;
}

}  // namespace weft
