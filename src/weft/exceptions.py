"""Every exception that Weft raises for a person to catch. Weft's names come first, Ray's are aliases below.

What a task raises comes back as a `TaskError` that is also an instance of the task's own exception class:

>>> issubclass(GetTimeoutError, TimeoutError) and issubclass(ActorDiedError, ActorError)
True
>>> error = TaskError("f", "Traceback (most recent call last):\\nValueError: 7", ValueError(7))
>>> isinstance(error.as_instanceof_cause(), ValueError)
True

Errors survive pickling with their fields. A class exists only where a caller could react differently, and where
Ray has a name that programs import.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any

from weft._dual_errors import DualErrors

# ---- the root, and errors of the engine itself -----------------------------------------------------


class WeftError(Exception):
    """The root of all of Weft's own exceptions."""


class SystemFailureError(WeftError):
    """The engine itself failed."""

    def __init__(self, client_exc: object = "", traceback_str: str | None = None) -> None:
        super().__init__(client_exc, traceback_str)
        self.client_exc = client_exc
        self.traceback_str = traceback_str

    def __str__(self) -> str:
        return f"System error: {self.client_exc}" + (f"\n{self.traceback_str}" if self.traceback_str else "")


class AuthenticationError(WeftError):
    """The cluster's token is missing or wrong."""


class CrossLanguageError(WeftError):
    """Raised in another language."""


class RpcError(WeftError):
    """A control request to the node daemon failed."""

    def __init__(self, message: str = "", rpc_code: int | None = None) -> None:
        super().__init__(message, rpc_code)
        self.message = message
        self.rpc_code = rpc_code

    def __str__(self) -> str:
        return self.message


class UserCodeError(WeftError):
    """A library's wrapper around what the user's code raised."""


class UnserializableException(WeftError):
    """What a task raised could not be rebuilt here; its text and traceback are kept."""

    def __init__(self, original_stack_trace: str = "") -> None:
        super().__init__(original_stack_trace)
        self.original_stack_trace = original_stack_trace

    def __str__(self) -> str:
        return (
            "The exception that the task raised cannot be unpickled in this process. Give its class a __reduce__, "
            "or register a serializer with weft.util.register_serializer().\n"
            f"Original exception:\n{self.original_stack_trace}"
        )


class OutOfBandObjectRefSerializationError(WeftError):
    """A ref was pickled outside the engine, where it cannot be counted."""


# ---- tasks -----------------------------------------------------------------------------------------


_RAY_MEANS_WEFT = "RAY_MEANS_WEFT"
"""In the environment of workers whose driver says `import ray`; see `weft.compat`."""


def package_name() -> str:
    """What the user calls this package: "ray" where `import ray` found it, here or in the driver."""
    alias = sys.modules.get("ray") or sys.modules.get("weft.compat.ray")
    is_ray = _RAY_MEANS_WEFT in os.environ if alias is None else alias.__name__.partition(".")[0] == "weft"
    return "ray" if is_ray else "weft"


def task_error_name() -> str:
    """What the user calls TaskError."""
    return "RayTaskError" if package_name() == "ray" else "TaskError"


class TaskError(WeftError):
    """A task or an actor's method raised. `cause` is what it raised; `str()` shows the remote traceback.

    `get` raises it as an instance of the cause's class too, see `as_instanceof_cause`."""

    def __init__(
        self,
        function_name: str = "",
        traceback_str: str = "",
        cause: BaseException | None = None,
        pid: int | None = None,
        ip: str = "127.0.0.1",
        node_id: str = "",
        attempt: int = 0,
        actor_id: str = "",
        actor_repr: str = "",
    ) -> None:
        self._fill(
            {
                "function_name": function_name,
                "traceback_str": traceback_str,
                "cause": cause,
                "pid": os.getpid() if pid is None else pid,
                "ip": ip,
                "node_id": node_id,
                "attempt": attempt,
                "actor_id": actor_id,
                "actor_repr": actor_repr,
            }
        )

    function_name: str
    traceback_str: str
    cause: BaseException | None
    pid: int
    ip: str
    node_id: str
    attempt: int
    actor_id: str
    actor_repr: str
    _story: dict[str, Any]

    def _fill(self, story: dict[str, Any]) -> None:
        self.__dict__["_story"] = story
        self.__dict__.update(story)

    def as_instanceof_cause(self) -> TaskError:
        """The same error as an instance of the cause's class; itself when that class cannot be subclassed."""
        dual: TaskError = _duals.of(self)
        return dual

    def add_line(self, text: str) -> None:
        """Say more at the end of the remote traceback."""
        self._fill({**self._story, "traceback_str": f"{self._story['traceback_str'].rstrip()}\n{text}\n"})

    def __str__(self) -> str:
        story = self._story  # not the attributes: the cause's class may define properties of the same names
        where = f"pid={story['pid']}, ip={story['ip']}"
        if story["actor_id"]:
            where += f", actor_id={story['actor_id']}, repr={story['actor_repr']}"
        if story["attempt"]:
            where += f", attempt={story['attempt']}"
        head = f"{package_name()}::{story['function_name']}() ({where})"
        lines = story["traceback_str"].strip().split("\n")
        return "\n".join(head if line.startswith("Traceback (most recent") else line for line in lines)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._story['cause']!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild_task_error, (self._story, False)


