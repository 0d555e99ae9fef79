"""`IMPALA` and `IMPALAConfig`."""

from __future__ import annotations

import weft.rl
from weft.compat.ray.rllib.algorithms.algorithm import Algorithm
from weft.compat.ray.rllib.algorithms.algorithm_config import AlgorithmConfig

__all__ = ["IMPALA", "IMPALAConfig"]


class IMPALAConfig(AlgorithmConfig):
    """Builds a `IMPALA`."""

    kind = "IMPALA"


class IMPALA(Algorithm):
    """`weft.rl.Impala` under RLlib's names."""

    own_class = weft.rl.Impala
    config_class = IMPALAConfig
