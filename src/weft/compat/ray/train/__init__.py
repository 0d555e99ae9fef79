"""`ray.train` of Ray 2.60 on `weft.train`. Names that are not here are those of `weft.train`."""

from __future__ import annotations

from typing import Any

import weft.train
from weft.compat.ray.train.config import CheckpointConfig, DataConfig, FailureConfig, RunConfig, ScalingConfig
from weft.compat.ray.train.data_parallel_trainer import (
    DataParallelTrainer,
    Result,
    TrainingFailedError,
    UserCallback,
    WorkerGroupError,
)
from weft.compat.ray.train.session import get_checkpoint, get_context, report
from weft.train import Checkpoint, get_dataset_shard

__all__ = [
    "Checkpoint",
    "CheckpointConfig",
    "DataConfig",
    "DataParallelTrainer",
    "FailureConfig",
    "Result",
    "RunConfig",
    "ScalingConfig",
    "TrainingFailedError",
    "UserCallback",
    "WorkerGroupError",
    "get_checkpoint",
    "get_context",
    "get_dataset_shard",
    "report",
]


def __getattr__(name: str) -> Any:
    try:
        return getattr(weft.train, name)
    except AttributeError as error:
        raise AttributeError(str(error).replace("weft.train", "ray.train")) from None
