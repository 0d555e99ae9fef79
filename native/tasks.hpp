/// The tasks of this process, and the names by which others answer for them.
#pragma once

#include "pool.hpp"
#include "task.hpp"

namespace weft {

class Tasks {
  public:
    Task* new_task() {
        Task* task = pool_.take();
        task->index = pool_.number(task);
        task->generation = ++last_generation_;  // also one that was let go and made again has a new one
        return task;
    }
    /// Null when that task is over.
    Task* task_at(uint64_t cookie) {
        Task* task = pool_.at(uint32_t(cookie));
        return task != nullptr && task->generation == uint32_t(cookie >> 32) ? task : nullptr;
    }
    /// Its cookie finds it no longer.
    void forget_cookie(Task* task) {
        // One that is older than the last wrap of the numbers is not later than those behind it.
        const uint32_t had = task->generation++;
        if (int32_t(had - last_generation_) > 0) last_generation_ = had;
    }
    void give_back(Task* task) { pool_.give_back(task); }
    template <class Look>
    void each(Look&& look) {
        pool_.each(look);
    }
    uint32_t last_generation() const { return last_generation_; }
    size_t used() const { return pool_.used(); }
    /// After much was let go: its pages go back to the system.
    void trim();

  private:
    Pool<Task> pool_;
    uint32_t last_generation_ = 0;  ///< no task has had a later one
    uint64_t trimmed_at_ = 0;       ///< how many chunks had been let go when the heap was trimmed last
};

}  // namespace weft
