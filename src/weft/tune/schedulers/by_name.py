"""Trial schedulers by their short names."""

from __future__ import annotations

import inspect
from typing import Any

from weft.library.checks import did_you_mean, one_of
from weft.tune import schedulers
from weft.tune.schedulers.scheduler import TrialScheduler

__all__ = ["create_scheduler"]

_BY_NAME = {
    "fifo": "FIFOScheduler",
    "asha": "ASHAScheduler",
    "async_hyperband": "AsyncHyperBandScheduler",
    "hyperband": "HyperBandScheduler",
    "hb_bohb": "HyperBandForBOHB",
    "median_stopping_rule": "MedianStoppingRule",
    "medianstopping": "MedianStoppingRule",
    "pbt": "PopulationBasedTraining",
    "pb2": "PB2",
    "time_sharing": "TimeSharingScheduler",
}


def create_scheduler(name: str, **options: Any) -> TrialScheduler:
    """A scheduler by its short name. ValueError for an unknown name or option, with those that there are.

    >>> create_scheduler("asha", max_t=50, grace_period=5).__class__.__name__
    'ASHAScheduler'
    """
    one_of("scheduler", name, sorted(_BY_NAME))
    kind: type[TrialScheduler] = getattr(schedulers, _BY_NAME[name])
    known = list(inspect.signature(kind).parameters)
    for option in options:
        if option not in known:
            hint = did_you_mean(option, known) or ";"
            raise ValueError(f"{kind.__name__} has no option {option!r}{hint} it has: {', '.join(known)}")
    return kind(**options)
