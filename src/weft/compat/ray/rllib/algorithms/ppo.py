"""`PPO` and `PPOConfig`."""

from __future__ import annotations

import weft.rl
from weft.compat.ray.rllib.algorithms.algorithm import Algorithm
from weft.compat.ray.rllib.algorithms.algorithm_config import AlgorithmConfig

__all__ = ["PPO", "PPOConfig"]


class PPOConfig(AlgorithmConfig):
    """Builds a `PPO`."""

    kind = "PPO"


class PPO(Algorithm):
    """`weft.rl.PPO` under RLlib's names."""

    own_class = weft.rl.PPO
    config_class = PPOConfig
