"""A `concurrent.futures.Executor` whose calls are tasks.

>>> with Executor() as executor:
...     executor.submit(pow, 2, 10).result()
1024
"""

from __future__ import annotations

import concurrent.futures
import itertools
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, ParamSpec, TypeVar

import weft
from weft.util.dispatch import Dispatcher, Job, Lane
from weft.util.portable_function import Packed, is_constant, pack, unpack

__all__ = ["Executor"]

P = ParamSpec("P")
T = TypeVar("T")

PLACES_PER_CPU = 16


class Executor(concurrent.futures.Executor):
    """`max_workers`: at most so many calls are under way at a time; by default as many as keep the cluster busy.

    `options` are those of the tasks (`num_cpus`, `resources`, ...). A call that the engine has been given counts as
    running and cannot be cancelled any more. Starts a session when there is none.

    >>> with Executor() as executor:
    ...     list(executor.map(abs, [-1, -2, 3]))
    [1, 2, 3]
    """

    def __init__(self, max_workers: int | None = None, *, options: Mapping[str, Any] | None = None) -> None:
        if max_workers is not None and (isinstance(max_workers, bool) or not isinstance(max_workers, int)):
            raise TypeError(f"max_workers must be an int or None, but got {max_workers!r}")
        if max_workers is not None and max_workers < 1:
            raise ValueError(f"max_workers must be greater than 0, but got {max_workers}")
        if not weft.is_initialized():
            weft.init()
        self._options = dict(options or {})
        self._tasks: weakref.WeakKeyDictionary[Callable[..., Any], Any] = weakref.WeakKeyDictionary()
        self._run_packed = self._task(_run_packed)
        self._run_chunk = self._task(_run_chunk)
        places = max_workers or PLACES_PER_CPU * max(1, int(weft.cluster_resources().get("CPU", 1)))
        self._dispatcher = Dispatcher(_Place() for _ in range(places))
        self._is_shut_down = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """`fn(*args, **kwargs)` as a task. A ref among the arguments is replaced by its value, as in `.remote()`."""
        if self._is_shut_down:
            raise RuntimeError("cannot schedule new futures after shutdown")
        if not callable(fn):
            raise TypeError(f"fn must be callable, but got {fn!r}")
        if is_constant(fn):
            return self._add(self._task_of(fn), None, args, kwargs)
        return self._add(self._run_packed, pack(fn), args, kwargs)

    def _add(self, submit: Any, packed: Packed | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Future[Any]:
        future = _TaskFuture(self._dispatcher)
        future.job = _Call(future, submit, packed, args, kwargs)
        self._dispatcher.add([future.job])
        return future

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
    ) -> Iterator[T]:
        """The results in order. All inputs are read at once, or at most `buffersize` chunks ahead of what was taken.

        A task makes `chunksize` calls. TimeoutError when a result is not there `timeout` seconds after the call."""
        if self._is_shut_down:
            raise RuntimeError("cannot schedule new futures after shutdown")
        if chunksize < 1:
            raise ValueError(f"chunksize must be at least 1, but got {chunksize}")
        if buffersize is not None and buffersize < 1:
            raise ValueError(f"buffersize must be None or greater than 0, but got {buffersize}")
        deadline = None if timeout is None else time.monotonic() + timeout
        arguments = zip(*iterables)  # noqa: B905 - the shortest ends it, as in map()
        parts = iter(lambda: list(itertools.islice(arguments, chunksize)), [])
        packed = pack(fn)
        started = (self._add(self._run_chunk, packed, (part,), {}) for part in parts)
        return _results(deque(itertools.islice(started, buffersize)), started, deadline)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls. `cancel_futures` cancels what the engine was not given yet; `wait` waits for the rest."""
        self._is_shut_down = True
        if cancel_futures:
            self._dispatcher.abandon(concurrent.futures.CancelledError())
        if wait:
            self._dispatcher.wait(self._dispatcher.is_idle)
        self._dispatcher.stop(wait)

    def _task_of(self, fn: Callable[..., Any]) -> Any:
        """A function's own task, so that the engine learns how long it takes."""
        task = self._tasks.get(fn)
        if task is None:
            task = self._tasks[fn] = self._task(fn)
        return task

    def _task(self, fn: Callable[..., Any]) -> Any:
        remote: Any = weft.remote(**self._options)(fn) if self._options else weft.remote(fn)
        return remote.remote


