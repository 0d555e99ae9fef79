/// What processes and objects are called on a link, where every node has numbers of its own.
///
/// A name keeps its place and its size in a record: the node goes into bits that no segment uses, above a
/// process's slot and above an object's size. So a record is translated where it lies.
#pragma once

#include <algorithm>
#include <deque>
#include <optional>
#include <unordered_map>
#include <vector>

#include "arena.hpp"

namespace weft {

/// A process of some node, as that node's segment knows it.
struct FarProcess {
    uint32_t node = 0;
    ProcessId id;
    bool operator==(const FarProcess&) const = default;
};

/// An object of some node.
struct FarObject {
    uint32_t node = 0;
    uint32_t entry = 0;
    uint32_t generation = 0;
    uint64_t bytes = 0;
};

constexpr uint32_t kSlotBits = 14;
static_assert(kMostSlots == 1u << kSlotBits);
constexpr uint32_t kSizeBits = 44;
constexpr uint32_t kMaxNode = std::min(1u << (64 - kSizeBits), 1u << (32 - kSlotBits)) - 2;

/// Slot 0 inside a record means nobody, on every node: it stays 0.
inline ProcessId to_link(const FarProcess& who) {
    if (who.id.slot == 0) return who.id;
    return {((who.node + 1) << kSlotBits) | who.id.slot, who.id.generation};
}
inline FarProcess process_from_link(ProcessId name) {
    if (name.slot < kMostSlots) return {0, {0, name.generation}};
    return {(name.slot >> kSlotBits) - 1, {name.slot & (kMostSlots - 1), name.generation}};
}
inline ArenaRef to_link(const FarObject& what) {
    return {what.entry, what.generation, what.bytes | uint64_t(what.node) << kSizeBits};
}
inline FarObject object_from_link(const ArenaRef& name) {
    return {uint32_t(name.bytes >> kSizeBits), name.entry, name.generation,
            name.bytes & ((uint64_t(1) << kSizeBits) - 1)};
}

/// Who the proxies of this node stand for, and where its imports come from. Used by the daemon's one thread.
class LinkNames {
  public:
    uint32_t node = 0;  ///< this node's own number

    void add_proxy(ProcessId proxy, const FarProcess& who);
    /// It is dead. Its name is kept for a while: records may still speak of it.
    void remove_proxy(ProcessId proxy);
    /// Whom that living proxy stands for.
    std::optional<FarProcess> of_proxy(ProcessId proxy) const;
    FarProcess far(ProcessId process) const;
    /// This node's name for it, when it has one.
    std::optional<ProcessId> local(const FarProcess& who) const;

    void add_import(const ArenaRef& entry, const FarObject& origin);
    void remove_import(uint32_t entry, uint32_t generation);
    /// Where the bytes of an import are; empty when it is an object of this node.
    std::optional<FarObject> origin(uint32_t entry, uint32_t generation) const;
    std::optional<ArenaRef> local(const FarObject& origin) const;

  private:
    struct Living {
        ProcessId proxy;
        std::optional<FarProcess> who;
    };
    struct ProcessHash {
        size_t operator()(const FarProcess& p) const {
            return size_t(Id::mix(p.id.key() ^ (uint64_t(p.node) << 40)));
        }
    };
    struct Origin {
        uint32_t node, entry, generation;
        bool operator==(const Origin&) const = default;
    };
    struct OriginHash {
        size_t operator()(const Origin& o) const {
            return size_t(Id::mix((uint64_t(o.node) << 44) ^ (uint64_t(o.entry) << 22) ^ o.generation));
        }
    };
    static uint64_t key(uint32_t entry, uint32_t generation) { return uint64_t(generation) << 32 | entry; }

    std::vector<Living> by_slot_;  ///< of far slots, from kFarSlots on
    std::unordered_map<FarProcess, ProcessId, ProcessHash> proxies_;
    std::unordered_map<uint64_t, FarProcess> dead_;
    std::deque<uint64_t> dead_order_;
    std::unordered_map<uint64_t, FarObject> imports_;
    std::unordered_map<Origin, ArenaRef, OriginHash> by_origin_;
};

}  // namespace weft
