"""Simulate, train and serve in one program: episodes are played by the served policy, train it, and it serves on.

python examples/serve_closed_loop.py
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

import weft
from weft import serve

SIMULATORS = 4
EPISODES = 4


class Linear:
    """A softmax over a linear function of the observation."""

    def __init__(self, weights: np.ndarray) -> None:
        self.weights = weights

    def act_batch(self, observations: Any, explore: bool = False) -> list[int]:
        chances = self.chances(np.asarray(observations))
        if explore:
            return [int(np.random.default_rng().choice(len(row), p=row)) for row in chances]
        return [int(row.argmax()) for row in chances]

    def chances(self, observations: np.ndarray) -> np.ndarray:
        scores = observations @ self.weights
        scores = np.exp(scores - scores.max(1, keepdims=True))
        return scores / scores.sum(1, keepdims=True)

    def improved(self, episodes: list[tuple[np.ndarray, np.ndarray]], rate: float = 0.5) -> Linear:
        """One step of REINFORCE, the returns of the round as the baseline."""
        returns = [np.arange(len(actions), 0, -1.0) for _, actions in episodes]
        every = np.concatenate(returns)
        gradient = np.zeros_like(self.weights)
        for (observations, actions), to_go in zip(episodes, returns, strict=True):
            taken = np.eye(self.weights.shape[1])[actions] - self.chances(observations)
            gradient += observations.T @ (taken * ((to_go - every.mean()) / (every.std() + 1e-8))[:, None])
        return Linear(self.weights + rate * gradient / (np.linalg.norm(gradient) + 1e-8))


@weft.remote(num_cpus=0)
def play(policy: serve.DeploymentHandle, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Some episodes of CartPole, each action asked of the served policy."""
    env = gymnasium.make("CartPole-v1", max_episode_steps=200)
    episodes = []
    for number in range(EPISODES):
        observations, actions = [env.reset(seed=seed * 1000 + number)[0]], []
        done = False
        while not done:
            actions.append(policy.explore.remote(observations[-1]).result())
            observation, _, ended, cut, _ = env.step(actions[-1])
            observations.append(observation)
            done = ended or cut
        episodes.append((np.array(observations[:-1]), np.array(actions)))
    return episodes


def main(rounds: int = 15) -> list[float]:
    policy = Linear(np.zeros((4, 2)))
    rewards = []
    for number in range(rounds):
        handle = serve.run(policy, name="cartpole", route_prefix=None)  # new weights, the same replica
        seeds = [number * SIMULATORS + index for index in range(SIMULATORS)]
        episodes = [one for played in weft.get([play.remote(handle, seed) for seed in seeds]) for one in played]
        rewards.append(float(np.mean([len(actions) for _, actions in episodes])))
        print(f"round {number + 1}: reward {rewards[-1]:.0f}", flush=True)
        policy = policy.improved(episodes)
    return rewards


if __name__ == "__main__":
    weft.init()
    main()
    serve.shutdown()
    weft.shutdown()
