"""What a daemon knows of its nodes, processes, actors and jobs, as rows for whoever asks.

Runs in the daemon's thread, and changes nothing.
"""

from __future__ import annotations

import itertools
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from weft.engine.node.methods import Asker
from weft.engine.node.operations import Pending
from weft.engine.state.actors import Actor, Stage
from weft.engine.state.cluster import NODE_ID_LABEL
from weft.engine.state.events import Process
from weft.engine.state.instructions import Fault
from weft.engine.state.node import NodeState
from weft.engine.state.resources import to_floats
from weft.ids import worker_id
from weft.inspection.survey import MOST_ROWS

if TYPE_CHECKING:
    from weft.engine.wire.link_messages import Member

Row = TypeVar("Row")


class Listing:
    """The rows of one daemon."""

    def __init__(
        self,
        state: NodeState,
        node_id: str,
        address: str,
        labels: dict[str, str],
        place_of: Callable[[Process], tuple[str, Process]],
    ) -> None:
        self._state = state
        self._node_id = node_id
        self._address = address
        self._labels = labels
        self.members: Callable[[], list[tuple[Member, dict[str, float]]]] = list
        """The nodes of the cluster and what they have free, this one first; none where there is no cluster."""
        self.pids_of: Callable[[set[str]], Pending] = lambda nodes: Pending.of([])
        """What these nodes of the cluster answer: of each {worker id: pid}."""
        self._place_of = place_of
        """Of a process that is known here: its node's id, and what that node calls it."""

    # ---- processes ----

    def processes(self) -> list[Process]:
        """Of this node: drivers, and workers that have run something. A driver of another node answers that one."""
        drivers = [
            process
            for process, job in self._state.drivers.items()
            if job.is_driver_alive and self._place_of(process)[0] == self._node_id
        ]
        workers = [worker.process for worker in self._state.workers if worker.pid and worker.binding is not None]
        return [*drivers, *workers]

    def describe(self, process: Process, row: dict[str, Any]) -> dict[str, Any]:
        """A process's row with what only the daemon knows."""
        job = self._state.job_of(process)
        row.update(job_id=job.id if job is not None else 0, pid=self._pid_of(process))
        row.update(node_id=self._node_id, ip=self._state.standing.home.ip)
        row["owner_type"] = "DRIVER" if process in self._state.drivers else "WORKER"
        if (worker := row.pop("worker", None)) is not None:  # a task: its node is where it runs, not its owner's
            place = self.place_row((worker[0], worker[1]) if worker[0] else None)
            row.update(place, worker_pid=place["pid"] or None, pid=row["pid"], owner_node_id=self._node_id)
        if "held_by" in row:
            row["held_by"] = ", ".join(self._called(one) for one in row["held_by"])
        if (number := row.pop("shape", None)) is not None:
            shape = self._state.shapes.of(process, number)
            row["required_resources"] = {} if shape is None else to_floats(shape.amounts)
            row["scheduling_strategy"] = {} if shape is None else dict(shape.strategy)
        return row

    def place_row(self, process: Process | None) -> dict[str, Any]:
        """The node, the worker id and the pid of a process, as far as they are known here; see `located`."""
        if process is None:
            return {"node_id": None, "worker_id": None, "pid": 0}
        return {
            "node_id": self._place_of(process)[0] or None,
            "worker_id": self.worker_id(process),
            "pid": self._pid_of(process),
        }

    def located(self, rows: list[dict[str, Any]], key: str) -> Pending:
        """The rows, under `key` with the pids of processes of other nodes, which those nodes are asked for."""

        def unknown() -> Iterable[dict[str, Any]]:
            return (row for row in rows if row["worker_id"] is not None and not row[key])

        def told(answers: list[dict[str, int]]) -> list[dict[str, Any]]:
            pids = {worker: pid for one in answers for worker, pid in one.items()}
            for row in unknown():
                row[key] = pids.get(row["worker_id"], row[key])
            return rows

        nodes = {row["node_id"] for row in unknown()} - {self._node_id, None}
        return (self.pids_of(nodes) if nodes else Pending.of([])).map(told)

    def pids(self) -> dict[str, int]:
        """Of the processes of this node, by their worker ids."""
        found = {worker.process: worker.pid for worker in self._state.workers if worker.pid}
        found.update((driver, job.pid) for driver, job in self._state.drivers.items())
        return {self.worker_id(one): pid for one, pid in found.items() if self._place_of(one)[0] == self._node_id}

    def _called(self, process: Sequence[int]) -> str:
        """A process, for a person."""
        if pid := self._pid_of((process[0], process[1])):
            return f"process {pid}"
        node, (slot, generation) = self._place_of((process[0], process[1]))
        return f"worker {worker_id(node, slot, generation).hex()[:8]} of node {node[:8]}"

    def worker_id(self, process: Process) -> str:
        """As the process itself has it from its runtime context."""
        node, (slot, generation) = self._place_of(process)
        return worker_id(node, slot, generation).hex()

    def _pid_of(self, process: Process) -> int:
        if (worker := self._state.workers.by_process.get(process)) is not None:
            return worker.pid
        job = self._state.drivers.get(process)
        return job.pid if job is not None else 0

    def workers(self, asker: Asker) -> list[dict[str, object]]:
        return [
            {
                "pid": worker.pid,
                "slot": worker.process[0],
                "generation": worker.process[1],
                "state": worker.place.value,
                "job": worker.binding.job if worker.binding is not None else 0,
                "gpu_ids": list(worker.binding.gpu_ids) if worker.binding is not None else [],
                "is_blocked": worker.lent,
            }
            for worker in self._state.workers
        ]

    def list_workers(self, asker: Asker, limit: int = MOST_ROWS, offset: int = 0) -> list[dict[str, object]]:
        """Drivers first. One of another node is told of there."""
        rows: list[dict[str, object]] = [
            {"worker_id": self.worker_id(driver), "worker_type": "DRIVER", "pid": job.pid, "job_id": job.id,
             "is_alive": job.is_driver_alive, "state": "ALIVE", "node_id": self._node_id,
             "ip": self._state.standing.home.ip}
            for driver, job in self._state.drivers.items() if self._place_of(driver)[0] == self._node_id
        ]  # fmt: skip
        rows += [
            {"worker_id": self.worker_id(worker.process), "worker_type": "WORKER", "pid": worker.pid,
             "job_id": worker.binding.job if worker.binding is not None else 0, "is_alive": True,
             "state": worker.place.value, "node_id": self._node_id, "ip": self._state.standing.home.ip}
            for worker in self._state.workers
        ]  # fmt: skip
        return list(page(rows, limit, offset))

    def assigned_resources(self, asker: Asker) -> dict[str, float]:
        """What the asking worker's task or actor holds."""
        worker = self._state.workers.by_process.get(asker.process)
        return to_floats(worker.holding.amounts) if worker is not None and worker.holding is not None else {}

    # ---- nodes ----

    def nodes(self, asker: Asker) -> list[dict[str, object]]:
        if members := self.members():
            return [self._node_row(member) for member, _ in members]
        from weft.engine.wire.link_messages import Member  # a node of its own has no other use for them

        total = to_floats(self._state.resources.total)
        address, hostname = f"{self._state.standing.home.ip}:0", socket.gethostname()
        own = Member(0, self._node_id, address, self._address, total, self._labels, hostname=hostname)
        return [self._node_row(own)]

    def _node_row(self, member: Member) -> dict[str, object]:
        return {
            "NodeID": member.node_id,
            "Alive": member.is_alive,
            "NodeManagerAddress": member.address.rpartition(":")[0],
            "NodeManagerHostname": member.hostname,
            "NodeManagerPort": int(member.address.rpartition(":")[2]),
            "ObjectManagerPort": 0,
            "ObjectStoreSocketName": "",
            "RayletSocketName": member.local_address,
            "MetricsExportPort": 0,
            "NodeName": member.address.rpartition(":")[0],
            "RuntimeEnvAgentPort": 0,
            "DeathReason": 0 if member.is_alive else 2,
            "DeathReasonMessage": member.death,
            "alive": member.is_alive,
            "Resources": member.total if member.is_alive else {},
            "Labels": {NODE_ID_LABEL: member.node_id, **member.labels},
        }

    def cluster_resources(self, asker: Asker) -> dict[str, float]:
        if members := self.members():
            return _sum(member.total for member, _ in members if member.is_alive)
        return to_floats(self._state.resources.total)

    def available_resources(self, asker: Asker) -> dict[str, float]:
        if members := self.members():
            return _sum(free for member, free in members if member.is_alive)
        return {name: max(0.0, amount) for name, amount in to_floats(self._state.resources.available).items()}

    # ---- jobs and actors ----

    def job_info(self, asker: Asker) -> dict[str, object]:
        job = self._state.job_of(asker.process)
        if job is None:
            raise ValueError("this process belongs to no job yet")
        return {"job": job.id, "driver_pid": job.pid, "is_founder": job.is_founder, "is_alive": job.is_driver_alive}

    def list_jobs(self, asker: Asker, limit: int = MOST_ROWS, offset: int = 0) -> list[dict[str, object]]:
        return [
            {"job_id": job.id, "pid": job.pid, "status": "RUNNING" if job.is_driver_alive else "SUCCEEDED",
             "type": "DRIVER", "namespace": job.hello.namespace if job.hello is not None else ""}
            for job in page(self._state.jobs.values(), limit, offset)
        ]  # fmt: skip

    def list_named_actors(
        self, asker: Asker, namespace: str | None = None, all_namespaces: bool = False
    ) -> list[dict[str, str]]:
        wanted = self._namespace_of(asker.process) if namespace is None else namespace
        return [
            {"name": name, "namespace": space}
            for space, name in self._state.actors.names
            if all_namespaces or space == wanted
        ]

    def _namespace_of(self, process: Process) -> str:
        job = self._state.job_of(process)
        return job.hello.namespace if job is not None and job.hello is not None else ""

    def actor_info(self, actor: bytes) -> dict[str, Any] | None:
        found = self._state.actors.find(actor)
        if found is None:
            return None
        return {
            "state": found.stage.value,
            "restarts": found.incarnation,
            **self._actor_place(found),
            "class_name": found.spec.class_name,
            "name": found.spec.name,
            "namespace": found.spec.namespace,
            "job": found.job,
        }

    def actor_rows(self, limit: int, offset: int) -> list[dict[str, Any]]:
        """All actors that are known, dead ones too, in the order of their creation."""
        return [self._actor_row(actor) for actor in page(self._state.actors.by_id.values(), limit, offset)]

    def _actor_place(self, actor: Actor) -> dict[str, Any]:
        place = self.place_row(actor.worker)
        return {**place, "pid": actor.pid or place["pid"]}

    def _actor_row(self, actor: Actor) -> dict[str, Any]:
        spec = actor.spec
        if actor.stage is Stage.PENDING and actor.incarnation:
            state = "RESTARTING"
        else:
            state = "PENDING_CREATION" if actor.stage is Stage.STARTING else actor.stage.value
        cause = actor.cause
        return {
            "actor_id": actor.id.hex(),
            "class_name": spec.class_name,
            "state": state,
            "job_id": actor.job,
            "name": spec.name,
            "ray_namespace": spec.namespace,
            **self._actor_place(actor),
            "required_resources": dict(spec.resources),
            "is_detached": spec.detached,
            "num_restarts": actor.incarnation,
            "death_cause": cause.text if isinstance(cause, Fault) else "its constructor raised" if cause else None,
            "placement_group_id": str(spec.strategy.get("group", "")) or None,
        }


def page(rows: Iterable[Row], limit: int, offset: int) -> Iterable[Row]:
    """So many of them, `MOST_ROWS` at most."""
    first = max(0, offset)
    return itertools.islice(rows, first, first + max(0, min(limit, MOST_ROWS)))


def _sum(amounts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for one in amounts:
        for name, amount in one.items():
            total[name] = total.get(name, 0.0) + max(0.0, amount)
    return {name: amount for name, amount in total.items() if amount}
