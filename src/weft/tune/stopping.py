"""When a trial has done enough, and when the whole experiment has.

A dictionary of thresholds is checked in the trial's own process, so that such a trial waits for nobody. Functions and
`Stopper` objects are asked in the driver.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from weft.library.lookup import value_at
from weft.tune.errors import TuneError

__all__ = [
    "CombinedStopper",
    "ExperimentPlateauStopper",
    "FunctionStopper",
    "MaximumIterationStopper",
    "Stopper",
    "TrialPlateauStopper",
    "as_stopper",
    "check_thresholds",
    "reaches",
]


class Stopper:
    """Stops nothing. No I/O and no clock: results carry `time_total_s` and `timestamp`.

    >>> class EnoughOverall(Stopper):
    ...     def __init__(self): self.seen = 0
    ...     def __call__(self, trial_id, result):
    ...         self.seen += 1
    ...         return False
    ...     def stop_all(self): return self.seen >= 100
    >>> from weft import tune
    >>> config = tune.RunConfig(stop=EnoughOverall())
    """

    needs_every_result = False
    """Whether a trial must wait for the answer at each result."""

    def __call__(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        """Whether this trial has done enough."""
        return False

    def stop_all(self) -> bool:
        """Whether the experiment has."""
        return False

    def forget(self, trial_id: str) -> None:
        """The trial has finished."""


class FunctionStopper(Stopper):
    """A function of (trial_id, result)."""

    needs_every_result = True

    def __init__(self, function: Callable[[str, Mapping[str, Any]], bool]) -> None:
        self._function = function

    def __call__(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        return bool(self._function(trial_id, result))


class CombinedStopper(Stopper):
    """Any of several."""

    needs_every_result = True

    def __init__(self, *stoppers: Stopper) -> None:
        self._stoppers = stoppers

    def __call__(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        answers = [stopper(trial_id, result) for stopper in self._stoppers]  # each must see every result
        return any(answers)

    def stop_all(self) -> bool:
        return any(stopper.stop_all() for stopper in self._stoppers)

    def forget(self, trial_id: str) -> None:
        for stopper in self._stoppers:
            stopper.forget(trial_id)


class MaximumIterationStopper(Stopper):
    """After so many results of a trial."""

    needs_every_result = True

    def __init__(self, max_iter: int) -> None:
        self._max_iter = max_iter

    def __call__(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        return bool(result["training_iteration"] >= self._max_iter)


class TrialPlateauStopper(Stopper):
    """When the last `num_results` values of a metric differ by a standard deviation of at most `std`."""

    needs_every_result = True

    def __init__(self, metric: str, std: float = 0.01, num_results: int = 4, grace_period: int = 4) -> None:
        self._metric, self._std, self._num_results, self._grace_period = metric, std, num_results, grace_period
        self._windows: dict[str, deque[float]] = {}

    def __call__(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        window = self._windows.setdefault(trial_id, deque(maxlen=self._num_results))
        window.append(float(value_at(result, self._metric)))
        if result["training_iteration"] < self._grace_period or len(window) < self._num_results:
            return False
        mean = sum(window) / len(window)
        return math.sqrt(sum((value - mean) ** 2 for value in window) / len(window)) <= self._std

    def forget(self, trial_id: str) -> None:
        self._windows.pop(trial_id, None)


class ExperimentPlateauStopper(Stopper):
    """Ends the experiment when its `top` best values have not changed more than `std` for `patience` results."""

    needs_every_result = True

    def __init__(self, metric: str, std: float = 0.001, top: int = 10, mode: str = "min", patience: int = 0) -> None:
        self._metric, self._std, self._top, self._patience = metric, std, top, patience
        self._sign = 1.0 if mode == "min" else -1.0
        self._best: list[float] = []
        self._still = 0

    def __call__(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        self._best = sorted([*self._best, self._sign * float(value_at(result, self._metric))])[: self._top]
        mean = sum(self._best) / len(self._best)
        spread = math.sqrt(sum((value - mean) ** 2 for value in self._best) / len(self._best))
        self._still = self._still + 1 if len(self._best) == self._top and spread <= self._std else 0
        return self.stop_all()

    def stop_all(self) -> bool:
        return self._still > self._patience


def as_stopper(stop: Any) -> tuple[dict[str, float], Stopper]:
    """(thresholds for the trial's process, what the driver asks) from whatever `stop=` was."""
    if stop is None:
        return {}, Stopper()
    if isinstance(stop, Stopper):
        return {}, stop
    if isinstance(stop, Mapping):
        check_thresholds(stop)
        return dict(stop), Stopper()
    if callable(stop):
        return {}, FunctionStopper(stop)
    raise TuneError(f"stop must be a dictionary of thresholds, a function or a Stopper, but got {stop!r}")


def check_thresholds(stop: Mapping[str, Any]) -> None:
    """TuneError for a threshold that is not a number, or that can never be reached."""
    for key, threshold in stop.items():
        if not isinstance(key, str):
            raise TuneError(f"the keys of stop must be names of metrics, but got {key!r}")
        if isinstance(threshold, bool) and key != "done":
            raise TuneError(f"stop[{key!r}] must be a number, but got {threshold!r}")
        if not isinstance(threshold, int | float):
            raise TuneError(f"stop[{key!r}] must be a number, but got {threshold!r}")
        if math.isnan(threshold) or threshold == math.inf:
            raise TuneError(f"stop[{key!r}] = {threshold!r} can never be reached")


def reaches(stop: Mapping[str, float], result: Mapping[str, Any]) -> bool:
    """Whether any threshold is reached. A key that is missing or no number is none; the driver complains."""
    for key, threshold in stop.items():
        value = value_at(result, key)
        if isinstance(value, int | float) and value >= threshold:
            return True
    return False
