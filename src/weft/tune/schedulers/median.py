"""The median stopping rule (Golovin et al., "Google Vizier", 2017, section 3.2.2): a trial stops at step t if its best
value so far is worse than the median of the other trials' average values up to step t."""

from __future__ import annotations

import bisect
import statistics
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from weft.library.checks import above
from weft.tune.schedulers.scheduler import CONTINUE, PAUSE, STOP, Decision, Milestone, TrialScheduler
from weft.tune.trial import PENDING, Trial

if TYPE_CHECKING:
    from weft.tune.search.searcher import Mode

__all__ = ["MedianStoppingRule"]


class _Curve:
    """A trial's times and the running averages of its scores."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.averages: list[float] = []
        self.best = -float("inf")
        self._sum = 0.0

    def add(self, time: float, score: float) -> None:
        if score > -float("inf"):
            self.best = max(self.best, score)
            self._sum += score
            self.times.append(time)
            self.averages.append(self._sum / len(self.times))

    def average_until(self, time: float) -> float | None:
        index = bisect.bisect_right(self.times, time)
        return self.averages[index - 1] if index else None


class MedianStoppingRule(TrialScheduler):
    """Trials younger than `grace_period` are safe, and all are until `min_samples_required` others have got as far.
    With `hard_stop=False` bad trials are paused, and go on when nothing else is left to run."""

    def __init__(
        self,
        time_attr: str = "training_iteration",
        metric: str | None = None,
        mode: Mode | None = None,
        grace_period: float = 1,
        min_samples_required: int = 3,
        hard_stop: bool = True,
    ) -> None:
        super().__init__(metric, mode, time_attr)
        above("min_samples_required", min_samples_required)
        self.grace_period, self.min_samples_required, self.hard_stop = grace_period, min_samples_required, hard_stop
        self._curves: dict[str, _Curve] = {}
        self._condemned: set[str] = set()

    def on_result(self, trial: Trial, result: Mapping[str, Any]) -> Decision:
        time = self.time(result)
        curve = self._curves.setdefault(trial.trial_id, _Curve())
        curve.add(time, self.score(result))
        if time < self.grace_period or trial.trial_id in self._condemned:
            return CONTINUE
        others = [
            average
            for trial_id, other in self._curves.items()
            if trial_id != trial.trial_id and other.times and other.times[-1] >= time
            if (average := other.average_until(time)) is not None
        ]
        if len(others) < self.min_samples_required or curve.best >= statistics.median(others):
            return CONTINUE
        if self.hard_stop:
            return STOP
        self._condemned.add(trial.trial_id)
        return PAUSE if self.trials.more_expected or self.trials.first(PENDING) is not None else CONTINUE

    def on_trial_complete(self, trial: Trial, result: Mapping[str, Any]) -> None:
        if result and not (curve := self._curves.setdefault(trial.trial_id, _Curve())).times:
            curve.add(self.time(result), self.score(result))

    def on_trial_error(self, trial: Trial) -> None:
        self._curves.pop(trial.trial_id, None)

    def milestone(self, trial: Trial) -> Milestone | None:
        return Milestone(self.time_attr, self.grace_period)

    def describe(self) -> str:
        return f"Using median stopping rule: {len(self._curves)} trials compared."
