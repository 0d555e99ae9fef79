/// Moving bytes over several connected sockets at the same time, both ways.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace weft::collective {

/// One end: what is to be sent and what is to come, in this order. The socket does not block.
struct Flow {
    int socket;
    std::vector<std::pair<const char*, size_t>> out;
    std::vector<std::pair<char*, size_t>> in;
};

struct Exchanged {
    enum Kind { done, closed, silent, interrupted } kind = done;
    size_t flow = 0;  ///< closed, silent: which one
};

/// Until all is sent and received. Silent: nothing moved for `quiet_ns` (without bound when negative).
/// `look_up` is asked about twice a second while nothing moves, and ends it by false.
Exchanged exchange(std::vector<Flow>& flows, int64_t quiet_ns, const std::function<bool()>& look_up);

}  // namespace weft::collective
