"""Bundles: several short trials that a host is given at once, so that each costs no call of its own.

`Bundles` says how many, in the driver; `BundleRun` of `bundle_run.py` runs them, one after another, in the host. A host
that is not through with its bundle after a period hands back what it has not begun, and the trial that runs goes on
alone.

BUNDLE-1  Only trials whose configurations and ends depend on no result of others are in bundles.
BUNDLE-2  What a bundle's trials reported is heard when the bundle ends. If its process dies first, those that were not
          heard of run again, each alone: only then is it known whose fault it was.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from weft.tune.schedulers.scheduler import FIFOScheduler
from weft.tune.search.basic import GridRandomSearch

if TYPE_CHECKING:
    from weft.tune.config import ExperimentSpec
    from weft.tune.state import ExperimentState

__all__ = ["Bundles"]

TARGET_S = 0.02
"""How long a bundle should take."""
LEAST_S = 0.002
"""What is left at the end is not divided into smaller parts."""
MOST = 200


class Bundles:
    """How many trials a host is given at once, by how long they have taken."""

    def __init__(self, spec: ExperimentSpec, state: ExperimentState) -> None:
        self._state = state
        self._is_allowed = (
            not isinstance(spec.trainable, type)
            and spec.tune.reuse_actors
            and spec.tune.max_concurrent_trials is None
            and type(state.scheduler) is FIFOScheduler
            and type(state.searcher) is GridRandomSearch
            and not state.stopper.needs_every_result
        )
        self._trial_s: float | None = None
        self._last = 1

    def size(self, hosts: int) -> int:
        """Of the next bundle; 1 is a trial alone. At the end all hosts get a share of what is left."""
        if not self._is_allowed or self._trial_s is None:
            return 1
        trial_s = max(self._trial_s, 1e-6)
        size = min(MOST, 2 * self._last, int(TARGET_S / trial_s))
        if self._state.limits.num_trials is not None:
            share = math.ceil((self._state.trials_to_come + 1) / (2 * hosts))
            size = min(size, max(share, int(LEAST_S / trial_s)))
        self._last = max(1, size)
        return self._last

    def took(self, elapsed_s: float, trials: int) -> None:
        """So many trials have ended after that time."""
        if trials:
            trial_s = elapsed_s / trials
            self._trial_s = trial_s if self._trial_s is None else (self._trial_s + trial_s) / 2

    def lost(self) -> None:
        """A process died with its bundle: trials run alone from here on."""
        self._is_allowed = False
