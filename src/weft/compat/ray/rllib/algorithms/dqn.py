"""`DQN` and `DQNConfig`."""

from __future__ import annotations

import weft.rl
from weft.compat.ray.rllib.algorithms.algorithm import Algorithm
from weft.compat.ray.rllib.algorithms.algorithm_config import AlgorithmConfig

__all__ = ["DQN", "DQNConfig"]


class DQNConfig(AlgorithmConfig):
    """Builds a `DQN`."""

    kind = "DQN"


class DQN(Algorithm):
    """`weft.rl.DQN` under RLlib's names."""

    own_class = weft.rl.DQN
    config_class = DQNConfig
