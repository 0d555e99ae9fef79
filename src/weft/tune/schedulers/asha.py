"""ASHA: asynchronous successive halving (Li et al., "A System for Massively Parallel Hyperparameter Tuning", 2020,
https://arxiv.org/abs/1810.05934).

Rungs lie at grace_period * reduction_factor**k. A trial that reaches a rung is compared with all that were there before
it; the best 1/reduction_factor, and at least one, go on. Nobody waits for anybody.

`variant="stopping"`: the rest stop at once. `variant="promotion"`, the paper's algorithm 2: the rest pause, and go on
when later arrivals make them part of the best; so no trial is lost to an early crowd of good ones, but trials must
save.
"""

from __future__ import annotations

import bisect
import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from weft.library.checks import above, one_of
from weft.tune.schedulers.scheduler import CONTINUE, PAUSE, STOP, Decision, Milestone, TrialScheduler
from weft.tune.trial import PAUSED, PENDING, Trial, TrialTable

if TYPE_CHECKING:
    from weft.tune.search.searcher import Mode

__all__ = ["ASHAScheduler", "AsyncHyperBandScheduler", "Rung", "rung_times"]


class Rung:
    """Who came by, and with which score. Best ranks by bisection."""

    def __init__(self, time: float) -> None:
        self.time = time
        self.scores: dict[str, float] = {}
        self.promoted: set[str] = set()
        self._sorted: list[float] = []

    def add(self, trial_id: str, score: float) -> None:
        self.scores[trial_id] = score
        bisect.insort(self._sorted, score)

    def better_than(self, score: float) -> int:
        """How many are better."""
        return len(self._sorted) - bisect.bisect_right(self._sorted, score)

    def __len__(self) -> int:
        return len(self.scores)


def rung_times(grace_period: float, max_t: float, reduction_factor: float, skip: int = 0) -> list[float]:
    """grace * rf**skip, grace * rf**(skip+1), … below max_t."""
    times = []
    time = grace_period * reduction_factor**skip
    while time < max_t:
        times.append(time)
        time *= reduction_factor
    return times


