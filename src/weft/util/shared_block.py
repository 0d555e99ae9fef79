"""A block of the node's shared segment that several processes read and write together, for collective operations.

A block is an object in the arena like any other: made by `SharedBlock.create`, passed to the processes that share it
as an argument, kept while one of them has it. `member(rank)` is the native end of it: `GroupMember.perform` moves and
reduces arrays through the block without the GIL and without any daemon. `weft.train.Group` is the friendly face of
this; libraries that need other collective operations build on it too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import weft
from weft._native import GroupMember, exchange_bytes, reduce_arrays

__all__ = [
    "ELEMENT_TYPES",
    "GONE",
    "OPERATIONS",
    "REDUCTIONS",
    "GroupMember",
    "SharedBlock",
    "exchange_bytes",
    "reduce_arrays",
]

# The index is the native number: collective_reduce.hpp and collective.hpp.
ELEMENT_TYPES = (
    "float32",
    "float64",
    "bfloat16",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "bool",
)
REDUCTIONS = ("sum", "prod", "min", "max", "mean")
OPERATIONS = (
    "join",
    "barrier",
    "all_reduce",
    "reduce",
    "reduce_scatter",
    "all_gather",
    "gather",
    "scatter",
    "broadcast",
    "all_to_all",
    "send",
    "refused",
)
GONE = ("present", "died", "left", "was interrupted", "timed out", "failed")


@dataclass(frozen=True)
class SharedBlock:
    """Zeroed shared memory for a group of so many members, on the node that made it."""

    size: int
    slot_bytes: int
    node_id: str
    ref: Any

    @classmethod
    def create(cls, size: int, slot_bytes: int) -> SharedBlock:
        """`slot_bytes` is how much of each member's array is on its way at a time."""
        memory = np.zeros(GroupMember.block_bytes(size, slot_bytes), np.uint8)
        return cls(size, slot_bytes, weft.get_runtime_context().get_node_id(), weft.put(memory))

    def member(self, rank: int, timeout_s: float) -> GroupMember:
        """This process as the member `rank`. Raises ValueError on another node than the block's."""
        node_id = weft.get_runtime_context().get_node_id()
        if node_id != self.node_id:
            raise ValueError(
                f"rank {rank} is on node {node_id}, but the block is on node {self.node_id}: a shared block does not "
                "reach beyond its node. Place all members on one node, as by NodeAffinitySchedulingStrategy."
            )
        return GroupMember(weft.get(self.ref), self.size, self.slot_bytes, rank, timeout_s)
