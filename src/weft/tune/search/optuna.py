"""Optuna's samplers: TPE, Gaussian processes, CMA-ES, NSGA-II, or any other of its kind.

Optuna is asked define-by-run, so conditional spaces are searched as such. A trial that a scheduler stopped is told as
pruned, with its last value as an intermediate one, so that TPE does not take it for a finished one.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from weft.library.lookup import value_at
from weft.tune.errors import SearchSpaceError, TuneError
from weft.tune.schedulers.scheduler import missing_key
from weft.tune.search.searcher import Finished, Mode, Searcher
from weft.tune.search.unit_cube import UnitCube, category_of, look_up
from weft.tune.space import Choice, Domain, Integer, Normal, Path, Real, path_name, resolve

if TYPE_CHECKING:
    import optuna

__all__ = ["OptunaSearch"]

SAMPLERS = {
    "tpe": "TPESampler",
    "gp": "GPSampler",
    "cmaes": "CmaEsSampler",
    "nsga2": "NSGAIISampler",
    "nsga3": "NSGAIIISampler",
    "random": "RandomSampler",
    "qmc": "QMCSampler",
}
_PLAIN = (str, int, float, bool, type(None))
_EDGE = 1e-6


class OptunaSearch(Searcher):
    """`sampler` is a name of the above, an Optuna sampler, or None for TPE. Several objectives: lists for `metric` and
    `mode`; then the best trials are those of `study.best_trials`."""

    def __init__(
        self,
        sampler: str | optuna.samplers.BaseSampler | None = None,
        metric: str | Sequence[str] | None = None,
        mode: Mode | Sequence[Mode] | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] = (),
        evaluated_rewards: Sequence[float] = (),
        seed: int | None = None,
        **sampler_options: Any,
    ) -> None:
        if isinstance(sampler, str) and sampler not in SAMPLERS:
            raise ValueError(f"sampler must be one of {', '.join(SAMPLERS)}, or an Optuna sampler, but got {sampler!r}")
        if len(evaluated_rewards) > len(points_to_evaluate):
            raise ValueError(
                f"evaluated_rewards must be at most as many as points_to_evaluate, but got "
                f"{len(evaluated_rewards)} and "
                f"{len(points_to_evaluate)}"
            )
        self._sampler = sampler if sampler is not None else "tpe"
        self._sampler_options = sampler_options
        self._metrics = [metric] if isinstance(metric, str) else list(metric or ())
        self._modes: list[Any] = [mode] if isinstance(mode, str) else list(mode or ())
        self._points = [dict(point) for point in points_to_evaluate]
        self._rewards = list(evaluated_rewards)
        self._own_seed = seed
        self._trials: dict[str, Any] = {}
        """Optuna's trial; or the configuration of one that it did not give, which it gets when the result is there."""

    def set_up(self, space: Mapping[str, Any], metric: str | None, mode: Mode, seed: int, num_samples: int) -> None:
        super().set_up(space, metric, mode, seed, num_samples)
        optuna = _optuna()
        self._metrics = self._metrics or ([metric] if metric is not None else [])
        self._modes = self._modes or [mode] * len(self._metrics)
        if not self._metrics:
            raise TuneError("OptunaSearch needs metric= and mode=, for itself or for the experiment")
        if len(self._modes) != len(self._metrics):
            raise TuneError(f"OptunaSearch has {len(self._metrics)} metrics, but {len(self._modes)} modes")
        if len(self._metrics) == 1:
            self.metric, self.mode = self._metrics[0], self._modes[0]
        self._cube = UnitCube(space)  # also checks that there is something to search
        sampler = self._sampler
        if isinstance(sampler, str):
            options = {"seed": self._own_seed if self._own_seed is not None else seed, **self._sampler_options}
            sampler = getattr(optuna.samplers, SAMPLERS[sampler])(**options)
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        directions = ["maximize" if each == "max" else "minimize" for each in self._modes]
        self.study = optuna.create_study(directions=directions, sampler=sampler)
        for index, point in enumerate(self._points):
            if index < len(self._rewards):
                self.add_evaluated(point, {self._metrics[0]: self._rewards[index]})
            else:
                self.study.enqueue_trial(self._params_of(point))

    def ask(self, trial_id: str) -> dict[str, Any] | Finished | None:
        trial = self.study.ask()
        self._trials[trial_id] = trial
        return resolve(self.space, lambda path, domain: _suggest(trial, path, domain))

    def replay(self, trial_id: str, config: Mapping[str, Any]) -> None:
        """Asked again, a seeded sampler is in the state that it was in; one that gives something else (it is not
        seeded, or another version) is given what was recorded, from then on without being asked."""
        if not self._differs:
            asked = self.ask(trial_id)
            assert isinstance(asked, dict)
            if self._params_of(asked) == self._params_of(config):
                return
            self._differs = True
            self.study.tell(self._trials[trial_id], state=_optuna().trial.TrialState.FAIL)
        self._trials[trial_id] = config

    def revive(self, trial_id: str, config: Mapping[str, Any]) -> bool:
        self._trials[trial_id] = config
        return True

    def tell(self, trial_id: str, result: Mapping[str, Any] | None) -> None:
        optuna = _optuna()
        trial = self._trials.pop(trial_id)
        values = [value_at(result, metric) for metric in self._metrics] if result is not None else []
        if result is not None and any(value is None for value in values):
            raise TuneError(missing_key("metric", self._metrics[values.index(None)], result))
        numbers = [float(value) for value in values]
        states, curve = optuna.trial.TrialState, {}
        if not numbers or any(math.isnan(number) for number in numbers):
            state, numbers = states.FAIL, []
        elif result is not None and result.get("stopped_early") and len(numbers) == 1:
            state, curve = states.PRUNED, {int(result["training_iteration"]): numbers[0]}
        else:
            state = states.COMPLETE
        if isinstance(trial, Mapping):
            self._add(trial, state=state, values=numbers or None, intermediate_values=curve)
            return
        for step, number in curve.items():
            trial.report(number, step)
        self.study.tell(trial, numbers if state == states.COMPLETE else None, state=state)

    def add_evaluated(self, config: Mapping[str, Any], result: Mapping[str, Any]) -> None:
        values = [value_at(result, metric) for metric in self._metrics]
        if not any(not isinstance(value, int | float) or math.isnan(value) for value in values):
            self._add(config, values=values)

    def _add(self, config: Mapping[str, Any], **told: Any) -> None:
        """A trial that the sampler did not give."""
        known = self._known(config)
        params = {name: value for name, (value, _) in known.items()}
        distributions = {name: _distribution(domain) for name, (_, domain) in known.items()}
        self.study.add_trial(_optuna().trial.create_trial(params=params, distributions=distributions, **told))

    def _params_of(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, (value, _) in self._known(config).items()}

    def _known(self, config: Mapping[str, Any]) -> dict[str, tuple[Any, Domain]]:
        """name -> (Optuna's value, domain), of the keys that the configuration has."""
        known: dict[str, tuple[Any, Domain]] = {}
        for path, domain in self._cube.domains.items():
            found, value = look_up(config, self.space, path)
            if not found:
                continue
            if isinstance(domain, Choice) and not _is_plain(domain):
                value = category_of(domain, value)
                if value is None:
                    continue
            elif isinstance(domain, Normal):
                value = statistics.NormalDist(domain.mean, domain.sd).cdf(value)
            known[path_name(path)] = (value, domain)
        return known


