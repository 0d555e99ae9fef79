/// Death between any two instructions: a child is run one instruction at a time, and whoever survives it
/// looks at what it has left in shared memory after each change.
#pragma once

#include <sched.h>
#include <sys/ptrace.h>
#include <sys/user.h>

#include <set>
#include <span>

#include "check.hpp"

namespace weft::testing {

#if defined(__SANITIZE_THREAD__)
// A step of ours is thousands of its own, and it has nothing to say about death.
constexpr bool kCanStep = false;
#elif !defined(__x86_64__)
constexpr bool kCanStep = false;  // qemu-user, which runs the tests of other processors, has no ptrace
#else
constexpr bool kCanStep = true;
#endif

/// In the child: lets the parent do something meanwhile.
inline void your_turn() {
    raise(SIGUSR1);
}

/// While there is one, this process and its children are on one core: a step costs half as much.
class OneCore {
  public:
    OneCore() {
        sched_getaffinity(0, sizeof before_, &before_);
        cpu_set_t one;
        CPU_ZERO(&one);
        for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
            if (CPU_ISSET(cpu, &before_)) CPU_SET(cpu, &one);
        sched_setaffinity(0, sizeof one, &one);
    }
    ~OneCore() { sched_setaffinity(0, sizeof before_, &before_); }
    OneCore(const OneCore&) = delete;

  private:
    cpu_set_t before_;
};

/// Runs `body` in a child and calls `look` first and whenever the watched memory has changed; the child is
/// killed when `look` returns false. At each your_turn(), `respond` is called. Returns whether the body came
/// to its end.
inline bool step_through(
    const std::vector<std::span<char>>& watched, const std::function<void()>& body,
    const std::function<bool()>& look, const std::function<void()>& respond = [] {}) {
    const OneCore here;
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
    return ended;
}

/// Kills a child that runs `body` right after its n-th change of the memory; false when there is no such
/// change.
inline bool die_at_change(int n, const std::vector<std::span<char>>& watched,
                          const std::function<void()>& body) {
    return !step_through(watched, body, [&] { return n-- > 0; });
}

/// A child that runs `body` and has come to its first your_turn().
class Traced {
  public:
    explicit Traced(const std::function<void()>& body)
        : child_([&] {
              if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(77);
              body();
          }) {
        if (wait() != SIGUSR1) fail(__FILE__, __LINE__, "this system does not let a process trace its child");
    }
    /// Each returns the signal that it was stopped by; 0: it is at its end.
    int step() { return ptrace(PTRACE_SINGLESTEP, child_.pid(), nullptr, nullptr), wait(); }
    int run() { return ptrace(PTRACE_CONT, child_.pid(), nullptr, nullptr), wait(); }
    /// As a child of the same parent, it has everything at the same addresses.
    uint64_t at() const { return uint64_t(ptrace(kReadRegister, child_.pid(), kRip, nullptr)); }
    /// Whether it comes by that instruction before it stops by itself. It stands before it then.
    bool run_to(uint64_t instruction) {
        const long before = ptrace(PTRACE_PEEKTEXT, child_.pid(), instruction, nullptr);
        ptrace(PTRACE_POKETEXT, child_.pid(), instruction, (before & ~0xffL) | 0xcc);
        const bool came = run() == SIGTRAP;
        ptrace(PTRACE_POKETEXT, child_.pid(), instruction, before);
        if (came) ptrace(kWriteRegister, child_.pid(), kRip, instruction);
        return came;
    }
    /// To its end, which must be a good one.
    void end() {
        while (run() != 0) {
        }
    }

  private:
#if defined(__x86_64__)
    static constexpr auto kReadRegister = PTRACE_PEEKUSER, kWriteRegister = PTRACE_POKEUSER;
    static constexpr size_t kRip = offsetof(user, regs.rip);
#else  // other processors have other words for it; nobody asks where kCanStep is false
    static constexpr auto kReadRegister = PTRACE_PEEKDATA, kWriteRegister = PTRACE_POKEDATA;
    static constexpr size_t kRip = 0;
#endif
    int wait() {
        int status = 0;
        waitpid(child_.pid(), &status, 0);
        if (WIFSTOPPED(status)) return WSTOPSIG(status);
        child_.forget();
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) fail(__FILE__, __LINE__, "the child failed");
        return 0;
    }
    Child child_;
};

/// The instructions that `body` runs between its two your_turn()s, each once.
inline std::vector<uint64_t> instructions_of(const std::function<void()>& body) {
    const OneCore here;
    Traced traced(body);
    std::vector<uint64_t> found;
    std::set<uint64_t> known;
    while (traced.step() == SIGTRAP)
        if (known.insert(traced.at()).second) found.push_back(traced.at());
    traced.end();
    return found;
}

/// Calls `act` while a child that runs `body` is before that instruction; false when it does not come there.
inline bool interrupt_at(uint64_t instruction, const std::function<void()>& body,
                         const std::function<void()>& act) {
    const OneCore here;
    Traced traced(body);
    const bool came = traced.run_to(instruction);
    if (came) act();
    traced.end();
    return came;
}

}  // namespace weft::testing
