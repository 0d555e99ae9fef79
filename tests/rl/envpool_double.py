"""EnvPool's interface as its version 1.2 shows it, over Gymnasium's CartPole and made-up pictures.

What is true of it is true of EnvPool: `test_pools.py` asks the same of both, where EnvPool is installed. A pool takes
its seed when it is made, gives the space of one environment, begins an ended episode in the step after its end, whose
action it ignores, and says the least and largest positive float for "no bound".
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.classic_control import CartPoleEnv

FLOATS = np.finfo(np.float32)


class Pictures(gymnasium.Env[Any, Any]):
    """Pictures of one colour, which rises by one with each step, and a different one in the last frame or channel."""

    def __init__(self, shape: tuple[int, ...], channel_axis: int) -> None:
        self.observation_space = spaces.Box(0, 255, shape, np.uint8)
        self.action_space = spaces.Discrete(6)
        self._axis = channel_axis

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._colour = int(self.np_random.integers(100))
        return self._picture(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._colour += 1
        return self._picture(), 0.0, False, False, {}

    def _picture(self) -> Any:
        picture = np.full(self.observation_space.shape, self._colour, np.uint8)
        np.moveaxis(picture, self._axis, 0)[-1] = 200
        return picture


class Lander(gymnasium.Env[Any, Any]):
    """Numbers on both sides of 0, of a space that EnvPool says has no bounds in its own way."""

    observation_space = spaces.Box(FLOATS.tiny, FLOATS.max, (8,), np.float32)
    action_space = spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.np_random.uniform(-1, 1, 8).astype(np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.np_random.uniform(-1, 1, 8).astype(np.float32), 0.0, False, False, {}


TASKS = {
    "CartPole-v1": CartPoleEnv,
    "Pong-v5": lambda: Pictures((4, 84, 84), 0),
    "CarRacing-v3": lambda: Pictures((96, 96, 3), 2),
    "LunarLander-v3": Lander,
}


class Pool:
    """What `make_gymnasium` gives."""

    def __init__(self, task: str, num_envs: int, seed: int, max_episode_steps: int) -> None:
        self._envs = [TASKS[task]() for _ in range(num_envs)]
        self._limit = max_episode_steps
        self._elapsed = np.zeros(num_envs, np.int64)
        self._done = np.zeros(num_envs, np.bool_)
        for index, env in enumerate(self._envs):
            env.reset(seed=seed + index)

    def reset(self, env_id: Any = None, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        assert seed is None, "EnvPool ignores it"
        self._elapsed[:], self._done[:] = 0, False
        return np.stack([env.reset()[0] for env in self._envs]), {}

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        seen, earned, terminated = [], [], []
        for index, env in enumerate(self._envs):
            if self._done[index]:
                self._elapsed[index] = 0
                observation, reward, ended = env.reset()[0], 0.0, False
            else:
                self._elapsed[index] += 1
                observation, reward, ended, _, _ = env.step(int(action[index]))
            seen.append(observation)
            earned.append(reward)
            terminated.append(ended)
        truncated = (self._elapsed >= self._limit) & ~np.array(terminated)
        self._done = np.array(terminated) | truncated
        return np.stack(seen), np.array(earned, np.float32), np.array(terminated), truncated, {}

    def close(self) -> None:
        for env in self._envs:
            env.close()


def list_all_envs() -> list[str]:
    return list(TASKS)


def make_spec(task: str, num_envs: int = 1, max_episode_steps: int = 500, seed: int = 42) -> Any:
    one = TASKS[task]()
    return SimpleNamespace(gymnasium_observation_space=one.observation_space, gymnasium_action_space=one.action_space)


def make_gymnasium(task: str, num_envs: int = 1, max_episode_steps: int = 500, seed: int = 42) -> Pool:
    return Pool(task, num_envs, seed, max_episode_steps)
