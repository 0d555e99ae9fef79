"""How large blocks are and into how many parts an exchange goes, by the sizes of the arena and of the data. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

TARGET_BLOCK_BYTES = 64 * 2**20
"""How large blocks are made where there is a choice, in memory."""
INPUTS_A_CPU = 32
"""Small inputs are put together, but for so many tasks a CPU."""
ARENA_SHARE = 0.25
"""Of the arena, for what is under way in one execution."""
LEAST_ENTRIES, ENTRY_BYTES = 16_384, 64 * 2**10
"""The arena has an entry for an object, in memory or spilled, for each so many bytes of it, and at least so many."""


@dataclass(frozen=True)
class BlockSizes:
    """How large blocks should be, and from which size on one is cut."""

    target_bytes: int = TARGET_BLOCK_BYTES
    most_bytes: int = 4 * TARGET_BLOCK_BYTES


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

    @property
    def block_sizes(self) -> BlockSizes:
        return BlockSizes(
            self.block_bytes, max(2 * self.block_bytes, min(4 * self.block_bytes, self.largest_part_bytes))
        )

    def runs(self, sizes: Sequence[int]) -> list[slice]:
        """Which neighbours one task takes together, of inputs of these sizes. Only where there are so many of them that
        every CPU has enough to do all the same, and never more than a block."""
        most = -(-len(sizes) // (INPUTS_A_CPU * self.cpus))
        made: list[slice] = []
        first = total = 0
        for number, size in enumerate(sizes):
            if number > first and (number - first >= most or total + size > self.block_bytes):
                made.append(slice(first, number))
                first, total = number, 0
            total += size
        return [*made, slice(first, len(sizes))] if sizes else []

    @property
    def most_part_bytes(self) -> int:
        """A part that came out larger than this is divided once more: it would not fit with those of the other CPUs."""
        return 2 * self.largest_part_bytes

    @property
    def most_pieces(self) -> int:
        """Of one exchange, so that the arena has entries left for what else there is."""
        return max(LEAST_ENTRIES, self.arena_bytes // ENTRY_BYTES) // 2

    def parts(self, total_bytes: int, blocks: int = 0) -> int:
        """Of an exchange of so many bytes in so many blocks. As large as blocks, but larger if a piece of each block
        for each part would be too many objects; those that are then too large are divided once more."""
        wanted = -(-total_bytes // self.block_bytes)
        rounds = -(-wanted // self.cpus)  # in the last one, too, every CPU has something to do
        allowed = self.most_pieces // max(1, wanted, blocks) // self.cpus
        return self.cpus * max(1, min(rounds, allowed))
