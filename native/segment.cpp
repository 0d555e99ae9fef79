#include "segment.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <system_error>

#include "events.hpp"

namespace weft {

namespace {

uint64_t round_up(uint64_t value, uint64_t step) {
    return (value + step - 1) / step * step;
}

[[noreturn]] void fail(const char* what) {
    throw std::system_error(errno, std::generic_category(), what);
}

/// What cannot be mapped is closed.
char* map(int fd, uint64_t bytes) {
    void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (base == MAP_FAILED) {
        const int why = errno;
        close(fd);
        errno = why;
        fail("weft: cannot map the shared segment");
    }
    madvise(base, bytes, MADV_DONTDUMP);
    return static_cast<char*>(base);
}

}  // namespace

std::unique_ptr<Segment> Segment::create(uint64_t arena_bytes, uint32_t events, uint32_t slots) {
    Header plan{};
    plan.magic = kMagic;
    plan.granules = uint32_t(std::max<uint64_t>(1, round_up(arena_bytes, kGranuleBytes) / kGranuleBytes));
    plan.arena_bytes = plan.granules * kGranuleBytes;
    // Spilled objects keep their entries, so there are more of these than room for objects. Those that were
    // never taken cost no memory.
    plan.objects = std::clamp(plan.granules, kMinObjects, kMaxObjects);
    plan.cores = uint32_t(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
    uint64_t at = 4096;
    const auto place = [&at](uint64_t bytes) {
        const uint64_t here = at;
        at = round_up(at + bytes, 4096);
        return here;
    };
    plan.slots = std::clamp(uint32_t(round_up(slots, 64)), 64u, kMostSlots);
    const uint64_t bits = round_up(plan.slots / 64 * sizeof(uint64_t), 64);
    plan.slot_stride = sizeof(ProcessSlot) + bits;
    plan.entry_stride = sizeof(ObjectEntry) + bits;
    plan.blocks = kOwnBlocks * plan.slots + kSharedBlocks;
    plan.slots_at = place(plan.slots * plan.slot_stride);
    plan.far_at = place(kMostFar * sizeof(FarSlot));
    plan.directory_at = place(uint64_t(plan.slots) * plan.slots * sizeof(uint32_t));
    plan.blocks_at = place(plan.blocks * sizeof(uint64_t));
    plan.rings_at = place(plan.blocks * kRingStride);
    plan.granules_at = place(plan.granules * sizeof(uint32_t));
    plan.objects_at = place(plan.objects * plan.entry_stride);
    plan.events = events;
    plan.event_stride = event_ring_stride(events);
    plan.events_at = place(plan.slots * plan.event_stride);
    at = round_up(at, 2 << 20);
    plan.arena_at = place(plan.arena_bytes);
    plan.segment_bytes = at;

    const int fd = memfd_create("weft", MFD_CLOEXEC);
    if (fd < 0) fail("weft: cannot create the shared segment");
    if (ftruncate(fd, off_t(plan.segment_bytes)) != 0) {
        close(fd);
        fail("weft: cannot size the shared segment");
    }
    char* base = map(fd, plan.segment_bytes);
    Header& header = *reinterpret_cast<Header*>(base);
    header.segment_bytes = plan.segment_bytes;
    header.arena_bytes = plan.arena_bytes;
    header.granules = plan.granules;
    header.objects = plan.objects;
    header.cores = plan.cores;
    header.slots = plan.slots;
    header.blocks = plan.blocks;
    header.slot_stride = plan.slot_stride;
    header.entry_stride = plan.entry_stride;
    header.slots_at = plan.slots_at;
    header.far_at = plan.far_at;
    header.directory_at = plan.directory_at;
    header.blocks_at = plan.blocks_at;
    header.rings_at = plan.rings_at;
    header.granules_at = plan.granules_at;
    header.objects_at = plan.objects_at;
    header.events_at = plan.events_at;
    header.events = plan.events;
    header.event_stride = plan.event_stride;
    header.arena_at = plan.arena_at;
    header.ready_words.store(1);
    header.magic = kMagic;
    return std::unique_ptr<Segment>(new Segment(fd, base, plan.segment_bytes));
}

std::unique_ptr<Segment> Segment::attach(int fd) {
    const int own = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (own < 0) fail("weft: cannot duplicate the segment's descriptor");
    struct stat info{};
    if (fstat(own, &info) != 0 || uint64_t(info.st_size) < 4096) {
        close(own);
        throw std::runtime_error("weft: the descriptor is not a segment");
    }
    char* base = map(own, uint64_t(info.st_size));
    if (reinterpret_cast<Header*>(base)->magic != kMagic) {
        munmap(base, uint64_t(info.st_size));
        close(own);
        throw std::runtime_error("weft: the segment was made by another version of weft");
    }
    return std::unique_ptr<Segment>(new Segment(own, base, uint64_t(info.st_size)));
}

void Segment::become_private() {
    if (map_private(base_, bytes_, base_) == nullptr)
        mprotect(base_, bytes_,
                 PROT_READ);  // where memory is not overcommitted: who writes ends, and harms nobody
}

char* Segment::map_private(const char* data, uint64_t bytes, char* at) const {
    void* made = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd_, data - base_);
    if (made == MAP_FAILED) return nullptr;
    madvise(made, bytes, MADV_DONTDUMP);
    if (at == nullptr) return static_cast<char*>(made);
    // Not in place: a mapping that fails may leave a hole where the old one was.
    if (mremap(made, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at) == at) return at;
    munmap(made, bytes);
    return nullptr;
}

char* Segment::map_shared(const char* data, uint64_t bytes) const {
    void* made = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd_, data - base_);
    if (made == MAP_FAILED) return nullptr;
    madvise(made, bytes, MADV_DONTDUMP);
    return static_cast<char*>(made);
}

