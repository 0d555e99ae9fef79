"""What collective operations raise (every member of the group, each with the rank that is at fault), and trainers."""

from __future__ import annotations

from typing import Any

from weft.exceptions import WeftError

__all__ = [
    "DivergedError",
    "GroupError",
    "GroupTimeoutError",
    "HangError",
    "MemberLostError",
    "MismatchError",
    "WorkersLostError",
]


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


class HangError(WeftError, TimeoutError):
    """No rank of a training has reported for too long. The message has the stacks of all ranks, `suspects` those that
    seem to hold up the others."""

    def __init__(self, message: str, suspects: tuple[int, ...]) -> None:
        super().__init__(message)
        self.suspects = suspects

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.suspects)


class DivergedError(WeftError, ArithmeticError):
    """A guarded metric is no finite number, or too large. The checkpoint that came with it is not kept; `checkpoint` is
    the last good one."""

    def __init__(self, trainer: str, metric: str, value: float, report: int, checkpoint: str | None) -> None:
        super().__init__(trainer, metric, value, report, checkpoint)
        self.trainer, self.metric, self.value, self.report, self.checkpoint = trainer, metric, value, report, checkpoint

    def __str__(self) -> str:
        return (
            f"{self.trainer}: {self.metric!r} is {self.value} at report {self.report}, beyond what guards allow. The "
            f"last good checkpoint is {self.checkpoint}: go on from it with a smaller step, or clip gradients."
        )
