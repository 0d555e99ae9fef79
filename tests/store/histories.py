"""Is a history of operations on one row linearizable? The search of Wing and Gong, remembering what it has seen."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass
class Operation:
    """From the call to its answer; without an answer it may take effect at any time, or never."""

    kind: str
    """put, put_if_absent, delete or read."""
    value: bytes | None
    called: float
    answered: float = math.inf
    result: object = None

    @property
    def is_answered(self) -> bool:
        return self.answered < math.inf

    def applied_to(self, state: bytes | None) -> tuple[bool, bytes | None]:
        """Whether its answer fits that state, and the state after it."""
        if self.kind == "read":
            return self.result == state, state
        if self.kind == "delete":
            return True, None
        if self.kind == "put":
            return True, self.value
        holds = state is None
        fits = not self.is_answered or self.result == holds
        return fits, self.value if holds else state


def is_linearizable(history: list[Operation]) -> bool:
    """Whether some order of all answered operations, and any of the others, explains every answer."""
    operations = sorted(
        (one for one in history if one.is_answered or one.kind != "read"), key=lambda one: (one.called, one.answered)
    )
    answered = sum(1 << index for index, one in enumerate(operations) if one.is_answered)
    seen: set[tuple[int, bytes | None]] = set()
    stack: list[tuple[int, bytes | None]] = [(0, None)]
    while stack:
        done, state = stack.pop()
        if done & answered == answered:
            return True
        if (done, state) in seen:
            continue
        seen.add((done, state))
        earliest_answer = math.inf
        for index, one in enumerate(operations):
            if done >> index & 1:
                continue
            if one.called > earliest_answer:
                break
            earliest_answer = min(earliest_answer, one.answered)
        for index, one in enumerate(operations):
            if one.called > earliest_answer:
                break
            if done >> index & 1:
                continue
            fits, after = one.applied_to(state)
            if fits:
                stack.append((done | 1 << index, after))
    return False
