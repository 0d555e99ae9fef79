"""Train one model by the schedule that a population found: the configurations of a trial's lineage, at the same
times."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from weft.tune.errors import TuneError
from weft.tune.schedulers.scheduler import CONTINUE, NEVER, Decision, Milestone, Restart, TrialScheduler
from weft.tune.trial import Trial

__all__ = ["PopulationBasedTrainingReplay"]


class PopulationBasedTrainingReplay(TrialScheduler):
    """`policy_file` is a `pbt_policy_<trial>.json` of an experiment with PopulationBasedTraining. For one trial."""

    needs_metric = False

    def __init__(self, policy_file: str | os.PathLike[str], time_attr: str = "training_iteration") -> None:
        super().__init__(time_attr=time_attr)
        path = Path(policy_file)
        if not path.exists():
            raise ValueError(f"there is no policy file {path}")
        self._steps = json.loads(path.read_text())
        self._next = 1
        self.config: dict[str, Any] = self._steps[0]["config"]
        """What the lineage began with; give it as the experiment's space."""

    def on_trial_add(self, trial: Trial) -> None:
        if trial.number > 0:
            raise TuneError("a replayed schedule is for one trial: use num_samples=1 and no grid")
        trial.config = {**trial.config, **self.config}

    def on_trial_revive(self, trial: Trial) -> None:
        """It has the configuration of the step that it failed in."""

    def on_result(self, trial: Trial, result: Mapping[str, Any]) -> Decision:
        if self._next >= len(self._steps) or self.time(result) < self._steps[self._next]["time"]:
            return CONTINUE
        step = self._steps[self._next]
        self._next += 1
        return Restart(config={**trial.config, **step["config"]})

    def milestone(self, trial: Trial) -> Milestone | None:
        if self._next >= len(self._steps):
            return NEVER
        return Milestone(self.time_attr, self._steps[self._next]["time"])
