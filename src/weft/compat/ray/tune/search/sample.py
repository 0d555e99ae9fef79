"""`ray.tune.search.sample` of Ray 2.60: kinds of values in a search space; Ray's samplers are parts of them."""

from weft.tune.space import Choice as Categorical
from weft.tune.space import (
    Domain,
    Integer,
    Normal,
    choice,
    lograndint,
    loguniform,
    qlograndint,
    qloguniform,
    qrandint,
    qrandn,
    quniform,
    randint,
    randn,
    sample_from,
    uniform,
)
from weft.tune.space import GridSearch as Grid
from weft.tune.space import Real as Float
from weft.tune.space import SampleFrom as Function

__all__ = [
    "Categorical",
    "Domain",
    "Float",
    "Function",
    "Grid",
    "Integer",
    "Normal",
    "choice",
    "lograndint",
    "loguniform",
    "qlograndint",
    "qloguniform",
    "qrandint",
    "qrandn",
    "quniform",
    "randint",
    "randn",
    "sample_from",
    "uniform",
]
