"""PB2: population based bandits (Parker-Holder et al., "Provably Efficient Online Hyperparameter Optimization with
Population-Based Bandits", 2020, https://arxiv.org/abs/2002.02518).

Like population based training, but the new hyperparameters of an exploiting trial maximise an upper confidence bound of
a Gaussian process over (time, hyperparameters) -> improvement of the score during an interval. The kernel is the
paper's: squared exponential in the hyperparameters times (1 - epsilon) ** (|t - t'| / 2), so that what was learnt long
ago fades. Trials that run with new values already count as data whose outcome is what the model expects (its batch
rule).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from weft.tune.schedulers.pbt import PopulationBasedTraining
from weft.tune.schedulers.scheduler import Decision
from weft.tune.trial import Trial

if TYPE_CHECKING:
    from weft.tune.search.searcher import Mode

__all__ = ["PB2"]

LENGTH_SCALES = (0.1, 0.2, 0.4, 0.8, 1.6)
EPSILONS = (0.0, 0.05, 0.1, 0.2, 0.4)
NOISE = 1e-2
CANDIDATES = 1_000
DATA_LIMIT = 200


class PB2(PopulationBasedTraining):
    """`hyperparam_bounds` maps keys to (lower, upper)."""

    def __init__(
        self,
        time_attr: str = "training_iteration",
        metric: str | None = None,
        mode: Mode | None = None,
        perturbation_interval: float = 5,
        hyperparam_bounds: Mapping[str, tuple[float, float]] | None = None,
        quantile_fraction: float = 0.25,
        burn_in_period: float = 0,
        synch: bool = False,
    ) -> None:
        bounds = dict(hyperparam_bounds or {})
        if not bounds:
            raise ValueError("hyperparam_bounds must name what may change, with its (lower, upper)")
        from weft.tune.space import uniform

        super().__init__(
            time_attr,
            metric,
            mode,
            perturbation_interval,
            {key: uniform(*bound) for key, bound in bounds.items()},
            quantile_fraction,
            resample_probability=0.0,
            burn_in_period=burn_in_period,
            synch=synch,
        )
        self.bounds = bounds
        self._data: list[tuple[float, list[float], float]] = []
        """(time, hyperparameters in [0, 1], improvement a unit of time)"""
        self._before: dict[str, tuple[float, float]] = {}
        """trial -> (time, score) at its last interval"""
        self._pending: dict[str, tuple[float, list[float]]] = {}

    def on_result(self, trial: Trial, result: Mapping[str, Any]) -> Decision:
        time = self.time(result)
        if time >= self._due(trial):
            score = self.score(result)
            before = self._before.get(trial.trial_id)
            if before is not None and time > before[0] and math.isfinite(score) and math.isfinite(before[1]):
                improvement = (score - before[1]) / (time - before[0])
                self._data = [*self._data, (before[0], self._place(trial.config), improvement)][-DATA_LIMIT:]
            self._before[trial.trial_id] = (time, score)
            self._pending.pop(trial.trial_id, None)
        return super().on_result(trial, result)

    def explore(self, trial: Trial, donor: Trial) -> dict[str, Any]:
        time, score = self._before.get(donor.trial_id, (0.0, 0.0))
        self._before[trial.trial_id] = (time, score)
        place = self._best_place(time)
        self._pending[trial.trial_id] = (time, place)
        config = dict(donor.config)
        for (key, (lower, upper)), x in zip(self.bounds.items(), place, strict=True):
            value = lower + x * (upper - lower)
            config[key] = round(value) if isinstance(config.get(key), int) else value
        return config

    def _place(self, config: Mapping[str, Any]) -> list[float]:
        return [(float(config[key]) - lower) / (upper - lower) for key, (lower, upper) in self.bounds.items()]

    def _best_place(self, time: float) -> list[float]:
        import numpy as np

        draws = np.random.default_rng(self.rng.getrandbits(64))
        candidates = draws.random((CANDIDATES, len(self.bounds)))
        if len(self._data) < 2:
            return [float(x) for x in candidates[0]]
        times = np.array([row[0] for row in self._data])
        places = np.array([row[1] for row in self._data])
        gains = np.array([row[2] for row in self._data])
        gains = (gains - gains.mean()) / (gains.std() or 1.0)
        model = _fitted(times / self.perturbation_interval, places, gains)
        now = time / self.perturbation_interval
        for other_time, place in self._pending.values():
            model = model.with_expected(other_time / self.perturbation_interval, np.array(place))
        best = places[np.argsort(-gains)[:5]]
        nearby = np.clip(best[:, None, :] + draws.normal(0, 0.1, (len(best), 40, best.shape[1])), 0, 1)
        candidates = np.concatenate([candidates, nearby.reshape(-1, places.shape[1])])
        mean, deviation = model.predict(now, candidates)
        # The paper's beta grows with the logarithm of the rounds; c1 and c2 of its experiments.
        beta = 0.2 + math.log(0.4 * max(now, 1.0)) if now > 2.5 else 0.2
        return [float(x) for x in candidates[int(np.argmax(mean + math.sqrt(max(beta, 0.2)) * deviation))]]


class _Model:
    """A Gaussian process over (time, place) with the time-varying kernel, and its marginal likelihood."""

    def __init__(self, times: Any, places: Any, values: Any, length: float, epsilon: float) -> None:
        import numpy as np

        self._times, self._places, self._values, self._length, self._epsilon = times, places, values, length, epsilon
        kernel = self._kernel(times, places) + NOISE * np.eye(len(times))
        self._factor = np.linalg.cholesky(kernel)
        self._weights = np.linalg.solve(self._factor.T, np.linalg.solve(self._factor, values))
        self.likelihood = float(-0.5 * values @ self._weights - np.log(np.diag(self._factor)).sum())

    def _kernel(self, times: Any, places: Any) -> Any:
        import numpy as np

        distance = ((places[:, None, :] - self._places[None, :, :]) ** 2).sum(axis=2)
        age = np.abs(times[:, None] - self._times[None, :])
        return np.exp(-0.5 * distance / self._length**2) * (1 - self._epsilon) ** (age / 2)

    def predict(self, time: float, places: Any) -> tuple[Any, Any]:
        import numpy as np

        cross = self._kernel(np.full(len(places), time), places)
        half = np.linalg.solve(self._factor, cross.T)
        return cross @ self._weights, np.sqrt(np.maximum(1.0 - (half**2).sum(axis=0), 1e-9))

    def with_expected(self, time: float, place: Any) -> _Model:
        """As if the outcome there were what is expected: less uncertain around it."""
        import numpy as np

        mean, _ = self.predict(time, place[None, :])
        return _Model(
            np.append(self._times, time),
            np.vstack([self._places, place]),
            np.append(self._values, mean),
            self._length,
            self._epsilon,
        )


def _fitted(times: Any, places: Any, values: Any) -> _Model:
    models = (_Model(times, places, values, length, epsilon) for length in LENGTH_SCALES for epsilon in EPSILONS)
    return max(models, key=lambda model: model.likelihood)
