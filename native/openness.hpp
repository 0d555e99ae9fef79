/// Whether the task's own code runs, which an interrupt may cut; the engine's is not to be cut.
#pragma once

#include <utility>

namespace weft {

/// For as long as it lives the task may be interrupted, or may not.
class Openness {
  public:
    Openness(bool& is_open, bool value) : is_open_(is_open), before_(std::exchange(is_open, value)) {}
    Openness(const Openness&) = delete;
    ~Openness() { is_open_ = before_; }

  private:
    bool& is_open_;
    bool before_;
};

}  // namespace weft
