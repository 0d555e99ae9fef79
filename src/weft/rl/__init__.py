"""weft.rl: reinforcement learning on Weft. One readable file per algorithm, light workers, learners compiled whole.

>>> from weft.rl import PPO
>>> with PPO(env="CartPole-v1", envs_per_worker=2, fragment_steps=32, seed=1) as algo:
...     result = algo.train()
>>> result["timesteps_total"]
64

Names are loaded at their first use: JAX is imported when a learner is made, never by a rollout worker.
"""

from __future__ import annotations

from weft._lazy import LazyNames

_LAZY = LazyNames(__name__, needs=("gymnasium", "jax", "optax", "safetensors"))

__all__ = _LAZY.names
__getattr__ = _LAZY.load
__dir__ = _LAZY.listed