def _rebuild_task_error(story: dict[str, Any], dual: bool) -> TaskError:
    error = TaskError.__new__(TaskError)
    error._fill(story)
    return error.as_instanceof_cause() if dual else error


_duals = DualErrors(TaskError, task_error_name, package_name, _rebuild_task_error)


class TaskCancelledError(WeftError):
    """The task was cancelled."""

    def __init__(self, task_id: object = None, error_message: str | None = None) -> None:
        super().__init__(task_id, error_message)
        self.task_id = task_id
        self.error_message = error_message

    def __str__(self) -> str:
        named = f"Task {self.task_id} was cancelled." if self.task_id else "The task was cancelled."
        return f"{named} {self.error_message}" if self.error_message else named


class WorkerCrashedError(WeftError):
    """The worker process that ran the task ended: it exited, was killed, or crashed."""

    def __str__(self) -> str:
        return super().__str__() or "The worker process that ran this task ended unexpectedly."


class NodeDiedError(WeftError):
    """The node, or the link to it, is gone."""


class LocalNodeDiedError(WeftError):
    """This machine's node daemon is gone."""


class RuntimeEnvSetupError(WeftError):
    """The runtime environment could not be made."""

    def __init__(self, error_message: str = "") -> None:
        super().__init__(error_message)
        self.error_message = error_message

    def __str__(self) -> str:
        return f"The runtime environment could not be set up.\n{self.error_message}".rstrip()


class TaskUnschedulableError(WeftError):
    """No node can ever run the task as it was asked for."""

    def __init__(self, error_message: str = "") -> None:
        super().__init__(error_message)
        self.error_message = error_message

    def __str__(self) -> str:
        return f"The task is not schedulable: {self.error_message}"


class TaskPlacementGroupRemoved(WeftError):
    """The task's placement group was removed."""

    def __str__(self) -> str:
        return super().__str__() or "The task's placement group was removed."


class ObjectRefStreamEndOfStreamError(WeftError):
    """A generator task has no more refs."""


class StreamingGeneratorReplayInconsistentError(SystemFailureError):
    """A generator that was run again gave another number of values."""


# ---- actors ----------------------------------------------------------------------------------------


class ActorError(WeftError):
    """The actor could not finish the call."""

    def __init__(
        self,
        actor_id: str | None = None,
        error_msg: str = "The actor could not finish this call.",
        actor_init_failed: bool = False,
        preempted: bool = False,
    ) -> None:
        super().__init__(actor_id, error_msg, actor_init_failed, preempted)
        self.actor_id = actor_id
        self.error_msg = error_msg
        self.actor_init_failed = actor_init_failed
        self.preempted = preempted

    def __str__(self) -> str:
        return self.error_msg

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild_actor_error, (type(self), dict(self.__dict__))


def _rebuild_actor_error(cls: type[ActorError], fields: dict[str, Any]) -> ActorError:
    error = cls.__new__(cls)
    error.__dict__.update(fields)
    return error


class ActorDiedError(ActorError):
    """The actor is dead and will not come back."""

    def __init__(self, cause: TaskError | str | None = None, actor_id: str | None = None) -> None:
        if isinstance(cause, TaskError):
            text = f"The actor died because of an error raised in its creation task, {cause}"
            super().__init__(actor_id or cause.actor_id, text, actor_init_failed=True)
        else:
            super().__init__(actor_id, cause or "The actor died before it finished this call.")
        self.cause = cause


class ActorRuntimeEnvSetupError(RuntimeEnvSetupError, ActorDiedError):
    """The actor is dead because its runtime environment could not be made."""

    def __init__(self, error_message: str = "", actor_id: str | None = None) -> None:
        ActorDiedError.__init__(self, error_message, actor_id)
        self.error_message = error_message
        self.actor_init_failed = True

    def __str__(self) -> str:
        return f"The actor died: its runtime environment could not be set up.\n{self.error_message}".rstrip()


