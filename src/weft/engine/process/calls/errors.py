"""Error values: what a failed task leaves in place of its result, as bytes, and the exceptions made from them.

An error value begins with a letter:

    S  the engine's own: one byte of code and a UTF-8 text (see `_native.error_value`), an actor's id behind a NUL
    P  what a task raised: a pickle of a story of plain fields
    D  a task that did not run: two bytes of length, its name, and the error value of its argument
    E  an exception as it is, pickled (in local mode, where an argument's error is known as an exception only)

What the task raised is pickled on its own inside the story, together with its chain of causes, so that a class that
cannot be rebuilt here costs the class and not the text.

Runs in drivers and workers, on whichever thread fails or waits.
"""

from __future__ import annotations

import os
import pickle
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from weft import _native, exceptions
from weft.engine.process.session import context_state
from weft.engine.wire.kinds import ErrorCode
from weft.exceptions import ActorDiedError, TaskError, UnserializableException, WeftError
from weft.machine.own_frames import is_own
from weft.terminal.uncaught import note_next_step, with_source

_LONGEST_CHAIN = 16
_NAME_LENGTH = 4
"""Bytes of the length of a task's name in an error value that begins with "D"."""


class ActorExit(SystemExit):
    """Ends an actor on purpose; raised by `exit_actor()`."""


class SetupFailure(exceptions.RuntimeEnvSetupError):
    """Raised in place of what a worker was to run, whose runtime environment could not be made."""


# ---- in the process that fails ---------------------------------------------------------------------


def dump_error(error: BaseException, name: str, retry_types: bytes = b"") -> tuple[bytes, bool]:
    """(error value, may be retried) of what the task or method `name` raised."""
    if isinstance(error, SystemExit) and (actor := context_state.here().actor_id):
        text = str(error) if isinstance(error, ActorExit) else f"The actor ended itself by sys.exit({error.code!r})"
        return _native.error_value(ErrorCode.ACTOR_DIED, f"{text}\0{actor.hex()}"), False
    if isinstance(error, KeyboardInterrupt):  # of the task, not of who waits for it: there it would look like a Ctrl-C
        return _native.error_value(ErrorCode.CANCELLED, f"{name} raised it itself:\n{format_remote(error)}"), False
    died = name.endswith(".__init__")  # an actor's creation: its failure is the actor's death
    if isinstance(error, SetupFailure):
        code = ErrorCode.ACTOR_ENV_FAILED if died else ErrorCode.ENV_FAILED
        return _native.error_value(code, error.error_message), False
    note_next_step(error)
    text = format_remote(error)
    story = {
        "function_name": name,
        "traceback_str": text,
        "pid": os.getpid(),
        "ip": context_state.state.node_ip,
        "node_id": context_state.state.node_id,
        "attempt": context_state.current_attempt(),
        "actor_id": context_state.current_actor_hex(),
        "actor_repr": context_state.current_actor_repr(),
    }
    value = b"P" + pickle.dumps((story, _dump_chain(error), died), protocol=5)
    return value, _may_retry(error, retry_types)


def format_remote(error: BaseException) -> str:
    """The traceback as text, without the engine's own frames."""
    try:
        summary = traceback.TracebackException(type(error), error, error.__traceback__)
        _drop_engine_frames(summary, set())
        return "".join(summary.format())
    except Exception as failure:  # a __str__ or __repr__ that raises must not hide the task's failure
        return f"Traceback (most recent call last):\n{type(error).__name__}: (no text: {type(failure).__name__})\n"


def _drop_engine_frames(summary: traceback.TracebackException, seen: set[int]) -> None:
    if id(summary) in seen:
        return
    seen.add(id(summary))
    kept = [frame for frame in summary.stack if not is_own(frame.filename)]
    summary.stack = traceback.StackSummary.from_list(kept)
    chained = [summary.__cause__, summary.__context__, *(getattr(summary, "exceptions", None) or [])]
    for other in chained:
        if other is not None:
            _drop_engine_frames(other, seen)


def _may_retry(error: BaseException, retry_types: bytes) -> bool:
    if not isinstance(error, Exception):
        return False
    if not retry_types:
        return True
    root: BaseException | None = error
    types: tuple[type, ...] = pickle.loads(retry_types)
    while root is not None:
        if isinstance(root, types):
            return True
        root = root.cause if isinstance(root, TaskError) else None
    return False


def _dump_chain(error: BaseException) -> list[tuple[bytes, str]]:
    """Pickles of the error and of what it was raised from, each with the word that joins it to the one before."""
    links: list[tuple[bytes, str]] = []
    current: BaseException | None = error
    joined = ""
    while current is not None and len(links) < _LONGEST_CHAIN:
        links.append((_dump_one(current), joined))
        if current.__cause__ is not None:
            current, joined = current.__cause__, "cause"
        elif current.__context__ is not None and not current.__suppress_context__:
            current, joined = current.__context__, "context"
        else:
            break
    return links


def _dump_one(error: BaseException) -> bytes:
    from weft.values import serialize

    try:
        return serialize.dumps(error)
    except Exception as failure:
        text = (
            f"Exception {type(error).__module__}.{type(error).__qualname__} isn't serializable: {failure}\n"
            f"Original exception details:\n{format_remote(error)}"
        )
        return pickle.dumps(WeftError(text), protocol=5)


def dependency_value(name: str, error: Exception) -> bytes:
    """Of a task that cannot run because `error` is what an argument's `get` raised; as the core makes it."""
    inner = b"E" + _dump_one(error)
    if isinstance(error, exceptions.TaskCancelledError):
        return inner
    encoded = name.encode()
    return b"D" + len(encoded).to_bytes(_NAME_LENGTH, sys.byteorder) + encoded + inner


