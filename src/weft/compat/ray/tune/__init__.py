"""`ray.tune` of Ray 2.60 on `weft.tune`. Names that are not here are those of `weft.tune`."""

from __future__ import annotations

import os
import re
from typing import Any

import weft.tune
from weft.compat.ray.train.data_parallel_trainer import DataParallelTrainer
from weft.tune import Checkpoint, Result
from weft.tune.search import OptunaSearch

__all__ = ["ExperimentAnalysis", "Tuner"]

ExperimentAnalysis = weft.tune.ResultGrid
OptunaSearch._space = property(lambda self: self.space)  # type: ignore[attr-defined]  # FLAML reads it


class Tuner(weft.tune.Tuner):
    """Weft's, which also takes Ray's trainers, RLlib's algorithms and Ray's words for going on."""

    def __init__(self, trainable: Any = None, *, param_space: Any = None, **given: Any) -> None:
        if hasattr(param_space, "algo_class"):  # one of RLlib's configurations
            param_space = param_space.to_dict()
        super().__init__(_as_trainable(trainable), param_space=param_space, **given)

    @classmethod
    def restore(  # type: ignore[override]
        cls,
        path: str | os.PathLike[str],
        trainable: Any = None,
        resume_unfinished: bool = True,
        resume_errored: bool = False,
        restart_errored: bool = False,
        param_space: Any = None,
        storage_filesystem: Any = None,
    ) -> weft.tune.Tuner:
        """The experiment at `path`. What failed goes on from its last checkpoint, with `restart_errored` as well. The
        space is the one that was stored; trials that are not made yet cannot be left out."""
        if not resume_unfinished:
            raise NotImplementedError("Weft goes on with all trials that have not ended: resume_unfinished stays True")
        return super().restore(path, _as_trainable(trainable), resume_errored=resume_errored or restart_errored)


def _as_trainable(trainable: Any) -> Any:
    if isinstance(trainable, DataParallelTrainer):
        return trainable.as_trainable()
    if isinstance(trainable, str) and trainable in ("BC", "DQN", "IMPALA", "PPO", "SAC"):
        from weft.compat.ray.rllib import algorithms

        return getattr(algorithms, trainable)
    return trainable


def _best_checkpoints(self: Result) -> list[tuple[Checkpoint, dict[str, Any]]]:
    """All that are kept, oldest first, each with the result that it was saved with."""
    from weft.library.storage import open_storage

    if self.checkpoint is None:
        return []
    by_iteration = {result["training_iteration"]: result for result in self.history}
    storage = open_storage(self.path)
    found = []
    for name in sorted(os.listdir(self.path)) if os.path.isdir(self.path) else [os.path.basename(self.checkpoint.path)]:
        saved = re.fullmatch(r"checkpoint_(\d+)", name)
        if saved and int(saved[1]) in by_iteration:
            found.append((Checkpoint(storage=storage, name=name), by_iteration[int(saved[1])]))
    return found


def _best_checkpoint(self: Result, metric: str, mode: str) -> Checkpoint | None:
    found = [pair for pair in _best_checkpoints(self) if metric in pair[1]]
    return (max if mode == "max" else min)(found, key=lambda pair: pair[1][metric])[0] if found else None


Result.best_checkpoints = property(_best_checkpoints)  # type: ignore[attr-defined]
Result.get_best_checkpoint = _best_checkpoint  # type: ignore[attr-defined]


def __getattr__(name: str) -> Any:
    try:
        return getattr(weft.tune, name)
    except AttributeError as error:
        raise AttributeError(str(error).replace("weft.tune", "ray.tune")) from None
