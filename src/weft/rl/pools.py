"""EnvPool's environments, which are stepped by threads in C++, as Gymnasium vector environments.

`env="envpool:Pong-v5"` makes one of `envs_per_worker` copies; `env_config` goes to EnvPool. An ended episode is reset
in the next step, whose action EnvPool ignores: Gymnasium's NEXT_STEP mode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from weft.library.checks import did_you_mean
from weft.rl.names import UnknownEnvironment

PREFIX = "envpool:"
# What EnvPool would be told twice, or what would let it answer for some of the environments only.
DECIDED = {
    "num_envs": "say envs_per_worker=...",
    "seed": "say seed=..., from which each worker's pool gets one of its own",
    "batch_size": "a worker steps all its environments together",
    "max_num_players": "its environments of several players are not supported",
}


class EnvPoolMissing(ImportError):
    """EnvPool is asked for and not installed."""


class EnvPoolVector(VectorEnv[Any, Any, Any]):
    """What `envpool.make_gymnasium` gives, in the form that everything else knows.

    EnvPool takes a seed when a pool is made and at no other time, so a reset with a seed makes a new pool.
    """

    def __init__(self, spec: Any, make: Callable[[int], Any], count: int) -> None:
        self._make = make
        self._pool: Any = None
        self.num_envs = count
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        self._channels_first = _has_channels_first(spec.gymnasium_observation_space)
        self.single_observation_space = _honest_space(spec.gymnasium_observation_space)
        self.single_action_space = spec.gymnasium_action_space
        self.observation_space = batch_space(self.single_observation_space, count)
        self.action_space = batch_space(self.single_action_space, count)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """New episodes everywhere."""
        if self._pool is None or seed is not None:
            self.close()
            self._pool = self._make(int(np.random.default_rng().integers(2**31)) if seed is None else seed)
        observations, _ = self._pool.reset()
        return self._shown(observations), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        dtype = self.single_action_space.dtype
        observations, rewards, terminated, truncated, _ = self._pool.step(np.asarray(actions, dtype))
        return self._shown(observations), rewards, terminated, truncated, {}

    def close(self, **kwargs: Any) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def _shown(self, observations: Any) -> Any:
        return np.moveaxis(observations, 1, -1) if self._channels_first else observations


def make_pool(name: str, env_config: Mapping[str, Any], count: int, episode_limit: int | None = None) -> EnvPoolVector:
    """The environments called "envpool:<task>"."""
    try:
        import envpool
    except ModuleNotFoundError as error:
        if error.name != "envpool":
            raise
        raise EnvPoolMissing(f"{name!r} needs EnvPool: pip install envpool, or name a Gymnasium id instead") from error
    for key in DECIDED.keys() & env_config.keys():
        raise ValueError(f"{name}: env_config must not have {key!r}: {DECIDED[key]}")
    task, config = name.removeprefix(PREFIX), {**env_config, "num_envs": count}
    if task not in envpool.list_all_envs():
        hint = did_you_mean(name, (PREFIX + known for known in envpool.list_all_envs()))
        raise UnknownEnvironment(f"EnvPool has no environment called {task!r}{hint}")
    if episode_limit is not None:
        config["max_episode_steps"] = episode_limit

    def make(seed: int) -> Any:
        return envpool.make_gymnasium(task, seed=seed, **config)

    return EnvPoolVector(envpool.make_spec(task, **config), make, count)


def _has_channels_first(space: Any) -> bool:
    """Whether it is of images whose frames are stacked before height and width, as those of Atari's games."""
    is_image = isinstance(space, gymnasium.spaces.Box) and len(space.shape) == 3 and space.dtype == np.uint8
    return bool(is_image and space.shape[0] < space.shape[2])


def _honest_space(space: Any) -> Any:
    """The space with channels last, as networks here want them, and no bounds where EnvPool has none.

    It gives the least and largest positive float for those of some environments, such as LunarLander-v3.
    """
    if not isinstance(space, gymnasium.spaces.Box):
        return space
    low, high = space.low, space.high
    if _has_channels_first(space):
        low, high = np.moveaxis(low, 0, -1), np.moveaxis(high, 0, -1)
    if space.dtype == np.float32:
        limits = np.finfo(np.float32)
        low, high = np.where(low == limits.tiny, -np.inf, low), np.where(high == limits.max, np.inf, high)
    return gymnasium.spaces.Box(low, high, dtype=space.dtype.type)
