"""How large blocks are and into how many parts an exchange goes, by the sizes of the arena and of the data. Pure."""

from __future__ import annotations

from dataclasses import dataclass

TARGET_BLOCK_BYTES = 64 * 2**20
"""How large blocks are made where there is a choice, in memory."""
ARENA_SHARE = 0.25
"""Of the arena, for what is under way in one execution."""
ENTRY_BYTES = 64 * 2**10
"""The arena has an entry for an object, in memory or spilled, for each so many bytes of it."""


@dataclass(frozen=True)
class Sizing:
    cpus: int
    arena_bytes: int

    @property
    def budget_bytes(self) -> int:
        return int(self.arena_bytes * ARENA_SHARE)

    @property
    def largest_part_bytes(self) -> int:
        """A task of each CPU, its inputs and its output must fit into the arena together."""
        return max(1, self.arena_bytes // (8 * self.cpus))

    @property
    def block_bytes(self) -> int:
        return min(TARGET_BLOCK_BYTES, self.largest_part_bytes)

    def parts(self, total_bytes: int) -> int:
        """Of an exchange. As large as blocks, but larger if a piece of each block for each part would be more objects
        than half of what the arena has entries for."""
        blocks = max(1, -(-total_bytes // self.block_bytes))
        allowed = self.arena_bytes // (2 * ENTRY_BYTES) // blocks
        least = -(-total_bytes // self.largest_part_bytes)
        return max(self.cpus, least, min(blocks, allowed))
