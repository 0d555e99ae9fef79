"""`BC` and `BCConfig`."""

from __future__ import annotations

import weft.rl
from weft.compat.ray.rllib.algorithms.algorithm import Algorithm
from weft.compat.ray.rllib.algorithms.algorithm_config import AlgorithmConfig

__all__ = ["BC", "BCConfig"]


class BCConfig(AlgorithmConfig):
    """Builds a `BC`."""

    kind = "BC"


class BC(Algorithm):
    """`weft.rl.BC` under RLlib's names."""

    own_class = weft.rl.BC
    config_class = BCConfig
