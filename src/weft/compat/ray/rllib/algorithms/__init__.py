"""RLlib's algorithms, as far as `weft.rl` has them."""

from __future__ import annotations

from weft.compat.ray.rllib.algorithms.algorithm import Algorithm
from weft.compat.ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from weft.compat.ray.rllib.algorithms.bc import BC, BCConfig
from weft.compat.ray.rllib.algorithms.dqn import DQN, DQNConfig
from weft.compat.ray.rllib.algorithms.impala import IMPALA, IMPALAConfig
from weft.compat.ray.rllib.algorithms.ppo import PPO, PPOConfig
from weft.compat.ray.rllib.algorithms.sac import SAC, SACConfig

__all__ = [
    "BC",
    "DQN",
    "IMPALA",
    "PPO",
    "SAC",
    "Algorithm",
    "AlgorithmConfig",
    "BCConfig",
    "DQNConfig",
    "IMPALAConfig",
    "Impala",
    "ImpalaConfig",
    "PPOConfig",
    "SACConfig",
]

Impala, ImpalaConfig = IMPALA, IMPALAConfig
