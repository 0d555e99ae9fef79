"""EnvPool's environments, which are stepped by threads in C++, as Gymnasium vector environments.

`env="envpool:Pong-v5"` makes one of `envs_per_worker` copies; `env_config` goes to EnvPool. An ended episode is reset
in the next step, whose action EnvPool ignores: Gymnasium's NEXT_STEP mode.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

PREFIX = "envpool:"


class EnvPoolMissing(ImportError):
    """EnvPool is asked for and not installed."""


class EnvPoolVector(VectorEnv[Any, Any, Any]):
    """What `envpool.make_gymnasium` gives, in the form that everything else knows."""

    def __init__(self, pool: Any, count: int) -> None:
        self._pool = pool
        self.num_envs = count
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        self.single_observation_space = _channels_last(pool.observation_space)
        self.single_action_space = pool.action_space
        self.observation_space = batch_space(self.single_observation_space, count)
        self.action_space = batch_space(self.single_action_space, count)
        self._turned = self.single_observation_space is not pool.observation_space

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """New episodes everywhere. EnvPool takes its seed when it is made."""
        observations, _ = self._pool.reset()
        return self._shown(observations), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        dtype = self.single_action_space.dtype
        observations, rewards, terminated, truncated, _ = self._pool.step(np.asarray(actions, dtype))
        return self._shown(observations), rewards, terminated, truncated, {}

    def close(self, **kwargs: Any) -> None:
        self._pool.close()

    def _shown(self, observations: Any) -> Any:
        return np.moveaxis(observations, 1, -1) if self._turned else observations


def make_pool(name: str, env_config: Mapping[str, Any], count: int, episode_limit: int | None = None) -> EnvPoolVector:
    """The environments called "envpool:<task>"."""
    try:
        import envpool
    except ModuleNotFoundError as error:
        if error.name != "envpool":
            raise
        raise EnvPoolMissing(f"{name!r} needs EnvPool: pip install envpool, or name a Gymnasium id instead") from error
    config = {"seed": int(np.random.default_rng().integers(2**31)), "num_envs": count, **env_config}
    if episode_limit is not None:
        config["max_episode_steps"] = episode_limit
    return EnvPoolVector(envpool.make_gymnasium(name.removeprefix(PREFIX), **config), config["num_envs"])


def _channels_last(space: Any) -> Any:
    """EnvPool stacks frames of images before height and width; networks here want them after."""
    if not isinstance(space, gymnasium.spaces.Box) or len(space.shape) != 3 or space.dtype != np.uint8:
        return space
    return gymnasium.spaces.Box(np.moveaxis(space.low, 0, -1), np.moveaxis(space.high, 0, -1), dtype=np.uint8)
