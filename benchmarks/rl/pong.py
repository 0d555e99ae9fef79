"""Pong from pixels with PPO: does it learn in the time that a machine has?

    python benchmarks/rl/pong.py --size small --minutes 30        # two cores
    python benchmarks/rl/pong.py --size full --workers 14         # a GPU that learns, CPUs that play

Needs `pip install ale-py`. The small form sees 40 × 40 pixels and learns on the CPU; the full one sees 80 × 80 with the
network of Mnih et al. (2015) and learns where JAX finds a device. A run ends after `--minutes`, or when the mean of 100
training episodes reaches the bar (a policy at random has -20.3), unless it is to go on `--to-the-end`. Its curve goes
to benchmarks/rl/curves/pong-<size>.json, beside those of other seeds; `plot.py` and `pages.py` put it into the docs.
With `--checkpoint FOLDER` a run goes on where the last one with the same folder ended.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from weft.rl import PPO

SETTINGS: dict[str, dict[str, Any]] = {
    "small": {
        "env_config": {"shrink": 4},
        "workers": 2,
        "envs_per_worker": 16,
        "convolutions": ((16, 4, 2), (32, 4, 2)),
        "image_features": 256,
        "learning_rate": 1e-3,
        "epochs": 4,
        "minibatch": 512,
    },
    "full": {
        "env_config": {"shrink": 2},
        "workers": 14,
        "envs_per_worker": 4,
        "learning_rate": 4e-4,
        "epochs": 4,
        "minibatch": 512,
    },
}
COMMON = {"fragment_steps": 128, "clip": 0.1, "entropy_weight": 0.01, "metrics_window": 100}
BARS = {"small": -18.0, "full": 18.0}
FIELD = slice(34, 194)  # the rows between the score and the lower edge
STACK, SKIP = 4, 4


class PongPixels(gymnasium.Env[NDArray[np.uint8], np.int64]):
    """Pong as the last four frames of the field, each pixel the brightest of `shrink` × `shrink`.

    A step is four frames with one action, as in Mnih et al. (2015); actions are never repeated at random.
    """

    def __init__(self, shrink: int = 2) -> None:
        import ale_py

        gymnasium.register_envs(ale_py)
        self._env = gymnasium.make(
            "ALE/Pong-v5",
            obs_type="grayscale",
            frameskip=SKIP,
            repeat_action_probability=0.0,
            disable_env_checker=True,
        )
        self._shrink, self._side = shrink, 160 // shrink
        self.action_space = self._env.action_space  # type: ignore[assignment]
        self.observation_space = gymnasium.spaces.Box(0, 255, (self._side, self._side, STACK), np.uint8)
        self._frames = np.zeros(self.observation_space.shape, np.uint8)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        screen, _ = self._env.reset(seed=seed, options=options)
        self._frames[:] = self._shrunk(screen)[..., None]
        return self._frames.copy(), {}

    def step(self, action: np.int64) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        screen, reward, terminated, truncated, _ = self._env.step(action)
        self._frames[..., :-1] = self._frames[..., 1:]
        self._frames[..., -1] = self._shrunk(screen)
        return self._frames.copy(), float(reward), terminated, truncated, {}

    def close(self) -> None:
        self._env.close()

    def _shrunk(self, screen: NDArray[np.uint8]) -> NDArray[np.uint8]:
        blocks = screen[FIELD].reshape(self._side, self._shrink, self._side, self._shrink)
        brightest: NDArray[np.uint8] = blocks.max(axis=1).max(axis=2)
        return brightest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SETTINGS, default="small")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int)
    parser.add_argument("--checkpoint", type=Path, help="a folder to go on from, and to write to at the end")
    parser.add_argument("--to-the-end", action="store_true", help="go on after the bar, for a whole curve")
    parser.add_argument("--curve", type=Path, help="where the curve goes instead")
    parser.add_argument("--set", type=json.loads, default={}, metavar="JSON", help="settings to try")
    options = parser.parse_args()
    settings = {**COMMON, **SETTINGS[options.size], **options.set}
    if options.workers is not None:
        settings["workers"] = options.workers
    path = options.curve or Path(__file__).parent / "curves" / f"pong-{options.size}.json"
    bar = {"algorithm": "PPO", "env": "Pong from pixels", "reward": BARS[options.size], "settings": settings}
    bar = json.loads(json.dumps(bar))
    with PPO(settings, env=PongPixels, seed=options.seed) as algorithm:
        run: dict[str, Any] = {
            "seed": options.seed,
            "reached_at": None,
            "seconds_to_bar": None,
            "seconds": 0,
            "curve": [],
        }
        if options.checkpoint and options.checkpoint.exists():
            algorithm.restore(options.checkpoint)
            run = next(one for one in runs_of(path, bar) if one["seed"] == options.seed)
        play(algorithm, run, bar["reward"], 60 * options.minutes, options.to_the_end)
        others = [one for one in runs_of(path, bar) if one["seed"] != options.seed]
        runs = sorted([*others, run], key=lambda one: int(one["seed"]))
        path.write_text(json.dumps({"bar": bar, "runs": runs}) + "\n")
        if options.checkpoint:
            algorithm.save(options.checkpoint)
    print(f"{run['seconds']} s, {run['curve'][-1][0]:,} steps: {run['curve'][-1][1]}; bar at {run['reached_at']}")


def runs_of(path: Path, bar: dict[str, Any]) -> list[dict[str, Any]]:
    """The runs in the file, if they were made with these settings."""
    kept: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    runs: list[dict[str, Any]] = kept["runs"] if kept.get("bar") == bar else []
    return runs


def play(algorithm: PPO, run: dict[str, Any], bar: float, limit_s: float, to_the_end: bool) -> None:
    """Train for so long, or to the bar, and add to the run's curve."""
    began, before_s = time.monotonic(), run["seconds"]
    while time.monotonic() - began < limit_s and (to_the_end or run["reached_at"] is None):
        result = algorithm.train()
        steps, reward = result["timesteps_total"], result["episode_reward_mean"]
        run["curve"].append((steps, None if reward != reward else round(reward, 2)))
        run["seconds"] = round(before_s + time.monotonic() - began)
        if run["reached_at"] is None and reward >= bar:
            run["reached_at"], run["seconds_to_bar"] = steps, run["seconds"]
        if result["training_iteration"] % 10 == 0:
            shares = f"sampling {result['sample_time_s']:.2f} s, learning {result['learn_time_s']:.2f} s"
            print(f"{run['seconds']:6} s {steps:9,} steps {reward:6.2f}, {shares}", flush=True)


if __name__ == "__main__":
    main()
