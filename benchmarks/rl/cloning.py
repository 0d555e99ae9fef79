"""How many gradient steps does behaviour cloning need? Clones a controller of CartPole and writes the curves as JSON.

    python benchmarks/rl/cloning.py --seeds 5

The curves go to benchmarks/rl/curves/bc-cartpole.json, for `plot.py` and `pages.py`; it takes seconds.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from weft.rl import BC
from weft.rl.offline import EpisodeWriter

ENV, EPISODES, MISTAKES = "CartPole-v1", 50, 0.2
CONTROLLER = np.array([0.05, 0.3, 1.0, 1.0])  # of the cart's place and speed, the pole's angle and speed
BAR: dict[str, Any] = {
    "algorithm": "BC",
    "env": ENV,
    "reward": 475,
    "timesteps": 2000,
    "axis": "gradient steps",
    "settings": {"updates_per_iteration": 20, "evaluation_episodes": 20},
}


def record(folder: str, seed: int) -> float:
    """Write the controller's episodes, in which a fifth of the steps is anything; their mean reward."""
    env, rng = gymnasium.make(ENV), np.random.default_rng(seed)
    rewards = []
    with EpisodeWriter(folder, env.observation_space, env.action_space) as writer:
        for episode in range(EPISODES):
            seen, actions, earned, ended, cut = [env.reset(seed=1000 * seed + episode)[0]], [], [], False, False
            while not (ended or cut):
                wanted = int(CONTROLLER @ seen[-1] > 0)
                actions.append(int(rng.integers(2)) if rng.random() < MISTAKES else wanted)
                observation, reward, ended, cut, _ = env.step(actions[-1])
                seen.append(observation)
                earned.append(float(reward))
            writer.add(seen, actions, earned, ended)
            rewards.append(sum(earned))
    env.close()
    return float(np.mean(rewards))


def clone(folder: str, seed: int) -> dict[str, Any]:
    """The rewards of evaluations after so many gradient steps, until one reaches the bar."""
    curve: list[tuple[int, float]] = []
    reached = None
    with BC(BAR["settings"], env=ENV, episodes=folder, seed=seed) as algorithm:
        while reached is None and len(curve) * algorithm.config.updates_per_iteration < BAR["timesteps"]:
            reward = algorithm.train()["evaluation"]["episode_reward_mean"]
            curve.append(((len(curve) + 1) * algorithm.config.updates_per_iteration, round(reward, 2)))
            reached = curve[-1][0] if reward >= BAR["reward"] else None
    return {"seed": seed, "reached_at": reached, "best": max(reward for _, reward in curve), "curve": curve}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    runs = []
    for seed in range(1, parser.parse_args().seeds + 1):
        with tempfile.TemporaryDirectory() as folder:
            recorded = record(folder, seed)
            runs.append(clone(folder, seed))
        print(f"seed {seed}: recorded {recorded:.0f}, cloned in {runs[-1]['reached_at']} steps", flush=True)
    path = Path(__file__).parent / "curves" / "bc-cartpole.json"
    path.write_text(json.dumps({"bar": BAR, "runs": runs}) + "\n")


if __name__ == "__main__":
    main()
