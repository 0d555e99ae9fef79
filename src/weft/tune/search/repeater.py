"""Every configuration several times, and the algorithm learns their mean: for results that depend on the seed."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from weft.library.checks import above
from weft.library.lookup import value_at
from weft.tune.search.searcher import Finished, Mode, Searcher

__all__ = ["TRIAL_INDEX", "Repeater"]

TRIAL_INDEX = "__trial_index__"
"""The key of `config` that says which repetition it is: 0, 1, …; a seed."""


@dataclass
class _Group:
    name: str
    config: dict[str, Any]
    given: int = 0
    ended: int = 0
    values: list[float] = field(default_factory=list)


class Repeater(Searcher):
    """Asks `searcher` once for each `repeat` trials; `num_samples` counts the trials."""

    def __init__(self, searcher: Searcher, repeat: int = 1, set_index: bool = True) -> None:
        above("repeat", repeat)
        self.searcher = searcher
        self.repeat = repeat
        self.set_index = set_index
        self._groups: dict[str, _Group] = {}
        self._open: _Group | None = None

    def set_up(self, space: Mapping[str, Any], metric: str | None, mode: Mode, seed: int, num_samples: int) -> None:
        super().set_up(space, metric, mode, seed, num_samples)
        self.searcher.set_up(
            space, metric, mode, seed, num_samples if num_samples < 0 else -(-num_samples // self.repeat)
        )
        inner = self.searcher.samples
        self.samples = None if inner is None else inner * self.repeat

    def ask(self, trial_id: str) -> dict[str, Any] | Finished | None:
        if self._open is None:
            config = self.searcher.ask(trial_id)
            if not isinstance(config, dict):
                return config
            self._open = _Group(trial_id, config)
        return self._repetition(trial_id, self._open)

    def replay(self, trial_id: str, config: Mapping[str, Any]) -> None:
        if self._open is None:
            self.searcher.replay(trial_id, config)
            self._open = _Group(trial_id, {key: value for key, value in config.items() if key != TRIAL_INDEX})
        self._repetition(trial_id, self._open)

    def _repetition(self, trial_id: str, group: _Group) -> dict[str, Any]:
        config = copy.deepcopy(group.config)
        if self.set_index:
            config[TRIAL_INDEX] = group.given
        group.given += 1
        self._groups[trial_id] = group
        if group.given == self.repeat:
            self._open = None
        return config

    def revive(self, trial_id: str, config: Mapping[str, Any]) -> bool:
        """A group whose mean was told stays as it is."""
        group = self._groups[trial_id]
        if group.ended == self.repeat:
            return False
        group.ended -= 1
        return True

    def tell(self, trial_id: str, result: Mapping[str, Any] | None) -> None:
        group = self._groups[trial_id]
        group.ended += 1
        if result is not None and math.isfinite(self.score(result)):
            group.values.append(float(value_at(result, self.metric)))
        if group.ended == self.repeat:
            mean = {str(self.metric): sum(group.values) / len(group.values)} if group.values else None
            self.searcher.tell(group.name, mean)

    def add_evaluated(self, config: Mapping[str, Any], result: Mapping[str, Any]) -> None:
        self.searcher.add_evaluated(config, result)
