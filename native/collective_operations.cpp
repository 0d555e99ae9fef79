/// The operations of all members together, as rounds: what each member writes and reads in which round.
#include <utility>

#include "collective_block.hpp"

namespace weft::collective {

namespace {

/// Up to here every member reduces everything itself: one round instead of two.
constexpr uint64_t kDirectBytes = 32 << 10;

}  // namespace

template <class In, class Middle, class Out>
Outcome Member::pipeline(const Request& request, size_t chunks, In in, Middle middle, Out out) {
    for (size_t step = 0; step < chunks + 2; ++step) {
        if (step >= 2) out(step - 2);
        if (step == chunks + 1) break;
        if (step >= 1 && step <= chunks) middle(step - 1);
        if (step < chunks) in(step);
        const Outcome outcome = step == 0 ? agree(request) : arrive();
        if (!outcome) return outcome;
    }
    return {};
}

template <class In, class Out>
Outcome Member::exchange(const Request& request, size_t chunks, In in, Out out) {
    for (size_t step = 0; step <= chunks; ++step) {
        if (step >= 1) out(step - 1);
        if (step == chunks) break;
        in(step);
        const Outcome outcome = step == 0 ? agree(request) : arrive();
        if (!outcome) return outcome;
    }
    return {};
}

Outcome Member::barrier(const Request& request) {
    return agree(request);
}

void Member::reduce_slots(const Request& request, const char* own, uint64_t slot_offset, size_t count,
                          char* out, char* copy) const {
    const void* arrays[kMaxMembers];
    for (uint32_t rank = 0; rank < size_; ++rank)
        arrays[rank] = rank == rank_ ? own : in_slot(rank, round_ - 1) + slot_offset;
    collective::reduce(request.element, request.reduction, arrays, size_, count, out, copy);
}

Outcome Member::reduce_directly(const Request& request, char* data, size_t count, bool takes_all) {
    copy(in_slot(rank_, round_), data, count * element_bytes(request.element));
    if (const Outcome outcome = agree(request); !outcome) return outcome;
    if (takes_all && count != 0) reduce_slots(request, data, 0, count, data, nullptr);
    return {};
}

Outcome Member::reduce_in_parts(const Request& request, char* data, size_t count, bool takes_all) {
    const size_t width = element_bytes(request.element);
    const Chunks chunks{count, slot_bytes_ / width};
    // Member q reduces the elements from q × part of each chunk on.
    const auto part_of = [&](size_t chunk, uint32_t rank) {
        const size_t length = chunks.length(chunk);
        const size_t part = round_up((length + size_ - 1) / size_, 64 / width);
        const size_t start = std::min(length, rank * part);
        return std::pair{start, std::min(part, length - start)};
    };
    return pipeline(
        request, chunks.count(),
        [&](size_t chunk) {
            const auto [mine, mine_length] = part_of(chunk, rank_);
            char* slot = in_slot(rank_, round_);
            const char* from = data + chunks.start(chunk) * width;
            const size_t after = mine + mine_length;
            copy(slot, from, mine * width);
            copy(slot + after * width, from + after * width, (chunks.length(chunk) - after) * width);
        },
        [&](size_t chunk) {
            const auto [start, length] = part_of(chunk, rank_);
            char* own = data + (chunks.start(chunk) + start) * width;
            char* shown = out_slot(rank_, round_);
            reduce_slots(request, own, start * width, length, takes_all ? own : shown,
                         takes_all ? shown : nullptr);
        },
        [&](size_t chunk) {
            for (uint32_t rank = 0; takes_all && rank < size_; ++rank) {
                const auto [start, length] = part_of(chunk, rank);
                if (rank == rank_) continue;
                copy(data + (chunks.start(chunk) + start) * width, out_slot(rank, round_ - 1),
                     length * width);
            }
        });
}

Outcome Member::all_reduce(const Request& request, char* data, size_t count) {
    const size_t bytes = count * element_bytes(request.element);
    if (bytes <= std::min(kDirectBytes, slot_bytes_)) return reduce_directly(request, data, count, true);
    return reduce_in_parts(request, data, count, true);
}

Outcome Member::reduce(const Request& request, char* data, size_t count) {
    const size_t bytes = count * element_bytes(request.element);
    const bool takes_all = rank_ == request.root;
    if (bytes <= std::min(kDirectBytes, slot_bytes_)) return reduce_directly(request, data, count, takes_all);
    return reduce_in_parts(request, data, count, takes_all);
}

Outcome Member::reduce_scatter(const Request& request, const char* in, char* out, size_t count) {
    const size_t width = element_bytes(request.element);
    const size_t room = slot_bytes_ / size_ / 64 * 64;
    const Chunks chunks{count, room / width};
    return exchange(
        request, chunks.count(),
        [&](size_t chunk) {
            for (uint32_t rank = 0; rank < size_; ++rank)
                if (rank != rank_)
                    copy(in_slot(rank_, round_) + rank * room,
                         in + (rank * count + chunks.start(chunk)) * width, chunks.length(chunk) * width);
        },
        [&](size_t chunk) {
            if (chunks.length(chunk) == 0) return;
            reduce_slots(request, in + (rank_ * count + chunks.start(chunk)) * width, rank_ * room,
                         chunks.length(chunk), out + chunks.start(chunk) * width, nullptr);
        });
}

Outcome Member::all_gather(const Request& request, const char* in, char* out, size_t bytes) {
    const Chunks chunks{bytes, slot_bytes_};
    return exchange(
        request, chunks.count(),
        [&](size_t chunk) { copy(in_slot(rank_, round_), in + chunks.start(chunk), chunks.length(chunk)); },
        [&](size_t chunk) {
            for (uint32_t rank = 0; rank < size_; ++rank)
                copy(out + rank * bytes + chunks.start(chunk),
                     rank == rank_ ? in + chunks.start(chunk) : in_slot(rank, round_ - 1),
                     chunks.length(chunk));
        });
}

Outcome Member::gather(const Request& request, const char* in, char* out, size_t bytes) {
    const Chunks chunks{bytes, slot_bytes_};
    const bool is_root = rank_ == request.root;
    return exchange(
        request, chunks.count(),
        [&](size_t chunk) {
            if (!is_root) copy(in_slot(rank_, round_), in + chunks.start(chunk), chunks.length(chunk));
        },
        [&](size_t chunk) {
            for (uint32_t rank = 0; is_root && rank < size_; ++rank)
                copy(out + rank * bytes + chunks.start(chunk),
                     rank == rank_ ? in + chunks.start(chunk) : in_slot(rank, round_ - 1),
                     chunks.length(chunk));
        });
}

Outcome Member::scatter(const Request& request, const char* in, char* out, size_t bytes) {
    const size_t room = slot_bytes_ / size_ / 64 * 64;
    const Chunks chunks{bytes, room};
    const bool is_root = rank_ == request.root;
    return exchange(
        request, chunks.count(),
        [&](size_t chunk) {
            for (uint32_t rank = 0; is_root && rank < size_; ++rank)
                if (rank != rank_)
                    copy(in_slot(rank_, round_) + rank * room, in + rank * bytes + chunks.start(chunk),
                         chunks.length(chunk));
        },
        [&](size_t chunk) {
            copy(out + chunks.start(chunk),
                 is_root ? in + rank_ * bytes + chunks.start(chunk)
                         : in_slot(request.root, round_ - 1) + rank_ * room,
                 chunks.length(chunk));
        });
}

Outcome Member::broadcast(const Request& request, char* data, size_t bytes) {
    const Chunks chunks{bytes, slot_bytes_};
    const bool is_root = rank_ == request.root;
    return exchange(
        request, chunks.count(),
        [&](size_t chunk) {
            if (is_root) copy(in_slot(rank_, round_), data + chunks.start(chunk), chunks.length(chunk));
        },
        [&](size_t chunk) {
            if (!is_root)
                copy(data + chunks.start(chunk), in_slot(request.root, round_ - 1), chunks.length(chunk));
        });
}

Outcome Member::all_to_all(const Request& request, const char* in, char* out, size_t bytes) {
    const size_t room = slot_bytes_ / size_ / 64 * 64;
    const Chunks chunks{bytes, room};
    return exchange(
        request, chunks.count(),
        [&](size_t chunk) {
            for (uint32_t rank = 0; rank < size_; ++rank)
                if (rank != rank_)
                    copy(in_slot(rank_, round_) + rank * room, in + rank * bytes + chunks.start(chunk),
                         chunks.length(chunk));
        },
        [&](size_t chunk) {
            for (uint32_t rank = 0; rank < size_; ++rank)
                copy(out + rank * bytes + chunks.start(chunk),
                     rank == rank_ ? in + rank * bytes + chunks.start(chunk)
                                   : in_slot(rank, round_ - 1) + rank_ * room,
                     chunks.length(chunk));
        });
}

}  // namespace weft::collective
