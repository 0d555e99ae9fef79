"""Small environments for tests: two that can be learnt in a second, and some that misbehave."""

from __future__ import annotations

import os
import signal
import time
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import batch_space


class Matching(gymnasium.Env[Any, Any]):
    """Each step shows one of four signs; the action with its number earns 1. Eight steps an episode."""

    observation_space = spaces.Box(0.0, 1.0, (4,), np.float32)
    action_space: spaces.Space[Any] = spaces.Discrete(4)
    steps = 8

    def __init__(self, terminates: bool = True) -> None:
        self._terminates = terminates

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._time = 0
        return self._show(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._time += 1
        reward = self._reward(action)
        ended = self._time == self.steps
        return self._show(), reward, ended and self._terminates, ended and not self._terminates, {}

    def _reward(self, action: Any) -> float:
        return float(action == self._sign)

    def _show(self) -> Any:
        self._sign = int(self.np_random.integers(4))
        return np.eye(4, dtype=np.float32)[self._sign]


class Aiming(Matching):
    """Each step shows a number; the action nearest to it costs least."""

    observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = spaces.Box(-2.0, 2.0, (1,), np.float32)

    def _reward(self, action: Any) -> float:
        return -float((action[0] - self._target) ** 2)

    def _show(self) -> Any:
        self._target = float(self.np_random.uniform(-1, 1))
        return np.array([self._target], np.float32)


class Nested(Matching):
    """The sign inside a Dict of a Tuple, the answer as two bits."""

    observation_space = spaces.Dict(
        {
            "sign": spaces.Tuple((spaces.Discrete(4), spaces.MultiBinary(1))),
            "time": spaces.Box(0, 8, (1, 1), np.float32),
        }
    )
    action_space = spaces.MultiDiscrete([2, 2])

    def _reward(self, action: Any) -> float:
        return float(2 * action[0] + action[1] == self._sign)

    def _show(self) -> Any:
        super()._show()
        return {"sign": (self._sign, np.ones(1, np.int8)), "time": np.full((1, 1), self._time, np.float32)}


class Masked(Matching):
    """Three of eight actions are allowed at any time; an action that is not raises."""

    observation_space = spaces.Dict({"sign": spaces.Discrete(4), "action_mask": spaces.MultiBinary(8)})
    action_space = spaces.Discrete(8)

    def _reward(self, action: Any) -> float:
        if not self._mask[action]:
            raise AssertionError(f"action {action} is not allowed")
        return float(action == self._sign)

    def _show(self) -> Any:
        super()._show()
        self._mask = np.zeros(8, np.int8)
        self._mask[[self._sign, (self._sign + 1) % 8, 7]] = 1
        return {"sign": self._sign, "action_mask": self._mask}


class Remembering(Matching):
    """The sign is shown in the first step only; the action with its number earns 1 in every later one."""

    steps = 4

    def _reward(self, action: Any) -> float:
        return float(action == self._first and self._time > 1)

    def _show(self) -> Any:
        if self._time == 0:
            self._first = int(self.np_random.integers(4))
            return np.eye(4, dtype=np.float32)[self._first]
        return np.zeros(4, np.float32)


class Pictures(Matching):
    """The sign as the bright quarter of an image."""

    observation_space = spaces.Box(0, 255, (36, 36, 1), np.uint8)

    def _show(self) -> Any:
        super()._show()
        image = np.zeros(self.observation_space.shape, np.uint8)
        half = image.shape[0] // 2
        row, column = divmod(self._sign, 2)
        image[half * row : half * (row + 1), half * column : half * (column + 1)] = 255
        return image


class Bad(Matching):
    """Misbehaves in its fifth step, in the way it is told."""

    def __init__(self, how: str, flag: str | None = None) -> None:
        super().__init__()
        self._how = how
        self._flag = flag  # a file: once it exists, the environment is good

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        if self._how == "hang in reset" and self._misbehaves():
            time.sleep(60)
        if self._how == "reset of old":
            return super().reset(seed=seed)[0]  # type: ignore[no-any-return]
        return super().reset(seed=seed)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        if self._time != 5 or not self._misbehaves():
            return observation, reward, terminated, truncated, info
        if self._how == "crash in step":
            raise OSError("the simulator has gone")
        if self._how == "death":
            os.kill(os.getpid(), signal.SIGKILL)
        bad_observation = {
            "wrong shape": np.zeros(3, np.float32),
            "wrong dtype": np.zeros(4, np.complex64),
            "NaN observation": np.full(4, np.nan, np.float32),
            "lying bounds": np.full(4, 7.0, np.float32),
        }.get(self._how, observation)
        if self._how == "step of old":
            return observation, reward, terminated, info  # type: ignore[return-value]
        bad_rewards = {
            "NaN reward": float("nan"),
            "reward of text": "much",
            "reward of two": [1.0, 2.0],
            "no reward": None,
        }
        bad_reward = bad_rewards.get(self._how, reward)
        if self._how == "ended by text":
            terminated = "yes"  # type: ignore[assignment]
        return bad_observation, bad_reward, terminated, truncated, info

    def _misbehaves(self) -> bool:
        if self._flag is None:
            return True
        if os.path.exists(self._flag):
            return False
        open(self._flag, "w").close()
        return True


class BadVector(VectorEnv[Any, Any, Any]):
    """Two environments at once, of which one field is wrong in the fifth step, or in the reset."""

    num_envs = 2

    def __init__(self, field: str, value: Any) -> None:
        self.single_observation_space = spaces.Box(0.0, 1.0, (4,), np.float32)
        self.single_action_space = spaces.Discrete(4)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._field, self._value, self._time = field, value, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return self._value if self._field == "reset" else (np.zeros((2, 4), np.float32), {})

    def step(self, actions: Any) -> tuple[Any, ...]:
        self._time += 1
        answer = {
            "observation": np.zeros((2, 4), np.float32),
            "reward": np.ones(2),
            "terminated": np.zeros(2, np.bool_),
            "truncated": np.zeros(2, np.bool_),
            "info": {},
        }
        if self._time == 5:
            if self._field == "step":
                return self._value  # type: ignore[no-any-return]
            answer[self._field] = self._value
        return tuple(answer.values())


class TwoMatching:
    """Two agents with a Matching each, in PettingZoo's parallel API; the second's answers are turned round."""

    metadata: ClassVar[dict[str, Any]] = {"name": "two_matching"}
    possible_agents: ClassVar[list[str]] = ["left", "right"]
    turned = True

    def __init__(self) -> None:
        self._worlds = {agent: Matching() for agent in self.possible_agents}
        self._worlds["right"].steps = 5  # out before the other
        self.agents: list[str] = []

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return Matching.observation_space

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return Matching.action_space

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.agents = list(self.possible_agents)
        seen = {agent: self._worlds[agent].reset(seed=seed)[0] for agent in self.agents}
        return seen, {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        assert sorted(actions) == sorted(self.agents), "who is out must not act"
        turned = {
            agent: 3 - action if agent == "right" and self.turned else action for agent, action in actions.items()
        }
        steps = {agent: self._worlds[agent].step(action) for agent, action in turned.items()}
        self.agents = [agent for agent in self.agents if not steps[agent][2]]
        return tuple({agent: step[field] for agent, step in steps.items()} for field in range(5))

    def close(self) -> None:
        pass


class Offered(Matching):
    """Up to five actions are offered in each step, each described by a vector; the one like the sign earns 1."""

    most = 5
    observation_space = spaces.Dict(
        {
            "sign": spaces.Box(0.0, 1.0, (4,), np.float32),
            "offers": spaces.Box(0.0, 1.0, (most, 4), np.float32),
            "action_mask": spaces.MultiBinary(most),
        }
    )
    action_space = spaces.Discrete(most)

    def _reward(self, action: Any) -> float:
        if action >= self._count:
            raise AssertionError(f"action {action} is not offered")
        return float(self._offers[action] == self._sign)

    def _show(self) -> Any:
        sign = super()._show()
        self._count = int(self.np_random.integers(2, self.most + 1))
        self._offers = self.np_random.permutation(np.repeat(np.arange(4), 2))[: self._count]
        self._offers[self.np_random.integers(self._count)] = self._sign
        offers = np.zeros((self.most, 4), np.float32)
        offers[np.arange(self._count), self._offers] = 1
        return {"sign": sign, "offers": offers, "action_mask": (np.arange(self.most) < self._count).astype(np.int8)}
