/// Copying large buffers: one core alone does not fill the memory's bandwidth, and neither does a copy
/// through the caches.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <thread>
#include <vector>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace weft {

/// memcpy with stores that go past the caches: nothing is read from memory only to be overwritten.
inline void copy_past_caches(char* to, const char* from, size_t bytes) {
#if defined(__SSE2__)
    constexpr size_t kLine = 64, kAhead = 1024;
    const size_t head = std::min(bytes, size_t(-reinterpret_cast<uintptr_t>(to) & (kLine - 1)));
    memcpy(to, from, head);
    size_t at = head;
    for (; at + kLine <= bytes; at += kLine) {
        _mm_prefetch(from + at + kAhead, _MM_HINT_NTA);
        const auto* source = reinterpret_cast<const __m128i*>(from + at);
        auto* target = reinterpret_cast<__m128i*>(to + at);
        const __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1);
        const __m128i c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3);
        _mm_stream_si128(target, a);
        _mm_stream_si128(target + 1, b);
        _mm_stream_si128(target + 2, c);
        _mm_stream_si128(target + 3, d);
    }
    memcpy(to + at, from + at, bytes - at);
    // A release store orders ordinary stores only: the streamed ones must be out before the object is
    // published.
    _mm_sfence();
#else
    memcpy(to, from, bytes);
#endif
}

/// The copies of one value's buffers: of what is small at once, of the rest together, so that many buffers
/// take as long as one.
class Copies {
  public:
    Copies() = default;
    Copies(char* to, const char* from, size_t bytes) { add(to, from, bytes); }
    void add(char* to, const char* from, size_t bytes) {
        if (bytes <= kSmall) {
            memcpy(to, from, bytes);
            return;
        }
        for (size_t at = 0; at < bytes; at += kPiece) {
            const Piece piece{to + at, from + at, std::min(kPiece, bytes - at)};
            try {
                pieces_.push_back(piece);
                bytes_ += piece.bytes;
            } catch (const std::bad_alloc&) {
                memcpy(piece.to, piece.from, piece.bytes);
            }
        }
    }
    size_t bytes() const { return bytes_; }
    /// memcpy; from 16 MiB on past the caches, by up to four threads that each take the next piece until none
    /// is left.
    void finish() {
        size_t threads = std::min(bytes_ / kShare, kMostThreads);
        if (threads > 1) threads = std::min<size_t>(threads, std::thread::hardware_concurrency());
        if (threads <= 1) {
            for (const Piece& piece : pieces_)
                memcpy(piece.to, piece.from, piece.bytes);
            return;
        }
        std::atomic<size_t> next = 0;  // between the threads below; joining them orders what they wrote
        const auto copy_pieces = [&] {
            for (size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < pieces_.size();)
                copy_past_caches(pieces_[i].to, pieces_[i].from, pieces_[i].bytes);
        };
        std::thread others[kMostThreads - 1];
        size_t count = 0;
        try {
            for (; count + 1 < threads; ++count)
                others[count] = std::thread(copy_pieces);
        } catch (const std::exception&) {  // no more can be made: those that there are copy all
        }
        copy_pieces();
        for (size_t i = 0; i < count; ++i)
            others[i].join();
    }

  private:
    static constexpr size_t kSmall = 64 << 10, kPiece = 1 << 20, kShare = 8 << 20, kMostThreads = 4;
    struct Piece {
        char* to;
        const char* from;
        size_t bytes;
    };
    std::vector<Piece> pieces_;
    size_t bytes_ = 0;
};

}  // namespace weft
