"""The jobs of a node: one for each driver that joined.

Pure. A job outlives its driver only as long as a detached actor, or a worker that one uses, still belongs to it.
"""

from __future__ import annotations

from weft.engine.state.events import DriverJoined, Process
from weft.engine.state.workers import Binding
from weft.engine.wire.messages import BindJob, DriverHello, Home

SHORT_BITS = 16
"""Of a short number: for the node, and for the driver."""
LONG = 1 << 52
"""Beside a long number: its node (20 bits) and its driver (32 bits) are below it, so that a float holds it."""


class JobNumbers:
    """One node's: no other gives the same, and none is given twice.

    A number has 32 bits, as Ray's have, until the node has had 65,535 drivers, or the cluster as many nodes.

    >>> numbers = JobNumbers(3)
    >>> numbers.next() == 3 << 16 | 1, numbers.next() == 3 << 16 | 2
    (True, True)
    """

    def __init__(self, node: int = 0) -> None:
        self._node = node
        self._given = 0

    def next(self) -> int:
        """One more."""
        self._given += 1
        if self._node >> SHORT_BITS or self._given >> SHORT_BITS:
            return LONG | self._node << 32 | self._given
        return self._node << SHORT_BITS | self._given


class Job:
    """One driver and what its workers must know."""

    __slots__ = ("driver", "hello", "id", "is_driver_alive", "is_founder", "pid")

    def __init__(self, event: DriverJoined) -> None:
        self.id = event.job
        self.driver: Process = event.process
        self.pid = event.pid
        self.is_founder = event.founder
        self.is_driver_alive = True
        self.hello: DriverHello | None = None

    def runtime_env_for(self, own: str) -> str:
        """The work's own environment, else the job's."""
        return own or (self.hello.runtime_env if self.hello else "")

    def bind(self, binding: Binding, num_cpus: float, home: Home) -> BindJob:
        """A worker's first message."""
        hello = self.hello or DriverHello(self.pid, [], "", {}, "")
        return BindJob(
            job=self.id,
            driver_pid=hello.pid,
            sys_path=hello.sys_path,
            cwd=hello.cwd,
            environment=hello.environment,
            namespace=hello.namespace,
            num_cpus=num_cpus,
            gpu_ids=list(binding.gpu_ids),
            runtime_env=binding.runtime_env,
            placement_group=binding.group,
            captures=binding.captures,
            home=home,
        )
