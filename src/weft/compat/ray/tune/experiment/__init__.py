"""`ray.tune.experiment` of Ray 2.60."""

from weft.tune import Experiment
from weft.tune.trial import Trial

__all__ = ["Experiment", "Trial"]
