/// What is around a core that has no rings, no threads and no clock of its own: a simulation, which takes
/// what it sends and tells it the time (virtual_process.hpp).
#pragma once

#include "wire.hpp"

namespace weft {

class Outside {
  public:
    virtual void send(ProcessId to, Kind kind, const char* data, size_t bytes) = 0;
    /// As the node knows it, which may not have heard of a death yet.
    virtual bool is_alive(ProcessId process) const = 0;
    virtual int64_t now_ns() const = 0;

  protected:
    ~Outside() = default;
};

}  // namespace weft
