"""Answers to messages.Request: what processes may ask their node daemon.

Runs in the daemon's thread, never on a task's way. A method is a function of (process, params); what it raises becomes
the reply's error, under the exception's own name.
"""

from __future__ import annotations

import itertools
import os
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from weft import _native
from weft.engine.control.tables import ACTOR_LOGS, Delete, MemoryTables, Put
from weft.engine.node.chronicle import Chronicle
from weft.engine.node.kept_inputs import KeptInputs
from weft.engine.node.key_values import KeyValues
from weft.engine.node.survey import MOST_ROWS, Surveys
from weft.engine.observe.user_metrics import Merged, Series
from weft.engine.state import events as ev
from weft.engine.state.actor_log import Batch, LogRows
from weft.engine.state.actors import Actor, Stage
from weft.engine.state.events import Process
from weft.engine.state.instructions import Fault
from weft.engine.state.node import NodeState
from weft.engine.state.resources import to_floats
from weft.engine.wire import kinds
from weft.engine.wire.messages import CreateGroup, Message, Reply, Request
from weft.ids import worker_id

if TYPE_CHECKING:
    from weft.engine.state.cluster import NodeView
    from weft.engine.wire.link_messages import Member

ERRORS_KEPT = 200
_encode = msgspec.msgpack.Encoder().encode


