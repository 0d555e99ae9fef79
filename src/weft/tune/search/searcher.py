"""What a search algorithm is: ask it for a configuration, tell it what came out.

A new algorithm overrides `ask` and `tell`; thirty lines are enough:

>>> class HillClimb(Searcher):
...     best = None
...     def ask(self, trial_id):
...         self.asked = getattr(self, "asked", {})
...         config = resolve(self.space, lambda path, domain: self.near(path, domain))
...         self.asked[trial_id] = config
...         return config
...     def near(self, path, domain):
...         if self.best is None:
...             return domain.sample(self.rng)
...         return domain.clip(self.best[path[0]] * self.rng.gauss(1, 0.1))
...     def tell(self, trial_id, result):
...         if result is not None and (self.best is None or self.score(result) > self.best_score):
...             self.best, self.best_score = self.asked[trial_id], self.score(result)

An algorithm has no I/O and no clock, and its randomness is `self.rng`, so that asking and telling it the same things
in the same order leads to the same state: an experiment is restored by doing that (see `weft.tune.ledger`). One that
may give other configurations when it is asked again overrides `replay` to take the one that was recorded.
"""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

from weft.library.lookup import value_at
from weft.tune.search.unit_cube import searched
from weft.tune.space import check_space

__all__ = ["FINISHED", "Finished", "Mode", "Searcher"]

Mode = Literal["min", "max"]


class Finished:
    """The type of `FINISHED`."""

    def __repr__(self) -> str:
        return "FINISHED"

    def __reduce__(self) -> str:
        return "FINISHED"


FINISHED: Final = Finished()
"""What `ask` returns when there is nothing more to try."""


class Searcher:
    """Runs in the driver. `set_up` is called once, before the first `ask`."""

    space: Mapping[str, Any]
    metric: str | None = None
    mode: Mode = "max"
    rng: random.Random
    samples: int | None = None
    """How many configurations there will be, if that is known."""
    _differs = False
    """In a restored experiment, whether it has given another configuration than the one that was recorded."""

    def set_up(self, space: Mapping[str, Any], metric: str | None, mode: Mode, seed: int, num_samples: int) -> None:
        """Take the space and what is to be optimised; raises SearchSpaceError for what the algorithm cannot search."""
        check_space(space)
        self.space, self.metric, self.mode = space, metric, mode
        self.rng = random.Random(seed)

    def ask(self, trial_id: str) -> dict[str, Any] | Finished | None:
        """A configuration for a new trial; None for "not now"; FINISHED for "no more"."""
        raise NotImplementedError

    def tell(self, trial_id: str, result: Mapping[str, Any] | None) -> None:
        """The trial ended with this last result; None when it failed. `result["stopped_early"]` is there, and true,
        when a scheduler ended it."""

    def observe(self, trial_id: str, result: Mapping[str, Any]) -> None:
        """The trial reported this on its way."""

    def add_evaluated(self, config: Mapping[str, Any], result: Mapping[str, Any]) -> None:
        """A configuration and its result from before: a warm start. Ignored by algorithms that do not learn."""

    def warm_start(self, results: Iterable[Any]) -> None:
        """Learn from the results of earlier runs (a result grid, or anything with `config` and `metrics`)."""
        for result in results:
            if result.metrics:
                self.add_evaluated(result.config, result.metrics)

    def replay(self, trial_id: str, config: Mapping[str, Any]) -> None:
        """Come to the state after `ask(trial_id)` gave this configuration, in a restored experiment."""
        asked = self.ask(trial_id)
        is_same = isinstance(asked, dict) and searched(self.space, asked) == searched(self.space, config)
        if not is_same and not self._differs:
            self._differs = True
            warnings.warn(
                f"{type(self).__name__} gave another configuration for trial {trial_id} than was recorded, and will be "
                f"told the result of the recorded one: draw from self.rng alone, or override replay()",
                stacklevel=2,
            )

    def revive(self, trial_id: str, config: Mapping[str, Any]) -> bool:
        """A trial whose failure was told runs again, in a restored experiment. True to be told of it once more, with
        `observe` and `tell`; those that forget a trial when it is told must take `config` up again."""
        return False

    def score(self, result: Mapping[str, Any]) -> float:
        """What is optimised, the higher the better; minus infinity for NaN and for what is missing."""
        value = value_at(result, self.metric) if self.metric is not None else None
        if not isinstance(value, int | float) or math.isnan(value):
            return -math.inf
        return float(value) if self.mode == "max" else -float(value)
