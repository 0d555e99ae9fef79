/// What libFuzzer gives to everything in the native core that reads bytes of another process or node. The
/// first byte chooses the reader, the second what it is told besides. A reader may refuse in the one way that
/// it has for that; anything else is a bug. `make fuzz-native` builds and runs it.
#include <stdexcept>

#include "node_port.hpp"
#include "record_check.hpp"

using namespace weft;

namespace {

constexpr uint32_t kHere = 1, kThere = 2;

/// A node's end of the segment, with a process of its own and one that it knows of another node.
struct Node {
    NodePort port{1 << 20};
    ProcessId process = port.reserve_slot();
    ProcessId far = port.add_proxy({kThere, {5, 50}});

    std::unique_ptr<Segment> segment = Segment::attach(port.segment_fd());

    uint64_t batches = 0;

    Node() { port.forwarding().names.node = kHere; }
};

Node& node() {
    static Node made;
    return made;
}

/// A record that a process or the daemon left in a ring.
void record(uint8_t kind, std::string_view bytes) {
    is_whole(*node().segment, Kind(kind % kKinds), bytes.data(), bytes.size());
}

/// A batch of another node, with and without an error that stands for what has no name here.
void batch(uint8_t with_refusal, std::string_view bytes) {
    Node& here = node();
    const std::string_view refusal = with_refusal % 2 ? "S\x0ano room" : "";
    try {
        while (!bytes.empty()) {
            const Delivery got = here.port.forwarding().deliver(kThere, bytes.data(), bytes.size(), refusal);
            bytes.remove_prefix(got.consumed);
            if (got.stop == Delivery::Stop::none) break;
            if (got.stop == Delivery::Stop::names) {  // which nobody makes here: the record is left out
                LinkRecord left;
                memcpy(&left, bytes.data(), sizeof left);
                bytes.remove_prefix(sizeof left + left.bytes);
            }
        }
    } catch (const std::invalid_argument&) {
    }
    if (++here.batches % 64 != 0) return;  // what it costs to read them is not what is looked at
    here.port.drain();
    if (here.port.statistics().ring_blocks_used > 8)
        abort();  // one peer's records open no rings of their own
}

/// A row of a dead process's ledger: as its node sends it, and as it comes here.
void row(uint8_t dead, std::string_view bytes) {
    Delivery out;
    Forwarding& forwarding = node().port.forwarding();
    try {
        if (dead % 2)
            forwarding.row_out(std::string(bytes));
        else
            forwarding.row_in(std::string(bytes), {kThere, {dead, 50}}, out);
    } catch (const std::invalid_argument&) {
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
    if (bytes < 2) return 0;
    constexpr void (*kReaders[])(uint8_t, std::string_view) = {record, batch, row};
    // A copy of its own size, so that a read past the end is one past an allocation.
    const std::string given(reinterpret_cast<const char*>(data) + 2, bytes - 2);
    kReaders[data[0] % std::size(kReaders)](data[1], given);
    return 0;
}
