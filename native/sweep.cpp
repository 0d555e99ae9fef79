#include "sweep.hpp"

#include "actor_links.hpp"
#include "definitions.hpp"
#include "flushing.hpp"
#include "objects.hpp"
#include "tasks.hpp"

namespace weft {

namespace {

/// So many may wait for a sweep, whatever it costs; and one for so many that it looks at.
constexpr size_t kUnusedKept = 64;
constexpr size_t kLookedAtEach = 8;

}  // namespace

void Sweep::give_up(Function* function) {
    if (--function->holders == 0) may_be_unused();
}

void Sweep::may_be_unused() {
    const size_t looked_at = tasks_.used() + objects_.used() + definitions_.functions() + actors_.count();
    if (++given_up_ > kUnusedKept + looked_at / kLookedAtEach) sweep();
}

void Sweep::sweep() {
    given_up_ = 0;
    definitions_.mark_held(flushing_.is_any_on_disk());
    actors_.mark_living(flushing_.is_any_on_disk());
    tasks_.each([](const Task* task) {
        if (task->function != nullptr) task->function->is_used = true;
        if (task->actor != nullptr) task->actor->is_used = true;
    });
    // Who has a handle must go on hearing why the actor is dead.
    objects_.each([this](const Entry* entry) {
        if (entry->is_actor) actors_.mark_used(entry->id);
    });
    definitions_.forget_unused();
    actors_.forget_unused();
}

}  // namespace weft