def _suggest(trial: Any, path: Path, domain: Domain) -> Any:
    name = path_name(path)
    if isinstance(domain, Real):
        step = None if domain.log else domain.step
        return domain.clip(trial.suggest_float(name, domain.lower, domain.upper, log=domain.log, step=step))
    if isinstance(domain, Integer):
        step = 1 if domain.log else domain.step
        return domain.clip(trial.suggest_int(name, domain.lower, domain.upper, log=domain.log, step=step))
    if isinstance(domain, Normal):
        quantile = trial.suggest_float(name, _EDGE, 1 - _EDGE)
        return domain.clip(statistics.NormalDist(domain.mean, domain.sd).inv_cdf(quantile))
    if isinstance(domain, Choice):
        if _is_plain(domain):
            return trial.suggest_categorical(name, domain.categories)
        return domain.categories[trial.suggest_categorical(name, range(len(domain.categories)))]
    raise SearchSpaceError(f"key {name!r} is a {type(domain).__name__}, which OptunaSearch cannot search")


def _distribution(domain: Domain) -> Any:
    distributions = _optuna().distributions
    if isinstance(domain, Real):
        step = None if domain.log else domain.step
        return distributions.FloatDistribution(domain.lower, domain.upper, log=domain.log, step=step)
    if isinstance(domain, Integer):
        step = 1 if domain.log else domain.step
        return distributions.IntDistribution(domain.lower, domain.upper, log=domain.log, step=step)
    if isinstance(domain, Normal):
        return distributions.FloatDistribution(_EDGE, 1 - _EDGE)
    assert isinstance(domain, Choice)
    choices = domain.categories if _is_plain(domain) else range(len(domain.categories))
    return distributions.CategoricalDistribution(list(choices))


def _is_plain(domain: Choice) -> bool:
    return all(isinstance(category, _PLAIN) for category in domain.categories)


def _optuna() -> Any:
    try:
        import optuna
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("OptunaSearch needs optuna: pip install 'weft[tune]'", name="optuna") from error
    return optuna
