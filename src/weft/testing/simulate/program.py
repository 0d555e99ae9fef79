"""What simulated programs are made of: functions, runs of tasks, actors, groups, and the steps that a program takes.

A program (a driver's, or the body of a task) is a generator that yields steps and is sent their results:

    def program(me):
        mapped = yield Submit(Function("map", duration_s=0.001), count=100)
        yield Get([mapped])
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

if TYPE_CHECKING:
    from weft.testing.simulate.base import ProcessBase
    from weft.testing.simulate.executor import Executor

INLINE_BYTES = 64 << 10
"""Larger results stay on the node that made them until somebody reads them."""


class Function:
    """What tasks run. Its duration may depend on the task's index; a body is a program of its own."""

    def __init__(
        self,
        name: str,
        duration_s: float | Callable[[int], float] = 0.0,
        body: Callable[[Executor, int], Program] | None = None,
        result_bytes: int = 0,
        resources: dict[str, float] | None = None,
        strategy: dict[str, str | int | bool] | None = None,
        max_retries: int = 3,
    ) -> None:
        self.name = name
        self.duration_s = duration_s
        self.body = body
        self.result_bytes = result_bytes
        self.resources = {"CPU": 1.0} if resources is None else resources
        self.strategy = strategy or {}
        self.max_retries = max_retries

    def takes(self, index: int) -> float:
        return self.duration_s if isinstance(self.duration_s, float) else self.duration_s(index)


class Bunch:
    """Tasks of one function that were submitted together, and the ref to all of their results."""

    __slots__ = (
        "actor", "args", "completed", "count", "done", "failed", "function", "lost", "missing", "number", "origins",
        "owner", "started", "submitted_at", "waiters",
    )  # fmt: skip

    def __init__(
        self, number: int, function: Function, count: int, owner: ProcessBase, args: list[Bunch], now: float
    ) -> None:
        self.number = number
        """In the whole simulation; the native core names its tasks by it and their index."""
        self.function = function
        self.count = count
        self.owner = owner
        self.args = args
        """Whose results the tasks read: task i those of index i where counts are equal, else all."""
        self.actor: bytes | None = None
        self.submitted_at = now
        self.done = 0
        """Tasks whose result, or error, the owner has."""
        self.failed = 0
        self.started = 0
        """Executions begun."""
        self.lost = 0
        """Executions that a death ended, or may have."""
        self.completed: dict[int, int] | None = {} if count <= 4096 else None
        """How often each task's result was taken, where there are few."""
        self.missing = 0
        self.origins: dict[int, int] = {}
        """Where large results are: a node for each task."""
        self.waiters: list[Callable[[], None]] = []

    @property
    def is_done(self) -> bool:
        return self.done >= self.count


class Run:
    """Tasks of a bunch that were pushed to a worker together."""

    __slots__ = ("begun", "bunch", "indices", "is_lost", "left")

    def __init__(self, bunch: Bunch, indices: list[int]) -> None:
        self.bunch = bunch
        self.indices = indices
        self.left = len(indices)
        """Neither answered nor handed back."""
        self.begun = 0
        """Executions that have begun and are not answered; nobody but the simulator knows."""
        self.is_lost = False
        """Who pushed it takes the worker for dead."""

    def began(self, count: int) -> None:
        """So many executions (fewer, when one is cut short). A worker that is taken for dead may not know it yet."""
        self.bunch.started += count
        self.begun += count
        if self.is_lost:
            self.bunch.lost += count

    def lose(self) -> None:
        """What has begun and is not answered may have been done or not."""
        self.is_lost = True
        self.bunch.lost += self.begun


class Step(msgspec.Struct, frozen=True):
    """Base of what a program can do."""


class Compute(Step, frozen=True):
    seconds: float


class Submit(Step, frozen=True):
    """Its result is the Bunch."""

    function: Any
    count: int = 1
    args: list[Any] = []
    escapes: bool = False
    """Refs to the results go to other processes: the lineage goes to the control store."""


class Get(Step, frozen=True):
    """Wait for all, and read what they are. Its result is how many tasks failed."""

    bunches: list[Any]


class CreateActor(Step, frozen=True):
    """Its result is the actor's id."""

    resources: dict[str, float] = {}
    max_restarts: int = 0
    init_s: float = 0.001


class Call(Step, frozen=True):
    """Calls on an actor; the result is the Bunch."""

    actor: Any
    count: int = 1
    seconds: float = 0.0
    retries: int = 0


class KillActor(Step, frozen=True):
    actor: Any


class CreateGroup(Step, frozen=True):
    """Its result is the group's id, once it is placed; None when it was removed before."""

    bundles: list[dict[str, float]]
    strategy: str = "PACK"


class RemoveGroup(Step, frozen=True):
    group: bytes


Program: TypeAlias = Generator[Step, Any, None]
