"""Runs a task where it is submitted, on the submitter's thread, before `.remote()` returns.

Arguments and results go through the object store as they do between processes, so a task cannot change what its
caller holds, and what cannot be pickled is refused in the same words. The function itself is called as it is: its
globals are the caller's. What it raises is kept for `get`; only KeyboardInterrupt passes through at once.

A task that needs the value of a ref waits for it first.
"""

from __future__ import annotations

import contextlib
import math
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from weft import _native
from weft._native import ObjectRef
from weft.engine.process.calls import current, errors, export
from weft.engine.process.options.call_options import Placement, TaskOptions
from weft.engine.process.session import context_state
from weft.engine.process.session.context_state import ProcessState
from weft.engine.wire.kinds import ErrorCode
from weft.exceptions import WeftError
from weft.local.local_streams import PulledGenerator
from weft.values import culprit

_PLAIN = (int, float, str, bytes, bool, type(None))
_ID_BYTES, _INDEX_BYTES = 12, 4


class LocalTask:
    """What `f.remote` calls in local mode."""

    def __init__(self, function: Callable[..., Any], name: str, options: TaskOptions) -> None:
        check_runtime_env(options.runtime_env, f"task {name}")
        self._function = function
        self._name = name
        self._options = options

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        options, name = self._options, self._name
        worker = replace(worker_for(options), modules={name: self._function.__module__})
        run = Run(name, worker, options.max_retries if options.retry_exceptions else 0, options.retry_types)
        return run.submit(self._function, args, kwargs, options.num_returns, options.writable_args)


class Run:
    """One task or one call of a serial actor, with its attempts."""

    def __init__(self, name: str, worker: ProcessState, retries: int, retry_types: tuple[type, ...]) -> None:
        self.name = name
        self.worker = worker
        self._retries_left = retries
        self._retry_types = retry_types or (Exception,)
        self._attempt = 0
        self._task = b""

    def submit(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        num_returns: int | str,
        writable: bool,
    ) -> Any:
        """Run it; its refs, as `.remote()` gives them."""
        count = 1 if isinstance(num_returns, str) else num_returns
        sent = [copied(value, f"args[{index}]", self.name) for index, value in enumerate(args)]
        named = {key: copied(value, f"kwargs[{key!r}]", self.name) for key, value in kwargs.items()}
        refs = [_native.promise() for _ in range(max(1, count))]
        self._task = refs[0].binary()[:_ID_BYTES] + bytes(_INDEX_BYTES)
        try:
            taken = [value_of(value, writable) for value in sent]
            taken_named = {key: value_of(value, writable) for key, value in named.items()}
        except Exception as error:
            keep_error(refs, errors.dependency_value(self.name, error))
        else:
            if isinstance(num_returns, str):
                return PulledGenerator(refs[0], self, lambda: function(*taken, **taken_named))
            self._run(lambda: function(*taken, **taken_named), refs, count)
        if isinstance(num_returns, str):
            return PulledGenerator(refs[0], self, None)
        return refs[0] if count == 1 else refs if count else None

    def _run(self, call: Callable[[], Any], refs: list[ObjectRef[Any]], count: int) -> None:
        while True:
            try:
                with self.entered():
                    keep(refs, call(), count, self.name)
                return
            except BaseException as error:
                if self._may_retry(error):
                    continue
                keep_error(refs, self.error_value(error))
                return

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """The code in it belongs to this task."""
        token = current.on_loop.set((self._task, self._attempt, self.name, self.worker.actor_id))
        try:
            with context_state.inside(self.worker):
                yield
        finally:
            current.on_loop.reset(token)

    def error_value(self, error: BaseException) -> bytes:
        """What `get` will raise."""
        if isinstance(error, KeyboardInterrupt):
            raise error
        with self.entered():
            return error_value(error, self.name, self.worker)

    def _may_retry(self, error: BaseException) -> bool:
        if not self._retries_left or not isinstance(error, self._retry_types) or not isinstance(error, Exception):
            return False
        self._retries_left -= 1
        self._attempt += 1
        return True


def check_runtime_env(runtime_env: str, subject: str) -> None:
    """One process has one environment."""
    if runtime_env:
        warnings.warn(
            f"local mode runs everything in this process: the runtime_env of {subject} is not applied", stacklevel=4
        )


def error_value(error: BaseException, name: str, worker: ProcessState) -> bytes:
    if isinstance(error, SystemExit) and not worker.actor_id:
        text = f"task {name} ended its worker by sys.exit({error.code!r})"
        return _native.error_value(ErrorCode.WORKER_CRASHED, text)
    return errors.dump_error(error, name)[0]


def worker_for(placement: Placement) -> ProcessState:
    """What stands for the process that would run it."""
    strategy = export.effective_strategy(placement.strategy)
    group = str(strategy["group"]) if strategy.get("kind") == "placement_group" else ""
    held = placement.resources
    return replace(
        context_state.state,
        is_worker=True,
        held=dict(held),
        num_cpus=held.get("CPU", 0.0),
        gpu_ids=list(range(math.ceil(held.get("GPU", 0.0)))),
        placement_group=group,
        captures_child_tasks=bool(group and strategy.get("capture_child_tasks")),
        local=None,
    )


# ---- values ----------------------------------------------------------------------------------------


def copied(value: Any, path: str, name: str) -> Any:
    """What the task gets in its place: a ref to a copy, the ref itself, or the value when it is plain."""
    if type(value) in _PLAIN or isinstance(value, ObjectRef):
        return value
    try:
        return _Copy(_native.put(value))
    except WeftError:
        raise
    except Exception as error:
        raise culprit.explain(value, path, f" of task {name}", error) from error


class _Copy:
    """A value on its way to a task."""

    __slots__ = ("ref",)

    def __init__(self, ref: ObjectRef[Any]) -> None:
        self.ref = ref


def value_of(value: Any, writable: bool = False) -> Any:
    ref = value.ref if isinstance(value, _Copy) else value
    return _native.get(ref, -1.0, writable) if isinstance(ref, ObjectRef) else value


def keep(refs: list[ObjectRef[Any]], value: Any, count: int, name: str) -> None:
    """Give the refs their values; raises when there are more or fewer, or one cannot be pickled."""
    is_one = count == 1 and not isinstance(value, types.GeneratorType)
    values = [value] if is_one else [None] if count == 0 else split(value, count, name)
    for one in values[1:]:
        _native.put_result(one)  # so that all can be kept, or none is
    for ref, one in zip(refs, values, strict=True):
        _native.keep_promise(ref, one, b"")


def split(value: Any, count: int, name: str) -> list[Any]:
    values = []
    for one in iter(value):
        values.append(one)
        if len(values) > count:
            break
    if len(values) > count and isinstance(value, types.GeneratorType):
        warnings.warn(
            f"task {name} has num_returns={count} but yields more values: only so many are taken",
            RuntimeWarning,
            stacklevel=1,
        )
        return values[:count]
    if len(values) != count:
        more = "at least " if len(values) > count else ""
        raise ValueError(f"task {name} has num_returns={count} but returned {more}{len(values)} values")
    return values


def keep_error(refs: list[ObjectRef[Any]], error: bytes) -> None:
    for ref in refs:
        _native.keep_promise(ref, None, error)
