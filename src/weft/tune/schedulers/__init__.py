"""Trial schedulers: which trials go on, pause, stop or change."""

from __future__ import annotations

import importlib
import inspect
from typing import TYPE_CHECKING, Any

from weft.tune.schedulers.scheduler import (
    CONTINUE,
    PAUSE,
    SAVE,
    STOP,
    Exploit,
    FIFOScheduler,
    Milestone,
    Restart,
    TimeSharingScheduler,
    TrialScheduler,
)

if TYPE_CHECKING:
    from weft.tune.schedulers.asha import ASHAScheduler as ASHAScheduler
    from weft.tune.schedulers.asha import AsyncHyperBandScheduler as AsyncHyperBandScheduler
    from weft.tune.schedulers.hyperband import HyperBandForBOHB as HyperBandForBOHB
    from weft.tune.schedulers.hyperband import HyperBandScheduler as HyperBandScheduler
    from weft.tune.schedulers.median import MedianStoppingRule as MedianStoppingRule
    from weft.tune.schedulers.pb2 import PB2 as PB2
    from weft.tune.schedulers.pbt import PopulationBasedTraining as PopulationBasedTraining
    from weft.tune.schedulers.pbt_replay import PopulationBasedTrainingReplay as PopulationBasedTrainingReplay
    from weft.tune.schedulers.resizing import DistributeResources as DistributeResources
    from weft.tune.schedulers.resizing import ResourceChangingScheduler as ResourceChangingScheduler

_LAZY = {
    "ASHAScheduler": "asha",
    "AsyncHyperBandScheduler": "asha",
    "HyperBandScheduler": "hyperband",
    "HyperBandForBOHB": "hyperband",
    "MedianStoppingRule": "median",
    "PopulationBasedTraining": "pbt",
    "PopulationBasedTrainingReplay": "pbt_replay",
    "PB2": "pb2",
    "ResourceChangingScheduler": "resizing",
    "DistributeResources": "resizing",
}
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

__all__ = [
    "CONTINUE",
    "PAUSE",
    "SAVE",
    "STOP",
    "Exploit",
    "FIFOScheduler",
    "Milestone",
    "Restart",
    "TimeSharingScheduler",
    "TrialScheduler",
    "create_scheduler",
    *_LAZY,
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(f"weft.tune.schedulers.{_LAZY[name]}"), name)
    raise AttributeError(f"module 'weft.tune.schedulers' has no attribute {name!r}")


def create_scheduler(name: str, **options: Any) -> TrialScheduler:
    """A scheduler by its short name. ValueError for an unknown name or option, with those that there are.

    >>> create_scheduler("asha", max_t=50, grace_period=5).__class__.__name__
    'ASHAScheduler'
    """
    if name not in _BY_NAME:
        raise ValueError(f"scheduler must be one of {', '.join(sorted(_BY_NAME))}, but got {name!r}")
    from weft.tune import schedulers

    kind: type[TrialScheduler] = getattr(schedulers, _BY_NAME[name])
    known = list(inspect.signature(kind).parameters)
    for option in options:
        if option not in known:
            raise ValueError(f"{kind.__name__} has no option {option!r}; it has: {', '.join(known)}")
    return kind(**options)
