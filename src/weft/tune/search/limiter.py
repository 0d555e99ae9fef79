"""At most so many trials of an algorithm at a time: model-based search learns more from fewer at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.library.checks import above
from weft.tune.search.searcher import Finished, Mode, Searcher

__all__ = ["ConcurrencyLimiter"]


class ConcurrencyLimiter(Searcher):
    """With `batch`, the next trials are asked for only when a whole batch has ended."""

    def __init__(self, searcher: Searcher, max_concurrent: int, batch: bool = False) -> None:
        above("max_concurrent", max_concurrent)
        self.searcher = searcher
        self.max_concurrent = max_concurrent
        self.batch = batch
        self._live: set[str] = set()
        self._ended = 0
        self._untold: set[str] = set()
        """Live trials that `searcher` does not want to hear of again."""

    def set_up(self, space: Mapping[str, Any], metric: str | None, mode: Mode, seed: int, num_samples: int) -> None:
        super().set_up(space, metric, mode, seed, num_samples)
        self.searcher.set_up(space, metric, mode, seed, num_samples)
        self.samples = self.searcher.samples

    def ask(self, trial_id: str) -> dict[str, Any] | Finished | None:
        if len(self._live) + (self._ended if self.batch else 0) >= self.max_concurrent:
            return None
        config = self.searcher.ask(trial_id)
        if isinstance(config, dict):
            self._live.add(trial_id)
        return config

    def replay(self, trial_id: str, config: Mapping[str, Any]) -> None:
        self.searcher.replay(trial_id, config)
        self._live.add(trial_id)

    def observe(self, trial_id: str, result: Mapping[str, Any]) -> None:
        if trial_id not in self._untold:
            self.searcher.observe(trial_id, result)

    def revive(self, trial_id: str, config: Mapping[str, Any]) -> bool:
        takes_it = self.searcher.revive(trial_id, config)
        (self._untold.discard if takes_it else self._untold.add)(trial_id)
        self._live.add(trial_id)
        return True

    def tell(self, trial_id: str, result: Mapping[str, Any] | None) -> None:
        if trial_id not in self._untold:
            self.searcher.tell(trial_id, result)
        self._live.discard(trial_id)
        self._ended = self._ended + 1 if self._live else 0

    def add_evaluated(self, config: Mapping[str, Any], result: Mapping[str, Any]) -> None:
        self.searcher.add_evaluated(config, result)
