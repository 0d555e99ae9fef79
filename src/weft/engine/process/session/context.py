"""Who am I: the runtime context of a driver, a task or an actor's method, in Ray's words.

Ids are given as hexadecimal text by the `get_...` methods, as id objects by the retired properties.
"""

from __future__ import annotations

import warnings
from typing import Any

from weft import _native
from weft.engine.process.calls import current
from weft.engine.process.session import attached, cluster, context_state
from weft.engine.process.session.context_state import here
from weft.engine.process.session.session_context import session_name
from weft.ids import ActorID, JobID, NodeID, PlacementGroupID, TaskID, WorkerID, worker_id


def get_runtime_context() -> RuntimeContext:
    """The calling process's context; attaches to a node first when there is none.

    >>> @weft.remote
    ... def who():
    ...     return weft.get_runtime_context().get_task_name()
    >>> weft.get(who.remote())
    'who'
    """
    attached.ensure()
    return _context


class RetiredNames:
    """What the runtime context was asked for before its `get_...` methods: id objects, with a warning."""

    @property
    def job_id(self) -> JobID:
        """Old name, warns: `get_job_id()`."""
        _retired("job_id")
        return JobID.from_int(here().job)

    @property
    def node_id(self) -> NodeID:
        """Old name, warns: `get_node_id()`."""
        _retired("node_id")
        return NodeID(bytes.fromhex(cluster.own_node_id()))

    @property
    def task_id(self) -> TaskID | None:
        """Old name, warns: `get_task_id()`."""
        _retired("task_id")
        return _context._task_id()

    @property
    def current_placement_group_id(self) -> PlacementGroupID | None:
        """Old name, warns: `get_placement_group_id()`."""
        _retired("placement_group_id")
        return PlacementGroupID(bytes.fromhex(here().placement_group)) if here().placement_group else None

    @property
    def actor_id(self) -> ActorID | None:
        """Old name, warns: `get_actor_id()`."""
        _retired("actor_id")
        return ActorID(here().actor_id) if here().actor_id else None


