"""`ray.train.lightgbm` of Ray 2.60: the trainer whose loop calls `lightgbm.train`, and the callback that reports."""

from __future__ import annotations

import os
from typing import Any

from weft.compat.ray.train.boosting import Reporting
from weft.compat.ray.train.data_parallel_trainer import DataParallelTrainer
from weft.train import Checkpoint, lightgbm_network

__all__ = ["LightGBMTrainer", "RayTrainReportCallback", "get_network_params"]


class LightGBMTrainer(DataParallelTrainer):
    """The loop in several workers; `get_network_params()` are those by which LightGBM finds the others."""

    backend = "lightgbm"

    def __init__(self, train_loop_per_worker: Any, *, lightgbm_config: Any = None, **given: Any) -> None:
        super().__init__(train_loop_per_worker, **given)


def get_network_params() -> dict[str, Any]:
    """For `lightgbm.train`'s parameters."""
    return dict(lightgbm_network())


class RayTrainReportCallback:
    """Reports the metrics of each round, and the model every `frequency` rounds and at the end."""

    CHECKPOINT_NAME = "model.txt"

    def __init__(
        self,
        metrics: Any = None,
        filename: str = CHECKPOINT_NAME,
        frequency: int = 0,
        checkpoint_at_end: bool = True,
        results_postprocessing_fn: Any = None,
    ) -> None:
        self._reporting = Reporting(metrics, frequency, checkpoint_at_end, results_postprocessing_fn)
        self._filename = filename

    def __call__(self, env: Any) -> None:
        found = {"-".join(one[:2]): one[2] for one in env.evaluation_result_list or ()}

        def save(folder: str) -> None:
            env.model.save_model(os.path.join(folder, self._filename))

        self._reporting.round_ended(env.iteration, found, save)
        if env.iteration == env.end_iteration - 1:
            self._reporting.ended(save)

    @classmethod
    def get_model(cls, checkpoint: Checkpoint, filename: str = CHECKPOINT_NAME) -> Any:
        """The booster of a checkpoint that it has reported."""
        import lightgbm

        with checkpoint.as_directory() as folder:
            return lightgbm.Booster(model_file=os.path.join(folder, filename))
