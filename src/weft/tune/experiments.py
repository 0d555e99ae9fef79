"""The ways to run that people have known since 2018: `run_experiments` and `run`.

>>> from weft import tune
>>> def train(config):
...     for step in range(3):
...         tune.report(mean_accuracy=step * config["alpha"] + config["beta"])
>>> trials = tune.run_experiments({"demo": {
...     "run": train,
...     "stop": {"mean_accuracy": 100},
...     "config": {"alpha": tune.grid_search([0.2, 0.4, 0.6]), "beta": tune.grid_search([1, 2])},
... }}, verbose=0)
>>> len(trials)
6
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from weft.library.keywords import answers_keywords
from weft.tune.callback import Callback
from weft.tune.config import CheckpointConfig, FailureConfig, RunConfig, TuneConfig
from weft.tune.errors import TuneError
from weft.tune.result_grid import ResultGrid
from weft.tune.schedulers.scheduler import TrialScheduler
from weft.tune.search.searcher import Mode, Searcher
from weft.tune.space import SampleFrom
from weft.tune.trial import Trial
from weft.tune.tuner import Tuner

__all__ = ["Experiment", "run", "run_experiments"]

_KEYS = (
    "run stop config env num_samples repeat trial_resources resources_per_trial local_dir upload_dir storage_path "
    "checkpoint_freq checkpoint_at_end keep_checkpoints_num max_failures time_budget_s"
).split()


class Experiment:
    """A named entry of `run_experiments`, as an object."""

    def __init__(self, name: str, run: Any, **spec: Any) -> None:
        self.name = name
        self.spec = {"run": run, **spec}
        _check_keys(name, self.spec)


def run_experiments(
    experiments: Mapping[str, Mapping[str, Any]] | Experiment | Sequence[Experiment],
    scheduler: TrialScheduler | str | None = None,
    search_alg: Searcher | str | None = None,
    *,
    verbose: int | bool | None = None,
    callbacks: Sequence[Callback] | None = None,
    raise_on_failed_trial: bool = True,
    metric: str | None = None,
    mode: Mode | None = None,
) -> list[Trial]:
    """Run each experiment and return all trials. Unknown keys are errors."""
    named = _named(experiments)
    for name, spec in named.items():
        _check_keys(name, spec)
    if len(named) > 1 and isinstance(scheduler, TrialScheduler | Searcher):
        import copy

        schedulers: list[Any] = [copy.deepcopy(scheduler) for _ in named]
    else:
        schedulers = [scheduler for _ in named]
    trials: list[Trial] = []
    for (name, spec), its_scheduler in zip(named.items(), schedulers, strict=True):
        config = _with_functions(dict(spec.get("config", {})))
        if "env" in spec:
            config["env"] = spec["env"]
        grid = run(
            spec["run"],
            name=name,
            config=config,
            stop=spec.get("stop"),
            num_samples=spec.get("num_samples", spec.get("repeat", 1)),
            resources_per_trial=spec.get("resources_per_trial", spec.get("trial_resources")),
            storage_path=spec.get("storage_path") or spec.get("upload_dir") or spec.get("local_dir"),
            checkpoint_freq=spec.get("checkpoint_freq", 0),
            checkpoint_at_end=spec.get("checkpoint_at_end", False),
            keep_checkpoints_num=spec.get("keep_checkpoints_num"),
            max_failures=spec.get("max_failures", 0),
            time_budget_s=spec.get("time_budget_s"),
            scheduler=its_scheduler,
            search_alg=search_alg,
            metric=metric,
            mode=mode,
            verbose=None if verbose is None else int(verbose),
            callbacks=callbacks,
            raise_on_failed_trial=raise_on_failed_trial,
            fresh_folder=True,
        )
        trials += grid.trials
    return trials


@answers_keywords(param_space="write config={...}", params="write config={...}")
def run(
    run_or_experiment: Any,
    name: str | None = None,
    metric: str | None = None,
    mode: Mode | None = None,
    stop: Any = None,
    time_budget_s: float | None = None,
    config: Mapping[str, Any] | None = None,
    resources_per_trial: Any = None,
    num_samples: int = 1,
    storage_path: str | None = None,
    search_alg: Searcher | str | None = None,
    scheduler: TrialScheduler | str | None = None,
    checkpoint_freq: int = 0,
    checkpoint_at_end: bool = False,
    keep_checkpoints_num: int | None = None,
    verbose: int | None = None,
    callbacks: Sequence[Callback] | None = None,
    max_failures: int = 0,
    fail_fast: bool = False,
    reuse_actors: bool = True,
    max_concurrent_trials: int | None = None,
    raise_on_failed_trial: bool = True,
    local_dir: str | None = None,
    resume: bool | str = False,
    seed: int | None = None,
    fresh_folder: bool = False,
) -> ResultGrid:
    """Run one experiment. TuneError at the end if a trial failed, unless `raise_on_failed_trial` is False.

    `resume=True` continues the experiment of that name; "AUTO" does so if there is one. `fresh_folder` gives an
    experiment whose name is taken a number.

    >>> grid = run(lambda config: {"score": config["x"]}, config={"x": {"grid_search": [1, 2]}}, verbose=0)
    >>> [result.metrics["score"] for result in grid]
    [1, 2]
    """
    search = TuneConfig(metric, mode, search_alg, scheduler, num_samples, max_concurrent_trials, time_budget_s)
    search.reuse_actors, search.seed = reuse_actors, seed
    failures = FailureConfig(max_failures, fail_fast=fail_fast)
    checkpoints = CheckpointConfig(checkpoint_freq, checkpoint_at_end, keep_checkpoints_num)
    place = RunConfig(name, storage_path or local_dir, stop, failures, checkpoints, callbacks, verbose)
    tuner = Tuner(run_or_experiment, param_space=config, tune_config=search, run_config=place)
    tuner._spec.resources = resources_per_trial
    return _fit(_resumed(tuner, run_or_experiment, place, resume, fresh_folder), raise_on_failed_trial)


def _resumed(tuner: Tuner, trainable: Any, place: RunConfig, resume: bool | str, fresh_folder: bool) -> Tuner:
    """The same one, or one that continues what lies at its place."""
    if resume and (resume is True or Tuner.can_restore(tuner.path)):
        return Tuner.restore(tuner.path, trainable, callbacks=list(place.callbacks or ()), verbose=place.verbose)
    if fresh_folder:
        tuner.use_fresh_folder()
    return tuner


def _fit(tuner: Tuner, raise_on_failed_trial: bool) -> ResultGrid:
    grid = tuner.fit()
    if raise_on_failed_trial and grid.num_errors:
        first = grid.errors[0]
        raise TuneError(f"{grid.num_errors} of {len(grid)} trials failed, the first one: {first}. Logs: {tuner.path}")
    return grid


def _named(experiments: Any) -> dict[str, Mapping[str, Any]]:
    if isinstance(experiments, Experiment):
        experiments = [experiments]
    if isinstance(experiments, Mapping):
        return dict(experiments)
    return {experiment.name: experiment.spec for experiment in experiments}


def _check_keys(name: str, spec: Mapping[str, Any]) -> None:
    if "run" not in spec:
        raise TuneError(
            f"experiment {name!r} must say what to run: it has {', '.join(spec) or 'nothing'}, but no 'run'"
        )
    for key in spec:
        if key not in _KEYS:
            raise TuneError(f"experiment {name!r} has an unknown key {key!r}; it may have: {', '.join(_KEYS)}")


def _with_functions(config: Any) -> Any:
    """The spaces of 2018 have bare functions of `spec`."""
    if isinstance(config, dict):
        return {key: _with_functions(value) for key, value in config.items()}
    if inspect.isfunction(config) and list(inspect.signature(config).parameters) == ["spec"]:
        return SampleFrom(config)
    return config