class RuntimeContext(RetiredNames):
    """One for each process; what it answers depends on the calling thread's task.

    >>> context = weft.get_runtime_context()
    >>> context.get_node_id() == weft.nodes()[0]["NodeID"]
    True
    """

    # -- ids --

    def get_job_id(self) -> str:
        """Of the driver that this work is for."""
        return JobID.from_int(here().job).hex()

    def get_node_id(self) -> str:
        """Of the node that this process is on."""
        return cluster.own_node_id()

    def get_worker_id(self) -> str:
        """Of this process."""
        return self._worker_id().hex()

    def get_task_id(self) -> str | None:
        """None outside a task."""
        task = self._task_id()
        return None if task is None else task.hex()

    def get_actor_id(self) -> str | None:
        """None outside an actor."""
        return here().actor_id.hex() if here().actor_id else None

    def get_placement_group_id(self) -> str | None:
        """None outside a placement group."""
        return here().placement_group or None

    def get_session_name(self) -> str:
        """One word for the session."""
        return session_name(self.get_node_id())

    def _task_id(self) -> TaskID | None:
        task = current.task()
        if not here().is_worker or not task[2]:
            return None
        return TaskID(task[0][: TaskID.size()])

    def _worker_id(self) -> WorkerID:
        return worker_id(self.get_node_id(), here().slot, here().generation)

    # -- names --

    def get_task_name(self) -> str | None:
        """The task's name: its function's, or what the `name` option says."""
        name = current.name()
        return name or None

    def get_task_function_name(self) -> str | None:
        """With the module and, for a method, the class."""
        name = self.get_task_name()
        if name is None:
            return None
        if here().actor_definition is None:
            return f"{here().modules[name]}.{name}" if name in here().modules else name
        cls = here().actor_definition.cls
        # As in Ray: a coroutine is named by its class's full name, a plain method by the short one.
        is_async, full_name = here().actor_definition.is_async, here().actor_definition.description.qualified_name
        return f"{full_name if is_async else f'{cls.__module__}.{cls.__name__}'}.{name.rpartition('.')[2]}"

    def get_actor_name(self) -> str | None:
        """None outside an actor, empty for one without a name."""
        return here().actor_definition.name if here().actor_definition is not None else None

    @property
    def namespace(self) -> str:
        """In which this job's actors have their names."""
        return here().namespace

    def get_attempt_number(self) -> int:
        """0 in the first attempt of a task, 1 in its first retry."""
        return context_state.current_attempt()

    def is_canceled(self) -> bool:
        """Whether the task that runs here was cancelled, for one that must end by itself (an actor's method)."""
        if here().actor_definition is not None and here().actor_definition.is_async:
            raise RuntimeError("This method is not supported in an async actor. Catch asyncio.CancelledError instead.")
        if here().calls is not None:
            return bool(here().calls.is_cancelled(_native.current_task()[0]))
        return here().is_worker and _native.is_cancelled()

    # -- the actor --

    @property
    def current_actor(self) -> Any:
        """A handle to the actor that this is. It does not keep the actor alive."""
        if not here().actor_id:
            raise RuntimeError("This method is only available in an actor.")
        from weft.engine.process.actors.actor_handle import ActorHandle

        return ActorHandle(_native.actor_token(here().actor_id), here().actor_definition.description)

    @property
    def was_current_actor_reconstructed(self) -> bool:
        """Whether the actor was restarted at least once."""
        if not here().actor_id:
            raise RuntimeError("This method is only available in an actor.")
        return cluster.actor_restarts(here().actor_id) > 0

    # -- resources and environment --

    def get_assigned_resources(self) -> dict[str, float]:
        """What the task or actor holds."""
        return cluster.assigned_resources()

    def get_node_labels(self) -> dict[str, str]:
        """Of the node that this process is on."""
        own = self.get_node_id()
        return next((dict(node["Labels"]) for node in cluster.nodes() if node["NodeID"] == own), {})

    def get_accelerator_ids(self) -> dict[str, list[str]]:
        """The GPUs that this work may use."""
        return {"GPU": [str(device) for device in here().gpu_ids]}

    def get_runtime_env_string(self) -> str:
        """The runtime environment, as JSON."""
        return here().runtime_env or "{}"

    @property
    def runtime_env(self) -> dict[str, Any]:
        """The environment that this process runs in, a `RuntimeEnv`: what was asked for, over what it inherits."""
        from weft.environments.runtime_env import RuntimeEnv

        return RuntimeEnv.deserialize(self.get_runtime_env_string())

    @property
    def gcs_address(self) -> str:
        """Of the cluster's head, host:port."""
        return here().address

    @property
    def should_capture_child_tasks_in_placement_group(self) -> bool:
        """Whether tasks submitted here go into the placement group that this one is in."""
        return here().captures_child_tasks

    @property
    def worker(self) -> RuntimeContext:
        """Itself: programs for Ray write `context.worker`."""
        return self

    def get(self) -> dict[str, Any]:
        """What is known, as a dictionary; what does not apply is left out."""
        found: dict[str, Any] = {
            "job_id": JobID.from_int(here().job),
            "node_id": NodeID(bytes.fromhex(self.get_node_id())),
            "worker_id": self._worker_id(),
            "namespace": here().namespace,
        }
        task = self._task_id()
        if task is not None:
            found["task_id"] = task
        if here().actor_id:
            found["actor_id"] = ActorID(here().actor_id)
        return found


def _retired(name: str) -> None:
    warnings.warn(f"Use get_{name}() instead", DeprecationWarning, stacklevel=3)


_context = RuntimeContext()


def get_gpu_ids() -> list[int] | list[str]:
    """The devices that this task or actor was given; CUDA sees only these. UUIDs where the node has them so.

    >>> weft.get(weft.remote(lambda: weft.get_gpu_ids()).remote())  # asked for no GPU
    []
    """
    attached.ensure()
    return list(here().gpu_ids)
