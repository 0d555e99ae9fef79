"""`ray.tune.stopper` of Ray 2.60."""

from __future__ import annotations

import datetime
import time
from collections.abc import Mapping
from typing import Any

from weft.tune.stopping import (
    CombinedStopper,
    ExperimentPlateauStopper,
    FunctionStopper,
    MaximumIterationStopper,
    Stopper,
    TrialPlateauStopper,
)

__all__ = [
    "CombinedStopper",
    "ExperimentPlateauStopper",
    "FunctionStopper",
    "MaximumIterationStopper",
    "NoopStopper",
    "Stopper",
    "TimeoutStopper",
    "TrialPlateauStopper",
]


class NoopStopper(Stopper):
    """Stops nothing."""

    def __call__(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        """Never."""
        return False


class TimeoutStopper(Stopper):
    """Stops all trials after so many seconds, from the first result."""

    def __init__(self, timeout: float | datetime.timedelta) -> None:
        self._limit_s = timeout.total_seconds() if isinstance(timeout, datetime.timedelta) else float(timeout)
        self._begun: float | None = None

    def __call__(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        return self.stop_all()

    def stop_all(self) -> bool:
        """Whether the time is over."""
        now = time.monotonic()
        self._begun = now if self._begun is None else self._begun
        return now - self._begun >= self._limit_s
