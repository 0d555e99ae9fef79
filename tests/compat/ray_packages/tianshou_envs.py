# needs: tianshou
"""Environments in actors."""

import gymnasium as gym
import numpy as np
from tianshou.env import RayVectorEnv

envs = RayVectorEnv([lambda: gym.make("CartPole-v1") for _ in range(3)])
envs.seed(1)
observations, _ = envs.reset()
assert observations.shape == (3, 4)
for _ in range(20):
    observations, rewards, terminated, truncated, infos = envs.step(np.ones(3, dtype=int))
    if terminated.any():
        envs.reset(np.where(terminated)[0])
assert observations.shape == (3, 4) and rewards.tolist() == [1.0, 1.0, 1.0]
envs.close()
