"""What each algorithm must reach, where, and with which settings."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import gymnasium


@dataclasses.dataclass(frozen=True)
class Bar:
    """What an algorithm must reach."""

    algorithm: str
    env: Any
    reward: float
    timesteps: int
    settings: dict[str, Any]


class BlindCartPole(gymnasium.ObservationWrapper[Any, Any, Any]):
    """CartPole without velocities: only a memory can balance it."""

    def __init__(self) -> None:
        super().__init__(gymnasium.make("CartPole-v1", disable_env_checker=True))
        inner: Any = self.env.observation_space
        self.observation_space = gymnasium.spaces.Box(inner.low[[0, 2]], inner.high[[0, 2]])

    def observation(self, observation: Any) -> Any:
        return observation[[0, 2]]


class TwoCartPoles:
    """Two agents with a CartPole each, in PettingZoo's parallel API."""

    metadata: ClassVar[dict[str, Any]] = {"name": "two_cartpoles"}
    possible_agents: ClassVar[list[str]] = ["left", "right"]

    def __init__(self) -> None:
        self._poles = {a: gymnasium.make("CartPole-v1", disable_env_checker=True) for a in self.possible_agents}
        self.agents: list[str] = []

    def observation_space(self, agent: str) -> Any:
        return self._poles[agent].observation_space

    def action_space(self, agent: str) -> Any:
        return self._poles[agent].action_space

    def reset(self, seed: int = 0, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.agents = list(self.possible_agents)
        seen = {agent: self._poles[agent].reset(seed=seed + i)[0] for i, agent in enumerate(self.agents)}
        return seen, {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        steps = {agent: self._poles[agent].step(action) for agent, action in actions.items()}
        self.agents = [agent for agent in self.agents if not (steps[agent][2] or steps[agent][3])]
        return tuple({agent: step[field] for agent, step in steps.items()} for field in range(5))

    def close(self) -> None:
        pass


CLIMB = {
    "noise_correlation": 0.9,
    "fragment_steps": 64,
    "random_timesteps": 5000,
    "updates_per_step": 0.5,
    "metrics_window": 20,
}
BARS = {
    "ppo-cartpole": Bar("PPO", "CartPole-v1", 475, 150_000, {"workers": 2}),
    "ppo-pendulum": Bar(
        "PPO",
        "Pendulum-v1",
        -250,
        200_000,
        {
            "envs_per_worker": 8,
            "fragment_steps": 128,
            "gamma": 0.9,
            "learning_rate": 1e-3,
            "reward_scale": 0.1,
            "minibatch": 64,
        },
    ),
    "ppo-acrobot": Bar("PPO", "Acrobot-v1", -100, 300_000, {"envs_per_worker": 8, "entropy_weight": 0.01}),
    "ppo-lunarlander": Bar(
        "PPO",
        "LunarLander-v3",
        200,
        1_000_000,
        {
            "workers": 2,
            "envs_per_worker": 8,
            "fragment_steps": 256,
            "gamma": 0.999,
            "gae_lambda": 0.98,
            "epochs": 4,
            "entropy_weight": 0.01,
            "reward_scale": 0.1,
        },
    ),
    "pg-cartpole": Bar("PG", "CartPole-v1", 400, 500_000, {}),
    "a3c-cartpole": Bar("A3C", "CartPole-v1", 450, 500_000, {"workers": 2}),
    "impala-cartpole": Bar("IMPALA", "CartPole-v1", 450, 1_000_000, {"workers": 2}),
    "dqn-cartpole": Bar("DQN", "CartPole-v1", 475, 150_000, {}),
    "dqn-acrobot": Bar("DQN", "Acrobot-v1", -100, 150_000, {}),
    "rainbow-cartpole": Bar("Rainbow", "CartPole-v1", 475, 150_000, {}),
    "rainbow-acrobot": Bar(
        "Rainbow",
        "Acrobot-v1",
        -100,
        150_000,
        {"value_low": -100.0, "value_high": 0.0, "batch": 128, "learning_rate": 5e-4},
    ),
    "ddpg-pendulum": Bar("DDPG", "Pendulum-v1", -200, 30_000, {"metrics_window": 20}),
    "td3-pendulum": Bar("TD3", "Pendulum-v1", -200, 30_000, {"metrics_window": 20}),
    "sac-pendulum": Bar("SAC", "Pendulum-v1", -200, 30_000, {"metrics_window": 20}),
    "td3-mountaincar": Bar("TD3", "MountainCarContinuous-v0", 90, 100_000, {**CLIMB, "noise": 0.3}),
    "sac-mountaincar": Bar("SAC", "MountainCarContinuous-v0", 90, 100_000, CLIMB),
    "es-cartpole": Bar("ES", "CartPole-v1", 475, 2_000_000, {"metrics_window": 20}),
    "ars-cartpole": Bar("ARS", "CartPole-v1", 475, 200_000, {"metrics_window": 20}),
    "es-pendulum": Bar("ES", "Pendulum-v1", -250, 5_000_000, {"metrics_window": 20}),
    "ars-pendulum": Bar(
        "ARS",
        "Pendulum-v1",
        -250,
        5_000_000,
        {
            "metrics_window": 20,
            "hidden": (16,),
            "sigma": 0.2,
            "directions": 32,
            "best": 16,
            "normalize_observations": False,
        },
    ),
    "recurrent-ppo-blind-cartpole": Bar(
        "RecurrentPPO", BlindCartPole, 450, 500_000, {"gae_lambda": 0.8, "gamma": 0.98}
    ),
    "multi-agent-ppo-two-cartpoles": Bar("MultiAgentPPO", TwoCartPoles, 450, 400_000, {}),
    "apex-dqn-cartpole": Bar("ApexDQN", "CartPole-v1", 450, 400_000, {"workers": 3}),
    "apex-ddpg-pendulum": Bar("ApexDDPG", "Pendulum-v1", -200, 60_000, {"workers": 3, "metrics_window": 20}),
    "a2c-cartpole": Bar("A2C", "CartPole-v1", 475, 500_000, {}),
}
