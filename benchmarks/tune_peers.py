"""Optuna's and Syne Tune's own loops in virtual time, for `tune_quality.py`: no worker is idle, a step is a unit.

Syne Tune is measured when it is installed: `pip install syne-tune==0.13.0 statsmodels`, the last release with its
synchronous HyperBand and BOHB. It is told to begin with no configuration of its own choice (`points_to_evaluate=[]`):
the middle of the space, its default, is nearly the best configuration of some problems.
"""

from __future__ import annotations

import copy
import heapq
import warnings
from collections.abc import Callable
from typing import Any

from tune_problems import Problem, Tally

SLOTS = 4
ETA = 3
Run = Callable[[type[Problem], int, int], Tally]
"""(problem, seed, steps of all workers together) -> what came of it"""


def of_optuna(make_pruner: Callable[[int], Any], sampler: str) -> Run:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    samplers = {"random": optuna.samplers.RandomSampler, "tpe": optuna.samplers.TPESampler}

    def run(problem: type[Problem], seed: int, steps: int) -> Tally:
        tally = Tally()
        model = problem.with_tally(tally)
        study = optuna.create_study(
            study_name=f"seed {seed}",  # HyperbandPruner chooses brackets by a hash of the name
            direction="minimize",
            pruner=make_pruner(problem.max_t),
            sampler=samplers[sampler](seed=seed),
        )
        rungs = {ETA**power for power in range(8)}

        def begin() -> tuple[Any, Any]:
            trial = study.ask()
            return trial, model({key: _suggested(trial, key, domain) for key, domain in problem.space.items()})

        workers = [begin() for _ in range(SLOTS)]
        while tally.steps < steps:
            trial, curve = workers.pop(0)
            loss = curve.step()["loss"]
            trial.report(loss, curve.t)
            if curve.t >= problem.max_t:
                study.tell(trial, loss)
            elif curve.t in rungs and trial.should_prune():  # between rungs it never prunes
                study.tell(trial, state=optuna.trial.TrialState.PRUNED)
            else:
                workers.append((trial, curve))
                continue
            workers.append(begin())
        return tally

    return run


def _suggested(trial: Any, key: str, domain: Any) -> Any:
    if isinstance(domain.lower, int) and isinstance(domain.upper, int) and hasattr(domain, "step") and domain.step == 1:
        return trial.suggest_int(key, domain.lower, domain.upper, log=domain.log)
    return trial.suggest_float(key, domain.lower, domain.upper, log=domain.log)


def of_syne_tune(baseline: str, **options: Any) -> Run | None:
    """One of Syne Tune's schedulers; None when it is not installed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from syne_tune.optimizer import baselines
    except ModuleNotFoundError:
        return None
    import logging

    logging.getLogger("syne_tune").setLevel(logging.ERROR)

    def run(problem: type[Problem], seed: int, steps: int) -> Tally:
        import numpy as np
        from syne_tune.backend.time_keeper import RealTimeKeeper

        np.random.seed(seed)
        limit = {"max_resource_level" if baseline.startswith("Sync") else "max_t": problem.max_t}
        scheduler = getattr(baselines, baseline)(
            _syne_tune_space(problem), metric="loss", mode="min", resource_attr="t", random_seed=seed,
            points_to_evaluate=[], **limit, **options,
        )  # fmt: skip
        if hasattr(scheduler, "set_time_keeper"):
            clock = RealTimeKeeper()
            clock.start_of_time()
            scheduler.set_time_keeper(clock)
        return _SyneTuneLoop(scheduler, problem, steps).run(options.get("population_size", SLOTS))

    return run


class _SyneTuneLoop:
    """Trials that pause go on from where they were, as with its own simulator."""

    def __init__(self, scheduler: Any, problem: type[Problem], steps: int) -> None:
        self._scheduler, self._steps = scheduler, steps
        self._tally = Tally()
        self._model = problem.with_tally(self._tally)
        self._max_t = problem.max_t
        self._trials: dict[int, tuple[Any, Any]] = {}

    def run(self, slots: int) -> Tally:
        agenda: list[tuple[int, int, int]] = []
        for order in range(slots):
            heapq.heappush(agenda, (1, order, self._begin()))
        order = slots
        while self._tally.steps < self._steps:
            now, _, trial_id = heapq.heappop(agenda)
            trial, curve = self._trials[trial_id]
            result = {**curve.step(), "t": curve.t}
            decision = self._scheduler.on_trial_result(trial, result)
            if curve.t >= self._max_t:
                self._scheduler.on_trial_complete(trial, result)
            elif decision == "STOP":
                self._scheduler.on_trial_remove(trial)
            order += 1
            goes_on = curve.t < self._max_t and decision == "CONTINUE"
            heapq.heappush(agenda, (now + 1, order, trial_id if goes_on else self._begin()))
        return self._tally

    def _begin(self) -> int:
        import datetime

        from syne_tune.backend.trial_status import Trial

        trial_id = len(self._trials)
        suggestion = self._scheduler.suggest(trial_id)
        if not suggestion.spawn_new_trial_id:
            return int(suggestion.checkpoint_trial_id)
        config = {key: value for key, value in suggestion.config.items() if key in self._model.space}
        curve = self._model(config)
        if suggestion.checkpoint_trial_id is not None:
            curve.load_checkpoint(copy.deepcopy(self._trials[suggestion.checkpoint_trial_id][1].save_checkpoint("")))
        trial = Trial(trial_id, suggestion.config, datetime.datetime.now())
        self._trials[trial_id] = trial, curve
        self._scheduler.on_trial_add(trial)
        return trial_id


def _syne_tune_space(problem: type[Problem]) -> dict[str, Any]:
    from syne_tune.config_space import lograndint, loguniform, randint, uniform

    kinds = {(False, False): uniform, (False, True): loguniform, (True, False): randint, (True, True): lograndint}
    return {
        key: kinds[type(domain).__name__ == "Integer", domain.log](domain.lower, domain.upper)
        for key, domain in problem.space.items()
    }
