"""weft.rl: reinforcement learning on Weft. One readable file an algorithm, light workers, learners compiled whole.

>>> from weft.rl import PPO
>>> with PPO(env="CartPole-v1", envs_per_worker=2, fragment_steps=32, seed=1) as algo:
...     result = algo.train()
>>> result["timesteps_total"]
64

Names are loaded at their first use: JAX is imported when a learner is made, never by a rollout worker.
"""

from __future__ import annotations

from weft._lazy import LazyNames

TYPE_CHECKING = False

if TYPE_CHECKING:
    from weft.rl.algorithm import Algorithm as Algorithm
    from weft.rl.algorithms.a2c import A2C as A2C
    from weft.rl.algorithms.a2c import A2CConfig as A2CConfig
    from weft.rl.algorithms.a3c import A3C as A3C
    from weft.rl.algorithms.a3c import A3CConfig as A3CConfig
    from weft.rl.algorithms.apex import ApexDDPG as ApexDDPG
    from weft.rl.algorithms.apex import ApexDDPGConfig as ApexDDPGConfig
    from weft.rl.algorithms.apex import ApexDQN as ApexDQN
    from weft.rl.algorithms.apex import ApexDQNConfig as ApexDQNConfig
    from weft.rl.algorithms.bc import BC as BC
    from weft.rl.algorithms.bc import BCConfig as BCConfig
    from weft.rl.algorithms.ddpg import DDPG as DDPG
    from weft.rl.algorithms.ddpg import TD3 as TD3
    from weft.rl.algorithms.ddpg import DDPGConfig as DDPGConfig
    from weft.rl.algorithms.ddpg import TD3Config as TD3Config
    from weft.rl.algorithms.dqn import DQN as DQN
    from weft.rl.algorithms.dqn import DQNConfig as DQNConfig
    from weft.rl.algorithms.dqn import Rainbow as Rainbow
    from weft.rl.algorithms.dqn import RainbowConfig as RainbowConfig
    from weft.rl.algorithms.es import ARS as ARS
    from weft.rl.algorithms.es import ES as ES
    from weft.rl.algorithms.es import ARSConfig as ARSConfig
    from weft.rl.algorithms.es import ESConfig as ESConfig
    from weft.rl.algorithms.impala import Impala as Impala
    from weft.rl.algorithms.impala import ImpalaConfig as ImpalaConfig
    from weft.rl.algorithms.multi_agent_ppo import MultiAgentPPO as MultiAgentPPO
    from weft.rl.algorithms.multi_agent_ppo import MultiAgentPPOConfig as MultiAgentPPOConfig
    from weft.rl.algorithms.pg import PG as PG
    from weft.rl.algorithms.pg import PGConfig as PGConfig
    from weft.rl.algorithms.ppo import PPO as PPO
    from weft.rl.algorithms.ppo import PPOConfig as PPOConfig
    from weft.rl.algorithms.recurrent_ppo import RecurrentPPO as RecurrentPPO
    from weft.rl.algorithms.recurrent_ppo import RecurrentPPOConfig as RecurrentPPOConfig
    from weft.rl.algorithms.sac import SAC as SAC
    from weft.rl.algorithms.sac import SACConfig as SACConfig
    from weft.rl.config import AlgorithmConfig as AlgorithmConfig
    from weft.rl.environments import register_env as register_env
    from weft.rl.evaluate import evaluate_policy as evaluate_policy
    from weft.rl.policy import Policy as Policy
    from weft.rl.registry import get_algorithm as get_algorithm
    from weft.rl.registry import get_trainable as get_trainable
    from weft.rl.registry import load as load
    from weft.rl.registry import register_algorithm as register_algorithm
    from weft.rl.settings import SettingError as SettingError
    from weft.rl.stepping import EnvironmentFailed as EnvironmentFailed

_HOMES = {
    "algorithm": "Algorithm",
    "algorithms.a2c": "A2C A2CConfig",
    "algorithms.a3c": "A3C A3CConfig",
    "algorithms.apex": "ApexDDPG ApexDQN ApexDDPGConfig ApexDQNConfig",
    "algorithms.bc": "BC BCConfig",
    "algorithms.ddpg": "DDPG TD3 DDPGConfig TD3Config",
    "algorithms.dqn": "DQN Rainbow DQNConfig RainbowConfig",
    "algorithms.es": "ARS ES ARSConfig ESConfig",
    "algorithms.impala": "Impala ImpalaConfig",
    "algorithms.multi_agent_ppo": "MultiAgentPPO MultiAgentPPOConfig",
    "algorithms.pg": "PG PGConfig",
    "algorithms.ppo": "PPO PPOConfig",
    "algorithms.recurrent_ppo": "RecurrentPPO RecurrentPPOConfig",
    "algorithms.sac": "SAC SACConfig",
    "config": "AlgorithmConfig",
    "environments": "register_env",
    "evaluate": "evaluate_policy",
    "policy": "Policy",
    "registry": "get_algorithm get_trainable load register_algorithm",
    "settings": "SettingError",
    "stepping": "EnvironmentFailed",
}
_LAZY = LazyNames(__name__, _HOMES, needs=("gymnasium", "jax", "optax", "safetensors"))

__all__ = _LAZY.names
__getattr__ = _LAZY.load
__dir__ = _LAZY.listed
