/// What the native tests share: CHECK, TEST, children that end with an answer, and waiting for a state.
///
///     TEST("a ring keeps the order of its records") { CHECK_EQ(1 + 1, 2); }
///     int main(int argc, char** argv) { return weft::testing::run(argc, argv); }
///
/// A failed check ends the process, also in a forked child, whose parent then fails in Child::join. Each test
/// has a minute; one that hangs is named and ends the program. An argument runs only the tests whose name
/// contains it.
#pragma once

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#ifdef __SANITIZE_THREAD__
/// A race ends the process that has it, so that a child's is not overlooked.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_options() {
    return "halt_on_error=1:atexit_sleep_ms=0";
}
#endif

namespace weft::testing {

struct Test {
    const char* name;
    void (*body)();
};

inline std::vector<Test>& tests() {
    static std::vector<Test> all;
    return all;
}

inline const char* running = "";

struct Registration {
    Registration(const char* name, void (*body)()) { tests().push_back({name, body}); }
};

[[noreturn]] inline void fail(const char* file, int line, const std::string& what) {
    fprintf(stderr, "%s:%d: \"%s\" failed in process %d: %s\n", file, line, running, int(getpid()),
            what.c_str());
    fflush(stderr);
    _exit(1);
}

template <class A, class B>
void check_equal(const A& a, const B& b, const char* text, const char* file, int line) {
    if (a == b) return;
    std::ostringstream out;
    out << text << ", but they are " << a << " and " << b;
    fail(file, line, out.str());
}

#define WEFT_JOIN_(a, b) a##b
#define WEFT_JOIN(a, b) WEFT_JOIN_(a, b)
#define TEST(name)                                                                                        \
    static void WEFT_JOIN(test_body_, __LINE__)();                                                        \
    static const weft::testing::Registration WEFT_JOIN(test_, __LINE__)(name,                             \
                                                                        WEFT_JOIN(test_body_, __LINE__)); \
    static void WEFT_JOIN(test_body_, __LINE__)()
#define CHECK(condition)                                                                  \
    do {                                                                                  \
        if (!(condition)) weft::testing::fail(__FILE__, __LINE__, "not so: " #condition); \
    } while (false)
#define CHECK_EQ(a, b) weft::testing::check_equal(a, b, #a " must equal " #b, __FILE__, __LINE__)

/// Microseconds from some moment on.
inline int64_t now_us() {
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return int64_t(t.tv_sec) * 1'000'000 + t.tv_nsec / 1000;
}

inline void pause_us(long us) {
    const timespec span{us / 1'000'000, us % 1'000'000 * 1000};
    nanosleep(&span, nullptr);
}

/// Looks again and again until the condition holds; half a minute is a failure.
template <class Condition>
void wait_for(const char* text, const char* file, int line, Condition&& condition) {
    const int64_t deadline = now_us() + 30'000'000;
    while (!condition()) {
        if (now_us() > deadline) fail(file, line, std::string("never came to be: ") + text);
        pause_us(20);
    }
}
#define EVENTUALLY(condition) \
    weft::testing::wait_for(#condition, __FILE__, __LINE__, [&]() -> bool { return (condition); })

/// Numbers that look random and are the same in each run.
class Random {
  public:
    explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15ULL + 1) {}
    uint64_t next() {
        state_ ^= state_ << 13;
        state_ ^= state_ >> 7;
        state_ ^= state_ << 17;
        return state_ * 0x2545f4914f6cdd1dULL;
    }
    /// From 0 up to and without `end`.
    uint64_t below(uint64_t end) { return (next() >> 16) % end; }

  private:
    uint64_t state_;
};

/// Something that forked children see too. Made before the fork.
template <class T>
class SharedWithChildren {
  public:
    SharedWithChildren() {
        void* at = mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) fail(__FILE__, __LINE__, "mmap");
        value_ = new (at) T{};
    }
    SharedWithChildren(const SharedWithChildren&) = delete;
    ~SharedWithChildren() { munmap(value_, sizeof(T)); }
    T& operator*() const { return *value_; }
    T* operator->() const { return value_; }

  private:
    T* value_;
};

/// A forked process that runs `body` and ends. Make it while this process has one thread.
class Child {
  public:
    explicit Child(const std::function<void()>& body) {
        fflush(stdout);
        fflush(stderr);
        pid_ = fork();
        if (pid_ < 0) fail(__FILE__, __LINE__, "fork");
        if (pid_ != 0) return;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        body();
        _exit(0);
    }
    Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, 0)) {}
    Child(const Child&) = delete;
    ~Child() {
        if (pid_ > 0) kill_now();
    }

    pid_t pid() const { return pid_; }
    /// Somebody else has waited for it.
    void forget() { pid_ = 0; }
    /// It must end by itself, and well.
    void join() {
        int status = 0;
        if (waitpid(std::exchange(pid_, 0), &status, 0) < 0) fail(__FILE__, __LINE__, "waitpid");
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) fail(__FILE__, __LINE__, "a child failed");
    }
    /// SIGKILL, and it is gone. Fails when it had failed before.
    void kill_now() {
        const pid_t pid = std::exchange(pid_, 0);
        int status = 0;
        kill(pid, SIGKILL);
        if (waitpid(pid, &status, 0) < 0) fail(__FILE__, __LINE__, "waitpid");
        if (WIFEXITED(status) && WEXITSTATUS(status) != 0) fail(__FILE__, __LINE__, "a child failed");
    }

  private:
    pid_t pid_;
};

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || !defined(__x86_64__)
constexpr unsigned kHangSeconds = 600;  ///< what is instrumented or emulated, on a machine that does more
#else
constexpr unsigned kHangSeconds = 240;
#endif

inline void on_alarm(int) {
    static const char text[] = "hung: ";
    [[maybe_unused]] ssize_t n = write(2, text, sizeof text - 1);
    n = write(2, running, strlen(running));
    n = write(2, "\n", 1);
    _exit(2);
}

inline int run(int argc, char** argv) {
    signal(SIGALRM, on_alarm);
    for (const Test& test : tests()) {
        if (argc > 1 && strstr(test.name, argv[1]) == nullptr) continue;
        running = test.name;
        const int64_t start = now_us();
        alarm(kHangSeconds);
        test.body();
        alarm(0);
        printf("%6lld ms  %s\n", static_cast<long long>((now_us() - start) / 1000), test.name);
        fflush(stdout);
    }
    return 0;
}

}  // namespace weft::testing

using namespace weft::testing;

int main(int argc, char** argv) {
    return weft::testing::run(argc, argv);
}
