"""BOHB's model (Falkner et al., "BOHB: Robust and Efficient Hyperparameter Optimization at Scale", 2018,
https://arxiv.org/abs/1807.01774), for use with `HyperBandForBOHB` or any other scheduler that stops trials early.

Two kernel densities, of the good and of the bad configurations, on the largest budget that has enough results. The next
configuration is the best by good/bad of some that were drawn from a widened good density; a third are random.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from typing import Any, Literal

from weft.library.checks import one_of
from weft.tune.search.searcher import Finished, Mode, Searcher
from weft.tune.search.unit_cube import UnitCube

__all__ = ["TuneBOHB"]

SMALLEST_BANDWIDTH = 1e-3


class TuneBOHB(Searcher):
    """The options are the paper's. `min_points_in_model` None is one more than the dimensions.

    `learn_from="all"` ranks all trials at once, those first that got further. It suits ASHA and AsyncHyperBand, which
    let few trials get far: the paper's rule then learns from a handful.
    """

    def __init__(
        self,
        min_points_in_model: int | None = None,
        top_n_percent: float = 15,
        num_candidates: int = 64,
        random_fraction: float = 1 / 3,
        bandwidth_factor: float = 3,
        seed: int | None = None,
        learn_from: Literal["largest_budget", "all"] = "largest_budget",
    ) -> None:
        one_of("learn_from", learn_from, ("largest_budget", "all"))
        self._learn_from = learn_from
        self._min_points = min_points_in_model
        self._top_fraction = top_n_percent / 100
        self._num_candidates = num_candidates
        self._random_fraction = random_fraction
        self._bandwidth_factor = bandwidth_factor
        self._own_seed = seed
        self._vectors: dict[str, list[float]] = {}
        self._curves: dict[str, tuple[list[float], list[float]]] = {}
        """trial -> (budgets, scores)"""
        self._reach: list[float] = []
        """How far each trial has got, sorted."""
        self._ends: list[float] = []
        """Budgets at which trials have ended, sorted: there they were compared, so there they can be."""

    def set_up(self, space: Mapping[str, Any], metric: str | None, mode: Mode, seed: int, num_samples: int) -> None:
        super().set_up(space, metric, mode, self._own_seed if self._own_seed is not None else seed, num_samples)
        import numpy

        self._cube = UnitCube(space)
        self._counts = self._cube.category_counts
        self._min_points = max(self._min_points or 0, len(self._cube) + 1)
        self._draws = numpy.random.default_rng(self.rng.getrandbits(64))

    def ask(self, trial_id: str) -> dict[str, Any] | Finished | None:
        vector = None
        if self._draws.random() >= self._random_fraction:
            vector = self._from_model()
        if vector is None:
            vector = [float(place) for place in self._draws.random(len(self._cube))]
        self._vectors[trial_id] = vector
        return self._cube.to_config(vector)

    def replay(self, trial_id: str, config: Mapping[str, Any]) -> None:
        self._vectors[trial_id] = self._cube.recorded(self.ask(trial_id), config) or self._vectors[trial_id]

    def revive(self, trial_id: str, config: Mapping[str, Any]) -> bool:
        return True

    def observe(self, trial_id: str, result: Mapping[str, Any]) -> None:
        score = self.score(result)
        if score == -float("inf"):
            return
        budgets, scores = self._curves.setdefault(trial_id, ([], []))
        if budgets:
            del self._reach[bisect.bisect_left(self._reach, budgets[-1])]
        budgets.append(float(result["training_iteration"]))
        scores.append(score)
        bisect.insort(self._reach, budgets[-1])

    def tell(self, trial_id: str, result: Mapping[str, Any] | None) -> None:
        curve = self._curves.get(trial_id)
        if curve is not None and curve[0][-1] not in self._ends:
            bisect.insort(self._ends, curve[0][-1])

    def add_evaluated(self, config: Mapping[str, Any], result: Mapping[str, Any]) -> None:
        vector = self._cube.to_vector(config)
        if vector is not None:
            name = f"before {len(self._vectors)}"
            self._vectors[name] = vector
            self.observe(name, {"training_iteration": 1, **result})
            self.tell(name, result)

    def _from_model(self) -> list[float] | None:
        import numpy as np

        ranking = self._all_ranked() if self._learn_from == "all" else self._ranked_at_largest_budget()
        assert self._min_points is not None
        if len(ranking) < self._min_points + 2:
            return None
        vectors = np.array(ranking)
        good_count = max(self._min_points, int(self._top_fraction * len(vectors)))
        bad_count = max(self._min_points, len(vectors) - good_count)
        good = _Density(vectors[:good_count], self._counts)
        bad = _Density(vectors[-bad_count:], self._counts)
        candidates = good.sample(self._num_candidates, self._bandwidth_factor, self._draws)
        ratio = np.maximum(good.at(candidates), 1e-32) / np.maximum(bad.at(candidates), 1e-32)
        return [float(place) for place in candidates[int(np.argmax(ratio))]]

    def _ranked_at_largest_budget(self) -> list[list[float]]:
        """The configurations that have reached the largest budget with enough of them, best first."""
        assert self._min_points is not None
        enough = self._min_points + 2
        budget = next((end for end in reversed(self._ends) if self._count_beyond(end) >= enough), None)
        if budget is None:
            return []
        reached = [
            (self._score_at(curve, budget), name) for name, curve in self._curves.items() if curve[0][-1] >= budget
        ]
        return [self._vectors[name] for _, name in sorted(reached, reverse=True)]

    def _all_ranked(self) -> list[list[float]]:
        """Those that a scheduler let go further come first, then those with better scores there."""
        reached = []
        for name, curve in self._curves.items():
            passed = bisect.bisect_right(self._ends, curve[0][-1])
            if passed:
                budget = self._ends[passed - 1]
                reached.append((budget, self._score_at(curve, budget), name))
        return [self._vectors[name] for _, _, name in sorted(reached, reverse=True)]

    @staticmethod
    def _score_at(curve: tuple[list[float], list[float]], budget: float) -> float:
        budgets, scores = curve
        return scores[bisect.bisect_right(budgets, budget) - 1]

    def _count_beyond(self, budget: float) -> int:
        return len(self._reach) - bisect.bisect_left(self._reach, budget)


class _Density:
    """A product kernel density on the unit cube: Gaussians for numbers, Aitchison and Aitken's kernel for
    categories."""

    def __init__(self, points: Any, category_counts: list[int]) -> None:
        import numpy as np

        self._points = points
        self._counts = category_counts
        count, dimensions = points.shape
        scott = 1.06 * count ** (-1 / (4 + dimensions))
        self._bandwidths = np.maximum(points.std(axis=0) * scott, SMALLEST_BANDWIDTH)

    def at(self, places: Any) -> Any:
        import numpy as np

        density = np.ones((len(places), len(self._points)))
        for d, count in enumerate(self._counts):
            bandwidth = self._bandwidths[d]
            if count:
                same = _category(places[:, d], count)[:, None] == _category(self._points[:, d], count)[None, :]
                stray = min(bandwidth, (count - 1) / count)
                density *= np.where(same, 1 - stray, stray / max(count - 1, 1))
            else:
                distance = (places[:, d][:, None] - self._points[:, d][None, :]) / bandwidth
                density *= np.exp(-0.5 * distance**2) / bandwidth
        return density.mean(axis=1)

    def sample(self, number: int, widening: float, draws: Any) -> Any:
        import numpy as np

        chosen = self._points[draws.integers(len(self._points), size=number)]
        places = np.empty_like(chosen)
        for d, count in enumerate(self._counts):
            bandwidth = self._bandwidths[d]
            if count:
                keep = draws.random(number) < 1 - min(bandwidth, (count - 1) / count)
                places[:, d] = np.where(keep, chosen[:, d], (draws.integers(count, size=number) + 0.5) / count)
            else:
                places[:, d] = _truncated_normal(chosen[:, d], bandwidth * widening, draws)
        return places


def _category(places: Any, count: int) -> Any:
    import numpy as np

    return np.minimum((places * count).astype(int), count - 1)


def _truncated_normal(means: Any, deviation: float, draws: Any) -> Any:
    """Normal numbers in [0, 1], drawn again where they fall outside."""
    import numpy as np

    values = draws.normal(means, deviation)
    for _ in range(20):
        outside = (values < 0) | (values > 1)
        if not outside.any():
            return values
        values[outside] = draws.normal(means[outside], deviation)
    return np.clip(values, 0, 1)
