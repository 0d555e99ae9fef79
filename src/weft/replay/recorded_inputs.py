"""What a failed task or call was given, as bytes that a person's process can run again (`weft replay`).

Two pickles, one behind the other: where modules and files are found, and an `Inputs`. Refs inside are written with
their values, if those are at hand; handles of actors become ones that give recorded answers (`recorded_actors`).
Nothing larger than `LARGEST_BYTES` is written: memory is not used for it beyond `SMALL_BYTES`, the rest goes to a file
without a name.

Written in workers, on the thread that fails; read in the process of `weft replay`, in local mode.
"""

from __future__ import annotations

import os
import pickle
import sys
import tempfile
from dataclasses import dataclass, field
from typing import IO, Any, NoReturn

import cloudpickle

from weft import _native
from weft._native import ObjectRef
from weft.engine.process.calls.remote_function import RemoteFunction
from weft.engine.process.objects.put import put
from weft.exceptions import ObjectLostError, TaskError
from weft.replay.recorded_actors import RecordedActor, RecordedMethod

SMALL_BYTES = 1 << 20
LARGEST_BYTES = 256 << 20


class CannotRecord(Exception):
    """Why there will be nothing to replay."""


@dataclass
class Inputs:
    """Of a task: its function. Of an actor's call: the actor's class, how it came to be, and the calls before."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    function: Any = None
    method: str = ""
    cls: Any = None
    made: bytes | None = None
    """The pickled arguments of its constructor."""
    state: bytes | None = None
    """Or its pickled state."""
    calls: list[bytes] = field(default_factory=list)
    """Each pickled: (method, args, kwargs), in their order."""
    note: str = ""
    """What is not as it was."""
    is_recorded: bool = False
    """Whether calls were recorded (WEFT_RECORD_CALLS), of which these are the answers:"""
    answers: bytes = b""
    """What actors answered to it: a pickled `calls_made.Notes`, or nothing."""
    answers_made: bytes = b""
    """To its actor's constructor."""
    answers_before: list[bytes] = field(default_factory=list)
    """To each of the calls before."""


def write(inputs: Inputs) -> IO[bytes]:
    """A file at its end. CannotRecord, with the reason."""
    file = tempfile.SpooledTemporaryFile(max_size=SMALL_BYTES, prefix="weft-inputs-")  # noqa: SIM115
    bounded: Any = _Bounded(file)
    try:
        pickle.dump((sys.path, os.getcwd()), bounded)
        _RecordingPickler(bounded, protocol=5).dump(inputs)
    except CannotRecord:
        file.close()
        raise
    except Exception as error:
        file.close()
        raise CannotRecord(f"its inputs cannot be pickled: {error}") from error
    return file


def dumps(value: Any) -> bytes:
    """One pickle with refs as in `write`. CannotRecord."""
    with write_value(value) as file:
        return file.read()


def write_value(value: Any) -> IO[bytes]:
    file = tempfile.SpooledTemporaryFile(max_size=SMALL_BYTES)  # noqa: SIM115
    bounded: Any = _Bounded(file)
    try:
        _RecordingPickler(bounded, protocol=5).dump(value)
    except CannotRecord:
        file.close()
        raise
    except Exception as error:
        file.close()
        raise CannotRecord(f"{type(value).__name__} cannot be pickled: {error}") from error
    file.seek(0)
    return file


def read(file: IO[bytes]) -> Inputs:
    """Modules are found where the task found them, and files from its folder. LookupError when a module is not."""
    path, folder = pickle.load(file)
    sys.path += [entry for entry in path if entry not in sys.path]
    if os.path.isdir(folder):
        os.chdir(folder)
    try:
        found: Inputs = pickle.load(file)
    except ModuleNotFoundError as error:
        raise LookupError(f"a module of the task is not found here: {error}") from error
    return found


class _Bounded:
    """A file that takes at most `LARGEST_BYTES`."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._left = LARGEST_BYTES

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        self._left -= size
        if self._left < 0:
            raise CannotRecord(f"its inputs have more than {LARGEST_BYTES >> 20} MiB")
        self._file.write(data)
        return size


class _RecordingPickler(cloudpickle.Pickler):  # type: ignore[misc]
    """cloudpickle, with the values of refs in their place."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, ObjectRef):
            return _reduced_ref(value)
        if type(value).__module__ == "weft.engine.process.actors.actor_handle":
            if type(value).__name__ == "ActorHandle":
                return RecordedActor, (value._weft_description.class_name, value._weft_token.binary().hex())
            if type(value).__name__ == "ActorMethod":
                return RecordedMethod, (value._description.class_name, value._token.binary().hex(), value._name)
        return super().reducer_override(value)


def _reduced_ref(ref: ObjectRef[Any]) -> Any:
    if not ref.is_ready():
        return _missing_ref, ("it was not ready when the task failed",)
    try:
        return _ref_to, (_native.get(ref, 0.0),)
    except Exception as error:
        return _reduced_error(error)


def _reduced_error(error: Exception) -> Any:
    try:
        return _failed_ref, (cloudpickle.dumps(error),)
    except Exception:  # it cannot be pickled
        return _missing_ref, (f"{type(error).__name__}: {error}"[:1000],)


def _ref_to(value: Any) -> Any:
    return put(value)


def _failed_ref(error: bytes) -> Any:
    return RemoteFunction(_raise_again, {}).remote(error)


def _raise_again(error: bytes) -> NoReturn:
    """As the task that made it did: what it raised, not what who asked was told."""
    raised = pickle.loads(error)
    cause = raised.cause if isinstance(raised, TaskError) else None
    raise cause if isinstance(cause, BaseException) else raised


def _missing_ref(why: str) -> Any:
    return RemoteFunction(_raise_missing, {}).remote(why)


def _raise_missing(why: str) -> NoReturn:
    raise ObjectLostError(call_site=f"the value of this ref was not recorded: {why}")