class Requests:
    """The methods, by name."""

    def __init__(
        self,
        state: NodeState,
        port: _native.NodePort,
        tables: MemoryTables,
        chronicle: Chronicle,
        labels: dict[str, str],
        node_id: str,
        address: str,
        feed: Callable[[ev.Event], None],
        flush_output: Callable[[], None],
        members: Callable[[], list[tuple[Member, dict[str, float]]]],
        call_later: Callable[[float, Callable[[], None]], object],
        dashboard: Callable[[], dict[str, Any]] | None = None,
    ) -> None:
        self._dashboard = dashboard
        """Where it is; None where there is none."""
        self._state = state
        self._port = port
        self._tables = tables
        self._chronicle = chronicle
        self._labels = labels
        self._node_id = node_id
        self._address = address
        self._feed = feed
        self._flush_output = flush_output
        self._members = members
        """The nodes of the cluster and what they have free, this one first; none where there is no cluster."""
        self.surveys = Surveys(self._send, self._processes, self._describe, call_later)
        self.logs = LogRows(
            lambda key: tables.get(ACTOR_LOGS, key),
            lambda rows: tables.write(
                [Delete(ACTOR_LOGS, key) if row is None else Put(ACTOR_LOGS, key, row) for key, row in rows]
            ),
            lambda prefix: tables.scan(ACTOR_LOGS, prefix),
        )
        self.key_values = KeyValues(tables, call_later)
        self.storage_folder: Callable[[], str] = str
        """The daemon's (`node.storage`)."""
        self.keep_replicas: Callable[[Process, int, int, list[str]], None] = lambda entry, size, replicas, nodes: None
        """The cluster's (`cluster.replicas`)."""
        self.views: Callable[[], list[NodeView]] = list
        """The living nodes, as the daemon knows them."""
        self.place_of: Callable[[Process], tuple[str, Process]] = lambda process: (node_id, process)
        """Of a process that is known here: its node's id, and what that node calls it."""
        self._started_s = time.time()
        self.user_metrics = Merged()
        self.errors: deque[dict[str, Any]] = deque(maxlen=ERRORS_KEPT)
        """What tasks raised lately."""
        self.errors_left_out = 0
        self.inputs = KeptInputs()
        self.breakpoints: dict[str, tuple[Process, dict[str, Any]]] = {}
        """Where tasks wait for a debugger, by the address of its socket."""

    def answer(self, process: Process, request: Request) -> Reply | None:
        """None when the reply is sent later."""
        if request.method in ("list_tasks", "list_objects"):
            what = request.method.partition("_")[2]
            self.surveys.begin(lambda rows: self._send(process, Reply(request.id, rows)), what, _limit(request.params))
            return None
        change = self.key_values.changes.get(request.method)
        method = getattr(self, f"_do_{request.method}", None)
        if change is None and method is None:
            return Reply(request.id, error=f"the node daemon has no method {request.method!r}", error_kind="RpcError")
        try:
            if change is not None:
                return Reply(request.id, change(process, request.id, request.params))
            assert method is not None
            return Reply(request.id, method(process, request.params))
        except Exception as error:
            return Reply(request.id, error=str(error) or repr(error), error_kind=type(error).__name__)

    def _do_storage_folder(self, process: Process, params: dict[str, Any]) -> str:
        """Where this cluster keeps durable values."""
        return self.storage_folder()

    def _do_keep_replicas(self, process: Process, params: dict[str, Any]) -> None:
        """Of an object that was put on this node, and fetched on others."""
        entry = (int(params["entry"]), int(params["generation"]))
        self.keep_replicas(entry, int(params["bytes"]), int(params["replicas"]), list(params["nodes"]))

    # ---- what only the processes know ----

    def _do_metrics(self, process: Process, params: dict[str, Any]) -> None:
        """What user code of that process has counted so far."""
        self.user_metrics.came(process, msgspec.convert(params["series"], list[Series]))

    def _do_task_failed(self, process: Process, params: dict[str, Any]) -> None:
        row = {**params, "time_s": time.time()}
        if inputs := row.pop("inputs", b""):
            self.inputs.keep(row["task_id"], inputs)
        self.errors_left_out += int(row.pop("untold", 0)) + (len(self.errors) == ERRORS_KEPT)
        self.errors.append(self._describe(process, row))

    def _do_task_inputs(self, process: Process, params: dict[str, Any]) -> None:
        """Large ones: a file that the worker has open."""
        self.inputs.keep_file(params["task_id"], params["path"])

    def _do_breakpoint_opened(self, process: Process, params: dict[str, Any]) -> None:
        row = self._describe(process, {**params, "time_s": time.time()})
        self.breakpoints[params["address"]] = (process, row)

    def _do_breakpoint_closed(self, process: Process, params: dict[str, Any]) -> None:
        self.breakpoints.pop(params["address"], None)

    def process_died(self, process: Process) -> None:
        self.breakpoints = {key: found for key, found in self.breakpoints.items() if found[0] != process}
        self.surveys.process_died(process)
        self.user_metrics.ended(process)

    def _do_told(self, process: Process, params: dict[str, Any]) -> None:
        self.surveys.told(process, params["number"], params["rows"])

    def _send(self, process: Process, message: Message) -> None:
        self._port.send(*process, kinds.CONTROL, _encode(message))

    def _processes(self) -> list[Process]:
        """Of this node: drivers, and workers that have run something. A driver of another node answers that one."""
        drivers = [
            process
            for process, job in self._state.drivers.items()
            if job.is_driver_alive and self.place_of(process)[0] == self._node_id
        ]
        workers = [worker.process for worker in self._state.workers if worker.pid and worker.binding is not None]
        return [*drivers, *workers]

    def _describe(self, process: Process, row: dict[str, Any]) -> dict[str, Any]:
        job = self._state.job_of(process)
        row.update(job_id=job.id if job is not None else 0, pid=self._pid_of(process))
        row.update(node_id=self._node_id, ip=self._state.home.ip)
        row["owner_type"] = "DRIVER" if process in self._state.drivers else "WORKER"
        if (worker := row.pop("worker", None)) is not None:
            row["worker_pid"] = self._pid_of((worker[0], worker[1])) or None
            row["worker_id"] = self.worker_id((worker[0], worker[1])) if worker[0] else None
        if "held_by" in row:
            row["held_by"] = ", ".join(self._called(one) for one in row["held_by"])
        if (number := row.pop("shape", None)) is not None:
            shape = self._state.shape_of(process, number)
            row["required_resources"] = {} if shape is None else to_floats(shape.amounts)
            row["scheduling_strategy"] = {} if shape is None else dict(shape.strategy)
        return row

    def _called(self, process: Sequence[int]) -> str:
        """A process, for a person."""
        if pid := self._pid_of((process[0], process[1])):
            return f"process {pid}"
        node, (slot, generation) = self.place_of((process[0], process[1]))
        return f"worker {worker_id(node, slot, generation).hex()[:8]} of node {node[:8]}"

    def worker_id(self, process: Process) -> str:
        """As the process itself has it from its runtime context."""
        node, (slot, generation) = self.place_of(process)
        return worker_id(node, slot, generation).hex()

    def _do_why_pending(self, process: Process, params: dict[str, Any]) -> tuple[str, bool]:
        """Why no worker is there for what the asking process calls by that number, and whether none can ever be."""
        from weft.engine.node.reasons import Reasons

        return Reasons(self._state, self.views()).of_shape(process, params["shape"])

    def _pid_of(self, process: Process) -> int:
        if (worker := self._state.workers.by_process.get(process)) is not None:
            return worker.pid
        job = self._state.drivers.get(process)
        return job.pid if job is not None else 0

    # ---- the node ----

    def _do_nodes(self, process: Process, params: dict[str, Any]) -> list[dict[str, object]]:
        if members := self._members():
            return [self._node_row(member) for member, _ in members]
        from weft.engine.wire.link_messages import Member  # a node of its own has no other use for them

        total = to_floats(self._state.resources.total)
        address, hostname = f"{self._state.home.ip}:0", socket.gethostname()
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
            "Labels": {"ray.io/node_id": member.node_id, **member.labels},
        }

    def _do_cluster_resources(self, process: Process, params: dict[str, Any]) -> dict[str, float]:
        if members := self._members():
            return _sum(member.total for member, _ in members if member.is_alive)
        return to_floats(self._state.resources.total)

    def _do_available_resources(self, process: Process, params: dict[str, Any]) -> dict[str, float]:
        if members := self._members():
            return _sum(free for member, free in members if member.is_alive)
        return {name: max(0.0, amount) for name, amount in to_floats(self._state.resources.available).items()}

    def _do_assigned_resources(self, process: Process, params: dict[str, Any]) -> dict[str, float]:
        """What the asking worker's task or actor holds."""
        worker = self._state.workers.by_process.get(process)
        return to_floats(worker.holding.amounts) if worker is not None and worker.holding is not None else {}

    def _do_job_info(self, process: Process, params: dict[str, Any]) -> dict[str, object]:
        job = self._state.job_of(process)
        if job is None:
            raise ValueError("this process belongs to no job yet")
        return {"job": job.id, "driver_pid": job.pid, "is_founder": job.is_founder, "is_alive": job.is_driver_alive}

    def _do_workers(self, process: Process, params: dict[str, Any]) -> list[dict[str, object]]:
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

    def _do_list_workers(self, process: Process, params: dict[str, Any]) -> list[dict[str, object]]:
        """Drivers first. One of another node is told of there."""
        rows: list[dict[str, object]] = [
            {"worker_id": self.worker_id(driver), "worker_type": "DRIVER", "pid": job.pid, "job_id": job.id,
             "is_alive": job.is_driver_alive, "state": "ALIVE", "node_id": self._node_id, "ip": self._state.home.ip}
            for driver, job in self._state.drivers.items() if self.place_of(driver)[0] == self._node_id
        ]  # fmt: skip
        rows += [
            {"worker_id": self.worker_id(worker.process), "worker_type": "WORKER", "pid": worker.pid,
             "job_id": worker.binding.job if worker.binding is not None else 0, "is_alive": True,
             "state": worker.place.value, "node_id": self._node_id, "ip": self._state.home.ip}
            for worker in self._state.workers
        ]  # fmt: skip
        return rows[_offset(params) : _offset(params) + _limit(params)]

    def _do_statistics(self, process: Process, params: dict[str, Any]) -> dict[str, object]:
        return {
            **self._port.statistics(),
            "leases": len(self._state.leases.by_id),
            "demands": len(self._state.demands.by_key),
            "workers": sum(1 for _ in self._state.workers),
            "actors_alive": sum(a.stage is not Stage.DEAD for a in self._state.actors.by_id.values()),
            "jobs": len(self._state.jobs),
            "rows": self._tables.statistics(),
            "daemon_pid": os.getpid(),
            "up_s": time.time() - self._started_s,
        }

    def _do_dashboard(self, process: Process, params: dict[str, Any]) -> dict[str, Any]:
        if self._dashboard is None:
            raise RuntimeError("there is no dashboard in local_mode")
        return self._dashboard()

    def _do_flush_output(self, process: Process, params: dict[str, Any]) -> None:
        """What workers have written until now is sent before the reply is."""
        self._flush_output()

    # ---- actors ----

    def _do_get_actor(self, process: Process, params: dict[str, Any]) -> bytes | None:
        """The pickled handle of a named actor, or nothing."""
        return self._state.actors.handle_of(params.get("namespace", ""), params["name"])

    def _do_claim_actor_name(self, process: Process, params: dict[str, Any]) -> bytes | None:
        """Set a name aside before the creation is sent. The other's handle, when it is taken and `get_if_exists`."""
        name, namespace = params["name"], params.get("namespace", "")
        known = self._state.actors.handle_of(namespace, name)
        if known is None:
            self._feed(ev.ActorNameClaimed(process, params["actor"], name, namespace, params["handle"]))
        elif not params.get("get_if_exists"):
            raise ValueError(f"The actor name '{name}' is already taken in namespace '{namespace}'")
        return known

    def _do_list_named_actors(self, process: Process, params: dict[str, Any]) -> list[dict[str, str]]:
        wanted = None if params.get("all_namespaces") else params.get("namespace", self._namespace_of(process))
        return [
            {"name": name, "namespace": namespace}
            for namespace, name in self._state.actors.names
            if wanted in (None, namespace)
        ]

    def _do_actor_info(self, process: Process, params: dict[str, Any]) -> dict[str, object] | None:
        actor = self._state.actors.find(params["actor"])
        if actor is None:
            return None
        return {
            "state": actor.stage.value,
            "restarts": actor.incarnation,
            "pid": actor.pid,
            "class_name": actor.spec.class_name,
            "name": actor.spec.name,
            "namespace": actor.spec.namespace,
            "job": actor.job,
        }

    def _do_list_cluster_events(self, process: Process, params: dict[str, Any]) -> list[dict[str, Any]]:
        """What happened to the cluster, the latest first."""
        return self._chronicle.rows(_offset(params), _limit(params))

    def _do_list_actors(self, process: Process, params: dict[str, Any]) -> list[dict[str, object]]:
        """All actors that are known, dead ones too, in the order of their creation."""
        chosen = itertools.islice(self._state.actors.by_id.values(), _offset(params), _offset(params) + _limit(params))
        return [self._actor_row(actor) for actor in chosen]

    def _actor_row(self, actor: Actor) -> dict[str, object]:
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
            "node_id": self._node_id if actor.worker in self._state.workers.by_process else None,
            "pid": actor.pid,
            "required_resources": dict(spec.resources),
            "is_detached": spec.detached,
            "num_restarts": actor.incarnation,
            "death_cause": cause.text if isinstance(cause, Fault) else "its constructor raised" if cause else None,
            "placement_group_id": str(spec.strategy.get("group", "")) or None,
        }

    def _do_list_jobs(self, process: Process, params: dict[str, Any]) -> list[dict[str, object]]:
        jobs = itertools.islice(self._state.jobs.values(), _offset(params), _offset(params) + _limit(params))
        return [
            {"job_id": job.id, "pid": job.pid, "status": "RUNNING" if job.is_driver_alive else "SUCCEEDED",
             "type": "DRIVER", "namespace": job.hello.namespace if job.hello is not None else ""}
            for job in jobs
        ]  # fmt: skip

    def _namespace_of(self, process: Process) -> str:
        job = self._state.job_of(process)
        return job.hello.namespace if job is not None and job.hello is not None else ""

    # ---- placement groups ----

    def _do_create_group(self, process: Process, params: dict[str, Any]) -> None:
        """One with a name, which must be free."""
        spec = msgspec.convert(params["spec"], CreateGroup)
        if self._state.groups.find_named(spec.namespace, spec.name) is not None:
            raise ValueError(
                f"The placement group name '{spec.name}' is already taken in namespace '{spec.namespace}'. Choose "
                "another name, or use get_placement_group()."
            )
        self._feed(ev.GroupRequested(process, spec))

    def _do_get_group(self, process: Process, params: dict[str, Any]) -> dict[str, object] | None:
        """By its name or its id."""
        groups = self._state.groups
        if "name" in params:
            group = groups.find_named(params["namespace"], params["name"])
        else:
            group = groups.by_id.get(params["group"])
        return self._state.group_row(group) if group is not None else None

    def _do_list_groups(self, process: Process, params: dict[str, Any]) -> list[dict[str, object]]:
        groups = self._state.groups.by_id.values()
        if "limit" not in params:
            return self._state.group_rows()
        chosen = itertools.islice(groups, _offset(params), _offset(params) + _limit(params))
        return [self._state.group_row(group) for group in chosen]

    # ---- actors with exact state ----

    def _do_actor_log_open(self, process: Process, params: dict[str, Any]) -> tuple[int, bytes | None, list[bytes]]:
        epoch, checkpoint, calls = self.logs.open(params["actor"])
        kept = None if checkpoint is None else _encode(checkpoint)
        return epoch, kept, [_encode(call) for call in calls]

    def _do_actor_log_append(self, process: Process, params: dict[str, Any]) -> None:
        self.logs.append(params["actor"], params["epoch"], msgspec.msgpack.decode(params["batch"], type=Batch))

    # ---- keys and values ----

    def _do_kv_get(self, process: Process, params: dict[str, Any]) -> bytes | None:
        return self.key_values.get(params)

    def _do_kv_keys(self, process: Process, params: dict[str, Any]) -> list[bytes]:
        return self.key_values.keys(params)


def _limit(params: dict[str, Any]) -> int:
    return max(0, min(int(params.get("limit", MOST_ROWS)), MOST_ROWS))


def _offset(params: dict[str, Any]) -> int:
    return max(0, int(params.get("offset", 0)))


def _sum(amounts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for one in amounts:
        for name, amount in one.items():
            total[name] = total.get(name, 0.0) + max(0.0, amount)
    return {name: amount for name, amount in total.items() if amount}
