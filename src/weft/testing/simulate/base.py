"""What the parts of a simulated process share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from weft.testing.simulate.program import Program, Run

if TYPE_CHECKING:
    from weft.engine.wire.link_messages import GlobalProcess
    from weft.testing.simulate.node import SimNode


class ProcessBase:
    """A process's place, its time, and what `process.Process` does for the other parts."""

    def __init__(self, node: SimNode, name: tuple[int, int], is_worker: bool) -> None:
        self.node = node
        self.name = name
        self.is_worker = is_worker
        self.is_dead = False
        self.is_over = False
        """A driver's program has ended."""
        self._clock = node.cluster.clock
        self._costs = node.cluster.costs
        self._stats = node.cluster.stats
        self._cpu_free = 0.0

    @property
    def global_name(self) -> tuple[int, int, int]:
        return (self.node.number, *self.name)

    def busy(self, work_s: float) -> float:
        """When this process has done so much more work."""
        begin = self._cpu_free if self._cpu_free > self._clock.now else self._clock.now
        self._cpu_free = begin + work_s / self.node.speed
        return self._cpu_free

    def tell_daemon(self, kind: int, payload: bytes = b"") -> None:
        self.node.record_sent(self, kind, payload)

    def run_program(self, program: Program, over: Callable[[], None]) -> None:
        raise NotImplementedError

    def answer_came(self, worker: GlobalProcess, run: Run, indices: list[int], took_s: float) -> None:
        raise NotImplementedError

    def handed_back(self, worker: GlobalProcess, runs: list[tuple[Run, list[int]]]) -> None:
        raise NotImplementedError
