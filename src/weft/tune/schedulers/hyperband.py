"""HyperBand (Li et al., "Hyperband: A Novel Bandit-Based Approach to Hyperparameter Optimization", 2018,
https://arxiv.org/abs/1603.06560), and its pairing with a model (BOHB, Falkner et al. 2018, https://arxiv.org/abs/1807.01774).

A bracket is a round of successive halving: n trials run to r, the best 1/eta of them to r*eta, and so on to max_t.
Brackets differ in how many trials they start with how little. Within a bracket all wait for all at each halving, so
trials pause.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from weft.library.checks import above, at_least
from weft.tune.schedulers.scheduler import CONTINUE, PAUSE, STOP, Decision, Milestone, TrialScheduler
from weft.tune.trial import PAUSED, PENDING, Trial

if TYPE_CHECKING:
    from weft.tune.search.searcher import Mode

__all__ = ["Bracket", "HyperBandForBOHB", "HyperBandScheduler", "bracket_shapes"]


def bracket_shapes(max_t: float, eta: float) -> list[tuple[int, float, int]]:
    """(trials, first milestone, halvings) of each bracket, from the one with most trials."""
    s_max = int(math.log(max_t) / math.log(eta) + 1e-9)
    return [(math.ceil((s_max + 1) / (s + 1) * eta**s), max_t * eta**-s, s) for s in range(s_max, -1, -1)]


class Bracket:
    """One round of successive halving, without clocks: who is in it, who has reached the milestone."""

    def __init__(self, size: int, first_milestone: float, halvings: int, eta: float) -> None:
        self.size, self.eta = size, eta
        self.milestone = first_milestone
        self.halvings_left = halvings
        self.is_filled = False
        self.members: set[str] = set()
        """Those that are still in."""
        self.arrived: dict[str, float] = {}
        """trial -> score, of those that have reached the milestone"""
        self._joined = 0

    def join(self, trial_id: str) -> None:
        self.members.add(trial_id)
        self._joined += 1
        self.is_filled = self._joined >= self.size

    def leave(self, trial_id: str) -> None:
        self.members.discard(trial_id)
        self.arrived.pop(trial_id, None)

    @property
    def is_ready(self) -> bool:
        """Whether it can be halved."""
        return self.is_filled and bool(self.members) and len(self.arrived) == len(self.members)

    def halve(self) -> list[str]:
        """Move to the next milestone; returns the losers, who leave."""
        keep = max(1, int(len(self.arrived) / self.eta))
        ranking = sorted(self.arrived, key=lambda trial_id: (-self.arrived[trial_id], trial_id))
        losers = ranking[keep:]
        for trial_id in losers:
            self.leave(trial_id)
        self.arrived.clear()
        self.halvings_left -= 1
        self.milestone *= self.eta
        return losers


class HyperBandScheduler(TrialScheduler):
    """Trials fill the brackets in the paper's order, again and again."""

    def __init__(
        self,
        time_attr: str = "training_iteration",
        metric: str | None = None,
        mode: Mode | None = None,
        max_t: float = 81,
        reduction_factor: float = 3,
    ) -> None:
        super().__init__(metric, mode, time_attr)
        at_least("max_t", max_t, 1)
        above("reduction_factor", reduction_factor, 1)
        self.max_t, self.reduction_factor = max_t, reduction_factor
        self._shapes = bracket_shapes(max_t, reduction_factor)
        self._brackets: list[Bracket] = []
        self._bracket_of: dict[str, Bracket] = {}
        self._search_ended = False

    def on_trial_add(self, trial: Trial) -> None:
        if not self._brackets or self._brackets[-1].is_filled:
            size, first, halvings = self._shapes[len(self._brackets) % len(self._shapes)]
            self._brackets.append(Bracket(size, first, halvings, self.reduction_factor))
        bracket = self._brackets[-1]
        bracket.join(trial.trial_id)
        self._bracket_of[trial.trial_id] = bracket

    def on_result(self, trial: Trial, result: Mapping[str, Any]) -> Decision:
        bracket = self._bracket_of[trial.trial_id]
        time = self.time(result)
        if time >= self.max_t:
            return STOP
        if time < bracket.milestone or bracket.halvings_left == 0:
            return CONTINUE
        bracket.arrived[trial.trial_id] = self.score(result)
        if not bracket.is_ready:
            return PAUSE
        losers = self._halve(bracket)
        return STOP if trial.trial_id in losers else CONTINUE

    def _halve(self, bracket: Bracket) -> list[str]:
        losers = bracket.halve()
        for trial_id in losers:
            self.stop(self.trials[trial_id])
        return losers

    def on_trial_complete(self, trial: Trial, result: Mapping[str, Any]) -> None:
        self._leave(trial)

    def on_trial_error(self, trial: Trial) -> None:
        self._leave(trial)

    on_trial_remove = on_trial_error

    def _leave(self, trial: Trial) -> None:
        bracket = self._bracket_of.pop(trial.trial_id, None)
        if bracket is not None:
            bracket.leave(trial.trial_id)
            if bracket.is_ready and bracket.halvings_left > 0:
                self._halve(bracket)

    def on_search_ended(self) -> None:
        self._search_ended = True
        self.on_stall()

    def on_stall(self) -> None:
        """A bracket that nobody can join any more is halved as it is."""
        for bracket in self._brackets:
            bracket.is_filled = True
            if bracket.is_ready and bracket.halvings_left > 0:
                self._halve(bracket)

    def choose_trial_to_run(self) -> Trial | None:
        for trial in self.trials.of(PAUSED):
            bracket = self._bracket_of.get(trial.trial_id)
            if bracket is not None and trial.trial_id not in bracket.arrived:
                return trial
        return self.trials.first(PENDING)

    def milestone(self, trial: Trial) -> Milestone | None:
        bracket = self._bracket_of[trial.trial_id]
        return Milestone(self.time_attr, bracket.milestone if bracket.halvings_left else self.max_t)

    def describe(self) -> str:
        live = [bracket for bracket in self._brackets if bracket.members]
        shown = ", ".join(f"{len(bracket.members)} to {bracket.milestone:g}" for bracket in live[:5])
        return f"Using HyperBand: {len(live)} live brackets" + (f" ({shown})" if shown else "")


class HyperBandForBOHB(HyperBandScheduler):
    """The same; pair it with `search.TuneBOHB`, which learns from the results at every milestone."""
