/// What a loop that waits for another core does between two looks.
#pragma once

namespace weft {

/// Leaves the core's other thread more of the core, and saves power. On Arm `yield` does nothing on most
/// cores; a barrier for instructions takes about as long as x86's pause.
inline void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("isb");
#endif
}

}  // namespace weft
