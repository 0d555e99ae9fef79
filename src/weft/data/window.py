"""How many tasks may be under way, so that the arena stays bounded: pure, counts in, a yes or no out.

WIN-1 What is under way and what is finished but not taken yet stays within the budget, as far as sizes are known.
WIN-2 Something is always under way or waiting to be taken until all is done, however small the budget is.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Window:
    slots: int
    """So many tasks may run or wait for a CPU."""
    budget_bytes: int
    running: int = 0
    held_bytes: int = 0
    """Of what is finished and has not been taken."""
    held: int = 0
    _seen_bytes: int = 0
    _seen: int = 0

    @property
    def expected_bytes(self) -> int:
        """What a task is expected to make, by those that are done."""
        return self._seen_bytes // self._seen if self._seen else 0

    def may_submit(self) -> bool:
        if self.running == 0 and self.held == 0:
            return True
        if self.running >= (self.slots if self._seen else max(1, self.slots // 2)):  # no size is known before the first
            return False
        return self.held_bytes + (self.running + 1) * self.expected_bytes <= self.budget_bytes

    def submitted(self) -> None:
        self.running += 1

    def finished(self, size_bytes: int) -> None:
        self.running -= 1
        self.held += 1
        self.held_bytes += size_bytes
        self._seen += 1
        self._seen_bytes += size_bytes

    def taken(self, size_bytes: int) -> None:
        self.held -= 1
        self.held_bytes -= size_bytes
