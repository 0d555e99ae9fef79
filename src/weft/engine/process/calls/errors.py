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
from typing import Any, NoReturn

from weft import exceptions
from weft.engine.process.session import context_state
from weft.exceptions import ActorDiedError, TaskError, UnserializableException, WeftError
from weft.machine.own_frames import is_own
from weft.terminal.uncaught import note_read_only, with_source

WORKER_CRASHED, ACTOR_DIED, OWNER_DIED, OBJECT_LOST, CANCELLED = 1, 2, 3, 4, 5
NODE_LOST, ACTOR_UNAVAILABLE, OUT_OF_MEMORY, GET_TIMED_OUT, UNSCHEDULABLE = 6, 7, 8, 9, 10

ENV_FAILED, ACTOR_ENV_FAILED = 20, 21
"""The runtime environment of a task, or of an actor, could not be made."""
GROUP_REMOVED, ACTOR_GROUP_REMOVED = 22, 23
"""The placement group of a task, or of an actor, was removed."""
RECONSTRUCTION_FAILED = 24
"""An object was lost with its node and cannot be made again."""
STOPPED_FOR_MEMORY = 25
NESTED_TOO_DEEPLY = 27
"""The worker of a task was stopped because its node ran out of memory."""

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
        return bytes((ord("S"), ACTOR_DIED)) + text.encode() + b"\0" + actor.hex().encode(), False
    if isinstance(error, KeyboardInterrupt):  # of the task, not of who waits for it: there it would look like a Ctrl-C
        return bytes((ord("S"), CANCELLED)) + f"{name} raised it itself:\n{format_remote(error)}".encode(), False
    died = name.endswith(".__init__")  # an actor's creation: its failure is the actor's death
    if isinstance(error, SetupFailure):
        return bytes((ord("S"), ACTOR_ENV_FAILED if died else ENV_FAILED)) + error.error_message.encode(), False
    note_read_only(error)
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
    if not isinstance(error, TaskError):
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


def system_error(code: int, text: str) -> BaseException:
    """The engine's own errors, by their code. That of an actor has a NUL and the actor's id behind its text."""
    text, _, actor = text.partition("\0")
    actor_id = actor or None
    if code == WORKER_CRASHED:
        return exceptions.WorkerCrashedError(text)
    if code == ACTOR_DIED:
        return ActorDiedError(text, actor_id)
    if code == ENV_FAILED:
        return exceptions.RuntimeEnvSetupError(text)
    if code == ACTOR_ENV_FAILED:
        return exceptions.ActorRuntimeEnvSetupError(text, actor_id)
    if code == GROUP_REMOVED:
        return exceptions.TaskPlacementGroupRemoved(text)
    if code == ACTOR_GROUP_REMOVED:
        return exceptions.ActorPlacementGroupRemoved(text, actor_id)
    if code == OWNER_DIED:
        return exceptions.OwnerDiedError(call_site=text)
    if code == OBJECT_LOST:
        return exceptions.ObjectLostError(call_site=text)
    if code == RECONSTRUCTION_FAILED:
        return exceptions.ObjectReconstructionFailedError(call_site=text)
    if code == CANCELLED:
        return exceptions.TaskCancelledError(error_message=text)
    if code == NODE_LOST:
        return exceptions.NodeDiedError(text)
    if code == ACTOR_UNAVAILABLE:
        return exceptions.ActorUnavailableError(text, actor_id)
    if code == OUT_OF_MEMORY:
        return exceptions.ObjectStoreFullError(text)
    if code == STOPPED_FOR_MEMORY:
        return exceptions.OutOfMemoryError(text)
    if code == UNSCHEDULABLE:
        kind = exceptions.ActorUnschedulableError if text.startswith("actor") else exceptions.TaskUnschedulableError
        return kind(text)
    if code == NESTED_TOO_DEEPLY:
        return exceptions.TaskNestingError(text)
    if code == GET_TIMED_OUT:
        return exceptions.GetTimeoutError(text)
    return exceptions.SystemFailureError(text)


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
