/// Copying large buffers: one core alone does not fill the memory's bandwidth.
#pragma once

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

namespace weft {

/// memcpy, by up to four threads from 8 MiB a thread on.
inline void copy_bytes(char* to, const char* from, size_t bytes) {
    constexpr size_t kShare = 8 << 20;
    const size_t parts = std::min<size_t>({bytes / kShare, std::thread::hardware_concurrency(), 4});
    if (parts < 2) {
        memcpy(to, from, bytes);
        return;
    }
    const size_t share = (bytes / parts + 4095) & ~size_t(4095);
    std::vector<std::thread> others;
    for (size_t i = 1; i < parts; ++i) {
        const size_t start = i * share;
        others.emplace_back([=] { memcpy(to + start, from + start, std::min(share, bytes - start)); });
    }
    memcpy(to, from, share);
    for (std::thread& other : others)
        other.join();
}

}  // namespace weft
