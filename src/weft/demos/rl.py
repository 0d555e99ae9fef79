"""`weft demo rl`: PPO learns to balance a pole with two simulation actors, is saved, and plays."""

from __future__ import annotations

import tempfile

import gymnasium

from weft.demos import Options, chart
from weft.demos.story import chapter, say, session
from weft.rl import PPO, Policy

GOAL, MOST_ITERATIONS = 475.0, 150


def main(options: Options) -> None:
    curve: list[tuple[float, float]] = []
    with session(), tempfile.TemporaryDirectory() as folder:
        with PPO(env="CartPole-v1", workers=2, envs_per_worker=4, seed=1) as algorithm:
            with chapter(f"PPO on CartPole, until the mean reward is {GOAL:.0f}"):
                for _ in range(3 if options.short else MOST_ITERATIONS):
                    result = algorithm.train()
                    curve.append((float(result["timesteps_total"]), float(result["episode_reward_mean"])))
                    if curve[-1][1] >= GOAL:
                        break
                say(f"reward {curve[-1][1]:.0f} after {curve[-1][0]:,.0f} steps")
            checkpoint = algorithm.save(folder)
        with chapter("The saved policy, loaded, in NumPy alone"):
            say(f"one game: {game(PPO.load_policy(checkpoint)):.0f} of 500")
        print(chart.sketch({"reward over steps": curve}))


def game(policy: Policy) -> float:
    environment = gymnasium.make("CartPole-v1")
    observation, _ = environment.reset(seed=0)
    reward, done = 0.0, False
    while not done:
        observation, gained, terminated, truncated, _ = environment.step(policy.act(observation))
        reward, done = reward + float(gained), terminated or truncated
    environment.close()
    return reward
