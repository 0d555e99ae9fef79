"""Words of Ray 2.60 that are attributes of Weft's own classes. They are put there when `ray` is first imported.

`_remote` is what wrappers of Ray call, `bind` makes lazy graphs, and a cancelled task is a failed one: `except
RayTaskError` catches it, too.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import weft.exceptions
from weft import ObjectRef
from weft.actor import ActorClass, ActorMethod
from weft.engine.process.actors.actor_class import ActorClassVariant
from weft.engine.process.actors.actor_handle import ActorMethodVariant
from weft.engine.process.calls.remote_function import RemoteFunctionVariant
from weft.exceptions import ActorError, TaskCancelledError, TaskError, UnserializableException
from weft.ids import ActorID, JobID
from weft.remote_function import RemoteFunction
from weft.runtime_context import RuntimeContext, get_runtime_context


def teach() -> None:
    """Once per process."""
    from weft.compat.ray.dag import class_node, function_node

    words: tuple[tuple[type, str, Any], ...] = (
        (RemoteFunction, "_remote", _remote),
        (ActorClass, "_remote", _remote),
        (ActorMethod, "_remote", _remote),
        (RemoteFunction, "bind", function_node.bind),
        (RemoteFunctionVariant, "bind", function_node.bind),
        (ActorClass, "bind", class_node.bind_class),
        (ActorClassVariant, "bind", class_node.bind_class),
        (ActorMethod, "bind", class_node.bind_method),
        (ActorMethodVariant, "bind", class_node.bind_method),
        (RuntimeContext, "get_accelerator_ids", _accelerator_ids),
        (ObjectRef, "_on_completed", _on_completed),
        (ObjectRef, "is_nil", lambda self: False),
        (ActorID, "job_id", property(_job_of)),
        (TaskError, "make_dual_exception_instance", TaskError.as_instanceof_cause),
        (UnserializableException, "__str__", _text_of_unserializable),
        (ActorError, "__str__", _text_of_actor_error),
    )
    for owner, name, value in words:
        setattr(owner, name, value)
    weft.exceptions.TaskCancelledError = CancelledTaskError  # type: ignore[misc]


def _remote(self: Any, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
    """Submit with options, in one call."""
    given = {name: value for name, value in options.items() if value is not None}
    return (self.options(**given) if given else self).remote(*(args or ()), **(kwargs or {}))


_ACCELERATORS = "GPU HPU NPU RBLN TPU TTNPU FURIOSA MBLT neuron_cores".split()
_gpus_alone = RuntimeContext.get_accelerator_ids


def _accelerator_ids(self: RuntimeContext) -> dict[str, list[str]]:
    """Of each kind that Ray knows, whether there are any or not."""
    return {**{name: [] for name in _ACCELERATORS}, **_gpus_alone(self)}


def _job_of(self: ActorID) -> Any:
    """Of the driver that this process works for."""
    return JobID.from_hex(get_runtime_context().get_job_id())


def _on_completed(self: ObjectRef[Any], callback: Callable[[Any], object]) -> None:
    """Call it with the value, or with the error in its place."""

    def tell(done: Future[Any]) -> None:
        error = done.exception()
        callback(done.result() if error is None else error)

    self.future().add_done_callback(tell)


def _text_of_unserializable(self: UnserializableException) -> str:
    return (
        "Failed to deserialize exception. Refer to https://docs.ray.io/en/latest/ray-core/objects/serialization.html"
        "#custom-serializers-for-exceptions for more information.\n"
        f"Original exception:\nray.exceptions.RayTaskError: {self.original_stack_trace}"
    )


_DEATHS = {
    "was killed by weft.kill()": "The actor is dead because it was killed by `ray.kill`.",
    " died with its owner": "The actor is dead because its owner has died.",
    " died: its process": "The actor is dead because its worker process has died.",
    " died: node ": "The actor died because its node has died.",
    " died: its node ": "The actor died because its node has died.",
    " is restarting": "The actor is restarting.",
}
"""What Weft says of an actor's end, and Ray's sentence for it."""


def _text_of_actor_error(self: ActorError) -> str:
    """Ray's sentence, which programs look for, and Weft's, which says more."""
    said = next((words for ours, words in _DEATHS.items() if ours in self.error_msg), None)
    return f"{said} {self.error_msg}" if said else self.error_msg


class CancelledTaskError(TaskCancelledError, TaskError):
    """Takes the place of TaskCancelledError: what catches that one catches this one."""

    def __reduce__(self) -> tuple[Any, ...]:
        return weft.exceptions.TaskCancelledError, (self.task_id, self.error_message)

    def __repr__(self) -> str:
        return f"TaskCancelledError({str(self)!r})"


CancelledTaskError.__name__ = CancelledTaskError.__qualname__ = "TaskCancelledError"
CancelledTaskError.__module__ = "weft.exceptions"
