"""The jobs of a node: one for each driver that joined.

Pure. A job outlives its driver only as long as a detached actor, or a worker that one uses, still belongs to it.
"""

from __future__ import annotations

from weft.engine.state.events import DriverJoined, Process
from weft.engine.state.workers import Binding
from weft.engine.wire.messages import BindJob, DriverHello, Home


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
