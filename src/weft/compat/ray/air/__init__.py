"""`ray.air`, under which older programs find what is in `ray.train` and `ray.tune` of Ray 2.60."""

from weft.compat.ray.train import Checkpoint, CheckpointConfig, FailureConfig, Result, RunConfig, ScalingConfig

__all__ = ["Checkpoint", "CheckpointConfig", "FailureConfig", "Result", "RunConfig", "ScalingConfig"]
