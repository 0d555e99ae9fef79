"""`SAC` and `SACConfig`."""

from __future__ import annotations

import weft.rl
from weft.compat.ray.rllib.algorithms.algorithm import Algorithm
from weft.compat.ray.rllib.algorithms.algorithm_config import AlgorithmConfig

__all__ = ["SAC", "SACConfig"]


class SACConfig(AlgorithmConfig):
    """Builds a `SAC`."""

    kind = "SAC"


class SAC(Algorithm):
    """`weft.rl.SAC` under RLlib's names."""

    own_class = weft.rl.SAC
    config_class = SACConfig
