"""Evolutionary and other derivative-free search through the package `nevergrad` (an optional extra)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from weft.tune.errors import TuneError
from weft.tune.search.searcher import Finished, Mode, Searcher
from weft.tune.search.unit_cube import UnitCube

__all__ = ["NevergradSearch"]


class NevergradSearch(Searcher):
    """`optimizer` is a name of `nevergrad.optimizers.registry`."""

    def __init__(self, optimizer: str = "NGOpt", budget: int | None = None, seed: int | None = None) -> None:
        self._optimizer_name = optimizer
        self._budget = budget
        self._own_seed = seed
        self._asked: dict[str, Any] = {}

    def set_up(self, space: Mapping[str, Any], metric: str | None, mode: Mode, seed: int, num_samples: int) -> None:
        super().set_up(space, metric, mode, self._own_seed if self._own_seed is not None else seed, num_samples)
        if metric is None:
            raise TuneError("NevergradSearch needs the experiment's metric and mode")
        try:
            import nevergrad
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                "NevergradSearch needs nevergrad: pip install 'weft[tune-nevergrad]'", name="nevergrad"
            ) from error
        import numpy

        self._cube = UnitCube(space)
        registry = nevergrad.optimizers.registry
        if self._optimizer_name not in registry:
            raise TuneError(f"nevergrad has no optimizer {self._optimizer_name!r}; see nevergrad.optimizers.registry")
        box = nevergrad.p.Array(init=numpy.full(len(self._cube), 0.5)).set_bounds(0.0, 1.0)
        box.random_state = numpy.random.RandomState(self.rng.getrandbits(32))
        budget = self._budget or (num_samples if num_samples > 0 else None)
        self._optimizer = registry[self._optimizer_name](parametrization=box, budget=budget)

    def ask(self, trial_id: str) -> dict[str, Any] | Finished | None:
        candidate = self._optimizer.ask()
        self._asked[trial_id] = candidate
        return self._cube.to_config([float(place) for place in candidate.value])

    def replay(self, trial_id: str, config: Mapping[str, Any]) -> None:
        place = self._cube.recorded(self.ask(trial_id), config)
        if place is not None:
            self._asked[trial_id] = self._candidate(place)

    def revive(self, trial_id: str, config: Mapping[str, Any]) -> bool:
        place = self._cube.to_vector(config)
        if place is not None:
            self._asked[trial_id] = self._candidate(place)
        return place is not None

    def _candidate(self, place: list[float]) -> Any:
        import numpy

        return self._optimizer.parametrization.spawn_child(new_value=numpy.array(place))

    def tell(self, trial_id: str, result: Mapping[str, Any] | None) -> None:
        candidate = self._asked.pop(trial_id)
        score = self.score(result) if result is not None else -math.inf
        if math.isfinite(score):
            self._optimizer.tell(candidate, -score)

    def add_evaluated(self, config: Mapping[str, Any], result: Mapping[str, Any]) -> None:
        vector, score = self._cube.to_vector(config), self.score(result)
        if vector is not None and math.isfinite(score):
            self._optimizer.tell(self._candidate(vector), -score)
