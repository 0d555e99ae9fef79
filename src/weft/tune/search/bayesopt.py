"""Gaussian-process search through the package `bayesian-optimization` (an optional extra)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from weft.tune.errors import TuneError
from weft.tune.search.searcher import Finished, Mode, Searcher
from weft.tune.search.unit_cube import UnitCube

__all__ = ["BayesOptSearch"]


class BayesOptSearch(Searcher):
    """The first `random_search_steps` trials are random."""

    def __init__(self, random_search_steps: int = 10, seed: int | None = None, **options: Any) -> None:
        self._random_steps = random_search_steps
        self._own_seed = seed
        self._options = options
        self._asked: dict[str, dict[str, float]] = {}
        self._count = 0

    def set_up(self, space: Mapping[str, Any], metric: str | None, mode: Mode, seed: int, num_samples: int) -> None:
        super().set_up(space, metric, mode, self._own_seed if self._own_seed is not None else seed, num_samples)
        if metric is None:
            raise TuneError("BayesOptSearch needs the experiment's metric and mode")
        try:
            import bayes_opt
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                "BayesOptSearch needs the package bayesian-optimization: pip install 'weft[tune-bayesopt]'",
                name="bayes_opt",
            ) from error
        self._cube = UnitCube(space)
        bounds = {f"x{index:03d}": (0.0, 1.0) for index in range(len(self._cube))}
        # Before version 2 the acquisition function is an argument of `suggest`, since then of the optimizer.
        self._suggest_with = [bayes_opt.UtilityFunction()] if hasattr(bayes_opt, "UtilityFunction") else []
        self._optimizer = bayes_opt.BayesianOptimization(
            f=None, pbounds=bounds, random_state=seed % 2**32, verbose=0, allow_duplicate_points=True, **self._options
        )

    def ask(self, trial_id: str) -> dict[str, Any] | Finished | None:
        self._count += 1
        if self._count <= self._random_steps:
            point = _point([self.rng.random() for _ in range(len(self._cube))])
        else:
            suggested = self._optimizer.suggest(*self._suggest_with)
            point = {key: float(value) for key, value in suggested.items()}
        self._asked[trial_id] = point
        return self._cube.to_config([point[key] for key in sorted(point)])

    def replay(self, trial_id: str, config: Mapping[str, Any]) -> None:
        place = self._cube.recorded(self.ask(trial_id), config)
        if place is not None:
            self._asked[trial_id] = _point(place)

    def revive(self, trial_id: str, config: Mapping[str, Any]) -> bool:
        place = self._cube.to_vector(config)
        if place is not None:
            self._asked[trial_id] = _point(place)
        return place is not None

    def tell(self, trial_id: str, result: Mapping[str, Any] | None) -> None:
        point = self._asked.pop(trial_id)
        score = self.score(result) if result is not None else -math.inf
        if math.isfinite(score):
            self._optimizer.register(params=point, target=score)

    def add_evaluated(self, config: Mapping[str, Any], result: Mapping[str, Any]) -> None:
        vector, score = self._cube.to_vector(config), self.score(result)
        if vector is not None and math.isfinite(score):
            self._optimizer.register(params=_point(vector), target=score)


def _point(vector: Sequence[float]) -> dict[str, float]:
    return {f"x{index:03d}": place for index, place in enumerate(vector)}
