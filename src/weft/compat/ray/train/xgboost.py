"""`ray.train.xgboost` of Ray 2.60: the trainer whose loop calls `xgboost.train`, and the callback that reports."""

from __future__ import annotations

import os
from typing import Any

import xgboost

from weft.compat.ray.train.boosting import Reporting
from weft.compat.ray.train.data_parallel_trainer import DataParallelTrainer
from weft.train import Checkpoint


class XGBoostTrainer(DataParallelTrainer):
    """The loop in several workers, between which XGBoost's collective operations work."""

    backend = "xgboost"

    def __init__(self, train_loop_per_worker: Any, *, xgboost_config: Any = None, **given: Any) -> None:
        super().__init__(train_loop_per_worker, **given)


class RayTrainReportCallback(xgboost.callback.TrainingCallback):  # type: ignore[misc, unused-ignore]
    """Reports the metrics of each round, and the model every `frequency` rounds and at the end."""

    CHECKPOINT_NAME = "model.ubj"

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

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """XGBoost has finished a round."""
        found = {
            f"{data}-{metric}": values[-1] for data, metrics in evals_log.items() for metric, values in metrics.items()
        }
        self._reporting.round_ended(epoch, found, lambda folder: model.save_model(os.path.join(folder, self._filename)))
        return False

    def after_training(self, model: Any) -> Any:
        """All rounds are done."""
        self._reporting.ended(lambda folder: model.save_model(os.path.join(folder, self._filename)))
        return model

    @classmethod
    def get_model(cls, checkpoint: Checkpoint, filename: str = CHECKPOINT_NAME) -> Any:
        """The booster of a checkpoint that it has reported."""
        with checkpoint.as_directory() as folder:
            booster = xgboost.Booster()
            booster.load_model(os.path.join(folder, filename))
            return booster


__all__ = ["RayTrainReportCallback", "XGBoostTrainer"]
