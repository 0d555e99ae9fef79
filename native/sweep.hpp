/// Functions, and links to dead actors, that nobody can need any more (DEF-1).
///
/// Nothing on a task's way counts their users. Who gives a function up, and the death of an actor, add to a
/// number; once that is large beside all that a sweep has to look at, one sweep frees what has no user. So
/// what is given up waits for others to be given up, and the look costs each of them a constant.
#pragma once

#include <cstddef>

namespace weft {

class ActorLinks;
class Definitions;
class Flushing;
class Objects;
class Tasks;
struct Function;

class Sweep {
  public:
    Sweep(Tasks& tasks, Objects& objects, Definitions& definitions, ActorLinks& actors, Flushing& flushing)
        : tasks_(tasks), objects_(objects), definitions_(definitions), actors_(actors), flushing_(flushing) {}

    /// One of its holders is gone.
    void give_up(Function* function);
    /// A function lost its last holder, or an actor died. Nobody up the stack may have a pointer to either.
    void may_be_unused();

  private:
    void sweep();

    Tasks& tasks_;
    Objects& objects_;
    Definitions& definitions_;
    ActorLinks& actors_;
    Flushing& flushing_;
    size_t given_up_ = 0;  ///< functions and actors since the last sweep
};

}  // namespace weft
