/// A signal to one thread, again and again until it is stopped.
#pragma once

#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <cstring>

namespace weft {

/// One signal alone can be lost on a thread of Python: when it comes after the interpreter has looked for
/// signals and before the system call that it is about to make, that call blocks, and nobody looks again. The
/// kernel's timer needs no thread of ours to be awake.
class RepeatedSignal {
  public:
    /// To the thread that makes this.
    explicit RepeatedSignal(int number) : number_(number), thread_(pthread_self()), tid_(gettid()) {}
    RepeatedSignal(const RepeatedSignal&) = delete;
    ~RepeatedSignal() {
        if (has_timer_) timer_delete(timer_);
    }

    void start() {
        if (!has_timer_) {
            sigevent event;
            memset(&event, 0, sizeof event);
            event.sigev_notify = SIGEV_THREAD_ID;
            event.sigev_signo = number_;
            event._sigev_un._tid = tid_;
            has_timer_ = timer_create(CLOCK_MONOTONIC, &event, &timer_) == 0;
        }
        set(1, kEveryNs);
        if (!has_timer_) pthread_kill(thread_, number_);  // the kernel gives none: the first is all there is
    }
    void stop() { set(0, 0); }

  private:
    static constexpr long kEveryNs = 20'000'000;

    void set(long first_ns, long every_ns) {
        const itimerspec when{{0, every_ns}, {0, first_ns}};
        if (has_timer_) timer_settime(timer_, 0, &when, nullptr);
    }

    int number_;
    pthread_t thread_;
    pid_t tid_;
    timer_t timer_{};
    bool has_timer_ = false;
};

}  // namespace weft