void Segment::keep_copy(uint32_t first, uint32_t count) {
    const uint64_t bytes = count * kGranuleBytes;
    void* copy = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED) fail("weft: cannot keep what was read");
    memcpy(copy, granule_data(first), bytes);
    mprotect(copy, bytes, PROT_READ);
    if (mremap(copy, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, granule_data(first)) == MAP_FAILED)
        fail("weft: cannot keep what was read");
}

Segment::~Segment() {
    munmap(base_, bytes_);
    close(fd_);
}

/// A block that is marked with the two ends from now on, or kNoBlock. Each process has blocks of its own for
/// the daemon and the relay, so that whatever else is scarce it can be told things.
uint32_t Segment::take_block(ProcessId from, ProcessId to, uint64_t ends) {
    const uint32_t own = kOwnBlocks * header().slots, shared = header().blocks - own;
    const uint32_t service = std::min(from.slot, to.slot), client = std::max(from.slot, to.slot);
    uint64_t nobody = 0;
    if (service <= kRelaySlot) {
        const uint32_t block = kOwnBlocks * client + 2 * service + (client == to.slot ? 1 : 0);
        return block_owner(block).compare_exchange_strong(nobody, ends) ? block : kNoBlock;
    }
    for (uint32_t i = 0; i < shared; ++i, nobody = 0) {
        const uint32_t block = own + (i + from.slot * 8) % shared;
        if (block_owner(block).load(std::memory_order_relaxed) == 0 &&
            block_owner(block).compare_exchange_strong(nobody, ends))
            return block;
    }
    return kNoBlock;
}

uint32_t Segment::open_ring(ProcessId from, ProcessId to) {
    if (const uint32_t existing = open_block(from.slot, to.slot)) return existing - 1;
    const uint64_t ends = RingEnds::pack(from, to);
    const uint32_t block = take_block(from, to, ends);
    if (block == kNoBlock) return is_alive(to) ? kNoBlock : kNoRing;
    // Partner: the daemon clears `alive`, then looks for blocks (NodePort::mark_dead). One of the two
    // sees the other; and who is alive now keeps its slot until this block is given back.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (!is_alive(to)) {
        free_block(block, ends);
        return kNoRing;
    }
    RingHeader* header = ring(block);
    header->tail.store(0, std::memory_order_relaxed);
    header->head.store(0, std::memory_order_relaxed);
    header->wants_room.store(0, std::memory_order_relaxed);
    ring_of(from.slot, to.slot).store(block + 1, std::memory_order_release);  // partner: Channels::receive
    return block;
}

void Segment::close_ring(ProcessId from, ProcessId to) {
    const uint32_t existing = ring_of(from.slot, to.slot).exchange(0);
    if (existing != 0 && existing != kParted) free_block(existing - 1, RingEnds::pack(from, to));
}

void Segment::part(ProcessId from, ProcessId to) {
    uint32_t none = 0;
    ring_of(to.slot, from.slot).compare_exchange_strong(none, kParted);
    const uint32_t block = ring_of(from.slot, to.slot).exchange(kParted);
    if (block == 0 || block == kParted) return;
    madvise(reinterpret_cast<char*>(ring(block - 1)) + kRingPage, kRingBytes, MADV_REMOVE);
    free_block(block - 1, RingEnds::pack(from, to));
}

}  // namespace weft
