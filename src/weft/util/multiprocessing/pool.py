"""`multiprocessing.Pool` whose workers are actors: the same calls, the same errors, on Weft's engine.

What is better than the original: functions and arguments may be anything that cloudpickle takes; a worker that dies
fails the calls it had, with an error that says so, and is replaced; pools nest; an imap over an endless iterator reads
ahead a bounded way only.

>>> with Pool(2) as pool:
...     pool.map(lambda x: x * x, range(4))
[0, 1, 4, 9]
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

import weft
from weft.exceptions import ActorDiedError, ActorError
from weft.util.dispatch import Dispatcher, Lane, Pace
from weft.util.multiprocessing.results import (
    ApplyResult,
    AsyncResult,
    Call,
    Callback,
    Chunk,
    IMapIterator,
    IMapUnorderedIterator,
    MapResult,
)
from weft.util.multiprocessing.worker import APPLY, EACH, MAP, STARMAP, PoolWorker
from weft.util.portable_function import Packed, pack

__all__ = ["AsyncResult", "IMapIterator", "IMapUnorderedIterator", "Pool"]

_ADDRESS_VARIABLES = ("WEFT_ADDRESS", "RAY_ADDRESS")
_LAST_CALLS_S = 5.0
_MOST_PACES = 64

logger = logging.getLogger(__name__)


class Worker(Lane):
    """The actor of the moment. Made when there is work for it, and anew after `max_tasks` chunks or a death."""

    __slots__ = ("_actor_class", "_arguments", "_done", "_max_tasks", "actor", "is_ordered", "submit")

    def __init__(self, actor_class: Any, arguments: tuple[Any, ...], max_tasks: int | None) -> None:
        super().__init__()
        self._actor_class = actor_class
        self._arguments = arguments
        self._max_tasks = max_tasks
        self.is_ordered = max_tasks is None  # else each chunk must find out whether it is the last
        self.actor: Any = None
        self.submit: Any = None
        self._done = 0

    def spawn(self) -> None:
        self.actor = self._actor_class.remote(*self._arguments)
        self.submit = self.actor.run.remote
        self._done = 0

    def start(self, chunk: Chunk) -> Any:
        if self.actor is None:
            self.spawn()
        return self.submit(chunk.call.packed, chunk.call.kind, chunk.items)

    def ended(self, error: BaseException | None) -> None:
        self._done += 1
        if self._done == self._max_tasks or isinstance(error, ActorError):
            self.actor = self.submit = None


class Pool:
    """`processes` workers, by default one for each CPU of the cluster; starts a session when there is none.

    `initializer(*initargs)` runs first in each worker; what it raises is raised here. `maxtasksperchild`: a worker is
    replaced after so many chunks. `context` is accepted and ignored. `ray_address`: where to attach when this process
    is not attached yet. `ray_remote_args`: options of the actors, which by default hold no CPU.

    >>> with Pool(2) as pool:
    ...     pool.map(abs, [-1, 2, -3])
    [1, 2, 3]
    """

    def __init__(
        self,
        processes: int | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: Iterable[Any] | None = None,
        maxtasksperchild: int | None = None,
        context: Any = None,
        ray_address: str | None = None,
        ray_remote_args: Mapping[str, Any] | None = None,
    ) -> None:
        self._state = "CLOSE"  # until all is in place
        _check_count("processes", processes)
        _check_count("maxtasksperchild", maxtasksperchild)
        if initializer is not None and not callable(initializer):
            raise TypeError(f"initializer must be a callable, but got {initializer!r}")
        if context is not None:
            logger.warning("Pool ignores context=%r: its workers are always Weft's.", context)
        self._processes = _attach(processes, ray_address)
        arguments = (None if initializer is None else pack(initializer), tuple(initargs or ()))
        actor_class = weft.remote(PoolWorker).options(**{"num_cpus": 0, **(ray_remote_args or {})})
        self._workers = self._make_workers(actor_class, arguments, maxtasksperchild)
        self._dispatcher = Dispatcher(self._workers)
        self._paces: dict[Packed, Pace] = {}
        self._reading: set[IMapIterator] = set()
        """Iterators whose source is not read to its end."""
        self._start(wait=initializer is not None)
        self._state = "RUN"

    def _make_workers(self, actor_class: Any, arguments: tuple[Any, ...], max_tasks: int | None) -> Sequence[Worker]:
        return [Worker(actor_class, arguments, max_tasks) for _ in range(self._processes)]

    def _start(self, wait: bool) -> None:
        for worker in self._workers:
            worker.spawn()
        if not wait:
            return
        try:
            weft.get([worker.actor.ping.remote() for worker in self._workers])
        except BaseException:
            self._kill_workers()
            raise

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__qualname__} state={self._state} processes={self._processes}>"

    def __reduce__(self) -> NoReturn:
        raise NotImplementedError("pool objects cannot be passed between processes or pickled")

    # ---- one call ----

    def apply(self, func: Callable[..., Any], args: Iterable[Any] = (), kwds: Mapping[str, Any] | None = None) -> Any:
        """`func(*args, **kwds)` in a worker; its value."""
        with self._dispatcher.pumping():
            return self.apply_async(func, args, kwds).get()

    def apply_async(
        self,
        func: Callable[..., Any],
        args: Iterable[Any] = (),
        kwds: Mapping[str, Any] | None = None,
        callback: Callback | None = None,
        error_callback: Callback | None = None,
    ) -> ApplyResult:
        """As `apply`, at once. One of the callbacks is called, on a thread of the pool, before the result is ready."""
        self._check_running()
        result = ApplyResult(self._dispatcher, callback, error_callback)
        items = (tuple(args or ()), dict(kwds or {}))
        self._dispatcher.add([Chunk(Call(pack(func), APPLY, None), items, result)])
        return result

    # ---- many calls ----

    def map(self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int | None = None) -> list[Any]:
        """The results, in order. `chunksize` calls go to a worker at a time; by default each gets four chunks."""
        with self._dispatcher.pumping():
            values: list[Any] = self.map_async(func, iterable, chunksize).get()
        return values

    def map_async(
        self,
        func: Callable[[Any], Any],
        iterable: Iterable[Any],
        chunksize: int | None = None,
        callback: Callback | None = None,
        error_callback: Callback | None = None,
    ) -> MapResult:
        """As `map`, but returns at once."""
        return self._map(func, MAP, iterable, chunksize, callback, error_callback)

    def starmap(
        self, func: Callable[..., Any], iterable: Iterable[Iterable[Any]], chunksize: int | None = None
    ) -> list[Any]:
        """As `map`, with an iterable of arguments for each call."""
        with self._dispatcher.pumping():
            values: list[Any] = self.starmap_async(func, iterable, chunksize).get()
        return values

    def starmap_async(
        self,
        func: Callable[..., Any],
        iterable: Iterable[Iterable[Any]],
        chunksize: int | None = None,
        callback: Callback | None = None,
        error_callback: Callback | None = None,
    ) -> MapResult:
        """As `starmap`, but returns at once."""
        return self._map(func, STARMAP, iterable, chunksize, callback, error_callback)

    def _map(
        self,
        func: Callable[..., Any],
        kind: int,
        iterable: Iterable[Any],
        chunksize: int | None,
        callback: Callback | None,
        error_callback: Callback | None,
    ) -> MapResult:
        self._check_running()
        items: Sequence[Any] = iterable if type(iterable) in (list, tuple, range) else list(iterable)  # type: ignore[assignment]
        if chunksize is None:
            chunksize = max(1, -(-len(items) // (4 * self._processes)))
        _check_chunksize(chunksize)
        result = MapResult(self._dispatcher, callback, error_callback)
        self._dispatcher.add(result.make_chunks(self._call(func, kind), items, chunksize))
        return result

    def _call(self, func: Callable[..., Any], kind: int) -> Call:
        packed = pack(func)
        if len(self._paces) > _MOST_PACES:
            self._paces.clear()
        return Call(packed, kind, self._paces.setdefault(packed, Pace()))

    def imap(self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int | None = 1) -> IMapIterator:
        """The results in order, as they come."""
        return self._imap(IMapIterator, func, iterable, chunksize)

    def imap_unordered(
        self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int | None = 1
    ) -> IMapIterator:
        """The results as they come."""
        return self._imap(IMapUnorderedIterator, func, iterable, chunksize)

    def _imap(
        self, kind: type[IMapIterator], func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int | None
    ) -> IMapIterator:
        self._check_running()
        _check_chunksize(chunksize or 1)
        results = kind(self._dispatcher, self._call(func, EACH), iterable, chunksize or 1, self._processes)
        self._reading = {other for other in self._reading if not other.is_exhausted}
        if not results.is_exhausted:
            self._reading.add(results)
        return results

    # ---- the end ----

    def close(self) -> None:
        """Take no more calls; those given are finished."""
        if self._state == "RUN":
            self._state = "CLOSE"

    def terminate(self) -> None:
        """End the workers at once. Calls that were not finished fail with ActorDiedError."""
        if self._state == "TERMINATE":
            return
        self._state = "TERMINATE"
        self._reading.clear()
        self._dispatcher.abandon(ActorDiedError("The pool was terminated before this call was run."))
        self._kill_workers()

    def join(self) -> None:
        """Wait until all is done and the workers have ended. ValueError unless the pool is closed or terminated."""
        if self._state == "RUN":
            raise ValueError("Pool is still running: call close() or terminate() first")
        for results in self._reading:
            results.pull(everything=True)
        self._dispatcher.wait(self._dispatcher.is_idle)
        self._dispatcher.stop()
        leaving = [worker.actor.leave.remote() for worker in self._workers if worker.actor is not None]
        for worker in self._workers:
            worker.actor = worker.submit = None
        if leaving:
            weft.wait(leaving, num_returns=len(leaving), timeout=_LAST_CALLS_S)

    def __enter__(self) -> Pool:
        self._check_running()
        return self

    def __exit__(self, *_: object) -> None:
        self.terminate()

    def _kill_workers(self) -> None:
        for worker in self._workers:
            if worker.actor is not None:
                weft.kill(worker.actor)
                worker.actor = worker.submit = None

    def _check_running(self) -> None:
        if self._state != "RUN":
            raise ValueError("Pool not running")


def _attach(processes: int | None, address: str | None) -> int:
    """See that there is a session; how many workers the pool has. ValueError when the cluster has too few CPUs."""
    if not weft.is_initialized():
        elsewhere = address or next((os.environ[name] for name in _ADDRESS_VARIABLES if os.environ.get(name)), "local")
        if elsewhere == "local":
            weft.init(address="local", num_cpus=processes)
        else:
            weft.init(address=elsewhere)
    cpus = max(1, int(weft.cluster_resources().get("CPU", 0)))
    if processes is not None and processes > cpus:
        raise ValueError(
            f"processes must be at most the cluster's {cpus} CPUs, but got {processes}. Ask for fewer, or start the "
            f"session with weft.init(num_cpus={processes})."
        )
    return processes or cpus


def _check_count(name: str, count: int | None) -> None:
    if count is None:
        return
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"{name} must be an int or None, but got {count!r}")
    if count < 1:
        raise ValueError(f"{name} must be at least 1, but got {count}")


def _check_chunksize(chunksize: int) -> None:
    if isinstance(chunksize, bool) or not isinstance(chunksize, int):
        raise TypeError(f"chunksize must be an int or None, but got {chunksize!r}")
    if chunksize < 1:
        raise ValueError(f"Chunksize must be 1+, not {chunksize}")
