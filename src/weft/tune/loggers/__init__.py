"""Logs of results: CSV, JSON lines, TensorBoard; W&B and MLflow when they are installed."""

from __future__ import annotations

from weft.tune.loggers.files import CSVLoggerCallback, JsonLoggerCallback, TrialFileLogger
from weft.tune.loggers.tensorboard import TBXLoggerCallback
from weft.tune.loggers.trackers import MLflowLoggerCallback, WandbLoggerCallback

__all__ = [
    "CSVLoggerCallback",
    "JsonLoggerCallback",
    "MLflowLoggerCallback",
    "TBXLoggerCallback",
    "TrialFileLogger",
    "WandbLoggerCallback",
]