def deadlock_value(cycle: list[str]) -> bytes:
    """Of a wait that was found to be in vain."""
    return b"E" + pickle.dumps(exceptions.DeadlockError(cycle), protocol=5)


def retry_types(pickled: bytes) -> tuple[type, ...]:
    """Of `pickled_types`; empty for all."""
    return tuple(pickle.loads(pickled)) if pickled else ()


# ---- in the process that waits ---------------------------------------------------------------------


def raise_error(error: bytes) -> NoReturn:
    """Raise what an error value holds."""
    raise load_error(error)


def load_error(error: bytes) -> BaseException:
    if error[:1] == b"S":
        return system_error(error[1], bytes(error[2:]).decode("utf-8", "replace"))
    if error[:1] == b"D":
        return _dependency_error(bytes(error))
    if error[:1] == b"E":
        return _load_one(error[1:])
    story, chain, died = pickle.loads(memoryview(error)[1:])
    story["traceback_str"] = with_source(story["traceback_str"])
    cause = _load_chain(chain)
    if isinstance(cause, Undecodable) and not died:
        return UnserializableException(str(TaskError(cause=None, **story)))
    task_error = TaskError(cause=cause, **story)
    if died:
        return ActorDiedError(task_error)
    return task_error.as_instanceof_cause()


def _dependency_error(error: bytes) -> BaseException:
    """An error of the first cause's class that names each task behind it."""
    start = 1 + _NAME_LENGTH
    end = start + int.from_bytes(error[1:start], sys.byteorder)
    cause = load_error(error[end:])
    shown = (
        f"{exceptions.package_name()}.exceptions.{exceptions.task_error_name()}"
        if isinstance(cause, TaskError)
        else type(cause).__name__
    )
    text = (
        "Traceback (most recent call last):\n"
        f"  At least one of the input arguments for this task could not be computed:\n{shown}: {cause}"
    )
    return TaskError(error[start:end].decode("utf-8", "replace"), text, cause).as_instanceof_cause()


class Undecodable(WeftError):
    """Stands for an exception that could not be unpickled."""


def _load_chain(chain: list[tuple[bytes, str]]) -> BaseException:
    made: list[BaseException] = []
    for data, joined in chain:
        error = _load_one(data)
        if made and joined == "cause":
            made[-1].__cause__ = error
        elif made:
            made[-1].__context__ = error
        made.append(error)
    return made[0]


def _load_one(data: bytes) -> BaseException:
    try:
        error = pickle.loads(data)
    except Exception as failure:
        return Undecodable(str(failure))
    return error if isinstance(error, BaseException) else Undecodable(f"a {type(error).__name__}, not an exception")


_OF_TASKS: dict[int, type[WeftError]] = {
    ErrorCode.WORKER_CRASHED: exceptions.WorkerCrashedError,
    ErrorCode.ENV_FAILED: exceptions.RuntimeEnvSetupError,
    ErrorCode.GROUP_REMOVED: exceptions.TaskPlacementGroupRemoved,
    ErrorCode.NODE_LOST: exceptions.NodeDiedError,
    ErrorCode.OUT_OF_MEMORY: exceptions.ObjectStoreFullError,
    ErrorCode.STOPPED_FOR_MEMORY: exceptions.OutOfMemoryError,
    ErrorCode.UNSCHEDULABLE: exceptions.TaskUnschedulableError,
    ErrorCode.ACTOR_UNSCHEDULABLE: exceptions.ActorUnschedulableError,
    ErrorCode.NESTED_TOO_DEEPLY: exceptions.TaskNestingError,
    ErrorCode.GET_TIMED_OUT: exceptions.GetTimeoutError,
}
_OF_ACTORS: dict[int, Callable[[str, str | None], WeftError]] = {
    ErrorCode.ACTOR_DIED: ActorDiedError,
    ErrorCode.ACTOR_ENV_FAILED: exceptions.ActorRuntimeEnvSetupError,
    ErrorCode.ACTOR_GROUP_REMOVED: exceptions.ActorPlacementGroupRemoved,
    ErrorCode.ACTOR_UNAVAILABLE: exceptions.ActorUnavailableError,
}
_OF_OBJECTS: dict[int, type[exceptions.ObjectLostError]] = {
    ErrorCode.OWNER_DIED: exceptions.OwnerDiedError,
    ErrorCode.OBJECT_LOST: exceptions.ObjectLostError,
    ErrorCode.RECONSTRUCTION_FAILED: exceptions.ObjectReconstructionFailedError,
}


def system_error(code: int, text: str) -> BaseException:
    """The engine's own errors, by their `ErrorCode`. That of an actor has a NUL and the actor's id behind its text."""
    text, _, actor = text.partition("\0")
    if code == ErrorCode.CANCELLED:
        return exceptions.TaskCancelledError(error_message=text)
    if (of_actor := _OF_ACTORS.get(code)) is not None:
        return of_actor(text, actor or None)
    if (of_object := _OF_OBJECTS.get(code)) is not None:
        return of_object(call_site=text)
    return _OF_TASKS.get(code, exceptions.SystemFailureError)(text)


def error_from_kind(kind: str, text: str) -> BaseException:
    """The exception that a Reply of the node daemon names: one of weft.exceptions or a builtin one."""
    import builtins

    cls: Any = getattr(exceptions, kind, None) or getattr(builtins, kind, None)
    if isinstance(cls, type) and issubclass(cls, ActorDiedError | exceptions.ActorUnavailableError):
        return cls(text)
    if isinstance(cls, type) and issubclass(cls, exceptions.ObjectLostError):
        return cls(call_site=text)
    if isinstance(cls, type) and issubclass(cls, exceptions.ActorError):
        return cls(None, text)
    if isinstance(cls, type) and issubclass(cls, Exception):
        return cls(text)
    return exceptions.RpcError(text)
