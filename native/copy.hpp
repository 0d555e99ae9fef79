/// Copying large buffers: one core alone does not fill the memory's bandwidth, and neither does a copy
/// through the caches.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <exception>
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

/// memcpy; from 16 MiB on past the caches, by up to four threads that each take the next piece until none is
/// left.
inline void copy_bytes(char* to, const char* from, size_t bytes) {
    constexpr size_t kShare = 8 << 20, kPiece = 1 << 20;
    const size_t threads = std::min<size_t>({bytes / kShare, std::thread::hardware_concurrency(), 4});
    if (threads < 2) {
        memcpy(to, from, bytes);
        return;
    }
    std::atomic<size_t> next = 0;  // between the threads below; joining them orders what they wrote
    const auto copy_pieces = [&] {
        for (size_t at; (at = next.fetch_add(kPiece, std::memory_order_relaxed)) < bytes;)
            copy_past_caches(to + at, from + at, std::min(kPiece, bytes - at));
    };
    std::vector<std::thread> others;
    try {
        for (size_t i = 1; i < threads; ++i)
            others.emplace_back(copy_pieces);
    } catch (const std::exception&) {  // no more can be made: those that there are copy all
    }
    copy_pieces();
    for (std::thread& other : others)
        other.join();
}

}  // namespace weft