class ActorUnavailableError(ActorError):
    """The actor does not answer now; it may later. The call may or may not have run."""

    def __init__(self, error_message: str = "", actor_id: bytes | str | None = None) -> None:
        named = actor_id.hex() if isinstance(actor_id, bytes) else actor_id
        text = f"The actor {named or ''} is unavailable: {error_message}. The call may or may not have been run."
        super().__init__(named, text.replace("  ", " "))


class TaskNestingError(WeftError):
    """Tasks wait for tasks more deeply than the node has processes for."""


class ActorUnschedulableError(WeftError):
    """No node can ever hold the actor as it was asked for."""

    def __init__(self, error_message: str = "") -> None:
        super().__init__(error_message)
        self.error_message = error_message

    def __str__(self) -> str:
        return f"The actor is not schedulable: {self.error_message}"


class ActorPlacementGroupRemoved(ActorDiedError):
    """The actor's placement group was removed, and the actor with it."""

    def __init__(self, cause: str | None = None, actor_id: str | None = None) -> None:
        super().__init__(cause or "The actor's placement group was removed.", actor_id)


class ActorAlreadyExistsError(ValueError, WeftError):
    """Another living actor has that name."""


class ActorHandleNotFoundError(ValueError, WeftError):
    """The handle belongs to another session."""


class AsyncioActorExit(WeftError):
    """Ends a coroutine of an actor that exits by `exit_actor()`."""


class PendingCallsLimitExceeded(WeftError):
    """The actor has as many unfinished calls of this process as `max_pending_calls` allows."""


# ---- objects ---------------------------------------------------------------------------------------


class ObjectLostError(WeftError):
    """Every copy of the object is gone."""

    def __init__(self, object_ref_hex: str = "", owner_address: object = None, call_site: str = "") -> None:
        super().__init__(object_ref_hex, owner_address, call_site)
        self.object_ref_hex = object_ref_hex
        self.owner_address = owner_address
        self.call_site = call_site

    def __str__(self) -> str:
        return self.call_site or f"{self.object_ref_hex}: {type(self).__doc__}"


class ObjectFetchTimedOutError(ObjectLostError):
    """No copy of the object was found in time."""


class ReferenceCountingAssertionError(ObjectLostError, AssertionError):
    """The object was freed although a ref to it exists."""


class ObjectFreedError(ObjectLostError):
    """The object was freed by hand."""


class OwnerDiedError(ObjectLostError):
    """The process that owned the object died, and what it owned with it."""


class ObjectReconstructionFailedError(ObjectLostError):
    """The object is lost and the task that made it cannot be run again."""


class ObjectStoreFullError(WeftError):
    """The object memory is full and nothing in it can be spilled."""


class OutOfDiskError(WeftError):
    """The object memory is full and so is the disk that it spills to."""


class OutOfMemoryError(WeftError):
    """The node ran out of memory and the worker that ran the task was stopped; the text has its peak."""


class GetTimeoutError(WeftError, TimeoutError):
    """`get` or `wait_for` did not have the value in time."""


class DeadlockError(WeftError):
    """A `get` or `wait` without a timeout would have waited for ever. `cycle` tells who waits for what."""

    def __init__(self, cycle: Iterable[str] = ()) -> None:
        self.cycle = tuple(cycle)
        super().__init__(self.cycle)

    def __str__(self) -> str:
        lines = "".join(f"\n  {line};" for line in self.cycle)
        return (
            f"this wait can never end:{lines.rstrip(';')}.\nReturn or pass the ref on instead of waiting for it, give "
            "the actor more threads (max_concurrency) or async methods, or free what the others need first."
        )


class PlasmaObjectNotAvailable(WeftError):
    """The object was not available in time."""


# ---- channels (Ray's compiled graphs); kept so that programs can import them -----------------------


class ChannelError(SystemFailureError):
    """A channel between actors failed."""


class ChannelTimeoutError(ChannelError, TimeoutError):
    """A channel operation took too long."""


class GraphCapacityExceeded(SystemFailureError):
    """A channel's buffer is full."""


class DirectTransportError(SystemFailureError):
    """A direct transfer between devices failed."""


# ---- Ray's names -----------------------------------------------------------------------------------

RayError = WeftError
RayTaskError = TaskError
RayActorError = ActorError
RaySystemError = SystemFailureError
LocalRayletDiedError = LocalNodeDiedError
UserCodeException = UserCodeError
OufOfBandObjectRefSerializationException = OutOfBandObjectRefSerializationError
RayChannelError = ChannelError
RayChannelTimeoutError = ChannelTimeoutError
RayCgraphCapacityExceeded = GraphCapacityExceeded
RayDirectTransportError = DirectTransportError
