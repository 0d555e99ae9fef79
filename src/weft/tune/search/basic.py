"""Grid and random search: every combination of the grids, `num_samples` times, and random values for the rest.

Which configuration is the nth follows from n and the seed alone, so nothing has to be remembered between calls.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

from weft.tune.errors import SearchSpaceError
from weft.tune.search.searcher import FINISHED, Finished, Mode, Searcher
from weft.tune.space import Domain, GridSearch, Path, as_domain, domains_of, path_name, resolve

__all__ = ["BasicVariantGenerator", "GridRandomSearch"]


class GridRandomSearch(Searcher):
    """`points_to_evaluate` are tried first, and count."""

    def __init__(
        self,
        points_to_evaluate: Sequence[Mapping[str, Any]] = (),
        seed: int | None = None,
        random_state: int | None = None,
    ) -> None:
        self._points = [dict(point) for point in points_to_evaluate]
        self._own_seed = seed if seed is not None else random_state
        self._asked = 0

    def set_up(self, space: Mapping[str, Any], metric: str | None, mode: Mode, seed: int, num_samples: int) -> None:
        super().set_up(space, metric, mode, seed, num_samples)
        self._seed = self._own_seed if self._own_seed is not None else seed
        self._grids = dict(_grids_in(space))
        self._combinations = math.prod(len(grid.values) for grid in self._grids.values())
        self.samples = None if num_samples < 0 else max(num_samples * self._combinations, len(self._points))

    def ask(self, trial_id: str) -> dict[str, Any] | Finished | None:
        if self.samples is not None and self._asked >= self.samples:
            return FINISHED
        number = self._asked
        self._asked += 1
        rng = random.Random(self._seed * 1_000_003 + number)
        if number < len(self._points):
            point = self._points[number]
            return resolve({**self.space, **point}, lambda path, domain: domain.sample(rng))
        values = self._combination(number % self._combinations)

        def draw(path: Path, domain: Domain) -> Any:
            return values[path] if path in values else domain.sample(rng)

        return resolve(self.space, draw)

    def replay(self, trial_id: str, config: Mapping[str, Any]) -> None:
        self._asked += 1

    def _combination(self, number: int) -> dict[Path, Any]:
        """The last grid changes fastest."""
        values = {}
        for path, grid in reversed(self._grids.items()):
            number, index = divmod(number, len(grid.values))
            values[path] = grid.values[index]
        return values


BasicVariantGenerator = GridRandomSearch


def _grids_in(space: Any, at: Path = ()) -> list[tuple[Path, GridSearch]]:
    domain = as_domain(space)
    if isinstance(domain, GridSearch):
        return [(at, domain)]
    if domain is not None:
        inner = next((path for path, each in domains_of(space, at) if isinstance(each, GridSearch)), None)
        if inner is not None:
            raise SearchSpaceError(
                f"key {path_name(at)!r} has a grid_search inside a choice, so the grid's size would be random; "
                f"use choice there, or a grid_search over the whole key"
            )
        return []
    if isinstance(space, Mapping):
        return [found for key, value in space.items() for found in _grids_in(value, (*at, key))]
    if isinstance(space, list | tuple):
        return [found for index, value in enumerate(space) for found in _grids_in(value, (*at, index))]
    return []
