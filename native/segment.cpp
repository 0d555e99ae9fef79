#include "segment.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
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

/// What can not be mapped is closed.
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

std::unique_ptr<Segment> Segment::create(uint64_t arena_bytes, uint32_t events) {
    Header plan{};
    plan.magic = kMagic;
    plan.granules = uint32_t(std::max<uint64_t>(1, round_up(arena_bytes, kGranuleBytes) / kGranuleBytes));
    plan.arena_bytes = plan.granules * kGranuleBytes;
    // Spilled objects keep their entries, so a small arena has more of these than room for objects.
    const uint32_t with_spilled = std::clamp(8 * plan.granules, kFewObjects, kManyObjects);
    plan.objects = std::min(std::max(plan.granules, with_spilled), kMaxObjects);
    plan.cores = uint32_t(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
    uint64_t at = 4096;
    const auto place = [&at](uint64_t bytes) {
        const uint64_t here = at;
        at = round_up(at + bytes, 4096);
        return here;
    };
    plan.slots_at = place(kSlots * sizeof(ProcessSlot));
    plan.directory_at = place(uint64_t(kSlots) * kSlots * sizeof(uint32_t));
    plan.blocks_at = place(kRingBlocks * sizeof(uint64_t));
    plan.rings_at = place(kRingBlocks * kRingStride);
    plan.granules_at = place(plan.granules * sizeof(uint32_t));
    plan.objects_at = place(plan.objects * sizeof(ObjectEntry));
    plan.events = events;
    plan.event_stride = event_ring_stride(events);
    plan.events_at = place(kSlots * plan.event_stride);
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
    header.slots_at = plan.slots_at;
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

Segment::~Segment() {
    munmap(base_, bytes_);
    close(fd_);
}

uint32_t Segment::open_ring(ProcessId from, ProcessId to) {
    Shared<uint32_t>& named = ring_of(from.slot, to.slot);
    if (const uint32_t existing = named.load(std::memory_order_acquire)) return existing - 1;
    const uint64_t ends = RingEnds::pack(from, to);
    for (uint32_t i = 0; i < kRingBlocks; ++i) {
        const uint32_t block = (i + from.slot * 8) % kRingBlocks;
        uint64_t nobody = 0;
        if (block_owner(block).load(std::memory_order_relaxed) != 0) continue;
        if (!block_owner(block).compare_exchange_strong(nobody, ends)) continue;
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
        named.store(block + 1, std::memory_order_release);  // partner: Channels::receive
        return block;
    }
    return kRingBlocks;
}

void Segment::close_ring(ProcessId from, ProcessId to) {
    const uint32_t existing = ring_of(from.slot, to.slot).exchange(0);
    if (existing != 0) free_block(existing - 1, RingEnds::pack(from, to));
}

}  // namespace weft