def _results(futures: deque[Future[Any]], started: Iterator[Future[Any]], deadline: float | None) -> Iterator[Any]:
    """Values chunk by chunk; for each that was taken the next is started. Dropped early, it cancels what it can."""
    try:
        while futures:
            values = futures.popleft().result(None if deadline is None else deadline - time.monotonic())
            futures.extend(itertools.islice(started, 1))
            yield from values
    finally:
        for future in futures:
            future.cancel()


class _Place(Lane):
    """Room for one task."""

    __slots__ = ()

    def start(self, job: _Call) -> Any:
        job.future.set_running_or_notify_cancel()
        if job.packed is None:
            return job.submit(*job.args, **job.kwargs)
        return job.submit(job.packed, job.args, job.kwargs)


class _Call(Job):
    __slots__ = ("args", "error", "future", "kwargs", "packed", "submit", "value")

    def __init__(
        self, future: _TaskFuture, submit: Any, packed: Packed | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.future = future
        self.submit = submit
        self.packed = packed
        self.args = args
        self.kwargs = kwargs
        self.value: Any = None
        self.error: BaseException | None = None

    def settle(self, value: Any, error: BaseException | None) -> None:
        self.value, self.error = value, error
        self.args, self.kwargs = (), {}
        self.future.is_settled = True

    def announce(self) -> None:
        """The future runs what was added to it as callbacks, which may block: not on a thread of the engine's."""
        if self.future.has_callbacks():
            self.future.dispatcher.later(self._finish)
        else:
            self._finish()

    def _finish(self) -> None:
        future, error = self.future, self.error
        if isinstance(error, concurrent.futures.CancelledError):
            future.cancel_now()
        elif error is not None:
            future.set_exception(error)
        else:
            future.set_result(self.value)
        self.value = self.error = future.job = None  # no cycle stays


class _TaskFuture(Future[Any]):
    """Waits in the engine, so that a task that waits lends its CPUs."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        super().__init__()
        self.dispatcher = dispatcher
        self.job: _Call | None = None
        self.is_settled = False

    def result(self, timeout: float | None = None) -> Any:
        return super().result(self._wait(timeout))

    def exception(self, timeout: float | None = None) -> BaseException | None:
        return super().exception(self._wait(timeout))

    def _wait(self, timeout: float | None) -> float | None:
        """Until the outcome is there or the time is up; what is left of it."""
        if self.done():
            return timeout
        deadline = None if timeout is None else time.monotonic() + timeout
        self.dispatcher.wait(
            lambda: self.is_settled or self.cancelled(), None if timeout is None else max(0.0, timeout)
        )
        return None if deadline is None else max(0.0, deadline - time.monotonic())

    def cancel(self) -> bool:
        """Whether it will never run: only a call that the engine has not been given can be taken back."""
        if self.job is not None and self.dispatcher.withdraw(self.job):
            return self.cancel_now()
        return self.cancelled()

    def cancel_now(self) -> bool:
        if super().cancel():
            self.set_running_or_notify_cancel()
        return self.cancelled()

    def has_callbacks(self) -> bool:
        return bool(self._done_callbacks)  # type: ignore[attr-defined]


def _run_packed(packed: Packed, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return unpack(packed)(*args, **kwargs)


def _run_chunk(packed: Packed, args: tuple[list[tuple[Any, ...]]], kwargs: dict[str, Any]) -> list[Any]:
    function = unpack(packed)
    return [function(*arguments) for arguments in args[0]]
