/// Death between any two instructions: a child is run one instruction at a time, and whoever survives it
/// looks at what it has left in shared memory after each change.
#pragma once

#include <sched.h>
#include <sys/ptrace.h>

#include <span>

#include "check.hpp"

namespace weft::testing {

#ifdef __SANITIZE_THREAD__
constexpr bool kCanStep =
    false;  // a step of ours is thousands of its own, and it has nothing to say about death
#else
constexpr bool kCanStep = true;
#endif

/// In the child: lets the parent do something meanwhile.
inline void your_turn() {
    raise(SIGUSR1);
}

/// Runs `body` in a child and calls `look` first and whenever the watched memory has changed; the child is
/// killed when `look` returns false. At each your_turn(), `respond` is called. Returns whether the body came
/// to its end.
inline bool step_through(
    const std::vector<std::span<char>>& watched, const std::function<void()>& body,
    const std::function<bool()>& look, const std::function<void()>& respond = [] {}) {
    // On one core a step costs half as much.
    cpu_set_t before, one;
    sched_getaffinity(0, sizeof before, &before);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
        if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);

    Child child([&] {
        if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(77);
        raise(SIGSTOP);
        body();
    });
    std::vector<std::string> seen;
    for (const auto& span : watched)
        seen.emplace_back(span.data(), span.size());
    int status = 0;
    waitpid(child.pid(), &status, 0);
    if (WIFEXITED(status)) fail(__FILE__, __LINE__, "this system does not let a process trace its child");
    bool wanted = look(), ended = false;
    while (wanted && !ended) {
        ptrace(PTRACE_SINGLESTEP, child.pid(), nullptr, nullptr);
        waitpid(child.pid(), &status, 0);
        if (WIFEXITED(status)) {
            child.forget();
            if (WEXITSTATUS(status) != 0) fail(__FILE__, __LINE__, "the child failed");
            ended = true;
        } else if (WSTOPSIG(status) == SIGUSR1) {
            respond();
        } else if (WSTOPSIG(status) != SIGTRAP) {
            fail(__FILE__, __LINE__, "the child got signal " + std::to_string(WSTOPSIG(status)));
        }
        bool changed = false;
        for (size_t i = 0; i < watched.size(); ++i) {
            if (memcmp(seen[i].data(), watched[i].data(), watched[i].size()) == 0) continue;
            seen[i].assign(watched[i].data(), watched[i].size());
            changed = true;
        }
        if (changed) wanted = look();
    }
    sched_setaffinity(0, sizeof before, &before);
    return ended;
}

/// Kills a child that runs `body` right after its n-th change of the memory; false when there is no such
/// change.
inline bool die_at_change(int n, const std::vector<std::span<char>>& watched,
                          const std::function<void()>& body) {
    return !step_through(watched, body, [&] { return n-- > 0; });
}

}  // namespace weft::testing
