#include "node_port.hpp"

#include <sched.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <stdexcept>
#include <system_error>

#include "spin.hpp"

namespace weft {

namespace {

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

NodePort::NodePort(uint64_t arena_bytes, uint32_t events, uint32_t slots)
    : segment_(Segment::create(arena_bytes, events, slots)),
      event_fd_(make_event_fd()),
      arena_(*segment_, self_),
      channels_(*segment_, self_, event_fd_),
      relay_(*segment_, event_fd_),
      forwarding_(*segment_, arena_, relay_),
      used_(std::min(slots, segment_->header().slots), false) {
    used_[kDaemonSlot] = used_[kRelaySlot] = true;
    ProcessSlot& mine = segment_->slot(kDaemonSlot);
    mine.generation.store(self_.generation);
    mine.alive.store(1);
    mine.bell.state.store(uint32_t(Bell::eventfd_sleeps));
}

NodePort::~NodePort() {
    close(event_fd_);
}

ProcessId NodePort::reserve_slot() {
    for (uint32_t i = 1; i < used_.size(); ++i) {
        if (used_[i]) continue;
        used_[i] = true;
        ProcessSlot& slot = segment_->slot(i);
        Doorbell& bell = slot.bell;
        for (uint32_t w = 0; w < segment_->header().slots / 64; ++w)
            bell.ready(w).store(0);
        bell.state.store(uint32_t(Bell::awake));
        bell.waiter_word.store(0);
        bell.background_word.store(0);
        bell.spinning.store(0);
        slot.ledger.store(0);
        const uint32_t generation = slot.generation.fetch_add(1) + 1;
        slot.alive.store(1);
        Header& header = segment_->header();
        if (header.ready_words.load() < i / 64 + 1) header.ready_words.store(i / 64 + 1);
        return {i, generation};
    }
    throw std::runtime_error("weft: this node has no room for another process: " +
                             std::to_string(used_.size() - 2) + " are attached");
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
    do {
        take_ready(*segment_, bell, [this](uint32_t slot) { receive_from(slot); });
        relay_.drain([this](ProcessId from, ProcessId to, uint16_t kind, uint16_t flags, const char* data,
                            size_t bytes) { pass_on(from, to, kind, flags, data, bytes); });
        bell.state.store(uint32_t(Bell::eventfd_sleeps), std::memory_order_seq_cst);  // partner: ring_bell
    } while (has_ready(*segment_, bell) | relay_.sleep());
    forwarding_.tell_changes();
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
            relax();
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

bool NodePort::send(ProcessId to, Kind kind, const void* data, size_t bytes) {
    if (!is_far(to.slot)) return channels_.send(to, kind, data, bytes);
    if (!segment_->is_alive(to)) return false;
    if (kind == Kind::PEER_DIED) return true;  // its own node has been told, and tells it in its own names
    forwarding_.pass_on_to(to, self_, kind, static_cast<const char*>(data), bytes);
    wake_self();  // who drains next sends it
    return true;
}

/// A record that a process of this node has given to the relay.
void NodePort::pass_on(ProcessId from, ProcessId to, uint16_t kind, uint16_t flags, const char* data,
                       size_t bytes) {
    if ((flags & kNamed) == 0 || !segment_->is_slot(to.slot)) return;
    if (!segment_->is_alive(to)) {
        // It was told of no death, since it was not known to have talked with the dead.
        Buffer body;
        body.add(PeerDeath{to});
        body.append("it died before it was reached", 29);
        channels_.send(from, Kind::PEER_DIED, body.data(), body.size());
        return;
    }
    relay_.acquaint(from, to);
    if (is_far(to.slot)) {
        if ((flags & kChannel) == 0) forwarding_.pass_on_to(to, from, Kind(kind), data, bytes);
        return;
    }
    relay_.send_as(from, to, kind, uint16_t(flags & kChannel), data, bytes);
    ask_for_rings();
}

/// Two processes of this node have no ring, so none was free: all give back those that they do not use.
void NodePort::ask_for_rings() {
    constexpr int64_t kBetweenNs = 1'000'000'000;
    if (now_ns() - rings_asked_ns_ < kBetweenNs) return;
    rings_asked_ns_ = now_ns();
    std::set<uint32_t> holders;
    for (uint32_t block = kOwnBlocks * segment_->header().slots; block < segment_->header().blocks; ++block)
        if (const uint64_t ends = segment_->block_owner(block).load()) holders.insert(RingEnds(ends).from);
    for (const uint32_t slot : holders)
        channels_.send({slot, segment_->slot(slot).generation.load()}, Kind::SPARE_RINGS, nullptr, 0);
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
    if (is_far(dead.slot) || !segment_->is_alive(dead)) return {};
    std::vector<FoundRow> rows = read_ledger(*segment_, dead);
    for (const FoundRow& row : rows)
        if (row.head.in_arena != 0) arena_.adopt(row.head.arena);
    return rows;
}

std::vector<ArenaRef> NodePort::take_objects(ProcessId dead) {
    std::vector<ArenaRef> taken;
    if (segment_->is_alive(dead)) taken = objects_of(*segment_, dead);
    for (const ArenaRef& ref : taken)
        arena_.adopt(ref);
    return taken;
}

std::vector<ProcessId> NodePort::mark_dead(ProcessId dead) {
    const auto pass = [this](ProcessId from, ProcessId to, uint16_t kind, uint16_t flags, const char* data,
                             size_t bytes) { pass_on(from, to, kind, flags, data, bytes); };
    if (is_far(dead.slot)) {
        if (!segment_->is_alive(dead)) return {};
        relay_.mark_dead(dead);
        forwarding_.names.remove_proxy(dead);
        remove_objects_of(*segment_, dead);
        reclaim_after_death(*segment_, dead, true);
        return relay_.forget(dead);
    }
    ProcessSlot& slot = segment_->slot(dead.slot);
    if (slot.generation.load() != dead.generation || slot.alive.exchange(0) == 0) return {};
    // Partner: Channels::write opens a ring, then looks at `alive`.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    receive_from(dead.slot);  // also if it was its first word
    relay_.drain_from(dead.slot, pass);
    channels_.forget(dead);
    if (slot.bell.spinning.exchange(0) != 0) segment_->header().spinners.fetch_sub(1);
    remove_objects_of(*segment_, dead);
    reclaim_after_death(*segment_, dead, false);
    std::vector<ProcessId> peers = relay_.forget(dead);
    for (const uint32_t peer : living_peers(dead.slot)) {
        wake_sleepers(segment_->bell(peer));  // before anybody tells it: see there
        const ProcessId id{peer, segment_->slot(peer).generation.load()};
        if (std::find(peers.begin(), peers.end(), id) == peers.end()) peers.push_back(id);
    }
    return peers;
}

/// Slots of the living that have a ring with this dead one, have had one, or are about to; the daemon and the
/// relay let go in mark_dead. One that the dead had only begun to open is no ring.
std::set<uint32_t> NodePort::living_peers(uint32_t dead) const {
    std::set<uint32_t> peers;
    segment_->blocks_of(dead, [&](uint32_t, uint64_t word) {
        const RingEnds ends(word);
        const uint32_t other = ends.other(dead);
        if (other <= kRelaySlot || segment_->slot(other).alive.load() == 0) return;
        if (ends.from == other || segment_->ring_of(dead, other).load() != 0) peers.insert(other);
    });
    for (uint32_t other = kRelaySlot + 1; other < 64 * segment_->ready_words(); ++other)
        if (segment_->ring_of(dead, other).load() == kParted && segment_->slot(other).alive.load() != 0)
            peers.insert(other);
    return peers;
}

bool NodePort::release_slot(ProcessId dead) {
    if (is_far(dead.slot)) return relay_.release(dead);
    if (segment_->slot(dead.slot).generation.load() != dead.generation || !used_[dead.slot]) return true;
    if (!living_peers(dead.slot).empty()) return false;
    segment_->blocks_of(dead.slot, [this](uint32_t block, uint64_t word) {
        const RingEnds ends(word);
        segment_->ring_of(ends.from, ends.to).store(0);
        segment_->free_block(block, word);
    });
    for (uint32_t other = 0; other < 64 * segment_->ready_words(); ++other)
        segment_->ring_of(dead.slot, other).store(0);
    reclaim_after_death(*segment_, dead, true);
    used_[dead.slot] = false;
    return true;
}

// ---- other nodes -----------------------------------------------------------------------------------

ProcessId NodePort::add_proxy(const FarProcess& who) {
    const ProcessId proxy = relay_.add_far(who.node);
    forwarding_.names.add_proxy(proxy, who);
    return proxy;
}

ArenaRef NodePort::import_object(uint64_t bytes, ProcessId owner) {
    ArenaRef ref;
    if (!arena_.import_entry(bytes, owner, ref))
        throw std::runtime_error("the object table of this node is full (" +
                                 std::to_string(segment_->header().objects) + " objects)");
    return ref;
}

bool NodePort::exists(uint32_t entry, uint32_t generation) const {
    return arena_.exists({entry, generation, 0});
}

char* NodePort::begin_receiving(uint32_t index, uint32_t generation) {
    if (!exists(index, generation) || !arena_.is_elsewhere({index, generation, 0})) return nullptr;
    ObjectEntry& entry = segment_->object(index);
    const uint32_t count = granules_for(entry.bytes.load());
    uint32_t first = 0;
    if (!arena_.claim_run(count, first)) return nullptr;
    if (!change_phase(*segment_, {index, generation, 0}, Phase::spilled, Phase::moving)) {
        arena_.release_run(first, count);
        return nullptr;
    }
    entry.first_granule.store(first);
    entry.granules.store(count);
    return segment_->granule_data(first);
}

void NodePort::end_receiving(uint32_t index, uint32_t generation, bool arrived) {
    if (!exists(index, generation)) return;
    const ArenaRef ref{index, generation, 0};
    const ObjectEntry& entry = segment_->object(index);
    const uint32_t first = entry.first_granule.load(), count = entry.granules.load();
    if (arrived) {
        change_phase(*segment_, ref, Phase::moving, Phase::sealed);
    } else if (change_phase(*segment_, ref, Phase::moving, Phase::spilled)) {
        arena_.release_run(first, count);
    }
    arena_.reclaim_if_deleted(index);
}

const char* NodePort::begin_sending(uint32_t entry, uint32_t generation, uint64_t& bytes) {
    if (!exists(entry, generation)) return nullptr;
    char* data = nullptr;
    bytes = segment_->object(entry).bytes.load();
    return arena_.pin({entry, generation, bytes}, data) == PinResult::ok ? data : nullptr;
}

void NodePort::end_sending(uint32_t entry, uint32_t generation) {
    arena_.unpin({entry, generation, 0});
}

// ---- spilling --------------------------------------------------------------------------------------

std::vector<SpillDone> NodePort::take_spilled() {
    std::vector<SpillDone> done = spill_thread_->take_done();
    for (const auto& [ticket, is_restore, result, folder] : done)
        if (result.bytes != 0 && (!is_restore || result.code == SpillCode::done))
            record(is_restore ? EventKind::RESTORED : EventKind::SPILLED, result.began_ns, result.duration_ns,
                   result.bytes, {});
    return done;
}

bool NodePort::room_may_come(uint32_t slot) const {
    const uint32_t objects = segment_->header().objects_used.load(std::memory_order_acquire);
    for (uint32_t i = 0; i < objects; ++i) {
        const Phase phase = word_of(*segment_, i).phase();
        if (phase == Phase::free || phase == Phase::spilled) continue;
        if (phase != Phase::sealed) return true;
        if (no_pins(*segment_, i)) return true;  // it was sealed, or let go, since it was looked for
        const auto pins = pins_of(*segment_, i);
        for (uint32_t word = 0; word < pins.size(); ++word) {
            const uint64_t own = word == slot / 64 ? 1ULL << (slot % 64) : 0;
            if ((pins[word].load() & ~own) != 0) return true;
        }
    }
    return false;
}

std::vector<std::tuple<uint64_t, uint32_t, uint32_t>> NodePort::largest_objects(size_t count) const {
    std::vector<std::tuple<uint64_t, uint32_t, uint32_t>> all;
    const uint32_t objects = segment_->header().objects_used.load(std::memory_order_acquire);
    for (uint32_t i = 0; i < objects; ++i) {
        const EntryWord word = word_of(*segment_, i);
        if (!word.has(EntryWord::kResident) || word.holder() != 0) continue;
        const ObjectEntry& entry = segment_->object(i);
        all.emplace_back(entry.bytes.load(), OwnerWord{entry.owner.load()}.slot(), count_pins(*segment_, i));
    }
    count = std::min(count, all.size());
    std::partial_sort(all.begin(), all.begin() + long(count), all.end(), std::greater<>());
    all.resize(count);
    return all;
}

NodePort::Statistics NodePort::statistics() const {
    const Header& header = segment_->header();
    Statistics s{header.arena_bytes, 0, 0, 0, 0, 0};
    for (uint32_t g = 0; g < header.granules; ++g)
        s.used_bytes += segment_->granule(g).load(std::memory_order_relaxed) != 0 ? kGranuleBytes : 0;
    const uint32_t objects = header.objects_used.load(std::memory_order_acquire);
    for (uint32_t i = 0; i < objects; ++i) {
        const Phase phase = word_of(*segment_, i).phase();
        s.objects += phase != Phase::free ? 1 : 0;
        s.spilled_objects += phase == Phase::spilled ? 1 : 0;
    }
    for (const bool used : used_)
        s.slots_used += used ? 1 : 0;
    --s.slots_used;  // the daemon has two
    for (uint32_t i = 0; i < header.blocks; ++i)
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
    for (uint32_t slot = 0; slot < segment_->header().slots; ++slot) {
        if (segment_->slot(slot).generation.load() == 0) continue;  // never used: a look would take memory
        const auto* ring = reinterpret_cast<const EventRing*>(segment_->event_ring(slot));
        if (const uint64_t written = ring->written.load(std::memory_order_relaxed))
            out.emplace_back(slot, written);
    }
    return out;
}

EventLog::Read NodePort::events(uint32_t slot, uint64_t since, size_t most) const {
    const EventLog log(*segment_, std::min(slot, segment_->header().slots - 1));
    return log.is_on() ? log.read(since, most) : EventLog::Read{};
}

std::vector<uint64_t> NodePort::tallies() const {
    std::vector<uint64_t> sums(size_t(Tally::count), 0);
    for (uint32_t slot = 0; slot < segment_->header().slots; ++slot) {
        if (segment_->slot(slot).generation.load() == 0) continue;
        const EventLog log(*segment_, slot);
        for (size_t i = 0; i < sums.size(); ++i)
            sums[i] += log.sum(Tally(i));
    }
    return sums;
}

}  // namespace weft
