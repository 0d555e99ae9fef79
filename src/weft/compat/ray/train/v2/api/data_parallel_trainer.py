"""`ray.train.v2.api.data_parallel_trainer` of Ray 2.60."""

from weft.compat.ray.train.data_parallel_trainer import DataParallelTrainer

__all__ = ["DataParallelTrainer"]
