"""What collective operations raise (every member of the group, each with the rank that is at fault), and trainers."""

from __future__ import annotations

from typing import Any

from weft.exceptions import WeftError

__all__ = ["GroupError", "GroupTimeoutError", "MemberLostError", "MismatchError", "WorkersLostError"]


class GroupError(WeftError):
    """A collective operation failed. `rank` is the member at fault, `operation` what was asked for."""

    def __init__(self, message: str, rank: int, operation: str) -> None:
        super().__init__(message)
        self.rank = rank
        self.operation = operation

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.rank, self.operation)


class MemberLostError(GroupError):
    """A member died, left, or failed before the operation was over. The group is of no more use."""


class MismatchError(GroupError, ValueError):
    """The members asked for different operations, types or shapes. Nothing was done; the group can be used on."""


class GroupTimeoutError(GroupError, TimeoutError):
    """A member did not come in time. The group is of no more use."""


class WorkersLostError(WeftError):
    """A trainer could not get enough workers, or lost them too often. Resume it from its last checkpoint."""
