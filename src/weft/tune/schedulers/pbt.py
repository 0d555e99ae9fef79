"""Population based training (Jaderberg et al., 2017, https://arxiv.org/abs/1711.09846).

A population trains in parallel. Every `perturbation_interval` a trial is ranked; one of the bottom quantile *exploits*
one of the top, that is, goes on from its checkpoint, and *explores*, that is, changes the hyperparameters it took over:
each is drawn anew with `resample_probability`, else multiplied by one of `perturbation_factors`, or moved to a
neighbour in a list.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from weft.library.checks import above, between
from weft.tune.errors import TuneError
from weft.tune.schedulers.scheduler import CONTINUE, PAUSE, SAVE, Decision, Exploit, Milestone, TrialScheduler
from weft.tune.space import Domain
from weft.tune.trial import PAUSED, PENDING, Trial, TrialTable

if TYPE_CHECKING:
    from weft.tune.search.searcher import Mode

__all__ = ["PopulationBasedTraining", "explored"]


class PopulationBasedTraining(TrialScheduler):
    """`hyperparam_mutations` maps keys (nested like the configuration) to domains, lists or functions without
    arguments. With `synch` the whole population waits for each other at each interval, which makes runs
    reproducible."""

    def __init__(
        self,
        time_attr: str = "training_iteration",
        metric: str | None = None,
        mode: Mode | None = None,
        perturbation_interval: float = 5,
        hyperparam_mutations: Mapping[str, Any] | None = None,
        quantile_fraction: float = 0.25,
        resample_probability: float = 0.25,
        perturbation_factors: tuple[float, float] = (1.2, 0.8),
        custom_explore_fn: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
        burn_in_period: float = 0,
        synch: bool = False,
    ) -> None:
        super().__init__(metric, mode, time_attr)
        if not hyperparam_mutations and custom_explore_fn is None:
            raise ValueError("hyperparam_mutations must name what may change, or give custom_explore_fn")
        above("perturbation_interval", perturbation_interval)
        between("quantile_fraction", quantile_fraction, 0, 0.5)
        between("resample_probability", resample_probability, 0, 1)
        self.perturbation_interval = perturbation_interval
        self.mutations = dict(hyperparam_mutations or {})
        self.quantile_fraction = quantile_fraction
        self.resample_probability = resample_probability
        self.perturbation_factors = perturbation_factors
        self.custom_explore_fn = custom_explore_fn
        self.burn_in_period = burn_in_period
        self.synch = synch
        self.perturbations = 0
        self._scores: dict[str, float] = {}
        """At the trial's last interval; only trials that are still alive."""
        self._perturbed_at: dict[str, float] = {}
        self._lineage: dict[str, list[dict[str, Any]]] = {}
        """trial -> the configurations that made its weights, with the time of each change"""
        self._arrived: set[str] = set()

    def set_up(self, trials: TrialTable, metric: str | None, mode: Mode | None, seed: int) -> None:
        super().set_up(trials, metric, mode, seed)
        self.rng = random.Random(seed)
        self._seed = seed

    def on_trial_add(self, trial: Trial) -> None:
        config = dict(trial.config)
        rng = random.Random(self._seed + trial.number)  # of its own: a replay finds the keys there and draws nothing
        for key, mutation in self.mutations.items():
            if key not in config:
                config[key] = _drawn(mutation, rng)
        trial.config = config
        self._perturbed_at[trial.trial_id] = 0.0
        self._lineage[trial.trial_id] = [{"time": 0, "config": config}]

    def on_result(self, trial: Trial, result: Mapping[str, Any]) -> Decision:
        time = self.time(result)
        if time < self._due(trial):
            return CONTINUE
        self._scores[trial.trial_id] = self.score(result)
        self._perturbed_at[trial.trial_id] = time
        if self.synch:
            self._arrived.add(trial.trial_id)
            return PAUSE
        donor = self._donor_for(trial)
        if donor is None:
            return PAUSE if self.trials.someone_waits else SAVE
        return self._exploit(trial, donor, time)

    def _due(self, trial: Trial) -> float:
        return max(self._perturbed_at[trial.trial_id] + self.perturbation_interval, self.burn_in_period)

    def _donor_for(self, trial: Trial) -> Trial | None:
        """One of the best, if the trial is one of the worst."""
        bottom, top = self.quantiles()
        if trial.trial_id not in bottom or not top:
            return None
        donor = self.trials[self.rng.choice(top)]
        return donor if donor.checkpoint is not None or self.synch else None

    def quantiles(self) -> tuple[list[str], list[str]]:
        """(the worst, the best) of those that have been ranked."""
        ranking = sorted(self._scores, key=lambda trial_id: (self._scores[trial_id], trial_id))
        if len(ranking) < 2:
            return [], []
        size = min(math.ceil(len(ranking) * self.quantile_fraction), len(ranking) // 2)
        return (ranking[:size], ranking[-size:]) if size else ([], [])

    def _exploit(self, trial: Trial, donor: Trial, time: float) -> Exploit:
        config = self.explore(trial, donor)
        self.perturbations += 1
        self._scores[trial.trial_id] = self._scores[donor.trial_id]
        saved = donor.checkpoint
        self._perturbed_at[trial.trial_id] = self._perturbed_at[donor.trial_id]
        change = {"time": self._perturbed_at[donor.trial_id], "config": config, "from": donor.trial_id}
        if saved is not None:
            change["iteration"] = saved.iteration
        self._lineage[trial.trial_id] = [*self._lineage[donor.trial_id], change]
        text = json.dumps(self._lineage[trial.trial_id], default=repr, indent=1)
        self.keep_file(f"pbt_policy_{trial.trial_id}.json", text)
        return Exploit(donor, config)

    def explore(self, trial: Trial, donor: Trial) -> dict[str, Any]:
        """The donor's configuration, changed."""
        config = explored(donor.config, self.mutations, self.resample_probability, self.perturbation_factors, self.rng)
        if self.custom_explore_fn is not None:
            config = self.custom_explore_fn(config)
            if not isinstance(config, dict):
                raise TuneError(f"custom_explore_fn must return the configuration, but returned {config!r}")
        return config

    # ---- with synch ----

    def on_trial_pause(self, trial: Trial) -> None:
        if self.synch:
            self._perturb_all()

    def _perturb_all(self) -> None:
        """When the whole population is there, has arrived and is saved."""
        live = list(self.trials.live)
        if self.trials.more_expected or not live:
            return
        if any(trial.status != PAUSED or trial.trial_id not in self._arrived for trial in live):
            return
        bottom, top = self.quantiles()
        for trial_id in bottom:
            trial, donor = self.trials[trial_id], self.trials[self.rng.choice(top)]
            self.change(trial, self._exploit(trial, donor, self._perturbed_at[donor.trial_id]))
        self._arrived.clear()

    def on_trial_complete(self, trial: Trial, result: Mapping[str, Any]) -> None:
        self._scores.pop(trial.trial_id, None)
        self._arrived.discard(trial.trial_id)
        if self.synch:
            self._perturb_all()

    def on_trial_error(self, trial: Trial) -> None:
        self.on_trial_complete(trial, {})

    on_trial_remove = on_trial_error

    def on_trial_revive(self, trial: Trial) -> None:
        """Its lineage is still known, and its interval goes on from where it failed."""

    def on_search_ended(self) -> None:
        if self.synch:
            self._perturb_all()

    def on_stall(self) -> None:
        self._arrived.clear()

    def choose_trial_to_run(self) -> Trial | None:
        """Whoever is furthest behind."""
        pending = self.trials.first(PENDING)
        if pending is not None:
            return pending
        ready = [trial for trial in self.trials.of(PAUSED) if trial.trial_id not in self._arrived]
        return min(ready, key=lambda trial: self._perturbed_at[trial.trial_id], default=None)

    def milestone(self, trial: Trial) -> Milestone | None:
        return Milestone(self.time_attr, self._due(trial))

    def describe(self) -> str:
        return f"Using population based training: {self.perturbations} perturbations."


def explored(
    config: Mapping[str, Any],
    mutations: Mapping[str, Any],
    resample_probability: float,
    factors: tuple[float, float],
    rng: random.Random,
) -> dict[str, Any]:
    """A changed copy of a configuration."""
    changed = dict(config)
    for key, mutation in mutations.items():
        if isinstance(mutation, Mapping):
            changed[key] = explored(config[key], mutation, resample_probability, factors, rng)
        elif rng.random() < resample_probability or key not in config:
            changed[key] = _drawn(mutation, rng)
        else:
            changed[key] = _moved(config[key], mutation, factors, rng)
    return changed


def _drawn(mutation: Any, rng: random.Random) -> Any:
    if isinstance(mutation, Domain):
        return mutation.sample(rng)
    if isinstance(mutation, list | tuple):
        return rng.choice(mutation)
    if callable(mutation):
        return mutation()
    raise TuneError(f"a mutation must be a domain, a list or a function, but got {mutation!r}")


def _moved(value: Any, mutation: Any, factors: tuple[float, float], rng: random.Random) -> Any:
    values = mutation if isinstance(mutation, list | tuple) else getattr(mutation, "categories", None)
    if values is not None:
        if value not in values:
            return rng.choice(values)
        index = list(values).index(value) + rng.choice((-1, 1))
        return values[min(max(index, 0), len(values) - 1)]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _drawn(mutation, rng)
    moved = value * rng.choice(factors)
    if isinstance(mutation, Domain) and hasattr(mutation, "clip"):
        return mutation.clip(moved)
    return int(moved) if isinstance(value, int) else moved
