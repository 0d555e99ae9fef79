"""The backend that joblib talks to: batches of calls become tasks through `weft.util.Executor`.

Arrays among a call's arguments that are large are put into object memory once a `Parallel` call, however many tasks
read them. Nested `Parallel` calls inside a task use threads, as joblib does by default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from joblib.parallel import (  # type: ignore[import-untyped,unused-ignore]
    AutoBatchingMixin,
    BatchedCalls,
    ParallelBackendBase,
)

import weft
from weft.util.executor import Executor

__all__ = ["WeftBackend"]

LEAST_SHARED_BYTES = 64 * 1024


class WeftBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]
    """`ray_remote_args`: options of the tasks, as in `parallel_config(backend="weft", ray_remote_args={...})`."""

    supports_retrieve_callback = True
    supports_inner_max_num_threads = False

    def __init__(
        self, nesting_level: int | None = None, ray_remote_args: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(nesting_level=nesting_level, **kwargs)
        self._options = dict(ray_remote_args or {})
        self._executor: Executor | None = None
        self._shared: dict[int, tuple[Any, Any]] = {}
        """By the array's id: (the array, so that the id stays its own; its ref)."""

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """-1: as many as the cluster has CPUs; it starts a session when there is none."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is None:
            return 1
        if n_jobs > 0:
            return n_jobs
        if not weft.is_initialized():
            weft.init()
        return max(int(weft.cluster_resources().get("CPU", 1)) + 1 + n_jobs, 1)

    def configure(self, n_jobs: int = 1, parallel: Any = None, **_: Any) -> int:
        self.parallel = parallel
        count = self.effective_n_jobs(n_jobs)
        self._executor = Executor(count, options=self._options)
        return count

    def submit(self, func: Any, callback: Callable[[Future[Any]], None] | None = None) -> Future[Any]:
        if self._executor is None:
            raise RuntimeError("the backend is not configured: it is used through joblib.Parallel")
        if isinstance(func, BatchedCalls):
            func.items = [
                (call, tuple(map(self._share, args)), {name: self._share(value) for name, value in kwargs.items()})
                for call, args, kwargs in func.items
            ]
        future = self._executor.submit(_run_batch, func)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: Future[Any]) -> Any:
        return out.result()

    def retrieve_result(self, out: Future[Any], timeout: float | None = None) -> Any:
        return out.result(timeout)

    def stop_call(self) -> None:
        self._shared.clear()

    def terminate(self) -> None:
        self.reset_batch_stats()
        self._shared.clear()
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
            self._executor = None

    def abort_everything(self, ensure_ready: bool = True) -> None:
        self.terminate()
        if ensure_ready:
            self.configure(self.parallel.n_jobs, self.parallel)

    # ---- large arguments ----

    def _share(self, value: Any) -> Any:
        size = getattr(value, "nbytes", 0)
        if not isinstance(size, int) or size < LEAST_SHARED_BYTES:
            return value
        known = self._shared.get(id(value))
        if known is None:
            known = self._shared[id(value)] = (value, weft.put(value))
        return _Shared(known[1])


class _Shared:
    """Stands for an array in object memory."""

    def __init__(self, ref: Any) -> None:
        self.ref = ref


def _run_batch(batch: Any) -> Any:
    if isinstance(batch, BatchedCalls):
        batch.items = [
            (call, tuple(map(_fetch, args)), {name: _fetch(value) for name, value in kwargs.items()})
            for call, args, kwargs in batch.items
        ]
    return batch()


def _fetch(value: Any) -> Any:
    return weft.get(value.ref) if isinstance(value, _Shared) else value
