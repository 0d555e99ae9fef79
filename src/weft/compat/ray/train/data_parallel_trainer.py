"""`DataParallelTrainer` and `Result` of Ray 2.60: a `weft.train.Trainer` with Ray's words."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import weft
import weft.train
from weft.compat.ray.train.config import RunConfig, ScalingConfig
from weft.train import Checkpoint


class TrainingFailedError(RuntimeError):
    """The training has ended with an error."""


class WorkerGroupError(TrainingFailedError):
    """Workers have raised; what, by rank, as far as it is known."""

    def __init__(self, message: str, worker_failures: Mapping[int, BaseException]) -> None:
        super().__init__(message, worker_failures)
        self.worker_failures = dict(worker_failures)

    def __str__(self) -> str:
        return str(self.args[0])


class UserCallback:
    """Is told of reports and errors, where `fit` was called. Metrics are those of rank 0."""

    def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None) -> None:
        """A report is complete."""

    def after_exception(self, run_context: Any, worker_exceptions: dict[int, BaseException]) -> None:
        """Workers have raised."""


@dataclass(frozen=True)
class Result:
    """What a training came to."""

    metrics: dict[str, Any]
    checkpoint: Checkpoint | None
    path: str
    error: BaseException | None = None
    best_checkpoints: list[tuple[Checkpoint, dict[str, Any]]] = field(default_factory=list)
    return_value: Any = None
    _history: list[dict[str, Any]] = field(default_factory=list)

    @property
    def metrics_dataframe(self) -> Any:
        """Every report, a row each."""
        import pandas as pd

        return pd.DataFrame(self._history)

    @property
    def config(self) -> Any:
        return self.metrics.get("config")

    @property
    def filesystem(self) -> Any:
        """That of pyarrow in which `path` lies."""
        import pyarrow.fs

        return pyarrow.fs.FileSystem.from_uri(self.path)[0] if "://" in self.path else pyarrow.fs.LocalFileSystem()

    def get_best_checkpoint(self, metric: str, mode: str) -> Checkpoint | None:
        """Of those that are kept; None if there are none."""
        found = [pair for pair in self.best_checkpoints if metric in pair[1]]
        if not found:
            return None
        return (max if mode == "max" else min)(found, key=lambda pair: pair[1][metric])[0]

    @classmethod
    def from_path(cls, path: str, storage_filesystem: Any = None) -> Result:
        """A run that lies there."""
        from weft.library.storage import open_storage
        from weft.train.history import History
        from weft.train.trainer import _checkpoint

        storage = open_storage(path)
        history = History(storage, None)
        history.load()
        last = history.metrics[-1] if history.metrics else {}
        return cls(last, _checkpoint(storage, history.checkpoint), storage.root, _history=list(history.metrics))


class _Returned:
    """Holds what the loop of rank 0 has returned."""

    def __init__(self) -> None:
        self._value: Any = None

    def keep(self, value: Any) -> None:
        self._value = value

    def value(self) -> Any:
        return self._value


class DataParallelTrainer:
    """The same loop in several workers. What the loop raises is tried again as often as `failure_config` says."""

    backend = "weft"

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any],
        *,
        train_loop_config: Mapping[str, Any] | None = None,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: Mapping[str, Any] | None = None,
        dataset_config: Any = None,
        resume_from_checkpoint: Checkpoint | None = None,
        backend_config: Any = None,
        metadata: Any = None,
    ) -> None:
        self.train_loop_per_worker, self.train_loop_config = train_loop_per_worker, dict(train_loop_config or {})
        self.scaling_config, self.run_config = scaling_config or ScalingConfig(), run_config or RunConfig()
        self.datasets, self.resume_from_checkpoint = dict(datasets or {}), resume_from_checkpoint
        self.backend = getattr(backend_config, "backend", None) or self.backend

    def fit(self) -> Result:
        """Train to the end. TrainingFailedError when it fails more often than it may."""
        if not weft.is_initialized():
            weft.init()
        returned = weft.remote(num_cpus=0)(_Returned).remote()
        trainer = self._trainer(_keeping(self.train_loop_per_worker, returned))
        kept: list[tuple[Checkpoint, dict[str, Any]]] = []

        def on_report(metrics: dict[str, Any], checkpoint: Checkpoint | None) -> None:
            if checkpoint is not None:
                kept.append((checkpoint, metrics))
            for callback in self.run_config.callbacks or ():
                callback.after_report(None, [metrics], checkpoint)

        done = self._until_it_succeeds(trainer, on_report)
        value = weft.get(returned.value.remote())
        present = [pair for pair in kept if _is_there(pair[0])]
        return Result(done.metrics, done.checkpoint, done.path, None, present, value, list(done.history))

    def _until_it_succeeds(self, trainer: weft.train.Trainer, on_report: Any) -> weft.train.Result:
        failures = self.run_config.failure_config.max_failures if self.run_config.failure_config else 0
        tried = 0
        while True:
            try:
                return trainer.fit(
                    resume=True if tried else None, checkpoint=self.resume_from_checkpoint, on_report=on_report
                )
            except Exception as error:
                for callback in self.run_config.callbacks or ():
                    with contextlib.suppress(AttributeError):
                        callback.after_exception(None, {0: error})
                if failures >= 0 and tried >= failures:
                    raise WorkerGroupError(f"training failed: {error}", {0: error}) from error
                tried += 1

    def _trainer(self, loop: Callable[..., Any]) -> weft.train.Trainer:
        import uuid

        fewest, most = self.scaling_config.sizes
        run = self.run_config
        return weft.train.Trainer(
            loop,
            workers=most,
            min_workers=fewest,
            resources=self.scaling_config.worker_resources,
            config=self.train_loop_config,
            backend=self.backend,
            datasets=self.datasets,
            name=run.name or f"{type(self).__name__}_{uuid.uuid4().hex[:8]}",
            storage_path=run.storage_path,
            keep_checkpoints=run.checkpoint_config.num_to_keep if run.checkpoint_config else None,
        )

    def as_trainable(self) -> Any:
        """For `tune.Tuner`."""
        return self._trainer(self.train_loop_per_worker)


def _keeping(loop: Callable[..., Any], returned: Any) -> Callable[..., Any]:
    takes_config = bool(inspect.signature(loop).parameters)

    def kept(config: dict[str, Any]) -> None:
        value = loop(config) if takes_config else loop()
        if weft.train.get_context().rank == 0:
            weft.get(returned.keep.remote(value))

    return kept


def _is_there(checkpoint: Checkpoint) -> bool:
    with contextlib.suppress(Exception), checkpoint.as_directory():
        return True
    return False