class ASHAScheduler(TrialScheduler):
    """`max_t` ends every trial. More `brackets` start some trials at later rungs, as insurance against early noise."""

    def __init__(
        self,
        time_attr: str = "training_iteration",
        metric: str | None = None,
        mode: Mode | None = None,
        max_t: float = 100,
        grace_period: float = 1,
        reduction_factor: float = 4,
        brackets: int = 1,
        variant: str = "stopping",
    ) -> None:
        super().__init__(metric, mode, time_attr)
        above("max_t", max_t)
        if not 0 < grace_period <= max_t:
            raise ValueError(f"grace_period must be positive and at most max_t, but got {grace_period} and {max_t}")
        above("reduction_factor", reduction_factor, 1)
        above("brackets", brackets)
        one_of("variant", variant, ("stopping", "promotion"))
        self.max_t, self.grace_period, self.reduction_factor = max_t, grace_period, reduction_factor
        self.variant = variant
        self._brackets = [
            [Rung(time) for time in rung_times(grace_period, max_t, reduction_factor, skip)] for skip in range(brackets)
        ]
        self._brackets = [rungs for rungs in self._brackets if rungs] or [[]]
        self._bracket_of: dict[str, list[Rung]] = {}
        self._next_rung: dict[str, int] = {}
        self._waiting_at: dict[str, Rung] = {}
        """Paused trials that could be promoted."""

    def set_up(self, trials: TrialTable, metric: str | None, mode: Mode | None, seed: int) -> None:
        super().set_up(trials, metric, mode, seed)
        self._rng = random.Random(seed)

    def on_trial_add(self, trial: Trial) -> None:
        # HyperBand's shares: each bracket is to use about as much time as the others.
        weights = [self.reduction_factor ** len(rungs) / (len(rungs) + 1) for rungs in self._brackets]
        rungs = self._rng.choices(self._brackets, weights)[0] if len(self._brackets) > 1 else self._brackets[0]
        self._bracket_of[trial.trial_id] = rungs
        self._next_rung[trial.trial_id] = 0

    def on_trial_revive(self, trial: Trial) -> None:
        """Back to its bracket, behind the rungs that it has passed: it is compared once at each."""
        self.on_trial_add(trial)
        for rungs in self._brackets:
            passed = [index for index, rung in enumerate(rungs) if trial.trial_id in rung.scores]
            if passed:
                self._bracket_of[trial.trial_id] = rungs
                self._next_rung[trial.trial_id] = passed[-1] + 1

    def on_result(self, trial: Trial, result: Mapping[str, Any]) -> Decision:
        time = self.time(result)
        if time >= self.max_t:
            return STOP
        rungs, index = self._bracket_of[trial.trial_id], self._next_rung[trial.trial_id]
        if index >= len(rungs) or time < rungs[index].time:
            return CONTINUE
        while index + 1 < len(rungs) and time >= rungs[index + 1].time:
            index += 1  # a report that steps over rungs counts at the highest
        rung = rungs[index]
        self._next_rung[trial.trial_id] = index + 1
        score = self.score(result)
        rung.add(trial.trial_id, score)
        if self._is_in_top(rung, score):
            rung.promoted.add(trial.trial_id)
            return CONTINUE
        if self.variant == "stopping":
            return STOP
        self._waiting_at[trial.trial_id] = rung
        return PAUSE

    def _is_in_top(self, rung: Rung, score: float) -> bool:
        places = max(int(len(rung) / self.reduction_factor), 1)  # somebody must be first
        return score > -float("inf") and rung.better_than(score) < places

    def on_trial_complete(self, trial: Trial, result: Mapping[str, Any]) -> None:
        rungs, index = self._bracket_of[trial.trial_id], self._next_rung[trial.trial_id]
        if result and index < len(rungs) and self.time(result) >= rungs[index].time:
            rungs[index].add(trial.trial_id, self.score(result))
        self._forget(trial)

    def on_trial_error(self, trial: Trial) -> None:
        self._forget(trial)

    on_trial_remove = on_trial_error

    def _forget(self, trial: Trial) -> None:
        self._waiting_at.pop(trial.trial_id, None)
        self._bracket_of.pop(trial.trial_id, None)
        self._next_rung.pop(trial.trial_id, None)

    def choose_trial_to_run(self) -> Trial | None:
        if self.variant == "promotion":
            best = self._promotable()
            if best is not None:
                return best
            return self.trials.first(PENDING)
        return super().choose_trial_to_run()

    def _promotable(self) -> Trial | None:
        """From the highest rung down, the best paused trial that now belongs to the top."""
        found: tuple[float, float, Trial] | None = None
        for trial in self.trials.of(PAUSED):
            rung = self._waiting_at.get(trial.trial_id)
            if rung is None:
                return trial  # paused by someone else: it goes on
            score = rung.scores[trial.trial_id]
            if self._is_in_top(rung, score) and (found is None or (rung.time, score) > found[:2]):
                found = (rung.time, score, trial)
        return found[2] if found is not None else None

    def on_stall(self) -> None:
        """No more trials will come, so nobody else can be promoted."""
        for trial in self.trials.of(PAUSED):
            self.stop(trial)

    def milestone(self, trial: Trial) -> Milestone | None:
        rungs, index = self._bracket_of[trial.trial_id], self._next_rung[trial.trial_id]
        return Milestone(self.time_attr, rungs[index].time if index < len(rungs) else self.max_t)

    def describe(self) -> str:
        rungs = "; ".join(
            ", ".join(f"{rung.time:g}: {len(rung)}" for rung in reversed(bracket)) for bracket in self._brackets
        )
        return f"Using ASHA scheduling algorithm. Trials at rungs: {rungs or 'none'}"


AsyncHyperBandScheduler = ASHAScheduler
